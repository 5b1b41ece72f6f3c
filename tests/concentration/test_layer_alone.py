"""The last layer alone, on the box of what it reads: where radii are large it says more than rows
through all layers, and never more than is true."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm

from bnncert import Concentration, Problem, certify, save_posterior
from bnncert.concentration import proof as proof_module
from bnncert.concentration.functional import last_layer
from bnncert.concentration.slopes import evaluate, strongest
from bnncert.concentration.tails import probability
from bnncert.concentration.trace import trace
from bnncert.layers import Add, Dense, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.model.network import Network
from bnncert.model.specification import Specification, ball, half_space
from bnncert.outcome import Outcome
from bnncert.posteriors import Normal
from bnncert_check import ACCEPT, check_certificate, read_model
from scenarios import gaussian, vector
from truth import assert_below_truth

T = 4.0


def accepted(folder: Path, problem: Problem, method: Concentration) -> list[float]:
    """What is certified of every input, with certificates that are accepted."""
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    model, found = read_model(folder / "p.safetensors"), []
    for i, result in enumerate(certify(problem, method)):
        found.append(result.lower)
        if result.certificate is not None:
            path = folder / f"{i}.safetensors"
            path.unlink(missing_ok=True)
            result.certificate.write(path)
            verdict = check_certificate(path, model)
            assert verdict.status == ACCEPT, verdict
    return found


def wide(network: Network, seed: int, norm_name: str, eps: float) -> Problem:
    """Rows that the last layer alone leaves two of its standard deviations."""
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    std = 0.02 * torch.rand(network.size, generator=generator, dtype=torch.float64)
    if seed % 3 == 1:  # the last layer is certain, or all but the last
        std[-network.layers[-1].inputs * 2 - 2 :] = 0
    if seed % 3 == 2:
        std[: -network.layers[-1].inputs * 2 - 2] = 0
    region = ball(torch.rand(2, 2, generator=generator, dtype=torch.float64), eps, norm_name)
    rows = gaussian(2, 2, 2, generator=generator)
    posterior = Normal(mean, std)
    alone = last_layer(trace(network, posterior, region, T), rows)
    offsets = 2 * alone.lipschitz - alone.value + 1e-3
    return Problem(network, posterior, Specification(region, rows, offsets))


def networks() -> dict[str, Network]:
    made = {
        type(act).__name__: Network((2,), (Dense(2, 4), act, Dense(4, 3), act, Dense(3, 2)))
        for act in (ReLU(), LeakyReLU(0.2), Tanh(), Sigmoid())
    }
    layers = (Dense(2, 3), ReLU(), Dense(3, 3), Add(), Dense(3, 2))
    return made | {"a sum": Network((2,), layers, ((0,), (1,), (2,), (1, 3), (4,)))}


@pytest.mark.parametrize("name", networks())
def test_it_beats_rows_is_accepted_and_true(name: str, tmp_path: Path) -> None:
    """The sum reads what a ReLU reads, too: there no end of an interval may go uncharged."""
    network, won = networks()[name], 0
    for seed in range(6):
        problem = wide(network, seed, ("linf", "l2", "l1")[seed // 2], (1.0, 3.0, 20.0)[seed % 3])
        spec = problem.specification
        traced = trace(network, problem.posterior, spec.region, T)
        rows = evaluate(traced, spec, {})
        plain = probability(traced.charge, rows)
        won += int((probability(traced.charge, strongest(traced, spec, rows)) > plain + 0.01).sum())
        method = Concentration(
            effort=seed % 3, **({"nodes": 8, "precision": 0.0} if seed % 3 == 2 else {})
        )
        lower = vector(*accepted(tmp_path, problem, method))
        assert_below_truth(problem, lower, seed)
    assert won


def saturated(mean: float, std: float, bound: float, eps: float) -> tuple[Problem, float]:
    """bound + v tanh(w x) > 0 for all |x| <= eps, with w ~ N(1, 1) and v ~ N(mean, std²); and its
    probability, P(|v| tanh(|w| eps) < bound)."""
    network = Network((1,), (Dense(1, 1, bias=False), Tanh(), Dense(1, 1)))
    posterior = Normal(vector(1.0, mean, bound), vector(1.0, std, 0.0))
    region = ball(torch.zeros(1, 1, dtype=torch.float64), eps)

    def density(w: float) -> float:
        most = bound / max(math.tanh(abs(w) * eps), 1e-300)
        inside = norm.cdf(most, mean, std) - norm.cdf(-most, mean, std)
        return float(norm.pdf(w, 1.0) * inside)

    truth = sum(quad(density, *ends, epsabs=1e-11, limit=200)[0] for ends in ((-8, 0), (0, 10)))
    return Problem(network, posterior, half_space(region, vector(1.0), 0.0)), float(truth)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("std", [1e-6, 0.1, 1.0, 30.0])
def test_against_quadrature(eps: float, std: float, tmp_path: Path) -> None:
    told = 0
    for mean, reach in ((1.0, 0.5), (1.0, 2.0), (-2.0, 3.0), (0.0, 4.0)):
        problem, truth = saturated(mean, std, abs(mean) + reach * std, eps)
        for effort in (0, 1):
            (lower,) = accepted(tmp_path, problem, Concentration(effort=effort))
            assert lower <= truth + 1e-9
            told += lower > 0.5
    assert told or std == 30.0


def test_without_it_nothing_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a large radius the line under tanh is nearly useless, its range is not."""
    problem, truth = saturated(1.0, 0.1, 1.4, 1e6)
    assert _lower(problem) > 0.99 * truth
    monkeypatch.setattr(proof_module, "strongest", lambda _, __, rows: rows)
    assert _lower(problem) < 0.5


def _lower(problem: Problem) -> float:
    found: list[Outcome] = Concentration(effort=0)(problem, 0)
    return found[0].lower
