"""Probabilities and means whose exact value is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from typing import Any

import mpmath
import numpy as np
from flint import arb
from mpmath import mpf

from mutants.fresh import chain
from mutants.numbers import ETA, random_floats, upper_tail
from mutants.outcomes import Checker, never_above


def tails(checker: Checker) -> None:
    """Half-way between the nodes, and where the table is least exact."""
    worst = np.array([8575.499, 9976.499, 10550.499, 10749.499, 13000.0]) / 1024
    z = np.concatenate([worst, (np.arange(1, 12000, 97) + 0.5) / 1024])
    bounds = checker.tails.normal_tails_up(z), checker.tails.normal_tails_down(z)
    for value, above, below, mean in zip(
        z.tolist(),
        *bounds,
        checker.tails.expected_magnitude(2 * z, np.full(len(z), 2.0)),
        strict=True,
    ):
        q = upper_tail(value)
        never_above(max(q - above, below - q), 0, "tail")
        never_above(2 * (value + 2 * (mpmath.npdf(mpf(value)) - value * q)), mean, "E|N(2z, 4)|")


MARGINS, SLOPES, FAILS = (2.0, 3.0), (1.0, 0.5), 0.125  # of two rows, and what fails besides
MEANINGS = {"label": 0, "rivals": 0, "lead": -1}  # with the least that each can be


@cache
def true_means() -> dict[str, mpf]:
    """∫ v(s) dP(s) from above, by steps of 1/200: rows at least m - sL with probability P(s) = 1 -
    fails - 2 Q(s)."""
    grid = [mpf(k) / 200 for k in range(1601)]
    held = [max(mpf(0), 1 - mpf(FAILS) - 2 * upper_tail(float(s))) for s in grid]
    found = [
        _shares([mpf(m) - s * mpf(slope) for m, slope in zip(MARGINS, SLOPES, strict=True)])
        for s in grid
    ]
    means = {}
    for name, floor in MEANINGS.items():
        values = [shares[name] for shares in found]
        steps = [
            (value - after) * p
            for value, after, p in zip(values, values[1:], held[1:], strict=False)
        ]
        means[name] = floor + sum(steps) + (values[-1] - floor) * held[-1]
    return means


def _shares(margins: list[mpf]) -> dict[str, mpf]:
    label = 1 / (1 + sum(mpmath.exp(-margin) for margin in margins))
    rivals = 1 - 1 / (1 + sum(map(mpmath.exp, margins)))
    least = min(margins)
    lead = label * (1 - mpmath.exp(-least)) if least > 0 else mpmath.tanh(least / 2)
    return {"label": label, "rivals": rivals, "lead": lead}


def means(checker: Checker) -> None:
    """Predictive means where the truth is known: levels by quadrature, moments and a mean by
    hand."""
    found = np.array(MARGINS), np.array(SLOPES)
    for name, floor in MEANINGS.items():
        bound = checker.predictive.layered(
            found, arb(FAILS), getattr(checker.predictive, name), floor
        )
        never_above(
            bound, arb(mpmath.nstr(true_means()[name], 40)) + arb(2) ** -30, f"levels of {name}"
        )
    for margins in ([0.5, 2.0], [-1.0, 3.0], [-2.0, -0.25]):
        for name, true in _shares([mpf(m) for m in margins]).items():
            bound = getattr(checker.predictive, name)([*map(arb, margins)])
            never_above(bound, arb(mpmath.nstr(true, 40)) + arb(2) ** -40, name)
    _moments(checker)


def _moments(checker: Checker) -> None:
    """y = -relu(w), w ~ N(0, 1): E y = -1/sqrt(2π) with thresholds so small that the hidden event
    mostly fails."""
    layers = checker.layers
    dense, relu = layers.Dense(1, 1, False, 0), layers.Activation("ReLU", 0.0, 1, 1)
    last = layers.Dense(1, 1, False, 1)
    law = checker.model.Posterior(
        "normal", {"mean": np.array([0.0, -1.0]), "std": np.array([1.0, 0.0])}
    )
    model = checker.model.Model(chain(checker, (1,), (dense, relu, last)), (), "", "")
    point = checker.region.point_region(np.ones(1))
    for t in (0.25, 0.5, 2.0):
        slopes = {1: np.array([0.5])}
        proof = checker.proofs.Proof(t, {1: np.zeros(1)}, slopes, {}, {})
        bound = checker.predictive.direction_means(
            model, law, point, np.ones((1, 1)), (proof, proof)
        )[0]
        never_above(bound, arb(-1) / (2 * arb.pi()).sqrt(), "a mean")
    norms = checker.predictive.output_norms
    wide = checker.model.Posterior(
        "normal", {"mean": np.array([0.0, 0.0]), "std": np.array([1.0, 3.0])}
    )
    never_above(4.5**0.5, norms(model, wide, point)[0], "E (relu(w) v)²")
    shared = {"mean": np.zeros(2), "std": np.zeros(2), "factor": np.ones((2, 1))}
    never_above(
        1.5**0.5,
        norms(model, checker.model.Posterior("low-rank-normal", shared), point)[0],
        "E ξ⁴ / 2",
    )
    sigmoid = layers.Activation("Sigmoid", None, 1, 1)
    curved = checker.model.Model(chain(checker, (1,), (dense, sigmoid, last)), (), "", "")
    never_above(0.5, norms(curved, law, point)[0], "E sigmoid²")
    pool = layers.MaxPool((1, 2, 1), (2, 1), (2, 1))
    pooled = checker.model.Model(chain(checker, (1, 2, 1), (pool, dense)), (), "", "")
    ends = checker.region.point_region(np.array([0.0, 2.0]))
    never_above(2.0, norms(pooled, law, ends)[0], "a maximum")


@cache
def probability(family: str, l: Any, u: Any, *law: Any) -> mpf:
    """P(l <= w <= u) with 60 digits."""
    first, second, *others = map(mpf, law)
    if family == "uniform":
        return max(min(mpf(u), second) - max(mpf(l), first), mpf(0)) / (second - first)
    if family == "truncated-normal":
        low, high = max(mpf(l), others[0]), min(mpf(u), others[1])
        part, whole = (
            probability("normal", *ends, first, second) for ends in ((low, high), others)
        )
        return part / whole if low < high else mpf(0)
    tail: dict[str, Callable[[mpf], mpf]] = {
        "normal": upper_tail,
        "laplace": lambda z: mpmath.exp(-z) / 2,
        "student-t": lambda z: (
            mpmath.betainc(others[0] / 2, 0.5, 0, others[0] / (others[0] + z * z), True) / 2
        ),
    }
    near, far = sorted([(mpf(l) - first) / second, (mpf(u) - first) / second], key=abs)
    a, b = tail[family](abs(near)), tail[family](abs(far))
    return a - b if near * far > 0 else 1 - a - b


def masses(checker: Checker) -> None:
    """Intervals under every law, and many weights at once."""
    ends = (
        (-0.5, 0.75),
        (-1.9, 2.5),
        (1.5, 1.75),
        (-3.5, -1.5),
        (-20.0, 17.0),
        (2.5, 30.0),
        (-20.0, 0.5),
        (0.5, 9.0),
    )
    laws = [
        ("normal", 0.25, 1.5),
        ("normal", 0.25, 0.7),
        ("laplace", 0.25, 0.7),
        ("uniform", -1.0, 2.0),
    ]
    laws += [
        ("student-t", 0.25, 0.7, 1.0),
        ("student-t", 0.25, 1.5, 7.5),
        ("truncated-normal", 0.25, 0.7, -1.0, 2.0),
    ]
    for (family, *law), (l, u) in product(laws, ends):
        _mass_holds(checker, family, [[value] for value in law], [l], [u])
    mean, std = random_floats(8, 100), np.abs(random_floats(9, 100)) + 0.1
    _mass_holds(checker, "normal", [mean, std], mean - (11 + mean / 5) * std, mean + 11 * std)
    drawn = [
        (p + (1 - p) * np.abs(random_floats(i, n)) / 2)
        for i in range(3)
        for n, p in ((501, 0.999), (51, 0.1))
    ]
    floats = [(np.round(p * 2**30) / 2**30).tolist() for p in drawn]
    floats += [
        [2.0**-600] * 2,
        [2.0**-537, 2.0**-536, *[0.75] * 60],
    ]  # the second product sticks at 2η
    for p in floats:
        _mass_holds(checker, "uniform", [[0.0] * len(p), [1.0] * len(p)], [0.0] * len(p), p, p)
    _mass_holds(checker, "uniform", [[0], [ETA]], [0], [0], [0])


def _mass_holds(
    checker: Checker, family: str, law: list[Any], lower: Any, upper: Any, known: Any = ()
) -> None:
    """Of the box and of each weight; `known` are the weights' probabilities where they are
    floats."""
    l, u, *arrays = (np.array(values, float) for values in (lower, upper, *law))
    names, box = checker.model.FIELDS[family], checker.mass.WeightBox(l, u)
    posterior = checker.model.Posterior(family, dict(zip(names, arrays, strict=True)))
    each = zip(*(values.tolist() for values in (l, u, *arrays)), strict=True)
    true = list(map(Fraction, known)) or [probability(family, *values) for values in each]
    (most_failing, least), (least_failing, most) = (
        checker.mass._weights(posterior, box, side) for side in (0, 1)
    )
    for p, *bounds in zip(
        true, *map(np.ndarray.tolist, (least, most, least_failing, most_failing)), strict=True
    ):
        never_above(max(bounds[0] - p, p - bounds[1]), 0, f"probability of a weight, {family}")
        never_above(
            max(bounds[2] - (1 - p), 1 - p - bounds[3]), 0, f"failure of a weight, {family}"
        )
    never_above(checker.mass.mass(posterior, box, 0), math.prod(true), f"mass, {family}")
    never_above(math.prod(true), checker.mass.mass(posterior, box, 1), f"mass from above, {family}")


def unions(checker: Checker) -> None:
    """Alternating sums and sums of cells against the exact area of rectangles."""
    posterior = checker.model.Posterior("uniform", {"low": np.zeros(2), "high": np.full(2, 3.0)})
    apart = [((0.5, 1.5), (1.0, 2.0)), ((2.0, 1.0), (2.5, 1.525)), ((0.975, 0.0), (2.025, 0.5))]
    strips = [((start, 0.1), (end, 2.9)) for start, end in pairwise((0.1, 1.0, 2.1, 2.9))]
    drawn = [
        [(0.1 * a + 0.25, 0.1 * b + 2.75) for a, b in random_floats(seed, 5, 2, 2)]
        for seed in range(15)
    ]
    for rectangles in [apart, strips, *drawn]:
        chosen = [checker.mass.WeightBox(np.array(low), np.array(high)) for low, high in rectangles]
        cuts = [
            sorted({Fraction(float(end[axis])) for ends in rectangles for end in ends})
            for axis in (0, 1)
        ]
        area = Fraction(0)
        for (a, b), (c, d) in product(*(list(pairwise(line)) for line in cuts)):
            inside = any(
                low[0] <= a and b <= high[0] and low[1] <= c and d <= high[1]
                for low, high in rectangles
            )
            area += (b - a) * (d - c) * inside
        true = arb(area.numerator) / area.denominator / 9
        never_above(
            checker.mass.alternating_mass(posterior, chosen, len(chosen)), true, "alternating sum"
        )
        if rectangles is strips:
            separators = {(1, 0): 0, (2, 0): 0, (2, 1): 0}
            never_above(
                checker.mass.cells_mass(posterior, chosen, separators), true, "sum of cells"
            )
