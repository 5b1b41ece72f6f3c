"""Certain vectors as functions of the input, and what noise behind them makes of it.

    h(x)  within  J x + b ± e        for all x of the region's box,

from rows ±e_j that were walked back to the input. Coefficients A Δ of a random layer, a Gaussian
with covariance V V', then have on input p the standard deviation τ_p = |V J_p|, and |V h(x)| is at
most what it is in the middle of the box and Σ_p r_p τ_p + Σ_j e_j s_j, s_j = |V_j|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bnncert_check.arithmetic import (
    UNIT,
    Array,
    dot_down,
    dot_up,
    down,
    floor_of_errors,
    gamma,
    sqrt_up,
    sum_error,
    up,
)
from bnncert_check.linear import Interval, center_radius
from bnncert_check.region import Region
from bnncert_check.weighted import Dense, pull_error

LARGEST = 2**21  # entries of J: wider vectors are taken by their intervals alone

Line: TypeAlias = tuple[Array, Array]  # J [n, inputs] and b [n]


@dataclass(frozen=True)
class Affine:
    """J [n, inputs], the middle of the region [inputs] and its radius, and where h is there: at
    `middle` ± `slack` [n], which holds e and every rounding."""

    matrix: Array
    radius: Array
    middle: Array
    slack: Array

    def reach(self, rows: Array) -> Array:
        """Σ_p r_p |(rows·J)_p| + Σ_j e_j |rows_j| [R] from above."""
        size = np.abs(rows)
        moved = up(np.abs(rows @ self.matrix) + self._error(size))
        return up(dot_up(moved, self.radius) + dot_up(size, self.slack))

    def most(self, sizes: Array) -> Array:
        """At most that [R] for any rows of these sizes."""
        spread = up(dot_up(np.abs(self.matrix), self.radius) + self.slack)
        return dot_up(sizes, spread)

    def on_input(self, sizes: Array) -> Array:
        """sizes·|J| [R, inputs] from above."""
        return up(sizes @ np.abs(self.matrix) + self._error(sizes))

    def _error(self, size: Array) -> Array:
        """Of rows of these sizes times J."""
        return sum_error(len(self.matrix), size @ np.abs(self.matrix))


def affine_form(region: Region, below: Line, above: Line) -> Affine:
    """From lines below h, and others below -h: halfway between them, and as far off as they are
    apart."""
    low, high = below[0], -above[0]
    matrix, offset = low / 2 + high / 2, below[1] / 2 - above[1] / 2
    largest = np.maximum(np.abs(region.lower), np.abs(region.upper))
    rounded = [dot_up(up(UNIT * np.abs(gap)), largest) for gap in (low - matrix, matrix - high)]
    under = up(up(offset - below[1]) - down(region.minimum(low - matrix) - rounded[0]))
    over = up(up(-above[1] - offset) - down(region.minimum(matrix - high) - rounded[1]))
    error = np.maximum(np.maximum(under, over), 0.0)
    center, radius = center_radius(Interval(region.lower, region.upper))
    middle = matrix @ center + offset
    size = up(np.abs(matrix) @ np.abs(center) + np.abs(offset))
    slack = up(error + sum_error(len(center) + 1, size))
    return Affine(matrix, radius, middle, slack)


@dataclass(frozen=True)
class Met:
    """What noise makes of a layer's coefficients [R, ...], from above: the standard deviations of
    each [n + 1], and on the input [inputs]; of shared noise the slopes in the middle [k], the most
    that roundings and the box add to each [k], the most that both add to all of them together, and
    the most that those change along themselves."""

    std: Array
    tau: Array
    center: Array
    gap: Array
    radius: Array
    reach: Array
    along: Array


def meet_input(
    layer: Dense, factors: Array | None, form: Affine, h: Interval, rows: Array, variances: Array
) -> Met:
    """Row by row; variances [R, n + 1] of independent noise."""
    found = [
        _meet(layer, factors, form, h, rows[r : r + 1], variances[r : r + 1])
        for r in range(len(rows))
    ]
    return Met(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def _meet(
    layer: Dense, factors: Array | None, form: Affine, h: Interval, row: Array, variances: Array
) -> tuple[Array, ...]:
    columns = up(form.matrix * form.matrix)
    own = variances[:, :-1]
    squared = up(own @ columns + sum_error(len(columns), own @ columns))
    none = np.zeros((1, 0 if factors is None else len(factors)))
    if factors is None:
        zero = np.zeros(1)
        return sqrt_up(variances), sqrt_up(squared), none, none, none, zero, zero
    slopes = np.concatenate([layer.pull(factor, row) for factor in factors])  # [k, n + 1]
    size = np.abs(row)
    errors = np.concatenate([pull_error(layer, np.abs(factor), size) for factor in factors])
    sizes = up(np.abs(slopes) + errors)
    shared = dot_up(sizes.T, sizes.T)[None]
    std, own_std = sqrt_up(up(variances + shared)), sqrt_up(shared)[:, :-1]
    off = sqrt_up(dot_up(errors.T, errors.T))[None, :-1]  # of the slopes, in length

    # Three sums, one in another: magnitudes are below (s |J|)², and underflow meets J twice.
    terms = 3 * (len(slopes) + 2 * len(columns))
    turned = (slopes[:, :-1].T @ slopes[:, :-1]) @ form.matrix
    largest = up(1.0 + form.on_input(np.ones((1, len(columns)))))
    paid = up(gamma(terms) * up(form.on_input(own_std) ** 2))
    paid = up(paid + up(4 * floor_of_errors(terms) * up(largest * largest)))
    quadratic = np.maximum((turned * form.matrix).sum(0)[None], 0.0)
    tau = up(sqrt_up(up(squared + up(quadratic + paid))) + form.on_input(off))

    middle = np.append(form.middle, 1.0)
    spread = np.append(np.maximum(up(h.upper - form.middle), up(form.middle - h.lower)), 0.0)
    spread = np.maximum(spread, 0.0)
    low, high = dot_down(slopes, middle)[None], dot_up(slopes, middle)[None]
    largest = np.append(np.maximum(h.magnitude, np.abs(form.middle)), 1.0)
    gap = up(up(high - low) + dot_up(errors, largest)[None])
    radius = dot_up(sizes, spread)[None]
    shift = up(dot_up(tau, form.radius) + dot_up(own_std, form.slack))
    reach = np.minimum(dot_up(own_std, spread[:-1]), shift)

    weights = low @ slopes[:, :-1]
    length = sqrt_up(dot_up(low, low))[:, None]
    # Of the sum over q by Cauchy-Schwarz, and of the slopes in it.
    changed = up(up(up(gamma(len(slopes)) * own_std) + off) * length)
    changed = up(changed + floor_of_errors(len(slopes)))
    by_box = dot_up(up(np.abs(weights) + changed), spread[:-1])
    along = np.minimum(by_box, up(form.reach(weights) + form.most(changed)))
    return std, tau, low, gap, radius, reach, along
