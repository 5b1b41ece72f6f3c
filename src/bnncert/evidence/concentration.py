"""Evidence of kind `concentration`: for each Gaussian component a proof on the region, and one at a
point.

A proof is a threshold and slopes, and may have trees of branch and bound or cut the region in two;
or it is the law of every row.
Its tensors are named by a prefix (`c0.`, `c0.upper.`, `c0.01` for a half of a half), what they
hold, and the position of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bnncert.evidence.correlated import CORRELATED, Correlated, read_correlated, write_correlated
from bnncert.evidence.deep import DEEP, Deep, read_deep, write_deep
from bnncert.evidence.joint import JOINT, Joint, read_joint, write_joint
from bnncert.evidence.laws import (
    LAW,
    AnchorLaw,
    Fall,
    Law,
    LineLaw,
    ReplyLaw,
    read_fall,
    read_law,
    write_fall,
    write_law,
)
from bnncert.evidence.written import Tensors, Written

KIND = "concentration"
COMPONENTS, WEIGHT, LOWER, UPPER = "components", "weight", "lower", "upper"
ROW, FAILURE, POINT, OPPOSITE, BOTH = "row", "failure", "point", "opposite", "both"
PROBABILITY, THRESHOLD, OPTIMISED, TREES = "probability", "t", "rows_optimised", "trees"
ALONE = "layers_alone"
DIMENSION, AT, BELOW, ABOVE = "dimension", "at", "below", "above"
SCALE, OPEN = "scale", "open"
HALVES = {BELOW: "0", ABOVE: "1"}
SLOPES = ("lower_slopes", "upper_slopes", "row_slopes")  # tensors and fields of a proof alike
LEAVES = ("paths", "multipliers", "slopes")  # of a tree
REFERENCE = ("rows", "centers")  # of common noise
REFINED = "refined"
STATED = ("forward", "affine")  # keys and fields of a proof alike, written where they are true


@dataclass(frozen=True, eq=False)
class Common:
    """What the common-noise bound chose: λ, and by random layer the reference's rows, centres."""

    scale: float
    rows: dict[int, Tensor]
    centers: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class Tree:
    """Leaves ℓ that cover an input's region for one row: their splits, multipliers, lower slopes.

    paths [leaves, depth]: k or -k where the next split says z >= c or z <= c at the k-th open
    place, from 1; 0 after the last. multipliers [leaves, depth] belong to the splits, slopes
    [leaves, U] to the open places: at a neuron's first kink of its lower line, at the second of its
    upper line. The row's failure is the sum over the leaves, or with `common` that of their
    maximum.
    """

    paths: Tensor
    multipliers: Tensor
    slopes: Tensor
    common: Common | None = None


@dataclass(frozen=True, eq=False)
class Cut:
    """A region in two: where coordinate `dimension` (of the flattened input) is at most `at`, and
    where it is at least that, each with a proof."""

    dimension: int
    at: float
    below: Proof
    above: Proof


@dataclass(frozen=True, eq=False)
class Proof:
    """P_safe, or a mean, is at least `bound` for one input, by threshold t and these slopes of the
    activations, each by layer position.

    lower_slopes, upper_slopes: [n], of every line that hidden intervals use; row_slopes: [R, n],
    lower slopes for the output rows where they were optimised; refined: [n], the neurons of a layer
    that had rows of their own, if not all; trees: by output row, where it was refined, on the
    places `open` [U], kinks of neurons, which are numbered through all layers that are split.
    alone: whether dense layers are bounded by themselves too. forward: whether zonotopes bound what
    is certain, too. affine: whether noise behind it meets the input through affine forms, too. cut:
    the region in two instead, and nothing else counts.
    """

    bound: float
    t: float
    lower_slopes: dict[int, Tensor] = field(default_factory=dict)
    upper_slopes: dict[int, Tensor] = field(default_factory=dict)
    row_slopes: dict[int, Tensor] = field(default_factory=dict)
    refined: dict[int, Tensor] = field(default_factory=dict)
    open: Tensor | None = None
    trees: dict[int, Tree] = field(default_factory=dict)
    cut: Cut | None = None
    alone: bool = True
    forward: bool = False
    affine: bool = False


Proved: TypeAlias = Proof | Law | Joint | Deep | Correlated


@dataclass(frozen=True, eq=False)
class Opposite:
    """Row number `row`, -c·y + d', fails at a point with the probability proved.

    Its sum with c·y + d is d + d': if that is above 0 they never fail together at one point, so
    that their probabilities add up, and if not P_safe = 0. At a point of its own they do so with a
    probability of at most that of a fall.
    """

    row: int
    proof: Proved
    point: Tensor | None = None
    both: Fall | None = None


@dataclass(frozen=True, eq=False)
class Refutation:
    """P_safe <= upper, because row number `row` fails at `point`, or without one where an adversary
    who sees the network moves its input, with the probability proved; and apart from it, perhaps,
    the row opposite to it."""

    upper: float
    point: Tensor | None
    row: int
    proof: Proved
    opposite: Opposite | None = None


@dataclass(frozen=True, eq=False)
class Component:
    """A component of the posterior, its weight and what is proved of it."""

    weight: float
    lower: Proved
    upper: Refutation | None


@dataclass(frozen=True, eq=False)
class Concentration:
    """One entry a component, in the posterior's order."""

    components: tuple[Component, ...]


def bound_names(found: Concentration) -> tuple[str, str]:
    """Which bounds gave the lower end and the upper one; of mixtures every one that did."""
    lower = [_name(one.lower) for one in found.components if one.lower.bound > 0]
    upper = [_name(one.upper.proof) for one in found.components if one.upper]
    return "+".join(dict.fromkeys(lower)), "+".join(dict.fromkeys(upper))


def _name(proof: Proved) -> str:
    if isinstance(proof, Deep):
        return "moments"
    if isinstance(proof, Correlated):
        return "correlated"
    if isinstance(proof, Joint):
        return "joint"
    if isinstance(proof, Law):
        named = {AnchorLaw: "anchors", LineLaw: "lines", ReplyLaw: "reply"}
        return named.get(type(proof), "laws") + ("+pairs" if proof.together else "")
    return "splits" if proof.trees or proof.cut is not None else "linear"


def write(found: Concentration) -> Written:
    tensors: dict[str, Tensor] = {}
    entries = []
    for c, component in enumerate(found.components):
        entry: dict[str, Any] = {WEIGHT: component.weight.hex()}
        entry[LOWER] = _write_proof(component.lower, f"c{c}.", tensors)
        entry[UPPER] = None
        if component.upper is not None:
            if component.upper.point is not None:
                tensors[f"c{c}.{POINT}"] = component.upper.point.clone()
            failure = _write_proof(component.upper.proof, f"c{c}.{UPPER}.", tensors)
            entry[UPPER] = {ROW: component.upper.row, FAILURE: failure}
            other = component.upper.opposite
            if other is not None:
                failure = _write_proof(other.proof, f"c{c}.{OPPOSITE}.", tensors)
                entry[UPPER][OPPOSITE] = {ROW: other.row, FAILURE: failure}
                if other.point is not None and other.both is not None:
                    tensors[f"c{c}.{OPPOSITE}.{POINT}"] = other.point.clone()
                    both = write_fall(other.both, f"c{c}.{BOTH}.", tensors)
                    entry[UPPER][OPPOSITE][BOTH] = both
        entries.append(entry)
    return Written(KIND, {COMPONENTS: entries}, tensors)


def read(value: Any, tensors: Tensors) -> Concentration:
    components = []
    for c, entry in enumerate(value[COMPONENTS]):
        lower = _read_proof(entry[LOWER], f"c{c}.", tensors)
        upper = None
        if entry[UPPER]:
            proof = _read_proof(entry[UPPER][FAILURE], f"c{c}.{UPPER}.", tensors)
            point = tensors.get(f"c{c}.{POINT}")
            upper = Refutation(1 - proof.bound, point, entry[UPPER][ROW], proof)
            if OPPOSITE in entry[UPPER]:
                upper = _with_opposite(upper, entry[UPPER][OPPOSITE], f"c{c}.", tensors)
        components.append(Component(float.fromhex(entry[WEIGHT]), lower, upper))
    return Concentration(tuple(components))


def _with_opposite(found: Refutation, value: Any, prefix: str, tensors: Tensors) -> Refutation:
    proof = _read_proof(value[FAILURE], f"{prefix}{OPPOSITE}.", tensors)
    other = Opposite(value[ROW], proof)
    if BOTH in value:
        both = read_fall(value[BOTH], f"{prefix}{BOTH}.", tensors)
        other = replace(other, point=tensors[f"{prefix}{OPPOSITE}.{POINT}"], both=both)
    return replace(found, upper=max(0.0, found.upper - counted(other)), opposite=other)


def counted(other: Opposite) -> float:
    """What the opposite row adds to the failures of the first."""
    return other.proof.bound - (other.both.most if other.both else 0.0)


def _write_proof(proof: Proved, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    if isinstance(proof, Correlated):
        return write_correlated(proof, prefix, tensors)
    if isinstance(proof, Joint):
        return write_joint(proof, prefix, tensors)
    if isinstance(proof, Deep):
        return write_deep(proof, prefix, tensors)
    if isinstance(proof, Law):
        return write_law(proof, prefix, tensors)
    return _write_divided(proof, prefix, tensors)


def _read_proof(value: Any, prefix: str, tensors: Tensors) -> Proved:
    if CORRELATED in value:
        return read_correlated(value, prefix, tensors)
    if JOINT in value:
        return read_joint(value, prefix, tensors)
    if DEEP in value:
        return read_deep(value, prefix, tensors)
    return (read_law if LAW in value else _read_divided)(value, prefix, tensors)


def write_slopes(proof: Proof, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Threshold and slopes: the proof as JSON, the slopes among the tensors."""
    for name in SLOPES:
        for k, slopes in getattr(proof, name).items():
            # Not a view that keeps its whole batch alive.
            tensors[f"{prefix}{name}{k}"] = slopes.clone()
    for k, chosen in proof.refined.items():
        tensors[f"{prefix}{REFINED}{k}"] = chosen.to(torch.int8)
    said = {THRESHOLD: proof.t.hex(), OPTIMISED: bool(proof.row_slopes), ALONE: proof.alone}
    for name in STATED:
        said |= {name: True} if getattr(proof, name) else {}
    return said


def read_slopes(value: Any, prefix: str, tensors: Tensors) -> Proof:
    lower, upper, rows = (_by_position(tensors, prefix + name) for name in SLOPES)
    refined = {k: chosen.bool() for k, chosen in _by_position(tensors, prefix + REFINED).items()}
    alone = value.get(ALONE, False)  # certificates from before it do not
    proof = Proof(0.0, float.fromhex(value[THRESHOLD]), lower, upper, rows, refined, alone=alone)
    return replace(proof, **{name: value.get(name, False) for name in STATED})


def _write_divided(proof: Proof, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    stated: dict[str, Any] = {PROBABILITY: proof.bound.hex()}
    if proof.cut is not None:
        halves = {BELOW: proof.cut.below, ABOVE: proof.cut.above}
        stated |= {DIMENSION: proof.cut.dimension, AT: proof.cut.at.hex()}
        for name, half in halves.items():
            stated[name] = _write_divided(half, prefix + HALVES[name], tensors)
        return stated
    stated |= write_slopes(proof, prefix, tensors)
    if proof.open is None:
        return stated
    tensors[prefix + OPEN] = proof.open.int()
    stated[TREES] = [
        {ROW: row, SCALE: _write_tree(tree, f"{prefix}tree{row}.", tensors)}
        for row, tree in sorted(proof.trees.items())
    ]
    return stated


def _read_divided(value: Any, prefix: str, tensors: Tensors) -> Proof:
    bound = float.fromhex(value[PROBABILITY])
    if AT in value:
        halves = (_read_divided(value[name], prefix + HALVES[name], tensors) for name in HALVES)
        cut = Cut(value[DIMENSION], float.fromhex(value[AT]), *halves)
        return Proof(bound, cut.below.t, cut=cut)
    proof = replace(read_slopes(value, prefix, tensors), bound=bound)
    if TREES not in value:
        return proof
    trees = {
        entry[ROW]: _read_tree(entry[SCALE], f"{prefix}tree{entry[ROW]}.", tensors)
        for entry in value[TREES]
    }
    return replace(proof, open=tensors[prefix + OPEN], trees=trees)


def _write_tree(tree: Tree, prefix: str, tensors: dict[str, Tensor]) -> str | None:
    """The tree among the tensors; its scale, if it has one."""
    for name in LEAVES:
        tensors[prefix + name] = getattr(tree, name).clone()
    if tree.common is None:
        return None
    for name in REFERENCE:
        tensors |= {f"{prefix}{name}{k}": v for k, v in getattr(tree.common, name).items()}
    return tree.common.scale.hex()


def _read_tree(scale: str | None, prefix: str, tensors: Tensors) -> Tree:
    paths, multipliers, slopes = (tensors[prefix + name] for name in LEAVES)
    tree = Tree(paths, multipliers, slopes)
    if scale is None:
        return tree
    rows, centers = (_by_position(tensors, prefix + name) for name in REFERENCE)
    return replace(tree, common=Common(float.fromhex(scale), rows, centers))


def _by_position(tensors: Tensors, name: str) -> dict[int, Tensor]:
    """Tensors whose name ends in a layer's position."""
    numbers = {key: key.removeprefix(name) for key in tensors if key.startswith(name)}
    return {int(number): tensors[key] for key, number in numbers.items() if number.isdigit()}
