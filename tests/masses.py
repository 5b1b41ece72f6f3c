"""The mass of boxes at 60 digits or more, and one representative of each family.

The oracle is written with mpmath from the definitions and shares nothing with the code under test.
"""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from mpmath import mpf
from scipy import stats

from bnncert.model.box import Box
from bnncert.posteriors.independent import (
    UP,
    Independent,
    Laplace,
    Normal,
    StudentT,
    TruncatedNormal,
    Uniform,
)
from scenarios import vector

INF = math.inf
KINDS = {kind.family: kind for kind in (Normal, Uniform, TruncatedNormal, Laplace, StudentT)}


def interval(lower: float, upper: float) -> Box:
    return Box(vector(lower), vector(upper))


# ---- the oracle: interval masses at 60 digits or more --------------------------------------------


def symmetric_log(tail: mpmath.mpf, a: mpf, b: mpf) -> mpf:
    """log P(a <= Z <= b) for a symmetric law with P(Z > z) = tail(z), z >= 0."""
    if a > 0 or b < 0:
        return mpmath.log(tail(max(a, -b)) - tail(max(b, -a)))
    return mpmath.log1p(-tail(-a) - tail(b))


def normal_tail(z: mpf) -> mpf:
    """Q(z); beyond 10⁴, where even its exponent is a large number, 0."""
    return mpmath.erfc(z / mpmath.sqrt(2)) / 2 if z < 10_000 else mpf(0)


def laplace_tail(z: mpf) -> mpf:
    return mpmath.exp(-z) / 2 if z < 10_000 else mpf(0)


def student_tail(z: mpf, df: mpf) -> mpf:
    """P(T > z), through the regularised incomplete beta function at whichever argument is below
    1/2."""
    half = mpf(1) / 2
    if mpmath.isinf(z):
        return mpf(0)
    if z * z > df:
        return mpmath.betainc(df / 2, half, 0, df / (df + z * z), regularized=True) / 2
    return half - mpmath.betainc(half, df / 2, 0, z * z / (df + z * z), regularized=True) / 2


def exact_interval_log(posterior: Independent, weight: int, lower: float, upper: float) -> mpf:
    """log P(lower <= w <= upper) of one weight, with the stored floats taken as exact."""
    parameters = {name: mpf(float(value[weight])) for name, value in posterior.tensors().items()}
    l, u = mpf(lower), mpf(upper)
    match posterior:
        case Normal():
            return _scaled(normal_tail, l, u, parameters["mean"], parameters["std"])
        case Laplace():
            return _scaled(laplace_tail, l, u, parameters["loc"], parameters["scale"])
        case StudentT():
            df = parameters["df"]
            return _scaled(
                lambda z: student_tail(z, df), l, u, parameters["loc"], parameters["scale"]
            )
        case Uniform():
            low, high = parameters["low"], parameters["high"]
            if low == high:
                return mpf(0) if l <= low <= u else -mpmath.inf
            return mpmath.log(max(min(u, high) - max(l, low), 0) / (high - low))
        case TruncatedNormal():
            mean, std, low, high = parameters.values()
            if std == 0 or max(l, low) > min(u, high):
                return (
                    _scaled(normal_tail, max(l, low), min(u, high), mean, std)
                    if std == 0
                    else -mpmath.inf
                )
            part = _scaled(normal_tail, max(l, low), min(u, high), mean, std)
            return part - _scaled(normal_tail, low, high, mean, std)
    raise NotImplementedError(posterior.family)


def _scaled(tail: mpmath.mpf, l: mpf, u: mpf, center: mpf, scale: mpf) -> mpf:
    if scale == 0:
        return mpf(0) if l <= center <= u else -mpmath.inf
    return symmetric_log(tail, (l - center) / scale, (u - center) / scale)


def exact_log(posterior: Independent, box: Box, digits: int = 60) -> mpf:
    """log P(w in box), weight by weight."""
    ends = zip(box.lower.tolist(), box.upper.tolist(), strict=True)
    with mpmath.workdps(digits):
        return mpmath.fsum(exact_interval_log(posterior, i, l, u) for i, (l, u) in enumerate(ends))


def assert_bracketed(posterior: Independent, box: Box, exact: mpf) -> None:
    """DOWN is at most the exact log mass and UP at least, without tolerance."""
    down, up = mpf(float(posterior.log_mass(box))), mpf(float(posterior.log_mass(box, UP)))
    assert down <= exact, (
        f"rounded down, but above by {mpmath.nstr(down - exact, 3)}: {posterior} {box}"
    )
    assert exact <= up, f"rounded up, but below by {mpmath.nstr(exact - up, 3)}: {posterior} {box}"


# ---- one representative of each family -----------------------------------------------------------


def make(family: str, size: int) -> Independent:
    """A posterior of `size` equal weights, away from any special position."""
    parameters = {
        "normal": (0.3, 0.07),
        "uniform": (-0.4, 0.9),
        "truncated-normal": (0.3, 0.7, -0.2, 1.9),
        "laplace": (-1.5, 0.2),
        "student-t": (0.8, 0.5, 9.0),
    }[family]
    return KINDS[family](*(torch.full((size,), value, dtype=torch.float64) for value in parameters))


REFERENCE = {
    "normal": stats.norm(0.3, 0.07),
    "uniform": stats.uniform(-0.4, 1.3),
    "truncated-normal": stats.truncnorm((-0.2 - 0.3) / 0.7, (1.9 - 0.3) / 0.7, loc=0.3, scale=0.7),
    "laplace": stats.laplace(-1.5, 0.2),
    "student-t": stats.t(9.0, loc=0.8, scale=0.5),
}
every_family = pytest.mark.parametrize("family", list(KINDS))


DETERMINISTIC = [
    Normal(vector(1.25, 0.0), vector(0.0, 1.0)),
    Uniform(vector(1.25, 0.0), vector(1.25, 1.0)),
    TruncatedNormal(vector(1.25, 0.0), vector(0.0, 1.0), vector(0.0, -1.0), vector(2.0, 1.0)),
    Laplace(vector(1.25, 0.0), vector(0.0, 1.0)),
    StudentT(vector(1.25, 0.0), vector(0.0, 1.0), vector(3.0, 3.0)),
]
deterministic = pytest.mark.parametrize(
    "posterior", DETERMINISTIC, ids=lambda posterior: posterior.family
)

SHAPES = {
    "symmetric": (-1.0, 1.0),
    "lopsided": (-0.3, 1.0),
    "right": (1.0, 1.7),
    "left": (-1.7, -1.0),
    "narrow": (1.0, 1.0 + 1e-9),
    "one ulp": (1.0, 1.0 + 2**-52),
    "from the centre": (0.0, 1.0),
    "right tail": (1.0, INF),
    "left tail": (-INF, -1.0),
    "all but the right tail": (-INF, 1.0),
    "all but the left tail": (-1.0, INF),
}
every_shape = pytest.mark.parametrize("shape", list(SHAPES))


def shaped(center: float, scale: float, z: float, shape: str) -> Box:
    return interval(*(center + scale * z * end for end in SHAPES[shape]))
