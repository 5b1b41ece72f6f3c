"""Laws behind layers that are certain: what the hidden layer reads lies in a box."""

from __future__ import annotations

import pytest
import torch

from bnncert import Problem, Residual, ball, half_space, mlp
from bnncert.laws.head import has_form, has_trunk, read_at, read_box
from bnncert.laws.proof import prove_laws
from bnncert.layers import Dense, ReLU
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from scenarios import sample_region, vector
from trunks import behind
from truth import DRAWS, refuted_by_laws, robust_share


@pytest.mark.parametrize("seed", range(9))
def test_the_box_holds_what_the_hidden_layer_reads(seed: int) -> None:
    problem, posterior = behind(seed)
    assert has_trunk(problem.network)
    box = read_box(problem.network, posterior, problem.specification.region)
    for x in sample_region(problem.specification.region, 60, torch.Generator().manual_seed(1)):
        held = read_at(problem.network, posterior, x)
        assert bool(((box.lower <= held) & (held <= box.upper)).all())
    if not float(problem.specification.region.eps[0]):
        assert float((box.upper - box.lower).max()) < 1e-9


def test_what_is_nearly_nothing_is_no_obstacle() -> None:
    """An entry of 2^-130, whose square is no number that laws may meet, and one of 0."""
    network = Network((2,), (Dense(2, 3), ReLU(), Dense(3, 2), ReLU(), Dense(2, 1)))
    mean = torch.ones(network.size).double()
    mean[:9] = vector(2.0**-130, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    posterior = Normal(mean, torch.cat([torch.zeros(9), torch.full((11,), 0.3)]).double())
    region = ball(torch.ones(1, 2).double(), 0)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 8.0))
    (share,) = robust_share(problem, 0).tolist()
    (law,) = prove_laws(problem, posterior)
    assert share - 0.05 < law.bound < share + 0.03
    assert 0.2 < share < 0.8


def compared(seeds: range) -> tuple[float, float]:
    """Sums of lower and of upper bounds, none of which is wrong."""
    lowers = uppers = 0.0
    for seed in seeds:
        problem, posterior = behind(seed)
        assert has_form(problem.network, posterior)
        share = robust_share(problem, seed)
        error = 4 * (share * (1 - share) / DRAWS).sqrt() + 8 / DRAWS
        lower = torch.tensor([law.bound for law in prove_laws(problem, posterior)]).double()
        assert bool((lower <= share + error).all()), (seed, lower, share)
        for i, found in enumerate(refuted_by_laws(problem, posterior)):
            assert found is None or found.upper >= share[i] - error[i], (seed, i)
            uppers += 1.0 if found is None else found.upper
        lowers += float(lower.sum())
    return lowers, uppers


def test_neither_bound_is_wrong() -> None:
    """And both say something."""
    lowers, uppers = compared(range(18))
    assert lowers > 15
    assert uppers < 33


@pytest.mark.slow
def test_neither_bound_of_hundreds_is_wrong() -> None:
    compared(range(1000, 1400))


def test_which_networks_have_the_form() -> None:
    for kind in ACTIVATIONS:
        network = mlp(2, 3, 1, activation=kind())
        assert has_form(network, everywhere(network))
        assert not has_trunk(network)
    for network in (mlp(2, 1), mlp(2, 3, 3, 1), Network((2,), (Dense(2, 3), Dense(3, 3), ReLU()))):
        assert not has_form(network, everywhere(network))
    fork = Network((2,), (Dense(2, 2), Residual((ReLU(), Dense(2, 2)))))
    assert not has_form(fork, everywhere(fork))


def everywhere(network: Network) -> Normal:
    return Normal(torch.zeros(network.size).double(), torch.ones(network.size).double())
