"""Replies against brute force: tiny networks whose row an adversary's reply leaves positive."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from torch import Tensor

from bnncert import Problem, ball, certify, mlp
from bnncert.evidence.concentration import Refutation, read
from bnncert.evidence.laws import ReplyLaw
from bnncert.laws import replies
from bnncert.laws.head import Margins, head, margins_about
from bnncert.laws.replies import can_reply, inside, refute_by_reply, room
from bnncert.laws.replies import shares as holder
from bnncert.laws.reply import FAINT, MEAN, Answer, answer
from bnncert.methods import Concentration
from bnncert.model.specification import class_robust
from bnncert.posteriors.independent import Normal
from bnncert.report.evidence import in_words
from scenarios import draw_many, gaussian, noisy, uniform, vector, wide_biases

DRAWS = 20_000
ZERO = torch.zeros(1, 30).double()
WIDTHS = (1, 2, 3, 5, 8)
STDS = (0.05, 0.3, 1.0, 3.0)


def tiny(seed: int) -> Problem:
    """One hidden layer of 1 to 8 neurons, σ up to 3, zero or positive centres, clipped or not."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs, outputs = choose.randint(1, 3), choose.randint(2, 3)
    network = mlp(inputs, choose.choice(WIDTHS), outputs)
    posterior = noisy(choose, generator, network.size, STDS, (0.0, 0.3, 1.0))
    center = choose.choice((0.0, 0.1, 1.0)) * uniform(1, inputs, generator=generator)
    clip = choose.choice((None, (0.0, 2.0)))
    region = ball(center, choose.choice((0.01, 0.1, 0.5)), clip=clip)
    labels = network.forward(posterior.mean, center).argmax(-1)
    return Problem(network, posterior, class_robust(region, labels, outputs))


def found_for(problem: Problem, most: int = 3) -> Refutation | None:
    assert isinstance(problem.posterior, Normal)
    return refute_by_reply(problem.network, problem.posterior, problem.specification, most)


def shares(problem: Problem, found: Refutation, seed: int) -> tuple[float, float]:
    """Of drawn networks: how many have a positive row at the reply, and how many have only positive
    rows at all corners of the region and many points inside."""
    assert isinstance(problem.posterior, Normal)
    assert isinstance(found.proof, ReplyLaw)
    generator, spec = torch.Generator().manual_seed(seed), problem.specification
    drawn = draw_many(problem.posterior, DRAWS, generator)
    (weight, bias), _, (out, shift) = problem.network.split(drawn)

    def rows(x: Tensor) -> Tensor:
        hidden = (torch.einsum("sj,sjn->sn", x.expand(DRAWS, -1), weight) + bias).relu()
        outputs = torch.einsum("sn,sno->so", hidden, out) + shift
        return outputs @ spec.rows[0].mT + spec.offsets[0]

    lower, upper = inside(spec.region)
    corners = itertools.product(*zip(lower.tolist(), upper.tolist(), strict=True))
    within = lower + (upper - lower) * uniform(20, len(lower), generator=generator)
    points = [*(vector(*corner) for corner in corners), *within]
    safe = torch.stack([(rows(x) > 0).all(-1) for x in points]).all(0)
    lean = alike(problem, found.proof.center, weight, bias, generator) @ found.proof.weights
    point = found.proof.center
    x = point + room(point, lower, upper) * torch.where(lean < 0, -1.0, 1.0)
    return float((rows(x)[:, found.row] > 0).double().mean()), float(safe.double().mean())


def alike(
    problem: Problem, point: Tensor, weight: Tensor, bias: Tensor, generator: torch.Generator
) -> Tensor:
    """W' of drawn networks: W less what z says of it, and an independent copy of that."""
    assert isinstance(problem.posterior, Normal)
    net, spec = head(problem.network, problem.posterior), problem.specification
    own = margins_about(net, point, 0 * point, spec.rows[0], spec.offsets[0])
    kappa = net.weight_std**2 * point.unsqueeze(1) / own.std.clamp_min(1e-150) ** 2
    away = torch.einsum("j,sjn->sn", point, weight) + bias - own.mean
    again = own.std * gaussian(*away.shape, generator=generator)
    return weight - kappa * (away - again).unsqueeze(1)


def never_below(seed: int) -> float:
    """1 - the bound, 0 where there is none."""
    problem = tiny(seed)
    found = found_for(problem)
    if found is None:
        return 0.0
    replied, safe = shares(problem, found, seed)
    for share in (replied, safe):
        error = math.sqrt(share * (1 - share) / DRAWS)
        assert found.upper >= share - 4.5 * error - 6 / DRAWS, (seed, found.upper, share)
    return 1 - found.upper


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies also where the weights of an input say much about z."""
    monkeypatch.setattr(replies, "WORTH", 0.0)
    monkeypatch.setattr(replies, "FAINTLY", 0.0)


@pytest.mark.parametrize("block", range(6))
def test_never_below_the_truth(block: int) -> None:
    """And not by saying nothing."""
    assert sum(never_below(20 * block + k) for k in range(20)) > 2


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("block", range(6))
def test_never_below_the_truth_wherever_it_replies(block: int) -> None:
    assert sum(never_below(1000 + 20 * block + k) for k in range(20)) > 2


def test_one_is_taken_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """And read again as it was; where nothing is said to move, or by itself, there is none."""
    # So few neurons have better joint laws.
    monkeypatch.setattr("bnncert.joint.search.refute", lambda *_: {})
    found = certify(wide_biases(ball(ZERO, 0.02)), Concentration(upper=True))[0]
    assert found.upper_by == "reply"
    assert found.counterexample is None
    certificate = found.certificate
    assert certificate is not None
    (part,) = read(certificate.evidence, certificate.tensors).components
    assert part.upper is not None
    assert isinstance(part.upper.proof, ReplyLaw)
    assert part.upper.proof.weights.shape == (4,)
    assert 0.9 < found.upper < 0.99
    assert any("At an input of its own" in words for words in in_words(certificate))
    for region in (ball(ZERO, 0.0), ball(ZERO, 0.02, "l2")):
        other = wide_biases(region)
        assert not can_reply(other, other.specification)


@pytest.mark.slow
@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("block", range(100))
def test_thousands_never_below_the_truth(block: int) -> None:
    for k in range(50):
        never_below(10_000 + 50 * block + k)


@pytest.mark.parametrize("seed", range(12))
def test_the_noise_is_less_than_what_is_charged(seed: int) -> None:
    """E exp(-λ Σ_i (v_i relu(z_i + W_i·δ) - T_i)) for given z and v, with T_i before any λ, where
    no neuron is beyond its chord."""
    rows, weights, generator = row_of(seed)
    found = answer(rows, weights)
    z, v = place(rows, seed)
    away, x, least = terms(rows, found, z, v)
    moved = moves(rows, weights, away, generator)
    reach = 4.0 * (rows.spread.sqrt() + found.length + found.turned * rows.std)
    reach = reach + MEAN * found.turned * rows.std + found.turned * away.abs()
    inside = ((moved - found.shift).abs() <= reach).all(-1).double()
    assert float(inside.mean()) >= 1 - 2 * len(z) * math.exp(-8) - 0.001
    noise = (v * (z + moved).relu()).sum(-1) - least
    signs = float(((rows.radius * (found.omega @ x)) ** 2).sum())
    faint = float(((x * found.turned * rows.std) ** 2).sum())
    for share in (0.2, 1.0, 5.0):
        first, second = holder(share)
        proxy = first * float((rows.spread * x**2).sum()) + second * signs + FAINT * faint
        for scale in (0.3, 1.0, 2.0):
            rate = scale / math.sqrt(proxy)
            values = inside * (-rate * noise).exp()
            assert float(values.mean()) <= math.exp(scale**2 / 2) * (
                1 + 5 * float(values.std()) / DRAWS**0.5
            )


@pytest.mark.parametrize("seed", range(0, 36, 3))  # about 0, where no weight says anything of z
def test_shifts_are_means_and_proxies_hold(seed: int) -> None:
    """Of Σ_i x_i W_i·δ, by the best share."""
    rows, weights, generator = row_of(seed, size=2.0)
    found = answer(rows, weights)
    _, x = place(rows, seed)
    moved = moves(rows, weights, torch.zeros(4).double(), generator) @ x
    noise = moved - found.shift @ x
    assert abs(float(noise.mean())) <= 5 * float(noise.std()) / DRAWS**0.5
    signs = float(((rows.radius * (found.omega @ x)) ** 2).sum())
    proxy = (math.sqrt(float((rows.spread * x**2).sum())) + math.sqrt(signs)) ** 2
    for scale in (-2.0, -1.0, 0.3, 1.0, 2.0):
        values = (scale / math.sqrt(proxy) * noise).exp()
        error = 5 * float(values.std()) / DRAWS**0.5
        assert float(values.mean()) <= math.exp(scale**2 / 2) + error


def row_of(seed: int, size: float = 0.5) -> tuple[Margins, Tensor, torch.Generator]:
    """Of four neurons and five inputs: margins, an adversary's weights."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(5, 4, 1)
    mean = (0.0, size)[seed % 2] * gaussian(network.size, generator=generator)
    std = 0.2 + uniform(network.size, generator=generator)
    net = head(network, Normal(mean, std))
    center, radius = (0.0, 0.2, 1.0)[seed % 3] * gaussian(5, generator=generator), vector(0.3)
    one, zero = torch.ones(1, 1).double(), torch.zeros(1).double()
    rows = margins_about(net, center, radius.expand(5), one, zero)
    return rows, gaussian(4, generator=generator), generator


def place(rows: Margins, seed: int) -> tuple[Tensor, Tensor]:
    """Some z and v of either sign."""
    generator = torch.Generator().manual_seed(100 + seed)
    z = rows.mean + rows.std * gaussian(4, generator=generator)
    return z, gaussian(4, generator=generator)


def terms(rows: Margins, found: Answer, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """ζ, x and Σ_i T_i, less what λ multiplies, by a chord of four deviations."""
    away, faint = z - rows.mean, found.turned * rows.std
    reach = 4.0 * (rows.spread.sqrt() + found.length + faint) + MEAN * faint
    reach = reach + found.turned * away.abs()
    low, high = z + found.shift - reach, z + found.shift + reach
    chord = (high.relu() - low.relu()) / (high - low)
    alpha = torch.where(v > 0, (z + found.shift > 0).double(), chord)
    lift = torch.where(v > 0, 0.0, high.relu() - chord * high)
    x = v * alpha
    aside = x.abs() * found.turned * (away.abs() + MEAN * rows.std)
    return away, x, (v * (alpha * z + lift) + x * found.shift - aside).sum()


def moves(rows: Margins, weights: Tensor, away: Tensor, generator: torch.Generator) -> Tensor:
    """W·δ [DRAWS, n] where z is given."""
    noise = gaussian(DRAWS, *rows.weight.shape, generator=generator)
    alike = rows.weight + rows.variance.sqrt() * noise
    # What z would be of W', and of a bias for what the rest of its variance is.
    center = torch.where(rows.variance > 0, rows.kappa * rows.std**2 / rows.variance, 0.0)
    rest = (rows.std**2 - (center**2 * rows.variance).sum(0)).clamp_min(0).sqrt()
    again = ((alike - rows.weight) * center).sum(1)
    again = again + rest * gaussian(DRAWS, len(away), generator=generator)
    weight = alike + rows.kappa * (away - again).unsqueeze(1)
    delta = rows.radius * torch.where(alike @ weights < 0, -1.0, 1.0)
    return torch.einsum("sj,sjn->sn", delta, weight)
