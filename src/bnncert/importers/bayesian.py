"""Bayesian layers, recognised by the names of their tensors."""

from __future__ import annotations

from typing import Any

from torch import nn

from bnncert.importers.conventions import convention_of
from bnncert.importers.drawing import Bayesian, Drawing
from bnncert.importers.linear import convolved, densely, first_shape, pair
from bnncert.importers.modules import own_parameters
from bnncert.importers.reading import Source
from bnncert.importers.values import At, Place, UnreadableError, Unsized
from bnncert.model.layers import Shape


def bayesian(drawing: Drawing, x: At | Unsized, module: nn.Module, place: Place) -> At:
    """What the layer makes of x at its means; its output may come with a divergence."""
    layer: Any = module
    present = own_parameters(module)
    convention = convention_of(present)
    weight = convention.names("weight", present) if convention else None
    if convention is None or weight is None:
        raise UnreadableError("has no weight")
    # blitz keeps the parameters of a bias that it was told not to use.
    kept = getattr(module, "bias", True) is not False
    bias = convention.names("bias", present) if kept else None

    sources = {
        letter: Source(
            place.named(mean), tuple(present[mean].shape), place.named(spread), convention
        )
        for letter, (mean, spread) in (("W", weight), *([("b", bias)] if bias else []))
    }
    shape = sources["W"].shape
    _check(layer, shape)
    if isinstance(x, Unsized):
        raise first_shape(str(place), shape)
    own = Bayesian(place, module, convention)
    if len(shape) == 2:
        found = densely(drawing, x, sources, bayesian=own)
    else:
        options = (getattr(layer, name, 1) for name in ("stride", "padding", "dilation", "groups"))
        found = convolved(drawing, x, sources, *options, bayesian=own)
    return At(found.node, found.shape, paired=True)


def _check(layer: Any, shape: Shape) -> None:
    """Whether the layer is what its weights look like."""
    name = type(layer).__name__
    if "Embedding" in name:
        raise UnreadableError("is not supported")
    if len(shape) == 2:
        sizes = (("out_features", shape[0]), ("in_features", shape[1]))
        declared = tuple(getattr(layer, name, size) for name, size in sizes)
    else:
        if len(shape) not in (3, 4) or "Transpose" in name or not hasattr(layer, "stride"):
            raise UnreadableError(f"with weights of shape {shape} is not supported")
        if getattr(layer, "padding_mode", "zeros") != "zeros":
            raise UnreadableError(f"has padding_mode={layer.padding_mode!r}; only zeros are read")
        dimensions = len(shape) - 2
        declared = (*shape[:2], *pair(layer.kernel_size, dimensions)[-dimensions:])
    if declared != shape:
        raise UnreadableError(f"has weights of shape {shape} where {declared} belongs")
