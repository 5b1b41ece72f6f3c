"""Two hidden layers at a point against sampled networks: no bound is above the truth."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from bnncert import Concentration, Network, Problem, ball, certify, half_space, save_posterior
from bnncert.deep.search import prove
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import Normal
from bnncert_check import ACCEPT, check_certificate, read_model
from scenarios import gaussian, uniform, vector

DRAWS = 20_000


def random_deep(seed: int) -> tuple[Problem, Normal, float]:
    """A tiny network of two hidden layers at a point, with offsets that leave 1 to 40 % of the
    networks unsafe, and the share of those in a sample."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [1 + int(9 * u) for u in uniform(3, generator=generator).tolist()]
    sizes = [min(size, 8) for size in sizes] + [1]
    biased = [bool(u > 0.3) for u in uniform(3, generator=generator)]
    layers: list[Dense | ReLU] = []
    for i, bias in enumerate(biased):
        layers += [Dense(sizes[i], sizes[i + 1], bias=bias or i < 2), ReLU()]
    network = Network((sizes[0],), tuple(layers[:-1]))
    width, wide = (float(u) for u in uniform(2, generator=generator))
    mean = 2 * width * gaussian(network.size, generator=generator)
    std = 3 * 0.003**wide * (0.2 + uniform(network.size, generator=generator))
    posterior = Normal(mean, std)
    x = gaussian(1, sizes[0], generator=generator)
    weights = mean + std * gaussian(DRAWS, network.size, generator=generator)
    output = network.forward(weights, x)[:, 0, 0]
    share = 0.01 * 40 ** float(uniform(1, generator=generator))
    bound = float(output.quantile(share))
    problem = Problem(network, posterior, half_space(ball(x, 0.0), vector(1.0), bound))
    fresh = mean + std * gaussian(DRAWS, network.size, generator=generator)
    safe = (problem.margins(fresh) > 0).all(-1).double().mean()
    return problem, posterior, float(safe)


def assert_below(seeds: range) -> int:
    """How many bounds say something."""
    useful = 0
    for seed in seeds:
        problem, posterior, share = random_deep(seed)
        found = prove(problem, posterior)
        bound = found.bound if found else 0.0
        useful += bound > 0
        error = math.sqrt(share * (1 - share) / DRAWS)
        assert bound <= share + 4 * error + 4 / DRAWS, f"seed {seed}: {bound} for {share}"
    return useful


def test_never_above_the_truth() -> None:
    assert assert_below(range(120)) > 60


@pytest.mark.slow
def test_never_above_the_truth_of_ten_thousand() -> None:
    assert_below(range(1000, 11_000))


def test_what_is_proved_is_accepted(tmp_path: Path) -> None:
    """Both ways: below, and above where the row is negated."""
    found = 0
    for seed in range(12):
        problem, posterior, _ = random_deep(seed)
        save_posterior(tmp_path / "p.safetensors", problem.network, posterior)
        model = read_model(tmp_path / "p.safetensors")
        result = certify(problem, Concentration(upper=True))[0]
        assert result.certificate is not None
        result.certificate.write(tmp_path / "c.safetensors")
        verdict = check_certificate(tmp_path / "c.safetensors", model)
        assert verdict.status == ACCEPT, (seed, verdict)
        evidence = result.certificate.evidence["components"][0]
        upper = evidence["upper"] or {"failure": {}}
        found += ("two_layers" in evidence["lower"]) + ("two_layers" in upper["failure"])
    assert found >= 3


def test_a_row_that_fails_often_is_refuted() -> None:
    """M = -3 + relu(relu(z)) with much noise: no proof below, and one above."""
    network = Network((1,), (Dense(1, 2), ReLU(), Dense(2, 2), ReLU(), Dense(2, 1)))
    mean = vector(0.3, 0.2, 0.5, 0.5, 0.4, 0.1, 0.2, 0.3, 0.1, 0.1, 0.5, -0.3, -3.0)
    posterior = Normal(mean, torch.full_like(mean, 0.4))
    spec = half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.0)
    result = certify(Problem(network, posterior, spec), Concentration(upper=True))[0]
    draws = mean + 0.4 * gaussian(DRAWS, len(mean), generator=torch.Generator().manual_seed(0))
    share = float((network.forward(draws, vector(1.0).reshape(1, 1)) > 0).double().mean())
    assert share <= result.upper < 0.2
