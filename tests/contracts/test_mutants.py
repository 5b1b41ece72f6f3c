"""Seeded mutants: wrong formulas for the mass of boxes, each killed by the check that the right one
passes.

Every mass function takes a posterior and boxes and claims a lower bound of the mass of their union.
The mutants are errors that have been published or are easily made; each differs from a control that
passes in one place only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations

import pytest
import torch
from mpmath import mpf
from torch import Tensor

from bnncert.boxes.union import overlap, union_mass
from bnncert.model.box import Box
from bnncert.posteriors.independent import DOWN, UP, Independent, Normal
from scenarios import vector
from unions import exact_union

Mass = Callable[[Independent, Sequence[Box]], float]
Joint = Callable[[Box, Box], Box | None]


# ---- the check -----------------------------------------------------------------------------------


@cache
def cases() -> list[tuple[str, Normal, list[Box], mpf]]:
    """Posteriors and boxes with the exact mass of the union: every kind of error overshoots in one
    of them."""

    def case(
        name: str, mean: Sequence[float], std: Sequence[float], *ends: list[tuple[float, float]]
    ) -> tuple:
        posterior = Normal(vector(*mean), vector(*std))
        boxes = [Box(vector(*(l for l, _ in box)), vector(*(u for _, u in box))) for box in ends]
        return name, posterior, boxes, exact_union(posterior, boxes)

    return [
        case("one interval", [0.3], [0.5], [(-0.2, 1.1)]),
        case("one interval, σ above 1", [0.0], [2.0], [(-1.0, 1.5)]),
        case("narrow where σ is wide", [0.0, 0.0], [0.8, 0.2], [(-0.2, 0.2), (-0.8, 0.8)]),
        case("nine σ: 1 to the last digit but one", [0.0], [1.0], [(-9.0, 9.0)]),
        case("one far tail", [0.0], [1.0], [(9.0, 10.0)]),
        case(
            "two corners of a square",
            [0.0, 0.0],
            [1.0, 1.0],
            [(-2, -1), (-2, -1)],
            [(1, 2), (1, 2)],
        ),
        case("two that overlap", [0.0, 0.0], [1.0, 1.0], [(-1, 1), (-1, 1)], [(0, 2), (0, 2)]),
        case("three that overlap", [0.0], [1.0], [(-2.0, 1.0)], [(-1.0, 2.0)], [(-1.5, 1.5)]),
        case(
            "four that overlap",
            [0.0],
            [1.0],
            [(-2.0, 1.0)],
            [(-1.0, 2.0)],
            [(-1.5, 1.5)],
            [(-1.9, 1.9)],
        ),
        case(
            "three in no common place",
            [0.0, 0.0],
            [1.0, 1.0],
            [(-2.0, -1.0), (0.0, 1.0)],
            [(1.0, 2.0), (-1.0, 0.05)],
            [(-1.05, 1.05), (-3.0, -2.0)],
        ),
        case(
            "a common face at an atom",
            [0.0, 0.5],
            [1.0, 0.0],
            [(-1, 1), (0, 0.5)],
            [(-1, 1), (0.5, 1)],
        ),
        case("an atom outside", [0.0, 0.5], [1.0, 0.0], [(-1, 1), (0.6, 1)]),
    ]


def assert_never_above(mass: Mass) -> None:
    """The claimed mass is at most the exact one in every case, without tolerance."""
    for name, posterior, boxes, exact in cases():
        claimed = mass(posterior, boxes)
        if not mpf(claimed) <= exact:
            raise AssertionError(f"{name}: claims {claimed}, the union has {float(exact)}")


# ---- the right functions -------------------------------------------------------------------------


def the_union(posterior: Independent, boxes: Sequence[Box]) -> float:
    return union_mass(posterior, boxes).probability


def box_mass(posterior: Independent, box: Box, direction: int = DOWN) -> float:
    """Mass of one box, rounded; the last factor covers exp."""
    return math.exp(float(posterior.log_mass(box, direction))) * (1 - direction * 2**-50)


def best_box(posterior: Independent, boxes: Sequence[Box]) -> float:
    """The heaviest box is a lower bound of the union."""
    return max(box_mass(posterior, box) for box in boxes)


def inclusion_exclusion(joint: Joint, depth: int) -> Mass:
    """The signed sum over intersections of up to `depth` boxes: a lower bound at even depths and at
    full depth."""

    def mass(posterior: Independent, boxes: Sequence[Box]) -> float:
        terms = [0.0]
        for size in range(1, min(depth, len(boxes)) + 1):
            common = [_common(chosen, joint) for chosen in combinations(boxes, size)]
            sign, direction = (1, DOWN) if size % 2 else (-1, UP)
            terms += [
                sign * box_mass(posterior, box, direction) for box in common if box is not None
            ]
        return math.nextafter(math.fsum(terms), -math.inf)

    return mass


def _common(boxes: Sequence[Box], joint: Joint) -> Box | None:
    first, *others = boxes
    for other in others:
        first = None if first is None else joint(first, other)
    return first


RIGHT: dict[str, Mass] = {
    "the union": the_union,
    "the heaviest box": best_box,
    "inclusion-exclusion": inclusion_exclusion(overlap, depth=9),
    "pairs": inclusion_exclusion(overlap, depth=2),
    "depth four": inclusion_exclusion(overlap, depth=4),
}


# ---- the mutants ---------------------------------------------------------------------------------


def sum_then_product(posterior: Independent, boxes: Sequence[Box]) -> float:
    """Adds the (disjoint) boxes' intervals per weight and multiplies: counts combinations that lie
    in no box."""
    per_weight = torch.stack([posterior.log_masses(box).exp() for box in boxes]).sum(0)
    return float(per_weight.clamp_max(1).prod()) * (1 - 1e-12)


def of_each(wrong: Callable[[Normal, Box], float]) -> Mass:
    """The heaviest box, with a wrong mass for each."""
    return lambda posterior, boxes: max(wrong(posterior, box) for box in boxes)


def wrong_index(posterior: Normal, box: Box) -> float:
    """Every weight with its neighbour's σ."""
    return box_mass(Normal(posterior.mean, posterior.std.roll(1)), box)


def variance_for_deviation(posterior: Normal, box: Box) -> float:
    """σ² in the place of σ."""
    return box_mass(Normal(posterior.mean, posterior.std**2), box)


def deviation_for_variance(posterior: Normal, box: Box) -> float:
    """√σ in the place of σ, as when a stored σ is taken for a variance."""
    return box_mass(Normal(posterior.mean, posterior.std.sqrt()), box)


def one_tail_forgotten(posterior: Normal, box: Box) -> float:
    """Only the upper end counts."""
    return box_mass(posterior, Box(torch.full_like(box.lower, -math.inf), box.upper))


def difference_of_cdfs(posterior: Normal, box: Box) -> float:
    """Φ(b) - Φ(a) with Φ = (1 + erf) / 2: rounds to exactly 1."""
    deviation = torch.where(posterior.std > 0, posterior.std, 1.0)
    lower, upper = (_cdf((end - posterior.mean) / deviation) for end in (box.lower, box.upper))
    atoms = ((box.lower <= posterior.mean) & (posterior.mean <= box.upper)).double()
    return float(torch.where(posterior.std > 0, upper - lower, atoms).prod())


def _cdf(z: Tensor) -> Tensor:
    return (1 + torch.erf(z / math.sqrt(2))) / 2


def twice_the_width(posterior: Normal, box: Box) -> float:
    """±λσ verified, ±2λσ integrated."""
    radius = (box.upper - box.lower) / 2
    return box_mass(posterior, Box(box.lower - radius, box.upper + radius))


def rounded_up(posterior: Normal, box: Box) -> float:
    """Rounding in the wrong direction."""
    return box_mass(posterior, box, UP)


def atoms_ignored(posterior: Normal, box: Box) -> float:
    """A deterministic weight counts 1 wherever it is."""
    return math.exp(float(posterior.log_masses(box)[posterior.std > 0].sum())) * (1 - 1e-12)


def ends_sorted(first: Box, second: Box) -> Box:
    """An empty intersection becomes non-empty by sorting its ends."""
    ends = torch.stack(
        [torch.maximum(first.lower, second.lower), torch.minimum(first.upper, second.upper)]
    )
    return Box(ends.amin(0), ends.amax(0))


def open_boxes(first: Box, second: Box) -> Box | None:
    """Touching counts as disjoint even where a deterministic weight sits on the common face."""
    joint = overlap(first, second)
    return None if joint is None or bool((joint.lower == joint.upper).any()) else joint


# name, mass, the first case that gives it away
MUTANTS: list[tuple[str, Mass, str]] = [
    ("sum then product", sum_then_product, "two corners of a square"),
    ("odd depth 1", inclusion_exclusion(overlap, depth=1), "two that overlap"),
    ("odd depth 3", inclusion_exclusion(overlap, depth=3), "four that overlap"),
    ("empty made non-empty", inclusion_exclusion(ends_sorted, depth=9), "three in no common place"),
    ("atom counted twice", inclusion_exclusion(open_boxes, depth=9), "a common face at an atom"),
    ("wrong index", of_each(wrong_index), "narrow where σ is wide"),
    ("σ² for σ", of_each(variance_for_deviation), "one interval"),
    ("√σ for σ", of_each(deviation_for_variance), "one interval, σ above 1"),
    ("one tail forgotten", of_each(one_tail_forgotten), "one interval"),
    ("difference of CDFs", of_each(difference_of_cdfs), "nine σ"),
    ("twice the width", of_each(twice_the_width), "one interval"),
    ("rounded up", of_each(rounded_up), "one interval"),
    ("atoms ignored", of_each(atoms_ignored), "an atom outside"),
]


@pytest.mark.parametrize("name", list(RIGHT))
def test_the_right_formula_passes(name: str) -> None:
    """The library's function, and the controls from which the mutants are made."""
    assert_never_above(RIGHT[name])


@pytest.mark.parametrize(
    ("mass", "case"), [mutant[1:] for mutant in MUTANTS], ids=[mutant[0] for mutant in MUTANTS]
)
def test_the_mutant_is_killed(mass: Mass, case: str) -> None:
    """The same check fails for the wrong formula, and for the reason it was made for."""
    with pytest.raises(AssertionError, match=f"^{case}.*: claims"):
        assert_never_above(mass)


def test_difference_of_cdfs_is_wrong_by_rounding_alone() -> None:
    """At nine σ the difference is exactly 1, which no box of an unbounded law has."""
    _, posterior, boxes, exact = next(case for case in cases() if case[0].startswith("nine σ"))
    assert difference_of_cdfs(posterior, boxes[0]) == 1.0
    assert mpf(the_union(posterior, boxes)) <= exact < 1
    assert the_union(posterior, boxes) >= 1 - 1e-15
