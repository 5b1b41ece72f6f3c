"""Zonotopes through layers without noise: a node is center + Σ_p g_p δ_p ± error, |δ_p| <= 1.

The symbols δ_p are one for each coordinate of the input, x_p = c_p + r_p δ_p, and one for each of
the neurons whose activation is off its line by most; what other activations are off by is part of
the error, and so is every rounding. Intervals of what activations read are given from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bnncert_check.activations import lines
from bnncert_check.arithmetic import ETA, UNIT, Array, down, floor_of_errors, sum_error, up
from bnncert_check.layers import Activation, Layer
from bnncert_check.linear import Interval, MaxStep, center_radius
from bnncert_check.weighted import Conv, Dense, Linear, Scale, meet_error, meet_up
from bnncert_check.wiring import Add, MaxPool, Move, Wiring

MOST_OPEN = 512  # neurons of a layer that get a symbol of their own


@dataclass(frozen=True)
class Zonotope:
    """center [n], directions [D, n] and error [n]; symbols without a direction came later."""

    center: Array
    directions: Array
    error: Array

    @cached_property
    def reach(self) -> Array:
        """Σ_p |g_p| from above."""
        total = np.abs(self.directions).sum(0)
        return up(total + sum_error(len(self.directions), total))

    @property
    def interval(self) -> Interval:
        radius = up(self.reach + self.error)
        return Interval(down(self.center - radius), up(self.center + radius))


@dataclass(frozen=True)
class Reading:
    """What a layer reads: zonotopes, the interval of the first of them, the slopes of its lines
    where it is an activation, and how many symbols there are so far."""

    zonotopes: list[Zonotope]
    interval: Interval | None
    slopes: Array | None
    symbols: int


def input_zonotope(h: Interval) -> Zonotope:
    center, radius = center_radius(h)
    return Zonotope(center, np.diag(radius), np.zeros_like(center))


def image_zonotope(layer: Layer, matrix: Array | None, reading: Reading) -> Zonotope:
    """What a layer, with its matrix if it is linear, makes of what it reads."""
    return IMAGES[type(layer)](layer, matrix, reading)


def _linear(layer: Linear, matrix: Array, reading: Reading) -> Zonotope:
    (h,) = reading.zonotopes
    size = np.abs(matrix)
    center = layer.meet(matrix, h.center)
    rounded = meet_error(layer, size, np.abs(h.center))
    # Of all directions together: their sizes sum up to the reach.
    turned = meet_error(layer, size, h.reach, 0.0)
    floor = len(h.directions) * floor_of_errors(len(matrix))
    error = up(up(meet_up(layer, size, h.error, 0.0) + rounded) + up(turned + floor))
    return Zonotope(center, layer.meets(matrix, h.directions), error)


def _wired(layer: Wiring, _: None, reading: Reading) -> Zonotope:
    """Moves are exact, sums are rounded."""
    terms = reading.zonotopes
    count = max(len(h.directions) for h in terms)
    parts = [_padded(h.directions, count) for h in terms]
    center = layer.join([h.center for h in terms], _as_it_is)
    directions = layer.join_all(parts)
    error = layer.join([h.error for h in terms], up)
    if isinstance(layer, Add):
        size = layer.join([up(np.abs(h.center) + h.reach) for h in terms], up)
        floor = (count + 1) * floor_of_errors(len(terms))
        error = up(error + up(sum_error(len(terms), size) + floor))
    return Zonotope(center, directions, error)


def _as_it_is(value: Array) -> Array:
    return value


def _activation(layer: Activation, _: None, reading: Reading) -> Zonotope:
    """f(z) in slope z + [low, high] on the interval."""
    (h,), z, slope = reading.zonotopes, reading.interval, reading.slopes
    assert z is not None
    assert slope is not None
    on = lines(layer, z.lower, z.upper, slope, slope)
    middle = on.lower / 2 + on.upper / 2
    off = np.maximum(up(on.upper - middle), up(middle - on.lower))
    center = slope * h.center + middle
    size = up(up(np.abs(slope) * up(np.abs(h.center) + h.reach)) + np.abs(middle))
    rounded = up(4 * UNIT * size + (len(h.directions) + 4) * ETA)
    error = up(up(np.abs(slope) * h.error) + rounded)
    directions = _padded(slope * h.directions, reading.symbols)
    return _with_symbols(Zonotope(center, directions, error), np.maximum(off, 0.0))


def _with_symbols(zonotope: Zonotope, off: Array) -> Zonotope:
    """What neurons are off by, as directions of their own for those that are off by most."""
    most = np.argsort(-off, kind="stable")[:MOST_OPEN]
    most = most[off[most] > 0]
    own = np.zeros((len(most), len(off)))
    own[np.arange(len(most)), most] = off[most]
    left = off.copy()
    left[most] = 0.0
    directions = np.concatenate([zonotope.directions, own])
    return Zonotope(zonotope.center, directions, up(zonotope.error + left))


def _padded(directions: Array, symbols: int) -> Array:
    """With directions of 0 for later symbols."""
    return np.pad(directions, ((0, symbols - len(directions)), (0, 0)))


def _maximum(layer: MaxPool, _: None, reading: Reading) -> Zonotope:
    """The entry that no other can exceed, else the interval."""
    (h,), z = reading.zonotopes, reading.interval
    assert z is not None
    chosen, alone = MaxStep(layer, z).followed()
    whole = Interval(layer.maximum(z.lower), layer.maximum(z.upper))
    middle, radius = center_radius(whole)
    return Zonotope(
        np.where(alone, h.center[chosen], middle),
        h.directions[:, chosen] * alone,
        np.where(alone, h.error[chosen], radius),
    )


IMAGES: dict[type[Layer], Callable[[Any, Any, Reading], Zonotope]] = {
    **dict.fromkeys((Dense, Conv, Scale), _linear),
    **dict.fromkeys((Add, Move), _wired),
    Activation: _activation,
    MaxPool: _maximum,
}
