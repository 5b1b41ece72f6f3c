"""A proof by concentration as certificates hold it: a threshold, slopes of every activation, trees,
cuts of the region.

All of these are choices: whatever they are, what is computed from them holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.files import require_effort, require_room
from bnncert_check.functionals import way_of
from bnncert_check.grammar import Tensors, exact, flag, index, listed, members
from bnncert_check.layers import Activation, Layer
from bnncert_check.model import Model, Posterior
from bnncert_check.proofs import Proof
from bnncert_check.splits import Common, Tree, covers, repeats, splittable
from bnncert_check.verdict import CannotCheck, Rejected
from bnncert_check.weighted import Dense, Linear
from bnncert_check.wiring import Sum

FLAGS = ("layers_alone", "forward", "affine")  # of proofs: absent in those from before them
MOST_CUTS = 400  # one inside the other: eight coordinates, each halved as often as a float can be


@dataclass(frozen=True)
class Cut:
    """A region in two, where a coordinate is at most `at` and where it is at least that, each with
    a proof."""

    dimension: int
    at: float
    below: Divided
    above: Divided


Divided: TypeAlias = Proof | Cut


@dataclass(frozen=True)
class Asked:
    """What a proof is about, where its tensors are, and whether the input moves."""

    model: Model
    posterior: Posterior
    rows: int
    tensors: Tensors
    moving: bool = True

    def spend(self, steps: int, what: str) -> None:
        """Steps that a part of the proof would take, with all that was read before it."""
        self.tensors.steps += steps
        require_effort(self.tensors.steps, self.tensors.size + self.model.size, what)


def read_divided(value: Any, prefix: str, asked: Asked, left: int = MOST_CUTS) -> Divided:
    """A proof of a probability, or two of them; left: how often the region may be cut."""
    if type(value) is not dict or "at" not in value:
        return read_probability(value, prefix, asked)
    found = members(
        value, f"proof {prefix!r}", ("probability", "dimension", "at", "below", "above")
    )
    exact(found["probability"], f"the probability of {prefix!r}")
    if not left:
        raise CannotCheck("malformed", f"proof {prefix!r} cuts the region too often")
    inputs = asked.model.network.inputs
    cuts = MOST_CUTS - left + 1
    require_room(
        16 * inputs * cuts,
        asked.tensors.size + asked.model.size,
        f"{cuts} cuts, one inside the other,",
    )
    dimension = index(found["dimension"], f"the coordinate of {prefix!r}", inputs)
    at = exact(found["at"], f"the cut of {prefix!r}")
    below = read_divided(found["below"], f"{prefix}0", asked, left - 1)
    above = read_divided(found["above"], f"{prefix}1", asked, left - 1)
    return Cut(dimension, at, below, above)


def read_probability(value: Any, prefix: str, asked: Asked) -> Proof:
    """A proof of a probability, perhaps with trees; the probability that it was said to show is but
    a hint."""
    found = members(
        value,
        f"proof {prefix!r}",
        ("probability", "t", "rows_optimised"),
        (*FLAGS, "trees"),
    )
    exact(found["probability"], f"the probability of {prefix!r}")
    own = {name: part for name, part in found.items() if name not in ("probability", "trees")}
    proof = read_slopes(own, prefix, asked)
    return _with_trees(proof, found["trees"], prefix, asked) if "trees" in found else proof


def read_slopes(value: Any, prefix: str, asked: Asked) -> Proof:
    """Threshold and slopes, whatever they are as long as the theorem speaks of them."""
    found = members(value, f"proof {prefix!r}", ("t", "rows_optimised"), FLAGS)
    t = exact(found["t"], f"the threshold of {prefix!r}")
    optimised = flag(found["rows_optimised"], "rows_optimised")
    alone, forward, affine = (flag(found.get(name, False), name) for name in FLAGS)
    if not t > 0:
        raise Rejected("threshold-not-positive", f"the threshold of {prefix!r} is {t}")
    tensors, layers = asked.tensors, asked.model.layers
    activations = {layer.position: layer for layer in layers if isinstance(layer, Activation)}

    def slopes(name: str, layer: Activation, *rows: int) -> Array:
        named = f"{prefix}{name}_slopes{layer.position}"
        return _slopes(tensors, named, (*rows, layer.width), layer.traits.slopes)

    lower, upper = (
        {k: slopes(name, layer) for k, layer in activations.items()} for name in ("lower", "upper")
    )
    own = [k for k in activations if optimised and f"{prefix}row_slopes{k}" in tensors]
    rows = {k: slopes("row", activations[k], asked.rows) for k in own}
    named = {
        layer.position: f"{prefix}refined{layer.position}" for layer in layers if _has_flags(layer)
    }
    refined = {
        layer.position: _flags(tensors, named[layer.position], layer.outputs)
        for layer in layers
        if _has_flags(layer) and named[layer.position] in tensors
    }
    return Proof(t, lower, upper, rows, refined, alone, forward, affine)


def _has_flags(layer: Layer) -> TypeGuard[Linear | Sum]:
    """Whether some neurons may have rows of their own: of images that are linear or sums."""
    return isinstance(layer, Linear | Sum) and layer.is_image


def _with_trees(proof: Proof, value: Any, prefix: str, asked: Asked) -> Proof:
    """The proof with its leaves, which must cover the region."""
    total = sum(map(math.prod, splittable(asked.model.network).values()))
    numbered = _open(asked.tensors, f"{prefix}open", total)
    trees: dict[int, Tree] = {}
    for entry in listed(value, f"the trees of {prefix!r}"):
        tree = members(entry, f"a tree of {prefix!r}", ("row", "scale"))
        row = index(tree["row"], f"the row of a tree of {prefix!r}", asked.rows)
        if row in trees:
            raise CannotCheck("malformed", f"row {row} has two trees")
        trees[row] = _tree(tree["scale"], f"{prefix}tree{row}.", asked, len(numbered))
    return replace(proof, open=numbered, trees=trees)


def _slopes(
    tensors: Tensors,
    name: str,
    shape: tuple[int, ...],
    limits: tuple[float, float],
    dtype: str = "float64",
) -> Array:
    slopes = tensors.numbers(name, shape, dtype)
    least, most = limits
    if not ((slopes >= least) & (slopes <= most)).all():
        raise Rejected(
            "slope-out-of-range", f"tensor {name!r} holds a slope outside [{least:g}, {most:g}]"
        )
    return slopes


def _flags(tensors: Tensors, name: str, width: int) -> NDArray[np.bool_]:
    found = tensors.take(name, (width,), "int8")
    if not ((found == 0) | (found == 1)).all():
        raise CannotCheck("malformed", f"tensor {name!r} holds something else than 0 and 1")
    return np.asarray(found == 1, bool)


def _open(tensors: Tensors, name: str, total: int) -> NDArray[np.int64]:
    """The places that splits speak of, at least one, each once."""
    (count,) = tensors.shape(name, 1)
    numbered = tensors.take(name, (count,), "int32").astype(np.int64)
    within = ((numbered >= 0) & (numbered < total)).all() and count > 0
    if not within or len(np.unique(numbered)) < count:
        raise CannotCheck("malformed", f"tensor {name!r} does not number places, each once")
    return numbered


def _tree(scale: Any, prefix: str, asked: Asked, count: int) -> Tree:
    tensors = asked.tensors
    leaves, depth = tensors.shape(f"{prefix}paths", 2)
    paths = tensors.take(f"{prefix}paths", (leaves, depth), "int32").astype(np.int64)
    multipliers = tensors.numbers(f"{prefix}multipliers", (leaves, depth), "float32")
    slopes = _slopes(tensors, f"{prefix}slopes", (leaves, count), _limits(asked), "float32")
    if not (np.abs(paths) <= count).all():
        raise CannotCheck("malformed", f"tensor '{prefix}paths' splits places that are not listed")
    if not (multipliers >= 0).all():
        raise Rejected(
            "multiplier-negative", f"tensor '{prefix}multipliers' holds a number below 0"
        )
    if not covers(paths):
        raise Rejected(
            "leaves-do-not-cover", f"the leaves of {prefix!r} are not all the ends of a binary tree"
        )
    if repeats(paths):
        raise CannotCheck("malformed", f"a path of tensor '{prefix}paths' splits a place twice")
    return Tree(
        paths, multipliers, slopes, None if scale is None else _common(scale, prefix, asked)
    )


def _limits(asked: Asked) -> tuple[float, float]:
    """Of the slopes of all activations that may be split."""
    layers = [layer for layer in asked.model.layers if isinstance(layer, Activation)]
    return min(layer.traits.slopes[0] for layer in layers if layer.traits.kinks), 1.0


def _common(scale: Any, prefix: str, asked: Asked) -> Common:
    """The reference noise: a row for every random layer, and a centre but for that at the input."""
    value = exact(scale, f"the scale of {prefix!r}")
    if not value > 0:
        raise Rejected("threshold-not-positive", f"the scale of {prefix!r} is {value}")
    network = asked.model.network
    rows, centers = dict[int, Array](), dict[int, Array]()
    for i, layer in enumerate(network.layers):
        if not isinstance(layer, Linear) or not asked.posterior.is_random(layer):
            continue
        if not isinstance(layer, Dense) or asked.posterior.factors(layer) is not None:
            raise CannotCheck(
                "unsupported", "common noise is for independent weights of dense layers"
            )
        rows[layer.position] = asked.tensors.numbers(
            f"{prefix}rows{layer.position}", (layer.outputs,)
        )
        (node,) = network.reads[i]
        if way_of(network, asked.posterior, node) is None:
            centers[layer.position] = asked.tensors.numbers(
                f"{prefix}centers{layer.position}", (layer.inputs,)
            )
    return Common(value, rows, centers)
