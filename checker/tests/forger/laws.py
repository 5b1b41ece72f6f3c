"""Random posteriors of every family, and their mass on a grid."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import save
from scipy import stats

from bnncert_check.files import digest
from forger.nets import Array, Net, Random, own_size, pick

NODES = {1: 2001, 2: 121}  # of the grid, by random coordinates
REACH = 7.0  # of the grid, in standard deviations of a Gaussian that is mapped to the law
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
    def shared(self) -> Array:
        """The factor [n, k], with rows of zeros where it has none."""
        factor = self.fields.get("factor", np.zeros((0, 0)))
        return np.pad(factor, ((len(self.center) - len(factor), 0), (0, 0)))

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

    def random_layers(self, net: Net) -> list[bool]:
        """Whether any weight of each layer is, of a Gaussian family."""
        noise = self.fields.get("std", np.zeros(net.size)) + np.abs(self.shared).sum(1)
        ends = np.cumsum([own_size(layer) for layer in net.layers])[:-1]
        return [bool(own.any()) for own in np.split(noise, ends)]

    def grid(self) -> tuple[Array, Array]:
        """Weights [*grid, n] and their probabilities [*grid]."""
        if self.family == "empirical":
            count = len(self.fields["samples"])
            return self.fields["samples"], np.full(count, 1 / count)
        directions, sides = self._coordinates()
        if not directions:
            return self.center[None], np.ones(1)
        nodes = [_middles(law, NODES[len(directions)]) for law in sides]
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
            directions += [column for column in self.shared.T if column.any()]
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


def _middles(law: Any, count: int) -> tuple[Array, Array]:
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


def random_law(r: Random, net: Net, family: str, random: int = 2) -> Law:
    """With at most `random` coordinates that are random, now and then of the last layer alone;
    spreads from tiny to huge."""
    size = net.size
    mean = r.normal(0, 1, size) * pick(r, [1, 1, 2])
    std = np.zeros(size)
    last = min(net.tails, default=size) if r.random() < 0.3 else size
    chosen = size - 1 - r.permutation(last)[:random]
    std[chosen] = 10 ** r.uniform(-3, 0.7, len(chosen))
    match family:
        case "empirical":
            return Law(family, {"samples": r.normal(0, 1, (int(r.integers(1, 6)), size))})
        case "low-rank-normal":
            rank = int(r.integers(0, random + 1))
            std[chosen[rank:]] *= r.random(len(chosen[rank:])) < 0.7
            std[chosen[:rank]] = 0
            keep = max(0, random - int((std > 0).sum()))
            shared = size if r.random() < 0.5 else int(pick(r, net.tails))
            factor = r.normal(0, 1, (shared, min(rank, keep))) * 10 ** r.uniform(-2, 0)
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


def _unfit(r: Random) -> list[str]:
    """Now and then a family that mixtures are not for."""
    return ["empirical"] if r.random() < 0.2 else []


def random_posterior(r: Random, net: Net) -> Posterior:
    """Of any family, or a mixture, also of families that mixtures are not for."""
    if r.random() < 0.2:
        count = int(r.integers(1, 4))
        weights = r.dirichlet(np.ones(count))
        families = [
            pick(r, ["normal", "normal", "low-rank-normal", *_unfit(r)]) for _ in range(count)
        ]
        laws = tuple(random_law(r, net, family, 1) for family in families)
        return Posterior(tuple(weights.tolist()), laws, mixture=True)
    family = pick(r, ["normal", "normal", "normal", "low-rank-normal", "empirical", *BOXED[1:]])
    return Posterior(
        (1.0,), (random_law(r, net, family, int(pick(r, [0, 1, 1, 2]))),), mixture=False
    )
