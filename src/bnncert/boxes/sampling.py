"""Pure sampling (Wicker et al. 2020): boxes w ± λσ around centres drawn from the posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bnncert.boxes.cover import BoxMethod
from bnncert.boxes.growth import Plan
from bnncert.evidence.boxes import Growth


@dataclass(frozen=True)
class Sampling(BoxMethod):
    """P_safe >= P(union of the boxes w_i ± λσ that the bound proves safe).

    >>> import torch
    >>> from bnncert import Problem, Sampling, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> problem = Problem(mlp(1, 1), Normal(ones, ones / 10), positive)
    >>> certify(problem, Sampling(samples=3, step=5))[0].lower > 0.99
    True
    """

    samples: int = 50
    step: float = 0.5
    budget: int = 50
    bound: str = "lbp"
    mean_first: bool = True
    name: ClassVar[str] = "sampling"

    def plan(self) -> Plan:
        return Plan(
            Growth(self.step),
            self.samples,
            self.mean_first,
            self.budget,
            self.bound,
            "linear",
            longest=1,
        )
