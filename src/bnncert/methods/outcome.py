"""What a method returns for one input, and the shape of a method."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from bnncert.problem import Problem


@dataclass(frozen=True, eq=False)
class Outcome:
    """Certified bounds of P_safe, and the evidence a checker needs: JSON values and named tensors."""

    lower: float
    upper: float
    bound_calls: int
    kind: str
    evidence: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Method(Protocol):
    """A frozen set of options that answers a batch of questions."""

    name: ClassVar[str]

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]: ...
