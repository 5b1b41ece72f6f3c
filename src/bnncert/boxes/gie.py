"""GIE, gradient-guided iterative expansion (Batten et al. 2024, Algorithm 2).

Boxes that grow faster where it helps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bnncert.boxes.cover import BoxMethod
from bnncert.boxes.growth import Plan
from bnncert.evidence.boxes import Growth


@dataclass(frozen=True)
class GIE(BoxMethod):
    """P_safe >= P(union over centres of the largest safe [w_i - j v⁻, w_i + j v⁺]).

    v⁺ = λσ(1 + ρ) where the margin does not fall with the weight (E⁺ and E⁰), v⁻ = λσ(1 + ρ) where
    it does not rise (E⁻ and E⁰), and λσ elsewhere.

    >>> import torch
    >>> from bnncert import GIE, Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> results = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive), GIE(samples=3))
    >>> results[0].lower > 0.99
    True
    """

    samples: int = 50
    step: float = 0.5
    rho: float = 0.2
    budget: int = 50
    bound: str = "lbp"
    mean_first: bool = True
    walk: str = "linear"
    zero_gradient_only: bool = False
    name: ClassVar[str] = "gie"

    def plan(self) -> Plan:
        growth = Growth(self.step, self.rho, self.zero_gradient_only)
        return Plan(growth, self.samples, self.mean_first, self.budget, self.bound, self.walk)
