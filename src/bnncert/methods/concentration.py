"""Concentration certificates: Gaussian posteriors, correlated or not, and their mixtures, bounded below and above."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from bnncert.correlated import Gaussian, gaussian_parts
from bnncert.empirical import Empirical
from bnncert.errors import InputError
from bnncert.methods.bisection import LOW, bisect
from bnncert.methods.outcome import Outcome
from bnncert.methods.proof import Proof, describe, prove
from bnncert.methods.refine import Limits, Refined, refine
from bnncert.methods.upper import Refutation, refute
from bnncert.problem import Problem
from bnncert.rounding import ALLOWANCE

EFFORTS = (0, 1, 2, 3)
BRANCHING = 2  # the least effort that branches and bounds
PRECISION = 1e-3  # of a probability: what is not worth branching for
NODES = {2: 1000, 3: 20_000}  # domains an input, by effort
AT_ONCE = 256  # inputs of one search


@dataclass(frozen=True)
class Concentration:
    """Σ_c π_c p_c <= P_safe <= Σ_c π_c u_c over the components of the posterior (one, if it is no mixture).

    effort: 0 for plain slopes, 1 to optimise them where that can help, 2 and 3 to branch and bound too, with at most
    1,000 and 20,000 domains an input, or `nodes`. upper: also search a certified upper bound. time_limit: seconds an
    input for branch and bound. precision: branch and bound ends where no more than this can be gained, 0.001 unless
    given. at_least: the probability asked about, where more need not be known.
    """

    effort: int = 1
    upper: bool = False
    nodes: int | None = None
    time_limit: float | None = None
    precision: float | None = None
    at_least: float | None = None
    name: ClassVar[str] = "concentration"

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise InputError(f"effort is {self.effort}; choose {', '.join(map(str, EFFORTS[:-1]))} or {EFFORTS[-1]}")
        if self.nodes is not None and self.nodes < 1:
            raise InputError(f"nodes are {self.nodes}; give at least 1")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"time limit is {self.time_limit}; give seconds above 0")
        if self.precision is not None and not 0 <= self.precision <= 1:
            raise InputError(f"precision is {self.precision}; give a probability from 0 to 1")
        for option in ("nodes", "time_limit", "precision"):
            if self.effort < BRANCHING and getattr(self, option) is not None:
                raise InputError(
                    f"{option.replace('_', ' ')} is for branch and bound, and effort is {self.effort}; "
                    "leave it out, or give effort 2 or 3"
                )
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise InputError(f"threshold is {self.at_least}; give a probability from 0 to 1")

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]:
        weights, components = gaussian_components(problem)
        parts = []
        for component in components:
            own = Problem(problem.network, component, problem.specification)
            refutations: list[Refutation | None] = [None] * len(problem)
            if self.upper or self.effort >= BRANCHING:
                refutations = refute(own, component, seed)
            if self.effort >= BRANCHING:
                proofs, refutations, counts = self._refined(own, component, refutations, seed)
            else:
                proofs, counts = prove(own, component, self.effort), [1] * len(problem)
            if not self.upper:
                refutations = [None] * len(problem)
            parts.append(list(zip(proofs, refutations, counts, strict=True)))
        return [_outcome(weights, claims) for claims in zip(*parts, strict=True)]

    def _refined(
        self, problem: Problem, posterior: Gaussian, refutations: list[Refutation | None], seed: int
    ) -> tuple[list[Proof], list[Refutation | None], list[int]]:
        """Branch and bound on the inputs that no attack broke; what it breaks is refuted from there.

        Where the mean network fails, m is negative and no proof exists: slopes need not be searched.
        """
        proofs, refutations, counts = prove(problem, posterior, 0), list(refutations), [1] * len(problem)
        left = [i for i, found in enumerate(refutations) if found is None]
        if not left:
            return proofs, refutations, counts
        part = problem[torch.tensor(left, device=problem.specification.rows.device)]
        found = self._search(part, posterior)
        for i, proof, count in zip(left, found.proofs, found.domains, strict=True):
            proofs[i], counts[i] = proof, 1 + count
        broken = sorted(found.counterexamples)
        if broken and self.upper:
            points = torch.stack([found.counterexamples[i] for i in broken])
            again = refute(part[torch.tensor(broken, device=points.device)], posterior, seed, points)
            for i, refutation in zip(broken, again, strict=True):
                refutations[left[i]] = refutation
        return proofs, refutations, counts

    def _search(self, problem: Problem, posterior: Gaussian) -> Refined:
        """Branch and bound, so many inputs at once; after an interrupt the others have the proof of effort 1."""
        whole = Refined([], {}, [])
        for start in range(0, len(problem), AT_ONCE):
            part = problem[start : start + AT_ONCE]
            limits = self._limits(0 if whole.interrupted else len(part))
            found = self._search_part(part, posterior, limits)
            points = {start + i: point for i, point in found.counterexamples.items()}
            whole = Refined(
                whole.proofs + found.proofs,
                whole.counterexamples | points,
                whole.domains + found.domains,
                whole.interrupted or found.interrupted,
            )
        return whole

    def _search_part(self, problem: Problem, posterior: Gaussian, limits: Limits) -> Refined:
        """Over signs of ReLUs; for inputs of few dimensions, half of the time, then over parts of the region."""
        low = math.prod(problem.network.input_shape) <= LOW
        limits = replace(limits, seconds=limits.seconds / 2) if low else limits
        found = refine(problem, posterior, prove(problem, posterior, 1), limits)
        return bisect(problem, posterior, found, limits) if low and not found.interrupted else found

    def _limits(self, inputs: int) -> Limits:
        seconds = math.inf if self.time_limit is None and inputs else (self.time_limit or 0) * inputs
        # What is claimed is a little less than what is proved.
        enough = 1.0 if self.at_least is None else self.at_least + ALLOWANCE
        precision = PRECISION if self.precision is None else self.precision
        return Limits(self.nodes or NODES[self.effort], seconds, enough, precision)


def gaussian_components(problem: Problem) -> tuple[tuple[float, ...], tuple[Gaussian, ...]]:
    """Weights and components of the posterior; an `InputError` if it is not made of Gaussians."""
    posterior = problem.posterior
    parts = gaussian_parts(posterior)
    if parts is not None:
        return parts
    raise InputError(
        f"posterior family {posterior.family!r} is not Gaussian, which concentration needs; "
        f"use {'enumeration' if isinstance(posterior, Empirical) else 'sampling, pie or gie'}"
    )


def _outcome(weights: tuple[float, ...], claims: tuple[tuple[Proof, Refutation | None, int], ...]) -> Outcome:
    lower = sum(w * proof.bound for w, (proof, _, _) in zip(weights, claims, strict=True))
    upper = sum(w * (found.upper if found else 1.0) for w, (_, found, _) in zip(weights, claims, strict=True))
    if len(weights) > 1:  # sums and products of a few numbers, and weights that sum to 1 only nearly
        lower, upper = lower - 2.0**-38, upper + 2.0**-38
    lower, upper = max(lower, 0.0), min(upper, 1.0)
    evidence: dict[str, Any] = {"components": []}
    tensors: dict[str, Tensor] = {}
    for c, (weight, (proof, found, _)) in enumerate(zip(weights, claims, strict=True)):
        entry = {"weight": weight.hex(), "lower": _stated(proof, f"c{c}.", tensors), "upper": None}
        if found:
            tensors[f"c{c}.point"] = found.point.clone()
            entry["upper"] = {"row": found.row, "failure": _stated(found.proof, f"c{c}.upper.", tensors)}
        evidence["components"].append(entry)
    calls = sum(count for _, _, count in claims)
    return Outcome(lower, max(lower, upper), calls, "concentration", evidence, tensors)


def _stated(proof: Proof, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The proof as JSON, its slopes and trees among the tensors; of a region in two, one prefix for each half."""
    stated: dict[str, Any] = {"probability": proof.bound.hex()}
    if proof.cut is not None:
        cut = proof.cut
        stated |= {"dimension": cut.dimension, "at": cut.at.hex()}
        halves = (("below", cut.below, "0"), ("above", cut.above, "1"))
        return stated | {name: _stated(half, prefix + digit, tensors) for name, half, digit in halves}
    stated |= describe(proof, prefix, tensors)
    if proof.open is None:
        return stated
    tensors[f"{prefix}open"] = proof.open.int()
    trees: list[dict[str, Any]] = []
    for row, tree in sorted(proof.trees.items()):
        trees.append({"row": row, "scale": tree.common and tree.common.scale.hex()})
        for name in ("paths", "multipliers", "slopes"):
            tensors[f"{prefix}tree{row}.{name}"] = getattr(tree, name).clone()
        if tree.common:
            tensors |= {f"{prefix}tree{row}.rows{k}": value for k, value in tree.common.rows.items()}
            tensors |= {f"{prefix}tree{row}.centers{k}": value for k, value in tree.common.centers.items()}
    return stated | {"trees": trees}
