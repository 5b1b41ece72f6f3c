"""Cropping: steps of a walk, boxes and regions, as far as a tile of neurons depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Tensor
from torch.nn import functional

from bnncert.bounds.walk import Step, Tally
from bnncert.bounds.windows import Crop, Window
from bnncert.model.box import Box
from bnncert.model.layers import Linear, MaxPool2d, Scale, Windowed, output_shape, sides
from bnncert.model.network import Network
from bnncert.model.specification import Region

LinearLike = TypeVar("LinearLike", bound=Any)  # a frozen step with a layer and a shape


@dataclass(frozen=True, eq=False)
class PlacedStep:
    """A cropped step whose inputs have larger windows than it reads: the rows there are 0."""

    step: Step
    margins: tuple[tuple[int, int, int, int], ...]

    def __getitem__(self, index: Tensor | slice) -> PlacedStep:
        return replace(self, step=self.step[index])

    def crop(self, _: Window, __: Window) -> PlacedStep:
        raise TypeError("a cropped step is not cropped again")

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        pulled, tally = self.step.pull(rows, tally)
        pairs = zip(pulled, self.margins, strict=True)
        return tuple(functional.pad(part, margins) for part, margins in pairs), tally


def between(layer: Linear | MaxPool2d, before: Window, after: Window) -> Any:
    """The layer from one window to another: its padding is where its own is, else none."""
    if isinstance(layer, Scale):
        return scale_within(layer, after)
    if not isinstance(layer, Windowed):
        raise TypeError(f"{layer!r} does not keep places")
    top, left, _, _ = sides(layer)
    stride = layer.stride or layer.kernel
    reach = [d * (k - 1) + 1 for d, k in zip(layer.dilation, layer.kernel, strict=True)]
    padding = (
        before.top - (after.top * stride[0] - top),
        before.left - (after.left * stride[1] - left),
        (after.bottom - 1) * stride[0] - top + reach[0] - before.bottom,
        (after.right - 1) * stride[1] - left + reach[1] - before.right,
    )
    return replace(layer, padding=padding)


def weights_within(layer: Linear, weights: Tensor | None, window: Window) -> Tensor | None:
    """The weights that matter in a window: of a scale those of its places, of others all."""
    if weights is None or not isinstance(layer, Scale):
        return weights
    rows = slice(window.top, window.bottom) if layer.shape[1] > 1 else slice(None)
    columns = slice(window.left, window.right) if layer.shape[2] > 1 else slice(None)
    return weights[..., rows, columns]


def crop_linear(
    step: LinearLike,
    before: Window,
    after: Window,
    weights: Sequence[str],
    read: Sequence[str],
    given: Sequence[str],
) -> LinearLike:
    """A linear step on windows; its fields that are weights, that are like what it reads
    [B, *shape], and like what it gives, flat."""
    outputs = output_shape(step.layer, step.shape)
    changed: dict[str, Any] = {
        "layer": between(step.layer, before, after),
        "shape": (step.shape[0], *before.size),
    }
    for name in weights:
        changed[name] = weights_within(step.layer, getattr(step, name), before)
    for name in read:
        changed[name] = before.of(getattr(step, name))
    for name in given:
        value = getattr(step, name)
        changed[name] = None if value is None else after.of_flat(value, outputs)
    return replace(step, **changed)


def scale_within(layer: Scale, window: Window) -> Scale:
    pairs = zip(layer.shape[1:], window.size, strict=True)
    return replace(layer, shape=(layer.shape[0], *(min(own, size) for own, size in pairs)))


@dataclass(frozen=True, eq=False)
class Part:
    """Steps, boxes and the region, as far as a tile depends on them."""

    steps: list[Step]
    boxes: list[Box | None]
    region: Region


def cropped(
    network: Network,
    steps: Sequence[Step],
    boxes: Sequence[Box | None],
    region: Region,
    crop: Crop | None,
) -> Part:
    """Layers that are not on the way stay as they are: no row meets them."""
    part = Part(list(steps), list(boxes), region)
    if crop is None:
        return part
    for k, before in crop.reads.items():
        step = steps[k].crop(before, crop.nodes[k + 1])
        margins = tuple(crop.nodes[node].margins(before) for node in network.reads[k])
        part.steps[k] = PlacedStep(step, margins) if any(map(any, margins)) else step
    for node, window in crop.nodes.items():
        box = boxes[node] if node < len(boxes) else None
        if box is not None:
            part.boxes[node] = window.of_box(box)
    return replace(part, region=region_within(region, crop.nodes[0]))


def region_within(region: Region, window: Window) -> Region:
    """Some coordinates of it: those of a ball's points fill a ball again."""
    return replace(region, center=window.of(region.center), box=window.of_box(region.box))
