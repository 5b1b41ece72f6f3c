"""The checker on predictive means: what is right is accepted, nothing beyond the truth is
supported."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb

from bnncert import (
    Network,
    Problem,
    Specification,
    ball,
    certify,
    class_robust,
    decide,
    half_space,
    mlp,
    output_interval,
    save_posterior,
)
from bnncert.concentration.moments import output_norms
from bnncert.evidence.certificate import Certificate
from bnncert.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from bnncert.posteriors import Empirical, LowRankNormal, Mixture, Normal, Uniform
from bnncert.results.folder import DECISIONS, result_folder
from bnncert_check import ACCEPT, ERROR, REJECT, CannotCheck, Verdict, check_certificate, read_model
from bnncert_check import predictive as checked_means
from bnncert_check.folder import check_results, read_results
from bnncert_check.region import Region, point_region
from scenarios import draw_many, gaussian, random_posterior, sample_region, uniform, vector

IMAGES = Network(
    (1, 4, 4), (Conv2d(1, 2, 2), ReLU(), MaxPool2d(2, 1), AvgPool2d(2), Flatten(), Dense(2, 3))
)
NETWORKS = {
    "relu": mlp(3, 4, 3),
    "deep": Network((2,), (Dense(2, 3), LeakyReLU(0.2), Dense(3, 3), Tanh(), Dense(3, 3))),
    "sigmoid": Network((2,), (Dense(2, 3), Sigmoid(), Dense(3, 3))),
    "images": IMAGES,
}


def problem_of(name: str, family: str, quantity: str, eps: float = 0.05) -> Problem:
    network, generator = NETWORKS[name], torch.Generator().manual_seed(7)
    region = ball(uniform(2, *network.input_shape, generator=generator), eps)
    own = random_posterior(3, network)
    posterior = {
        "normal": own,
        "low-rank": LowRankNormal(
            own.mean, own.std, 0.05 * gaussian(network.size, 2, generator=generator)
        ),
        "mixture": Mixture((0.25, 0.75), (own, Normal(own.mean, 0.5 * own.std))),
        "samples": Empirical(gaussian(4, network.size, generator=generator)),
    }[family]
    labels = network.forward(posterior.center, region.center).argmax(-1)
    asked = (
        class_robust(region, labels, 3)
        if quantity == "softmax"
        else output_interval(region, -5.0, 5.0, 3, 1)
    )
    return Problem(network, posterior, asked)


CASES = [
    (name, family, quantity)
    for name in NETWORKS
    for family in ("normal", "low-rank", "mixture", "samples")
    for quantity in ("softmax", "mean")
    if (name, family) != ("images", "low-rank")
]


@pytest.mark.parametrize(("name", "family", "quantity"), CASES)
def test_what_decide_writes_is_accepted_and_true(
    name: str, family: str, quantity: str, tmp_path: Path
) -> None:
    """And what the checker itself would support is true as well, by sampling."""
    problem = problem_of(name, family, quantity)
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    with result_folder(tmp_path / "d", name=DECISIONS) as store:
        store(decide(problem))
    model, generator = read_model(tmp_path / "p.safetensors"), torch.Generator().manual_seed(1)
    samples = isinstance(problem.posterior, Empirical)
    weights = (
        problem.posterior.samples if samples else draw_many(problem.posterior, 4000, generator)
    )
    points = sample_region(problem.specification.region, 8, generator)
    for i, verdict in enumerate(check_results(tmp_path / "d", read_results(tmp_path / "d"), model)):
        assert (verdict.status, verdict.code, verdict.quantity) == (ACCEPT, None, quantity)
        assert verdict.supported is not None
        assert verdict.decided is not None
        for x in points:
            outputs = problem.network.forward(weights, x)[:, i]
            label = (
                1 if problem.specification.labels is None else int(problem.specification.labels[i])
            )
            values = (outputs if quantity == "mean" else outputs.softmax(-1))[:, label]
            error = 0.0 if samples else 5 * float(values.std()) / math.sqrt(len(weights))
            assert verdict.supported[0] <= float(values.mean()) + error + 1e-9
            assert verdict.supported[1] >= float(values.mean()) - error - 1e-9


Check = Callable[..., Verdict]


@pytest.fixture(params=["softmax", "mean"])
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Check:
    """The verdict on a certificate after changes of its claim, kind, evidence or tensors."""
    problem = problem_of("relu", "normal", request.param)
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    model, found = read_model(tmp_path / "p.safetensors"), decide(problem)[0].certificate
    assert found is not None

    def checked(
        claim: dict[str, float] | None = None, tensors: dict[str, Any] | None = None, **header: Any
    ) -> Verdict:
        changed = json.loads(json.dumps(found.header)) | header
        changed["claim"] |= {name: value.hex() for name, value in (claim or {}).items()}
        Certificate(changed, found.tensors | (tensors or {})).write(tmp_path / "c.safetensors")
        return check_certificate(tmp_path / "c.safetensors", model)

    checked.kind = request.param  # type: ignore[attr-defined]
    checked.claim = {name: float.fromhex(value) for name, value in found.header["claim"].items()}  # type: ignore[attr-defined]
    return checked


def test_claims_beyond_the_evidence_are_rejected(check: Any) -> None:
    lower, upper = check.claim["lower"], check.claim["upper"]
    assert check().status == ACCEPT
    assert check({"lower": lower / 2 if lower > 0 else 2 * lower}).status == ACCEPT
    middle = (lower + upper) / 2
    assert check({"lower": middle}).code == "probability-too-high"
    assert check({"upper": middle}).code == "upper-too-low"
    if check.kind == "softmax":
        assert check({"gap": check.claim["gap"] + 1e-3}).code == "gap-too-high"
        assert check({"gap": -1.0}).status == ACCEPT


@pytest.mark.parametrize(
    "claim",
    [
        {"lower": 1.0, "upper": 0.0},
        {"lower": -math.inf},
        {"upper": math.inf},
        {"lower": math.nan},
        {"gap": math.nan},
        {"gap": 1.5},
        {"gap": -1.5},
        {"lower": -0.5},
        {"upper": 1.5},
    ],
)
def test_claims_that_are_none(check: Any, claim: dict[str, float]) -> None:
    ((name, value), *_) = claim.items()
    if not math.isfinite(value) or (check.kind == "mean" and name == "gap"):
        assert check(claim).code == "malformed"  # a mean has no gap
    elif check.kind == "mean" and abs(value) in (0.5, 1.5):
        assert check(claim).status in (ACCEPT, REJECT)  # means may be any number
    else:
        assert check(claim).code == "claim-not-a-probability"


def test_a_smaller_region_is_another_question(check: Any) -> None:
    region = {"norm": "linf", "clip": None, "eps": (0.01).hex()}
    assert check(region=region).code == "digest-mismatch"


def test_one_quantity_is_not_another(check: Any) -> None:
    """The kind says what is bounded: under another name the same evidence is refused."""
    others = {"softmax", "mean", "concentration", "boxes", "networks"} - {check.kind}
    for kind in others:
        assert check(kind=kind).status != ACCEPT


def test_slopes_and_thresholds_are_checked(check: Any) -> None:
    assert (
        check(tensors={"c0.lower_slopes1": torch.full((4,), 2.0).double()}).code
        == "slope-out-of-range"
    )
    proofs = {
        side: {"t": t, "rows_optimised": False}
        for side, t in (("lower", "0x0p0"), ("upper", "0x1p2"))
    }
    evidence = {"components": [{"weight": "0x1p0", **proofs}]}
    assert check(evidence=evidence).code == "threshold-not-positive"
    assert check(evidence={"components": []}).code == "malformed"


def test_rows_must_be_one_class_against_all_or_one_direction(tmp_path: Path) -> None:
    """A rival that is left out, or counted twice in the place of another, would make the label look
    better."""
    problem = problem_of("relu", "normal", "softmax")
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    model, spec = read_model(tmp_path / "p.safetensors"), problem.specification
    found = decide(problem)[0].certificate
    assert found is not None
    twice = spec.rows[:1, [0, 0]]
    two_outputs = vector(1, 0, 0, 0, 1, 0).reshape(1, 2, 3)
    for rows, kind in (
        (twice, "softmax"),
        (spec.rows[:1, :1], "softmax"),
        (two_outputs, "mean"),
        (-twice, "softmax"),
    ):
        asked = Specification(
            spec.region[:1], rows, torch.zeros(1, rows.shape[1], dtype=torch.float64)
        )
        own = Problem(problem.network, problem.posterior, asked)
        digests = {"specification": asked.digest, "problem": own.digest}
        claim = {
            name: value
            for name, value in found.header["claim"].items()
            if kind == "softmax" or name != "gap"
        }
        header = found.header | {
            "kind": kind,
            "claim": claim,
            "digests": found.header["digests"] | digests,
        }
        tensors = found.tensors | {"rows": rows[0], "offsets": asked.offsets[0]}
        Certificate(header, tensors).write(tmp_path / "c.safetensors")
        verdict = check_certificate(tmp_path / "c.safetensors", model)
        assert (verdict.status, verdict.code) == (ERROR, "unsupported")


def test_other_families_have_no_predictive_means(tmp_path: Path) -> None:
    problem = problem_of("relu", "normal", "softmax")
    found = decide(problem)[0].certificate
    assert found is not None
    mean = problem.posterior.center
    uniform_weights = replace(problem, posterior=Uniform(mean - 0.1, mean + 0.1))[:1]
    save_posterior(tmp_path / "p.safetensors", problem.network, uniform_weights.posterior)
    digests = {"posterior": uniform_weights.posterior.digest, "problem": uniform_weights.digest}
    Certificate(found.header | {"digests": found.header["digests"] | digests}, found.tensors).write(
        tmp_path / "c.safetensors"
    )
    verdict = check_certificate(tmp_path / "c.safetensors", read_model(tmp_path / "p.safetensors"))
    assert (verdict.status, verdict.code) == (ERROR, "unsupported")


def listed(
    header: dict[str, Any], tensors: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The certificate as it would be for an empirical posterior of one network."""
    question = {name: value for name, value in tensors.items() if not name.startswith("c0.")}
    return header | {"evidence": {"networks": 1}}, question


def test_numbers_that_overflow_say_nothing(tmp_path: Path) -> None:
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 1), ReLU(), Dense(1, 1)))
    asked = output_interval(ball(vector(1.0).reshape(1, 1), 0.1), -1.0, 1.0)
    one = torch.ones(network.size, dtype=torch.float64)
    found = decide(Problem(network, Normal(one, one), asked))[0].certificate
    assert found is not None
    for posterior in (Normal(1e150 * one, 1e140 * one), Empirical(1e150 * one.reshape(1, -1))):
        save_posterior(tmp_path / "p.safetensors", network, posterior)
        digests = {
            "posterior": posterior.digest,
            "problem": Problem(network, posterior, asked).digest,
        }
        header, tensors = (
            found.header | {"digests": found.header["digests"] | digests},
            found.tensors,
        )
        if isinstance(posterior, Empirical):
            header, tensors = listed(header, tensors)
        Certificate(header, tensors).write(tmp_path / "c.safetensors")
        verdict = check_certificate(
            tmp_path / "c.safetensors", read_model(tmp_path / "p.safetensors")
        )
        assert (verdict.status, verdict.code) == (ERROR, "not-finite")


def test_rows_that_overflow_say_nothing(tmp_path: Path) -> None:
    """Where only the output's coefficients are too large: a NaN among the rows must not be passed
    over."""
    network, region = (
        Network((1,), (Dense(1, 1, bias=False),)),
        ball(vector(1.0).reshape(1, 1), 0.1),
    )
    small = half_space(region, vector(1.0), 0.0)
    found = decide(Problem(network, Normal(vector(1.0), vector(1.0)), small))[0].certificate
    assert found is not None
    asked = half_space(region, vector(1e200), 0.0)
    for posterior in (Normal(vector(1e150), vector(1e140)), Empirical(vector(1e150).reshape(1, 1))):
        problem = Problem(network, posterior, asked)
        save_posterior(tmp_path / "p.safetensors", network, posterior)
        digests = {
            "posterior": posterior.digest,
            "specification": asked.digest,
            "problem": problem.digest,
        }
        header = found.header | {"digests": found.header["digests"] | digests}
        tensors = found.tensors | {
            "rows": asked.rows[0].clone(),
            "offsets": asked.offsets[0].clone(),
        }
        if isinstance(posterior, Empirical):
            header, tensors = listed(header, tensors)
        Certificate(header, tensors).write(tmp_path / "c.safetensors")
        verdict = check_certificate(
            tmp_path / "c.safetensors", read_model(tmp_path / "p.safetensors")
        )
        assert verdict.status == ERROR
    assert verdict.message == "a row's bound overflowed"


def test_levels_and_leads_by_hand() -> None:
    """The checker's formulas, from the definitions."""
    margins = [0.5, 2.0]
    shares = np.exp(-np.array([0.0, *margins])) / np.exp(-np.array([0.0, *margins])).sum()
    exact = [arb(m) for m in margins]
    assert float(checked_means.label(exact)) == pytest.approx(shares[0])
    assert float(checked_means.rivals([-m for m in exact])) == pytest.approx(1 - shares[0])
    assert float(checked_means.lead(exact)) == pytest.approx(shares[0] - shares[1])
    assert float(checked_means.lead([arb(-1.0), arb(2.0)])) == pytest.approx(math.tanh(-0.5))
    certain = (np.array(margins), np.zeros(2))
    assert float(
        checked_means.layered(certain, arb(0.25), checked_means.label, 0)
    ) == pytest.approx(0.75 * shares[0])
    assert float(
        checked_means.layered(certain, arb(0.25), checked_means.lead, -1)
    ) == pytest.approx(0.75 * (shares[0] - shares[1]) - 0.25)
    noisy = (np.array([3.0]), np.array([1.0]))
    held = [max(0.0, 1 - math.erfc(k / 8 / math.sqrt(2)) / 2) for k in range(65)]
    values = [1 / (1 + math.exp(k / 8 - 3)) for k in range(65)] + [0.0]
    expected = sum((values[k] - values[k + 1]) * held[k] for k in range(65))
    assert float(checked_means.layered(noisy, arb(0), checked_means.label, 0)) == pytest.approx(
        expected
    )


def test_both_bound_the_same_moments(tmp_path: Path) -> None:
    for name, network in NETWORKS.items():
        for family in ("normal", "low-rank"):
            problem = problem_of(name, family, "mean", eps=0.0)
            save_posterior(tmp_path / "p.safetensors", network, problem.posterior)
            model = read_model(tmp_path / "p.safetensors")
            region: Region = point_region(problem.specification.region.center[0].flatten().numpy())
            found = checked_means.output_norms(model, model.components[0].posterior, region)
            expected = output_norms(network, problem.posterior, problem.specification.region)[0]
            assert found == pytest.approx(expected.numpy(), rel=1e-10)


def test_lines_of_decisions_must_say_what_their_certificates_say(tmp_path: Path) -> None:
    """Above all, a predictive mean must not be passed off as a P_safe, nor the other way round."""
    problem = problem_of("relu", "normal", "softmax", eps=0.001)
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    model = read_model(tmp_path / "p.safetensors")
    with result_folder(tmp_path / "d", name=DECISIONS) as store:
        store(decide(problem)[:1])
    said = json.loads((tmp_path / "d" / DECISIONS).read_text())
    assert said["status"] == "decided"

    def verdict(line: dict[str, Any], name: str = DECISIONS) -> Verdict:
        (tmp_path / "d" / DECISIONS).unlink(missing_ok=True)
        (tmp_path / "d" / name).write_text(json.dumps(line) + "\n")
        return next(iter(check_results(tmp_path / "d", read_results(tmp_path / "d"), model)))

    assert verdict(said).status == ACCEPT
    changes = (
        {"status": "undecided"},
        {"gap": 0.99},
        {"gap": None},
        {"quantity": "mean"},
        {"lower": 0.0},
        {"label": 1},
    )
    for change in changes:
        assert verdict(said | change).code == "result-mismatch"
    assert verdict(said | {"label": 9}).code == "malformed"  # there are not so many outputs
    for missing in (
        {"lower": 0, "upper": 1, "gap": -1},
        {"lower": 0, "upper": 1, "gap": 0.5, "status": "undecided"},
    ):
        assert verdict(said | {"certificate": None} | missing).code == "certificate-missing"
    nothing = {"lower": 0, "upper": 1, "gap": -1, "status": "undecided", "certificate": None}
    assert verdict(said | nothing).status == ACCEPT
    as_p_safe = {name: value for name, value in said.items() if name not in ("quantity", "gap")}
    as_p_safe |= {"status": "certified", "method": "concentration", "bound_calls": 1, "seed": 0}
    assert verdict(as_p_safe, "results.jsonl").code == "result-mismatch"
    with pytest.raises(CannotCheck, match="holds both"):
        verdict(said)
    (tmp_path / "d" / "results.jsonl").unlink()
    robust = certify(problem)[0]
    assert robust.certificate is not None
    robust.certificate.write(tmp_path / "d" / "certificates" / "p_safe.safetensors")
    line = said | {
        "certificate": "certificates/p_safe.safetensors",
        "lower": robust.lower,
        "upper": robust.upper,
    }
    assert verdict(line).code == "result-mismatch"
