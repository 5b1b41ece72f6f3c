"""Empirical posteriors: enumeration against the truth, their files, and the checker on certificates
of networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bnncert import (
    PIE,
    Concentration,
    Enumeration,
    InputError,
    Network,
    Problem,
    ball,
    certify,
    class_robust,
    half_space,
    load_posterior,
    mlp,
    save_posterior,
)
from bnncert.evidence.certificate import Certificate
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import Empirical, Normal
from bnncert.posteriors.base import sample
from bnncert_check import ACCEPT, ERROR, REJECT, Verdict, check_certificate, read_model
from scenarios import gaussian as normals
from scenarios import uniform, vector

LINE = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))


def scaled(*slopes: float) -> Problem:
    """y = slope·x for each slope, on x in [0.9, 1.1]; safe iff y > 1.8."""
    samples = torch.stack([vector(1.0, slope) for slope in slopes])
    asked = half_space(ball(vector(1.0).reshape(1, 1), 0.1), vector(1.0), 1.8)
    return Problem(LINE, Empirical(samples), asked)


@pytest.mark.parametrize(
    ("slopes", "lower", "upper"),
    [
        ((3.0, 2.5, 2.1), 1.0, 1.0),
        ((3.0, 1.0, 1.0, 1.9), 0.25, 0.25),
        ((1.0,), 0.0, 0.0),
        ((3.0, 3.0, 1.0), 2 / 3, 2 / 3),
    ],
)
def test_counts_where_the_truth_is_known(
    slopes: tuple[float, ...], lower: float, upper: float
) -> None:
    result = certify(scaled(*slopes))[0]
    assert result.method == "enumeration"
    assert result.lower <= lower <= result.upper or (result.lower, result.upper) == (lower, upper)
    assert (result.lower, result.upper) == pytest.approx((lower, upper), abs=1e-7)
    assert result.bound_calls == len(slopes)


def test_a_tie_is_unsafe() -> None:
    """y = 2x reaches 1.8 at x = 0.9, up to rounding of the region's end: never verified."""
    assert certify(scaled(2.0))[0].lower == 0


@pytest.mark.parametrize("seed", range(8))
def test_never_beyond_dense_sampling_of_the_region(seed: int) -> None:
    """A network that some sampled point breaks is not verified, and a refuted one is broken at its
    point."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(3, 6, 3)
    samples = normals(12, network.size, generator=generator)
    x = uniform(4, 3, generator=generator)
    labels = network.forward(samples[0], x).argmax(-1)
    asked = class_robust(ball(x, 0.1, clip=(0, 1)), labels, 3)
    problem = Problem(network, Empirical(samples), asked)
    box = asked.region.box
    points = box.lower + (box.upper - box.lower) * uniform(500, 4, 3, generator=generator)
    worst = torch.stack([asked.margins(network.forward(samples, p)).amin(-1) for p in points]).amin(
        0
    )  # [S, B]
    for i, result in enumerate(certify(problem)):
        survivors = int((worst[:, i] > 0).sum())
        assert result.lower <= survivors / 12
        if result.certificate is None:
            continue
        evidence, found = (
            result.certificate.header["evidence"],
            result.certificate.tensors["points"],
        )
        assert not set(evidence["verified"]) & {s for s, _, _ in evidence["refuted"]}
        for s, p, r in evidence["refuted"]:
            assert bool((box.lower[i] <= found[p]).all() & (found[p] <= box.upper[i]).all())
            assert (
                float(asked[i : i + 1].margins(network.forward(samples[s], found[p : p + 1]))[0, r])
                <= 1e-12
            )


def test_methods_say_what_would_work() -> None:
    problem = scaled(3.0, 1.0)
    for method in (Concentration(), PIE()):
        with pytest.raises(InputError, match="enumeration"):
            certify(problem, method)
    normal = Problem(LINE, Normal(vector(1.0, 1.0), vector(0.1, 0.1)), problem.specification)
    with pytest.raises(InputError, match="concentration"):
        certify(normal, Enumeration())


def test_files_keep_every_sample(tmp_path: Path) -> None:
    network = mlp(3, 4, 2)
    samples = normals(5, network.size, generator=torch.Generator().manual_seed(1))
    posterior = Empirical(samples)
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    again, loaded = load_posterior(tmp_path / "p.safetensors")
    assert again == network
    assert isinstance(loaded, Empirical)
    assert torch.equal(loaded.samples, samples)
    assert (
        loaded.digest == posterior.digest == read_model(tmp_path / "p.safetensors").posterior_digest
    )


def test_draws_are_the_samples() -> None:
    posterior = Empirical(torch.arange(12, dtype=torch.float64).reshape(4, 3))
    drawn = sample(posterior, 400, seed=0)
    assert {tuple(row) for row in drawn.tolist()} == {
        tuple(row) for row in posterior.samples.tolist()
    }
    assert posterior.center.tolist() in posterior.samples.tolist()


@pytest.mark.parametrize(
    "samples", [torch.zeros(3), torch.zeros(0, 3), torch.zeros(2, 0), torch.full((1, 2), torch.nan)]
)
def test_bad_samples_are_refused(samples: Tensor) -> None:
    with pytest.raises(InputError, match="samples"):
        Empirical(samples.double())
    with pytest.raises(InputError, match="float64"):
        Empirical(torch.zeros(1, 2))


# --- The checker ---


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Verdict]:
    """The verdict on the certificate of four networks (0 and 1 safe, 2 and 3 not) after changes of
    its evidence."""
    problem = scaled(3.0, 2.5, 1.0, 1.5)
    save_posterior(tmp_path / "p.safetensors", LINE, problem.posterior)
    model = read_model(tmp_path / "p.safetensors")
    found = certify(problem)[0].certificate
    assert found is not None

    def checked(
        claim: dict[str, str] | None = None, points: Tensor | None = None, **evidence: Any
    ) -> Verdict:
        header = json.loads(json.dumps(found.header))
        header["evidence"] |= evidence
        header["claim"] |= claim or {}
        tensors = found.tensors | ({} if points is None else {"points": points})
        Certificate(header, tensors).write(tmp_path / "c.safetensors")
        return check_certificate(tmp_path / "c.safetensors", model)

    return checked


def test_what_certify_writes_is_accepted(check: Callable[..., Verdict]) -> None:
    verdict = check()
    assert verdict.status == ACCEPT
    assert verdict.supported == (0.5, 0.5)


def test_less_evidence_supports_less(check: Callable[..., Verdict]) -> None:
    assert check(verified=[0]).code == "probability-too-high"
    assert check(refuted=[]).code == "upper-too-low"
    assert check(verified=[0], claim={"lower": (0.25).hex()}).status == ACCEPT


@pytest.mark.parametrize(
    ("evidence", "status", "code"),
    [
        ({"verified": [0, 1, 1]}, REJECT, "network-counted-twice"),
        ({"verified": [0, 1, 2], "refuted": [[2, 0, 0]]}, REJECT, "network-counted-twice"),
        ({"verified": [0, 1, 2], "refuted": [[3, 0, 0]]}, REJECT, "row-not-positive"),
        ({"verified": [0], "refuted": [[1, 0, 0]]}, REJECT, "network-not-refuted"),
        ({"points": torch.tensor([[1.2]]).double()}, REJECT, "point-outside-region"),
        ({"points": torch.tensor([[1.0, 1.0]]).double()}, ERROR, "malformed"),
        ({"verified": [4]}, ERROR, "malformed"),
        ({"verified": [True]}, ERROR, "malformed"),
        ({"refuted": [[2, 1, 0]]}, ERROR, "malformed"),
        ({"refuted": [[2, 0, 1]]}, ERROR, "malformed"),
        ({"refuted": [[2, 0]]}, ERROR, "malformed"),
    ],
)
def test_tampered_evidence(
    check: Callable[..., Verdict], evidence: Any, status: str, code: str
) -> None:
    verdict = check(**evidence)
    assert (verdict.status, verdict.code) == (status, code)


def test_kinds_and_families_must_fit(tmp_path: Path) -> None:
    problem = scaled(3.0, 2.5)
    networks = certify(problem)[0].certificate
    normal = replace(problem, posterior=Normal(vector(1.0, 3.0), vector(0.01, 0.01)))
    gaussian = certify(normal)[0].certificate
    assert networks is not None
    assert gaussian is not None
    for name, asked, certificate in (("p", problem, gaussian), ("n", normal, networks)):
        save_posterior(tmp_path / f"{name}.safetensors", LINE, asked.posterior)
        model = read_model(tmp_path / f"{name}.safetensors")
        digests = {"posterior": asked.posterior.digest, "problem": asked.digest}
        header = certificate.header | {"digests": certificate.header["digests"] | digests}
        Certificate(header, certificate.tensors).write(tmp_path / "c.safetensors")
        verdict = check_certificate(tmp_path / "c.safetensors", model)
        assert (verdict.status, verdict.code) == (ERROR, "unsupported")
