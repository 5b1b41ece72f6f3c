"""PIE, pure iterative expansion (Batten et al. 2024, Algorithm 1): boxes w ± jλσ, grown while they are safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bnncert.methods.boxes import cover
from bnncert.methods.growth import Plan, Rule
from bnncert.methods.outcome import Outcome
from bnncert.problem import Problem


@dataclass(frozen=True)
class PIE:
    """P_safe >= P(union over centres of the largest safe w_i ± jλσ)."""

    samples: int = 50
    step: float = 0.5
    budget: int = 50
    bound: str = "lbp"
    mean_first: bool = True
    walk: str = "linear"
    name: ClassVar[str] = "pie"

    def __post_init__(self) -> None:
        self.plan()  # checks the options

    def plan(self) -> Plan:
        return Plan(Rule(self.step), self.samples, self.mean_first, self.budget, self.bound, self.walk)

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]:
        return cover(problem, self.plan(), seed)
