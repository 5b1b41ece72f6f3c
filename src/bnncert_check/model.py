"""The network and its posterior, read from a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.files import UNREADABLE, Tensors, digest, numbers, read_npz, read_safetensors, strict_json
from bnncert_check.layers import Activation, Conv, Dense, Layer, Linear, MaxPool, Shape, window_places
from bnncert_check.verdict import CannotCheck

SCHEMA = "bnncert-posterior/1"
FIELDS = {
    "normal": ("mean", "std"),
    "uniform": ("low", "high"),
    "truncated-normal": ("mean", "std", "low", "high"),
    "laplace": ("loc", "scale"),
    "student-t": ("loc", "scale", "df"),
    "low-rank-normal": ("mean", "std", "factor"),
    "empirical": ("samples",),
}
ACTIVATIONS = {"ReLU": 0.0, "LeakyReLU": 0.01, "Tanh": None, "Sigmoid": None}  # with the (default) slope below 0
NPZ_ACTIVATIONS = {"relu": "ReLU", "leaky_relu": "LeakyReLU", "tanh": "Tanh", "sigmoid": "Sigmoid"}
NO_ACTIVATION = ("linear", "softmax")


@dataclass(frozen=True)
class Posterior:
    """One family over the flat weight vector."""

    family: str
    fields: dict[str, Array]

    @property
    def digest(self) -> str:
        return digest({"family": self.family, "tensors": list(self.fields)}, self.fields.values())

    @property
    def center(self) -> Array:
        """The point that boxes grow from if no other is given."""
        match self.family:
            case "uniform":
                return self.fields["low"] + self.spread
            case "truncated-normal":
                return np.clip(self.fields["mean"], self.fields["low"], self.fields["high"])
        return next(iter(self.fields.values()))

    @property
    def spread(self) -> Array:
        """The unit of a box's width; 0 marks a deterministic weight."""
        if self.family == "uniform":
            return (self.fields["high"] - self.fields["low"]) / 2
        return list(self.fields.values())[1]

    @property
    def random(self) -> NDArray[np.bool_]:
        """Which weights have no atoms; one that is cut to a point is none of them."""
        wide = self.fields["low"] < self.fields["high"] if "low" in self.fields else np.ones(len(self.center), bool)
        return wide if self.family == "uniform" else wide & (self.spread > 0)


@dataclass(frozen=True)
class Model:
    """The network, and its posterior as weighted components (one, unless it is a mixture)."""

    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    weights: tuple[float, ...]
    components: tuple[Posterior, ...]
    architecture_digest: str
    posterior_digest: str

    @property
    def outputs(self) -> int:
        return [layer.outputs for layer in self.layers if not isinstance(layer, Activation)][-1]


def read_model(path: Path) -> Model:
    """The posterior in a `.safetensors` (native) or `.npz` file."""
    try:
        return _from_npz(path) if path.suffix == ".npz" else _from_native(path)
    except UNREADABLE as error:
        raise CannotCheck("malformed", f"posterior {str(path)!r} is malformed ({error!r})") from error


def _from_native(path: Path) -> Model:
    header, tensors = read_safetensors(path, SCHEMA)
    family, architecture = header["family"], header["network"]
    if family != "mixture":
        return _model(architecture, tensors, [header], (1.0,))
    weights = tuple(float.fromhex(weight) for weight in header["weights"])
    if len(weights) != len(header["components"]) or not min(weights) >= 0 or not 0.99 < math.fsum(weights) < 1.01:
        raise CannotCheck("malformed", f"mixture weights {weights} are not probabilities of its components")
    return _model(architecture, tensors, header["components"], weights, mixture=True)


def _model(
    architecture: dict[str, Any],
    tensors: Tensors,
    parts: list[dict[str, Any]],
    weights: tuple[float, ...],
    mixture: bool = False,
) -> Model:
    shape, layers = tuple(architecture["input_shape"]), _layers(architecture)
    components = tuple(
        _posterior(part["family"], layers, tensors, f"{i}." if mixture else "") for i, part in enumerate(parts)
    )
    own = components[0].digest
    if mixture:
        digests = [component.digest for component in components]
        own = digest({"family": "mixture", "weights": [w.hex() for w in weights], "components": digests})
    return Model(shape, layers, weights, components, digest(architecture), own)


def _layers(architecture: dict[str, Any]) -> tuple[Layer, ...]:
    layers: list[Layer] = []
    shape, start = tuple(_whole(size, 1) for size in architecture["input_shape"]), 0
    for position, entry in enumerate(architecture["layers"]):
        kind, fields = entry["type"], {key: value for key, value in entry.items() if key != "type"}
        if kind == "Flatten" and not fields:
            shape = (math.prod(shape),)
            continue
        layer = _layer(kind, fields, shape, start, position)
        layers.append(layer)
        if isinstance(layer, Linear):
            start += layer.size
        shape = tuple(_whole(size, 1) for size in _output_shape(layer, shape))
    if start == 0 or len(shape) != 1:
        raise CannotCheck("malformed", f"the network has no weights, or gives {shape} instead of a vector")
    return tuple(layers)


def _whole(value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise CannotCheck("malformed", f"{value!r} is not a whole number of at least {least}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise CannotCheck("malformed", f"{value!r} is neither true nor false")
    return value


def _pair(value: Any, least: int) -> Shape:
    first, second = value
    return _whole(first, least), _whole(second, least)


def _layer(kind: str, fields: dict[str, Any], shape: Shape, start: int, position: int) -> Layer:
    """One layer for inputs of the given shape; every field is taken, or it is an error."""
    expected: Shape | None = None
    layer: Layer
    if kind in ACTIVATIONS:
        slope = fields.pop("slope") if kind == "LeakyReLU" else ACTIVATIONS[kind]
        layer = Activation(kind, slope, position)
        if not 0 <= (slope or 0) < 1:
            raise CannotCheck("malformed", f"{kind} has slope {slope}")
    elif kind == "Dense":
        inputs, outputs = (_whole(fields.pop(name), 1) for name in ("inputs", "outputs"))
        layer, expected = Dense(inputs, outputs, _flag(fields.pop("bias")), start, position), (inputs,)
    elif kind in ("Conv2d", "AvgPool2d", "MaxPool2d"):
        kernel, stride = (_pair(fields.pop(name), 1) for name in ("kernel", "stride"))
        expected = (shape[0], *shape[1:3])
        if kind == "MaxPool2d":
            layer = MaxPool(shape, kernel, stride)
        elif kind == "AvgPool2d":
            layer = Conv(shape, shape[0], kernel, stride, (0, 0), False, start, position, pool=True)
        else:
            expected = (fields.pop("in_channels"), *shape[1:3])
            channels, padding = _whole(fields.pop("out_channels"), 1), _pair(fields.pop("padding"), 0)
            layer = Conv(shape, channels, kernel, stride, padding, _flag(fields.pop("bias")), start, position)
    else:
        raise CannotCheck("unsupported", f"layer {kind!r} is not known")
    if fields or expected not in (None, shape):
        raise CannotCheck(
            "malformed", f"layer {position} takes {expected}, gets {shape}; other fields {sorted(fields)}"
        )
    return layer


def _output_shape(layer: Layer, shape: Shape) -> Shape:
    match layer:
        case Dense():
            return (layer.outputs,)
        case Conv():
            return (layer.channels, *layer.places)
        case MaxPool():
            return (shape[0], *window_places(shape, layer.kernel, layer.stride, (0, 0)))
    return shape


def _posterior(family: str, layers: tuple[Layer, ...], tensors: Tensors, prefix: str) -> Posterior:
    if family not in FIELDS:
        raise CannotCheck("unsupported", f"posterior family {family!r} is not known")
    fields = {field: _gather(layers, tensors, prefix, field) for field in FIELDS[family]}
    posterior = Posterior(family, fields)
    if family == "empirical":
        return posterior
    ordered = family == "normal" or "low" not in fields or bool((fields["low"] <= fields["high"]).all())
    if not ordered or not (posterior.spread >= 0).all() or not (fields.get("df", np.ones(1)) > 0).all():
        raise CannotCheck("malformed", f"the {family} posterior has a negative scale or an empty interval")
    return posterior


def _gather(layers: tuple[Layer, ...], tensors: Tensors, prefix: str, field: str) -> Array:
    """One field of all weights as a flat vector [n], a factor as [n, k], samples as [S, n]."""
    parts: list[Array] = []
    for i, layer in enumerate(layer for layer in layers if isinstance(layer, Linear) and layer.size):
        for letter, shape in _parameters(layer).items():
            name = f"{prefix}{letter}{i}_{field}"
            if field in ("factor", "samples"):
                count = tensors[name].shape[0]
                parts.append(numbers(tensors, name, (count, *shape)).reshape(count, -1).T)
            else:
                parts.append(numbers(tensors, name, shape).reshape(-1))
    joined = np.concatenate(parts)
    return np.ascontiguousarray(joined.T) if field == "samples" else joined


def _parameters(layer: Linear) -> dict[str, Shape]:
    """Letter and shape of a layer's parameters, in the order of the flat weight vector."""
    weights: Shape
    if isinstance(layer, Dense):
        weights, channels = (layer.inputs, layer.outputs), layer.outputs
    else:
        weights, channels = (layer.channels, layer.shape[0], *layer.kernel), layer.channels
    return {"W": weights} | ({"b": (channels,)} if layer.bias else {})


def _from_npz(path: Path) -> Model:
    """W{i}_mean [in, out], b{i}_mean, W{i}_std, b{i}_std; ReLU between the layers unless `meta` names activations."""
    arrays = read_npz(path)
    depth = sum(f"W{i}_mean" in arrays for i in range(len(arrays)))
    meta = strict_json(str(arrays["meta"])) if "meta" in arrays else {}
    names = meta.get("activations", ["relu"] * (depth - 1) + ["linear"])
    if len(names) != depth or not depth:
        raise CannotCheck("malformed", f"posterior has {depth} layers and activations {names}")
    layers: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        inputs, outputs = arrays[f"W{i}_mean"].shape
        layers.append({"type": "Dense", "inputs": inputs, "outputs": outputs, "bias": f"b{i}_mean" in arrays})
        if name not in NO_ACTIVATION:
            kind = NPZ_ACTIVATIONS[name]
            layers.append({"type": kind} | ({"slope": ACTIVATIONS[kind]} if kind == "LeakyReLU" else {}))
    architecture = {"input_shape": [layers[0]["inputs"]], "layers": layers}
    return _model(architecture, arrays, [{"family": "normal"}], (1.0,))
