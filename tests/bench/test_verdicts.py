"""Certificates count if the checker accepts them and they are about the very question."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnncert import Concentration, Problem, Specification, ball, certify, decide
from bnncert.bench.known import KNOWN
from bnncert.bench.recipes import box, rows
from bnncert.bench.suite import POSTERIORS, SUITE, make, read_instance, read_suite
from bnncert.bench.verdicts import CHANGED, NOT_INSTALLED, Verdict, verdict_on
from bnncert.evidence.certificate import Certificate
from bnncert.evidence.predictive import MEAN
from bnncert.files.digest import digest
from bnncert.importers import save_posterior

(OUTSIDE,) = (recipe for recipe in KNOWN if recipe.name == "truth-outside")  # w x < 1 on [0, 1]
(LOGIT,) = (recipe for recipe in KNOWN if recipe.name == "truth-logit")


@pytest.fixture
def instance(tmp_path: Path) -> Path:
    make([OUTSIDE], tmp_path)
    return read_suite(tmp_path)[0].path


def verdict_of(certificate: Path, instance: Path) -> Verdict:
    return verdict_on(certificate, instance, read_instance(instance).digest)


def judged(specification: Specification, instance: Path, folder: Path) -> Verdict:
    """The verdict on a certificate about the instance's posterior."""
    result = certify(Problem(*OUTSIDE.model(), specification), Concentration())[0]
    assert result.certificate is not None
    result.certificate.write(folder / "certificate.safetensors")
    return verdict_of(folder / "certificate.safetensors", instance)


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
    found = verdict_of(path, instance)
    assert not found.accepted
    assert found.reason.startswith(("REJECT", "ERROR"))
    path.write_text("no certificate")
    assert verdict_of(path, instance).reason.startswith("ERROR unreadable")


def test_a_mean_is_no_p_safe(tmp_path: Path) -> None:
    """Of the same posterior, region and rows."""
    make([LOGIT], tmp_path)
    (asked,) = read_suite(tmp_path)
    result = certify(Problem(*LOGIT.model(), LOGIT.question()), Concentration())[0]
    assert result.certificate is not None
    path = tmp_path / "certificate.safetensors"
    result.certificate.write(path)
    found = verdict_of(path, asked.path)
    assert (found.accepted, found.reason) == (False, "the certificate is about P_safe")


def test_without_the_checker_nothing_is_accepted(
    instance: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bnncert_check.certificate", None)
    found = verdict_of(tmp_path / "any.safetensors", instance)
    assert (found.accepted, found.reason) == (False, NOT_INSTALLED)


def restated(certificate: Certificate, rows: torch.Tensor, offsets: torch.Tensor) -> Certificate:
    """The same evidence about other rows, with the digests that belong to them."""
    region = {"norm": certificate.norm, "clip": certificate.clip}
    ends = [certificate.x, *(certificate.tensors[name] for name in ("lower", "upper"))]
    parts = [certificate.digests[name] for name in ("architecture", "posterior")]
    parts.append(digest(region, [part.unsqueeze(0) for part in (*ends, rows, offsets)]))
    names = ("architecture", "posterior", "specification", "problem")
    digests = dict(zip(names, [*parts, digest(parts)], strict=True))
    tensors = {**certificate.tensors, "rows": rows, "offsets": offsets}
    return Certificate({**certificate.header, "digests": digests}, tensors)


def test_a_softmax_is_of_this_class_and_not_scaled(tmp_path: Path) -> None:
    """Scaled rows are the same condition, and another softmax; so are rows of another class, which
    the posterior can be proved to meet."""
    make([LOGIT], tmp_path)
    (asked,) = read_suite(tmp_path)
    question = LOGIT.question()
    certificate = decide(Problem(*LOGIT.model(), question))[0].certificate
    assert certificate is not None
    path, rows, offsets = tmp_path / "c.safetensors", question.rows[0], question.offsets[0]
    restated(certificate, rows, offsets).write(path)
    assert verdict_of(path, asked.path).accepted  # the forger's tool itself is right
    for changed in ((10 * rows, offsets), (rows / 100, offsets), (rows, offsets + 1)):
        restated(certificate, *changed).write(path)
        found = verdict_of(path, asked.path)
        assert not found.accepted
        assert found.reason.startswith("ERROR unsupported")
    restated(certificate, rows.repeat(2, 1), offsets.repeat(2)).write(path)
    assert not verdict_of(path, asked.path).accepted
    other = Specification(question.region, -question.rows, question.offsets, torch.tensor([1]))
    honest = decide(Problem(*LOGIT.model(), other))[0].certificate
    assert honest is not None
    honest.write(path)
    assert verdict_of(path, asked.path).reason == "the certificate's output rows are others"


def test_a_mean_is_of_the_first_row_itself(tmp_path: Path) -> None:
    """A condition has no scale and its rows no order; the mean of 4 w x is another number."""
    asked = rows(box([0.0], [1.0]), [[-1.0], [1.0]], [1.0, 1.0])
    make([replace(OUTSIDE, question=lambda: asked, quantity=MEAN)], tmp_path)
    (instance,) = read_suite(tmp_path)
    for scale, accepted in ((-1.0, True), (-4.0, False), (1.0, False)):
        other = rows(box([0.0], [1.0]), [[scale], [-scale]], [abs(scale)] * 2)
        certificate = decide(Problem(*OUTSIDE.model(), other))[0].certificate
        assert certificate is not None
        certificate.write(path := tmp_path / "certificate.safetensors")
        assert verdict_of(path, instance.path).accepted == accepted


def test_files_that_changed_since_do_not_count(instance: Path, tmp_path: Path) -> None:
    """An easier posterior in the place of the one that was asked about, with an honest
    certificate."""
    digest = read_instance(instance).digest
    network, posterior = OUTSIDE.model()
    easier = type(posterior)(posterior.center, posterior.center / 100)
    save_posterior(tmp_path / SUITE / POSTERIORS / "truth-outside.safetensors", network, easier)
    result = certify(Problem(network, easier, OUTSIDE.question()), Concentration())[0]
    assert result.certificate is not None
    path = tmp_path / "certificate.safetensors"
    result.certificate.write(path)
    assert verdict_of(path, instance).accepted
    found = verdict_on(path, instance, digest)
    assert (found.accepted, found.reason) == (False, CHANGED)
