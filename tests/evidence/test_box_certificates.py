"""Certificates of boxes: every claim carries one, its boxes are safe, other files are none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnncert import certify
from bnncert.bounds import BOUNDS
from bnncert.errors import InputError
from bnncert.evidence.certificate import read_certificate
from bnncert.files.digest import canonical_json
from bnncert.methods import PIE
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.posteriors.independent import Normal
from bnncert.results.folder import line
from bnncert.results.rows import Result
from box_methods import FEW, classifier
from scenarios import claimed, paper_example


@pytest.mark.parametrize("name", FEW)
def test_every_claim_carries_its_certificate(name: str, tmp_path: Path) -> None:
    """certified <=> lower >= threshold, lower > 0 <=> a certificate, which survives the disk, names
    its problem and repeats the claim."""
    problem = classifier()
    results = certify(problem, FEW[name], seed=5, at_least=1e-9)
    assert {result.status for result in results} >= {"certified", "misclassified"}
    for i, result in enumerate(results):
        assert (result.status == "certified") == (result.lower >= 1e-9)
        assert (result.lower > 0) == (result.certificate is not None)
        assert 0 <= result.lower <= result.upper <= 1
        if result.certificate is not None:
            check_certificate(problem[i : i + 1], result, tmp_path / f"{i}.safetensors")


def check_certificate(problem: Problem, result: Result, path: Path) -> None:
    written = result.certificate
    assert written is not None
    written.write(path)
    read = read_certificate(path)
    assert canonical_json(read.header) == canonical_json(written.header)
    assert read.tensors.keys() == written.tensors.keys()
    assert all(torch.equal(value, written.tensors[name]) for name, value in read.tensors.items())
    header, region = read.header, problem.specification.region
    assert header["digests"] == {
        "architecture": problem.network.digest,
        "posterior": problem.posterior.digest,
        "specification": problem.specification.digest,
        "problem": problem.digest,
    }
    assert (header["claim"]["lower"], header["claim"]["upper"]) == (
        result.lower.hex(),
        result.upper.hex(),
    )
    assert (header["bound_calls"], header["seed"]) == (result.bound_calls, result.seed)
    assert header["region"] == {"norm": "linf", "clip": [0.0, 1.0], "eps": result.eps.hex()}
    assert torch.equal(read.tensors["x"], region.center[0])
    assert torch.equal(read.tensors["rows"], problem.specification.rows[0])


@pytest.mark.parametrize("name", FEW)
def test_the_boxes_of_a_certificate_are_safe(name: str) -> None:
    """Rebuilt from the certificate alone (centre, signs, steps, rule in float64), every box passes
    the bound again."""
    problem = classifier()
    posterior, spec = problem.posterior, problem.specification
    for i, result in enumerate(certify(problem, FEW[name])):
        if result.certificate is None:
            continue
        for box in certified_boxes(result, posterior):
            bound = BOUNDS[FEW[name].bound]
            rows = bound(
                problem.network,
                box,
                spec.region[i : i + 1],
                spec.rows[i : i + 1],
                spec.offsets[i : i + 1],
            )
            assert bool((rows > 0).all())
            assert float(posterior.log_mass(box).exp()) <= result.lower * (1 + 1e-7)


def certified_boxes(result: Result, posterior: Normal) -> Iterator[Box]:
    """Every box of the evidence, grown anew in plain float64 arithmetic."""
    assert result.certificate is not None
    evidence, tensors = result.certificate.header["evidence"], result.certificate.tensors
    step, rho, zero_only = (
        evidence["growth"][key] for key in ("step", "rho", "zero_gradient_only")
    )
    for k, entry in enumerate(evidence["boxes"]):
        center = posterior.center if entry["draw"] is None else tensors[f"center{k}"]
        signs = tensors.get(f"signs{k}", torch.zeros_like(center)).double()
        down, up = (signs == 0, signs == 0) if zero_only else (signs <= 0, signs >= 0)
        widths = [step * posterior.std * (1 + rho * side.double()) for side in (down, up)]
        yield Box(center - entry["steps"] * widths[0], center + entry["steps"] * widths[1])


def test_a_single_box_certificate_is_its_mass() -> None:
    """With one centre the claim is the mass of the box that the certificate describes, to the last
    digits."""
    for name in ("pie", "gie", "gie as published"):
        problem = classifier()
        for result in certify(problem, replace(FEW[name], samples=1)):
            if result.certificate is not None:
                (box,) = certified_boxes(result, problem.posterior)
                assert result.lower == pytest.approx(
                    claimed(float(problem.posterior.log_mass(box).exp())), rel=1e-12
                )


def test_a_result_is_one_json_line() -> None:
    (result,) = certify(paper_example(), PIE(samples=2), seed=4, indices=[17])
    text = line(result, "certificates/000017.safetensors")
    fields = json.loads(text)
    assert text.index("\n") == len(text) - 1
    assert fields["certificate"] == "certificates/000017.safetensors"
    assert (fields["index"], fields["status"], fields["method"], fields["seed"]) == (
        17,
        "undecided",
        "pie",
        4,
    )
    assert (fields["lower"], fields["upper"], fields["bound_calls"]) == (
        result.lower,
        1.0,
        result.bound_calls,
    )


@pytest.mark.parametrize(
    "content", [b"", b"not a certificate", b"\x80\x04\x95pickle", b"\xff" * 64]
)
def test_other_files_are_not_certificates(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "false.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a safetensors file"):
        read_certificate(path)
    with pytest.raises(InputError, match="is not a safetensors file"):
        read_certificate(tmp_path / "missing.safetensors")
