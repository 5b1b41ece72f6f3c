"""Zonotopes through layers without noise: a node is center + Σ_p g_p δ_p ± error, |δ_p| <= 1.

The symbols δ_p are one for each coordinate of the input, x_p = c_p + r_p δ_p, and one for each of
the neurons whose activation is off its line by most; what other activations are off by is part of
the error, and so is every rounding. Intervals of what activations read are given from outside.
Directions are made in parts, so that hardly more is held than they take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnncert_check.activations import lines
from bnncert_check.arithmetic import ETA, UNIT, Array, down, floor_of_errors, sum_error, up
from bnncert_check.layers import Activation, Layer
from bnncert_check.linear import Interval, MaxStep, center_radius
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Conv, Dense, Linear, Scale, meet_error, meet_up
from bnncert_check.wiring import Add, MaxPool, Move, Wiring

MOST_OPEN = 512  # neurons of a layer that get a symbol of their own
MOST_HELD = 2**26  # numbers of all nodes' directions: 512 MiB
AT_ONCE = 2**20  # numbers that are worked on


@dataclass(frozen=True)
class Zonotope:
    """center [n], directions [D, n] and error [n]; symbols without a direction came later."""

    center: Array
    directions: Array
    error: Array

    @cached_property
    def reach(self) -> Array:
        """Σ_p |g_p| from above."""
        total = np.zeros_like(self.center)
        for part in _parts(len(self.directions), len(total)):
            total += np.abs(self.directions[part]).sum(0)
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


def require_room(held: list[Zonotope], symbols: int, width: int) -> None:
    """Refuse one more zonotope beside those that are held."""
    needed = sum(zonotope.directions.size for zonotope in held) + symbols * width
    if needed > MOST_HELD:
        raise CannotCheck(
            "too-large", f"zonotopes of {symbols} symbols would take {needed >> 17} MiB"
        )


def new_symbols(layer: Layer) -> int:
    """The most that come up with a layer."""
    return min(layer.outputs, MOST_OPEN) if isinstance(layer, Activation) else 0


def input_zonotope(h: Interval) -> Zonotope:
    center, radius = center_radius(h)
    require_room([], len(radius), len(radius))
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
    directions = np.empty((len(h.directions), layer.outputs))
    for part in _parts(len(directions), len(h.center) + layer.outputs):
        directions[part] = layer.meets(matrix, h.directions[part])
    return Zonotope(center, directions, error)


def _wired(layer: Wiring, _: None, reading: Reading) -> Zonotope:
    """Moves are exact, sums are rounded."""
    terms = reading.zonotopes
    count = max(len(h.directions) for h in terms)
    center = layer.join([h.center for h in terms], _as_it_is)
    directions = np.empty((count, layer.outputs))
    for part in _parts(count, len(terms) * layer.outputs):
        directions[part] = layer.join_all([_within(h.directions, part) for h in terms])
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
    off = np.maximum(np.maximum(up(on.upper - middle), up(middle - on.lower)), 0.0)
    center = slope * h.center + middle
    size = up(up(np.abs(slope) * up(np.abs(h.center) + h.reach)) + np.abs(middle))
    rounded = up(4 * UNIT * size + (len(h.directions) + 4) * ETA)
    error = up(up(np.abs(slope) * h.error) + rounded)
    most = _symbols(off)
    directions = np.zeros((reading.symbols + len(most), len(off)))
    np.multiply(slope, h.directions, out=directions[: len(h.directions)])
    directions[reading.symbols + np.arange(len(most)), most] = off[most]
    off[most] = 0.0
    return Zonotope(center, directions, up(error + off))


def _symbols(off: Array) -> NDArray[np.int64]:
    """The neurons that are off by most. Those that are by the same, but for rounding, are taken in
    order, as the prover does."""
    most = np.argsort(-off.astype(np.float32), kind="stable")[:MOST_OPEN]
    return most[off[most] > 0]


def _parts(count: int, width: int) -> Iterator[slice]:
    """So many rows of so many numbers, a few at a time."""
    step = max(1, AT_ONCE // width)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _within(directions: Array, part: slice) -> Array:
    """Of some symbols, 0 where there are none."""
    own = directions[part]
    return np.pad(own, ((0, part.stop - part.start - len(own)), (0, 0)))


def _maximum(layer: MaxPool, _: None, reading: Reading) -> Zonotope:
    """The entry that no other can exceed, else the interval."""
    (h,), z = reading.zonotopes, reading.interval
    assert z is not None
    chosen, alone = MaxStep(layer, z).followed()
    whole = Interval(layer.maximum(z.lower), layer.maximum(z.upper))
    middle, radius = center_radius(whole)
    directions = h.directions[:, chosen]
    directions *= alone
    return Zonotope(
        np.where(alone, h.center[chosen], middle),
        directions,
        np.where(alone, h.error[chosen], radius),
    )


IMAGES: dict[type[Layer], Callable[[Any, Any, Reading], Zonotope]] = {
    **dict.fromkeys((Dense, Conv, Scale), _linear),
    **dict.fromkeys((Add, Move), _wired),
    Activation: _activation,
    MaxPool: _maximum,
}
