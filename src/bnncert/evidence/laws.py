"""Evidence by laws: the exact law of each output row, from below, with all that was chosen for it.

A part of evidence of kind `concentration`, in the place of a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from bnncert.evidence.joint import TOGETHER, PointLaw, read_point_laws, write_point_laws
from bnncert.evidence.written import Tensors

LAW, CELLS, SIZE = "law", "cells", "size"
PROBABILITY = "probability"
NUMBERS, REMAINDERS, THETA, Y = "numbers", "remainders", "theta", "y"
THRESHOLD, SLOPES = "threshold", "slopes"
ALONG, ANCHORS, SPARED = "along", "anchors", "spared"
REPLY, WEIGHTS, CENTER = "reply", "weights", "center"
BLENDS, ZERO = "blends", "0x0p0"
TRUNK, LOWER, UPPER = "trunk", "lower", "upper"


@dataclass(frozen=True, eq=False)
class Law:
    """P_safe is at least `bound`, by the laws of all rows.

    cells: of z, parts of each, of v, parts of each. size: of the lattice. numbers [R, 6]: step,
    low, rate, curb, noise and tilt of every row. trunk: the ends [J] of a box that holds what the
    hidden layer reads, where certain layers are before it. together: of pairs of rows that are a
    forest, how often both fail at a point, which counts once.
    """

    bound: float
    cells: tuple[int, int, int, int]
    size: int
    numbers: Tensor
    trunk: tuple[Tensor, Tensor] | None = field(default=None, kw_only=True)
    together: tuple[PointLaw, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class SharedLaw(Law):
    """Of ReLUs, which share the input's worst case: remainders [R, 3] are share, scale and chance;
    theta and y [R, inputs], float32, references; blends [R], how much of each row's slopes is their
    mean over z."""

    remainders: Tensor
    theta: Tensor
    y: Tensor
    blends: Tensor


@dataclass(frozen=True, eq=False)
class LineLaw(Law):
    """Of any activation, each neuron at its own worst: slopes [n, K, 2] of a line below it and of
    one above, by cell of z, where what moves z is below a threshold."""

    threshold: float
    slopes: Tensor


@dataclass(frozen=True, eq=False)
class AnchorLaw(Law):
    """Where one input moves alone: along, the number of cells of what of its weights is independent
    of z; by row an anchor, a coordinate of that input, and q, what failures at the anchor spare the
    way from there, [R]; slopes [R, n, K, 2] of lines. numbers [R, 3, 6]: at the anchor, and to the
    upper and to the lower end."""

    along: int
    anchors: Tensor
    spared: Tensor
    slopes: Tensor


@dataclass(frozen=True, eq=False)
class Fall:
    """Two opposite rows fail at two points, that differ in one coordinate, with a probability of at
    most `most`: a row's fall between them. numbers [1, 6] and slopes [n, K, 2] as of laws by
    anchors, from the point of the second row to that of the first."""

    most: float
    cells: tuple[int, int, int, int]
    size: int
    numbers: Tensor
    along: int
    slopes: Tensor


def write_fall(found: Fall, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    for name in (NUMBERS, SLOPES):
        tensors[f"{prefix}{name}"] = getattr(found, name).clone()
    said = {CELLS: list(found.cells), SIZE: found.size, ALONG: found.along}
    return {PROBABILITY: found.most.hex(), **said}


def read_fall(value: Any, prefix: str, tensors: Tensors) -> Fall:
    numbers, slopes = (tensors[f"{prefix}{name}"] for name in (NUMBERS, SLOPES))
    most, cells = float.fromhex(value[PROBABILITY]), tuple(value[CELLS])
    return Fall(most, cells, value[SIZE], numbers, value[ALONG], slopes)


@dataclass(frozen=True, eq=False)
class ReplyLaw(Law):
    """Of one negated row of ReLUs about a centre [J], where an adversary moves every input by what
    weights [n] make of the network's: threshold, and the share of Hölder's inequality; remainders
    [1, 3] as in `SharedLaw`."""

    reply: tuple[float, float]
    remainders: Tensor
    weights: Tensor
    center: Tensor


def write_law(found: Law, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    said: dict[str, Any] = {CELLS: list(found.cells), SIZE: found.size}
    names = [NUMBERS, REMAINDERS, THETA, Y]
    if isinstance(found, LineLaw):
        said[THRESHOLD] = found.threshold.hex()
        names = [NUMBERS, SLOPES]
    if isinstance(found, AnchorLaw):
        said[ALONG] = found.along
        names = [NUMBERS, ANCHORS, SPARED, SLOPES]
    if isinstance(found, ReplyLaw):
        said[REPLY] = [number.hex() for number in found.reply]
        names = [NUMBERS, REMAINDERS, WEIGHTS, CENTER]
    if isinstance(found, SharedLaw) and bool(found.blends.any()):
        said[BLENDS] = [blend.hex() for blend in found.blends.tolist()]
    for name in names:
        tensors[f"{prefix}{LAW}.{name}"] = getattr(found, name).clone()
    if found.trunk is not None:
        said[TRUNK] = True
        ends = zip((LOWER, UPPER), found.trunk, strict=True)
        tensors |= {f"{prefix}{LAW}.{name}": end.clone() for name, end in ends}
    stated: dict[str, Any] = {PROBABILITY: found.bound.hex(), LAW: said}
    if found.together:
        stated[TOGETHER] = write_point_laws(found.together, f"{prefix}t", tensors)
    return stated


def read_law(value: Any, prefix: str, tensors: Tensors) -> Law:
    found = _read_rows(value, prefix, tensors)
    if TOGETHER in value:
        together = read_point_laws(value[TOGETHER], f"{prefix}t", tensors)
        found = replace(found, together=together)
    if TRUNK not in value[LAW]:
        return found
    lower, upper = (tensors[f"{prefix}{LAW}.{name}"] for name in (LOWER, UPPER))
    return replace(found, trunk=(lower, upper))


def _read_rows(value: Any, prefix: str, tensors: Tensors) -> Law:
    said = value[LAW]
    cells: tuple[int, int, int, int] = tuple(said[CELLS])
    bound = float.fromhex(value[PROBABILITY])
    common = bound, cells, said[SIZE], tensors[f"{prefix}{LAW}.{NUMBERS}"]
    if THRESHOLD in said:
        slopes = tensors[f"{prefix}{LAW}.{SLOPES}"]
        return LineLaw(*common, float.fromhex(said[THRESHOLD]), slopes)
    if ALONG in said:
        own = (tensors[f"{prefix}{LAW}.{name}"] for name in (ANCHORS, SPARED, SLOPES))
        return AnchorLaw(*common, said[ALONG], *own)
    if REPLY in said:
        threshold, share = map(float.fromhex, said[REPLY])
        chosen = (tensors[f"{prefix}{LAW}.{name}"] for name in (REMAINDERS, WEIGHTS, CENTER))
        return ReplyLaw(*common, (threshold, share), *chosen)
    remainders, theta, y = (tensors[f"{prefix}{LAW}.{name}"] for name in (REMAINDERS, THETA, Y))
    blends = [float.fromhex(blend) for blend in said.get(BLENDS, [ZERO] * len(remainders))]
    return SharedLaw(*common, remainders, theta, y, remainders.new_tensor(blends))
