"""Certificates and folders of results from before evidence was typed, of every kind: they still
check.

tests/before holds one folder a case, each with its posterior, as version 0.1.0 wrote them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bnncert_check import ACCEPT, check_results, read_model, read_results

BEFORE = Path(__file__).parent / "before"
CASES = sorted(path.name for path in BEFORE.iterdir())


def test_every_kind_is_there() -> None:
    assert {
        "cells",
        "bonferroni",
        "networks",
        "decide",
        "decide-mean",
        "conv-refined",
        "common",
        "cut",
    } <= {*CASES}
    assert len(CASES) > 40


@pytest.mark.parametrize("name", CASES)
def test_what_was_written_before_is_accepted(name: str) -> None:
    folder = BEFORE / name
    model = read_model(folder / "posterior.safetensors")
    verdicts = list(check_results(folder, read_results(folder), model))
    assert verdicts
    assert [(verdict.status, verdict.code) for verdict in verdicts] == [(ACCEPT, None)] * len(
        verdicts
    )
