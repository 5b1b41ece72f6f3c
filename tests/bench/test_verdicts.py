"""Certificates count if the checker accepts them and they are about the very question."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from bnncert import Concentration, Problem, Specification, ball, certify, decide
from bnncert.bench.known import KNOWN
from bnncert.bench.recipes import box, rows
from bnncert.bench.suite import make, read_suite
from bnncert.bench.verdicts import NOT_INSTALLED, Verdict, verdict_on

(OUTSIDE,) = (recipe for recipe in KNOWN if recipe.name == "truth-outside")  # w x < 1 on [0, 1]
(LOGIT,) = (recipe for recipe in KNOWN if recipe.name == "truth-logit")


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    make([OUTSIDE], tmp_path)
    return read_suite(tmp_path)[0].path


def judged(specification: Specification, instance: Path, folder: Path) -> Verdict:
    """The verdict on a certificate about the instance's posterior."""
    result = certify(Problem(*OUTSIDE.model(), specification), Concentration())[0]
    assert result.certificate is not None
    result.certificate.write(folder / "certificate.safetensors")
    return verdict_on(folder / "certificate.safetensors", instance)


def test_rows_may_be_scaled_and_in_any_order(instance: Path, tmp_path: Path) -> None:
    found = judged(rows(box([0.0], [1.0]), [[-4.0], [-0.5]], [4.0, 0.5]), instance, tmp_path)
    assert found.accepted, found.reason
    assert 0.9 < found.lower <= found.upper <= 1


def test_another_question_does_not_count(instance: Path, tmp_path: Path) -> None:
    half = torch.full((1, 1), 0.5).double()
    near = Specification(ball(half, 0.5), torch.full((1, 1, 1), -1.0).double(), half[:1] * 2)
    others = {
        "the certificate's box has another upper end": rows(box([0.0], [0.5]), [[-1.0]], [1.0]),
        "the certificate's output rows are others": rows(box([0.0], [1.0]), [[-1.0]], [2.0]),
        "the certificate's region is no box": near,
    }
    for reason, specification in others.items():
        found = judged(specification, instance, tmp_path)
        assert (found.accepted, found.reason) == (False, reason)
        assert (found.lower, found.upper) == (0.0, 1.0)


def test_another_posterior_or_no_certificate_is_the_checkers_word(
    instance: Path, tmp_path: Path
) -> None:
    decision = decide(Problem(*LOGIT.model(), LOGIT.question()))[0]
    assert decision.certificate is not None
    path = tmp_path / "other.safetensors"
    decision.certificate.write(path)
    found = verdict_on(path, instance)
    assert not found.accepted
    assert found.reason.startswith(("REJECT", "ERROR"))
    path.write_text("no certificate")
    assert verdict_on(path, instance).reason.startswith("ERROR unreadable")


def test_a_mean_is_no_p_safe(tmp_path: Path) -> None:
    """Of the same posterior, region and rows."""
    make([LOGIT], tmp_path)
    (asked,) = read_suite(tmp_path)
    result = certify(Problem(*LOGIT.model(), LOGIT.question()), Concentration())[0]
    assert result.certificate is not None
    path = tmp_path / "certificate.safetensors"
    result.certificate.write(path)
    found = verdict_on(path, asked.path)
    assert (found.accepted, found.reason) == (False, "the certificate is about P_safe")


def test_without_the_checker_nothing_is_accepted(
    instance: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bnncert_check.certificate", None)
    found = verdict_on(tmp_path / "any.safetensors", instance)
    assert (found.accepted, found.reason) == (False, NOT_INSTALLED)
