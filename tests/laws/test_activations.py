"""Laws by lines against brute force, for every activation: tiny networks of wide weights."""

from __future__ import annotations

import random
from dataclasses import fields

import pytest
import torch

from bnncert import Concentration, Problem, ball, certify, half_space, mlp
from bnncert.evidence.laws import LineLaw, SharedLaw
from bnncert.laws.cells import cells
from bnncert.laws.corners import grid
from bnncert.laws.head import head, margins
from bnncert.laws.lines import line_corners, lines
from bnncert.laws.proof import prove_laws
from bnncert.laws.upper import moments, worthwhile
from bnncert.layers import (
    GELU,
    Dense,
    Flatten,
    Hardtanh,
    Mish,
    PReLU,
    ReLU,
    Reshape,
    Softplus,
    Tanh,
)
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.network import Network
from bnncert.model.specification import class_robust
from bnncert.posteriors.independent import Normal
from scenarios import EACH, gaussian, uniform, vector
from truth import DRAWS, refuted_by_laws, robust_share

KINDS: tuple[Activation, ...] = (
    *EACH,
    PReLU((0.25,)),
    PReLU((2.0,)),
    Hardtanh(0, 6),
    GELU("tanh"),
    Softplus(),
)
NAMES = [str(kind) for kind in KINDS]


def test_none_is_left_out() -> None:
    assert {type(kind) for kind in KINDS} == set(ACTIVATIONS)


def tiny(seed: int, activation: Activation) -> Problem:
    """One hidden layer of 1 to 8 neurons, σ up to 3, signed or zero centres, points and boxes."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs, outputs = choose.randint(1, 3), choose.randint(2, 3)
    network = mlp(inputs, choose.choice((1, 2, 3, 5, 8)), outputs, activation=activation)
    size = network.size
    std = choose.choice((1e-3, 0.05, 0.3, 1.0, 3.0)) * uniform(size, generator=generator)
    std = torch.where(uniform(size, generator=generator) < 0.15, 0.0, std)
    mean = choose.choice((0.3, 1.0, 2.0)) * gaussian(size, generator=generator)
    center = choose.choice((0.0, 1.0)) * gaussian(2, inputs, generator=generator)
    region = ball(center, choose.choice((0.0, 0.01, 0.1, 0.5)))
    labels = network.forward(mean, center).argmax(-1)
    return Problem(network, Normal(mean, std), class_robust(region, labels, outputs))


def compared(seed: int, activation: Activation) -> tuple[float, float]:
    """Sums of what is certified and of the share of sampled networks, after comparing them."""
    problem = tiny(seed, activation)
    assert isinstance(problem.posterior, Normal)
    lower = torch.tensor([law.bound for law in prove_laws(problem, problem.posterior)]).double()
    share = robust_share(problem, seed)
    error = 4 * (share * (1 - share) / DRAWS).sqrt() + 8 / DRAWS
    assert bool((lower <= share + error).all()), (seed, lower, share)
    point = Problem(problem.network, problem.posterior, problem.specification)
    for i, found in enumerate(refuted_by_laws(point, problem.posterior)):
        assert found is None or found.upper >= share[i] - error[i], (seed, i)
    return float(lower.sum()), float(share.sum())


@pytest.mark.parametrize("activation", KINDS, ids=NAMES)
def test_never_above_the_truth(activation: Activation) -> None:
    """And not by giving nothing; upper bounds are not below it."""
    sums = [compared(seed, activation) for seed in range(8)]
    lower, share = (sum(part) for part in zip(*sums, strict=True))
    assert lower > 0.55 * share


@pytest.mark.slow
@pytest.mark.parametrize("activation", KINDS, ids=NAMES)
def test_hundreds_never_above_the_truth(activation: Activation) -> None:
    for seed in range(1000, 1300):
        compared(seed, activation)


@pytest.mark.parametrize("activation", KINDS, ids=NAMES)
def test_a_point_is_nearly_exact(activation: Activation) -> None:
    """Three neurons of σ about 1: what is left is the cells' width."""
    generator = torch.Generator().manual_seed(4)
    network = mlp(1, 3, 1, activation=activation)
    mean, std = gaussian(network.size, generator=generator), 1 - 0.5 * torch.rand(network.size)
    region = ball(vector(0.7).reshape(1, 1), 0)
    problem = Problem(network, Normal(mean, std.double()), half_space(region, vector(1.0), -0.5))
    assert isinstance(problem.posterior, Normal)
    (law,) = prove_laws(problem, problem.posterior)
    (share,) = robust_share(problem, 0, 40_000).tolist()
    assert share - 0.04 < law.bound < share + 0.01


def test_slopes_by_neuron(monkeypatch: pytest.MonkeyPatch) -> None:
    """One slope a neuron: a falling one, a flat one and a steep one; without anchors."""
    monkeypatch.setattr("bnncert.laws.proof.ENOUGH", 0.0)
    network = mlp(1, 3, 1, activation=PReLU((-1.0, 0.0, 3.0), (3,)))
    posterior = Normal(vector(-1, -1, -1, 0, 0, 0, 1, 1, 0.2, 0), torch.full((10,), 0.1).double())
    region = ball(vector(1.0).reshape(1, 1), 0.1)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
    (law,) = prove_laws(problem, posterior)
    (share,) = robust_share(problem, 0).tolist()
    assert share - 0.2 < law.bound < share + 0.03
    assert isinstance(law, LineLaw)
    assert bool((law.slopes[0] < 0).any())
    assert bool((law.slopes[2] > 2).any())


def test_slopes_of_a_shape_are_those_of_its_entries() -> None:
    """Slopes by channel of an image that a reshaping makes of the neurons, and the same by neuron:
    one network, and one law."""
    ends = Dense(2, 6), Dense(6, 1)
    by_channel = PReLU((0.1, -0.7, 1.5), (3, 1, 1))
    image = Network((2,), (ends[0], Reshape((3, 2, 1)), by_channel, Flatten(), ends[1]))
    by_neuron = PReLU((0.1, 0.1, -0.7, -0.7, 1.5, 1.5), (6,))
    generator = torch.Generator().manual_seed(0)
    posterior = Normal(
        gaussian(image.size, generator=generator), torch.full((image.size,), 0.3).double()
    )
    spec = half_space(ball(vector(0.4, 0.9).reshape(1, 2), 0.0), vector(1.0), 2.0)
    found = []
    for network in (image, Network((2,), (ends[0], by_neuron, ends[1]))):
        problem = Problem(network, posterior, spec)
        (law,), (refuted,) = prove_laws(problem, posterior), refuted_by_laws(problem, posterior)
        assert refuted is not None
        found.append((law.bound, refuted.upper))
    (share,) = robust_share(problem, 0).tolist()
    assert found[0] == found[1]
    assert share - 0.05 < found[0][0] < share + 0.03
    assert share - 0.03 < found[0][1] < share + 0.05


@pytest.mark.parametrize("scale", [2.0**130, 2.0**400])
@pytest.mark.parametrize("activation", [ReLU(), Tanh()], ids=str)
def test_numbers_whose_squares_are_infinite_have_no_law(
    activation: Activation, scale: float
) -> None:
    network = mlp(2, 3, 1, activation=activation)
    mean, std = torch.ones(network.size).double(), torch.full((network.size,), 0.3).double()
    mean[-4:], std[-4:] = scale, scale
    problem = Problem(
        network,
        Normal(mean, std),
        half_space(ball(vector(0.3, 0.7).reshape(1, 2), 0.01), vector(1.0), 0.0),
    )
    assert isinstance(problem.posterior, Normal)
    (law,) = prove_laws(problem, problem.posterior)
    assert law.bound <= 0
    (found,) = certify(problem, Concentration(upper=True))
    (share,) = robust_share(problem, 0).tolist()
    assert found.lower <= share + 0.03
    assert found.upper >= share - 0.03


def relus(inputs: int, eps: float) -> tuple[Problem, Normal]:
    generator = torch.Generator().manual_seed(1)
    network = mlp(inputs, 4, 2)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.1).double()
    )
    center = gaussian(1, inputs, generator=generator)
    labels = network.forward(posterior.mean, center).argmax(-1)
    return Problem(network, posterior, class_robust(ball(center, eps), labels, 2)), posterior


def test_relus_of_many_inputs_share_them() -> None:
    (few,) = prove_laws(*relus(2, 0.1))
    (many,) = prove_laws(*relus(9, 0.1))
    assert isinstance(few, LineLaw)
    assert isinstance(many, SharedLaw)
    assert [field.name for field in fields(many)][-4:] == ["remainders", "theta", "y", "blends"]


def test_where_noise_decides() -> None:
    """Deviations of 1 at a point; of a thousandth on a box they are no share of what moves. Of a
    twentieth they are some, where the mean network has room for it."""
    network = mlp(1, 2, 1, activation=Tanh())
    for std, eps, noisy in (
        (1.0, 0.0, True),
        (1e-3, 0.5, False),
        (0.04, 4.0, True),
        (0.04, 5.5, False),
        (0.02, 4.0, False),
    ):
        posterior = Normal(torch.ones(7).double(), torch.full((7,), std).double())
        region = ball(vector(0.5).reshape(1, 1), eps)
        problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
        assert worthwhile(problem, posterior, region.box) == [noisy]


@pytest.mark.parametrize("activation", KINDS, ids=NAMES)
def test_moments_are_near(activation: Activation) -> None:
    """What upper bounds seek their points by."""
    z = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0)).double()
    first, second = moments(activation, vector(0.3), vector(0.8))
    values = activation(0.3 + 0.8 * z)
    assert float((first - values.mean(0)).abs()) < 0.02
    assert float((second - values.square().mean(0)).abs()) < 0.06


def test_the_head_knows_its_activation() -> None:
    network = mlp(1, 2, 1, activation=Mish())
    posterior = Normal(torch.ones(7).double(), torch.ones(7).double())
    assert head(network, posterior).activation == Mish()


@pytest.mark.parametrize("activation", KINDS, ids=NAMES)
def test_what_rounding_may_turn_is_charged_by_all_of_f(activation: Activation) -> None:
    """Sums of terms of 2^53 are off by 1 for all that is known; lines may be flat where f is
    not."""
    network = mlp(1, 1, 3, activation=activation)
    mean = vector(0.0, 2.0, 2.0**53, -(2.0**53), 4.0, 1.0, 0.0, 0.0)
    net = head(network, Normal(mean, vector(0.0, 2.0, *[0.0] * 6)))
    one = torch.ones(1, 3).double()
    rows = margins(net, vector(0.0), vector(0.0), one, vector(0.0))
    edges = torch.linspace(-6.5, 6.5, 3).double().expand(1, 3)
    at = grid(rows, cells(edges, 2), cells(edges.expand(1, 1, 3), 2))
    found = lines(activation, rows, at, 5.0)
    value, _ = line_corners(rows, at, found, 0)
    charged = 4 * found.factor[0][:, :, None, :, None] - value
    assert float(charged.amin()) > float(activation(at.z).abs().max())


def test_dead_neurons_that_move_have_a_curb() -> None:
    """Their output weights are 0, and so is all that they add; checkers want a curb even there."""
    network = mlp(1, 2, 1, activation=Hardtanh())
    posterior = Normal(vector(1, 1, 0, 0, 0, 0, 1), vector(0.1, 0.1, 0, 0, 0, 0, 0))
    region = ball(vector(1.0).reshape(1, 1), 0.1)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
    (law,) = prove_laws(problem, posterior)
    assert law.bound > 0.99
    assert float(law.numbers[0, 3]) > 0
