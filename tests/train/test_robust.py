"""Training with the certified bound in the likelihood."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import Concentration, Problem, ball, certify, class_robust
from bnncert.concentration.margin import CHARGE, Weights, margins
from bnncert.errors import InputError
from bnncert.model.network import mlp
from bnncert.posteriors.independent import Normal
from bnncert.train import BayesByBackprop, Robust, accuracy, loop, train
from bnncert.train.likelihood import Categorical, Gaussian, likelihood
from bnncert.train.loop import VALIDATION
from bnncert.train.objective import attacked, certified_share, worst_nll
from bnncert.train.objective import ball as clipped_ball
from bnncert.train.recipe import RISE, risen
from bnncert.train.variational import Weighing
from trainings import blobs, digits, same, short

# Likelihoods


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_rows_of_classes(classes: int) -> None:
    """Logit y less each other one, once, for every class."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(classes)
    outputs = torch.randn(classes, classes, generator=generator)
    rows = Categorical(classes).rows(y, outputs)
    assert rows.shape == (classes, classes - 1, classes)
    assert rows.dtype == torch.float32
    for i in range(classes):
        known = [float(outputs[i, i] - outputs[i, j]) for j in range(classes) if j != i]
        assert (rows[i] @ outputs[i]).tolist() == pytest.approx(known)


def test_the_worst_likelihood_of_classes_is_that_of_the_margins() -> None:
    """Where the margins are those of some outputs, it is their cross-entropy."""
    generator = torch.Generator().manual_seed(1)
    outputs, y = torch.randn(7, 4, generator=generator), torch.arange(7) % 4
    own = Categorical(4)
    least = (own.rows(y, outputs) @ outputs.unsqueeze(-1)).squeeze(-1)
    assert own.worst_nll(least, y).item() == pytest.approx(own.nll(outputs, y).item(), rel=1e-6)
    assert own.worst_nll(least - 1, y) > own.nll(outputs, y)


def test_the_worst_likelihood_of_a_number_by_brute_force() -> None:
    own = Gaussian(0.3)
    low, high, y = (
        torch.tensor([0.0, -1, 2]),
        torch.tensor([1.0, -0.5, 2]),
        torch.tensor([0.2, 3, 2]),
    )
    worst = own.worst_nll(torch.stack([low, -high], 1), y).item()
    each = [
        max(-norm.logpdf(float(target), a + (b - a) * k / 50, 0.3) for k in range(51))
        for a, b, target in zip(low.tolist(), high.tolist(), y, strict=True)
    ]
    assert worst == pytest.approx(sum(each) / 3, rel=1e-5)
    exact = -norm.logpdf([0.2, 3, 2], [0.5, 1, 2], 0.3).mean()
    assert own.nll(torch.tensor([[0.5], [1], [2]]), y).item() == pytest.approx(exact, rel=1e-6)


def test_several_numbers_are_each_observed() -> None:
    """Likelihoods add up, the worst ones too; right are those of which all are."""
    generator = torch.Generator().manual_seed(2)
    outputs, y = (torch.randn(9, 3, generator=generator) for _ in range(2))
    low, high = outputs - 0.2, outputs + 0.7
    both, one = Gaussian(0.3, 3), Gaussian(0.3)
    each = range(3)
    known = sum(one.nll(outputs[:, k : k + 1], y[:, k]) for k in each)
    assert both.nll(outputs, y).item() == pytest.approx(float(known), rel=1e-6)
    worst = sum(one.worst_nll(torch.stack([low[:, k], -high[:, k]], 1), y[:, k]) for k in each)
    found = both.worst_nll(torch.cat([low, -high], 1), y)
    assert found.item() == pytest.approx(float(worst), rel=1e-6)
    rows = (both.rows(y, y) @ outputs.unsqueeze(-1)).squeeze(-1) + both.offsets(y, y)
    right = torch.stack([one.right(outputs[:, k : k + 1], y[:, k]) for k in each]).all(0)
    assert torch.equal((rows > 0).all(1), right)
    assert torch.equal(both.right(outputs, y), right)
    assert both.right(outputs, outputs + 0.1).all()


def test_right_numbers_are_those_whose_rows_are_positive() -> None:
    own = Gaussian(0.5)
    y = torch.linspace(-3, 3, 41)
    outputs = torch.full((41, 1), 0.3)
    rows = (own.rows(y, y) @ outputs.unsqueeze(-1)).squeeze(-1) + own.offsets(y, y)
    assert torch.equal((rows > 0).all(1), own.right(outputs, y))
    assert 0 < int(own.right(outputs, y).sum()) < 41


# Boxes and attacks


def test_boxes_are_clipped_and_hold_their_point() -> None:
    x = torch.tensor([[0.0, 0.05, 0.5, 0.97, 1.0, -0.2, 1.3]])
    lower, upper = clipped_ball(x, 0.1, (0.0, 1.0))
    assert lower[0].tolist() == pytest.approx([0, 0, 0.4, 0.87, 0.9, -0.2, 1.2], abs=1e-6)
    assert upper[0].tolist() == pytest.approx([0.1, 0.15, 0.6, 1, 1, -0.1, 1.3], abs=1e-6)
    assert bool(((lower <= x) & (x <= upper)).all())
    lower, upper = clipped_ball(x, torch.tensor(0.1), None)
    assert torch.equal(lower, x - 0.1)
    assert torch.equal(upper, x + 0.1)


def weighing_of(posterior: Normal, *widths: int) -> Weighing:
    network = mlp(*widths)
    random = torch.ones(network.size, dtype=torch.bool)
    return Weighing(network, "all", random, posterior.mean.float(), posterior.std.float())


@pytest.mark.parametrize("steps", [1, 4])
def test_attacked_points_are_in_the_box_and_worse(steps: int) -> None:
    x, y = blobs()
    posterior = train(mlp(2, 8, 3), x, y, BayesByBackprop(20, learning_rate=0.05)).posterior
    weighing = weighing_of(posterior, 2, 8, 3)
    own = Categorical(3)
    box = clipped_ball(x.float(), 0.3, (-1.0, 1.0))
    noise = torch.Generator().manual_seed(0)
    found = attacked(weighing, box, y, own, steps, noise)
    assert not found.requires_grad
    assert bool(((found >= box[0]) & (found <= box[1])).all())
    clean = own.nll(weighing.network.forward(weighing.mean, x.float()), y)
    worse = own.nll(weighing.network.forward(weighing.mean, found), y)
    assert worse > 1.5 * clean


def test_the_worst_likelihood_is_worse_than_any_attack() -> None:
    """For every drawn network but a few: t and τ are 5."""
    x, y = blobs()
    posterior = train(mlp(2, 8, 3), x, y, BayesByBackprop(20, learning_rate=0.05)).posterior
    weighing = weighing_of(posterior, 2, 8, 3)
    own = Categorical(3)
    box = clipped_ball(x.float(), 0.2, None)
    bound = worst_nll(weighing.network, weighing.layers(), box, y, own, 5.0, 5.0)
    noise = torch.Generator().manual_seed(0)
    points = attacked(weighing, box, y, own, 5, noise)
    for _ in range(50):
        assert own.nll(weighing.sample_outputs(points, noise), y) < bound


# What margins certify


def linear(mean: float, std: float) -> Weights:
    return [((torch.tensor([[0.0, mean]]),), (torch.tensor([[std / 2**0.5, std / 2**0.5]]),))]


@pytest.mark.parametrize("margin", [-1.0, -0.1, 0.0, 0.1, 1.0, 3.0])
def test_the_certified_share_by_hand(margin: float) -> None:
    """y_1 - y_0 ~ N(margin, 1) at x = 1: Φ(margin), and nothing where that is below 1/2; no hidden
    interval is charged."""
    from bnncert.layers import Dense
    from bnncert.model.network import Network

    network = Network((1,), (Dense(1, 2, bias=False),))
    share = certified_share(
        network, linear(margin, 1.0), torch.ones(1, 1), torch.tensor([1]), Categorical(2),
        Robust(1e-9, clip=None),
    )  # fmt: skip
    known = norm.cdf(margin) if margin > 0 else 0.0
    assert share.item() == pytest.approx(known, abs=1e-5)


def test_the_certified_share_of_a_regression() -> None:
    """Within two noise deviations, certainly: y is right on 1 ± ε, and off by 3 it is not."""
    from bnncert.layers import Dense
    from bnncert.model.network import Network

    network = Network((1,), (Dense(1, 1, bias=False),))
    weights: Weights = [((torch.ones(1, 1),), (torch.full((1, 1), 0.1),))]
    x = torch.ones(3, 1)
    shares = [
        certified_share(
            network, weights, x, torch.full((3,), y), Gaussian(0.5), Robust(0.01)
        ).item()
        for y in (1.0, 2.5, 4.0)
    ]
    assert shares == pytest.approx([1.0, 0.0, 0.0], abs=1e-3)


def test_the_certified_share_is_below_what_certify_proves() -> None:
    x, y = blobs()
    network = mlp(2, 8, 3)
    recipe = BayesByBackprop(40, 16, learning_rate=0.05, robust=Robust(0.05, clip=None))
    posterior = train(network, x, y, recipe).posterior
    weights: Weights = [
        (m, s or None)
        for m, s in zip(network.split(posterior.mean), network.split(posterior.std), strict=True)
    ]
    assert recipe.robust is not None
    share = certified_share(network, weights, x, y, Categorical(3), recipe.robust).item()
    region = ball(x, 0.05)
    proved = certify(
        Problem(network, posterior, class_robust(region, y, 3)), Concentration(effort=0)
    )
    assert 0.5 < share <= sum(result.lower for result in proved) / len(x) + 1e-6
    assert share <= 1 - CHARGE


# The schedule


def test_the_radius_rises_between_its_shares() -> None:
    start, stop = RISE
    assert [risen(done) for done in (0, start, stop, 1)] == [0, 0, 1, 1]
    assert risen((start + stop) / 2) == pytest.approx(0.5)
    rising = [risen(k / 100) for k in range(101)]
    assert rising == sorted(rising)


def test_every_step_has_its_share_of_the_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[float]()
    real = loop.ball

    def spy(x: Tensor, eps: Any, clip: Any) -> Any:
        seen.append(float(eps))
        return real(x, eps, clip)

    monkeypatch.setattr(loop, "ball", spy)
    x, y = blobs(66)  # 60 of them, 4 batches
    train(mlp(2, 4, 3), x, y, BayesByBackprop(5, 16, robust=Robust(0.2, clip=None)))
    shares = [risen(k / 20) for k in range(20)]
    assert seen == pytest.approx([0.2 * share for share in shares if share > 0], rel=1e-5)
    assert seen[-1] == pytest.approx(0.2)


def test_the_loss_is_the_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """(1 - κ) nll + κ worst nll, κ at its share."""
    x, y = blobs()
    known = list[tuple[float, float]]()
    real = loop._robust_fit

    def spy(*arguments: Any) -> Any:
        outputs, nll, fit = real(*arguments)
        run, weighing, inputs, labels, own, robust, share = arguments
        box = clipped_ball(inputs, float(share) * robust.eps, None)
        bound = worst_nll(weighing.network, weighing.layers(), box, labels, own, 3.0, robust.tau)
        kappa = float(share) * robust.kappa
        known.append((fit.item(), ((1 - kappa) * nll + kappa * bound).item()))
        assert run.q.mean.requires_grad
        return outputs, nll, fit

    monkeypatch.setattr(loop, "_robust_fit", spy)
    robust = Robust(0.1, kappa=0.7, t=3.0, tau=2.0, clip=None)
    trained = train(mlp(2, 5, 3), x, y, BayesByBackprop(4, 16, robust=robust))
    for found, expected in known:
        assert found == pytest.approx(expected, rel=1e-5)
    assert trained.history[-1].loss > trained.history[-1].nll


# Examples kept out


@pytest.mark.parametrize(("count", "kept"), [(60, 6), (9, 0), (6000, VALIDATION)])
def test_validation_examples_are_not_learned_from(count: int, kept: int) -> None:
    """Whatever they are, the posterior is the same; without a bound all are learned from."""
    x, y = blobs(count)
    other = x.clone()
    other[count - kept :] += 3
    recipe = BayesByBackprop(1, 600, robust=Robust(0.1, clip=None))
    first, second = (train(mlp(2, 3, 3), inputs, y, recipe) for inputs in (x, other))
    assert torch.equal(first.posterior.mean, second.posterior.mean)
    assert (first.history[0].certified is None) == (kept == 0)
    if kept:
        other[count - kept - 1] += 3
        third = train(mlp(2, 3, 3), other, y, recipe)
        assert not torch.equal(first.posterior.mean, third.posterior.mean)
        assert replace(first.history[0], certified=None) == replace(
            second.history[0], certified=None
        )
    assert train(mlp(2, 3, 3), x, y, replace(recipe, robust=None)).history[0].certified is None


# Whole trainings


def test_the_same_seed_gives_the_same_bits() -> None:
    robust = Robust(0.1, attack=2, clip=None)
    first, again = (short(robust=robust, normalise=True) for _ in range(2))  # type: ignore[arg-type]
    assert same(first, again)
    assert not same(first, short(robust=replace(robust, attack=0), normalise=True))  # type: ignore[arg-type]


def test_robust_training_is_certified_and_the_evidence_alone_is_not() -> None:
    """Digits, the same network, prior and KL weight: the bound in the likelihood makes the
    difference."""
    x, y = digits("train")
    test_x, test_y = (part[:40] for part in digits("test"))
    network = mlp(64, 32, 10)
    plain = BayesByBackprop(
        16, 64, learning_rate=0.01, kl_weight=1.0, initial_std=0.1, schedule="cosine"
    )
    proved = list[float]()
    for recipe in (plain, replace(plain, robust=Robust(0.03))):
        trained = train(network, x.flatten(1), y, recipe)
        region = ball(test_x.flatten(1).double(), 0.02, clip=(0.0, 1.0))
        problem = Problem(network, trained.posterior, class_robust(region, test_y, 10))
        results = certify(problem, Concentration(effort=0))
        proved.append(sum(result.lower for result in results) / len(results))
        assert accuracy(network, trained.posterior.mean, test_x.flatten(1), test_y) > 0.7
    assert proved[0] < 0.1
    assert proved[1] > 0.5
    certified = trained.history[-1].certified
    assert certified is not None
    assert certified > 0.3


def test_a_robust_regression() -> None:
    """y = sin 3x, certified within two noise deviations at the end; the labels may be integers."""
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(200, 1, generator=generator) - 1
    y = (3 * x).sin().squeeze(1).double()
    network = mlp(1, 16, 1)
    recipe = BayesByBackprop(
        80, 20, learning_rate=0.02, noise_std=0.2, kl_weight=0.01, initial_std=0.02,
        robust=Robust(0.01, clip=None),
    )  # fmt: skip
    trained = train(network, x, y, recipe)
    own = likelihood(network, recipe.noise_std)
    assert accuracy(network, trained.posterior.mean, x, y, own) > 0.95
    last = trained.history[-1]
    assert last.certified is not None
    assert last.certified > 0.5
    assert last.accuracy > 0.9
    whole = train(network, x, torch.ones(200, dtype=torch.int64), replace(recipe, epochs=1))
    assert math.isfinite(whole.history[0].loss)


def test_margins_of_weighings_match_their_law() -> None:
    """The weights that margins get are those that outputs are drawn from."""
    posterior = short(epochs=2).posterior
    weighing = weighing_of(posterior, 2, 5, 3)
    x = torch.tensor([[0.3, -0.4]])
    rows = torch.tensor([[[1.0, -1.0, 0.0]]])
    found = margins(weighing.network, weighing.layers(), x, x, rows, 3.0)
    noise = torch.Generator().manual_seed(0)
    drawn = weighing.sample_outputs(x.expand(4000, 2), noise) @ rows[0, 0]
    least = float(found.value - 2 * found.lipschitz)
    assert float((drawn < least).double().mean()) <= norm.sf(2) + 2 * 5 * norm.sf(3) + 0.01


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eps": 0.0}, "robust is 0.0; give a positive radius"),
        ({"eps": -1.0}, "robust is -1.0"),
        ({"eps": math.nan}, "robust is nan"),
        ({"eps": math.inf}, "robust is inf"),
        ({"kappa": 1.1}, "kappa is 1.1; give a share from 0 to 1"),
        ({"kappa": -0.1}, "kappa is -0.1"),
        ({"kappa": math.nan}, "kappa is nan"),
        ({"t": 0.0}, "t is 0.0; give a positive number"),
        ({"t": math.inf}, "t is inf"),
        ({"tau": -1.0}, "tau is -1.0; give a number of at least 0"),
        ({"tau": math.nan}, "tau is nan"),
        ({"attack": -1}, "attack is -1; give a number of steps"),
        ({"clip": (1.0, 0.0)}, r"clip is \(1.0, 0.0\); give the least"),
        ({"clip": (0.0, math.nan)}, r"clip is \(0.0, nan\)"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        Robust(**({"eps": 0.1} | changes))


def test_regressions_that_make_no_sense_are_refused() -> None:
    x, y = blobs()
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match=r"^noise_std is .*; give a positive number"):
            BayesByBackprop(1, noise_std=wrong)
    with pytest.raises(InputError, match=r"^targets have shape .*, and the network has 3 outputs"):
        train(mlp(2, 3), x, y, BayesByBackprop(1, noise_std=0.1))
    with pytest.raises(InputError, match=r"^targets hold NaN or infinity"):
        train(mlp(2, 1), x, y / 0.0, BayesByBackprop(1, noise_std=0.1))
