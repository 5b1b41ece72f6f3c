"""Concentration certificates: Gaussian posteriors, correlated or not, and their mixtures, bounded below and above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from bnncert.correlated import Gaussian, LowRankNormal, Mixture
from bnncert.empirical import Empirical
from bnncert.errors import InputError
from bnncert.methods.outcome import Outcome
from bnncert.methods.proof import Proof, describe, prove
from bnncert.methods.upper import Refutation, refute
from bnncert.posterior import Normal
from bnncert.problem import Problem

EFFORTS = (0, 1)


@dataclass(frozen=True)
class Concentration:
    """Σ_c π_c p_c <= P_safe <= Σ_c π_c u_c over the components of the posterior (one, if it is no mixture).

    effort: 0 for plain slopes, 1 to optimise them where that can help. upper: also search a certified upper bound.
    """

    effort: int = 1
    upper: bool = False
    name: ClassVar[str] = "concentration"

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise InputError(f"effort is {self.effort}; choose {' or '.join(map(str, EFFORTS))}")

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]:
        weights, components = gaussian_components(problem)
        parts = []
        for component in components:
            own = Problem(problem.network, component, problem.specification)
            proofs = prove(own, component, self.effort)
            refutations = refute(own, component, seed) if self.upper else [None] * len(problem)
            parts.append(list(zip(proofs, refutations, strict=True)))
        return [_outcome(weights, claims) for claims in zip(*parts, strict=True)]


def gaussian_components(problem: Problem) -> tuple[tuple[float, ...], tuple[Gaussian, ...]]:
    """Weights and components of the posterior; an `InputError` if it is not made of Gaussians."""
    posterior = problem.posterior
    if isinstance(posterior, Mixture):
        return posterior.weights, posterior.components
    if isinstance(posterior, Normal | LowRankNormal):
        return (1.0,), (posterior,)
    raise InputError(
        f"posterior family {posterior.family!r} is not Gaussian, which concentration needs; "
        f"use {'enumeration' if isinstance(posterior, Empirical) else 'sampling, pie or gie'}"
    )


def _outcome(weights: tuple[float, ...], claims: tuple[tuple[Proof, Refutation | None], ...]) -> Outcome:
    lower = sum(w * proof.bound for w, (proof, _) in zip(weights, claims, strict=True))
    upper = sum(w * (found.upper if found else 1.0) for w, (_, found) in zip(weights, claims, strict=True))
    if len(weights) > 1:  # sums and products of a few numbers, and weights that sum to 1 only nearly
        lower, upper = lower - 2.0**-38, upper + 2.0**-38
    lower, upper = max(lower, 0.0), min(upper, 1.0)
    evidence: dict[str, Any] = {"components": []}
    tensors: dict[str, Tensor] = {}
    for c, (weight, (proof, found)) in enumerate(zip(weights, claims, strict=True)):
        entry = {"weight": weight.hex(), "lower": _stated(proof, f"c{c}.", tensors), "upper": None}
        if found:
            tensors[f"c{c}.point"] = found.point.clone()
            entry["upper"] = {"row": found.row, "failure": _stated(found.proof, f"c{c}.upper.", tensors)}
        evidence["components"].append(entry)
    return Outcome(lower, max(lower, upper), len(claims), "concentration", evidence, tensors)


def _stated(proof: Proof, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {"probability": proof.bound.hex(), **describe(proof, prefix, tensors)}
