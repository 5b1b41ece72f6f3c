"""Correlated weights at a point: moments, tails, majorants and whole bounds whose truth is known by
quadrature.

Choices are made here by the simplest means: the checker must refuse false ones, and what it makes
of true ones is never below the truth.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from flint import arb, arb_mat
from scipy.special import ndtr

from mutants.fresh import chain
from mutants.outcomes import Checker, never, never_above

LOW, HIGH = -1.0, 2.0
ROWS, OFFSETS = np.array([[1.0], [-1.0]]), np.array([-LOW, HIGH])
MEAN = np.array([0.4, -0.2, 0.1, 0.3, 0.5, -0.3, 0.2])  # W, b, v, b of 1-2-1
OWN = np.array([0.1, 0.2, 0.1, 0.1, 0.9, 0.8, 0.7])


@cache
def factor() -> Any:
    generator = np.random.default_rng(1)
    found = 0.5 * generator.normal(size=(7, 3))
    found[4:] *= 0.6
    return found


def posterior(checker: Checker, family: str = "low-rank-normal") -> Any:
    fields = {"mean": MEAN, "std": OWN, "factor": factor()}
    return checker.model.Posterior(family, fields)


def network(checker: Checker, kind: str = "Tanh") -> Any:
    first, last = checker.weighted.Dense(1, 2, True, 0, 0), checker.weighted.Dense(2, 1, True, 4, 2)
    return chain(checker, (1,), (first, checker.layers.Activation(kind, None, 2, 1), last))


def joint(checker: Checker, kind: str = "Tanh") -> Any:
    part = checker.correlated.gaussian
    form = part.require_form(network(checker, kind), posterior(checker))
    return part.joint(part.at_point(form, np.array([1.5])), np.array([1.0]))


@cache
def law(kind: str = "Tanh") -> tuple[Any, ...]:
    """Masses of h's grid, and a and q there; S and the correlation of h."""
    forms = np.zeros((5, 7))
    forms[0, [0, 2]], forms[1, [1, 3]] = [1.5, 1], [1.5, 1]
    forms[2, 6] = forms[3, 4] = forms[4, 5] = 1
    covariance = forms @ (factor() @ factor().T + np.diag(OWN**2)) @ forms.T
    mean = forms @ MEAN
    places = (np.arange(481) - 240) * 0.0375
    first, second = (part.ravel() for part in np.meshgrid(places, places))
    mass = np.exp(-(first**2 + second**2) / 2)
    h = mean[:2, None] + np.linalg.cholesky(covariance[:2, :2]) @ np.stack([first, second])
    regression = covariance[2:, :2] @ np.linalg.inv(covariance[:2, :2])
    given = covariance[2:, 2:] - regression @ covariance[:2, 2:]
    value = np.tanh(h) if kind == "Tanh" else 0.5 + 0.5 * np.tanh(h / 2)
    t = np.concatenate([np.ones((1, h.shape[1])), value])
    a = ((mean[2:, None] + regression @ (h - mean[:2, None])) * t).sum(0)
    scale = np.sqrt(np.diag(covariance)[:2])
    correlation = covariance[0, 1] / scale.prod()
    return mass / mass.sum(), a, (t * (given @ t)).sum(0), given, correlation


def forms(checker: Checker) -> None:
    """Other noise, activations and wiring are not spoken of."""
    part = checker.correlated.gaussian
    for kind, family in (("ReLU", "low-rank-normal"), ("Tanh", "normal")):
        own = network(checker, kind), posterior(checker, family)
        never(_passes(checker, part.require_form, *own), f"{kind} of {family} noise")
    long = network(checker)
    wired = type(long)((1,), long.layers, ((0,), (1,), (1,)))
    never(_passes(checker, part.require_form, wired, posterior(checker)), "another wiring")
    never(_passes(checker, part._deviation, arb(0, 1)), "a variance that may be 0")


def _passes(checker: Checker, function: Any, *given: Any) -> bool:
    try:
        function(*given)
    except (checker.CannotCheck, checker.verdict.Rejected):
        return False
    return True


def _misses(found: arb, exact: float) -> bool:
    """Whether a ball that says something does not hold the truth, but for the quadrature."""
    return bool(found.is_finite()) and not bool(abs(found - exact) < 1e-9)


def moments(checker: Checker) -> None:
    for kind in ("Tanh", "Sigmoid"):
        mass, a, q, *_ = law(kind)
        found = moments_of(checker, joint(checker, kind), 40, 0.3)
        never(_misses(found.first, float(mass @ (a - 0.3))), "E a")
        never(_misses(found.second, float(mass @ (a - 0.3) ** 2)), "E a²")
        never(_misses(found.noise, float(mass @ q)), "E q")


def moments_of(checker: Checker, own: Any, terms: int, center: float) -> Any:
    part = checker.correlated.moments
    return part.moments(own, part.hermite(own, terms + 2), terms, center)


def vague(checker: Checker) -> None:
    """What few terms leave out, and what floats round."""
    mass, a, q, *_ = law()
    for terms in (2, 3, 5):
        found = moments_of(checker, joint(checker), terms, 0.0)
        for ball, exact in ((found.noise, mass @ q), (found.second, mass @ a**2)):
            far = abs(float(ball.mid()) - float(exact))
            never(far > float(ball.rad()) + 1e-9, f"{terms} terms")
    steep = [arb(0), arb(0)], [arb(3), arb(3)]
    near = arb_mat([[1, 1 - 2.0**-12], [1 - 2.0**-12, 1]])
    units = arb_mat([[int(i == j) for j in range(3)] for i in range(3)])
    nothing = arb_mat([[0] * 2 for _ in range(3)])
    own = joint(checker)
    part = checker.correlated.gaussian.Joint(
        own.activation, *steep, [arb(0), arb(1), arb(1)], units * 0, nothing, near, units * 0
    )
    ball = moments_of(checker, part, 30, 0.0).second
    never(bool(ball.is_finite()), "weights that still rise where the series ends")


def frame(checker: Checker, bound: float = 1.0, power: float = 1.0) -> Any:
    """d and p just large enough, times a factor."""
    *_, given, correlation = law()
    within = given[1:, 1:]
    d = (np.diag(within) + np.abs(within[0, 1])) * (1 + 1e-9) * bound
    p = np.full(2, (1 + abs(correlation)) * (1 + 1e-9) * power)
    return checker.correlated.tails.Frame(np.array([0.3, -0.1]), d, p)


def frames(checker: Checker) -> None:
    part, own = checker.correlated.tails, joint(checker)
    never(not part.is_framed(own, frame(checker)), "what holds is refused")
    never(part.is_framed(own, frame(checker, bound=0.9)), "d too small")
    never(part.is_framed(own, frame(checker, power=0.95)), "p too small")
    _, _, q, *_ = law()
    never_above(float(q.max()), float(part.most(own, frame(checker)).upper()) + 1e-9, "q⁺")
    cells = part.cells(own, frame(checker))
    never(bool((cells.mass.sum(-1) < 1).any()), "masses")
    never(bool((cells.low > cells.high).any()), "ends of cells")


def tails(checker: Checker) -> None:
    part, own, at = checker.correlated.tails, joint(checker), frame(checker)
    mass, _, q, *_ = law()
    of = part.cells(own, at)
    steep = part.Choice(1.0, np.zeros(2), np.full(2, 1e-3))
    for rate in (0.05, 2.0):
        exact = math.log(float(mass @ np.exp(-rate * q)))
        for slope in (-1.5, 0.0, 0.4):
            for curvature in (0.0, 0.3, 1.5):
                chosen = part.Choice(rate, np.full(2, slope), np.full(2, curvature))
                found = part.log_tail(own, at, of, chosen)
                never_above(exact, float(found), f"a tail at {rate}, {slope}, {curvature}")
    never(bool(part.log_tail(own, at, of, steep).is_finite()), "a parabola that N leaves")


def uncoupled(checker: Checker) -> None:
    """Neurons that nothing couples: what is bounded is what is computed, but for the cells, and
    where R is large but for the parabolas."""
    part, own = checker.correlated.tails, joint(checker)
    alone, z = _alone(checker, own), (np.arange(4001) - 2000) * 0.0045
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    t = np.tanh(np.array([[-0.5], [-1.0]]) + np.array([[1.0], [2.0]]) * z)
    for rate, d, center, share in (
        (2.0, 1.0, (0.0, 0.0), 1.05),
        (2.0, 1.0, (0.5, -0.5), 1.05),
        (0.02, 3.0, (0.3, 0.2), 1.05),
        (0.02, 3.0, (-0.3, -0.5), 1.05),
        (0.02, 3.0, (0.9, 0.9), 1.05),
        (0.02, 3.0, (0.3, 0.2), 0.4),
    ):
        exact = float(np.log(np.exp(-rate * t**2) @ weight).sum())
        mu = np.array(center)[:, None]
        r = t - mu
        tilted = np.exp(-rate * (d * r**2 + 2 * mu * r)) * weight
        tilted /= tilted.sum(-1, keepdims=True)
        slope = (tilted * r).sum(-1)
        spread = (tilted * r**2).sum(-1) - slope**2
        chosen = part.Choice(rate, slope, share * spread + 0.08)
        at = part.Frame(mu[:, 0], np.full(2, d * (1 + 1e-9)), np.full(2, 1 + 1e-9))
        found = part.log_tail(alone, at, part.cells(alone, at), chosen)
        never_above(exact - 1e-9, float(found), f"independent neurons, {rate}, {d}, {center}")
    wild = part.Choice(60.0, np.zeros(2), np.full(2, 40.0))
    found = part.log_tail(alone, at, part.cells(alone, at), wild)
    never(bool(found.is_finite()), "an integral that diverges")


def _alone(checker: Checker, own: Any) -> Any:
    """t_1² + t_2², independent."""
    units = arb_mat([[int(i == j and i > 0) for j in range(3)] for i in range(3)])
    return checker.correlated.gaussian.Joint(
        own.activation,
        [arb(-0.5), arb(-1)],
        [arb(1), arb(2)],
        [arb(0)] * 3,
        units,
        arb_mat([[0] * 2 for _ in range(3)]),
        arb_mat([[1, 0], [0, 1]]),
        units,
    )


INF = math.inf
# Numbers, weights, rates, the interval and q⁺ of what is not above F.
BELOW: tuple[Any, ...] = (
    ((0.99, 0.0, 0.0, 0.0), (), (), (-1.0, 1.0, True), 1.0),
    ((0.99, 0.0, 0.0, 0.0), (), (), (-1.0, 1.0, False), 1.0),
    ((1.01, 0.001, 0.0, 0.0), (), (), (-1.0, 1.0, True), 1.0),
    ((1.01, 0.0, 0.0, -0.02), (), (), (-1.0, INF, False), 1.0),
    ((0.0, 0.0, 0.4, 0.0), (), (), (-1.0, 1.0, False), 1.0),
    ((0.1, 0.0, 0.0, 0.0), (0.89,), (0.1,), (-1.0, 1.0, True), 1.0),
    ((-5.0, 1.0, 0.1, 0.0), (), (), (-INF, 1.0, True), 1.0),
    ((0.9, 0.0, 0.0, 0.0), (), (), (-INF, 1.0, True), 1.0),
    ((0.4, 0.0, 0.5, 0.3), (), (), (-1.0, INF, False), 1.0),
    ((0.3, 0.0, 0.69, 0.0), (), (), (-1.0, 1.0, False), 1.0),
    ((0.3, -0.9, 0.05, 0.0), (), (), (-1.0, INF, False), 1.0),
    ((1.01, 0.001, 1e-9, 0.0), (), (), (-1.0, 1.0, True), 1.0),
)


def majorants(checker: Checker) -> None:
    part = checker.correlated.majorants
    good = part.Majorant((0.9, 0.05, 0.3, -0.02), np.array([0.6]), np.array([0.3]))
    for inside in (False, True):
        asked = part.Interval(-1.0, 1.5, inside)
        never(not part.is_above(asked, good, 4.0), "what is above is refused")
    for numbers, weights, rates, (low, high, inside), most in BELOW:
        found = part.Majorant(numbers, np.array(weights), np.array(rates))
        above = part.is_above(part.Interval(low, high, inside), found, most)
        never(above, f"{numbers} is above on {low, high, inside}")


def between(checker: Checker) -> None:
    """G that is above F but for less than its least gap: at a = 0 where F is flat, along a line of
    q, and about where it touches."""
    part = checker.correlated.majorants
    for half, most in ((1.0, 1.0), (2.0, 9.0), (0.5, 4.0)):
        q = np.linspace(0.01, most, 4001)
        top = 2 * ndtr(half / np.sqrt(q)) - 1
        for rate in (0.2, 1.0):
            columns = np.exp(-rate * q)
            weight = 0.7
            level = float((top - weight * columns).max()) - 2e-6
            found = part.Majorant((level, 0.0, 0.0, 0.0), np.array([weight]), np.array([rate]))
            asked = part.Interval(-half, half, True)
            never(part.is_above(asked, found, most), "touching from below, inside")
        a, s = (x.ravel() for x in np.meshgrid(np.linspace(-8, 8, 801), np.linspace(0.05, 1, 96)))
        s = s * math.sqrt(most)
        for low, high in ((-half, half), (-half, INF)):
            fails = ndtr((low - a) / s) + ndtr((a - high) / s)
            bend, slope = 0.2, 0.0 if high < INF else -0.1
            level = float((fails - slope * a - bend * a**2 - 0.05 * s**2).max()) - 2e-6
            found = part.Majorant((level, slope, bend, 0.05), np.zeros(0), np.zeros(0))
            never(part.is_above(part.Interval(low, high, False), found, most), "from below")
    generator = np.random.default_rng(0)
    good = part.Majorant((0.3, 0.05, 0.3, -0.02), np.array([0.6]), np.array([0.3]))
    for n in range(200):
        asked = part.Interval(-1.0, (1.5, INF)[n % 2], n % 3 == 0)
        a, low = float(generator.normal()), float(generator.uniform(0.05, 2))
        box = a, a + float(generator.uniform(0.1, 2)), low, low * float(generator.uniform(1.1, 3))
        ends = tuple(np.array([end]) for end in box)
        _, tangents = part._by_tangents(asked, good, ends)
        exact = _gap(
            good, asked, *np.meshgrid(np.linspace(*box[:2], 21), np.linspace(*box[2:], 21))
        )
        never_above(float(tangents[0]), float(exact.min()), "by tangents")
        never_above(float(part._by_ends(asked, good, ends)[0]), float(exact.min()), "by ends")
    for inside in (False, True):
        center, about = part.centered(0.1, 0.7, inside)
        wide = about.low < 0.1 - center and about.high > 0.7 - center
        narrow = about.low > 0.1 - center and about.high < 0.7 - center
        never(not (wide if inside else narrow), "an end that is rounded the wrong way")


def _gap(good: Any, asked: Any, a: Any, q: Any) -> Any:
    """G - F"""
    s = np.sqrt(q)
    level, slope, bend, noise = good.numbers
    value = level + slope * a + bend * a**2 + noise * q
    value = value + (good.weights * np.exp(-good.rates * q[..., None])).sum(-1)
    fails = ndtr((asked.low - a) / s) + ndtr((a - asked.high) / s)
    return value - (1 - fails if asked.inside else fails)


def rows(checker: Checker) -> None:
    """Chebyshev's inequality, and a tail; more than is shown is never less than the truth."""
    part, tail = checker.correlated.rows, checker.correlated.tails
    mass, a, q, *_ = law()
    s = np.sqrt(q)
    center, half = (LOW + HIGH) / 2, (HIGH - LOW) / 2
    choice = tail.Choice(0.3, np.zeros(2), np.full(2, 1.5))
    own = checker.correlated.gaussian.require_form(network(checker), posterior(checker))
    loose = part.Group((0, 1), 30, (1.0001, 0.0, 0.0, 0.0), np.zeros(0), frame(checker), ())
    twice = part.Correlated((loose, loose))
    found = part.correlated_failure(own, np.array([1.5]), ROWS, OFFSETS, twice, False)
    never(bool(found < 1.9), "groups are not added up")
    swapped = part.correlated_failure(
        own, np.array([1.5]), ROWS, -OFFSETS, part.Correlated((loose,)), False
    )
    never(bool(swapped < 1), "an empty interval")
    valley = part.Group((0, 1), 30, (-0.5, 0.0, 0.01, 0.0), np.zeros(0), frame(checker), ())
    args = own, np.array([1.5]), ROWS, np.full(2, -20.0), part.Correlated((valley,)), True
    never(bool(part.correlated_failure(*args) < 0), "a chance below 0")
    exact = mass @ (a - center) ** 2, mass @ q, mass @ np.exp(-0.3 * q)
    for numbers, weight in (
        ((0.0, 0.0, 1 / half**2, 1 / half**2), 0.0),
        ((0.5, 0.1, 0.8, -0.01), 0.8),
        ((-0.5, 0.0, 0.0, 0.0), 0.0),
    ):
        for rows_, inside in (((0, 1), False), ((0,), False), ((0, 1), True), ((1,), True)):
            for at in (frame(checker), frame(checker, power=0.6), frame(checker, bound=0.3)):
                group = part.Group(rows_, 30, numbers, np.array([weight]), at, (choice,))
                found = part.Correlated((group,))
                args = own, np.array([1.5]), ROWS, OFFSETS, found, inside
                chance = float(part.correlated_failure(*args))
                true = _true(mass, a, s, rows_, inside)
                never_above(true - 1e-9, chance, f"{rows_}, {inside}")
                if chance < 1 and rows_ == (0, 1):
                    mean = numbers[0] + numbers[1] * float(mass @ (a - center))
                    mean += numbers[2] * exact[0] + numbers[3] * exact[1] + weight * exact[2]
                    never_above(min(mean, 1.0) - 1e-9, chance, "E G")


def _true(mass: Any, a: Any, s: Any, rows_: tuple[int, ...], inside: bool) -> float:
    below, above = ndtr((LOW - a) / s), ndtr((a - HIGH) / s)
    failing = float(mass @ sum((below, above)[row] for row in rows_))
    return 1 - failing if inside else failing


# By the module that each is about.
CORRELATED = {
    "gaussian": (forms, moments),
    "moments": (moments, vague),
    "tails": (frames, uncoupled, tails),
    "majorants": (majorants, between),
    "rows": (rows,),
}
