"""Masses of boxes and unions against many digits."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import bnncert
from bnncert import PIE, Problem, Sampling
from bnncert.model.specification import ball, half_space
from bnncert_check import Rejected
from bnncert_check import arithmetic as ar
from bnncert_check.mass import DOWN, UP, WeightBox, alternating_mass, cells_mass, mass
from bnncert_check.model import Posterior as Law
from scenarios import vector
from soundness.forging import FAMILIES, LINE, Array, Fields, Random, certified


def interval_probability(fields: Fields, family: str, l: float, u: float) -> mpf:
    """P(l <= w <= u) from the definition, with digits to spare for a difference of CDFs at 38σ."""
    with mpmath.workdps(400):
        first, second, *others = [mpf(value) for value in fields.values()]
        if family == "uniform":
            return max(min(mpf(u), second) - max(mpf(l), first), 0) / (second - first)
        truncated = family == "truncated-normal"
        ends = (
            [max(mpf(l), others[0]), min(mpf(u), others[1]), *others]
            if truncated
            else [mpf(l), mpf(u)]
        )
        cdfs = [_cdf(family, (end - first) / second, *others) for end in ends]
        return max(cdfs[1] - cdfs[0], 0) / (cdfs[3] - cdfs[2] if truncated else 1)


def _cdf(family: str, z: mpf, df: mpf | None = None, *_: mpf) -> mpf:
    if family == "laplace":
        return mpmath.exp(z) / 2 if z < 0 else 1 - mpmath.exp(-z) / 2
    if family != "student-t":
        return mpmath.erfc(-z / mpmath.sqrt(2)) / 2
    with mpmath.workdps(120):
        half = mpmath.betainc(mpf(1) / 2, df / 2, 0, z * z / (df + z * z), regularized=True) / 2
    return mpf(1) / 2 + mpmath.sign(z) * half


def random_fields(family: str, rng: Random, fixed: bool = False) -> Fields:
    center, scale = float(rng.normal()), 0.0 if fixed else float(10 ** rng.uniform(-3, 1))
    if family == "uniform":
        return {"low": center - scale, "high": center + scale}
    low, high = sorted(rng.uniform(-6, 6, 2).tolist())
    extra = {"student-t": {"df": float(rng.choice([1.0, 2.5, 4.0, 30.0]))}}
    extra |= {"truncated-normal": {"low": center + low * scale, "high": center + high * scale}}
    names = ("mean", "std") if family.endswith("normal") else ("loc", "scale")
    return {names[0]: center, names[1]: scale} | extra.get(family, {})


def random_interval(fields: Fields, family: str, rng: Random) -> tuple[float, float]:
    """Straddling the centre or on one side, from 1e-8 to 38 scales away."""
    first, second = list(fields.values())[:2]
    center, scale = (
        ((first + second) / 2, (second - first) / 2) if family == "uniform" else (first, second)
    )
    near, far = (float(10 ** rng.uniform(-8, math.log10(38))) for _ in range(2))
    sign, aside = rng.choice([-1, 1]), near * (1 + rng.uniform(0.01, 2))
    ends = (-near, far) if rng.random() < 0.5 else (near, aside)
    l, u = sorted(center + float(sign * end) * scale for end in ends)
    return l, u


def law(family: str, weights: list[Fields]) -> Law:
    return Law(family, {name: np.array([w[name] for w in weights]) for name in weights[0]})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mass_of_a_box_against_many_digits(family: str) -> None:
    """DOWN <= P <= UP, both within 1e-6 of it, for 1 to 2,000 weights of up to three kinds."""
    rng, substantial = np.random.default_rng(3), 0
    for size in (1, 1, 1, 1, 2, 3, 50, 2000) * 6:
        kinds = [random_fields(family, rng) for _ in range(min(size, 3))]
        ends = [random_interval(fields, family, rng) for fields in kinds]
        with mpmath.workdps(400):
            each = [
                interval_probability(fields, family, *end)
                for fields, end in zip(kinds, ends, strict=True)
            ]
            truth = mpmath.fprod(p ** len(range(i, size, len(each))) for i, p in enumerate(each))
        posterior = law(family, [kinds[i % len(kinds)] for i in range(size)])
        box = WeightBox(*np.array([ends[i % len(kinds)] for i in range(size)]).T)
        low, high = (mass(posterior, box, side) for side in (DOWN, UP))
        assert low <= truth <= high
        assert high - low <= 1e-6 * truth + 1e-289
        substantial += truth > 1e-6
    assert substantial > 8


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deterministic_weight_is_inside_or_not(family: str) -> None:
    fields = random_fields(family, np.random.default_rng(4), fixed=True)
    posterior, c = law(family, [fields]), next(iter(fields.values()))
    above, below = math.nextafter(c, math.inf), math.nextafter(c, -math.inf)
    for l, u, expected in [
        (c, c, 1),
        (c - 1, c, 1),
        (c, c + 1, 1),
        (below, above, 1),
        (above, 9, 0),
        (-9, below, 0),
    ]:
        box = WeightBox(np.array([l]), np.array([u]))
        assert mass(posterior, box, DOWN) == expected == mass(posterior, box, UP)


def union_probability(fields: list[Fields], family: str, boxes: list[Array]) -> mpf:
    """P(w in some box [d, 2]): the sum over the grid of all their ends; a fixed weight is a grid of
    one point."""
    axes = []
    for i, posterior in enumerate(law(family, [weight]) for weight in fields):
        ends = sorted({float(end) for box in boxes for end in box[i]})
        axes.append(
            list(pairwise(ends)) if posterior.random[0] else [(float(posterior.center[0]),) * 2]
        )
    total = mpf(0)
    for cell in product(*axes):
        if any(
            all(box[i][0] <= l and u <= box[i][1] for i, (l, u) in enumerate(cell)) for box in boxes
        ):
            random = [
                (weight, end) for weight, end in zip(fields, cell, strict=True) if end[0] < end[1]
            ]
            total += mpmath.fprod(
                interval_probability(weight, family, *end) for weight, end in random
            )
    return total


@pytest.mark.parametrize("family", ["normal", "uniform", "laplace"])
def test_unions_are_never_above_the_exact_oracle(family: str) -> None:
    """All intersections: exact. Even depth: at most it. Odd depth would overshoot, so the oracle
    can tell."""
    rng, overshot = np.random.default_rng(5), 0
    for k in range(40):
        fields = [random_fields(family, rng, fixed=k % 4 == 3 and i == 1) for i in range(1 + k % 2)]
        boxes = [
            np.array([random_interval(w, family, rng) for w in fields]) for _ in range(2 + k % 3)
        ]
        boxes[1][0, 0] = (
            min(boxes[0][0, 1], boxes[1][0, 1]) if k % 3 == 0 else boxes[1][0, 0]
        )  # touching
        boxes[-1] = boxes[0] if k % 5 == 0 else boxes[-1]
        posterior, truth = law(family, fields), union_probability(fields, family, boxes)
        parts = [WeightBox(*b.T) for b in boxes]
        found = [ar.lower_float(alternating_mass(posterior, parts, depth)) for depth in range(6)]
        assert truth - 1e-9 <= found[len(boxes)] <= truth
        assert max(found[2], found[4]) <= truth
        overshot += found[1] > truth + mpf(10) ** -6
        joint = parts[0].intersection(parts[1])
        first, second = (Fraction(mass(posterior, part, DOWN)) for part in parts[:2])
        shared = (
            0 if joint is None else Fraction(mass(posterior, joint, UP))
        )  # what is taken off is rounded up
        assert len(boxes) > 2 or found[2] <= first + second - shared
    assert overshot > 3


@pytest.mark.parametrize("family", FAMILIES)
def test_disjoint_cells_add_up_and_others_are_refused(family: str) -> None:
    """A box cut in three: the sum is its mass. Overlaps and shared atoms are refused."""
    rng = np.random.default_rng(6)
    fields = [random_fields(family, rng) for _ in range(2)]
    (l0, u0), (l1, u1) = ends = [random_interval(w, family, rng) for w in fields]
    c0, c1 = rng.uniform(l0, u0), rng.uniform(l1, u1)
    corners = np.array([[l0, l1, c0, c1], [l0, c1, c0, u1], [c0, l1, u0, u1]])
    cells, apart = [WeightBox(c[:2], c[2:]) for c in corners], {(1, 0): 1, (2, 0): 0, (2, 1): 0}
    truth = mpmath.fprod(
        interval_probability(w, family, *end) for w, end in zip(fields, ends, strict=True)
    )
    assert (
        truth * (1 - 1e-6) - 1e-289
        <= ar.lower_float(cells_mass(law(family, fields), cells, apart))
        <= truth
    )
    atom = [fields[0], random_fields(family, rng, fixed=True)]
    for weights, parts, named in [
        (fields, cells, {**apart, (1, 0): 0}),
        (fields, cells, {(1, 0): 1}),
        (fields, [cells[0]] * 2, {(1, 0): 1}),
        (atom, cells, apart),
    ]:
        with pytest.raises(Rejected, match=r"apart|overlap"):
            cells_mass(law(family, weights), parts, named)


def test_a_truncated_normal_of_no_width_is_an_atom() -> None:
    """low = high with std > 0 is a point mass, which touching cells would count twice: 1.37 in
    all."""
    weights = [
        {"mean": 0.0, "std": 1.0, "low": low, "high": high}
        for low, high in ((-5.0, 5.0), (0.5, 0.5))
    ]
    cells = [
        WeightBox(np.array([-1.0, l]), np.array([1.0, u])) for l, u in ((0.0, 0.5), (0.5, 1.0))
    ]
    with pytest.raises(Rejected, match="overlap"):
        cells_mass(law("truncated-normal", weights), cells, {(1, 0): 1})


def test_student_t_that_is_nearly_normal(tmp_path: Path) -> None:
    """Up to the most degrees of freedom that a posterior may have."""
    posterior = bnncert.posteriors.StudentT(vector(1.0), vector(0.1), vector(1e10))
    problem = Problem(
        LINE, posterior, half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.5)
    )
    assert certified(tmp_path, problem, PIE(samples=1), 0)


@pytest.mark.parametrize(("df", "z"), [(300.0, 12.5), (1e3, 25.0), (1e4, 100.0), (1e6, 100.0)])
def test_student_t_far_out(df: float, z: float, tmp_path: Path) -> None:
    """Where the incomplete beta function has no digits left on the other side."""
    posterior = bnncert.posteriors.StudentT(vector(1.0), vector(1e-3), vector(df))
    problem = Problem(
        LINE, posterior, half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.5)
    )
    assert certified(tmp_path, problem, Sampling(samples=1, step=z), 0)
