"""Concentration certificates of Gaussian posteriors, correlated or not, and of their mixtures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from bnncert.concentration.bisection import LOW, bisect
from bnncert.concentration.proof import known_before, prove
from bnncert.concentration.refine import Limits, Refined, refine
from bnncert.concentration.trace import Prefix
from bnncert.concentration.upper import refute
from bnncert.correlated import search as correlated
from bnncert.deep.search import improve
from bnncert.errors import InputError
from bnncert.evidence.concentration import Component, Proved, Refutation
from bnncert.evidence.concentration import Concentration as Evidence
from bnncert.evidence.joint import Joint
from bnncert.evidence.laws import Law
from bnncert.joint import search as joint
from bnncert.laws.head import has_form, read_of
from bnncert.laws.proof import prove_laws
from bnncert.laws.shared import Wanted
from bnncert.laws.upper import refute_by_laws, refute_by_replies, worst_points, worthwhile
from bnncert.model.problem import Problem
from bnncert.numerics.rounding import ALLOWANCE
from bnncert.outcome import Outcome
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import (
    GAUSSIAN,
    Gaussian,
    LowRankNormal,
    Mixture,
    gaussian_parts,
)
from bnncert.posteriors.independent import Normal

EFFORTS = (0, 1, 2, 3)
LAWS = 1  # the least effort that takes the laws of rows
SETTLED = 1e-3  # of a probability: what laws must improve a proof by
FINER = 2  # the least effort that takes finer cells and lattices for them
OPEN = {1: 1e-2, 2: SETTLED, 3: SETTLED}  # and what a proof leaves open for them, by effort
BRANCHING = 2  # the least effort that branches and bounds
PRECISION = 1e-3  # of a probability: what is not worth branching for
NODES = {2: 1000, 3: 20_000}  # domains per input, by effort
AT_ONCE = 256  # inputs of one search


@dataclass(frozen=True)
class Concentration:
    """Σ_c π_c p_c <= P_safe <= Σ_c π_c u_c over the components of the posterior (one, if it is no
    mixture).

    effort: 0 for plain slopes, 1 to optimise them where that can help and to take the laws of rows
    where a network has one random hidden layer and noise decides, 2 and 3 to branch and bound too,
    with at most 1,000 and 20,000 domains per input, or `nodes`, and for finer laws. upper: also
    search a certified upper bound. time_limit: seconds per input for branch and bound. precision:
    branch and bound ends where no more than this can be gained, 0.001 unless given. at_least: the
    probability asked about, where more need not be known.

    >>> import torch
    >>> from bnncert import Concentration, Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> problem = Problem(mlp(1, 1), Normal(ones, ones), positive)
    >>> round(certify(problem, Concentration(effort=2))[0].lower, 2)
    0.9
    """

    effort: int = 1
    upper: bool = False
    nodes: int | None = None
    time_limit: float | None = None
    precision: float | None = None
    at_least: float | None = None
    name: ClassVar[str] = "concentration"
    posteriors: ClassVar[tuple[type[Posterior], ...]] = (*GAUSSIAN.values(), Mixture)

    def __post_init__(self) -> None:
        if self.effort not in EFFORTS:
            raise InputError(
                f"effort is {self.effort}; choose "
                f"{', '.join(map(str, EFFORTS[:-1]))} or {EFFORTS[-1]}"
            )
        if self.nodes is not None and self.nodes < 1:
            raise InputError(f"nodes are {self.nodes}; give at least 1")
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"time limit is {self.time_limit}; give seconds above 0")
        if self.precision is not None and not 0 <= self.precision <= 1:
            raise InputError(f"precision is {self.precision}; give a probability from 0 to 1")
        for option in ("nodes", "time_limit", "precision"):
            if self.effort < BRANCHING and getattr(self, option) is not None:
                raise InputError(
                    f"{option.replace('_', ' ')} is for branch and bound, "
                    f"and effort is {self.effort}; leave it out, or give effort 2 or 3"
                )
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise InputError(f"threshold is {self.at_least}; give a probability from 0 to 1")

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]:
        weights, components = gaussian_components(problem)
        found = []
        for component in components:
            own = Problem(problem.network, component, problem.specification)
            found.append(self._component(own, component, seed, alone=len(components) == 1))
        return [_outcome(weights, parts) for parts in zip(*found, strict=True)]

    def _component(
        self, problem: Problem, posterior: Gaussian, seed: int, *, alone: bool
    ) -> list[_Found]:
        """What is known of one component, for every input."""
        refutations: list[Refutation | None] = [None] * len(problem)
        if self.upper or self.effort >= BRANCHING:
            enough = self._refuted if alone else 1.0  # of several, one may make up for another
            refutations = refute(problem, posterior, seed, enough=enough)
        known = known_before(problem, posterior)
        if self.effort >= BRANCHING:
            found = self._refined(problem, posterior, refutations, known, seed)
        else:
            proofs = prove(problem, posterior, self.effort, known)
            found = [_Found(*pair) for pair in zip(proofs, refutations, strict=True)]
        if (
            self.effort >= LAWS
            and isinstance(posterior, Normal)
            and has_form(problem.network, posterior)
        ):
            found = self._with_laws(problem, posterior, found, known)
        if (
            self.effort >= LAWS
            and isinstance(posterior, LowRankNormal)
            and correlated.looks_at(problem)
        ):
            found = self._with_correlations(problem, posterior, found)
        if self.effort:
            better = improve(problem, posterior, [one.proof for one in found])
            found = [replace(one, proof=proof) for one, proof in zip(found, better, strict=True)]
        return found if self.upper else [replace(one, refutation=None) for one in found]

    def _refined(
        self,
        problem: Problem,
        posterior: Gaussian,
        refutations: list[Refutation | None],
        known: Prefix,
        seed: int,
    ) -> list[_Found]:
        """Branch and bound on the inputs that no attack broke.

        What it breaks is refuted from there. Where the mean network fails, m is negative and no
        proof exists: slopes need not be searched.
        """
        proofs = prove(problem, posterior, 0, known)
        found = [_Found(*pair) for pair in zip(proofs, refutations, strict=True)]
        left = [i for i, refutation in enumerate(refutations) if not _is_broken(refutation)]
        if not left:
            return found
        device = problem.specification.rows.device
        part = problem[torch.tensor(left, device=device)]
        searched = self._search(part, posterior, known[torch.tensor(left, device=device)])
        for i, proof, count in zip(left, searched.proofs, searched.domains, strict=True):
            found[i] = _Found(proof, refutations[i], 1 + count, searched.interrupted)
        broken = sorted(searched.counterexamples)
        if broken and self.upper:
            points = torch.stack([searched.counterexamples[i] for i in broken])
            again = refute(part[torch.tensor(broken, device=device)], posterior, seed, points)
            for i, refutation in zip(broken, again, strict=True):
                before = found[left[i]].refutation
                if before is None or (refutation is not None and refutation.upper < before.upper):
                    found[left[i]] = replace(found[left[i]], refutation=refutation)
        return found

    def _with_laws(
        self, problem: Problem, posterior: Normal, found: list[_Found], known: Prefix
    ) -> list[_Found]:
        """The laws of rows where noise decides and they may help."""
        enough = self._enough
        box = read_of(problem.network, known.traced.boxes)
        worth = worthwhile(problem, posterior, box)
        left = [
            i
            for i, one in enumerate(found)
            if worth[i] and one.proof.bound < enough and not one.interrupted
        ]
        better = list(found)
        if left:
            part = problem[torch.tensor(left, device=problem.specification.rows.device)]
            wanted = Wanted(enough, finer=self.effort >= FINER)
            for i, law in zip(left, _laws(part, posterior, wanted), strict=True):
                one = found[i]
                proof = law if law.bound > one.proof.bound + SETTLED else one.proof
                better[i] = replace(one, proof=proof, calls=one.calls + 1)
        if not self.upper:
            return better
        worst = worst_points(problem, posterior)
        replied = refute_by_replies(problem, posterior)
        points = {i: one.point for i, one in worst.items()}
        at_points = joint.refute(problem, posterior, points, replied)
        settled = {
            i: one for i, one in at_points.items() if one is None or not _is_smoothed(one.proof)
        }
        by_laws = refute_by_laws(problem, posterior, worst, settled)
        each = zip(better, replied, by_laws, strict=True)
        return [
            replace(one, refutation=_lower(one.refutation, reply, at_points.get(i), other))
            for i, (one, reply, other) in enumerate(each)
        ]

    def _with_correlations(
        self, problem: Problem, posterior: LowRankNormal, found: list[_Found]
    ) -> list[_Found]:
        """Moments of the output given all pre-activations, at points and for upper bounds."""
        region, better = problem.specification.region, list(found)
        points = (region.box.lower == region.box.upper).flatten(1).all(1).tolist()
        for i, one in enumerate(found):
            part = problem[i : i + 1]
            near = correlated.Directions(part, posterior)
            if points[i] and one.proof.bound < self._enough and not one.interrupted:
                proof = correlated.prove(part, near)
                if proof is not None and proof.bound > one.proof.bound + SETTLED:
                    one = replace(one, proof=proof)
                one = replace(one, calls=one.calls + 1)
            if self.upper:
                refutation = correlated.refute(part, near)
                one = replace(one, refutation=_lower(one.refutation, refutation))
            better[i] = one
        return better

    def _search(self, problem: Problem, posterior: Gaussian, known: Prefix) -> Refined:
        """Branch and bound, so many inputs at once.

        After an interrupt the others have the proof of effort 1.
        """
        whole = Refined([], {}, [])
        for start in range(0, len(problem), AT_ONCE):
            part = problem[start : start + AT_ONCE]
            limits = self._limits(0 if whole.interrupted else len(part))
            found = self._search_part(part, posterior, limits, known[start : start + AT_ONCE])
            points = {start + i: point for i, point in found.counterexamples.items()}
            whole = Refined(
                whole.proofs + found.proofs,
                whole.counterexamples | points,
                whole.domains + found.domains,
                whole.interrupted or found.interrupted,
            )
        return whole

    def _search_part(
        self, problem: Problem, posterior: Gaussian, limits: Limits, known: Prefix
    ) -> Refined:
        """Over kinks of neurons; in few dimensions half of the time, then over parts."""
        low = math.prod(problem.network.input_shape) <= LOW
        limits = replace(limits, seconds=limits.seconds / 2) if low else limits
        proofs = prove(problem, posterior, 1, known)
        found = refine(problem, posterior, proofs, limits, known=known)
        return bisect(problem, posterior, found, limits) if low and not found.interrupted else found

    @property
    def _enough(self) -> float:
        """The bound from which on laws are not worth their time."""
        return 1 - OPEN[self.effort] if self.at_least is None else self.at_least + ALLOWANCE

    @property
    def _refuted(self) -> float:
        """The failure probability that settles what is asked; upper bounds are claimed a little
        higher than they are proved."""
        return 1.0 if self.at_least is None else 1 - self.at_least + ALLOWANCE

    def _limits(self, inputs: int) -> Limits:
        unlimited = self.time_limit is None and inputs
        seconds = math.inf if unlimited else (self.time_limit or 0) * inputs
        # What is claimed is a little less than what is proved.
        enough = 1.0 if self.at_least is None else self.at_least + ALLOWANCE
        precision = PRECISION if self.precision is None else self.precision
        return Limits(self.nodes or NODES[self.effort], seconds, enough, precision)


@dataclass(frozen=True, eq=False)
class _Found:
    """What is known of one component for one input, and how many bounds it took."""

    proof: Proved
    refutation: Refutation | None
    calls: int = 1
    interrupted: bool = False


def _laws(problem: Problem, posterior: Normal, wanted: Wanted) -> list[Law | Joint]:
    """At points joint laws where they speak of the activation; else, and where these need
    smoothing, laws of the rows alone and what two of them share."""
    box = problem.specification.region.box
    points = (box.lower == box.upper).flatten(1).all(1)
    known: dict[int, Law | Joint] = {}
    if bool(points.any()):
        at = points.nonzero().squeeze(-1)
        each = zip(at.tolist(), joint.prove(problem[at], posterior), strict=True)
        known |= {i: proof for i, proof in each if proof is not None}
    left = [i for i in range(len(problem)) if i not in known or _is_smoothed(known[i])]
    if left:
        part = problem[torch.tensor(left, device=points.device)]
        laws = joint.share(part, posterior, prove_laws(part, posterior, wanted))
        for i, law in zip(left, laws, strict=True):
            known[i] = max(known.get(i, law), law, key=lambda one: one.bound)
    return [known[i] for i in range(len(problem))]


def _is_smoothed(proof: Proved) -> bool:
    return isinstance(proof, Joint) and proof.smoothed


def _is_broken(refutation: Refutation | None) -> bool:
    """Whether the mean network fails at the point: then a row fails at least as often as not, and
    no lower bound exists."""
    return refutation is not None and refutation.proof.bound >= 0.5


def _lower(*each: Refutation | None) -> Refutation | None:
    """The best of several upper bounds."""
    known = [one for one in each if one is not None]
    return min(known, key=lambda one: one.upper, default=None)


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


def _outcome(weights: tuple[float, ...], found: tuple[_Found, ...]) -> Outcome:
    components = tuple(
        Component(weight, part.proof, part.refutation)
        for weight, part in zip(weights, found, strict=True)
    )
    lower = sum(part.weight * part.lower.bound for part in components)
    upper = sum(part.weight * (part.upper.upper if part.upper else 1.0) for part in components)
    # Sums and products of a few numbers, and weights that sum to 1 only nearly.
    if len(weights) > 1:
        lower -= 2.0**-38
        upper += 2.0**-38
    lower = max(lower, 0.0)
    upper = max(lower, min(upper, 1.0))
    calls = sum(part.calls for part in found)
    interrupted = any(part.interrupted for part in found)
    return Outcome(lower, upper, calls, Evidence(components), interrupted)
