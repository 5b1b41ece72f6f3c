"""What a method returns for one input, and the shape of a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from bnncert.evidence import Evidence
from bnncert.model.problem import Problem
from bnncert.posteriors.base import Posterior


@dataclass(frozen=True, eq=False)
class Outcome:
    """Certified bounds of P_safe, and the evidence a checker needs.

    interrupted: somebody ended the search; what was known then is proved all the same.
    """

    lower: float
    upper: float
    bound_calls: int
    evidence: Evidence
    interrupted: bool = False


class Method(Protocol):
    """A frozen set of options that answers a batch of questions.

    >>> from bnncert import Concentration
    >>> method: Method = Concentration(effort=3)
    >>> method.name, [family.__name__ for family in method.posteriors]
    ('concentration', ['Normal', 'LowRankNormal', 'Mixture'])
    """

    name: ClassVar[str]
    posteriors: ClassVar[tuple[type[Posterior], ...]]  # the families it takes

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]: ...
