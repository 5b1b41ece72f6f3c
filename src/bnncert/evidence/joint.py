"""Evidence by joint laws of one row or two at a point: what their Fourier series chose.

In a proof's place, or beside the laws of a region: there what two rows fail together counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bnncert.evidence.written import Tensors

JOINT, TOGETHER, PROBABILITY = "joint", "together", "probability"
ROWS, TERMS, WINDOWS, POINT = "rows", "terms", "windows", "point"


@dataclass(frozen=True, eq=False)
class PointLaw:
    """Of one row or two, by row: terms, and windows [d, 5]: low, high, η, and tilts below and
    above. point: where it stands, if it has one of its own."""

    rows: tuple[int, ...]
    terms: tuple[int, ...]
    windows: Tensor
    point: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Joint:
    """All rows hold at the point with at least `bound`: by Hunter's inequality, laws of all rows,
    and of pairs that are a forest. In an upper bound one of some rows fails with at least `bound`:
    by Bonferroni's, laws of these and of all their pairs."""

    bound: float
    laws: tuple[PointLaw, ...]

    @property
    def smoothed(self) -> bool:
        """Whether rows were given noise of their own, which costs: other laws may be better."""
        return any(bool((law.windows[:, 2] > 0).any()) for law in self.laws)


def write_joint(found: Joint, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    laws = write_point_laws(found.laws, f"{prefix}j", tensors)
    return {PROBABILITY: found.bound.hex(), JOINT: laws}


def write_point_laws(
    laws: Sequence[PointLaw], prefix: str, tensors: dict[str, Tensor]
) -> list[dict[str, Any]]:
    for k, law in enumerate(laws):
        tensors[f"{prefix}{k}.{WINDOWS}"] = law.windows.clone()
        if law.point is not None:
            tensors[f"{prefix}{k}.{POINT}"] = law.point.clone()
    return [{ROWS: list(law.rows), TERMS: list(law.terms)} for law in laws]


def read_joint(value: Any, prefix: str, tensors: Tensors) -> Joint:
    laws = read_point_laws(value[JOINT], f"{prefix}j", tensors)
    return Joint(float.fromhex(value[PROBABILITY]), laws)


def read_point_laws(value: Any, prefix: str, tensors: Tensors) -> tuple[PointLaw, ...]:
    return tuple(
        PointLaw(
            tuple(said[ROWS]),
            tuple(said[TERMS]),
            tensors[f"{prefix}{k}.{WINDOWS}"],
            tensors.get(f"{prefix}{k}.{POINT}"),
        )
        for k, said in enumerate(value)
    )
