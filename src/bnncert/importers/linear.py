"""Layers with weights: dense, convolutions of images and of sequences, batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from bnncert.importers.drawing import Drawing
from bnncert.importers.reading import Source
from bnncert.importers.values import At, FirstSizeError, Held, NeedsShapeError, UnreadableError
from bnncert.model.layers import Conv2d, Dense, Shape

Sources: TypeAlias = Mapping[str, Source]
Sizes: TypeAlias = int | Sequence[int]
WEIGHTS = "takes its weight from something that depends on the input"


def linear(drawing: Drawing, x: At, weight: Held, bias: Held | None = None) -> At:
    return densely(drawing, x, sources_of(drawing, weight, bias))


def conv2d(
    drawing: Drawing,
    x: At,
    weight: Held,
    bias: Held | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> At:
    """Of images, and of sequences as images of one row."""
    return convolved(
        drawing, x, sources_of(drawing, weight, bias), stride, padding, dilation, groups
    )


def densely(drawing: Drawing, x: At, sources: Sources, **options: Any) -> At:
    outputs, inputs = sources["W"].shape
    return drawing.append(Dense(inputs, outputs, "b" in sources), x, sources=sources, **options)


def convolved(
    drawing: Drawing,
    x: At,
    sources: Sources,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
    **options: Any,
) -> At:
    """With weights [out, in / groups, *kernel]."""
    outputs, inputs, *kernel = sources["W"].shape
    dimensions = len(kernel)
    if dimensions not in (1, 2) or len(x.shape) != dimensions + 1:
        weights = sources["W"].shape
        raise UnreadableError(f"with weights of shape {weights} does not take shape {x.shape}")
    steps, spread = pair(stride, dimensions), pair(dilation, dimensions, least=1)
    size = pair(kernel, dimensions)
    layer = Conv2d(
        inputs * groups,
        outputs,
        size,
        steps,
        _padding(padding, dimensions, size, spread),
        "b" in sources,
        spread,
        groups,
    )
    found = drawing.append(layer, as_image(x), sources=sources, **options)
    return as_sequence(found) if dimensions == 1 else found


def batch_norm(
    drawing: Drawing,
    x: At,
    running_mean: Held | None,
    running_var: Held | None,
    weight: Held | None = None,
    bias: Held | None = None,
    training: bool = False,
    momentum: float = 0.1,  # noqa: ARG001  # of training
    eps: float = 1e-5,
) -> At:
    """γ (x - mean) / √(variance + ε) + β, with the running statistics."""
    if running_mean is None or running_var is None or training:
        raise UnreadableError("keeps no running statistics: its output depends on the batch")
    # Clones: a training step writes into the statistics, before or after gradients go back.
    mean, variance = (drawing.taken(own.value).clone() for own in (running_mean, running_var))
    gamma = torch.ones_like(mean) if weight is None else drawing.taken(weight.value)
    beta = torch.zeros_like(mean) if bias is None else drawing.taken(bias.value)
    if not x.shape or x.shape[0] != len(mean):
        raise UnreadableError(f"normalises {len(mean)} features and follows shape {x.shape}")
    scale = gamma / (variance + eps).sqrt()
    # Where the entries lie in another shape with the same channels, they may stay there.
    if drawing.shapes[x.node][0] != len(mean):
        x = At(drawing.node(x), x.shape)
    shape = (-1, *[1] * (len(drawing.shapes[x.node]) - 1))
    return drawing.scaled(x, scale.reshape(shape), (beta - scale * mean).reshape(shape))


def sources_of(drawing: Drawing, weight: object, bias: object) -> dict[str, Source]:
    """Parameters of the module by their names, and buffers as constants."""
    found = {"W": _source(drawing, weight)}
    return found | ({"b": _source(drawing, bias)} if bias is not None else {})


def _source(drawing: Drawing, held: object) -> Source:
    if not isinstance(held, Held):
        raise UnreadableError(WEIGHTS)
    shape = tuple(held.value.shape)
    if held.name:
        return Source(held.name, shape)
    if held.made_of:
        raise UnreadableError(
            "has a weight made of others (remove weight or spectral normalisation, or pruning)"
        )
    return Source(None, shape, shift=drawing.taken(held.value))


def pair(sizes: Sizes, dimensions: int, least: int = 1) -> tuple[int, int]:
    """Height and width; a sequence has height `least`."""
    own = (sizes,) * dimensions if isinstance(sizes, int) else tuple(sizes)
    own = own * dimensions if len(own) == 1 else own
    if len(own) != dimensions or not all(isinstance(size, int) for size in own):
        raise UnreadableError(f"has sizes {sizes} where {dimensions} belong")
    return (least, own[0]) if dimensions == 1 else (own[0], own[1])


def _padding(
    padding: Sizes | str, dimensions: int, kernel: Shape, dilation: Shape
) -> tuple[int, int, int, int]:
    """At the top, left, bottom and right."""
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise UnreadableError(f"has padding={padding!r}")
        spans = zip(kernel, dilation, strict=True)
        height, width = (d * (k - 1) if padding == "same" else 0 for k, d in spans)
        return height // 2, width // 2, height - height // 2, width - width // 2
    return pair(padding, dimensions, least=0) * 2


def as_image(x: At) -> At:
    """A sequence (channels, length) as an image of one row."""
    return x if len(x.shape) != 2 else At(x.node, (x.shape[0], 1, x.shape[1]))


def as_sequence(x: At) -> At:
    return At(x.node, (x.shape[0], x.shape[2]))


def first_shape(place: str, weights: Shape) -> FirstSizeError | NeedsShapeError:
    """What the first layer with weights tells of the input's shape."""
    if len(weights) == 2:
        return FirstSizeError((weights[1],))
    sizes = "channels, length" if len(weights) == 3 else "channels, height, width"
    return NeedsShapeError(f"{place} comes first: give input_shape=({sizes})")
