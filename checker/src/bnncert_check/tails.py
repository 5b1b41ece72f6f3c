"""Standard normal tails: one at a time in Arb, and many at once from a table of Arb's values with a
Taylor polynomial.

About a node c, with d = z - c and |d| <= 2^-11,

    Q(c + d) = Q(c) + rest
        - φ(c) d (1 - c d/2 + (c² - 1) d²/6 - (c³ - 3c) d³/24 + (c⁴ - 6c² + 3) d⁴/120).

For c <= 12 the rest is below 2^-53 Q, and so is each of a dozen roundings: 2^-48 is charged.

E|N(a, s²)| = |a| + s g(|a|/s) with g = 2 (φ - z Q), derivatives -2Q, 2φ, -2zφ and a fourth below
0.8: a cubic about the node is off by 0.8/24 · 2^-44 < 17u, its roundings by less than 10u; 32u are
charged.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import BITS, Array, down, up

NODES_PER_UNIT, LAST_NODE = 1024, 12
RELATIVE_ERROR = 2.0**-48  # of Q
ABSOLUTE_ERROR = 2.0**-48  # of g


def normal_tail(z: arb) -> arb:
    """Q(z) = P(Z > z)"""
    return (z / arb(2).sqrt()).erfc() / 2


def normal_tails_up(z: Array) -> Array:
    """Q(z) from above, z >= 0; beyond the last node by its value there."""
    return up(_tails(np.minimum(z, LAST_NODE)) * (1 + RELATIVE_ERROR))


def normal_tails_down(z: Array) -> Array:
    return np.where(
        z > LAST_NODE, 0.0, down(_tails(np.minimum(z, LAST_NODE)) * (1 - RELATIVE_ERROR))
    )


def expected_magnitude(a: Array, s: Array) -> Array:
    """E|N(a, s²)| from above, s > 0; g falls, so its value at the last node serves beyond it."""
    z = np.minimum(np.abs(a) / s, LAST_NODE)
    c, d, (g, tail, density) = _nearest(z)
    value = g + d * (-2 * tail + d * (density - d * c * density / 3))
    return up(np.abs(a) + up(s * (value + ABSOLUTE_ERROR)))


def _tails(z: Array) -> Array:
    c, d, (_, tail, density) = _nearest(z)
    square = c * c
    fourth = (square * (square - 6) + 3) * d / 120
    third = d * (c * (square - 3) / 24 - fourth)
    series = 1 - d * (c / 2 - d * ((square - 1) / 6 - third))
    return np.asarray(tail - density * d * series)


def _nearest(z: Array) -> tuple[Array, Array, Array]:
    """The nearest node c, z - c (exact), and g, Q and φ there."""
    nodes = np.rint(z * NODES_PER_UNIT)
    c = nodes / NODES_PER_UNIT
    return c, z - c, np.moveaxis(_table()[nodes.astype(np.int64)], -1, 0)


@cache
def _table() -> Array:
    with ctx.workprec(BITS):
        rows = []
        for k in range(LAST_NODE * NODES_PER_UNIT + 1):
            z = arb(k) / NODES_PER_UNIT
            tail, density = normal_tail(z), (-z * z / 2).exp() / (2 * arb.pi()).sqrt()
            rows.append([float(value) for value in (2 * (density - z * tail), tail, density)])
        return np.array(rows)
