"""Two hidden layers at a point against sampled networks: no bound is above the truth, and what is
proved is accepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import Concentration, Network, Problem, ball, certify, half_space
from bnncert.deep import products
from bnncert.deep.moments import Array
from bnncert.deep.search import prove
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import Normal
from deep_networks import DRAWS, loud_deep, odd_deep, random_deep
from scenarios import gaussian, vector
from truth import accepted_around

Drawn = Callable[[int], tuple[Problem, Normal, float]]


def assert_below(drawn: Drawn, seeds: Iterable[int]) -> int:
    """How many bounds say something."""
    useful = 0
    for seed in seeds:
        problem, posterior, share = drawn(seed)
        found = prove(problem, posterior)
        bound = found.bound if found else 0.0
        useful += bound > 0
        error = math.sqrt(share * (1 - share) / DRAWS)
        assert bound <= share + 4 * error + 4 / DRAWS, f"seed {seed}: {bound} for {share}"
    return useful


def test_never_above_the_truth() -> None:
    assert assert_below(random_deep, range(12)) > 6


@pytest.mark.slow
def test_never_above_the_truth_of_ten_thousand() -> None:
    assert_below(random_deep, range(1000, 7000))
    assert_below(odd_deep, range(1000, 5000))


def assert_accepted(folder: Path, drawn: Drawn, seeds: Iterable[int]) -> int:
    """How many proofs are of two layers: below, and above where the row is negated. Where nothing
    is proved there is no certificate."""
    found = 0
    for seed in seeds:
        problem, _, share = drawn(seed)
        result = accepted_around(problem, share, DRAWS, folder)
        if result.certificate is None:
            continue
        evidence = result.certificate.evidence["components"][0]
        upper = evidence["upper"] or {"failure": {}}
        found += ("two_layers" in evidence["lower"]) + ("two_layers" in upper["failure"])
    return found


def test_what_is_proved_is_accepted(tmp_path: Path) -> None:
    assert assert_accepted(tmp_path, random_deep, range(9)) >= 3


def test_what_is_proved_of_odd_networks_is_accepted(tmp_path: Path) -> None:
    assert assert_accepted(tmp_path, odd_deep, range(10)) >= 2


@pytest.mark.slow
def test_what_is_proved_of_a_thousand_is_accepted(tmp_path: Path) -> None:
    assert_accepted(tmp_path, odd_deep, range(100, 1100))


@pytest.mark.parametrize("wild", [False, True])
def test_loud_first_neurons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wild: bool) -> None:
    """1-1-3-2 networks, once certified .9993 for a truth of .790 from means of h at 5e9, far beyond
    its caps: moments only guide choices."""

    def far(mean: Array, variance: Array, a: Array, b: Array, cap: Array) -> tuple[Array, Array]:
        shape = np.broadcast_shapes(*(part.shape for part in (mean, variance, a, b, cap)))
        return np.full(shape, 5e9), np.full(shape, 1e-9)

    if wild:
        monkeypatch.setattr(products, "tilted", far)
    assert_accepted(tmp_path, loud_deep, (2, 14, 28))


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
