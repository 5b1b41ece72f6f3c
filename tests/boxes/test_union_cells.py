"""Unions of many boxes: cells as evidence, many dimensions, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import mpmath
import numpy as np
import pytest
import torch

from bnncert.boxes import union as unions
from bnncert.boxes.union import Union, separated, separating_weight, union_mass
from bnncert.model.box import Box
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import DOWN, Independent, Normal
from scenarios import vector
from unions import FACES, assert_lower_bound, cases, exact_mass, exact_union, force, seeds

# ---- cells ---------------------------------------------------------------------------------------


def apart(posterior: Independent, first: Box, second: Box) -> bool:
    """Some weight has u <= l with positive spread, or u < l; written without the code under
    test."""
    for u, l, spread in [
        *zip(first.upper.tolist(), second.lower.tolist(), posterior.spread.tolist(), strict=True),
        *zip(second.upper.tolist(), first.lower.tolist(), posterior.spread.tolist(), strict=True),
    ]:
        if u < l or (u <= l and spread > 0):
            return True
    return False


def assert_cells_are_evidence(posterior: Independent, boxes: Sequence[Box], union: Union) -> None:
    """Cells lie in their parents, are pairwise apart, and their masses add up to what is
    claimed."""
    for cell in union.cells:
        assert cell.parent in union.members
        assert bool((boxes[cell.parent].lower <= cell.box.lower).all())
        assert bool((cell.box.upper <= boxes[cell.parent].upper).all())
    for first, second in combinations(union.cells, 2):
        assert apart(posterior, first.box, second.box)
    assert_lower_bound(union, exact_mass(posterior, *(cell.box for cell in union.cells)), gap=1e-12)


@seeds
def test_cells_are_evidence(block: int) -> None:
    """Whenever cells are the rule, they prove the claimed mass; otherwise none are given."""
    used = 0
    for posterior, boxes in cases(block):
        union = union_mass(posterior, boxes)
        if union.rule == "cells":
            assert_cells_are_evidence(posterior, boxes, union)
            used += len(union.cells) > 1
        else:
            assert union.cells == ()
    assert used >= 10


@pytest.mark.parametrize("size", [4, 6])
def test_cells_are_evidence_when_pieces_are_dropped(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Many overlapping boxes, few pieces kept: fewer cells, the same proof."""
    monkeypatch.setattr(unions, "EXACT_WORK", 0)
    monkeypatch.setattr(unions, "PIECES", 3)
    monkeypatch.setattr(unions, "MOST_CELLS", 12)
    posterior, boxes = crowd(seed=size, size=size, count=12)
    union = union_mass(posterior, boxes)
    assert union.rule == "cells"
    assert 1 < len(union.cells) <= 12
    assert_cells_are_evidence(posterior, boxes, union)


@seeds
def test_separation_agrees_with_the_definition(block: int) -> None:
    """`separated` is the definition above, and `separating_weight` names a weight that keeps the
    boxes apart."""
    for posterior, boxes in cases(block):
        for first, second in combinations(boxes, 2):
            assert separated(posterior, first, second) is apart(posterior, first, second)
            if separated(posterior, first, second):
                weight = separating_weight(posterior, first, second)
                one = Normal(posterior.center[[weight]], posterior.spread[[weight]])
                assert apart(one, Box(*_slice(first, weight)), Box(*_slice(second, weight)))


def _slice(box: Box, weight: int) -> tuple[torch.Tensor, torch.Tensor]:
    return box.lower[[weight]], box.upper[[weight]]


# ---- many boxes, many dimensions -----------------------------------------------------------------


def crowd(seed: int, size: int, count: int) -> tuple[Independent, list[Box]]:
    """Wide boxes on a coarse grid of faces: heavy overlaps, yet the oracle stays cheap."""
    rng = np.random.default_rng(seed)
    low, high = rng.integers(0, 3, (count, size)), rng.integers(4, 7, (count, size))
    posterior = Normal(
        torch.from_numpy(rng.normal(0, 0.3, size)), torch.from_numpy(rng.uniform(0.5, 1.2, size))
    )
    return posterior, [
        Box(torch.from_numpy(FACES[l]), torch.from_numpy(FACES[u]))
        for l, u in zip(low, high, strict=True)
    ]


def keep_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits, so that every rule is at work and gives something up."""
    monkeypatch.setattr(unions, "EXACT_WORK", 2**10)
    monkeypatch.setattr(unions, "MOST_CELLS", 8)


@pytest.mark.parametrize(
    ("size", "count"), [(2, 20), (2, 40), (3, 30), (4, 25), (5, 40), (6, 20), (6, 40)]
)
def test_many_boxes_are_never_above(monkeypatch: pytest.MonkeyPatch, size: int, count: int) -> None:
    """20 to 40 boxes in 2 to 6 dimensions, most too many for inclusion-exclusion: below the oracle,
    above every box."""
    keep_short(monkeypatch)
    posterior, boxes = crowd(size * count, size, count)
    union = union_mass(posterior, boxes)
    best = max(exact_mass(posterior, box) for box in boxes)
    exact = exact_union(posterior, boxes)
    assert_lower_bound(union, exact, gap=float(exact - best) + 1e-12)


@pytest.mark.parametrize(("size", "count"), [(4, 40), (6, 30)])
def test_many_boxes_by_pairs_alone(monkeypatch: pytest.MonkeyPatch, size: int, count: int) -> None:
    """The truncation after the pairs on its own: heavy overlaps are where an odd depth would
    overshoot."""
    force(monkeypatch, "bonferroni")
    posterior, boxes = crowd(size + count, size, count)
    union = union_mass(posterior, boxes)
    assert union.rule == "bonferroni"
    assert_lower_bound(union, exact_union(posterior, boxes), gap=1.0)


@pytest.mark.parametrize("size", [3, 6])
def test_many_boxes_against_sampling(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Boxes anywhere: not above a Monte Carlo estimate by more than five standard errors."""
    keep_short(monkeypatch)
    rng, n = np.random.default_rng(size), 20_000
    posterior = Normal(vector(*rng.normal(0, 0.3, size)), vector(*rng.uniform(0.5, 1.0, size)))
    centers, radii = rng.normal(0, 0.5, (20, size)), rng.uniform(0.3, 2.5, (20, size))
    boxes = [
        Box(torch.from_numpy(c - r), torch.from_numpy(c + r))
        for c, r in zip(centers, radii, strict=True)
    ]
    wide = Normal(posterior.mean.repeat(n), posterior.std.repeat(n))
    points = Box.point(sample(wide, 1, seed=1).reshape(n, size))
    hit = float(torch.stack([box.contains(points) for box in boxes]).any(0).double().mean())
    assert 0 < union_mass(posterior, boxes).probability <= hit + 5 * math.sqrt(hit * (1 - hit) / n)


class Metered(Normal):
    """A Normal that counts the boxes it is asked about, and gives up after too many."""

    asked = 0

    def log_masses(self, box: Box, direction: int = DOWN) -> torch.Tensor:
        Metered.asked += 1
        assert Metered.asked <= 20_000, "this union costs more than 20 000 box masses"
        return super().log_masses(box, direction)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Metered, "asked", 0)


@pytest.mark.usefixtures("meter")
def test_the_cost_stays_small_for_many_boxes_in_few_dimensions() -> None:
    """20 crossing rectangles, none inside another: 2^20 intersections are too many, however few the
    weights."""
    widths = [(width, 3.2 - width) for width in np.linspace(0.2, 3.0, 20)]
    boxes = [Box(-vector(*width), vector(*width)) for width in widths]
    posterior = Metered(vector(0.0, 0.0), vector(1.0, 1.0))
    assert_lower_bound(union_mass(posterior, boxes), exact_union(posterior, boxes), gap=0.05)


@pytest.mark.usefixtures("meter")
def test_the_cost_stays_small_for_crossing_boxes_in_more_dimensions() -> None:
    """A dozen boxes that overlap in all of six dimensions: the number of pieces to cut must stay in
    bounds."""
    centers = np.random.default_rng(1).normal(0, 0.5, (12, 6))
    boxes = [
        Box(torch.from_numpy(center - 1.5), torch.from_numpy(center + 1.5)) for center in centers
    ]
    posterior = Metered(torch.zeros(6).double(), torch.ones(6).double())
    best = max(math.exp(float(posterior.log_mass(box))) for box in boxes)
    assert best < union_mass(posterior, boxes).probability < 1


def test_a_hundred_thousand_weights() -> None:
    """Two overlapping boxes in 10⁵ dimensions, the exact mass from three kinds of interval."""
    size, special = 100_000, 10
    posterior = Normal(torch.zeros(size).double(), torch.ones(size).double())
    boxes = []
    for low, high in [(-5.0, 0.5), (-0.5, 5.0)]:
        lower, upper = torch.full((size,), -5.0).double(), torch.full((size,), 5.0).double()
        lower[:special], upper[:special] = low, high
        boxes.append(Box(lower, upper))
    union = union_mass(posterior, boxes)
    with mpmath.workdps(60):
        one = Normal(vector(0.0), vector(1.0))
        kinds = [(-5.0, 5.0), (-5.0, 0.5), (-0.5, 0.5)]
        wide, first, common = (exact_mass(one, Box(vector(l), vector(u))) for l, u in kinds)
        exact = wide ** (size - special) * (2 * first**special - common**special)
    assert_lower_bound(union, exact, gap=1e-9)
    assert union.probability > max(math.exp(float(posterior.log_mass(box))) for box in boxes)
