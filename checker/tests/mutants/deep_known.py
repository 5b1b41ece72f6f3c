"""Two hidden layers: moments, majorants, expectations and whole bounds whose truth is known.

Choices are made here by the simplest means: the checker must refuse false ones, and what it makes
of true ones is never below the truth.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import mpmath
import numpy as np
from flint import arb, arb_mat

from mutants.fresh import chain
from mutants.outcomes import Checker, never, never_above

SIZE = 200_000  # of samples, whose shares are taken five standard errors down


def moments(checker: Checker) -> None:
    """E[exp(ah + bh²/2); h <= H], also where b is too steep to be integrated as it is."""
    settings = [(0.0, 0.5, 0.1, 3.0), (2.0, 0.0, 0.9, 2.5), (1.0, 0.5, 0.3, 3.0)]
    for m, a, b, cap in (*settings, (-2.0, 1.0, 0.9, 2.5), (1.0, -2.0, -1.0, 0.0)):
        z = checker.deep.rectified.Gaussian(arb(m), arb(1))
        found = checker.deep.rectified.moment(z, arb(a), arb(b), arb(cap))
        inside = mpmath.quad(
            lambda t, a=a, b=b, m=m: mpmath.exp(a * t + b * t * t / 2) * mpmath.npdf(t, m, 1),
            [0, cap],
        )
        exact = mpmath.ncdf(-m) + inside
        never_above(exact * (1 - mpmath.mpf(10) ** -12), float(found), "a moment")
    vague = checker.deep.rectified.moment(
        checker.deep.rectified.Gaussian(arb(0), arb(1)), arb(0), arb(0, 4), arb(3)
    )
    never(bool(vague.is_finite()), "steep squares that may be below 0")
    nothing = checker.deep.rectified.between(arb(2), arb(3))
    never_above(mpmath.ncdf(3) - mpmath.ncdf(2), float(nothing) * (1 + 1e-14), "between")


def exponentials(checker: Checker) -> None:
    part = checker.deep.majorants
    x = np.concatenate([np.linspace(-700, 700, 801), np.linspace(-1, 1, 400), [-800.0]])
    pairs = zip(x.tolist(), part.exp_up(x).tolist(), part.exp_down(x).tolist(), strict=True)
    for value, above, below in pairs:
        never_above(mpmath.exp(value), above, "exp")
        never_above(below, mpmath.exp(value), "exp")
    never(bool(np.isfinite(part.exp_up(np.array([800.0]))).any()), "exp(800)")


def exact_factor(m: float, t: float, b: float, c: float, ceiling: float) -> mpmath.mpf:
    s = mpmath.sqrt(t)
    top = min(ceiling, max(m, 0) + 14 * s + abs(b) * t)
    inside = mpmath.quad(
        lambda z: mpmath.exp(b * z + c * z * z / 2) * mpmath.npdf(z, m, s),
        [top * k / 8 for k in range(9)],
    )
    return mpmath.ncdf(-m / s) + (inside if top > 0 else 0)


@cache
def factors() -> list[tuple[tuple[float, ...], mpmath.mpf]]:
    generator = np.random.default_rng(0)
    found = []
    for n in range(10):
        m, t = float(generator.uniform(-12, 12)), float(generator.uniform(0.2, 6))
        b, ceiling = float(generator.normal()), [np.inf, 3.0][n % 2]
        c = float(generator.uniform(0, 0.1)) if n % 2 == 0 else 0.0
        found.append(((m, t, b, c, ceiling), exact_factor(m, t, b, c, ceiling)))
    far = (-30.0, 1.0, 3.0, 0.0, np.inf)  # far out, where a tail is below the table
    cut = (0.5, 0.7, 14.0, 0.0, 2.7)  # far below its centre
    return [*found, (far, exact_factor(*far)), (cut, exact_factor(*cut))]


def ratios(checker: Checker) -> None:
    part = checker.deep.majorants
    for (m, t, b, c, ceiling), exact in factors():
        own = part.Factors(*(np.array([value]) for value in (b, c, ceiling)))
        over = part.Majorants(*(np.array([value]) for value in (0.3, 0.2, -0.1, 0.05)))
        quadratic = 0.3 + 0.2 * m - 0.1 * t / 2 + 0.05 * m * m / 2
        found = part.ratio_up(own, over, np.array([m]), np.array([t]))[0]
        never_above(exact * mpmath.exp(-quadratic), found, "a factor")
    tail = part.Factors(*(np.array([v]) for v in (0.0, 0.0, 2.0)), tail=True)
    flat = part.Majorants(*(np.zeros(1) for _ in range(4)))
    found = part.ratio_up(tail, flat, np.array([1.0]), np.array([4.0]))[0]
    never_above(mpmath.ncdf(-0.5), found, "a tail")
    far = part.Factors(*(np.array([v]) for v in (0.0, 0.0, 15.0)), tail=True)
    low = part.Majorants(np.array([-110.0]), *(np.zeros(1) for _ in range(3)))
    found = part.ratio_up(far, low, np.zeros(1), np.ones(1))[0]
    never_above(mpmath.ncdf(-15) * mpmath.exp(110), found, "a tail far out")


def poles(checker: Checker) -> None:
    """½ + ½/√d where b = m = 0 and d = 1 - cT is so small that the rounding of cT shows."""
    part = checker.deep.majorants
    flat = part.Majorants(*(np.zeros(1) for _ in range(4)))
    for n in range(8):
        t, c = 3.0, (1 - 2.0**-36 - n * 2.0**-38) / 3
        own = part.Factors(np.zeros(1), np.array([c]), np.array([np.inf]))
        found = part.ratio_up(own, flat, np.zeros(1), np.array([t]))[0]
        d = 1 - mpmath.mpf(c) * mpmath.mpf(t)
        never_above((1 + 1 / mpmath.sqrt(d)) / 2, found, "a factor near its pole")


def coefficients(checker: Checker) -> None:
    """Sums that cancel beyond the working precision leave nothing to go by."""
    lost = arb(2) ** 200 + arb(1) / 3 - arb(2) ** 200
    never(bool(np.isfinite(checker.deep.rows._floats([lost])).any()), "digits that are lost")


def rectangles(checker: Checker) -> None:
    """Majorants that touch at every corner of the first cells and are false between them."""
    part = checker.deep.majorants
    along, across = part.FIRST
    wide = 0.05 * along
    for b, near, far, low, high in (
        (-4.0, 0.01, 0.01, -wide, wide),  # a kink that is smoothed little: bent along m
        (0.0, 0.01, 0.01 * 4**across, 2.0, 2.0),  # P(z > 2) alone: bent along T
    ):
        tail = far > near
        ceiling = np.array([3.0]) if tail else np.array([np.inf])
        own = part.Factors(np.array([b]), np.zeros(1), ceiling, tail=tail)
        ends = np.array([[low, high, near, far]])
        touching = _touching(part, own, low, high, near, far)
        for most in (part.MOST, 1):  # also where the search is given up
            part.MOST, kept = most, part.MOST
            found = part.hold(own, ends, touching)
            part.MOST = kept
            never(bool(found.any()), "a majorant that holds at corners alone")
    own = part.Factors(np.ones(1), np.zeros(1), np.full(1, np.inf))
    flat = part.Majorants(np.array([1.0]), *(np.zeros(1) for _ in range(3)))
    never(bool(part.hold(own, np.array([[-3.0, 3.0, 1.0, 2.0]]), flat).any()), "a low majorant")
    broken = part.Majorants(np.array([1e308]), np.array([1e308]), np.zeros(1), np.zeros(1))
    never(bool(part.hold(own, np.array([[-3.0, 3.0, 1.0, 2.0]]), broken).any()), "NaN")


def _touching(part: Any, own: Any, low: float, high: float, near: float, far: float) -> Any:
    """A line above log G at the nodes of the first cells, with room of 1e-9."""
    along, across = part.FIRST
    m = np.linspace(low, high, along + 1)
    t = near * (far / near) ** np.linspace(0, 1, across + 1)
    flat = part.Majorants(*(np.zeros(1) for _ in range(4)))
    grid = np.stack(np.meshgrid(m, t), -1).reshape(-1, 2)
    at = [float(part.ratio_up(own, flat, g[:1], g[1:])[0]) for g in grid]
    values = np.log(np.maximum(at, 1e-300))
    middle = len(m) // 2
    slope = (values[middle] - values[middle - 1]) / (m[1] - m[0]) if high > low else 0.0
    spread = 2 * (values[-1] - values[-1 - len(m)]) / (t[-1] - t[-2]) if far > near else 0.0
    level = float((values - slope * grid[:, 0] - spread * grid[:, 1] / 2).max()) + 1e-9
    return part.Majorants(*(np.array([float(v)]) for v in (level, slope, spread, 0.0)))


def positive(checker: Checker) -> None:
    part = checker.deep.products
    for bad in ([[1, 2], [2, 1]], [[1, 1], [1, 1]], [[arb(1, 2), 0], [0, 1]]):
        never(part.is_positive(arb_mat(bad)), f"{bad} is positive")
    exact = 1 - 2.0**-53  # the least eigenvalue is 0 after what rounding may take
    never(part.is_positive(arb_mat([[1, exact], [exact, arb(1) - arb(2) ** -52]])), "rounded")


def expectations(checker: Checker) -> None:
    """E exp(½ s (Σ h - n h⁰)²) of neurons that are all tied, by sampling sums of a lattice."""
    part, gaussian = checker.deep.products, checker.deep.rectified.Gaussian
    for size, mean, cap, strength, center in (
        (1, 0.5, 3.0, 0.3, 0.7),
        (2, 0.5, 3.0, 0.2, 0.7),
        (50, -3.0, 1.01, (0.7 / 1.01) ** 2, 0.0),
        (8, 0.0, 3.0, 0.1, 0.4),
    ):
        zero = [arb(0)] * size
        tied = arb_mat([[strength] * size] * size)
        own = part.Exponent(zero, zero, np.full(size, center), tied)
        exact = _tied(size, mean, cap, strength, center)
        z = [gaussian(arb(mean), arb(1))] * size
        for curvature in (0.0, 0.5 / (size * strength), 3 / (size * strength)):
            for power in (1.0, size * (1 + 1e-6)):
                bent = np.full(size, curvature)
                found = float(part.expectation(z, np.full(size, cap), own, bent, power))
                never(found < exact * (1 - 1e-9), f"an expectation of {size}")


def conditions(checker: Checker) -> None:
    """√κ C √κ has two eigenvalues above 1, so that det(I - Cκ) > 0, C' has a positive diagonal, and
    p diag(C') - C' is positive."""
    part, gaussian = checker.deep.products, checker.deep.rectified.Gaussian
    inverse = np.linalg.inv(2 * np.ones((3, 3)) - np.eye(3)) + 2 * np.eye(3)
    zero = [arb(0)] * 3
    own = part.Exponent(zero, zero, np.zeros(3), arb_mat(np.linalg.inv(inverse).tolist()))
    z = [gaussian(arb(0), arb(1))] * 3
    found = part.expectation(z, np.full(3, 1.0), own, np.full(3, 2.0), 5.001)
    never(bool(found.is_finite()), "too much curvature")


def tails_of_nodes(checker: Checker) -> None:
    """E[exp(18 h²); h <= 10], z ~ N(-49.5, 1): nearly all of it beyond the last node, up to which
    log f is nearly 0."""
    part, gaussian = checker.deep.products, checker.deep.rectified.Gaussian
    own = part.Exponent([arb(0)], [arb(0)], np.zeros(1), arb_mat([[36.0]]))
    z = [gaussian(arb(-49.5), arb(1))]
    exact = mpmath.quad(lambda t: mpmath.exp(18 * t * t) * mpmath.npdf(t, -49.5, 1), [9, 9.9, 10])
    found = part.expectation(z, np.full(1, 10.0), own, np.zeros(1), 1.001)
    never_above(exact, mpmath.mpf(float(found)), "what is beyond the nodes")


def independent(checker: Checker) -> None:
    """E exp(½ s δ²) by neuron: C' has larger variances than C."""
    part, gaussian = checker.deep.products, checker.deep.rectified.Gaussian
    strengths, centers = (0.5, 0.25), (6.0, 5.0)
    zero = [arb(0)] * 2
    coupling = arb_mat([[strengths[0], 0], [0, strengths[1]]])
    own = part.Exponent(zero, zero, np.array(centers), coupling)
    z = [gaussian(arb(6), arb(1))] * 2
    found = part.expectation(z, np.full(2, 12.0), own, np.full(2, 0.5), 1.35)
    exact = mpmath.mpf(1)
    for s, c in zip(strengths, centers, strict=True):
        exact *= mpmath.quad(
            lambda t, s=s, c=c: mpmath.exp(s * (max(t, 0) - c) ** 2 / 2) * mpmath.npdf(t, 6, 1),
            [-6, 0, 3, 6, 9, 12],
        )
    never_above(exact, mpmath.mpf(float(found)), "neurons that nothing couples")


@cache
def _tied(size: int, mean: float, cap: float, strength: float, center: float) -> float:
    """From below: cells of h's law count as their nearer ends, seen from the centre of the sum."""
    grid = np.linspace(0, cap, 202)
    one = np.diff([float(mpmath.ncdf(x - mean)) for x in grid])
    one[0] += float(mpmath.ncdf(-mean))
    law = np.ones(1)
    for _ in range(size):
        law = np.convolve(law, one)
    low = np.arange(len(law)) * (cap / 201) - size * center
    high = low + size * cap / 201
    near = np.where(low > 0, low, np.where(high < 0, high, 0))
    return float((law * np.exp(strength * near**2 / 2)).sum())


# Of 1-1-1-1 networks at x = 1: means and deviations of W0, b0, W1, b1, W2, b2; caps; ends; ceiling.
LOUD, WIDE = (0, 1, 0, 0.1, 0, 0.1), (-0.2, 9, 0.005, 1)
NETWORKS = (
    ("β alone", (0, 0, 0, 0, 0, 1), (0, 1, 0, 0.1, 0, 1), 9, WIDE, None),
    ("a low cap", (0, 1, 1, 0, -1, 1), LOUD, 0.5, WIDE, None),
    ("a low end", (0, 1, 1, 0, -1, 1), LOUD, 9, (-0.2, 0.2, 0.005, 1), None),
    ("a high end", (0, 1, 1, 0, 1, -0.5), LOUD, 9, (1, 9, 0.005, 1), None),
    ("little noise", (0, 2, 0, 0, -1, 1), (0, 1, 1, 0.1, 0, 0.1), 9, (-0.2, 0.2, 0.005, 0.1), None),
    ("a ceiling", (0, 1, 1, 0, -1, 1), LOUD, 9, WIDE, 0.2),
    ("a noisy weight", (0, 1, 1, 0, 0, 1), (0, 1, 0, 0.1, 1, 0.1), 9, (-0.2, 5, 0.005, 0.1), None),
    ("a negative weight", (0, 0, 1, 0, -1, 1), LOUD, 9, WIDE, None),
    ("less noise", (0, 0, 0, 0.2, 1, -0.5), (0, 1, 0, 0.1, 0, 0.05), 9, (0, 3, 100, 101), None),
    ("a far ceiling", (0, 1, 1, 0, 0, 1), (0, 1, 0, 0.1, 1, 0.1), 9, (-0.2, 5, 0.005, 1), 12),
    ("a noisy bias", (0, 0, 0, 0, -1, 3), (0, 1, 0, 2, 0, 0.1), 9, (-0.2, 9, 3.9, 9), None),
)
TILTS = np.array([[40.0, 3.0, 40.0, 3.0]])
SCALES = (0.5, 1.0, 3.0, 6.0)


@cache
def _share(index: int) -> float:
    """P(M <= 0) less five standard errors."""
    _, mean, deviation, *_ = NETWORKS[index]
    generator = np.random.default_rng(index)
    w = np.array(mean) + np.array(deviation) * generator.normal(size=(SIZE, 6))
    h = np.maximum(w[:, 0] + w[:, 1], 0)
    m = w[:, 4] * np.maximum(w[:, 2] * h + w[:, 3], 0) + w[:, 5]
    p = float((m <= 0).mean())
    return p - 5 * (p * (1 - p) / SIZE) ** 0.5


def rows(checker: Checker) -> None:
    """Whole bounds: with ends and caps too narrow to be free, at several λ."""
    failing = _failure(checker, *NETWORKS[0][1:], 1.0, offset=-2.0)
    never(failing < 0.8, "an offset")  # of β ~ N(1, 1), which fails with probability Q(-1)
    for index, scale, level, tail in (
        (0, 6.0, -20.0, None),
        (5, 2.0, 0.5, -20.0),
        (8, 0.5, -0.35, None),
        (9, 6.0, 0.1, None),
    ):
        name, *given = NETWORKS[index]
        failing = _failure(checker, *given, scale, level=level, tail=tail)
        never(failing < _share(index), f"{name}, choices too low")
    for index, (name, mean, deviation, cap, ends, ceiling) in enumerate(NETWORKS):
        for scale in SCALES:
            failing = _failure(checker, mean, deviation, cap, ends, ceiling, scale)
            never(failing < _share(index), f"{name} at λ = {scale}")


def _failure(
    checker: Checker,
    mean: Any,
    deviation: Any,
    cap: float,
    ends: Any,
    ceiling: Any,
    scale: float,
    level: float | None = None,
    tail: float | None = None,
    offset: float = 0.0,
) -> float:
    part = checker.deep.rows
    fields = {"mean": np.array(mean, float), "std": np.array(deviation, float)}
    posterior = checker.model.Posterior("normal", fields)
    found = part.laws(network(checker), posterior, np.array([1.0]))
    square = scale**2 * deviation[4] ** 2
    least, bend = _least(ends, -scale * mean[4], square, ceiling)
    chosen = choices(checker, cap, ends, ceiling, scale, least if level is None else level, bend)
    if tail is not None:
        chosen = replace(chosen, tails=np.array([[tail, 0.0, 0.0]]))
    failing = part.deep_failure(found, np.array([[1.0]]), np.array([offset]), chosen)
    return float(failing)


def network(checker: Checker) -> Any:
    dense = [checker.weighted.Dense(1, 1, True, 2 * i, 2 * i) for i in range(3)]
    relu = [checker.layers.Activation("ReLU", None, 1, i) for i in (1, 3)]
    return chain(checker, (1,), (dense[0], relu[0], dense[1], relu[1], dense[2]))


def choices(
    checker: Checker,
    cap: float,
    ends: Any,
    ceiling: float | None,
    scale: float,
    level: float,
    bend: tuple[float, ...],
) -> Any:
    beyond = ceiling is not None and ceiling - ends[1] > 5 * ends[3] ** 0.5
    far = -7.0 if beyond else 0.01  # above log P(z > ζ)
    return checker.deep.rows.Deep(
        np.array([float(cap)]),
        np.array([ends], float),
        TILTS,
        np.array([], np.int64) if ceiling is None else np.array([0]),
        np.array([] if ceiling is None else [ceiling]),
        np.array([] if ceiling is None else [[far, 0.0, 0.0]]).reshape(-1, 3),
        np.array([scale]),
        np.array([[[level, *bend]]]),
        np.array([[0.8]]),
        np.array([[0.1]]),
        np.array([1.001]),
    )


@cache
def _least(
    ends: tuple[float, ...], b: float, c: float, ceiling: float | None
) -> tuple[float, tuple[float, ...]]:
    """A majorant: flat where the factor falls or the ends are near, else along its growth."""
    if ceiling is not None:
        b, c = b + c * ceiling / 2, 0.0
    low, high, near, far = ends
    narrow = high < 1 or c > 0 or ceiling is not None
    slope, spread = (0.0, 0.0) if narrow else (max(b, 0.0), max(b, 0.0) ** 2)
    top, z = 0.0, np.linspace(0, 60, 12001)
    for m in np.linspace(low, high, 25):
        for t in (near, far):
            root = (2 * np.pi * t) ** 0.5
            density = np.exp(np.minimum(b * z + c * z * z / 2 - (z - m) ** 2 / 2 / t, 500)) / root
            off = float(mpmath.ncdf(-m / t**0.5))
            value = float(np.log(density.sum() * (z[1] - z[0]) + off))
            top = max(top, value - slope * m - spread * t / 2)
    return top + 0.1, (slope, spread, 0.0)


# By the module that each is about.
DEEP = {
    "rectified": (moments,),
    "majorants": (exponentials, poles, ratios, rectangles),
    "products": (conditions, positive, tails_of_nodes, independent, expectations),
    "rows": (coefficients, rows),
}
