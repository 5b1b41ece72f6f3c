"""Waves e^{2πiθ} of many numbers at once, from a table of Arb's values, and the nodes of Gauss and
Legendre.

e^{2πi(k/4096 + d)} = e^{2πik/4096} e^{iα}, α = 2πd, |α| <= 2π/8192: what is left out of cos α and
sin α is below 2^-58, and a dozen roundings of 2^-53 are below 2^-49 together.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import BITS, Array

TURN = 4096  # waves of the table
WAVE = 2.0**-48  # error of cos and of sin
NODES = 16  # of a panel


def waves(turns: Array) -> tuple[Array, Array]:
    """cos 2πθ and sin 2πθ, with an error of at most WAVE."""
    rest = turns - np.rint(turns)
    steps = np.rint(rest * TURN)
    angle = (rest - steps / TURN) * (2 * math.pi)
    cosine, sine = _table()[:, steps.astype(np.int64) & (TURN - 1)]
    square = angle * angle
    along, across = 1 - square / 2 * (1 - square / 12), angle * (1 - square / 6)
    return cosine * along - sine * across, sine * along + cosine * across


@cache
def _table() -> Array:
    with ctx.workprec(BITS):
        angles = [2 * arb.pi() * k / TURN for k in range(TURN)]
        return np.array([[float(f(x)) for x in angles] for f in (arb.cos, arb.sin)])


@cache
def legendre() -> tuple[Array, Array]:
    """Places in [-1, 1] and weights, each off by one rounding."""
    with ctx.workprec(BITS):
        found = [arb.legendre_p_root(NODES, k, weight=True) for k in range(NODES)]
        places, weights = (np.array([float(x) for x in own]) for own in zip(*found, strict=True))
        return places, weights
