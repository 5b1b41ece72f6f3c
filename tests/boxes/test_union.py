"""Mass of a union of boxes, against an exact oracle: every rule, and what may not change it."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from mpmath import mpf

from bnncert.boxes import union as unions
from bnncert.boxes.union import heaviest, overlap, union_mass
from bnncert.model.box import Box
from bnncert.posteriors.independent import Normal, Uniform
from scenarios import vector
from unions import FACES, RULES, assert_lower_bound, cases, exact_mass, exact_union, force, seeds


def test_the_oracle_on_known_answers() -> None:
    """Unit squares under a uniform law: overlapping by a quarter, touching, nested and apart."""
    posterior = Uniform(vector(0.0, 0.0), vector(4.0, 4.0))
    square = [
        Box(vector(x, y), vector(x + 1, y + 1)) for x, y in [(0, 0), (0.5, 0.5), (1, 0), (2, 3)]
    ]
    for chosen, area in [([0], 1), ([0, 1], 1.75), ([0, 2], 2), ([0, 1, 2], 2.5), ([0, 0, 3], 2)]:
        assert abs(exact_union(posterior, [square[i] for i in chosen]) - mpf(area) / 16) <= 1e-50


@seeds
def test_small_unions_are_exact_from_below(block: int) -> None:
    """Up to six boxes in up to three dimensions: never above the oracle, and within 1e-9 of it."""
    for posterior, boxes in cases(block):
        assert_lower_bound(union_mass(posterior, boxes), exact_union(posterior, boxes), gap=1e-9)


def test_random_cases_are_of_every_kind() -> None:
    """The cases include overlaps, disjoint boxes, deterministic weights and touching faces: none is
    vacuous."""
    kinds = {"overlapping": 0, "atom": 0, "touching": 0, "nothing": 0, "several": 0}
    for posterior, boxes in (case for block in range(5) for case in cases(block)):
        joints = [overlap(first, second) for first, second in combinations(boxes, 2)]
        kinds["overlapping"] += any(
            j is not None and float(posterior.log_mass(j)) > -math.inf for j in joints
        )
        kinds["touching"] += any(j is not None and bool((j.lower == j.upper).any()) for j in joints)
        kinds["atom"] += bool((posterior.spread == 0).any())
        probability = union_mass(posterior, boxes).probability
        kinds["nothing"] += probability == 0
        kinds["several"] += len(boxes) > 2 and probability > 0.01
    assert min(kinds.values()) >= 20, kinds


@seeds
def test_disjoint_boxes_add_up(block: int) -> None:
    """Cells of a grid share faces only: their masses add up to within 1e-9, and never above."""
    rng = np.random.default_rng(block)
    for _ in range(20):
        size = int(rng.integers(1, 4))
        posterior = Normal(
            torch.from_numpy(rng.normal(size=size)), torch.from_numpy(rng.uniform(0.3, 1.5, size))
        )
        corners = rng.permutation(np.stack(np.meshgrid(*[range(6)] * size), -1).reshape(-1, size))[
            :6
        ]
        boxes = [
            Box(torch.from_numpy(FACES[corner]), torch.from_numpy(FACES[corner + 1]))
            for corner in corners
        ]
        union = union_mass(posterior, boxes)
        assert_lower_bound(union, exact_mass(posterior, *boxes), gap=1e-9)
        assert_lower_bound(union, exact_union(posterior, boxes), gap=1e-9)


@seeds
@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch, rule: str, block: int) -> None:
    """Forced one by one. Cells and inclusion-exclusion are exact; pairs reach at least the heaviest
    box."""
    force(monkeypatch, rule)
    used = 0
    for posterior, boxes in cases(block, 40):
        union, exact = union_mass(posterior, boxes), exact_union(posterior, boxes)
        single = max(exact_mass(posterior, box) for box in boxes)
        if len(union.members) > 1:
            assert union.rule == rule
            assert_lower_bound(
                union, exact, gap=float(exact - single) + 1e-9 if rule == "bonferroni" else 1e-9
            )
            used += 1
    assert used >= 10


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_counts_an_overlap_once(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Two unit squares that overlap by a quarter, under a uniform law on a square of side 4: 1.75 /
    16."""
    force(monkeypatch, rule)
    posterior = Uniform(vector(0.0, 0.0), vector(4.0, 4.0))
    union = union_mass(
        posterior, [Box(vector(0, 0), vector(1, 1)), Box(vector(0.5, 0.5), vector(1.5, 1.5))]
    )
    assert union.rule == rule
    assert_lower_bound(union, mpf(1.75) / 16, gap=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_touching_at_an_atom_counts_once(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Two boxes share a face on which a deterministic weight sits: both hold it, so the common mass
    counts once."""
    force(monkeypatch, rule)
    posterior = Normal(vector(0.0, 0.5), vector(1.0, 0.0))
    boxes = [Box(vector(-1.0, 0.0), vector(1.0, 0.5)), Box(vector(-0.5, 0.5), vector(2.0, 1.0))]
    exact = exact_mass(Normal(vector(0.0), vector(1.0)), Box(vector(-1.0), vector(2.0)))
    union = union_mass(posterior, boxes)
    assert union.rule == rule
    assert_lower_bound(union, exact, gap=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_touching_elsewhere_loses_nothing(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Two boxes that share a face without an atom: the sum of the two."""
    force(monkeypatch, rule)
    posterior = Normal(vector(0.0, 0.5), vector(1.0, 0.3))
    boxes = [Box(vector(-1.0, 0.0), vector(1.0, 0.5)), Box(vector(-0.5, 0.5), vector(2.0, 1.0))]
    union = union_mass(posterior, boxes)
    assert union.rule == rule
    assert_lower_bound(union, exact_mass(posterior, *boxes), gap=1e-12)


# ---- what must not change the mass ---------------------------------------------------------------


def split(box: Box, weight: int, fraction: float) -> list[Box]:
    """The box cut in two at a face through one weight's interval."""
    face = float(box.lower[weight] + fraction * (box.upper[weight] - box.lower[weight]))
    upper, lower = box.upper.clone(), box.lower.clone()
    upper[weight] = lower[weight] = face
    return [Box(box.lower, upper), Box(lower, box.upper)]


def shrunk(box: Box, fraction: float) -> Box:
    inset = (box.upper - box.lower) * fraction
    return Box(box.lower + inset, torch.maximum(box.upper - inset, box.lower + inset))


def variants(boxes: list[Box], rng: np.random.Generator) -> dict[str, list[Box]]:
    """The same set of weights, described otherwise."""
    i, weight = int(rng.integers(len(boxes))), int(rng.integers(boxes[0].shape[0]))
    return {
        "duplicated": [*boxes, boxes[i]],
        "permuted": [boxes[j] for j in rng.permutation(len(boxes))],
        "split": [*boxes[:i], *split(boxes[i], weight, rng.uniform(0.1, 0.9)), *boxes[i + 1 :]],
        "with a sub-box": [shrunk(boxes[i], rng.uniform(0, 0.4)), *boxes],
    }


@seeds
def test_describing_the_union_otherwise_changes_nothing(block: int) -> None:
    """Duplicating, permuting, splitting a box at a face and adding a sub-box leave the mass
    unchanged to 1e-12."""
    rng = np.random.default_rng(block)
    for posterior, boxes in cases(block, 40):
        expected = union_mass(posterior, boxes).probability
        for name, others in variants(boxes, rng).items():
            assert abs(union_mass(posterior, others).probability - expected) <= 1e-12, name


@seeds
def test_more_boxes_never_lose_mass(block: int) -> None:
    """Adding a box to a small union cannot lower its mass, beyond rounding."""
    for posterior, boxes in cases(block, 40):
        masses = [
            union_mass(posterior, boxes[:count]).probability for count in range(len(boxes) + 1)
        ]
        assert all(later >= earlier - 1e-12 for earlier, later in pairwise(masses))


def test_more_boxes_than_can_be_told_apart_never_lose_mass() -> None:
    """Ten boxes are counted exactly; with more, where that is too much work, the ten are still
    there to be counted."""
    centers = np.random.default_rng(3).normal(0, 0.3, (16, 20))
    boxes = [Box(torch.from_numpy(center - 2), torch.from_numpy(center + 2)) for center in centers]
    posterior = Normal(torch.zeros(20).double(), torch.ones(20).double())
    chosen = heaviest([float(posterior.log_mass(box)) for box in boxes])
    few = union_mass(posterior, [boxes[i] for i in chosen[:10]])
    assert few.rule == "inclusion-exclusion"
    assert union_mass(posterior, boxes).probability >= few.probability - 1e-12


# ---- nothing, everything, and which boxes count --------------------------------------------------


def test_no_boxes_have_no_mass() -> None:
    """An empty union is 0."""
    assert union_mass(Normal(vector(0.0), vector(1.0)), []).probability == 0.0


def test_boxes_without_mass_have_no_mass() -> None:
    """Points, boxes that miss a deterministic weight, boxes in an underflowing tail: 0, not an
    error."""
    posterior = Normal(vector(0.0, 1.0), vector(1.0, 0.0))
    point = Box(vector(0.0, 0.0), vector(0.0, 2.0))
    missing = Box(vector(-1.0, 1.5), vector(1.0, 2.0))
    remote = Box(vector(60.0, 0.0), vector(61.0, 2.0))
    for boxes in ([point], [missing], [remote], [point, missing, remote, point]):
        assert union_mass(posterior, boxes).probability == 0.0


def test_boxes_without_mass_change_nothing() -> None:
    """Beside a real box they are left out, and the real one keeps its number."""
    posterior = Normal(vector(0.0, 1.0), vector(1.0, 0.0))
    real, missing = (
        Box(vector(-1.0, 0.0), vector(1.0, 1.0)),
        Box(vector(-3.0, 1.5), vector(3.0, 2.0)),
    )
    union = union_mass(posterior, [missing, real])
    assert union.members == (1,)
    assert union.probability == union_mass(posterior, [real]).probability


def test_everything_is_at_most_one() -> None:
    """The whole space, twice, and a posterior with nothing random: 1 but for rounding, and never
    above."""
    whole = Box(vector(-math.inf, -math.inf), vector(math.inf, math.inf))
    for posterior in (
        Normal(vector(0.0, 0.0), vector(1.0, 1.0)),
        Normal(vector(0.0, 0.0), vector(0.0, 0.0)),
    ):
        union = union_mass(posterior, [whole, whole])
        assert_lower_bound(union, mpf(1), gap=1e-12)


def test_half_spaces_make_the_whole_space() -> None:
    """Infinite ends on either side of a common face."""
    posterior = Normal(vector(0.2, 0.0), vector(1.0, 0.4))
    left = Box(vector(-math.inf, -math.inf), vector(0.3, math.inf))
    right = Box(vector(0.3, -math.inf), vector(math.inf, math.inf))
    assert_lower_bound(union_mass(posterior, [left, right]), mpf(1), gap=1e-12)


def test_the_heaviest_come_first_and_negligible_ones_are_left_out() -> None:
    """By falling mass, without masses of 0 or too small to matter, and never more than can be
    handled."""
    assert heaviest([]) == []
    assert heaviest([-math.inf, -math.inf]) == []
    assert heaviest([-2.0, -1.0, -math.inf, -3.0]) == [1, 0, 3]
    assert heaviest([-800.0, -700.0]) == [1]
    assert heaviest([-1.0, -60.0]) == [0]
    assert heaviest([-float(i) / 100 for i in range(200)]) == list(range(unions.MOST_BOXES))


@pytest.mark.parametrize("rule", RULES)
def test_members_are_the_boxes_that_count(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Nested and duplicated boxes are not members; the others are, by falling mass."""
    force(monkeypatch, rule)
    posterior = Normal(vector(0.0), vector(1.0))
    ends = [(2.0, 3.0), (-1.0, 1.0), (-0.5, 0.5), (-1.0, 1.0), (1.0, 1.5)]
    union = union_mass(posterior, [Box(vector(l), vector(u)) for l, u in ends])
    assert union.members == (1, 4, 0)
    assert union.rule == rule
    assert {cell.parent for cell in union.cells} == ({0, 1, 4} if rule == "cells" else set())


@pytest.mark.parametrize(
    ("start", "empty"), [(1.0, False), (math.nextafter(1.0, 2.0), True), (5.0, True)]
)
def test_an_empty_overlap_is_none(start: float, empty: bool) -> None:
    """Not a box with its ends in the other order; closed boxes that touch do overlap."""
    first, second = (
        Box(vector(0.0, 0.0), vector(1.0, 1.0)),
        Box(vector(start, 0.0), vector(start + 1, 1.0)),
    )
    for joint in (overlap(first, second), overlap(second, first)):
        assert (joint is None) is empty
