"""Random tiny networks, as files describe them, with a forward pass of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Array: TypeAlias = NDArray[Any]
Random: TypeAlias = np.random.Generator
Layer: TypeAlias = dict[str, Any]


MOVES = ("Flatten", "Reshape", "Permute", "Take", "Pad", "Concat")


def pick(r: Random, values: Sequence[Any]) -> Any:
    return values[int(r.integers(len(values)))]


def parameters(layer: Layer) -> list[tuple[int, ...]]:
    match layer["type"]:
        case "Dense":
            return [(layer["inputs"], layer["outputs"])] + [(layer["outputs"],)] * layer["bias"]
        case "Conv2d":
            inputs = layer["in_channels"] // layer.get("groups", 1)
            shape = (layer["out_channels"], inputs, *layer["kernel"])
            return [shape] + [(layer["out_channels"],)] * layer["bias"]
        case "Scale":
            return [tuple(layer["shape"])] * (1 + layer["bias"])
    return []


def own_size(layer: Layer) -> int:
    return sum(map(math.prod, parameters(layer)))


def sides(layer: Layer) -> list[int]:
    """Padding at the top, left, bottom and right."""
    return (layer.get("padding", [0, 0]) * 2)[:4]


def windows(x: Array, layer: Layer, value: float = 0.0) -> Array:
    """[..., channels, rows, columns, entries of a window]; padded with the value."""
    (kr, kc), (sr, sc), (dr, dc) = layer["kernel"], layer["stride"], layer.get("dilation", [1, 1])
    top, left, bottom, right = sides(layer)
    around = [(0, 0)] * (x.ndim - 2) + [(top, bottom), (left, right)]
    padded = np.pad(x, around, constant_values=value)
    rows = (padded.shape[-2] - dr * (kr - 1) - 1) // sr + 1
    columns = (padded.shape[-1] - dc * (kc - 1) - 1) // sc + 1
    parts = [
        padded[..., i : i + sr * (rows - 1) + 1 : sr, j : j + sc * (columns - 1) + 1 : sc]
        for i, j in product(range(0, dr * kr, dr), range(0, dc * kc, dc))
    ]
    return np.stack(parts, -1)


def apply(layer: Layer, own: list[Array], *terms: Array) -> Array:
    """The layer at what it reads, [N or 1, P, *shape] each, with parameters [N, ...]."""
    x = terms[0]
    match layer["type"]:
        case "Dense":
            y = x @ own[0]
            return y + own[1][:, None] if layer["bias"] else y
        case "Conv2d":
            return _convolution(layer, own, x)
        case "Scale":
            y = own[0][:, None] * x
            return y + own[1][:, None] if layer["bias"] else y
        case "AvgPool2d":
            return windows(x, layer).mean(-1)
        case "MaxPool2d":
            return windows(x, layer, -np.inf).max(-1)
    if layer["type"] in CURVES:
        return CURVES[layer["type"]](x, layer)
    return moved(layer, terms)


def _convolution(layer: Layer, own: list[Array], x: Array) -> Array:
    groups = layer.get("groups", 1)
    found = windows(x, layer)  # [N, P, C, rows, columns, K]
    lead = (len(own[0]), found.shape[1], groups, -1)
    found = np.broadcast_to(found, (len(own[0]), *found.shape[1:])).reshape(*lead, *found.shape[3:])
    kernels = own[0].reshape(len(own[0]), groups, -1, found.shape[3], found.shape[-1])
    y = np.einsum("npgcrsk,ngock->npgors", found, kernels)
    y = y.reshape(*y.shape[:2], -1, *y.shape[4:])
    return y + own[1][:, None, :, None, None] if layer["bias"] else y


def moved(layer: Layer, terms: Sequence[Array]) -> Array:
    """Of layers without weights that are linear."""
    x = terms[0]
    match layer["type"]:
        case "Add":
            for term in terms[1:]:
                x = x + term
            return x
        case "Concat":
            count = max(len(term) for term in terms)
            wide = [np.broadcast_to(term, (count, *term.shape[1:])) for term in terms]
            return np.concatenate(wide, layer["axis"] + 2)
        case "Flatten":
            return x.reshape(*x.shape[:2], -1)
        case "Reshape":
            return x.reshape(*x.shape[:2], *layer["to"])
        case "Permute":
            return x.transpose(0, 1, *(axis + 2 for axis in layer["order"]))
        case "Take":
            return x.take(layer["indices"], layer["axis"] + 2)
    return np.pad(x, [(0, 0), (0, 0), *zip(layer["before"], layer["after"], strict=True)])


@dataclass(frozen=True)
class Net:
    """An architecture as files describe it."""

    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]

    @property
    def description(self) -> dict[str, Any]:
        return {"input_shape": list(self.input_shape), "layers": list(self.layers)}

    @property
    def reads(self) -> list[list[int]]:
        """For every layer the nodes that it reads: 0 is the input, k + 1 what layer k gives."""
        return [layer.get("reads", [k]) for k, layer in enumerate(self.layers)]

    @property
    def is_graph(self) -> bool:
        return any("reads" in layer for layer in self.layers)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of all nodes."""
        found = self.nodes(np.zeros((1, self.size)), np.zeros((1, *self.input_shape)))
        return [node.shape[2:] for node in found]

    @property
    def shapes_before(self) -> list[tuple[int, ...]]:
        """Of what every layer reads."""
        shapes = self.shapes
        return [shapes[nodes[0]] for nodes in self.reads]

    def reads_input(self, k: int, random: Sequence[bool]) -> bool:
        """Whether what layer k reads is the input, moved or scaled by certain weights at most."""
        (node, *others) = self.reads[k]
        while node > 0 and not others:
            kind = self.layers[node - 1]["type"]
            if kind not in MOVES and (kind != "Scale" or random[node - 1]):
                return False
            (node, *others) = self.reads[node - 1]
        return node == 0 and not others

    @property
    def size(self) -> int:
        return sum(map(own_size, self.layers))

    @property
    def tails(self) -> list[int]:
        """How many weights the last layers have, from each layer with weights on."""
        sizes = list(map(own_size, self.layers))
        return [sum(sizes[k:]) for k, size in enumerate(sizes) if size]

    def forward(self, weights: Array, x: Array) -> Array:
        """[N, P, outputs] of the networks [N, n] at the points [P, *input_shape]."""
        y = self.nodes(weights, x)[-1]
        return np.broadcast_to(y, (len(weights), *y.shape[1:]))

    def nodes(self, weights: Array, x: Array) -> list[Array]:
        """What every node holds, [N or 1, P, *shape]."""
        found, start = [x[None]], 0
        for layer, nodes in zip(self.layers, self.reads, strict=True):
            own = []
            for shape in parameters(layer):
                stop = start + math.prod(shape)
                own.append(weights[:, start:stop].reshape(len(weights), *shape))
                start = stop
            found.append(apply(layer, own, *(found[node] for node in nodes)))
        return found

    def named(self, flat: Array, name: str) -> dict[str, Array]:
        """Tensors of a field [n], or [k, n], as files name them; of fewer, those of the last
        weights."""
        found, start, i = {}, flat.shape[-1] - self.size, 0
        for layer in self.layers:
            for letter, shape in zip("Wb", parameters(layer), strict=False):
                stop = start + math.prod(shape)
                if start < 0:
                    start = stop
                    continue
                found[f"{letter}{i}_{name}"] = flat[..., start:stop].reshape(
                    *flat.shape[:-1], *shape
                )
                start = stop
            i += bool(parameters(layer))
        return found


def activation(r: Random, shape: tuple[int, ...] = ()) -> Layer:
    """Mostly of the plain ones; for a known shape perhaps with a slope for each entry."""
    if r.random() < 0.7:
        kind = pick(r, ["ReLU", "ReLU", "LeakyReLU", "Tanh", "Sigmoid"])
        own = {"slope": pick(r, [0.01, 0.3, 0.0])} if kind == "LeakyReLU" else {}
        return {"type": kind} | own
    kind = pick(r, [*CURVES][4:])
    options: dict[str, Any] = {name: pick(r, values) for name, values in OPTIONS.get(kind, ())}
    if kind == "Hardtanh":
        low, high = pick(r, [(-1.0, 1.0), (0.0, 6.0), (0.5, 2.0)])
        options = {"low": low, "high": high}
    if kind == "PReLU":
        own = [int(pick(r, [1, size])) for size in shape]
        slopes = r.choice([-0.5, 0.0, 0.25, 0.9, 1.5], math.prod(own)).tolist()
        options = {"slopes": slopes, "shape": own}
    return {"type": kind} | options


def _prelu(x: Array, layer: Layer) -> Array:
    return np.where(x > 0, x, x * np.reshape(layer["slopes"], layer["shape"]))


def _gelu(x: Array, layer: Layer) -> Array:
    if layer["approximate"] == "none":
        return x * ndtr(x)
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def _elu(x: Array, alpha: float, scale: float = 1.0) -> Array:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


CURVES: dict[str, Callable[[Array, Layer], Array]] = {
    "ReLU": lambda x, _: np.maximum(x, 0),
    "LeakyReLU": lambda x, layer: np.maximum(x, layer["slope"] * x),
    "Tanh": lambda x, _: np.tanh(x),
    "Sigmoid": lambda x, _: np.asarray(expit(x)),
    "PReLU": _prelu,
    "Hardtanh": lambda x, layer: np.clip(x, layer["low"], layer["high"]),
    "GELU": _gelu,
    "SiLU": lambda x, _: x * expit(x),
    "Mish": lambda x, _: x * np.tanh(np.logaddexp(0, x)),
    "Softplus": lambda x, layer: np.logaddexp(0, layer["beta"] * x) / layer["beta"],
    "ELU": lambda x, layer: _elu(x, layer["alpha"]),
    "SELU": lambda x, _: _elu(x, 1.6732632423543772848, 1.0507009873554804934),
    "HardSwish": lambda x, _: x * np.clip(x + 3, 0, 6) / 6,
    "Softsign": lambda x, _: x / (1 + np.abs(x)),
}
OPTIONS = {
    "GELU": [("approximate", ["none", "tanh"])],
    "Softplus": [("beta", [1.0, 5.0])],
    "ELU": [("alpha", [1.0, 0.4, 2.5])],
}


def random_chain(r: Random) -> Net:
    """Dense layers, with activations first, last, twice or not at all; or an image with windows."""
    if r.random() < 0.2:
        return _random_image(r)
    inputs = int(pick(r, [1, 1, 1, 2]))
    layers: list[Layer] = [activation(r)] if r.random() < 0.3 else []
    layers += [{"type": "Flatten"}] if r.random() < 0.2 else []
    width = inputs
    for _ in range(int(pick(r, [1, 2, 2, 3]))):
        outputs = int(pick(r, [1, 2, 3]))
        layers.append(
            {"type": "Dense", "inputs": width, "outputs": outputs, "bias": bool(r.random() < 0.7)}
        )
        layers += [activation(r) for _ in range(int(pick(r, [0, 1, 1, 1, 2])))]
        width = outputs
    return Net((inputs,), tuple(layers if r.random() < 0.3 else _without_last_activations(layers)))


def _without_last_activations(layers: list[Layer]) -> list[Layer]:
    while layers[-1]["type"] != "Dense":
        layers = layers[:-1]
    return layers


def _random_image(r: Random) -> Net:
    """1 x 2 x 1 pixels: a pool or an activation first, a convolution, another pool, a dense
    layer."""
    pool = {"type": pick(r, ["MaxPool2d", "AvgPool2d"]), "kernel": [1, 1], "stride": [1, 1]}
    layers: list[Layer] = [[], [activation(r)], [pool]][int(r.integers(3))]
    kernel = pick(r, [[1, 1], [2, 1]])
    conv = {
        "type": "Conv2d",
        "in_channels": 1,
        "out_channels": int(r.integers(1, 3)),
        "kernel": kernel,
    }
    conv |= {"stride": [1, 1], "padding": pick(r, [[0, 0], [1, 0]]), "bias": bool(r.random() < 0.5)}
    layers = [*layers, conv, *[activation(r)] * int(r.integers(2))]
    rows = Net((1, 2, 1), (*layers, {"type": "Flatten"})).shapes[-2][1]
    if rows > 1 and r.random() < 0.6:
        kind = pick(r, ["MaxPool2d", "AvgPool2d"])
        layers.append({"type": kind, "kernel": [2, 1], "stride": [pick(r, [1, 2]), 1]})
    layers.append({"type": "Flatten"})
    (width,) = Net((1, 2, 1), tuple(layers)).shapes[-1]
    layers.append(
        {"type": "Dense", "inputs": width, "outputs": int(pick(r, [1, 2, 3])), "bias": True}
    )
    return Net((1, 2, 1), tuple(layers))
