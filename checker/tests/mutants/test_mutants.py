"""Mutants of the checker: each breaks one rule of `bnncert_check`, and each is caught accepting
something false.

A mutant is the whole package, imported afresh with one piece of its text replaced. A fixed suite
runs against it: forged certificates of tiny networks whose P_safe is known, and bounds whose exact
value is known. It is killed if it accepts a claim that is false or that the format forbids, or if a
bound lies on the wrong side; an exception kills nothing. The checker itself passes the suite, and
accepts true claims on the same evidence.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import bnncert_check
from mutants.certificates import LINE, Case, Problem, accepted, boxes, fields
from mutants.fresh import imported
from mutants.outcomes import Wrong, never
from mutants.suite import cases, run_suite
from mutants.table import DEFECTS, SOURCES, mutants, mutated


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All certificates, as files."""
    where = tmp_path_factory.mktemp("certificates")
    for number, case in enumerate(cases()):
        case.write(where, number)
    return where


def test_the_suite_knows_the_truth() -> None:
    """Claims that must be refused are false or forbidden, and the others are true."""
    for case in cases():
        least, most = case.truth or (math.inf, -math.inf)
        for name, claim in case.claims.items():
            lower, upper, *_ = (
                float.fromhex(end) if isinstance(end, str) else end for end in claim
            )
            assert (
                lower <= least <= most <= upper if name == "true" else lower > most or upper < least
            ), case.name


def test_the_checker_passes(folder: Path) -> None:
    """And it accepts what is true, on evidence on which it refuses what is false."""
    with imported(SOURCES) as checker:
        run_suite(checker, folder)
        for number, case in enumerate(cases()):
            assert case.true is None or accepted(checker, folder, number, "true"), case.name


@pytest.mark.parametrize(
    ("module", "original", "new"), [m[1:] for m in mutants()], ids=[m[0] for m in mutants()]
)
def test_the_mutant_is_killed(module: str, original: str, new: str, folder: Path) -> None:
    texts = mutated(SOURCES, module, original, new)
    with imported(texts) as checker, pytest.raises(Wrong):
        run_suite(checker, folder, module)


@pytest.mark.parametrize("name", DEFECTS)
def test_the_defect_is_caught(name: str, folder: Path) -> None:
    texts = SOURCES
    for module, original, new in DEFECTS[name]:
        texts = mutated(texts, module, original, new)
    with imported(texts) as checker, pytest.raises(Wrong):
        run_suite(checker, folder)


def refuses(case: Case, folder: Path) -> None:
    case.write(folder, 0)
    never(accepted(bnncert_check, folder, 0, "false0"), case.name)


def test_flushed_subnormals_are_noticed(tmp_path: Path) -> None:
    """Their sum is what makes this output negative."""
    tiny = Problem(
        ((1000, 1),), fields([-(2.0**-512)] * 1000 + [3 * 2.0**-1022]), [2.0**-511] * 1000
    )
    torch.set_flush_denormal(True)
    try:
        refuses(Case("subnormals", tiny, boxes(), (0, 0), [(1, 1)]), tmp_path)
    finally:
        torch.set_flush_denormal(False)


def test_a_weight_truncated_to_a_point_is_an_atom(tmp_path: Path) -> None:
    """y = 10 w + b is positive iff w > 0, since b = 0; two cells meet there."""
    posterior = ({"mean": [0, 0], "std": [1, 1], "low": [-9, 0], "high": [9, 0]},)
    cells = [{"parent": i, "cuts": []} for i in range(2)]
    evidence = boxes(
        ([1.85, -1.45], 1.45), ([1.85, 1.45], 1.45), cells=cells, separators=[[1, 0, 1]]
    )
    problem = Problem(LINE, posterior, [10], family="truncated-normal")
    refuses(Case("an atom counted twice", problem, evidence, (0.5, 0.5), [(0.6, 1)]), tmp_path)
