"""The network and its posterior, read from a file."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.files import (
    Arrays,
    digest,
    read_npz,
    read_safetensors,
    reading,
    require_room,
    strict_json,
)
from bnncert_check.grammar import exact, listed, members, number, word
from bnncert_check.layers import Layer
from bnncert_check.network import Network, read_network
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Linear, Shape

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
SCALES = {"std", "scale"}  # a width; 0 marks a deterministic weight
STACKED = {"factor", "samples"}  # several numbers a weight
GAUSSIAN = ("normal", "low-rank-normal")
INDEPENDENT = ("normal", "uniform", "truncated-normal", "laplace", "student-t")
EMPIRICAL = ("empirical",)
NPZ_ACTIVATIONS: dict[str, dict[str, Any]] = {
    "relu": {"type": "ReLU"},
    "leaky_relu": {"type": "LeakyReLU", "slope": 0.01},
    "tanh": {"type": "Tanh"},
    "sigmoid": {"type": "Sigmoid"},
    "gelu": {"type": "GELU", "approximate": "none"},
    "gelu_tanh": {"type": "GELU", "approximate": "tanh"},
    "silu": {"type": "SiLU"},
    "mish": {"type": "Mish"},
    "softplus": {"type": "Softplus", "beta": 1.0},
    "elu": {"type": "ELU", "alpha": 1.0},
    "selu": {"type": "SELU"},
    "hardswish": {"type": "HardSwish"},
    "softsign": {"type": "Softsign"},
    "hardtanh": {"type": "Hardtanh", "low": -1.0, "high": 1.0},
    "relu6": {"type": "Hardtanh", "low": 0.0, "high": 6.0},
}
NOTHING, LAST = (
    "linear",
    "softmax",
)  # no activation; and none either, but at the end only: the logits decide
HELD = 16  # vectors of a node: its interval, slopes and lines
NEARLY = 1e-9  # that the weights of a mixture may miss 1 by; sums are divided by what they are


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
        return next(value for name, value in self.fields.items() if name in SCALES)

    def factors(self, layer: Linear) -> Array | None:
        """Of noise that the layer's weights share, [rank, *the layer's matrix]; None if there is
        none. A factor has rows for the last weights, from the first of a layer on."""
        factor = self.fields.get("factor")
        start = layer.start - self.first
        if factor is None or start < 0:
            return None
        own = replace(layer, start=start).matrix(factor.T)
        return own if own.any() else None

    def is_random(self, layer: Linear) -> bool:
        """Whether any weight of the layer is, of a Gaussian family."""
        return bool(layer.matrix(self.fields["std"]).any()) or self.factors(layer) is not None

    @property
    def first(self) -> int:
        """The first weight that the factor has a row for."""
        return len(self.center) - len(self.fields["factor"]) if "factor" in self.fields else 0

    @property
    def random(self) -> NDArray[np.bool_]:
        """Which weights have no atoms; one that is cut to a point is none of them."""
        wide = (
            self.fields["low"] < self.fields["high"]
            if "low" in self.fields
            else np.ones(len(self.center), bool)
        )
        return wide if self.family == "uniform" else wide & (self.spread > 0)


@dataclass(frozen=True)
class Component:
    """A part of the posterior, with its weight."""

    weight: float
    posterior: Posterior


@dataclass(frozen=True)
class Column:
    """What a number of the network was measured as: mean + std · number."""

    mean: float
    std: float

    def measured(self, value: float) -> float:
        return self.mean + self.std * value


@dataclass(frozen=True)
class Model:
    """The network, and its posterior as components: one of weight 1, or several Gaussian ones of a
    mixture."""

    network: Network
    components: tuple[Component, ...]
    architecture_digest: str
    posterior_digest: str
    family: str = "normal"  # or "mixture"
    size: int = 0  # of the file, in bytes
    features: tuple[Column, ...] = ()  # of the inputs; none where they are taken as they are
    units: tuple[Column, ...] = ()  # of the outputs

    @property
    def weights(self) -> int:
        return int(self.components[0].posterior.center.shape[-1])  # samples are [S, n]

    @property
    def input_shape(self) -> Shape:
        return self.network.input_shape

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.network.layers

    @property
    def outputs(self) -> int:
        return self.network.outputs

    def all_of(self, families: Collection[str], what: str) -> tuple[Component, ...]:
        """The components, if every one of them is of these families."""
        for component in self.components:
            if component.posterior.family not in families:
                family = component.posterior.family
                raise CannotCheck(
                    "unsupported",
                    f"{what} is for {', '.join(families)} posteriors, not for {family}",
                )
        return self.components

    def only(self, families: Collection[str], what: str) -> Posterior:
        """The posterior, if it is no mixture and of these families."""
        first, *others = self.all_of(families, what)
        if others:
            raise CannotCheck("unsupported", f"{what} is not for mixtures")
        return first.posterior

    def require_room(self, size: int) -> None:
        """Refuse layers much wider than the files that ask for them; size: of the certificate,
        which holds an input."""
        for layer in self.layers:
            require_room(8 * layer.held, self.size + size, f"a layer of {layer.outputs} neurons")
        require_room(8 * self.network.held, self.size + size, "a row on all nodes that wait")
        require_room(
            8 * HELD * sum(self.network.widths), self.size + size, f"{len(self.layers)} layers"
        )


def read_model(path: Path) -> Model:
    """The posterior in a `.safetensors` (native) or `.npz` file."""
    with reading(f"posterior {str(path)!r} is malformed", "malformed"):
        return _from_npz(path) if path.suffix == ".npz" else _from_native(path)


def _from_native(path: Path) -> Model:
    file = read_safetensors(path, SCHEMA)
    mixture = file.header.get("family") == "mixture"
    names = ("schema", "network", "family", *(("weights", "components") if mixture else ()))
    header = members(file.header, "the posterior's header", names, ("notes", "standardisation"))
    network = read_network(header["network"])
    layers, left = network.layers, dict(file.arrays)
    if mixture:
        components = _mixture(header, layers, left)
        digests = [component.posterior.digest for component in components]
        weights = [component.weight.hex() for component in components]
        own = digest({"family": "mixture", "weights": weights, "components": digests})
    else:
        components = (Component(1.0, _posterior(header["family"], layers, left, "")),)
        own = components[0].posterior.digest
    for name in left:
        raise CannotCheck(
            "malformed", f"the posterior has a tensor {name!r}, which is not part of the format"
        )
    columns = _standardisation(header.get("standardisation"), network)
    about = digest(header["network"]), own, header["family"], file.size
    return Model(network, components, *about, *columns)


def _standardisation(
    described: Any, network: Network
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """The columns of inputs and of outputs, where the posterior says by what they were
    standardised: one for each number that goes in or comes out, or none."""
    if described is None:
        return (), ()
    where = "the standardisation"
    found = members(described, where, ("inputs", "outputs"))
    counts = {"inputs": math.prod(network.input_shape), "outputs": network.outputs}
    columns = {name: [_column(part) for part in listed(found[name], where)] for name in counts}
    for name, count in counts.items():
        if len(columns[name]) not in (0, count):
            raise CannotCheck("malformed", f"{where} is of {len(columns[name])} {name}")
    return tuple(columns["inputs"]), tuple(columns["outputs"])


def _column(described: Any) -> Column:
    where = "a column of the standardisation"
    found = members(described, where, ("name", "mean", "std"))
    word(found["name"], f"the name of {where}")
    mean = number(found["mean"], f"the mean of {where}")
    return Column(mean, number(found["std"], f"the std of {where}", math.ulp(0.0)))


def _mixture(
    header: dict[str, Any], layers: tuple[Layer, ...], left: Arrays
) -> tuple[Component, ...]:
    weights = [
        exact(weight, "a mixture's weight")
        for weight in listed(header["weights"], "the mixture's weights")
    ]
    parts = listed(header["components"], "the mixture's components", len(weights))
    if not weights or not min(weights) >= 0 or not abs(math.fsum(weights) - 1) <= NEARLY:
        raise CannotCheck("malformed", "the mixture's weights are not probabilities")
    components = []
    for i, (weight, part) in enumerate(zip(weights, parts, strict=True)):
        family = word(
            members(part, f"component {i}", ("family",))["family"], f"the family of component {i}"
        )
        if family not in GAUSSIAN:
            raise CannotCheck(
                "unsupported", f"component {i} is {family[:40]!r}; mixtures are of Gaussians"
            )
        components.append(Component(weight, _posterior(family, layers, left, f"{i}.")))
    return tuple(components)


def _posterior(family: Any, layers: tuple[Layer, ...], left: Arrays, prefix: str) -> Posterior:
    """The posterior of a family; its tensors are taken out of those that are left."""
    if type(family) is not str or family not in FIELDS:
        raise CannotCheck("unsupported", f"posterior family {str(family)[:40]!r} is not known")
    fields = {field: _gather(layers, left, prefix, field) for field in FIELDS[family]}
    scales = [value for name, value in fields.items() if name in SCALES]
    ordered = "low" not in fields or bool((fields["low"] <= fields["high"]).all())
    if (
        not ordered
        or not all((scale >= 0).all() for scale in scales)
        or not (fields.get("df", np.ones(1)) > 0).all()
    ):
        raise CannotCheck(
            "malformed", f"the {family} posterior has a negative scale or an empty interval"
        )
    return Posterior(family, fields)


def _gather(layers: tuple[Layer, ...], left: Arrays, prefix: str, field: str) -> Array:
    """One field of all weights as a flat vector [n], a factor as [n, k], samples as [S, n]."""
    weighted = [layer for layer in layers if isinstance(layer, Linear) and layer.parameters]
    first = _first(len(weighted), left, prefix, field)
    count = _stacked(left, f"{prefix}W{first}_{field}", field)
    parts: list[Array] = []
    for i, layer in enumerate(weighted[first:], first):
        for letter, shape in layer.parameters.items():
            part = _numbers(left, f"{prefix}{letter}{i}_{field}", (*count, *shape))
            parts.append(part.reshape(*count, math.prod(shape)))
    joined = np.concatenate(parts, -1)
    return np.ascontiguousarray(joined.T) if field == "factor" else joined


def _first(layers: int, left: Arrays, prefix: str, field: str) -> int:
    """The first layer with numbers: of a factor, which the last ones alone may have, the first that
    has any."""
    present = (i for i in range(layers) if f"{prefix}W{i}_{field}" in left)
    return next(present, 0) if field == "factor" else 0


def _stacked(left: Arrays, name: str, field: str) -> tuple[int, ...]:
    """How many samples there are, at least one, or shared factors; nothing for one number a
    weight."""
    if field not in STACKED:
        return ()
    count = left[name].shape[0] if name in left and left[name].ndim else 0
    if field == "samples" and count == 0:
        raise CannotCheck("malformed", f"tensor {name!r} holds no sample")
    return (count,)


def _numbers(left: Arrays, name: str, shape: tuple[int, ...]) -> Array:
    """A finite array of the given shape, taken out of those that are left, as float64."""
    value = left.pop(name, None)
    if value is None or value.shape != shape or not np.issubdtype(value.dtype, np.floating):
        raise CannotCheck(
            "malformed", f"tensor {name!r} is missing or not numbers of shape {shape}"
        )
    array = value.astype(np.float64)
    if not np.isfinite(array).all():
        raise CannotCheck("malformed", f"tensor {name!r} holds NaN or infinity")
    return array


def _from_npz(path: Path) -> Model:
    """W{i}_mean [in, out], b{i}_mean, W{i}_std, b{i}_std; ReLU between the layers unless `meta`
    names activations."""
    arrays, size = read_npz(path)
    names = _activations(arrays)
    described: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        weights = arrays.get(f"W{i}_mean")
        if weights is None or weights.ndim != 2:
            raise CannotCheck("malformed", f"array 'W{i}_mean' is missing or not a matrix")
        inputs, outputs = weights.shape
        described.append(
            {"type": "Dense", "inputs": inputs, "outputs": outputs, "bias": f"b{i}_mean" in arrays}
        )
        if name in NPZ_ACTIVATIONS:
            described.append(dict(NPZ_ACTIVATIONS[name]))
    architecture = {"input_shape": [described[0]["inputs"]], "layers": described}
    network = read_network(architecture)
    posterior = _posterior("normal", network.layers, arrays, "")
    for name in arrays:
        raise CannotCheck("malformed", f"array {name!r} belongs to no layer")
    parts, digests = (Component(1.0, posterior),), (digest(architecture), posterior.digest)
    return Model(network, parts, *digests, posterior.family, size)


def _activations(arrays: Arrays) -> list[str]:
    """One for each layer; a softmax may come last, where it changes nothing that is asked about the
    logits."""
    depth = sum(name.startswith("W") and name.endswith("_mean") for name in arrays)
    if not depth:
        raise CannotCheck("malformed", "there is no array 'W0_mean'")
    meta = arrays.pop("meta", None)
    if meta is not None and (meta.ndim or meta.dtype.kind != "U"):
        raise CannotCheck("malformed", "meta is not text")
    with reading("meta is not JSON", "malformed"):
        said = {} if meta is None else strict_json(str(meta))
    if type(said) is not dict:
        raise CannotCheck("malformed", "meta is not an object")
    names = listed(
        said.get("activations", ["relu"] * (depth - 1) + [NOTHING]), "the activations", depth
    )
    for i, name in enumerate(names):
        last = (LAST,) if i == depth - 1 else ()
        word(name, f"activation {i}", (*NPZ_ACTIVATIONS, NOTHING, *last))
    return names
