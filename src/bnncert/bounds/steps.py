"""Steps of layers without weights, the same in every walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bnncert.bounds.pooling import MaxPoolStep, max_pool_step
from bnncert.bounds.relaxations import Relaxation, relax, turned
from bnncert.bounds.walk import Step, Tally
from bnncert.bounds.windows import Window
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.box import Box
from bnncert.model.layers import WIRING, Layer, MaxPool2d, Shape, Wiring, rule_for
from bnncert.model.maps import split_rows
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class ActivationStep:
    """A f(z) >= A⁺ (lower line) + A⁻ (upper line).

    Lower slopes are one per neuron, [B, n], or also one per row, [B, R, n].
    """

    relaxation: Relaxation
    z: Box  # [B, n], the interval that the lines are for
    size: Tensor  # [B, n] bound of |slope z| + |intercept|, for the rounding error
    shape: Shape  # of the activations; lines are over the flattened ones

    def __getitem__(self, index: Tensor | slice) -> ActivationStep:
        return ActivationStep(self.relaxation[index], self.z[index], self.size[index], self.shape)

    def crop(self, _: Window, after: Window) -> ActivationStep:
        def own(values: Tensor) -> Tensor:
            return after.of_flat(values, self.shape)

        lines = Relaxation(*(own(line) for line in vars(self.relaxation).values()))
        z = Box(own(self.z.lower), own(self.z.upper))
        return ActivationStep(lines, z, own(self.size), (self.shape[0], *after.size))

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        lines = self.relaxation
        rows = rows.flatten(2)
        positive = rows.clamp_min(0)
        negative = rows.clamp_max(0)
        own = lines.lower_slope.dim() == 3
        lower_slope = lines.lower_slope if own else lines.lower_slope.unsqueeze(1)
        pulled = positive * lower_slope + negative * lines.upper_slope.unsqueeze(1)
        constant = dot(positive, lines.lower_intercept) + dot(negative, lines.upper_intercept)
        constant = constant - gamma(rows.shape[-1] + 64) * dot(rows.abs(), self.size) - TINY
        return (pulled.reshape(*pulled.shape[:2], *self.shape),), tally.gained(constant)


@dataclass(frozen=True)
class WiringStep:
    """What a move or a sum reads has its own part of the rows, exactly."""

    layer: Wiring
    shapes: tuple[Shape, ...]

    def __getitem__(self, index: Tensor | slice) -> WiringStep:
        return self

    def crop(self, before: Window, _: Window) -> WiringStep:
        """Of sums and of channels one after the other: the others do not keep places."""
        return replace(self, shapes=tuple((shape[0], *before.size) for shape in self.shapes))

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        return split_rows(self.layer, rows, self.shapes), tally


def step_of(layer: Layer, inputs: Sequence[Box]) -> Step:
    """A layer without weights as a step on the boxes that it reads."""
    return rule_for(STEPS, layer)(layer, inputs)


def activation_step(activation: Activation, z: Box) -> ActivationStep:
    """The activation's lines on the interval z [B, *shape]."""
    lines = relax(activation, z).flatten()
    return _step(activation, lines, z.reshape(len(z.lower), -1), tuple(z.shape[1:]))


def turned_step(
    activation: Activation, step: ActivationStep, slopes: Sequence[Tensor]
) -> ActivationStep:
    """The step with other slopes [B, n] of the lines that turn at its kinks."""
    lines = turned(activation, step.relaxation, step.z, slopes)
    return _step(activation, lines, step.z, step.shape)


def _step(activation: Activation, lines: Relaxation, z: Box, shape: Shape) -> ActivationStep:
    lift = torch.maximum(lines.lower_intercept.abs(), lines.upper_intercept.abs())
    steepest = max(1.0, activation.traits.steepest)
    return ActivationStep(lines, z, steepest * z.magnitude + lift, shape)


def _activation(layer: Activation, inputs: Sequence[Box]) -> ActivationStep:
    return activation_step(layer, inputs[0])


def _wiring(layer: Wiring, inputs: Sequence[Box]) -> WiringStep:
    return WiringStep(layer, tuple(tuple(h.shape[1:]) for h in inputs))


def _max_pool(layer: MaxPool2d, inputs: Sequence[Box]) -> MaxPoolStep:
    return max_pool_step(layer, inputs[0])


STEPS: dict[type, Callable[[Any, Sequence[Box]], Step]] = {
    MaxPool2d: _max_pool,
    **dict.fromkeys(WIRING, _wiring),
    **dict.fromkeys(ACTIVATIONS, _activation),
}
