"""The truth set: what is stored is what ball arithmetic gives, what networks drawn from the
posteriors show, and what our own methods never pass."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib.resources import files

import pytest
import torch

from bnncert import Concentration, Enumeration, Problem, certify, decide
from bnncert.bench.known import KNOWN
from bnncert.bench.recipes import Recipe
from bnncert.posteriors import Empirical, LowRankNormal, Mixture, Normal, sample
from known_truths import stored
from scenarios import draw_many
from truth import corners, sample_region

STORED = json.loads((files("bnncert.bench") / "truths.json").read_text(encoding="utf-8"))
DRAWS = 40_000
ROUNDED = ("truth-float32", "truth-float64", "truth-slope")  # by the very forward pass
SOFTMAX = [recipe for recipe in KNOWN if recipe.quantity == "softmax"]
P_SAFE = [recipe for recipe in KNOWN if recipe not in SOFTMAX]
SAMPLED = [recipe for recipe in P_SAFE if recipe.name not in ROUNDED]


def problem_of(recipe: Recipe) -> Problem:
    return Problem(*recipe.model(), recipe.question())


def named(recipe: Recipe) -> str:
    return recipe.name


def test_the_stored_truths_are_those_of_ball_arithmetic() -> None:
    """To thirty digits, for every instance of the set."""
    assert stored() == STORED
    assert {recipe.name for recipe in KNOWN} == STORED.keys()


@pytest.mark.parametrize("recipe", SAMPLED, ids=named)
def test_drawn_networks_show_the_stored_truth(recipe: Recipe) -> None:
    """The share of safe networks is within 5 standard errors: the model is what the formula says.

    Those whose forward pass float64 itself gets wrong are left to their formula.
    """
    problem = problem_of(recipe)
    ends = [Fraction(end) for end in STORED[recipe.name].values()]
    assert abs(ends[0] - ends[1]) <= Fraction(1, 10**29)
    truth = float(ends[0])
    share = safe_share(problem)
    error = (truth * (1 - truth) / DRAWS) ** 0.5
    assert abs(share - truth) <= 5 * error + 5 / DRAWS


def safe_share(problem: Problem) -> float:
    """Of drawn networks, or of all where there are finitely many."""
    generator = torch.Generator().manual_seed(5)
    posterior = problem.posterior
    if isinstance(posterior, Empirical):
        weights = posterior.samples
    elif isinstance(posterior, Normal | LowRankNormal | Mixture):
        weights = draw_many(posterior, DRAWS, generator)
    else:
        weights = sample(posterior, DRAWS, 5)
    region = problem.specification.region
    points = torch.cat([corners(region, generator), sample_region(region, 8, generator)])
    safe = torch.ones(len(weights), dtype=torch.bool)
    for x in [region.center, *points]:
        margins = problem.specification.margins(problem.network.forward(weights, x))
        safe &= (margins > 0).all(-1)[:, 0]
    return float(safe.double().mean())


@pytest.mark.parametrize("recipe", P_SAFE, ids=named)
def test_our_methods_never_pass_the_truth(recipe: Recipe) -> None:
    """Not by one unit in the last place."""
    problem = problem_of(recipe)
    finite = isinstance(problem.posterior, Empirical)
    method = Enumeration() if finite else Concentration(effort=2, upper=True)
    found = certify(problem, method)[0]
    known = STORED[recipe.name]
    assert Fraction(found.lower) <= Fraction(known["lower_at_most"])
    assert Fraction(found.upper) >= Fraction(known["upper_at_least"])


@pytest.mark.parametrize("recipe", SOFTMAX, ids=named)
def test_our_predictive_bounds_never_pass_the_truth(recipe: Recipe) -> None:
    found = decide(problem_of(recipe))[0]
    known = STORED[recipe.name]
    assert Fraction(found.lower) <= Fraction(known["lower_at_most"])
    assert Fraction(found.upper) >= Fraction(known["upper_at_least"])


def test_every_instance_says_which_mistake_it_catches() -> None:
    assert [recipe.name for recipe in KNOWN if not recipe.catches] == []


def test_the_slope_trap_is_exact() -> None:
    """What the slope's instance adds and subtracts are floats without rounding."""
    large, slope = Fraction(2) ** 26, Fraction(0.3)
    offset = -large * slope - 1
    assert Fraction(float(offset)) == offset
    _, posterior = next(recipe for recipe in KNOWN if recipe.name == "truth-slope").model()
    assert Fraction(float(posterior.center[-1])) == offset
