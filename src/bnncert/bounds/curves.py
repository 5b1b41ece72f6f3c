"""Lines of curves: activations that are convex, concave or linear between a few turns.

The lower line of F on [l, u] that is closest at the middle m supports the largest convex function
below F. Where that is F itself it is the tangent at m; elsewhere a chord, or a tangent from an end.
Whatever its slope a, its intercept is the least of G(z) = F(z) - a z: at an end, at a turn, or
inside a convex part [p, q], where for every c

    G(z)  >=  G(c) + G'(c) (z - c)  >=  G(c) + min(G'(c) (p - c), G'(c) (q - c)).

So c, found by a search, needs no trust. Upper lines are lower ones of -f.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bnncert.bounds.lines import SLACK, Relaxation, hull_slope
from bnncert.model.box import Box
from bnncert.model.curves import Curve
from bnncert.numerics.rounding import TINY

HALVINGS, POSITIONS = 6, 12  # of a search
VANISHED = 2000.0  # an exponent below which an exponential is 0


@dataclass(frozen=True)
class Facing:
    """F = f or, upside down, -f."""

    curve: Curve
    sign: int

    def value(self, z: Tensor) -> Tensor:
        return self.sign * self.curve(z)

    def slope(self, z: Tensor) -> Tensor:
        return self.sign * self.curve.slope(z)

    def convex(self) -> Iterator[tuple[float, float]]:
        """The parts where F is convex, and not linear."""
        turns = self.curve.turns
        ends = pairwise((-math.inf, *turns.places, math.inf))
        return (part for part, bend in zip(ends, turns.bends, strict=True) if bend == self.sign)


def curved(curve: Curve, interval: Box) -> Relaxation:
    l, u = interval.lower, interval.upper
    slopes = []
    intercepts = []
    for sign in (1, -1):
        facing = Facing(curve, sign)
        slope = _lower_slope(facing, l, u)
        slopes.append(sign * slope)
        intercepts.append(sign * lower_intercept(facing, slope, l, u))
    return Relaxation(slopes[0], intercepts[0], slopes[1], intercepts[1])


def lower_intercept(facing: Facing, slope: Tensor, l: Tensor, u: Tensor) -> Tensor:
    """min over [l, u] of F(z) - slope z, rounded down."""
    steep = facing.curve.traits.steepest + slope.abs()
    least = torch.minimum(_above(facing, slope, l), _above(facing, slope, u))
    for place in facing.curve.turns.places:
        # A turn is known up to a rounding, within which F - slope z changes by little.
        turn = torch.full_like(l, place).clamp(l, u)
        near = SLACK * abs(place) * steep * ((l < place) & (place < u))
        least = torch.minimum(least, _above(facing, slope, turn) - near)
    for left, right in facing.convex():
        a = l.clamp_min(left)
        b = u.clamp_max(right)
        c = _critical(facing, slope, a, b)
        change = facing.slope(c) - slope
        drop = torch.minimum(change * (a - c), change * (b - c)) - SLACK * steep * (b - a)
        inside = _above(facing, slope, c) + drop
        least = torch.where(a < b, torch.minimum(least, inside), least)
    return least


def lost(curve: Curve, z: Tensor, value: Tensor) -> Tensor:
    """A bound of the rounding in f(z): where it is small by an exponential, that of the exponent
    counts."""
    exponent = (curve.turns.rate * z.clamp_max(0)) ** 2
    return SLACK * (1 + exponent.clamp_max(VANISHED)) * value.abs() + TINY


def _above(facing: Facing, slope: Tensor, z: Tensor) -> Tensor:
    """F(z) - slope z, rounded down."""
    value = facing.value(z)
    return value - slope * z - lost(facing.curve, z, value) - SLACK * (slope * z).abs()


def _critical(facing: Facing, slope: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Where the rising F' reaches the slope on [a, b], or the end that is nearest to it."""
    reach = facing.curve.turns.reach
    low = a.clamp(-reach, reach)
    high = b.clamp(-reach, reach)
    found = torch.where(facing.slope(a) >= slope, a, b)
    open_ = (a < b) & (facing.slope(a) < slope) & (facing.slope(b) > slope)
    if bool(open_.any()):
        wanted = slope[open_]
        found[open_] = _root(lambda z: facing.slope(z) - wanted, low[open_], high[open_])
    return found


def _lower_slope(facing: Facing, l: Tensor, u: Tensor) -> Tensor:
    """Of the line below F on [l, u] that is closest at the middle."""
    kinks = [torch.full_like(l, kink).clamp(l, u) for kink in facing.curve.traits.kinks]
    points = [l, *kinks, u]
    middle = l / 2 + u / 2
    slope = hull_slope(points, [facing.value(z) for z in points])
    slope = torch.where(l < u, slope, facing.slope(middle))
    for left, right in facing.convex():
        a = l.clamp_min(left)
        b = u.clamp_max(right)
        first = _touching(facing, a, b, l)
        last = _touching(facing, b, a, u)
        touched = middle.clamp(first, last.maximum(first))
        # Beyond an end of the part, f has a kink there, and the points know better.
        inside = ((touched > a) | (middle >= a)) & ((touched < b) | (middle <= b))
        valid = (a < b) & (first <= last) & inside
        slope = torch.where(valid, facing.slope(touched), slope)
    bounds = (facing.sign * end for end in facing.curve.traits.slopes)
    return slope.clamp(*sorted(bounds))


def _touching(facing: Facing, near: Tensor, far: Tensor, end: Tensor) -> Tensor:
    """The point of a convex part from `near` to `far`, nearest to the end of the interval that lies
    beyond `near`, at which the tangent passes below F at the end; infinitely far where none
    does."""

    def under(t: Tensor, z: Tensor) -> Tensor:
        """How far the tangent at t is below F at z."""
        return facing.value(z) - facing.value(t) - facing.slope(t) * (z - t)

    none = torch.where(far >= near, torch.inf, -torch.inf).to(near)
    reached = (near == end) | (under(near, end) >= 0)
    found = torch.where(reached, near, none)
    between = ~reached & (under(far, end) >= 0)
    if bool(between.any()):
        reach = facing.curve.turns.reach
        start, stop = (z[between].clamp(-reach, reach) for z in (near, far))
        given = end[between]
        found[between] = _root(lambda t: under(t, given), start, stop)
    return found


def _root(rising: Callable[[Tensor], Tensor], start: Tensor, stop: Tensor) -> Tensor:
    """Where something that is negative at `start` and not at `stop` is 0: halvings, then false
    positions (Illinois)."""
    for _ in range(HALVINGS):
        middle = start / 2 + stop / 2
        found = rising(middle) >= 0
        stop = torch.where(found, middle, stop)
        start = torch.where(found, start, middle)
    low = rising(start)
    high = rising(stop)
    found = torch.zeros_like(stop, dtype=torch.bool)
    for step in range(POSITIONS):
        z = (start * high - stop * low) / (high - low)
        z = torch.where(z.isfinite(), z, stop)
        value = rising(z)
        above = value >= 0
        again = above == found if step else torch.zeros_like(above)
        low = torch.where(above, torch.where(again, low / 2, low), value)
        high = torch.where(above, value, torch.where(again, high / 2, high))
        stop = torch.where(above, z, stop)
        start = torch.where(above, start, z)
        found = above
    return z
