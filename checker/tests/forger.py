"""An adversary of the checker: random evidence of every kind for random tiny networks, with the
right digests.

Nothing here comes from the prover. A network is so small, and so few of its weights are random,
that what is asked can be integrated: over a grid of the one or two coordinates that are random, or
over a list of networks. Evidence is drawn at random, seldom sensible, sometimes broken on purpose;
whatever the checker then says is supported must be true.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy import stats
from scipy.special import expit

from bnncert_check.files import digest

Array: TypeAlias = NDArray[Any]
Random: TypeAlias = np.random.Generator
Layer: TypeAlias = dict[str, Any]

NODES = {1: 2001, 2: 121}  # of the grid, by random coordinates
REACH = 7.0  # of the grid, in standard deviations of a Gaussian that is mapped to the law
POINTS = {1: 33, 2: 9}  # of the region, by its dimensions
FIELDS = {
    "normal": ("mean", "std"),
    "uniform": ("low", "high"),
    "truncated-normal": ("mean", "std", "low", "high"),
    "laplace": ("loc", "scale"),
    "student-t": ("loc", "scale", "df"),
    "low-rank-normal": ("mean", "std", "factor"),
    "empirical": ("samples",),
}
BOXED = ("normal", "uniform", "truncated-normal", "laplace", "student-t")


def pick(r: Random, values: Sequence[Any]) -> Any:
    return values[int(r.integers(len(values)))]


# ---- networks ------------------------------------------------------------------------------------


def parameters(layer: Layer) -> list[tuple[int, ...]]:
    match layer["type"]:
        case "Dense":
            return [(layer["inputs"], layer["outputs"])] + [(layer["outputs"],)] * layer["bias"]
        case "Conv2d":
            shape = (layer["out_channels"], layer["in_channels"], *layer["kernel"])
            return [shape] + [(layer["out_channels"],)] * layer["bias"]
    return []


def windows(x: Array, layer: Layer, padding: Sequence[int] = (0, 0)) -> Array:
    """[..., channels, rows, columns, entries of a window]"""
    (kr, kc), (sr, sc), (pr, pc) = layer["kernel"], layer["stride"], padding
    padded = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(pr, pr), (pc, pc)])
    rows, columns = (padded.shape[-2] - kr) // sr + 1, (padded.shape[-1] - kc) // sc + 1
    parts = [
        padded[..., i : i + sr * (rows - 1) + 1 : sr, j : j + sc * (columns - 1) + 1 : sc]
        for i, j in product(range(kr), range(kc))
    ]
    return np.stack(parts, -1)


def apply(layer: Layer, own: list[Array], x: Array) -> Array:
    """The layer at x [N or 1, P, *shape], with parameters [N, ...]."""
    match layer["type"]:
        case "Flatten":
            return x.reshape(*x.shape[:2], -1)
        case "Dense":
            y = np.einsum("npi,nio->npo", np.broadcast_to(x, (len(own[0]), *x.shape[1:])), own[0])
            return y + own[1][:, None] if layer["bias"] else y
        case "Conv2d":
            found = windows(x, layer, layer["padding"])  # [N, P, C, rows, columns, K]
            found = np.broadcast_to(found, (len(own[0]), *found.shape[1:]))
            y = np.einsum("npcrsk,nock->npors", found, own[0].reshape(*own[0].shape[:3], -1))
            return y + own[1][:, None, :, None, None] if layer["bias"] else y
        case "AvgPool2d":
            return windows(x, layer).mean(-1)
        case "MaxPool2d":
            return windows(x, layer).max(-1)
        case "ReLU":
            return np.maximum(x, 0)
        case "LeakyReLU":
            return np.maximum(x, layer["slope"] * x)
        case "Tanh":
            return np.tanh(x)
    return np.asarray(expit(x))


@dataclass(frozen=True)
class Net:
    """An architecture as files describe it."""

    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]

    @property
    def description(self) -> dict[str, Any]:
        return {"input_shape": list(self.input_shape), "layers": list(self.layers)}

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Before every layer, and at the end."""
        found, x = [self.input_shape], np.zeros((1, 1, *self.input_shape))
        for layer in self.layers:
            x = apply(layer, [np.zeros((1, *shape)) for shape in parameters(layer)], x)
            found.append(x.shape[2:])
        return found

    @property
    def size(self) -> int:
        return sum(math.prod(shape) for layer in self.layers for shape in parameters(layer))

    def forward(self, weights: Array, x: Array) -> Array:
        """[N, P, outputs] of the networks [N, n] at the points [P, *input_shape]."""
        x, start = x[None], 0
        for layer in self.layers:
            own = []
            for shape in parameters(layer):
                stop = start + math.prod(shape)
                own.append(weights[:, start:stop].reshape(len(weights), *shape))
                start = stop
            x = apply(layer, own, x)
        return np.broadcast_to(x, (len(weights), *x.shape[1:]))

    def named(self, flat: Array, name: str) -> dict[str, Array]:
        """Tensors of a field [n], or [k, n], as files name them."""
        found, start, i = {}, 0, 0
        for layer in self.layers:
            for letter, shape in zip("Wb", parameters(layer), strict=False):
                stop = start + math.prod(shape)
                found[f"{letter}{i}_{name}"] = flat[..., start:stop].reshape(
                    *flat.shape[:-1], *shape
                )
                start = stop
            i += bool(parameters(layer))
        return found


def activation(r: Random) -> Layer:
    kind = pick(r, ["ReLU", "ReLU", "LeakyReLU", "Tanh", "Sigmoid"])
    return {"type": kind} | ({"slope": pick(r, [0.01, 0.3, 0.0])} if kind == "LeakyReLU" else {})


def random_net(r: Random) -> Net:
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


# ---- posteriors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Law:
    """A family over the flat weights: fields [n], a factor [n, k], samples [S, n]."""

    family: str
    fields: dict[str, Array]

    @property
    def digest(self) -> str:
        return digest({"family": self.family, "tensors": list(self.fields)}, self.fields.values())

    @property
    def spread(self) -> Array:
        if self.family == "uniform":
            return (self.fields["high"] - self.fields["low"]) / 2
        return self.fields.get("std", self.fields.get("scale"))

    @property
    def center(self) -> Array:
        match self.family:
            case "uniform":
                return self.fields["low"] + self.spread
            case "truncated-normal":
                return np.clip(self.fields["mean"], self.fields["low"], self.fields["high"])
            case "empirical":
                return self.fields["samples"][0]
        return next(iter(self.fields.values()))

    def grid(self) -> tuple[Array, Array]:
        """Weights [*grid, n] and their probabilities [*grid]."""
        if self.family == "empirical":
            count = len(self.fields["samples"])
            return self.fields["samples"], np.full(count, 1 / count)
        directions, sides = self._coordinates()
        if not directions:
            return self.center[None], np.ones(1)
        nodes = [_cells(law, NODES[len(directions)]) for law in sides]
        mesh = np.meshgrid(*(values for values, _ in nodes), indexing="ij")
        probabilities = np.ones(())
        for _, masses in nodes:
            probabilities = np.multiply.outer(probabilities, masses)
        weights = self.base + sum(
            value[..., None] * direction for value, direction in zip(mesh, directions, strict=True)
        )
        return weights, probabilities

    @property
    def base(self) -> Array:
        """The weights that are not random, the others at 0 (or, of Gaussians, at their means)."""
        if self.family in ("normal", "low-rank-normal"):
            return self.fields["mean"]
        return np.where(self.spread > 0, 0.0, self.center)

    def _coordinates(self) -> tuple[list[Array], list[Any]]:
        """Directions in weight space that are independently random, and their laws."""
        unit = np.eye(len(self.center))
        random = np.flatnonzero(self.spread > 0)
        if self.family in ("normal", "low-rank-normal"):
            directions = [self.fields["std"][i] * unit[i] for i in random]
            directions += [
                column for column in self.fields.get("factor", np.zeros((1, 0))).T if column.any()
            ]
            return directions, [stats.norm()] * len(directions)
        laws = {
            "uniform": lambda low, high: stats.uniform(low, high - low),
            "laplace": stats.laplace,
            "student-t": lambda loc, scale, df: stats.t(df, loc, scale),
            "truncated-normal": lambda mean, std, low, high: stats.truncnorm(
                (low - mean) / std, (high - mean) / std, mean, std
            ),
        }
        return [unit[i] for i in random], [
            laws[self.family](*(float(value[i]) for value in self.fields.values())) for i in random
        ]


def _cells(law: Any, count: int) -> tuple[Array, Array]:
    """Middles and masses of cells that hold nearly everything; they are narrow in the tails too."""
    ends = np.linspace(-REACH, REACH, count + 1)
    masses = np.diff(stats.norm.cdf(ends))
    middles = (ends[1:] + ends[:-1]) / 2
    found = np.where(middles < 0, law.ppf(stats.norm.cdf(middles)), law.isf(stats.norm.sf(middles)))
    return found, masses / masses.sum()


@dataclass(frozen=True)
class Posterior:
    """One law, or a mixture."""

    weights: tuple[float, ...]
    laws: tuple[Law, ...]
    mixture: bool

    @property
    def families(self) -> set[str]:
        return {law.family for law in self.laws}

    @property
    def digest(self) -> str:
        if not self.mixture:
            return self.laws[0].digest
        parts = [law.digest for law in self.laws]
        return digest(
            {"family": "mixture", "weights": [w.hex() for w in self.weights], "components": parts}
        )

    def content(self, net: Net) -> bytes:
        """The native file."""
        header: dict[str, Any] = {"schema": "bnncert-posterior/1", "network": net.description}
        if self.mixture:
            header |= {"family": "mixture", "weights": [w.hex() for w in self.weights]}
            header["components"] = [{"family": law.family} for law in self.laws]
        else:
            header["family"] = self.laws[0].family
        tensors: dict[str, Array] = {}
        for i, law in enumerate(self.laws):
            for name, value in law.fields.items():
                named = net.named(value.T if name == "factor" else value, name)
                tensors |= {
                    (f"{i}." if self.mixture else "") + key: part for key, part in named.items()
                }
        return bytes(
            save(
                {k: np.ascontiguousarray(v) for k, v in tensors.items()},
                {"bnncert": json.dumps(header)},
            )
        )


def random_law(r: Random, size: int, family: str, random: int = 2) -> Law:
    """With at most `random` coordinates that are random; spreads from tiny to huge."""
    mean = r.normal(0, 1, size) * pick(r, [1, 1, 2])
    std = np.zeros(size)
    chosen = r.permutation(size)[:random]
    std[chosen] = 10 ** r.uniform(-3, 0.7, len(chosen))
    match family:
        case "empirical":
            return Law(family, {"samples": r.normal(0, 1, (int(r.integers(1, 6)), size))})
        case "low-rank-normal":
            rank = int(r.integers(0, random + 1))
            std[chosen[rank:]] *= r.random(len(chosen[rank:])) < 0.7
            std[chosen[:rank]] = 0
            keep = max(0, random - int((std > 0).sum()))
            factor = r.normal(0, 1, (size, min(rank, keep))) * 10 ** r.uniform(-2, 0)
            return Law(family, {"mean": mean, "std": std, "factor": factor})
        case "normal":
            return Law(family, {"mean": mean, "std": std})
        case "uniform":
            return Law(family, {"low": mean - std, "high": mean + std})
        case "truncated-normal":
            return Law(
                family,
                {
                    "mean": mean,
                    "std": std,
                    "low": mean - r.random(size),
                    "high": mean + r.random(size),
                },
            )
        case "laplace":
            return Law(family, {"loc": mean, "scale": std})
    return Law(family, {"loc": mean, "scale": std, "df": r.uniform(1, 8, size)})


def random_posterior(r: Random, size: int) -> Posterior:
    """Of any family, or a mixture, also of families that mixtures are not for."""
    if r.random() < 0.2:
        count = int(r.integers(1, 4))
        weights = r.dirichlet(np.ones(count))
        families = [pick(r, ["normal", "normal", "low-rank-normal", *(["empirical"] if r.random() < 0.2 else [])])
                    for _ in range(count)]  # fmt: skip
        laws = tuple(random_law(r, size, family, 1) for family in families)
        return Posterior(tuple(weights.tolist()), laws, mixture=True)
    family = pick(r, ["normal", "normal", "normal", "low-rank-normal", "empirical", *BOXED[1:]])
    return Posterior(
        (1.0,), (random_law(r, size, family, int(pick(r, [0, 1, 1, 2]))),), mixture=False
    )


# ---- questions and what is true of them ----------------------------------------------------------


@dataclass
class Forgery:
    """A certificate on the desk: its header and tensors, about a network and a posterior."""

    net: Net
    posterior: Posterior
    header: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)

    def seal(self) -> bytes:
        """The file with the digests of what it holds, as far as that can be made."""
        region = self.header["region"]
        arrays = [self.tensors["x"][None]]
        if region["norm"] == "box":
            arrays += [self.tensors["lower"][None], self.tensors["upper"][None]]
        else:
            arrays.append(np.array([float.fromhex(region["eps"])]))
        arrays += [self.tensors["rows"][None], self.tensors["offsets"][None]]
        clip = region["clip"]
        parts = [digest(self.net.description), self.posterior.digest]
        parts.append(
            digest({"norm": region["norm"], "clip": clip and list(map(float, clip))}, arrays)
        )
        names = ("architecture", "posterior", "specification", "problem")
        self.header["digests"] = dict(zip(names, [*parts, digest(parts)], strict=True))
        tensors = {name: np.ascontiguousarray(value) for name, value in self.tensors.items()}
        return bytes(save(tensors, {"bnncert": json.dumps(self.header)}))

    def points(self) -> Array:
        """Points of the region [P, *shape], and those that the evidence names, as far as they lie
        in it."""
        region, x = self.header["region"], self.tensors["x"].reshape(-1)
        clip = region["clip"] or (-math.inf, math.inf)
        if region["norm"] == "box":
            low, high = (self.tensors[name].reshape(-1) for name in ("lower", "upper"))
            inside: Callable[[Array], Array] = lambda p: ((p >= low) & (p <= high)).all(-1)  # noqa: E731
        else:
            eps = float.fromhex(region["eps"])
            order = {"linf": math.inf, "l2": 2, "l1": 1}[region["norm"]]
            low, high = np.clip(x - eps, *clip), np.clip(x + eps, *clip)
            inside = lambda p: (  # noqa: E731
                (np.linalg.norm(p - x, order, -1) <= eps)
                & ((p >= clip[0]) & (p <= clip[1])).all(-1)
            )
        axes = [np.linspace(l, u, POINTS[len(x)]) for l, u in zip(low, high, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(x))
        named = [
            v.reshape(-1, len(x))
            for name, v in self.tensors.items()
            if name.endswith(("point", "points"))
        ]
        found = np.concatenate([grid, x[None], *named])
        return found[inside(found)].reshape(-1, *self.net.input_shape)

    def p_safe(self) -> tuple[float, float]:
        """P_safe, of the points that were looked at, and what the grid may be wrong by."""
        return self._integral(self._safe, sharp=True)

    def _safe(self, outputs: Array) -> Array:
        margins = outputs @ self.tensors["rows"].T + self.tensors["offsets"]
        return (margins > 0).all((-1, -2)).astype(float)

    def predictive(self) -> tuple[Array, Array, float]:
        """Of the label's softmax, or of the first row's mean, at every point [P]: the mean, the
        gap, and an error."""
        rows, points = self.tensors["rows"], self.points()
        softmax = self.header["kind"] == "softmax"
        total, gap, error = np.zeros(len(points)), np.zeros(len(points)), 0.0
        label = int(rows[0].argmax())
        shares: Array = np.zeros((len(points), rows.shape[1]))
        for weight, law in zip(self.posterior.weights, self.posterior.laws, strict=True):
            weights, probabilities = law.grid()
            outputs = self.net.forward(weights.reshape(-1, weights.shape[-1]), points)
            flat = probabilities.reshape(-1)
            if softmax:
                exponentials = np.exp(outputs - outputs.max(-1, keepdims=True))
                values = exponentials / exponentials.sum(-1, keepdims=True)
                shares += weight * np.einsum("n,npo->po", flat, values)
                size = 1.0
            else:
                values = outputs @ rows[0]
                total += weight * flat @ values
                size = float(np.sqrt((flat @ values**2).max())) if len(values) else 0.0
            if law.family != "empirical":
                error += weight * size * (2e-3 if probabilities.ndim == 2 else 1e-4)
        if softmax:
            total = shares[:, label]
            rest = np.delete(shares, label, 1)
            gap = total - rest.max(-1)
        return total, gap, error + 1e-9

    def _integral(self, value: Callable[[Array], Array], sharp: bool) -> tuple[float, float]:
        points, total, error = self.points(), 0.0, 1e-9
        for weight, law in zip(self.posterior.weights, self.posterior.laws, strict=True):
            weights, probabilities = law.grid()
            shape = probabilities.shape
            flat = weights.reshape(-1, weights.shape[-1])
            parts = np.array_split(flat, min(8, len(flat)))
            found = np.concatenate(
                [value(self.net.forward(part, points)) for part in parts]
            ).reshape(shape)
            total += weight * float((found * probabilities).sum())
            if sharp and law.family != "empirical":
                error += weight * (float(probabilities[_uneven(found)].sum()) + 1e-11)
        return total / sum(self.posterior.weights), error


def _uneven(found: Array) -> Array:
    """Cells beside which the answer changes."""
    changes = np.zeros(found.shape, bool)
    for axis in range(found.ndim):
        if found.shape[axis] > 1:
            step = np.diff(found, axis=axis) != 0
            first = [slice(None)] * found.ndim
            second = list(first)
            first[axis], second[axis] = slice(None, -1), slice(1, None)
            changes[tuple(first)] |= step
            changes[tuple(second)] |= step
    return changes


def write(path: Path, content: bytes) -> Path:
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    return path
