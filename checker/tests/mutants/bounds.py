"""Bounds whose exact value is known: sums, regions, lines, steps and walks."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import numpy as np
from flint import arb
from mpmath import mpf

from mutants.certificates import TRAPS
from mutants.fresh import chain
from mutants.numbers import U, exact, inner, random_floats
from mutants.outcomes import Checker, never, never_above


def sums(checker: Checker) -> None:
    """Dot products in the order that loses most, at the bottom of the range, and where everything
    cancels."""
    never(checker.arithmetic.as_probability(math.nan) >= 0, "a probability of NaN")
    ar, tiny, lost = checker.arithmetic, np.full((2, 100), -(2.0**-538)), np.full((2, 4096), -U)
    lost[:, 0] = -1
    pairs = [(np.asfortranarray(lost), np.ones(4096)), (tiny, np.full(100, 2.0**-537))]
    for a, b in pairs + [(np.array([trap, trap]), np.ones(3)) for trap in TRAPS]:
        true, size = inner(a[0], b), (np.abs(a[:1]), b[:, None])
        never_above(ar.dot_down(a, b)[0], true, "dot_down")
        never_above(-true, ar.dot_up(-a, b)[0], "dot_up")
        layer = checker.layers.Dense(0, len(b), True, 0)
        error = checker.weighted.pull_error(layer, size[1].T, size[0])
        never_above(
            abs(Fraction(layer.pull(b[None], a[:1])[0, 0]) - true), error[0, 0], "pull_error"
        )
        never_above(
            inner(size[0], b), checker.weighted.pull_up(layer, size[1].T, size[0])[0, 0], "pull_up"
        )
    for k in range(1, 20):
        never_above(Fraction(k), Fraction(float(ar.sqrt_up(np.array(float(k))))) ** 2, "sqrt_up")
        for ball, low, high in (
            (arb(k) / 3, Fraction(k, 3), Fraction(k, 3)),
            (arb(k, 0.25), k - 0.25, k + 0.25),
        ):
            never_above(ar.lower_float(ball), low, "lower_float")
            never_above(high, ar.upper_float(ball), "upper_float")


def regions(checker: Checker) -> None:
    """Ends are rounded outward, minima below those of the box, and points are inside or not."""
    with suppress(checker.CannotCheck):
        never(checker.grammar.exact("0x1p-1075", "") == 0, "a number that is not 0")
    rows, x = random_floats(1, 9, 4), random_floats(2, 4)
    for eps in (0.1, 0.3, 2.5):
        stored = checker.grammar.Tensors({"x": x})
        region = checker.region.read_region(
            {"norm": "linf", "clip": None, "eps": eps.hex()}, stored, (4,)
        )
        for low, high, c in zip(*map(exact, (region.lower, region.upper, x)), strict=True):
            never_above(max(low - c + Fraction(eps), c + Fraction(eps) - high), 0, "ends")
        for row, bound in zip(rows, region.minimum(rows), strict=True):
            never_above(bound, inner(row, x) - Fraction(eps) * sum(map(abs, exact(row))), "minimum")
    for norm, point in {
        "linf": (1.25, 2.0),
        "l2": (1.5, 1.5),
        "l1": (1.5, 1.25),
        "box": (0.5, 9.0),
    }.items():
        region = checker.region.Region(norm, np.ones(2), 0.5, np.zeros(2), np.full(2, 3.0))
        never(region.contains(np.array(point)), f"a point outside, {norm}")
        touching = checker.region.Region(
            norm, np.ones(2), 0.5, np.array([1.5, -9.0]), np.full(2, 9.0)
        )
        never(touching.is_empty, f"a part that meets the region, {norm}")


def activation_lines(checker: Checker) -> None:
    """Neither lines nor ends cross what they bound; 60 digits are exact for what is bent."""
    curves: dict[tuple[str, float | None], Callable[[mpf], mpf]] = {
        ("ReLU", 0.0): lambda z: max(z, mpf(0)),
        ("LeakyReLU", 0.3): lambda z: max(z, mpf(0.3) * z),
        ("Tanh", None): mpmath.tanh,
        ("Sigmoid", None): lambda z: 1 / (1 + mpmath.exp(-z)),
    }
    ends = [*np.sort(random_floats(3, 30, 2)).tolist(), (-1e70, 0.0), (0.0, 1e70)]
    slopes = [*(np.abs(random_floats(4, 30, 2)) / 2).tolist(), (1e-60, 1e-60), (1e-60, 1e-60)]
    for (kind, f), ((l, u), pair) in product(curves.items(), list(zip(ends, slopes, strict=True))):
        activation, arrays = (
            checker.layers.Activation(*kind, 1, 1),
            np.array([l, u, *pair])[:, None],
        )
        found, image = (
            checker.activations.lines(activation, *arrays),
            checker.activations.image(activation, *arrays[:2]),
        )
        numbers = (found.lower_slope, found.lower, found.upper_slope, found.upper, *image)
        a, b, c, d, low, high = (mpf(float(value[0])) for value in numbers)
        for z in map(
            mpf, {l, u, min(max(l, 0.0), u), *np.linspace(max(l, -50), min(u, 50), 6).tolist()}
        ):
            never_above(max(a * z + b, low), f(z), f"lower line or end of {kind}")
            never_above(f(z), min(c * z + d, high), f"upper line or end of {kind}")


def steps(checker: Checker) -> None:
    """One step back: rows·z is at least new rows·h + constant at every corner, with the worst
    weights there."""
    li = checker.linear
    for seed, shift in product(range(4), (0.0, 4.0, -4.0)):
        h = np.sort(random_floats(seed, 2, 2) + shift, 0) * (
            1 if shift else np.array([[0.001], [1]])
        )
        rows, slopes = random_floats(seed + 90, 2, 3), np.abs(random_floats(seed + 200, 2, 2)) / 2
        _step_holds(li, h, np.sort(random_floats(seed + 50, 2, 3, 3), 0), rows)
        middles = (
            *li._chord_of_magnitude(li.Interval(*h)),
            *checker.linear.center_radius(li.Interval(*h)),
        )
        for low, high, kappa, delta, center, radius in zip(
            *map(exact, (*h, *middles)), strict=True
        ):
            never_above(max(abs(end) - kappa * end for end in (low, high)), delta, "chord")
            never_above(max(high - center, center - low), radius, "radius")
        lines = checker.activations.Lines(slopes[0], np.zeros(2), slopes[1], np.zeros(2))
        found = li.ActivationStep(lines, li.Interval(*h)).pull(rows[:, :2])
        for (row, new, constant), z in product(
            zip(rows[:, :2], *found, strict=True), product(*h.T.tolist())
        ):
            chosen = [low if a > 0 else high for a, low, high in zip(row, *slopes, strict=True)]
            value = sum(a * s * p for a, s, p in zip(*map(exact, (row, chosen, z)), strict=True))
            never_above(inner(new, z) + Fraction(constant), value, "a step over activations")
    for seed in (357, 370, 3897):  # where γ without spare roundings is too small
        random = np.random.default_rng(seed)
        h, weights = (
            np.sort(random.uniform(0.5, 2, (2, 1)), 0),
            np.sort(random.uniform(-2, 2, (2, 2, 1)), 0),
        )
        weights[:, 1] = 0
        _step_holds(li, h, weights, random.uniform(-2, 2, (1, 1)))


def _step_holds(linear: Any, h: Any, weights: Any, rows: Any) -> None:
    layer = linear.Dense(h.shape[1], rows.shape[1], True, 0)
    found = linear.BoxStep(layer, *weights, linear.Interval(*h)).pull(rows)
    for (row, new, constant), corner in product(
        zip(rows, *found, strict=True), product(*h.T.tolist())
    ):
        terms = [p * a for p, a in product(exact([*corner, 1]), exact(row))]
        worst = sum(min(t * w, t * v) for t, w, v in zip(terms, *map(exact, weights), strict=True))
        never_above(inner(new, corner) + Fraction(constant), worst, "a step over weights")


def walks(checker: Checker) -> None:
    """Bounds of whole networks with point weights, at corners of the region."""
    model = checker.model
    for seed, alpha in product(range(8), (0.0, 0.3)):
        flat, x = random_floats(seed, 17), np.sort(random_floats(seed + 20, 2, 2), 0)
        rows, offsets = random_floats(seed + 40, 3, 2), random_floats(seed + 60, 3)
        kinds = checker.layers
        first, last = kinds.Dense(2, 3, True, 0), kinds.Dense(3, 2, True, 9)
        layers = (first, kinds.Activation("LeakyReLU", alpha, 3, 1), last)
        region, box = (
            checker.region.Region("box", x[0], math.inf, *x),
            checker.mass.WeightBox(flat, flat),
        )
        network = model.Model(chain(checker, (2,), layers), (), "", "")
        bounds = checker.linear.row_bounds(network, box, region, rows, offsets)
        w = exact(flat)
        for p, q in product(*map(exact, x.T)):
            h = [
                max(z, Fraction(alpha) * z)
                for z in (p * w[o] + q * w[3 + o] + w[6 + o] for o in range(3))
            ]
            y = [sum(h[i] * w[9 + 2 * i + o] for i in range(3)) + w[15 + o] for o in range(2)]
            for (a, b), offset, bound in zip(map(exact, rows), exact(offsets), bounds, strict=True):
                never_above(bound, a * y[0] + b * y[1] + offset, "a walk")
