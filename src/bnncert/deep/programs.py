"""Many small linear programs at once, by the dual simplex method."""

from __future__ import annotations

import numpy as np

from bnncert.deep.moments import Array

LARGEST = 1e4  # of a variable
STEPS = 80
TOLERANCE = 1e-9


def solve(rows: Array, least: Array, cost: Array, floors: Array) -> Array:
    """argmin cost·y subject to rows y >= least and y >= floors, [n, d] for rows [n, g, d].

    It starts where every variable is at the end of [-LARGEST, LARGEST] that is cheapest, and makes
    the most violated row tight until none is. After STEPS it stops as it is: what is made of y must
    not rest on it.
    """
    count, given, size = rows.shape
    ends = np.concatenate([np.eye(size), -np.eye(size)])
    bounds = np.concatenate([np.maximum(floors, -LARGEST), np.full(size, -LARGEST)])
    rows = np.concatenate([rows, np.broadcast_to(ends, (count, 2 * size, size))], 1)
    least = np.concatenate([least, np.broadcast_to(bounds, (count, 2 * size))], 1)
    tight = given + np.where(cost >= 0, 0, size) + np.arange(size)
    each = np.arange(count)
    for _ in range(STEPS):
        basis = rows[each[:, None], tight]
        y: Array = np.linalg.solve(basis, least[each[:, None], tight][..., None])[..., 0]
        slack = (rows @ y[..., None])[..., 0] - least
        entering = slack.argmin(1)
        broken = slack[each, entering] < -TOLERANCE * (1 + np.abs(least[each, entering]))
        if not broken.any():
            break
        turned = np.swapaxes(basis, 1, 2)
        weights = np.maximum(np.linalg.solve(turned, cost[..., None])[..., 0], 0)
        along = np.linalg.solve(turned, rows[each, entering][..., None])[..., 0]
        usable = along > 1e-11
        ratio = np.where(usable, weights / np.where(usable, along, 1), np.inf)
        moved = broken & usable.any(1)
        tight[moved, ratio.argmin(1)[moved]] = entering[moved]
    return y
