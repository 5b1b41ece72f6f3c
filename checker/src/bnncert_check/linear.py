"""Linear bounds over a box of weights: rows walked from the output back to the input, every
rounding charged.

A row A of z = Wh, W in Wc ± Wr, is bounded by A Wc h - |A| Wr |h|, and |h| by its chord κh + δ over
the box of h: the best linear bound there is, and A⁺ Wl + A⁻ Wu where h >= 0. Rows that meet on a
node add up. A walk may stop after any layer, since all nodes lie in boxes: the best stop is taken.
Narrower hidden intervals may choose worse lines, so two ways to get them are tried: stops at the
last layer and at the input only, which is never worse than interval arithmetic, and stops
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnncert_check.activations import Lines, default_slopes, image, lines
from bnncert_check.arithmetic import ETA, UNIT, Array, dot_down, dot_up, down, sum_error, up
from bnncert_check.layers import Activation, Layer
from bnncert_check.mass import WeightBox
from bnncert_check.model import Model
from bnncert_check.network import Network
from bnncert_check.region import Region
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Conv, Dense, Linear, Scale, fixed_or, pull_error, pull_up
from bnncert_check.wiring import SUMS, MaxPool, Move, Sum, Wiring

NEARLY = 2.0**-30  # relative to a window
AT_ONCE = 2**22  # numbers of all rows that are walked together: 32 MiB an array


@dataclass(frozen=True)
class Interval:
    """[lower, upper] of a layer's input, flat."""

    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lower) & np.isfinite(self.upper)).all():
            raise CannotCheck(
                "not-finite", "an interval of the network is not finite; rescale the network"
            )

    @property
    def magnitude(self) -> Array:
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    def minimum(self, rows: Array) -> Array:
        """min over the box of rows·h, from below."""
        return dot_down(rows, np.where(rows > 0, self.lower, self.upper))


@dataclass(frozen=True)
class BoxStep:
    """A linear layer with weights in [lower, upper] and input h, both with the constant 1 at the
    end."""

    layer: Linear
    lower: Array
    upper: Array
    h: Interval

    def pull(self, rows: Array) -> tuple[Array, Array]:
        """rows·z >= new rows·h + constant."""
        layer, magnitude, h = self.layer, np.abs(rows), with_one(self.h)
        center = self.lower / 2 + self.upper / 2
        radius = up(np.maximum(up(self.upper - center), up(center - self.lower)))
        slope, lift = _chord_of_magnitude(h)
        spread = layer.pull(radius, magnitude)
        pulled = layer.pull(center, rows) - spread * slope
        error = pull_error(layer, up(np.abs(center) + radius), magnitude)
        paid = up(dot_up(error, h.magnitude) + dot_up(pull_up(layer, radius, magnitude), lift))
        return pulled[:, :-1], down(pulled[:, -1] - paid)


@dataclass(frozen=True)
class ActivationStep:
    """rows·f(z) >= A⁺ (lower line) + A⁻ (upper line); z is the interval that the lines are for."""

    lines: Lines
    h: Interval

    def pull(self, rows: Array) -> tuple[Array, Array]:
        positive = rows > 0
        pulled = rows * np.where(positive, self.lines.lower_slope, self.lines.upper_slope)
        constant = dot_down(rows, np.where(positive, self.lines.lower, self.lines.upper))
        rounding = up(UNIT * np.abs(pulled) + ETA)
        return pulled, down(constant - dot_up(rounding, self.h.magnitude))


@dataclass(frozen=True)
class MaxStep:
    """rows·max(h) >= A⁺ h[chosen] + A⁻ (h[chosen] where no other entry can be larger, else the
    largest upper end).

    Chosen is, of the entries whose lower end is nearly the largest, that with the largest upper
    end; any would do.
    """

    layer: MaxPool
    h: Interval

    def followed(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Of every window the chosen entry, and whether no other can be larger."""
        lower, upper = (self.layer.gather(end, -np.inf) for end in (self.h.lower, self.h.upper))
        size = self.layer.gather(self.h.magnitude, 0.0).max(-1)
        least = lower.max(-1) - NEARLY * size
        best = np.where(lower >= least[:, None], upper, -np.inf).argmax(-1)[:, None]
        others = upper.copy()
        np.put_along_axis(others, best, -np.inf, -1)
        alone = np.take_along_axis(lower, best, -1)[:, 0] >= others.max(-1)
        numbers = np.arange(len(self.h.lower), dtype=np.float64)
        places = self.layer.gather(numbers, 0.0).astype(np.int64)
        return np.take_along_axis(places, best, -1)[:, 0], alone

    def pull(self, rows: Array) -> tuple[Array, Array]:
        chosen, alone = self.followed()
        ceiling = self.layer.maximum(self.h.upper)
        followed = np.where(alone | (rows > 0), rows, 0.0)
        pulled = np.zeros((len(rows), len(self.h.lower)))
        magnitude = np.zeros_like(pulled)
        np.add.at(pulled.T, chosen, followed.T)
        np.add.at(magnitude.T, chosen, np.abs(followed).T)
        error = dot_up(sum_error(math.prod(self.layer.kernel), magnitude), self.h.magnitude)
        return pulled, down(dot_down(rows - followed, ceiling) - error)


@dataclass(frozen=True)
class WiringStep:
    """A (h + h') = A h + A h' and the like: what the rows are on each node, the layer says."""

    layer: Wiring

    def pull(self, rows: Array) -> tuple[Array, Array]:
        return rows, np.zeros(len(rows))


Step = BoxStep | ActivationStep | MaxStep | WiringStep


@dataclass(frozen=True)
class Bounded:
    """The first layers of a network as steps, and the intervals of its nodes; everywhere: where
    walks may stop."""

    network: Network
    region: Region
    everywhere: bool
    steps: list[Step]
    intervals: list[Interval]

    def walk(self, rows: Array) -> Array:
        """Lower bounds [R] of rows·(last step's output): the best of stops at the last step and the
        input, or anywhere.

        To stop is to take what the rows on all nodes that wait have at least, each on its own.
        """
        last = len(self.steps)
        waiting, constant, best = {last: rows}, np.zeros(len(rows)), np.full(len(rows), -np.inf)
        for k in reversed(range(last)):
            if k + 1 not in waiting:
                continue
            rows, gained = self.steps[k].pull(waiting.pop(k + 1))
            constant = down(constant + gained)
            for node, part in terms(self.steps[k], self.network.reads[k], rows):
                if node in waiting:
                    waiting[node], paid = merged(waiting[node], part, self.intervals[node])
                    constant = down(constant - paid)
                else:
                    waiting[node] = part
            if self.everywhere or k + 1 == last:
                best = np.maximum(best, self._stop(waiting, constant))
        at_input: Array = np.maximum(best, down(constant + self.region.minimum(waiting[0])))
        return at_input

    def _stop(self, waiting: dict[int, Array], constant: Array) -> Array:
        for node, rows in waiting.items():
            constant = down(constant + self.intervals[node].minimum(rows))
        return constant


def terms(step: object, nodes: tuple[int, ...], rows: Array) -> Iterator[tuple[int, Array]]:
    """The nodes that a step reads, with the rows on each: those that it pulled, or as the layer
    splits them."""
    parts = step.layer.split(rows, len(nodes)) if isinstance(step, WiringStep) else [rows]
    return zip(nodes, parts, strict=True)


def merged(waiting: Array, rows: Array, h: Interval) -> tuple[Array, Array]:
    """The sum of rows that meet on a node, and what its rounding can change, at most."""
    total = waiting + rows
    return total, dot_up(up(UNIT * np.abs(total) + ETA), h.magnitude)


def row_bounds(
    model: Model, weights: WeightBox, region: Region, rows: Array, offsets: Array
) -> Array:
    """rows·y + offsets [R] from below, for all weights of the box and all x of the region."""
    bounds = _row_bounds(model, weights, region, rows, offsets, everywhere=False)
    if (bounds > 0).all():
        return bounds
    return np.asarray(
        np.maximum(bounds, _row_bounds(model, weights, region, rows, offsets, everywhere=True))
    )


def certain_box(model: Model, weights: Array, region: Region, node: int) -> Interval:
    """Where a node lies on the region, for these weights."""
    first, second = (
        _bounded(model, WeightBox(weights, weights), region, node, everywhere).intervals[node]
        for everywhere in (False, True)
    )
    return Interval(np.maximum(first.lower, second.lower), np.minimum(first.upper, second.upper))


def certain_point(model: Model, weights: Array, point: Array, node: int) -> Interval:
    """Where a node lies at a point, for these weights: by interval arithmetic alone, which takes no
    longer than the network and loses roundings only."""
    box, found = WeightBox(weights, weights), [Interval(point, point)]
    for layer, nodes in zip(model.network.layers[:node], model.network.reads, strict=False):
        found.append(_alone(layer, [found[read] for read in nodes], box))
    return found[node]


def _alone(layer: Layer, inputs: list[Interval], weights: WeightBox) -> Interval:
    if isinstance(layer, Linear):
        return Interval(*_one_layer(_box_step(layer, inputs, weights)))
    if isinstance(layer, MaxPool):
        return maximum(layer, inputs[0])
    if isinstance(layer, Activation):
        return Interval(*image(layer, inputs[0].lower, inputs[0].upper))
    return joined(layer, inputs)


def _bounded(
    model: Model, weights: WeightBox, region: Region, stop: int, everywhere: bool
) -> Bounded:
    """The layers before `stop`."""
    network = model.network
    bounded = Bounded(network, region, everywhere, [], [Interval(region.lower, region.upper)])
    for k, layer in enumerate(network.layers[:stop]):
        inputs = [bounded.intervals[node] for node in network.reads[k]]
        bounded.intervals.append(RULES[type(layer)](layer, inputs, weights, bounded))
    return bounded


def _row_bounds(
    model: Model, weights: WeightBox, region: Region, rows: Array, offsets: Array, everywhere: bool
) -> Array:
    bounded = _bounded(model, weights, region, len(model.layers), everywhere)
    found = np.full_like(offsets, -np.inf)
    for part in row_slices(model.network, len(rows)):
        found[part] = np.maximum(
            bounded.walk(rows[part]), bounded.intervals[-1].minimum(rows[part])
        )
    return down(found + offsets)


def _dense(layer: Dense, inputs: list[Interval], weights: WeightBox, bounded: Bounded) -> Interval:
    """All neurons by rows."""
    bounded.steps.append(_box_step(layer, inputs, weights))
    unknown = np.full(layer.outputs, -np.inf), np.full(layer.outputs, np.inf)
    return _by_rows(bounded, unknown, np.arange(layer.outputs))


def _sharing(
    layer: Conv | Scale, inputs: list[Interval], weights: WeightBox, bounded: Bounded
) -> Interval:
    """By the layer alone, and by rows where they are worth it."""
    step = _box_step(layer, inputs, weights)
    bounded.steps.append(step)
    ends = _one_layer(step)
    exact = bool((step.h.lower >= 0).all() or (step.lower == step.upper).all())
    first = bounded.network.reads[len(bounded.steps) - 1] == (0,) and bounded.region.is_box
    pool = isinstance(layer, Conv) and layer.pool
    if pool or (first and exact):  # rows would find the same
        return Interval(*ends)
    return _by_rows(bounded, ends, _worth_rows(bounded, ends))


def _pool(layer: MaxPool, inputs: list[Interval], _: WeightBox, bounded: Bounded) -> Interval:
    bounded.steps.append(MaxStep(layer, inputs[0]))
    return maximum(layer, inputs[0])


def _move(layer: Move, inputs: list[Interval], _: WeightBox, bounded: Bounded) -> Interval:
    bounded.steps.append(WiringStep(layer))
    return joined(layer, inputs)


def joined(layer: Wiring, inputs: list[Interval]) -> Interval:
    """The interval of what a move or a sum makes of others."""
    lower = layer.join([term.lower for term in inputs], down)
    return Interval(lower, layer.join([term.upper for term in inputs], up))


def _sum(layer: Sum, inputs: list[Interval], _: WeightBox, bounded: Bounded) -> Interval:
    """Of a vector by rows; of an image by its terms, and by rows where they are worth it."""
    bounded.steps.append(WiringStep(layer))
    by_terms = joined(layer, inputs)
    ends = by_terms.lower, by_terms.upper
    chosen = _worth_rows(bounded, ends) if layer.is_image else np.arange(layer.outputs)
    return _by_rows(bounded, ends, chosen)


def _activation(
    layer: Activation, inputs: list[Interval], _: WeightBox, bounded: Bounded
) -> Interval:
    (z,) = inputs
    slopes = default_slopes(layer, z.lower, z.upper)
    bounded.steps.append(ActivationStep(lines(layer, z.lower, z.upper, *slopes), z))
    return Interval(*image(layer, z.lower, z.upper))


# Each adds its step, given the intervals that it reads and the box of all weights, and gives the
# interval after it.
RULES: dict[type[Layer], Callable[[Any, list[Interval], WeightBox, Bounded], Interval]] = {
    Dense: _dense,
    Conv: _sharing,
    Scale: _sharing,
    MaxPool: _pool,
    Move: _move,
    **dict.fromkeys(SUMS, _sum),
    Activation: _activation,
}


def _box_step(layer: Linear, inputs: list[Interval], weights: WeightBox) -> BoxStep:
    return BoxStep(layer, fixed_or(layer, weights.lower), fixed_or(layer, weights.upper), inputs[0])


def _by_rows(bounded: Bounded, ends: tuple[Array, Array], chosen: NDArray[np.int64]) -> Interval:
    """The interval of the last step's outputs, the chosen ones by rows too."""
    lower, upper = ends[0].copy(), ends[1].copy()
    for rows, places in unit_rows(chosen, len(lower), bounded.network):
        lower[places] = np.maximum(lower[places], bounded.walk(rows))
        upper[places] = np.minimum(upper[places], -bounded.walk(-rows))
    return Interval(lower, upper)


def _worth_rows(bounded: Bounded, ends: tuple[Array, Array]) -> NDArray[np.int64]:
    """Neurons whose sign is open, if that is all that matters next; none of a term of a sum; else
    all."""
    node, (lower, upper) = len(bounded.steps), ends
    following = bounded.network.reading(node)
    if bounded.network.is_term(node):
        return np.zeros(0, np.int64)
    if all(isinstance(layer, Activation) and layer.traits.bent for layer in following):
        return np.flatnonzero((lower < 0) & (upper > 0))
    return np.arange(len(lower))


def row_slices(network: Network, count: int) -> Iterator[slice]:
    """The rows in parts: a walk over the layers holds a limited number of numbers, however many
    rows there are."""
    step = max(1, AT_ONCE // network.held)
    return (slice(start, start + step) for start in range(0, count, step))


def unit_rows(
    chosen: NDArray[np.int64], width: int, network: Network
) -> Iterator[tuple[Array, NDArray[np.int64]]]:
    """Rows e_i [.., width] of the chosen neurons, with their indices, in parts."""
    for part in row_slices(network, len(chosen)):
        places = chosen[part]
        rows = np.zeros((len(places), width))
        rows[np.arange(len(places)), places] = 1.0
        yield rows, places


def _one_layer(step: BoxStep) -> tuple[Array, Array]:
    """Interval arithmetic: Wl hc - |Wl| hr where h >= 0, else Wc hc - |Wc| hr - Wr max|h|; above
    alike."""
    layer, size = step.layer, step.h.magnitude
    center, radius = center_radius(step.h)
    weights, width = (step.lower, step.upper), np.zeros_like(step.lower)
    if not (step.h.lower >= 0).all():
        weights = (step.lower / 2 + step.upper / 2,) * 2
        width = up(np.maximum(up(step.upper - weights[0]), up(weights[0] - step.lower)))
    ends = []
    for sign, matrix in zip((1.0, -1.0), weights, strict=True):
        paid = layer.meet(np.abs(matrix), radius, 0.0) + layer.meet(width, size)
        error = sum_error(2 * layer.terms, layer.meet(np.abs(matrix) + width, size) + paid)
        ends.append(down(sign * layer.meet(matrix, center) - up(paid + error)))
    return ends[0], -ends[1]


def maximum(layer: MaxPool, h: Interval) -> Interval:
    return Interval(layer.maximum(h.lower), layer.maximum(h.upper))


def center_radius(h: Interval) -> tuple[Array, Array]:
    """h within center ± radius."""
    center = h.lower / 2 + h.upper / 2
    return center, np.maximum(up(h.upper - center), up(center - h.lower))


def with_one(h: Interval) -> Interval:
    """The constant 1, which meets the bias, as a last input."""
    return Interval(np.append(h.lower, 1.0), np.append(h.upper, 1.0))


def _chord_of_magnitude(h: Interval) -> tuple[Array, Array]:
    """κ in [-1, 1] and δ with |h| <= κ h + δ on the box: |h| is convex, so it is enough at the
    ends."""
    mixed = (h.lower < 0) & (h.upper > 0)
    width = np.where(mixed, h.upper - h.lower, 1.0)
    slope = np.clip(
        np.where(mixed, (h.upper + h.lower) / width, np.where(h.lower >= 0, 1.0, -1.0)), -1.0, 1.0
    )
    ends = [up(np.abs(end) - down(slope * end)) for end in (h.lower, h.upper)]
    return slope, np.where(mixed, np.maximum(*ends), 0.0)
