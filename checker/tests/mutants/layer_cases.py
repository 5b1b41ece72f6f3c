"""Cases by layers: one layer, hidden layers, shared noise, branch and bound, widths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from mutants.certificates import (
    FLAT,
    LEAKY,
    LINE,
    RELU,
    STEEP,
    TRAPS,
    Case,
    Evidence,
    Problem,
    boxes,
    case,
    cdf,
    fields,
    proof,
    smooth,
)
from mutants.numbers import U

MEAN, VARIANCE = 64 * math.sqrt(2 / math.pi), 64 * (1 - 2 / math.pi)  # of Σ|w_j| over 64 weights
CANTELLI = VARIANCE / (VARIANCE + (MEAN - 41) ** 2)  # P(Σ|w_j| < 41) is below


def line_cases() -> Iterator[Case]:
    """One layer: P_safe in closed form, or below Cantelli's bound."""
    settings = [
        (4, 0, 10, 50, 1, 0),
        (0.1, 0, 0.1, 0.0125, 1, 0),
        (0, 1, 1, 1.25, 1, 0),
        (1, 0, 1, -5, -4, -15),
    ]
    for (w, b, x, bias, row, offset), sign in product(
        settings, (1, -1)
    ):  # one of the two bounds is sharp
        problem = Problem(
            LINE, fields([0, sign * bias], [w, b]), [x], rows=[[row]], offsets=[sign * offset]
        )
        p = cdf(1.25 * sign)
        true = (p - 1e-9, 1) if sign > 0 else (0, p + 1e-9)
        yield Case(
            "a Gaussian sum",
            problem,
            smooth(point=[x]),
            (p, p),
            [(p + 1e-9, 1), (0, p - 1e-9)],
            true,
        )
    p, two = 2 * cdf(1) - 1, {"rows": [[1], [-1]], "offsets": [1, 1]}
    yield case("|b| < 1", LINE, [0, 0], [0, 1], smooth(), p, p + 1e-9, p - 1e-9, **two)
    yield case("nine σ", LINE, [0, 9], [0, 1], smooth(), 1 - Fraction(1, 10**19), 1, 1 - 2 * U)
    for norm in ("linf", "l2", "l1"):
        p, problem = 2 * cdf(1.5) - 1, Problem(LINE, fields([0, 0.3], [0.1, 0]), eps=2, norm=norm)
        yield Case(
            f"|w| < 3/2 σ, {norm}", problem, smooth(), (p, p), [(0.9, 1), (0, 0.8)], (0.75, 1)
        )


def norm_cases() -> Iterator[Case]:
    """One layer on a ball of each norm, and sums that cancel."""
    yield case("m is negative", LINE, [0, 0.05], [1, 0], smooth(), 2 * cdf(0.05) - 1, 0.2, eps=1)
    for n, bias, eps, norm, p in (
        (64, 41, 1, "linf", CANTELLI),
        (
            100,
            14,
            2,
            "l2",
            200 / (200 + 51**2),
        ),  # Cantelli again: |w|² < 49, of mean 100 and variance 200
        (100, 5, 2, "l1", (2 * cdf(2.5) - 1) ** 100),
    ):
        mean, std = [0] * n + [bias], [1] * n + [0]
        yield case(
            f"eps |w| < b, {norm}",
            ((n, 1),),
            mean,
            std,
            smooth(),
            p,
            0.5,
            x=[0] * n,
            eps=eps,
            norm=norm,
        )
    for (norm, bias), evidence in product((("l2", 2.4), ("l1", 1.5)), (smooth(), boxes())):
        yield case(
            "2|(1, 1)| > b",
            ((2, 1),),
            [1, 1, bias],
            0,
            evidence,
            0,
            0.5,
            x=[0, 0],
            eps=2,
            norm=norm,
        )
    for trap, evidence in product(TRAPS, (smooth(), boxes())):
        yield case(
            "cancels",
            ((1, 3),),
            [0] * 3 + [*trap],
            0,
            evidence,
            0,
            0.5,
            rows=[[1] * 3],
            offsets=[0.5],
        )


def hidden_cases() -> Iterator[Case]:
    """Hidden layers: what is charged for their intervals, and lines on them."""
    mean, std, p = [0] * 10 + [-2 - 1e-6] * 10, [0] * 10 + [1] * 10 + [0] * 11, cdf(2 + 3e-6) ** 10
    flat = {"lower_slopes1": [0] * 10, "upper_slopes1": [0] * 10}
    layers: Any = ((1, 10), "ReLU", (10, 1))
    yield case(
        "ReLUs off", layers, [*mean, *[-1e6] * 10, 1], std, smooth(2.0, **flat), p, 0.8, 0.77
    )
    flat |= {"lower_slopes3": [0], "upper_slopes3": [0]}
    layers, mean, std = (*layers, "ReLU", (1, 1)), [*mean, *[1e6] * 10, 0, -1, 1], [*std, 0, 0]
    yield case("ReLUs off and another layer", layers, mean, std, smooth(2.0, **flat), p, 0.8, 0.7)
    mean, std, p, flat = [0, 0, 1, 0], [0, 1, 0, 0], 2 * cdf(1 + 1e-6) - 1, smooth(1.0, **FLAT)
    for rows, offsets, most, false, true in (
        ([[-1], [1]], [1 + 1e-6, 0.5 + 1e-6], p, p + 0.01, p - 0.01),
        ([[-1]], [0.1], cdf(0.1), 0.6, 0),
        ([[1]], [0.05], cdf(0.1), 0.6, 0),
    ):
        yield case(
            "z of one neuron", LEAKY, mean, std, flat, most, false, true, rows=rows, offsets=offsets
        )
    yield case(
        "steep lines on a ReLU that is off", RELU, [0, -5, -1, -1], std, smooth(**STEEP), 0, 0.5
    )
    yield case(
        "a LeakyReLU is never off", LEAKY, [0, -5, 1, 1], [0, 0.1, 0, 0], smooth(**FLAT), 1e-99, 0.5
    )
    yield case(
        "a ReLU that may be on", RELU, [0, 1, -1, 1.5], std, smooth(2.0, **FLAT), cdf(0.5), 0.9
    )
    yield case(
        "noise of two layers",
        LEAKY,
        [0, 10, 0, 1],
        [0, 1e-6, 0, 1],
        smooth(5.0, **FLAT),
        cdf(1),
        0.9,
        0.841,
    )
    noisy, t = [1, 0, 0, 0], smooth(-0.7, **FLAT)
    yield case("t is negative", RELU, [0, -0.1, -1000, 1], noisy, t, 2 * cdf(0.101) - 1, 0.2, eps=1)
    own = smooth(lower_slopes1=[0], upper_slopes1=[1], row_slopes1=[[1]])
    yield case(
        "rows with slopes of their own", RELU, [1, 0, 1, -1.5], 0, own, 0, 0.5, x=[1.5], eps=0.5
    )
    mean, std = [*np.eye(64).ravel(), *[0] * 128, 41], [0] * 64 * 65 + [1] * 64 + [0]
    half, layers = (
        smooth(lower_slopes1=[0.5] * 64, upper_slopes1=[0.5] * 64),
        ((64, 64), 0.5, (64, 1)),
    )
    yield case("Σ|w| < b, hidden", layers, mean, std, half, CANTELLI, 0.5, x=[-0.5] * 64, eps=1.5)


def shared_cases() -> Iterator[Case]:
    """Low-rank noise η, shared between weights."""
    p, half = 2 * cdf(1.5) - 1 + 1e-6, smooth(5.0, lower_slopes1=[0.5], upper_slopes1=[0.5])
    cancelling = [
        [2.0**42],
        [2.0**43 * 1017 * U],
        [-(2.0**42)],
        *[[0]] * 998,
    ]  # dot_down gives about 0
    sums = [[[0]] * 3 + [[value] for value in trap] for trap in TRAPS]
    for layers, mean, std, factor, evidence, most, question in (
        (LINE, [0, 1.5], [1e-9, 0], [[1, 1e-9], [0, 0]], smooth(), p, {"eps": 1}),
        (LEAKY, [1, 0, 0, 1.5], 0, [[0], [1e-9], [1], [0]], half, p, {"x": [-0.5], "eps": 1.5}),
        (LEAKY, [0, 100, 1, -98], 0, [[0], [1], [0], [1]], smooth(5.0, **STEEP), cdf(1), {}),
        *(
            (((1, 3),), [0] * 6, 0, v, smooth(), cdf(0.5), {"rows": [[1] * 3], "offsets": [0.5]})
            for v in sums
        ),
        (((1000, 1),), [0] * 1000 + [0.5], 0, cancelling, smooth(), 0.7, {"x": [1] * 1000}),
    ):
        problem = Problem(
            layers, fields(mean, std, factor=factor), family="low-rank-normal", **question
        )
        yield Case("shared noise", problem, evidence, (0, most), [(0.9, 1)])


def leaves(place: int, paths: Any, multipliers: Any) -> Evidence:
    """Branch and bound with splits of one neuron of two, or of one kink of a clip."""
    kind, evidence, tensors = smooth(lower_slopes1=[0, 0], upper_slopes1=[0.5, 0.5])
    evidence["components"][0]["lower"] |= {"trees": [{"row": 0, "scale": None}]}
    tensors |= {"c0.open": [place], "c0.tree0.paths": paths, "c0.tree0.multipliers": multipliers}
    return kind, evidence, tensors | {"c0.tree0.slopes": [[0.0]] * len(paths)}


def in_two(at: float) -> Evidence:
    """The region cut at a point, with the same slopes on both sides."""
    kind, _, tensors = smooth(
        **{f"{side}{name}_slopes1": [0, 0] for side in (0, 1) for name in ("lower", "upper")}
    )
    cut = {
        "probability": (0.5).hex(),
        "dimension": 0,
        "at": at.hex(),
        "below": proof(3.0),
        "above": proof(3.0),
    }
    return kind, {"components": [{"weight": (1.0).hex(), "lower": cut, "upper": None}]}, tensors


def tree_cases() -> Iterator[Case]:
    """y = 1.1 - 2 relu(-x) on |x| <= 1, with neurons x and -x: not safe at x = -1, but safe
    wherever x >= 0."""
    proofs = {
        "only where x >= 0": leaves(0, [[1]], [[1.0]]),
        "where x >= 0, twice": leaves(0, [[1], [1]], [[1.0], [1.0]]),
        "a negative multiplier": leaves(0, [[1], [-1]], [[1.0], [-1.0]]),
        "a multiplier that would help with the other sign": leaves(1, [[-1], [1]], [[0.0], [2.0]]),
        "two parts": in_two(0.0),
        "two parts, one of them beyond the region": in_two(9.0),
    }
    mean = [1, -1, 0, 0, 0, -2, 1.1]
    for name, evidence in proofs.items():
        yield case(name, ((1, 2), "ReLU", (2, 1)), mean, 0.0, evidence, 0, 0.5, eps=1)
    yield from _clipped(mean)


def _clipped(mean: Any) -> Iterator[Case]:
    """y = 1.1 - 2 min(max(-x, low), high) on |x| <= 1, places of x and -x at `low`, then at
    `high`."""
    wrong, right = ((0, 0), [(0.5, 1)], None), ((1, 1), [], (0.9, 1))
    once, both = leaves(0, [[1]], [[1.0]]), leaves(3, [[1], [-1]], [[0.0], [0.0]])
    twice = leaves(3, [[1, 1], [1, -1], [-1, 0]], [[0.0, 0.0]] * 3)
    for low, high, name, evidence, claims in (
        (0, 6, "a clip only where x >= 0", once, wrong),
        (-0.5, 0.75, "a clip only where x >= -0.5", once, wrong),
        (-0.5, 0.75, "a clip only where -x <= 0.75", leaves(3, [[-1]], [[0.0]]), wrong),
        (-0.5, 0.5, "a clip", both, right),
        (-0.5, 0.5, "a clip split twice in one place", twice, (None, [(0.5, 1)], None)),
    ):
        clip = {"type": "Hardtanh", "low": float(low), "high": float(high)}
        problem = Problem(((1, 2), clip, (2, 1)), fields(mean), eps=1.0)
        yield Case(name, problem, evidence, *claims)


def width_cases() -> Iterator[Case]:
    """y = -100 relu(x) + 1 about x = 1: surely negative, unless slopes of no width make the weights
    vanish."""
    for layers, shape in ((("ReLU", (1, 1)), (0,)), ((0.25, (1, 1)), (0,))):
        flat = np.zeros(shape)
        evidence = smooth(lower_slopes0=flat, upper_slopes0=flat)
        yield case("slopes of nothing", layers, [-100, 1], 0.01, evidence, 0, 0.999, x=[1], eps=0.1)
        kind, found, tensors = smooth(lower_slopes0=[1.0], upper_slopes0=[1.0])
        found["components"][0]["lower"] |= {"trees": [{"row": 0, "scale": None}]}
        none = {
            "c0.open": np.zeros(0),
            "c0.tree0.paths": np.zeros((1, 0)),
            "c0.tree0.slopes": np.zeros((1, 0)),
        }
        tensors |= none | {"c0.tree0.multipliers": np.zeros((1, 0))}
        yield case(
            "a tree about nothing",
            layers,
            [-100, 1],
            0.01,
            (kind, found, tensors),
            0,
            0.999,
            x=[1],
            eps=0.1,
        )
