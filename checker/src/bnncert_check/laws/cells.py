"""Cells of standard normal variables: masses from above, and the conditional means' places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from bnncert_check.arithmetic import Array, up, upper_float
from bnncert_check.laws.exponentials import DENSITY, density, signed_tails_up
from bnncert_check.tails import normal_tail, normal_tails_down

REACH = 6.5  # standard deviations that cells cover; what lies beyond is charged
FLAT = 3.0  # variance of the normal law whose quantiles are the edges


@dataclass(frozen=True)
class Cells:
    """edges [..., K + 1]; of each cell's equal parts masses from above [..., K, P], the place of
    the conditional mean, 0 to 1 through the cell, and how far that may be off."""

    edges: Array
    mass: Array
    place: Array
    off: Array

    def part(self, index: Any) -> Cells:
        """Of some of the variables."""
        return Cells(self.edges[index], self.mass[index], self.place[index], self.off[index])

    @property
    def corners(self) -> Array:
        """Masses from above [..., K, 2] of a cell's ends, each point of it spread to them with its
        own mean; what lies beyond all cells is moved to their ends."""
        near = (1 - self.place + self.off).clip(0, 1) * self.mass
        far = (self.place + self.off).clip(0, 1) * self.mass
        found = np.stack([near.sum(-1), far.sum(-1)], -1) * (1 + 2.0**-44)
        found[..., 0, 0] += outside()
        found[..., -1, 1] += outside()
        return found

    @property
    def excess(self) -> Array:
        """By how much the corners' masses may be above the true ones, summed, [...]."""
        return np.asarray((2 * self.mass * self.off).sum((-1, -2)) + 2.0**-40)


def outside() -> float:
    """P(Z > REACH), from above."""
    return upper_float(normal_tail(arb(REACH)))


def base_edges(count: int) -> Array:
    """K + 1 edges from -REACH to REACH: quantiles of N(0, 3), as nearly as bisection finds them.
    Any edges serve."""
    width = float(np.sqrt(FLAT))
    tail = float(signed_tails_up(np.array(REACH / width)))
    levels = np.linspace(1 - tail, tail, count + 1)[1:-1]
    low, high = np.full(count - 1, -REACH), np.full(count - 1, REACH)
    for _ in range(60):
        middle = (low + high) / 2
        above = signed_tails_up(middle / width) > levels
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.concatenate([[-REACH], (low + high) / 2, [REACH]])


def with_edge(edges: Array, at: Array) -> Array:
    """The edges [K + 1], or [..., K + 1], with the nearest inner one moved to `at` [...], where
    that is inside."""
    moved = np.broadcast_to(edges, (*at.shape, edges.shape[-1])).copy()
    nearest = np.abs(moved[..., 1:-1] - np.where(np.isfinite(at), at, 0.0)[..., None]).argmin(-1)
    index = nearest[..., None] + 1
    kept = np.take_along_axis(moved, index, -1)
    inside = (np.abs(at) < REACH)[..., None]
    np.put_along_axis(moved, index, np.where(inside, at[..., None], kept), -1)
    return moved


def with_edges(edges: Array, at: Array) -> Array:
    """The edges [K + 1] and more [n, M], those that are outside at the ends, [n, K + M + 1]."""
    own = np.broadcast_to(edges, (len(at), len(edges)))
    return np.sort(np.concatenate([own, np.clip(at, -REACH, REACH)], -1), -1)


def cells(edges: Array, parts: int) -> Cells:
    cuts = np.arange(parts + 1) / parts
    left, width = edges[..., :-1, None], (edges[..., 1:] - edges[..., :-1])[..., None]
    fine = left + width * cuts
    fine[..., -1] = edges[..., 1:]  # parts meet, and so do cells
    a, b = fine[..., :-1], fine[..., 1:]
    flipped = a + b < 0
    near, far = np.where(flipped, -b, a), np.where(flipped, -a, b)
    mass = np.maximum(up(signed_tails_up(near) - normal_tails_down(far)), 0.0)
    at_a, at_b = density(a), density(b)
    mean = (at_a - at_b) / mass
    wide = np.where(width > 0, width, 1.0)  # of no width, all points are one
    place = np.nan_to_num((mean - left) / wide)
    # The densities, and the mass that divides them, are off by so much.
    most = 4 * DENSITY * (np.maximum(at_a, at_b) + (np.abs(mean) + 1) * signed_tails_up(near))
    off = np.nan_to_num(most / (mass * wide), nan=1.0, posinf=1.0) + 2.0**-46 / wide
    return Cells(edges, mass, place.clip(cuts[:-1], cuts[1:]), np.minimum(off, 1 / parts))
