"""PIE, pure iterative expansion (Batten et al. 2024, Algorithm 1).

Boxes w ± jλσ, grown while they are safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bnncert.boxes.cover import BoxMethod
from bnncert.boxes.growth import Plan
from bnncert.evidence.boxes import Growth


@dataclass(frozen=True)
class PIE(BoxMethod):
    """P_safe >= P(union over centres of the largest safe w_i ± jλσ).

    >>> import torch
    >>> from bnncert import PIE, Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> results = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive), PIE(samples=3))
    >>> results[0].lower > 0.99
    True
    """

    samples: int = 50
    step: float = 0.5
    budget: int = 50
    bound: str = "lbp"
    mean_first: bool = True
    walk: str = "linear"
    name: ClassVar[str] = "pie"

    def plan(self) -> Plan:
        return Plan(
            Growth(self.step), self.samples, self.mean_first, self.budget, self.bound, self.walk
        )
