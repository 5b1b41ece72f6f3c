"""Curves: activations that are convex, concave or linear between a few turns, with values and
slopes in Arb.

Between turns, f bends one way only:

    GELU        f'' = φ(z) (2 - z²)
    GELU, tanh  with h = c (z + κz³), f'' has the sign of (1 + 6κz²) / (1 + 3κz²)² - c z tanh h,
                of which the first falls and the second rises with |z|
    SiLU        f'' has the sign of 2 - z tanh(z/2), which falls with |z|
    Mish        with w = exp(z), f'' has the sign of q + z p, q = 2w³ + 6w² + 8w + 4 > 0 and
                p = -2w³ - 3w² + 2w + 2; q/p rises wherever it is finite, so that f'' changes its
                sign once where p > 0 > z, once where p < 0 < z, and nowhere else
    Softplus    convex; Softsign: convex below 0, concave above
    ELU, SELU   an exponential below 0, linear above; HardSwish: a square in the middle

All are the functions in real arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from flint import arb

from bnncert_check.arithmetic import Array

Exact: TypeAlias = Callable[[arb], arb]
Near: TypeAlias = Callable[[Array], Array]
Turn: TypeAlias = tuple[float, float]
NARROW = 2.0**-48  # relative width of an interval that a turn is known to lie in


@dataclass(frozen=True, eq=False)
class Curve:
    """f and f' surely, and nearly, as floats, for slopes and points that need no trust.

    Where f has a kink, f' is that of the side that is curved. turns: intervals in which f turns
    from one of the bends to the next (1 convex, -1 concave, 0 linear). slopes: the least and the
    steepest. largest: of |f|. growth: (a, b) with |f(z)| <= a |z| + b. valley: where f is least, if
    it falls before and rises after, else None.
    """

    value: Exact
    slope: Exact
    near_value: Near
    near_slope: Near
    turns: tuple[Turn, ...]
    bends: tuple[int, ...]
    slopes: tuple[float, float] = (0.0, 1.0)
    kinks: tuple[float, ...] = ()
    growth: tuple[float, float] = (1.0, 0.0)
    largest: float = math.inf
    valley: Turn | None = None
    reach: float = 48.0  # beyond which slopes are at their limits, nearly

    @property
    def steepest(self) -> float:
        return max(map(abs, self.slopes))

    def convex(self, sign: int) -> Iterator[tuple[float, float]]:
        """The parts where sign f is convex, and not linear."""
        ends = pairwise(((-math.inf, -math.inf), *self.turns, (math.inf, math.inf)))
        parts = zip(ends, self.bends, strict=True)
        return ((left[1], right[0]) for (left, right), bend in parts if bend == sign)


def _around(place: float) -> Turn:
    gap = NARROW * abs(place)
    return place - gap, place + gap


def _share(y: arb) -> arb:
    """1 / (1 + exp(-y)), written so that nothing overflows."""
    if y < 0:
        power = y.exp()
        return power / (1 + power)
    return 1 / (1 + (-y).exp())


def _near_share(y: Array) -> Array:
    small = np.exp(-np.abs(y))
    return np.asarray(np.where(y < 0, small, 1.0) / (1 + small))


_erfc: np.ufunc = np.frompyfunc(math.erfc, 1, 1)


def _near_normal(z: Array) -> Array:
    return np.asarray(_erfc(-z / math.sqrt(2)), np.float64) / 2


def _gelu_value(z: arb) -> arb:
    return z * (-z / arb(2).sqrt()).erfc() / 2


def _gelu_slope(z: arb) -> arb:
    density = (-z * z / 2).exp() / (2 * arb.pi()).sqrt()
    return (-z / arb(2).sqrt()).erfc() / 2 + z * density


def _near_gelu_slope(z: Array) -> Array:
    z = np.clip(z, -1e6, 1e6)
    return _near_normal(z) + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


GELU = Curve(
    _gelu_value,
    _gelu_slope,
    lambda z: z * _near_normal(z),
    _near_gelu_slope,
    (_around(-math.sqrt(2)), _around(math.sqrt(2))),
    (-1, 1, -1),
    slopes=(-0.13, 1.13),
    valley=_around(-0.7517915246935645),
    reach=10.0,
)


def _cubic(z: arb) -> tuple[arb, arb]:
    """2 c (z + κz³) and its slope, c = √(2/π), κ = 0.044715."""
    twice, square = 2 * (2 / arb.pi()).sqrt(), arb(44715) / 10**6 * z * z
    return twice * z * (1 + square), twice * (1 + 3 * square)


def _near_cubic(z: Array) -> tuple[Array, Array]:
    twice, square = 2 * math.sqrt(2 / math.pi), 0.044715 * z * z
    return twice * z * (1 + square), twice * (1 + 3 * square)


def _tanh_gelu_slope(z: arb) -> arb:
    y, rise = _cubic(z)
    return _share(y) + z * _share(y) * _share(-y) * rise


def _near_tanh_gelu_slope(z: Array) -> Array:
    z = np.clip(z, -1e6, 1e6)
    y, rise = _near_cubic(z)
    return _near_share(y) + z * _near_share(y) * _near_share(-y) * rise


TANH_GELU = Curve(
    lambda z: z * _share(_cubic(z)[0]),
    _tanh_gelu_slope,
    lambda z: z * _near_share(_near_cubic(z)[0]),
    _near_tanh_gelu_slope,
    (_around(-1.4185040087908284), _around(1.4185040087908284)),
    (-1, 1, -1),
    slopes=(-0.13, 1.13),
    valley=_around(-0.7524614220710163),
    reach=10.0,
)


def _near_silu_slope(z: Array) -> Array:
    share = _near_share(z)
    return share + z * share * _near_share(-z)


SILU = Curve(
    lambda z: z * _share(z),
    lambda z: _share(z) + z * _share(z) * _share(-z),
    lambda z: z * _near_share(z),
    _near_silu_slope,
    (_around(-2.3993572805154676), _around(2.3993572805154676)),
    (-1, 1, -1),
    slopes=(-0.1, 1.1),
    valley=_around(-1.2784645427610738),
)


def _mish_share(z: arb) -> arb:
    """tanh(log(1 + w)) = w (w + 2) / (w (w + 2) + 2), w = exp(z), or the same by 1 / w."""
    if z < 0:
        w = z.exp()
        return w * (w + 2) / (w * (w + 2) + 2)
    v = (-z).exp()
    return (1 + 2 * v) / (1 + 2 * v + 2 * v * v)


def _mish_slope(z: arb) -> arb:
    """The share's slope is 4 w (1 + w) / (w² + 2w + 2)²."""
    if z < 0:
        w = z.exp()
        return _mish_share(z) + 4 * z * w * (1 + w) / (w * w + 2 * w + 2) ** 2
    v = (-z).exp()
    return _mish_share(z) + 4 * z * v * v * (1 + v) / (1 + 2 * v + 2 * v * v) ** 2


def _near_mish_share(z: Array) -> Array:
    small = np.exp(-np.abs(z))
    below = small * (small + 2) / (small * (small + 2) + 2)
    above = (1 + 2 * small) / (1 + 2 * small + 2 * small**2)
    return np.asarray(np.where(z < 0, below, above))


def _near_mish_slope(z: Array) -> Array:
    small = np.exp(-np.abs(z))
    below = small * (1 + small) / (small**2 + 2 * small + 2) ** 2
    above = small**2 * (1 + small) / (1 + 2 * small + 2 * small**2) ** 2
    return np.asarray(_near_mish_share(z) + 4 * z * np.where(z < 0, below, above))


MISH = Curve(
    lambda z: z * _mish_share(z),
    _mish_slope,
    lambda z: z * _near_mish_share(z),
    _near_mish_slope,
    (_around(-2.256376396360793), _around(1.4905711794854284)),
    (-1, 1, -1),
    slopes=(-0.12, 1.09),
    valley=_around(-1.1924312145154952),
)


def softplus(beta: float) -> Curve:
    """log(1 + exp(βz)) / β"""

    def value(z: arb) -> arb:
        y = beta * z
        return (y if y > 0 else arb(0)) / beta + (-abs(y)).exp().log1p() / beta

    def near_value(z: Array) -> Array:
        return np.maximum(z, 0.0) + np.log1p(np.exp(-beta * np.abs(z))) / beta

    return Curve(
        value,
        lambda z: _share(beta * z),
        near_value,
        lambda z: _near_share(beta * z),
        (),
        (1,),
        growth=(1.0, math.nextafter(math.log(2) / beta, math.inf)),
        reach=48 / beta,
    )


def exponential(scale: float, alpha: float) -> Curve:
    """scale z for z >= 0, scale alpha (exp(z) - 1) below, both positive"""
    near = scale * alpha
    steepest = math.nextafter(max(scale, near), math.inf)

    def below() -> arb:
        return arb(scale) * arb(alpha)

    def near_value(z: Array) -> Array:
        return np.where(z > 0, scale * z, near * np.expm1(np.minimum(z, 0.0)))

    def near_slope(z: Array) -> Array:
        return np.where(z > 0, scale, near * np.exp(np.minimum(z, 0.0)))

    return Curve(
        lambda z: scale * z if z > 0 else below() * z.expm1(),
        lambda z: arb(scale) if z > 0 else below() * z.exp(),
        near_value,
        near_slope,
        ((0.0, 0.0),),
        (1, 0),
        slopes=(0.0, steepest),
        kinks=(0.0,),
        growth=(steepest, 0.0),
    )


# With the scale and alpha of Klambauer et al. (2017), as the floats that they are everywhere.
SELU = exponential(1.0507009873554804934193349852946, 1.6732632423543772848170429916717)


def _hard_swish_value(z: arb) -> arb:
    if -3 <= z <= 3:
        return z * (z + 3) / 6
    return z if z > 3 else arb(0)


def _hard_swish_slope(z: arb) -> arb:
    if -3 <= z <= 3:
        return (2 * z + 3) / 6
    return arb(1) if z > 3 else arb(0)


HARD_SWISH = Curve(
    _hard_swish_value,
    _hard_swish_slope,
    lambda z: z * (np.clip(z + 3, 0, 6) / 6),
    lambda z: np.where(z < -3, 0.0, np.where(z > 3, 1.0, (2 * z + 3) / 6)),
    ((-3.0, -3.0), (3.0, 3.0)),
    (0, 1, 0),
    slopes=(-0.5, 1.5),
    kinks=(-3.0, 3.0),
    valley=(-1.5, -1.5),
)

SOFTSIGN = Curve(
    lambda z: z / (1 + abs(z)),
    lambda z: 1 / (1 + abs(z)) ** 2,
    lambda z: z / (1 + np.abs(z)),
    lambda z: (1 + np.abs(z)) ** -2.0,
    ((0.0, 0.0),),
    (1, -1),
    largest=1.0,
    reach=1e9,
)
