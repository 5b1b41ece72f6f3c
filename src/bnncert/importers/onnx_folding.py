"""Arithmetic with constants, folded into the linear layers beside it.

A scale x -> s x + t goes into the linear layer before it, if nothing else reads that one, or else
into those that read it,

    (h W + b) s + t = h (W s) + (b s + t),        (s x + t) W + b = x (s W) + (b + t W),

and stays a layer of its own for all others. Two in a row are one, and a reshape stands before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bnncert.importers.building import NOTHING, Names, Value, affine, append, ordered
from bnncert.model.layers import Conv2d, Dense, Scale, sides
from bnncert.model.moves import Flatten, Reshape, Shape


def folded(output: Value) -> Value:
    """The same function, with fewer scales."""
    values = ordered(output)
    readers = Counter(id(each) for value in values for each in value.reads)
    readers[id(output)] += 1
    found: dict[int, Value] = {}
    for value in values:
        reads = [found[id(each)] for each in value.reads]
        alone = len(value.reads) == 1 and readers[id(value.reads[0])] == 1
        found[id(value)] = _folded(replace(value, reads=tuple(reads)) if reads else value, alone)
    return found[id(output)]


def _folded(value: Value, alone: bool) -> Value:
    """The value, and what it reads if that is a scale or it is one itself.

    alone: nothing else reads what it reads.
    """
    if len(value.reads) != 1:
        return value
    (before,) = value.reads
    if isinstance(value.layer, Scale):
        if isinstance(before.layer, Scale):
            return _composed(before, value)
        rule = INTO_BEFORE.get(type(before.layer)) if alone else None
        return rule(before, value) if rule else value
    if not isinstance(before.layer, Scale):
        return value
    if isinstance(value.layer, Flatten | Reshape):
        return _behind(before, value) if alone else value
    rule = INTO_AFTER.get(type(value.layer))
    return rule(before, value) if rule else value


def _constants(value: Value, shape: Shape) -> tuple[Tensor, Tensor]:
    """Scale and shift of a scale, on a shape."""
    scale, *shift = value.parameters
    return scale.expand(shape), (shift[0] if shift else torch.zeros_like(scale)).expand(shape)


def _names(value: Value) -> Names:
    """Of the tensors that the bias holds."""
    return value.sources[1] if len(value.sources) > 1 else NOTHING


def _composed(before: Value, value: Value) -> Value:
    """(s x + t) s' + t' = (s s') x + (t s' + t')"""
    (scale, shift), (more, further) = (_constants(each, value.shape) for each in (before, value))
    names = _names(before) | _names(value)
    return affine(before.reads[0], scale * more, shift * more + further, names)


def _behind(before: Value, value: Value) -> Value:
    """The reshape first."""
    moved = append(value.layer, *before.reads)  # type: ignore[arg-type]  # a reshape
    scale, shift = (each.reshape(value.shape) for each in _constants(before, before.shape))
    return affine(moved, scale, shift, _names(before))


def _with(value: Value, weights: Tensor, bias: Tensor | None, names: Names) -> Value:
    """The linear layer of a value, with other parameters."""
    layer: Any = replace(value.layer, bias=bias is not None)  # type: ignore[type-var]
    parameters = (weights,) if bias is None else (weights, bias)
    sources = (value.sources[0], names)[: len(parameters)]
    return append(layer, *value.reads, parameters=parameters, sources=sources)


def _biased(parameters: Sequence[Tensor], more: Tensor) -> Tensor | None:
    """The sum with the bias; still none if nothing is added."""
    bias = parameters[1] if len(parameters) > 1 else None
    return bias if not more.any() else more if bias is None else bias + more


def _dense_before(before: Value, value: Value) -> Value:
    scale, shift = _constants(value, value.shape)
    weights, *bias = before.parameters
    own = [each * scale for each in (weights, *bias)]
    return _with(before, own[0], _biased(own, shift), _names(before) | _names(value))


def _convolution_before(before: Value, value: Value) -> Value:
    if any(size > 1 for size in value.parameters[0].shape[1:]):
        return value  # it differs within a channel
    scale, shift = _constants(value, (value.shape[0], 1, 1))
    weights, *bias = before.parameters
    own = [weights * scale[..., None], *(each * scale[:, 0, 0] for each in bias)]
    added = _biased(own, shift[:, 0, 0])
    return _with(before, own[0], added, _names(before) | _names(value))


def _dense_after(before: Value, value: Value) -> Value:
    scale, shift = _constants(before, before.shape)
    weights = value.parameters[0]
    bias = _biased(value.parameters, shift @ weights)
    moved = replace(value, reads=before.reads)
    return _with(moved, scale[:, None] * weights, bias, _names(value))


def _convolution_after(before: Value, value: Value) -> Value:
    layer: Any = value.layer
    unlike = any(size > 1 for size in before.parameters[0].shape[1:])
    if unlike or (len(before.parameters) > 1 and any(sides(layer))):
        return value  # the padding is 0 behind the shift
    per_channel = _constants(before, (before.shape[0], 1, 1))
    scale, shift = (_by_group(each[:, 0, 0], layer) for each in per_channel)
    weights = value.parameters[0]
    bias = _biased(value.parameters, torch.einsum("oikl,oi->o", weights, shift))
    moved = replace(value, reads=before.reads)
    return _with(moved, weights * scale[..., None, None], bias, _names(value))


def _by_group(channels: Tensor, layer: Conv2d) -> Tensor:
    """For each output channel the numbers of the input channels that it reads."""
    grouped = channels.reshape(layer.groups, -1)
    return grouped.repeat_interleave(layer.out_channels // layer.groups, 0)


INTO_BEFORE: dict[type | None, Callable[[Value, Value], Value]] = {
    Dense: _dense_before,
    Conv2d: _convolution_before,
}
INTO_AFTER: dict[type | None, Callable[[Value, Value], Value]] = {
    Dense: _dense_after,
    Conv2d: _convolution_after,
}
