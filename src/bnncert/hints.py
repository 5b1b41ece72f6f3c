"""Hints: what stands behind results that say nothing, and what to try instead.

Every hint is one line. What it says of a posterior is computed here, from a few inputs and a few
drawn networks: an estimate, no certificate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from scipy.special import ndtri

from bnncert.concentration.bisection import LOW
from bnncert.concentration.method import BRANCHING, EFFORTS
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.activations import Activation
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball
from bnncert.posteriors.base import sample
from bnncert.posteriors.gaussian import LowRankNormal, Mixture
from bnncert.posteriors.independent import Independent
from bnncert.results.rows import Result, Status

LOOKED_AT = 2  # inputs that are asked again without a region
DRAWN = 20  # networks


def hints(problem: Problem, method: Method, results: Sequence[Result]) -> list[str]:
    """What a person should know of these results: nothing, where they say something."""
    found = [_unsplit(problem, method)]
    if results:
        found += [_far(results) or _wrong(results) or _silent(problem, method, results)]
    return [hint for hint in found if hint]


def _unsplit(problem: Problem, method: Method) -> str:
    """Branch and bound that has nothing to branch on."""
    network = problem.network
    if not isinstance(method, Concentration) or method.effort < BRANCHING:
        return ""
    if _refines(problem):
        return ""
    kinds = {
        type(layer).__name__: None for layer in network.layers if isinstance(layer, Activation)
    }
    what = f"{' and '.join(kinds)} cannot be split" if kinds else "there is no activation to split"
    return (
        f"effort {method.effort} branches on the signs of neurons, and {what}: the bounds are "
        "those of effort 1"
    )


def _refines(problem: Problem) -> bool:
    """Whether branch and bound has kinks to branch on, or a region that it can cut."""
    network = problem.network
    layers = network.layers
    kinks = any(isinstance(layer, Activation) and layer.traits.splits for layer in layers)
    return kinks or math.prod(network.input_shape) <= LOW


def _far(results: Sequence[Result]) -> str:
    """A regression whose every target is far from its prediction, as where units differ."""
    away = []
    for row in results:
        if row.low is None or row.high is None or row.output is None:
            return ""
        if row.low <= row.output <= row.high:
            return ""
        away.append(abs(row.output - (row.low + row.high) / 2))
    return (
        f"every target is far from what the mean network predicts, by {min(away):.4g} at least: "
        "try a wider --tolerance, or see that inputs and targets are in the units of the training "
        "(train --task regression keeps them with the posterior)"
    )


def _wrong(results: Sequence[Result]) -> str:
    if any(row.status != Status.MISCLASSIFIED for row in results):
        return ""
    return (
        "the mean network is wrong at every input: are inputs and labels those it was trained on, "
        "in the same order and range?"
    )


def _silent(problem: Problem, method: Method, results: Sequence[Result]) -> str:
    """Every interval is [0, 1]: why, and what to try."""
    if any((row.lower, row.upper) != (0, 1) for row in results):
        return ""
    return f"nothing is known of any input: {_why(problem, method)}; try {_what(problem, method)}"


def _why(problem: Problem, method: Method) -> str:
    """The posterior's width against what the method can do."""
    if isinstance(method, PIE | GIE | Sampling):
        count = _random_weights(problem)
        if count == 0:
            return "no weight is random, and the one network is not proved safe"
        reach = -float(ndtri((1 - 0.5 ** (1 / count)) / 2))
        return (
            f"a box that holds half of the posterior reaches {reach:.1f} σ to both sides of all "
            f"{count} random weights, and none near that size is proved safe"
        )
    part = problem[:LOOKED_AT]
    there = _at_the_inputs(part)
    right = sum(_right(there, k) for k in range(DRAWN)) / DRAWN
    share = f"of {DRAWN} networks drawn {100 * right:.0f} % are right at the first inputs"
    if right < 0.5:
        return f"{share}, so that P_safe itself is small"
    if not isinstance(method, Concentration):
        return f"{share}, and the region is more than the bounds can follow"
    plain = replace(
        method, effort=min(method.effort, 1), upper=False, nodes=None, time_limit=None,
        precision=None,
    )  # fmt: skip
    lower = sum(outcome.lower for outcome in plain(there, 0)) / len(there)
    if lower > 0:
        return (
            f"at eps 0 the first inputs have P_safe of {100 * lower:.0f} % at least, so that the "
            "region is what the bound cannot follow"
        )
    return (
        f"{share}, but with a median σ of {_width(problem):.2g} the bound proves nothing of them "
        "even at eps 0"
    )


def _what(problem: Problem, method: Method) -> str:
    """What to try, the cheapest first."""
    tries = []
    gaussian = isinstance(problem.posterior, Concentration.posteriors)
    if not isinstance(method, Concentration) and gaussian:
        tries.append("--method concentration")
    if isinstance(method, Concentration) and method.effort < EFFORTS[-1] and _refines(problem):
        tries.append("--effort 3")
    if isinstance(method, Concentration) and not method.upper:
        tries.append("--upper")
    if bool((problem.specification.region.eps > 0).any()):
        tries.append("a smaller --eps")
    return ", ".join([*tries, "a posterior that is trained for certificates (train --robust)"])


def _at_the_inputs(problem: Problem) -> Problem:
    """The same question at the clean inputs alone."""
    spec = problem.specification
    points = ball(spec.region.center, 0.0)
    return replace(
        problem, specification=Specification(points, spec.rows, spec.offsets, spec.labels)
    )


def _right(problem: Problem, number: int) -> float:
    """The share of inputs that one drawn network is right at: one, for all weights may be many."""
    (weights,) = sample(problem.posterior, 1, seed=0, first=number)
    return float((problem.margins(weights) > 0).all(-1).double().mean())


def _spreads(problem: Problem) -> torch.Tensor:
    """The standard deviations, or scales, of all random weights."""
    posterior = problem.posterior
    if isinstance(posterior, Mixture):
        posterior = posterior.components[posterior.weights.index(max(posterior.weights))]
    if isinstance(posterior, LowRankNormal):
        spreads = posterior.marginal_std
    elif isinstance(posterior, Independent):
        spreads = posterior.spread
    else:
        spreads = torch.zeros(0)
    return spreads[spreads > 0]


def _random_weights(problem: Problem) -> int:
    return len(_spreads(problem))


def _width(problem: Problem) -> float:
    spreads = _spreads(problem)
    return float(spreads.median()) if len(spreads) else 0.0
