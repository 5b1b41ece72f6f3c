"""Relaxations: an activation between two lines on an interval, and its range over one.

Any slope gives a sound line once its intercept is the extreme of f(z) - slope z over the interval;
the extreme is at an end, at a kink, or where f' equals the slope. So slopes may be chosen freely,
rounded or optimised, and only the intercepts carry the soundness. The default slopes are those of
CROWN (Zhang et al. 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from bnncert.model.activations import ACTIVATIONS, Activation, Smooth
from bnncert.model.box import Box
from bnncert.numerics.rounding import TINY, UNIT

# tanh and exp of any vendor, the products around them, and the critical point itself
SLACK = 32 * UNIT


@dataclass(frozen=True, eq=False)
class Relaxation:
    """lower_slope z + lower_intercept <= f(z) <= upper_slope z + upper_intercept."""

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor

    def __getitem__(self, index: Tensor | slice) -> Relaxation:
        return Relaxation(*(getattr(self, field.name)[index] for field in fields(self)))


def relax(activation: Activation, interval: Box) -> Relaxation:
    """Lines for the activation on `interval`, with the default slopes.

    For what is not known there are none.
    """
    if type(activation) not in ACTIVATIONS:
        raise TypeError(f"{activation!r} is not known")
    if activation.traits.bent:
        return _bent(activation.traits.slopes[0], interval)
    if isinstance(activation, Smooth):
        return _smooth(activation, interval)
    raise TypeError(f"{activation!r} has no lines")


def image(activation: Activation, interval: Box) -> Box:
    """The activation's range over `interval`, from its ends: f rises."""
    if type(activation) not in ACTIVATIONS:
        raise TypeError(f"{activation!r} is not known")
    traits = activation.traits
    if traits.slopes[0] < 0:
        raise TypeError(f"{activation!r} is not rising")
    lower = activation(interval.lower)
    upper = activation(interval.upper)
    if traits.flat_below:  # ends are exact
        return Box(lower, upper)
    slack = SLACK * torch.maximum(lower.abs(), upper.abs()) + TINY
    return Box(lower - slack, upper + slack)


def _bent(slope: float, interval: Box) -> Relaxation:
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
    chord = ((u - slope * l) / (u - l)).clamp(slope, 1.0)
    upper = torch.where(active, 1.0, torch.where(passive, slope, chord))
    ends = torch.maximum(slope * l - upper * l, u - upper * u).clamp_min(0)
    raised = ends * (1 + 8 * UNIT) + 4 * UNIT * interval.magnitude + TINY
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
