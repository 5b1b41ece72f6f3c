"""Relaxations: an activation between two lines on an interval, and its range over one.

Any slope gives a sound line once its intercept is the extreme of f(z) - slope z over the interval;
the extreme is at an end, at a kink, or where f' equals the slope. So slopes may be chosen freely,
rounded or optimised, and only the intercepts carry the soundness. The default slopes are those of
CROWN (Zhang et al. 2018), and in general those of the lines that are closest at the middle of the
interval, which leave the smallest area.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from bnncert.bounds.curves import Facing, curved, lost, lower_intercept
from bnncert.bounds.lines import SLACK, Relaxation, hull_slope
from bnncert.model.activations import (
    SMOOTH,
    Activation,
    Bent,
    Hardtanh,
    Kinked,
    LeakyReLU,
    PReLU,
    ReLU,
    Smooth,
)
from bnncert.model.box import Box
from bnncert.model.curves import CURVES, Curve
from bnncert.model.layers import rule_for
from bnncert.numerics.rounding import TINY, UNIT

__all__ = [
    "Relaxation",
    "image",
    "lowest",
    "outer_slopes",
    "relax",
    "slope_below",
    "smooth_intercept",
    "turned",
]


def relax(activation: Activation, interval: Box) -> Relaxation:
    """Lines for the activation on `interval` [..., *shape], with the default slopes.

    For what is not known there are none.
    """
    return rule_for(LINES, activation)(activation, interval)


def image(activation: Activation, interval: Box) -> Box:
    """The activation's range over `interval`: from its ends, and from where it is least if it falls
    before."""
    rule_for(LINES, activation)
    traits = activation.traits
    lower = activation(interval.lower)
    upper = activation(interval.upper)
    if traits.flat_below or isinstance(activation, Hardtanh):  # ends are exact
        return Box(lower, upper)
    if isinstance(activation, Curve):
        ends = zip((interval.lower, interval.upper), (lower, upper), strict=True)
        slack = torch.maximum(*(lost(activation, z, value) for z, value in ends))
    else:
        slack = SLACK * torch.maximum(lower.abs(), upper.abs()) + TINY
    if traits.valley is None:
        return Box(lower - slack, upper + slack)
    place, least = traits.valley
    inside = (interval.lower <= place) & (place <= interval.upper)
    low = torch.minimum(lower, upper) - slack
    high = torch.maximum(lower, upper) + slack
    return Box(torch.where(inside, low.clamp_max(least), low), high)


def lowest(activation: Activation, sign: int, slope: Tensor, interval: Box) -> Tensor:
    """min over the interval [..., *shape] of sign f(z) - slope z, rounded down."""
    if isinstance(activation, SMOOTH):
        if sign > 0:
            return smooth_intercept(activation, slope, interval.lower, interval.upper)
        turned_around = smooth_intercept(activation, -slope, -interval.upper, -interval.lower)
        twice = 2 * activation(torch.zeros_like(slope))
        return turned_around - twice * (1 + 4 * UNIT)
    if isinstance(activation, CURVES):
        return lower_intercept(Facing(activation, sign), slope, interval.lower, interval.upper)
    return kinked_intercept(activation, sign, slope, interval)


def slope_below(activation: Bent | PReLU, like: Tensor) -> Tensor:
    """The slopes below 0 of a (leaky) ReLU, as many as entries of `like` [..., *shape]: -f(-1)."""
    return -activation(-torch.ones_like(like))


def outer_slopes(activation: Activation, like: Tensor) -> list[Tensor]:
    """The slopes before the first of the kinks that branching splits at and behind the second, as
    many as entries of `like` [..., *shape]."""
    found = []
    for kink, way in zip(activation.traits.splits, (-1.0, 1.0), strict=False):
        at = torch.full_like(like, kink)
        found.append((activation(at + way) - activation(at)) * way)
    return found


def turned(
    activation: Activation, lines: Relaxation, interval: Box, slopes: Sequence[Tensor]
) -> Relaxation:
    """The lines on [B, n] with other slopes: at the first kink the lower one turns, at the second
    the upper one."""
    if activation.traits.bent:  # about 0
        return replace(lines, lower_slope=slopes[0])
    below, above = slopes
    lower = kinked_intercept(activation, 1, below, interval)
    upper = -kinked_intercept(activation, -1, -above, interval)
    return Relaxation(below, lower, above, upper)


def _parametric(activation: PReLU, interval: Box) -> Relaxation:
    if activation.traits.bent:
        return _bent(slope_below(activation, interval.lower), interval)
    return _kinked(activation, interval)


def _rectified(activation: Bent, interval: Box) -> Relaxation:
    return _bent(slope_below(activation, interval.lower), interval)


def _kinked(activation: Kinked, interval: Box) -> Relaxation:
    """For f that is linear between its kinks: edges of the hulls of its points, and f itself where
    it has no kink inside."""
    l, u = interval.lower, interval.upper
    kinks = activation.traits.kinks
    points = [l, *(torch.full_like(l, kink).clamp(l, u) for kink in kinks), u]
    values = [activation(z) for z in points]
    steepest = activation.traits.slopes  # which a chord may leave by a rounding
    below = hull_slope(points, values).clamp(*steepest)
    above = (-hull_slope(points, [-value for value in values])).clamp(*steepest)
    lower = kinked_intercept(activation, 1, below, interval)
    upper = -kinked_intercept(activation, -1, -above, interval)
    for left, right, slope in _pieces(activation, l):
        within = (left <= l) & (u <= right)
        lift = values[0] - slope * l
        below = torch.where(within, slope, below)
        above = torch.where(within, slope, above)
        lower = torch.where(within, lift, lower)
        upper = torch.where(within, lift, upper)
    return Relaxation(below, lower, above, upper)


def kinked_intercept(activation: Activation, sign: int, slope: Tensor, interval: Box) -> Tensor:
    """min over the interval of sign f(z) - slope z, rounded down: at an end or a kink."""
    l, u = interval.lower, interval.upper
    kinks = (torch.full_like(l, kink).clamp(l, u) for kink in activation.traits.kinks)
    least = torch.full_like(l, torch.inf)
    for z in (l, *kinks, u):
        value = sign * activation(z)
        moved = slope * z
        least = torch.minimum(least, value - moved - 4 * UNIT * (value.abs() + moved.abs()))
    return least - TINY


def _pieces(activation: Kinked, like: Tensor) -> Iterator[tuple[float, float, Tensor]]:
    """The ends of each linear piece, and its slope."""
    if isinstance(activation, PReLU):
        slopes = [slope_below(activation, like), torch.ones_like(like)]
    else:
        slopes = [torch.full_like(like, slope) for slope in (0.0, 1.0, 0.0)]
    ends = pairwise((-torch.inf, *activation.traits.kinks, torch.inf))
    return ((*end, slope) for end, slope in zip(ends, slopes, strict=True))


def _bent(slope: Tensor, interval: Box) -> Relaxation:
    """max(z, slope z): above it the chord, below it a line through 0.

    The line's slope is 1 if u > -l, else `slope`: the one with the smaller area (DeepPoly, Singh et
    al. 2019).
    """
    l, u = interval.lower, interval.upper
    active = l >= 0
    passive = u <= 0
    steep = active | (~passive & (u > -l))
    lower = torch.where(steep, torch.ones_like(l), slope)
    # The chord's slope, written so that neither end's difference cancels: f(u) - f(l) = u - slope
    # l.
    chord = ((u - slope * l) / (u - l)).maximum(slope).clamp_max(1.0)
    upper = torch.where(active, 1.0, torch.where(passive, slope, chord))
    ends = torch.maximum(slope * l - upper * l, u - upper * u).clamp_min(0)
    size = slope.abs().clamp_min(1) * interval.magnitude
    raised = ends * (1 + 8 * UNIT) + 4 * UNIT * size + TINY
    lift = torch.where(active | passive, 0.0, raised)
    return Relaxation(lower, torch.zeros_like(l), upper, lift)


def _smooth(activation: Smooth, interval: Box) -> Relaxation:
    """For f that is convex below 0, concave above, and turned around (0, f(0)) itself again.

    With f(-z) = 2 f(0) - f(z), the upper line on [l, u] is the lower one on [-u, -l], turned
    around.
    """
    l, u = interval.lower, interval.upper
    below = _lower_slope(activation, l, u)
    above = _lower_slope(activation, -u, -l)
    twice = 2 * activation(torch.zeros_like(l))
    lower = smooth_intercept(activation, below, l, u)
    upper = twice * (1 + 4 * UNIT) - smooth_intercept(activation, above, -u, -l)
    return Relaxation(below, lower, above, upper)


def smooth_intercept(activation: Smooth, slope: Tensor, l: Tensor, u: Tensor) -> Tensor:
    """min over [l, u] of f(z) - slope z, rounded down: at an end or where f' = slope."""
    critical = activation.touching(slope)
    candidates = torch.stack([l, u, critical.clamp(l, u), (-critical).clamp(l, u)])
    value = activation(candidates)
    slack = SLACK * (value.abs() + (slope * candidates).abs()) + TINY
    return (value - slope * candidates - slack).amin(0)


def _lower_slope(activation: Smooth, l: Tensor, u: Tensor) -> Tensor:
    """The chord where it stays below f, else a tangent.

    That is the tangent at the midpoint (convex part) or the one through (u, f(u)). Only tightness
    rests on this choice.
    """
    width = u - l
    rise = activation(u) - activation(l)
    chord = torch.where(width > 1e-6, rise / width.clamp_min(1e-6), activation.slope(u))
    middle = activation.slope(l + width / 2)
    touching = activation.slope(_tangent_point(activation, l, u))
    tangent = torch.where(u <= 0, middle, touching)
    chosen = torch.where((l >= 0) | (chord <= activation.slope(l)), chord, tangent)
    return chosen.clamp(*activation.traits.slopes)


def _tangent_point(activation: Smooth, l: Tensor, u: Tensor) -> Tensor:
    """By bisection, d in [l, 0] such that the tangent at d passes below (u, f(u))."""
    left = l.clamp_max(0)
    right = torch.zeros_like(l)
    for _ in range(40):
        d = (left + right) / 2
        below = activation(d) + activation.slope(d) * (u - d) <= activation(u)
        left = torch.where(below, d, left)
        right = torch.where(below, right, d)
    return left


LINES: dict[type, Callable[[Any, Box], Relaxation]] = {
    ReLU: _rectified,
    LeakyReLU: _rectified,
    PReLU: _parametric,
    Hardtanh: _kinked,
    **dict.fromkeys(SMOOTH, _smooth),
    **dict.fromkeys(CURVES, curved),
}
