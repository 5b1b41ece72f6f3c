"""A certificate on the desk, sealed with the right digests, and what is true of its question."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from bnncert_check.files import digest
from forger.laws import Posterior
from forger.nets import Array, Net

POINTS = {1: 33, 2: 9}  # of the region, by its dimensions


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
            if name.endswith(("point", "points", "law.center"))
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
                shares += weight * np.tensordot(flat, values, 1)
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
