"""Linear bounds over a box of weights: rows walked from the output back to the input, every rounding charged.

A row A of z = Wh, W in Wc ± Wr, is bounded by A Wc h - |A| Wr |h|, and |h| by its chord κh + δ over the box of h: the
best linear bound there is, and A⁺ Wl + A⁻ Wu where h >= 0. A walk may stop at any layer, since its input lies in a box:
the best stop is taken. Narrower hidden intervals may choose worse lines, so two ways to get them are tried: stops at
the last layer and at the input only, which is never worse than interval arithmetic, and stops everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bnncert_check.activations import Lines, default_slopes, image, lines
from bnncert_check.arithmetic import ETA, UNIT, Array, dot_down, dot_up, down, matmul_error, matmul_up, up
from bnncert_check.mass import WeightBox
from bnncert_check.model import Dense, Model
from bnncert_check.region import Region
from bnncert_check.verdict import CannotCheck


@dataclass(frozen=True)
class Interval:
    """[lower, upper] of a layer's input, flat."""

    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lower) & np.isfinite(self.upper)).all():
            raise CannotCheck("not-finite", "an interval of the network is not finite; rescale the network")

    @property
    def magnitude(self) -> Array:
        return np.maximum(np.abs(self.lower), np.abs(self.upper))

    def minimum(self, rows: Array) -> Array:
        """min over the box of rows·h, from below."""
        return dot_down(rows, np.where(rows > 0, self.lower, self.upper))


@dataclass(frozen=True)
class BoxStep:
    """A dense layer with weights in [lower, upper] and input h, both with the constant 1 at the end."""

    lower: Array
    upper: Array
    h: Interval

    def pull(self, rows: Array) -> tuple[Array, Array]:
        """rows·z >= new rows·h + constant."""
        magnitude, h = np.abs(rows), with_one(self.h)
        center = self.lower / 2 + self.upper / 2
        radius = up(np.maximum(up(self.upper - center), up(center - self.lower)))
        slope, lift = _chord_of_magnitude(h)
        spread = magnitude @ radius.T
        pulled = rows @ center.T - spread * slope
        error = matmul_error(magnitude, up(np.abs(center) + radius).T)
        paid = up(dot_up(error, h.magnitude) + dot_up(matmul_up(magnitude, radius.T), lift))
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


Step = BoxStep | ActivationStep


def row_bounds(model: Model, weights: WeightBox, region: Region, rows: Array, offsets: Array) -> Array:
    """rows·y + offsets [R] from below, for all weights of the box and all x of the region."""
    bounds = _row_bounds(model, weights, region, rows, offsets, everywhere=False)
    if (bounds > 0).all():
        return bounds
    return np.asarray(np.maximum(bounds, _row_bounds(model, weights, region, rows, offsets, everywhere=True)))


def _row_bounds(
    model: Model, weights: WeightBox, region: Region, rows: Array, offsets: Array, everywhere: bool
) -> Array:
    steps: list[Step] = []
    h = Interval(region.lower, region.upper)
    for layer in model.layers:
        if isinstance(layer, Dense):
            steps.append(BoxStep(layer.matrix(weights.lower), layer.matrix(weights.upper), h))
            unit = np.eye(layer.outputs)
            h = Interval(_walk(steps, region, unit, everywhere), -_walk(steps, region, -unit, everywhere))
        else:
            steps.append(ActivationStep(lines(layer, h.lower, h.upper, *default_slopes(layer, h.lower, h.upper)), h))
            h = Interval(*image(layer, h.lower, h.upper))
    return down(np.maximum(_walk(steps, region, rows, everywhere), h.minimum(rows)) + offsets)


def _walk(steps: list[Step], region: Region, rows: Array, everywhere: bool) -> Array:
    """Lower bounds [R] of rows·(last step's output): the best of stops at the last step and the input, or anywhere."""
    constant, best = np.zeros(len(rows)), np.full(len(rows), -np.inf)
    for step in reversed(steps):
        rows, gained = step.pull(rows)
        constant = down(constant + gained)
        if everywhere or step is steps[-1]:
            best = np.maximum(best, down(constant + step.h.minimum(rows)))
    at_input: Array = np.maximum(best, down(constant + region.minimum(rows)))
    return at_input


def with_one(h: Interval) -> Interval:
    """The constant 1, which meets the bias, as a last input."""
    return Interval(np.append(h.lower, 1.0), np.append(h.upper, 1.0))


def _chord_of_magnitude(h: Interval) -> tuple[Array, Array]:
    """κ in [-1, 1] and δ with |h| <= κ h + δ on the box: |h| is convex, so it is enough at the ends."""
    mixed = (h.lower < 0) & (h.upper > 0)
    width = np.where(mixed, h.upper - h.lower, 1.0)
    slope = np.clip(np.where(mixed, (h.upper + h.lower) / width, np.where(h.lower >= 0, 1.0, -1.0)), -1.0, 1.0)
    ends = [up(np.abs(end) - down(slope * end)) for end in (h.lower, h.upper)]
    return slope, np.where(mixed, np.maximum(*ends), 0.0)
