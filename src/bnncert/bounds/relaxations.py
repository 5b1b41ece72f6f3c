"""Relaxations: an activation between two lines on an interval, and its range over one.

Any slope gives a sound line once its intercept is the extreme of f(z) - slope z over the interval; the extreme is at
an end, at the kink of a (leaky) ReLU, or where f' equals the slope. So slopes may be chosen freely, rounded or
optimised, and only the intercepts carry the soundness.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from bnncert.box import Box
from bnncert.layers import Activation, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.rounding import TINY, UNIT

SLACK = 32 * UNIT  # tanh and exp of any vendor, the products around them, and the critical point itself


@dataclass(frozen=True, eq=False)
class Relaxation:
    """lower_slope z + lower_intercept <= f(z) <= upper_slope z + upper_intercept for z in the interval."""

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor

    def __getitem__(self, index: Tensor | slice) -> Relaxation:
        return Relaxation(*(getattr(self, field.name)[index] for field in fields(self)))


def relax(activation: Activation, interval: Box) -> Relaxation:
    """Lines for the activation on `interval`, with the default slopes; for what is not known there are none."""
    match activation:
        case ReLU():
            return _piecewise_linear(0.0, interval)
        case LeakyReLU(slope=slope):
            return _piecewise_linear(slope, interval)
        case Tanh():
            return _tanh(interval)
        case Sigmoid():
            # sigmoid(z) = (1 + tanh(z / 2)) / 2: lines for tanh on half the interval, halved and lifted
            half = _tanh(Box(interval.lower / 2, interval.upper / 2))
            return Relaxation(
                half.lower_slope / 4,
                half.lower_intercept / 2 + (0.5 - SLACK),
                half.upper_slope / 4,
                half.upper_intercept / 2 + (0.5 + SLACK),
            )
    raise TypeError(f"{activation!r} has no lines")


def image(activation: Activation, interval: Box) -> Box:
    """The activation's range over `interval`; those that are known to be nondecreasing have one."""
    if type(activation) not in (ReLU, LeakyReLU, Tanh, Sigmoid):
        raise TypeError(f"{activation!r} is not known to be nondecreasing")
    lower, upper = activation(interval.lower), activation(interval.upper)
    if isinstance(activation, ReLU):
        return Box(lower, upper)
    slack = SLACK * torch.maximum(lower.abs(), upper.abs()) + TINY
    return Box(lower - slack, upper + slack)


def _piecewise_linear(slope: float, interval: Box) -> Relaxation:
    """max(z, slope z): the chord above; below, the line through 0 with slope 1 if u > -l, else `slope`."""
    l, u = interval.lower, interval.upper
    active, passive = l >= 0, u <= 0
    steep = active | (~passive & (u > -l))
    lower = torch.where(steep, torch.ones_like(l), slope)
    # The chord's slope, written so that neither end's difference cancels: f(u) - f(l) = u - slope l.
    chord = ((u - slope * l) / (u - l)).clamp(slope, 1.0)
    upper = torch.where(active, 1.0, torch.where(passive, slope, chord))
    ends = torch.maximum(slope * l - upper * l, u - upper * u).clamp_min(0)
    lift = torch.where(active | passive, 0.0, ends * (1 + 8 * UNIT) + 4 * UNIT * interval.magnitude + TINY)
    return Relaxation(lower, torch.zeros_like(l), upper, lift)


def _tanh(interval: Box) -> Relaxation:
    """tanh is odd, so the upper line on [l, u] is the lower line on [-u, -l] turned around."""
    l, u = interval.lower, interval.upper
    below, above = _tanh_lower_slope(l, u), _tanh_lower_slope(-u, -l)
    return Relaxation(below, tanh_intercept(below, l, u), above, -tanh_intercept(above, -u, -l))


def tanh_intercept(slope: Tensor, l: Tensor, u: Tensor) -> Tensor:
    """min over [l, u] of tanh(z) - slope z, rounded down: at an end or where 1 - tanh² = slope."""
    # atanh(sqrt(1 - slope)), written so that tiny slopes keep their digits
    critical = torch.log1p((1 - slope).clamp_min(0).sqrt()) - slope.log() / 2
    candidates = torch.stack([l, u, critical.clamp(l, u), (-critical).clamp(l, u)])
    value = candidates.tanh()
    slack = SLACK * (value.abs() + (slope * candidates).abs()) + TINY
    return (value - slope * candidates - slack).amin(0)


def _tanh_lower_slope(l: Tensor, u: Tensor) -> Tensor:
    """The chord where it stays below tanh; else the tangent at the midpoint (convex part) or the one through (u, f(u)).

    Only tightness rests on this choice.
    """
    width = u - l
    chord = torch.where(width > 1e-6, (u.tanh() - l.tanh()) / width.clamp_min(1e-6), _tanh_slope(u))
    middle = _tanh_slope(l + width / 2)
    touching = _tanh_slope(_tangent_point(l, u))
    tangent = torch.where(u <= 0, middle, touching)
    return torch.where((l >= 0) | (chord <= _tanh_slope(l)), chord, tangent).clamp(0, 1)


def _tangent_point(l: Tensor, u: Tensor) -> Tensor:
    """By bisection, d in [l, 0] such that the tangent at d passes below (u, tanh u)."""
    left, right = l.clamp_max(0), torch.zeros_like(l)
    for _ in range(40):
        d = (left + right) / 2
        below = d.tanh() + _tanh_slope(d) * (u - d) <= u.tanh()
        left, right = torch.where(below, d, left), torch.where(below, right, d)
    return left


def _tanh_slope(z: Tensor) -> Tensor:
    """tanh'(z) = 1 / cosh²(z)"""
    return z.clamp(-300, 300).cosh() ** -2
