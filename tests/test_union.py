"""Mass of a union of boxes, against an exact oracle: a decomposition of space into slabs between
the boxes' faces.

The oracle is evaluated with 60 digits, so "never above" is checked without tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import combinations, pairwise

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

from bnncert.boxes import union as unions
from bnncert.boxes.union import Union, heaviest, overlap, separated, separating_weight, union_mass
from bnncert.model.box import Box
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import DOWN, Independent, Laplace, Normal, Uniform
from test_posterior import exact_interval_log, exact_log, vector

RULES = ["cells", "inclusion-exclusion", "bonferroni"]
FACES = np.linspace(-2.0, 2.0, 7)


# ---- the oracle ----------------------------------------------------------------------------------


def exact_union(posterior: Independent, boxes: Sequence[Box]) -> mpf:
    """P(w in some box): the total mass of the slabs' products that some box covers."""
    if not boxes:
        return mpf(0)
    with mpmath.workdps(60):
        masses, covers = zip(
            *(_slabs(posterior, boxes, weight) for weight in range(posterior.size)), strict=True
        )
        covered = np.any(
            [reduce(np.multiply.outer, cover) for cover in zip(*covers, strict=True)], axis=0
        )
        return reduce(lambda rest, mass: rest @ mass, reversed(masses), covered.astype(object))


def exact_mass(posterior: Independent, *boxes: Box) -> mpf:
    """The sum of the boxes' masses."""
    with mpmath.workdps(60):
        return mpmath.fsum(mpmath.exp(exact_log(posterior, box)) for box in boxes)


def _slabs(
    posterior: Independent, boxes: Sequence[Box], weight: int
) -> tuple[np.ndarray, np.ndarray]:
    """Masses [slabs] of the slabs of one weight, and which boxes cover them, [boxes, slabs]."""
    lower, upper = (
        np.array([float(end[weight]) for end in ends])
        for ends in zip(*map(_ends, boxes), strict=True)
    )
    if float(posterior.spread[weight]) == 0:  # an atom: one slab, the weight's only value
        value = float(posterior.center[weight])
        return np.array([mpf(1)]), ((lower <= value) & (value <= upper))[:, None]
    slabs = list(pairwise(sorted({*lower, *upper}))) or [(lower[0], lower[0])]
    masses = np.array([mpmath.exp(exact_interval_log(posterior, weight, l, u)) for l, u in slabs])
    return masses, np.array(
        [[box[0] <= l and u <= box[1] for l, u in slabs] for box in zip(lower, upper, strict=True)]
    )


def _ends(box: Box) -> tuple[torch.Tensor, torch.Tensor]:
    return box.lower, box.upper


def test_the_oracle_on_known_answers() -> None:
    """Unit squares under a uniform law: overlapping by a quarter, touching, nested and apart."""
    posterior = Uniform(vector(0.0, 0.0), vector(4.0, 4.0))
    square = [
        Box(vector(x, y), vector(x + 1, y + 1)) for x, y in [(0, 0), (0.5, 0.5), (1, 0), (2, 3)]
    ]
    for chosen, area in [([0], 1), ([0, 1], 1.75), ([0, 2], 2), ([0, 1, 2], 2.5), ([0, 0, 3], 2)]:
        assert abs(exact_union(posterior, [square[i] for i in chosen]) - mpf(area) / 16) <= 1e-50


# ---- random cases --------------------------------------------------------------------------------


def random_posterior(rng: np.random.Generator, size: int) -> Independent:
    """Normal, Uniform or Laplace weights; some are deterministic, often exactly on a face of the
    boxes' grid."""
    center = torch.from_numpy(
        np.where(rng.random(size) < 0.5, rng.choice(FACES, size), rng.normal(size=size))
    )
    spread = torch.from_numpy(rng.uniform(0.3, 1.5, size) * (rng.random(size) > 0.2))
    kind = rng.choice(["normal", "uniform", "laplace"])
    if kind == "uniform":
        return Uniform(center - 2 * spread, center + 2 * spread)
    return (Normal if kind == "normal" else Laplace)(center, spread)


def random_boxes(rng: np.random.Generator, count: int, size: int) -> list[Box]:
    """Boxes anywhere, or with faces on a coarse grid, so that faces touch, coincide and nest."""
    shape = (2, count, size)
    ends = np.sort(
        rng.choice(FACES, shape) if rng.random() < 0.6 else rng.normal(size=shape), axis=0
    )
    return [Box(torch.from_numpy(l), torch.from_numpy(u)) for l, u in zip(*ends, strict=True)]


def random_case(seed: int) -> tuple[Independent, list[Box]]:
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    return random_posterior(rng, size), random_boxes(rng, count, size)


def assert_lower_bound(union: Union, exact: mpf, gap: float) -> None:
    """In [0, 1], never above the exact mass, and within `gap` of it."""
    assert 0 <= union.probability <= 1
    assert mpf(union.probability) <= exact, (
        f"{union.rule}: above by {mpmath.nstr(union.probability - exact, 3)}"
    )
    assert exact - union.probability <= gap, (
        f"{union.rule}: below by {mpmath.nstr(exact - union.probability, 3)}"
    )


seeds = pytest.mark.parametrize("block", range(5))


def cases(block: int, count: int = 60) -> list[tuple[Independent, list[Box]]]:
    return [random_case(1000 * block + i) for i in range(count)]


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


# ---- every rule on its own -----------------------------------------------------------------------


def force(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Make one rule win wherever there are two boxes or more."""
    if rule != "cells":
        monkeypatch.setattr(unions, "MOST_CELLS", 0)
    if rule != "inclusion-exclusion":
        monkeypatch.setattr(unions, "EXACT_WORK", 0)
    if rule == "cells":  # with every piece kept the cells are exact, so pairs alone cannot win
        monkeypatch.setattr(unions, "MOST_CELLS", 10**6)
        monkeypatch.setattr(unions, "PIECES", 10**6)


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
