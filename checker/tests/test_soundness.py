"""The checker against exact arithmetic and brute force: never on the wrong side, and it accepts
what bnncert writes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx
from mpmath import mpf
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

import bnncert
from bnncert import GIE, PIE, Concentration, Problem, Sampling, Specification
from bnncert.bounds import BOUNDS
from bnncert.concentration.proof import prove
from bnncert.evidence import concentration
from bnncert.evidence.certificate import Certificate, Found, certificate_for
from bnncert.layers import Dense, Flatten, ReLU, Sigmoid, Tanh
from bnncert.methods import Method
from bnncert.model.box import Box
from bnncert.model.network import Network, mlp
from bnncert.model.specification import ball, class_robust, explicit_box, half_space
from bnncert.posteriors import LowRankNormal, Mixture, Normal
from bnncert.posteriors.base import Posterior
from bnncert_check import ACCEPT, Rejected, Verdict, check_certificate, read_model
from bnncert_check import arithmetic as ar
from bnncert_check.activations import default_slopes, image, lines
from bnncert_check.grammar import Tensors as Stored
from bnncert_check.layers import Activation, pull_error, pull_up
from bnncert_check.layers import Dense as Linear
from bnncert_check.linear import row_bounds
from bnncert_check.mass import DOWN, UP, WeightBox, alternating_mass, cells_mass, mass
from bnncert_check.model import Posterior as Law
from bnncert_check.region import read_region
from bnncert_check.tails import expected_magnitude, normal_tails_down, normal_tails_up
from scenarios import (
    correlated,
    draw_many,
    gaussian,
    paired_margins,
    random_problem,
    sample_box,
    sample_region,
    uniform,
    vector,
    weight_boxes,
    wider,
)
from truth import DRAWS, assert_below_truth

Array: TypeAlias = NDArray[np.float64]
Random: TypeAlias = np.random.Generator
Fields: TypeAlias = dict[str, float]  # of one weight
Evidence: TypeAlias = tuple[dict[str, Any], dict[str, Tensor]]  # JSON and tensors

ETA, BIG = 2.0**-1074, 2.0**500
FAMILIES = ("normal", "laplace", "student-t", "uniform", "truncated-normal")


@pytest.fixture(autouse=True)
def _as_the_checker_runs() -> Iterator[None]:
    """Arb at the checker's precision, numpy as quiet as it keeps it, 60 digits for the truth."""
    with ctx.workprec(ar.BITS), np.errstate(all="ignore"), mpmath.workdps(60):
        yield


# ---- problems, forged certificates and exact evaluation ------------------------------------------


def exact_rows(problem: Problem, weights: Tensor, x: Tensor) -> list[Any]:
    """C y + d of one network at one point of the first input: rational, or 60 digits where a curve
    enters."""
    network, spec = problem.network, problem.specification
    number: Any = (
        mpf if any(isinstance(layer, Tanh | Sigmoid) for layer in network.layers) else Fraction
    )

    def linear(coefficients: list[float], h: list[Any], constant: float) -> Any:
        return sum((number(c) * v for c, v in zip(coefficients, h, strict=True)), number(constant))

    h = [number(v) for v in x.flatten().tolist()]
    for layer, parameters in zip(network.layers, network.split(weights), strict=True):
        if isinstance(layer, Dense):
            bias = parameters[1].tolist() if layer.bias else [0.0] * layer.outputs
            h = [
                linear(column, h, b)
                for column, b in zip(parameters[0].T.tolist(), bias, strict=True)
            ]
        elif not isinstance(layer, Flatten):
            h = [exact_value(type(layer).__name__, getattr(layer, "slope", 0.0), z) for z in h]
    return [
        linear(row, h, d)
        for row, d in zip(spec.rows[0].tolist(), spec.offsets[0].tolist(), strict=True)
    ]


def exact_value(kind: str, alpha: float | None, z: Any) -> Any:
    if kind.endswith("ReLU"):
        return max(z, type(z)(alpha) * z)
    return mpmath.tanh(z) if kind == "Tanh" else 1 / (1 + mpmath.exp(-z))


def forged(
    problem: Problem, evidence: Evidence, claim: tuple[float, float] = (0.0, 1.0)
) -> Certificate:
    """Any evidence and any claim about the first input, with the right question and digests."""
    kind = "concentration" if "components" in evidence[0] else "boxes"
    digests = problem.network.digest, problem.posterior.digest
    claimed = dict(zip(("lower", "upper"), claim, strict=True))
    honest = certificate_for(
        digests, problem.specification[:1], claimed, concentration.Concentration(()), Found({})
    )
    value, tensors = evidence
    return Certificate(honest.header | {"kind": kind, "evidence": value}, honest.tensors | tensors)


def verdict(folder: Path, problem: Problem, certificate: Certificate) -> Verdict:
    """What the checker says of the certificate beside the problem's posterior, both read from
    files."""
    bnncert.save_posterior(folder / "posterior.safetensors", problem.network, problem.posterior)
    certificate.write(folder / "certificate.safetensors")
    return check_certificate(
        folder / "certificate.safetensors", read_model(folder / "posterior.safetensors")
    )


def one_box(step: float = 1.0) -> Evidence:
    """The posterior's centre ± step times its spread."""
    growth = {"step": step, "rho": 0.0, "zero_gradient_only": False}
    boxes = [{"draw": None, "steps": 1}]
    return {"bound": "lbp", "growth": growth, "boxes": boxes, "union": {"rule": "cells"}}, {}


def proof(
    problem: Problem, prefix: str, t: float, rows: int, slopes: Any, own: Any = None
) -> Evidence:
    """A proof with slopes(*shape) for every activation, and own(*shape) for those of the output
    rows."""
    tensors = {}
    for k, layer in enumerate(problem.network.layers):
        if not isinstance(layer, Dense | Flatten):
            width = math.prod(problem.network.shapes[k])
            tensors |= {f"{prefix}{side}_slopes{k}": slopes(width) for side in ("lower", "upper")}
            tensors |= {} if own is None else {f"{prefix}row_slopes{k}": own(rows, width)}
    return {"probability": (0.0).hex(), "t": t.hex(), "rows_optimised": own is not None}, tensors


def constant_slopes(problem: Problem, value: float) -> Evidence:
    """Concentration with this slope everywhere, at t = 4."""
    slopes = partial(torch.full, fill_value=value, dtype=torch.float64)
    own = [lambda *shape: slopes(shape)] * 2
    lower, tensors = proof(problem, "c0.", 4.0, problem.specification.rows.shape[1], *own)
    return {"components": [{"weight": (1.0).hex(), "lower": lower, "upper": None}]}, tensors


def accepted(folder: Path, problem: Problem) -> list[bool]:
    """Whether P_safe >= 1 is accepted by one box, and by concentration with slopes 0, 1/2 and 1."""
    evidence = [one_box(), *(constant_slopes(problem, value) for value in (0.0, 0.5, 1.0))]
    return [
        verdict(folder, problem, forged(problem, each, (1.0, 1.0))).status == ACCEPT
        for each in evidence
    ]


def as_explicit_box(problem: Problem) -> Problem:
    spec = problem.specification
    return replace(problem, specification=replace(spec, region=explicit_box(spec.region.box)))


def with_margin(problem: Problem, margin: float) -> Problem:
    """The offsets moved so that the central network's rows are `margin` at the clean input; labels
    become right."""
    spec = problem.specification
    if spec.labels is not None:
        labels = problem.predictions()
        return replace(
            problem, specification=class_robust(spec.region, labels, problem.network.outputs)
        )
    offsets = spec.offsets + margin - problem.margins(problem.posterior.center)
    return replace(problem, specification=replace(spec, offsets=offsets))


# ---- arithmetic and tails ------------------------------------------------------------------------


def trap_vectors(kind: str, rng: Random) -> tuple[Array, Array]:
    n = int(rng.integers(1, 120))
    a, b = rng.standard_normal((2, n))
    if kind == "wild":
        a, b = (v * 2.0 ** rng.integers(-400, 400, n) for v in (a, b))
    elif kind == "cancelling":
        a, b = (
            np.concatenate([a * 2.0**54, rng.standard_normal(n), -a * 2.0**54]),
            np.concatenate([b, b, b]),
        )
    elif kind == "subnormal":
        a, b = rng.integers(-9, 10, n) * ETA, b * 2.0 ** rng.integers(-3, 4, n)
    elif kind == "underflowing":
        a, b = (v * 2.0 ** rng.integers(-560, -500, n) for v in (a, b))
    elif kind == "zero":
        a = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    order = rng.permutation(len(a))
    return a[order], b[order]


@pytest.mark.parametrize(
    "kind", ["plain", "wild", "cancelling", "subnormal", "underflowing", "zero"]
)
def test_sums_and_products_are_never_on_the_wrong_side(kind: str) -> None:
    """Strictly: a row of exactly 0 must come out negative. And within 4γ and 16 (n + 16) η of the
    truth."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        a, b = trap_vectors(kind, rng)
        terms = [Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        exact, size = sum(terms), sum(map(abs, terms))
        slack = 4 * Fraction(ar.gamma(len(a))) * size + 16 * (len(a) + 16) * Fraction(ETA)
        low, high = (Fraction(float(f(a, b))) for f in (ar.dot_down, ar.dot_up))
        assert exact - slack <= low < exact < high <= exact + slack
        magnitudes = np.abs(b)[None], np.abs(a)[None]
        layer = Linear(
            0, len(b), True, 0
        )  # one row of weights: its transposed map is the dot product
        assert size < Fraction(float(pull_up(layer, *magnitudes)[0, 0])) <= size + slack
        naive = Fraction(float((a[None] @ b[:, None])[0, 0]))
        assert abs(naive - exact) < Fraction(float(pull_error(layer, *magnitudes)[0, 0])) <= slack


def test_gamma_pays_for_sixteen_more_roundings() -> None:
    for share in (Fraction(n + 16) / 2**53 for n in (0, 1, 2, 100, 10**4, 10**7)):
        exact = share / (1 - share)
        assert (
            exact <= Fraction(ar.gamma(int(share * 2**53) - 16)) <= exact * (1 + Fraction(2) ** -46)
        )


def test_floats_of_balls_are_exact_or_neighbours() -> None:
    largest = 1.7976931348623157e308
    for value in [0.0, -0.0, 1.0, -1.5, ETA, -ETA, 3 * ETA, 2.0**-1022, largest, 0.1, -1e-310]:
        assert ar.lower_float(arb(value)) == value == ar.upper_float(arb(value))
        assert Fraction(float(ar.sqrt_up(np.array(abs(value))))) ** 2 >= abs(Fraction(value))
    tiny, huge = arb(10) ** -400, arb(10) ** 400
    assert [f(end) for end in (tiny, -tiny) for f in (ar.lower_float, ar.upper_float)] == [
        0.0,
        ETA,
        -ETA,
        0.0,
    ]
    assert (ar.lower_float(huge), ar.upper_float(huge)) == (largest, math.inf)
    assert math.isnan(ar.lower_float(arb("nan")))
    for numerator, denominator in product((1, -1, 2, 5, 10**30), (3, 7, 11, 3 * 10**320)):
        low, high = (f(arb(numerator) / arb(denominator)) for f in (ar.lower_float, ar.upper_float))
        assert Fraction(low) < Fraction(numerator, denominator) < Fraction(high)
        assert math.nextafter(low, math.inf) == high


def places(rng: Random, last: float) -> Array:
    """At the table's nodes, between them, halfway, about its end and beyond."""
    nodes = rng.integers(0, 12 * 1024, 60) / 1024
    far = [0, 1e-300, 1e-8, 11.99999, 12, math.nextafter(12, 13), 1e9]
    return np.concatenate(
        [nodes, nodes + 2.0**-11, 12 * rng.random(100), 12 + (last - 12) * rng.random(20), far]
    )


def test_expected_magnitude_is_never_below_the_truth() -> None:
    """Its excess is below 1e-13 s and 4 ulp of a."""
    rng = np.random.default_rng(2)
    for s in (1.0, 0.3, 1e-9, 1e-160, 2.0**-1060, ETA, 1e140):
        a = rng.choice([-1, 1]) * places(rng, 50) * s
        for mean, found in zip(
            a.tolist(), expected_magnitude(a, np.full_like(a, s)).tolist(), strict=True
        ):
            z = mpf(mean) / mpf(s)
            density = mpmath.exp(-(z**2) / 2) * mpmath.sqrt(2 / mpmath.pi)
            truth = mpf(s) * density + mpf(mean) * mpmath.erf(z / mpmath.sqrt(2))
            assert truth <= found <= truth + 1e-13 * s + 2.0**-51 * abs(mean) + 4 * ETA, (mean, s)


def test_tails_from_the_table_enclose_the_truth() -> None:
    rng = np.random.default_rng(11)
    z = np.concatenate([places(rng, 40), 11 + rng.random(3000)])  # where the series loses most
    for at, low, high in zip(
        z.tolist(), normal_tails_down(z).tolist(), normal_tails_up(z).tolist(), strict=True
    ):
        truth = mpmath.erfc(mpf(at) / mpmath.sqrt(2)) / 2
        assert low <= truth <= high
        assert at > 12 or high - low <= 2.0**-46 * truth


# ---- mass ----------------------------------------------------------------------------------------


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


# ---- activations ---------------------------------------------------------------------------------


SPECIAL_INTERVALS = [
    (0, 0), (-0.0, 0.0), (0, 1), (-1, 0), (2, 2), (-3, -3), (-60, -50), (50, 60), (-800, 900), (-800, -90),
    (-ETA, ETA), (0, ETA), (-ETA, 0), (-1e-300, 1e-310), (-1e150, 1e150), (1e5, 1e6),
]  # fmt: skip


def points(kind: str, l: float, u: float, slopes: list[float], rng: Random) -> list[Any]:
    """Ends, 0, places inside, and for curves those where f' equals a slope."""
    number: Any = Fraction if kind.endswith("ReLU") else mpf
    inside = [
        number(0),
        *(number(l) + number(float(share)) * (number(u) - number(l)) for share in rng.random(4)),
    ]
    if number is mpf:
        rate = 1 if kind == "Tanh" else 2
        turns = [
            rate * mpmath.atanh(mpmath.sqrt(1 - rate**2 * mpf(a)))
            for a in slopes
            if 0 < rate**2 * a < 1
        ]
        inside += turns + [-z for z in turns]
    return [number(l), number(u), *(z for z in inside if l <= z <= u)]


@pytest.mark.parametrize(
    ("kind", "alpha"),
    [("ReLU", 0.0), ("LeakyReLU", 0.01), ("LeakyReLU", 0.3), ("Tanh", None), ("Sigmoid", None)],
)
def test_activations_never_leave_their_lines(kind: str, alpha: float | None) -> None:
    """Whatever the slopes in [0, 1]; the default ones are in [0, 1]; the image holds every
    value."""
    rng, activation = np.random.default_rng(8), Activation(kind, alpha, 1, 1)
    center, radius = rng.normal(0, 4, 60), 10 ** rng.uniform(-9, 1.5, 60)
    l, u = np.array([*SPECIAL_INTERVALS, *zip(center - radius, center + radius, strict=True)]).T
    default, (low, high) = default_slopes(activation, l, u), image(activation, l, u)
    assert all(((slopes >= 0) & (slopes <= 1)).all() for slopes in default)
    tiny = [1e-20, 2.0**-126, 2.0**-127, 2.0**-128, 2.0**-129, 2.0**-130, 2.0**-131, 1e-45, ETA]
    constant = [np.full_like(l, a) for a in (0.0, 1.0, 0.25, 1 - 2.0**-53, *tiny)]
    tried = [*constant, *rng.random((3, len(l))), 10 ** rng.uniform(-60, 0, len(l)), *default]
    found = [lines(activation, l, u, slopes, slopes) for slopes in tried]
    with mpmath.workdps(150):
        for i in range(len(l)):
            for z in points(kind, l[i], u[i], [float(slopes[i]) for slopes in tried], rng):
                f, number = exact_value(kind, alpha, z), type(z)
                assert number(float(low[i])) <= f <= number(float(high[i]))
                for slopes, line in zip(tried, found, strict=True):
                    rise = number(float(slopes[i])) * z
                    below, above = (
                        rise + number(float(end[i])) for end in (line.lower, line.upper)
                    )
                    assert below <= f <= above, (l[i], u[i], float(slopes[i]))


# ---- linear bounds over boxes of weights ---------------------------------------------------------


def checked_bounds(folder: Path, problem: Problem, box: Box) -> Array:
    """The checker's row bounds of the first input."""
    region, spec = problem.specification.region, problem.specification
    clip = None if region.clip is None else list(region.clip)
    described: dict[str, Any] = {
        "norm": region.norm,
        "clip": clip,
        "eps": float(region.eps[0]).hex(),
    }
    tensors = {"x": region.center, "lower": region.box.lower, "upper": region.box.upper}
    arrays = {name: tensor[0].numpy() for name, tensor in tensors.items()}
    bnncert.save_posterior(folder / "posterior.safetensors", problem.network, problem.posterior)
    model, weights = (
        read_model(folder / "posterior.safetensors"),
        WeightBox(box.lower[0].numpy(), box.upper[0].numpy()),
    )
    if region.norm == "box":
        described |= {"eps": None}
    own = read_region(described, Stored(arrays), problem.network.input_shape)
    return row_bounds(model, weights, own, spec.rows[0].numpy(), spec.offsets[0].numpy())


@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1", "box"])
def test_row_bounds_hold_in_exact_arithmetic_and_match_the_prover(
    norm_name: str, tmp_path: Path
) -> None:
    """At the worst of 256 sampled (w, x) and at two others; at most 1e-9 below the prover's on
    these seeds."""
    for seed in range(60):
        problem = random_problem(seed, norm=norm_name if norm_name != "box" else "linf", batch=1)
        problem = as_explicit_box(problem) if norm_name == "box" else problem
        region, spec, box = (
            problem.specification.region,
            problem.specification,
            weight_boxes(problem, seed),
        )
        found, generator = (
            checked_bounds(tmp_path, problem, box),
            torch.Generator().manual_seed(seed),
        )
        weights, x = sample_box(box, 256, generator), sample_region(region, 256, generator)
        for i in {0, 1, *paired_margins(problem, weights, x)[:, 0].argmin(0).tolist()}:
            for value, bound in zip(
                exact_rows(problem, weights[i, 0], x[i, 0]), found.tolist(), strict=True
            ):
                assert value >= type(value)(bound), seed
        for name, prover in BOUNDS.items():
            if name != "lbp-forward" or region.is_box:
                theirs = prover(problem.network, box, region, spec.rows, spec.offsets)[0].numpy()
                assert (found >= theirs - 1e-9 * (1 + np.abs(theirs))).all(), (name, seed)


def test_regions_are_rounded_outward() -> None:
    rng = np.random.default_rng(12)
    for eps in (*(10 ** rng.uniform(-20, 2, 50)).tolist(), ETA, 0.0):
        x = rng.normal(size=4) * 10.0 ** rng.integers(-9, 3, 4)
        region = read_region(
            {"norm": "linf", "clip": None, "eps": eps.hex()}, Stored({"x": x}), (4,)
        )
        for low, at, high in zip(
            region.lower.tolist(), x.tolist(), region.upper.tolist(), strict=True
        ):
            assert (
                Fraction(low)
                <= Fraction(at) - Fraction(eps)
                <= Fraction(at) + Fraction(eps)
                <= Fraction(high)
            )


# ---- concentration against brute force -----------------------------------------------------------


def gaussian_problem(seed: int) -> Problem:
    """Independent, correlated or a mixture of both; some safe at the clean input by up to 4/3, some
    unsafe."""
    problem = random_problem(seed, batch=1)
    independent, shared = wider(problem, seed).posterior, correlated(problem, seed).posterior
    posterior = (independent, shared, Mixture((0.375, 0.625), (independent, shared)))[seed % 3]
    return with_margin(replace(problem, posterior=posterior), (seed % 7 - 2) / 3)


def slopes_of(
    problem: Problem, part: Posterior, prefix: str, style: int, generator: torch.Generator
) -> Evidence:
    """Slopes at random, all 1 but the rows', or the prover's (optimised); the threshold is
    random."""
    t, anything = (
        float(0.1 + 5.9 * uniform(1, generator=generator)),
        partial(uniform, generator=generator),
    )
    ones = partial(torch.ones, dtype=torch.float64)
    if style < 2:
        return proof(
            problem,
            prefix,
            t,
            problem.specification.rows.shape[1],
            ones if style else anything,
            anything,
        )
    (found,) = prove(replace(problem, posterior=part), part, effort=1)
    names = ("lower_slopes", "upper_slopes", "row_slopes")
    tensors = {
        f"{prefix}{name}{k}": s.clone() for name in names for k, s in getattr(found, name).items()
    }
    return {
        "probability": (0.0).hex(),
        "t": t.hex(),
        "rows_optimised": bool(found.row_slopes),
    }, tensors


def supported(folder: Path, problem: Problem, seed: int, row: int) -> tuple[float, float]:
    """What the checker supports with slopes of the seed's style, refuting `row` at the clean
    input."""
    spec, posterior, generator = (
        problem.specification,
        problem.posterior,
        torch.Generator().manual_seed(seed),
    )
    center, only = spec.region.center, slice(row, row + 1)
    negated = Specification(ball(center, 0), -spec.rows[:, only], -spec.offsets[:, only])
    entries, tensors = [], {}
    weights = getattr(posterior, "weights", (1.0,))
    for i, part in enumerate(getattr(posterior, "components", (posterior,))):
        lower, slopes = slopes_of(problem, part, f"c{i}.", seed // 3 % 3, generator)
        failure, others = slopes_of(
            replace(problem, specification=negated), part, f"c{i}.upper.", seed // 3 % 3, generator
        )
        entries.append(
            {"weight": weights[i].hex(), "lower": lower, "upper": {"row": row, "failure": failure}}
        )
        tensors |= slopes | others | {f"c{i}.point": center[0].clone()}
    found = verdict(folder, problem, forged(problem, ({"components": entries}, tensors)))
    assert found.status == ACCEPT, found
    return found.supported or (math.nan, math.nan)


@pytest.mark.parametrize("block", range(3))
def test_concentration_is_never_above_brute_force(block: int, tmp_path: Path) -> None:
    """Random thresholds and slopes, wrong ones for ReLUs that are off too: both bounds hold for
    sampled networks."""
    told = [0, 0]
    for seed in range(200 * block, 200 * block + 45):
        problem = gaussian_problem(seed)
        row = seed % problem.specification.rows.shape[1]
        lower, upper = supported(tmp_path, problem, seed, row)
        assert_below_truth(problem, vector(lower), seed)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        share = float((problem.margins(weights)[:, 0, row] > 0).double().mean())
        assert share <= upper + 4 * math.sqrt(0.25 / DRAWS), seed
        told = [told[0] + (lower > 0.05), told[1] + (upper < 0.95)]
    assert min(told) >= 5, told


@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1"])
def test_one_layer_against_the_exact_adversary(norm_name: str, tmp_path: Path) -> None:
    """Without hidden layers the adversary's minimum over a ball is a formula: A·c + b - eps
    |A|_dual."""
    told = 0
    for seed in range(45):
        problem = random_problem(seed, norm=norm_name, batch=1, dense=1)
        problem = correlated(problem, seed) if seed % 2 else wider(problem, seed)
        layers = tuple(
            layer for layer in problem.network.layers if isinstance(layer, Dense | Flatten)
        )
        network, spec = Network(problem.network.input_shape, layers), problem.specification
        spec = Specification(ball(spec.region.center, 0.1, norm_name), spec.rows, spec.offsets)
        problem = with_margin(Problem(network, problem.posterior, spec), 0.1 + seed % 5 / 2)
        lower, _ = supported(tmp_path, problem, seed, 0)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        pulled = torch.einsum("ro,sio->sri", spec.rows[0], network.split(weights)[-1][0])
        dual = torch.linalg.vector_norm(
            pulled, {"linf": 1, "l2": 2, "l1": math.inf}[norm_name], dim=-1
        )
        share = float((problem.margins(weights)[:, 0] - 0.1 * dual > 0).all(-1).double().mean())
        assert lower <= share + 4 * math.sqrt(share * (1 - share) / DRAWS) + 8 / DRAWS, seed
        told += lower > 0.3 * share > 0.03
    assert told > 15


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_relu_that_is_off_has_no_other_line_than_zero(noise: float, tmp_path: Path) -> None:
    """-relu(z) - 1 is -1 for z about -5; the line of slope 1 would make it 4."""
    posterior = Normal(vector(1.0, -5.0), vector(0.0, noise))
    specification = half_space(ball(vector(0.0).reshape(1, 1), 0.1), vector(-1.0), 1.0)
    problem = Problem(Network((1,), (Dense(1, 1), ReLU())), posterior, specification)
    assert verdict(tmp_path, problem, forged(problem, constant_slopes(problem, 1.0))).supported == (
        0.0,
        1.0,
    )


# ---- completeness --------------------------------------------------------------------------------


def certified(
    folder: Path, problem: Problem, method: Method, seed: int, file: Path | None = None
) -> list[Any]:
    """The headers of the certificates that the method writes: accepted, every one, with what is
    supported to 1e-6."""
    posterior, path, headers = (
        file or folder / "posterior.safetensors",
        folder / "certificate.safetensors",
        [],
    )
    if file is None:
        bnncert.save_posterior(posterior, problem.network, problem.posterior)
    for result in bnncert.certify(problem, method, seed=seed):
        if result.certificate is not None:
            result.certificate.write(path)
            found = check_certificate(path, read_model(posterior))
            assert found.status == ACCEPT, (found, problem.network, problem.posterior.family)
            lower, upper = found.supported or (math.nan, math.nan)
            assert lower - 1e-6 <= result.lower <= lower
            assert upper <= result.upper <= upper + 1e-6
            headers.append(result.certificate.header)
    return headers


def in_family(problem: Problem, family: str) -> Problem:
    mean, std = problem.posterior.mean, problem.posterior.std
    made = {
        "normal": problem.posterior,
        "laplace": bnncert.posteriors.Laplace(mean, std),
        "student-t": bnncert.posteriors.StudentT(mean, std, 1 + 5 * mean.abs()),
        "uniform": bnncert.posteriors.Uniform(mean - std, mean + 2 * std),
        "truncated-normal": bnncert.posteriors.TruncatedNormal(
            mean, std, mean - 2 * std, mean + std
        ),
    }
    return replace(problem, posterior=made[family])


@pytest.mark.parametrize("bound", BOUNDS)
def test_certificates_of_boxes_are_accepted(bound: str, tmp_path: Path) -> None:
    """Every family, norm, specification and method; networks that flatten, end in an activation,
    lack a bias."""
    options: dict[str, Any] = {"budget": 16, "bound": bound}
    twice = GIE(
        samples=3, rho=0.7, zero_gradient_only=True, walk="bisection", mean_first=False, **options
    )
    methods = (
        Sampling(5, 0.7, **options),
        PIE(samples=4, **options),
        GIE(samples=4, **options),
        twice,
    )
    headers = []
    for seed in range(30):
        problem = random_problem(seed, norm="linf" if bound == "lbp-forward" else None, batch=2)
        problem = with_margin(in_family(problem, FAMILIES[seed % 5]), 0.4 + seed % 3)
        headers += certified(
            tmp_path,
            as_explicit_box(problem) if seed % 7 == 0 else problem,
            methods[seed % 4],
            seed,
        )
    norms = {"linf", "box"} | (set() if bound == "lbp-forward" else {"l2", "l1"})
    assert {header["region"]["norm"] for header in headers} == norms
    assert len(headers) > 30


def test_every_rule_of_unions_is_accepted(tmp_path: Path) -> None:
    """One box, cells, inclusion-exclusion and bonferroni each occur."""
    rules = set()
    for widths, samples, step in [
        ((1, 1), 1, 0.5),
        ((1, 1), 5, 0.5),
        ((2, 3, 2), 6, 1.0),
        ((4, 5, 3), 30, 1.2),
    ]:
        network, generator = mlp(*widths), torch.Generator().manual_seed(1)
        mean, std = (
            gaussian(network.size, generator=generator),
            0.05 * uniform(network.size, generator=generator),
        )
        region = ball(uniform(2, widths[0], generator=generator), 0.01)
        problem = Problem(
            network, Normal(mean, std + 0.01), half_space(region, torch.ones(widths[-1]), -30.0)
        )
        for header in certified(tmp_path, problem, Sampling(samples, step), 3):
            rules.add((header["evidence"]["union"]["rule"], "cells" in header["evidence"]["union"]))
    assert rules == {
        ("cells", False),
        ("cells", True),
        ("inclusion-exclusion", False),
        ("bonferroni", False),
    }


@pytest.mark.parametrize("effort", [0, 1])
def test_certificates_of_concentration_are_accepted(effort: int, tmp_path: Path) -> None:
    """Independent, low rank, full covariance, mixtures; lower and upper bounds."""
    headers = []
    for seed in range(30):
        problem = (
            as_explicit_box(gaussian_problem(seed)) if seed % 5 == 0 else gaussian_problem(seed)
        )
        headers += certified(tmp_path, problem, Concentration(effort=effort, upper=True), seed)
    refuted = [any(c["upper"] for c in header["evidence"]["components"]) for header in headers]
    assert min(sum(refuted), len(refuted) - sum(refuted)) > 5


@pytest.mark.parametrize("method", [Sampling(samples=2), Concentration(upper=True)])
def test_certain_claims_and_npz_files_are_accepted(method: Method, tmp_path: Path) -> None:
    """A posterior without noise is safe with probability exactly 1; an .npz is read like a
    .safetensors."""
    rng, path = np.random.default_rng(9), tmp_path / "posterior.npz"
    for noise, activation in product((0.0, 0.02), ("relu", "leaky_relu", "tanh", "sigmoid")):
        arrays = {
            name: rng.normal(size=shape)
            for name, shape in (("W0", (3, 4)), ("b0", 4), ("W1", (4, 2)))
        }
        stds = {f"{name}_std": noise * rng.random(value.shape) for name, value in arrays.items()}
        means = {f"{name}_mean": value for name, value in arrays.items()}
        np.savez(path, meta=json.dumps({"activations": [activation, "softmax"]}), **means, **stds)
        region = ball(torch.from_numpy(rng.random((2, 3))), 0.02, clip=(0.0, 1.0))
        problem = Problem(*bnncert.load_posterior(path), half_space(region, vector(1.0, -1.0), 0.0))
        for header in certified(
            tmp_path, with_margin(problem, 2.0), method, 0, path if noise else None
        ):
            assert noise or header["claim"] == {"lower": (1.0).hex(), "upper": (1.0).hex()}


def test_a_mass_that_nearly_underflows_is_not_claimed_or_accepted(tmp_path: Path) -> None:
    """The default box of 721 weights has mass 2.7e-301, less than the checker supports."""
    network = mlp(2, 180, 1)
    posterior = Normal(
        *(torch.full((network.size,), value, dtype=torch.float64) for value in (0.0, 1e-3))
    )
    problem = Problem(
        network,
        posterior,
        half_space(ball(vector(0.5, 0.5).reshape(1, 2), 0.01), vector(1.0), -5.0),
    )
    certified(tmp_path, problem, Sampling(samples=1), 0)


# ---- float traps ---------------------------------------------------------------------------------


def fixed(
    network: Network, weights: list[float], x: list[float], offset: float = 0.0, **options: Any
) -> Problem:
    """A network without noise, safe iff row·outputs (their sum) plus `offset` is positive on a ball
    around x."""
    rows = vector(*options.pop("row", [1.0] * network.outputs)).reshape(1, 1, -1)
    region = ball(vector(*x).unsqueeze(0), options.pop("eps", 0.0), **options)
    posterior = Normal(vector(*weights), torch.zeros(len(weights), dtype=torch.float64))
    return Problem(network, posterior, Specification(region, rows, vector(offset).reshape(1, 1)))


def barely_unsafe(
    network: Network, weights: list[float], x: list[float], slack: float = 0.0, **row: Any
) -> Problem:
    """The offset is the largest float that leaves the row at most 0 at x (`slack` more, if
    given)."""
    (exact,) = exact_rows(fixed(network, weights, x, **row), vector(*weights), vector(*x))
    least = float(exact)
    least = least if type(exact)(least) >= exact else math.nextafter(least, math.inf)
    return fixed(network, weights, x, slack - least, **row)


@pytest.mark.parametrize("kind", ["plain", "wild", "cancelling", "subnormal", "underflowing"])
@pytest.mark.parametrize("form", ["many inputs", "many outputs", "hidden"])
def test_no_trap_of_float_arithmetic_is_accepted(kind: str, form: str, tmp_path: Path) -> None:
    """Rows that are 0 or a hair less in exact arithmetic, positive in float64; with some slack they
    are accepted."""
    rng, deceived = np.random.default_rng(10), 0
    for _ in range(10):
        a, x = (v.tolist() for v in trap_vectors(kind, rng))
        build: Any = partial(
            barely_unsafe, Network((len(a),), (Dense(len(a), 1, bias=False),)), a, x
        )
        if form == "many outputs":
            build = partial(
                barely_unsafe, Network((1,), (Dense(1, len(a), bias=False),)), a, [1.0], row=x
            )
        elif form == "hidden":
            weights = np.stack([a, rng.permutation(a), rng.permutation(a)], -1).flatten().tolist()
            weights += [
                *(ETA * rng.integers(-3, 4, 3)).tolist(),
                *rng.choice([-1.0, 1.0, 0.5], 3).tolist(),
                0.0,
            ]
            build = partial(
                barely_unsafe,
                Network((len(a),), (Dense(len(a), 3), ReLU(), Dense(3, 1))),
                weights,
                x,
            )
        problem = build()
        assert not any(accepted(tmp_path, problem))
        deceived += float(problem.margins(problem.posterior.mean)) > 0
        slack = 1e-6 * float(np.abs(np.multiply(a, x)).sum()) + 1e-300
        assert form == "hidden" or all(accepted(tmp_path, build(slack=slack)))
    assert deceived or kind not in ("cancelling", "subnormal")


@pytest.mark.parametrize("curve", [Tanh(), Sigmoid()])
@pytest.mark.parametrize("z", [0.0, 0.3, 5.0, 17.9, 18.7, 36.0, -36.0, -700.0])
def test_rounded_curves_are_not_believed(curve: Tanh | Sigmoid, z: float, tmp_path: Path) -> None:
    """f(z) less the smallest float that is at least f(z), out to where f is 1 but for rounding."""
    problem = barely_unsafe(Network((1,), (Dense(1, 1), curve)), [1.0, 0.0], [z])
    assert not any(accepted(tmp_path, problem))


LINE, SHIFTED = Network((1,), (Dense(1, 1, bias=False),)), Network((1,), (Dense(1, 1),))
BENT = Network((1,), (Dense(1, 1, bias=False), ReLU()))
TWO = Network((1,), (Dense(1, 2, bias=False), ReLU(), Dense(2, 1, bias=False)))
TIES = {
    "zero input": fixed(LINE, [1.0], [0.0]),
    "negative zero": fixed(BENT, [-0.0], [-0.0], -0.0),
    "relu at l = u = 0": fixed(BENT, [1.0], [0.0]),
    "relu with l = 0": fixed(BENT, [1.0], [0.5], eps=0.5, clip=(0.0, 1.0)),
    "relu with u = 0": fixed(BENT, [-1.0], [0.5], eps=0.5, clip=(0.0, 1.0)),
    "relu off": fixed(BENT, [-1.0], [5.0], eps=1.0),
    "two that cancel": fixed(TWO, [1.0, 1.0, 1.0, -1.0], [3.0], eps=0.5),
    "half a subnormal": fixed(LINE, [3 * ETA], [0.5], -2 * ETA),
    "overflow": fixed(TWO, [BIG, BIG, BIG, -BIG], [BIG]),
} | {
    f"a region below half an ulp, {name}": fixed(
        SHIFTED, [2.0**54, -(2.0**54)], [1.0], 0.5, eps=2.0**-54, norm=name
    )
    for name in ("linf", "l2", "l1")
}


@pytest.mark.parametrize("name", TIES)
def test_ties_are_not_safe(name: str, tmp_path: Path) -> None:
    assert not any(accepted(tmp_path, TIES[name]))


CANCELLING = vector(2.0**54, 1, -(2.0**54), 0).reshape(4, 1)
NOISY = {
    "noise that cancels": (
        LowRankNormal(vector(0, 0, 0, 1), vector(0, 0, 0, 0), CANCELLING),
        norm.cdf(1),
    ),
    "a mean that cancels": (Normal(vector(2.0**54, -1, -(2.0**54), 1), vector(0, 0.5, 0, 0)), 0.5),
} | {
    f"std {s}": (Normal(vector(s, 0, 0, 0), vector(s, 0, 0, 0)), norm.cdf(1))
    for s in (1e-170, 1e-300, ETA)
}


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_not_rounded_away(name: str, tmp_path: Path) -> None:
    """w·x + b at x = (1, 1, 1) is Gaussian: what is supported is at most the truth."""
    posterior, truth = NOISY[name]
    region = ball(torch.ones(1, 3, dtype=torch.float64), 0.0)
    problem = Problem(
        Network((3,), (Dense(3, 1),)), posterior, half_space(region, vector(1.0), 0.0)
    )
    found = verdict(tmp_path, problem, forged(problem, constant_slopes(problem, 0.0)))
    assert (found.supported or (math.inf,))[0] <= truth
    assert not any(accepted(tmp_path, problem)[1:])


def test_a_box_that_rounds_to_a_point_has_no_mass(tmp_path: Path) -> None:
    """1 ± 2^-60 is 1 in float64: w ~ N(1, 2^-120) is there with probability 0, not 0.68."""
    specification = half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.5)
    problem = Problem(LINE, Normal(vector(1.0), vector(2.0**-60)), specification)
    found = verdict(tmp_path, problem, forged(problem, one_box(), (0.5, 1.0)))
    assert (found.status, found.supported) == ("REJECT", (0.0, 1.0))


def test_a_slope_at_the_end_of_arbs_precision_is_not_believed(tmp_path: Path) -> None:
    """atanh of a ball that holds 1 is NaN, and Python's min() would drop it: the sigmoid's line
    would rise by 1e-37.

    y = sigmoid(x) - 2^-82 (sigmoid(2^-46 x) - 1/2) - 1e-37 on [-200, -30] is -3.2e-38 at x = -89.
    """
    region = explicit_box(Box(vector(-200.0).reshape(1, 1), vector(-30.0).reshape(1, 1)))
    rows, offsets = (
        vector(1.0, -(2.0**-82)).reshape(1, 1, 2),
        vector(2.0**-83 - 1e-37).reshape(1, 1),
    )
    posterior = Normal(vector(1.0, 2.0**-46), vector(0.0, 0.0))
    network = Network((1,), (Dense(1, 2, bias=False), Sigmoid()))
    problem = Problem(network, posterior, Specification(region, rows, offsets))
    assert exact_rows(problem, posterior.mean, vector(-89.0))[0] < 0
    evidence, _ = constant_slopes(problem, 0.0)
    slopes = {f"c0.{side}_slopes1": vector(2.0**-130, 0.25) for side in ("lower", "upper")}
    assert (
        verdict(tmp_path, problem, forged(problem, (evidence, slopes), (1.0, 1.0))).status != ACCEPT
    )


def lines_on_narrower_intervals(seed: int, moved: float) -> Problem:
    """Lines of curves and leaky ReLUs on narrower intervals may do worse; here checker and prover
    differ."""
    problem = random_problem(seed, norm="linf", batch=1)
    spec = problem.specification
    offsets = spec.offsets + moved * (torch.arange(spec.offsets.shape[1]) == 0)
    return replace(problem, specification=replace(spec, offsets=offsets))


def test_tighter_intervals_are_not_better_lines(tmp_path: Path) -> None:
    """So the checker tries the prover's intervals too."""
    assert certified(
        tmp_path, lines_on_narrower_intervals(697, 1.13722), Sampling(samples=1, step=8.0), 0
    )


def test_what_only_the_forward_bound_proves_is_rejected(tmp_path: Path) -> None:
    """Known and documented: the checker has no forward bound."""
    problem, method = (
        lines_on_narrower_intervals(172, -1.8255),
        Sampling(samples=1, step=0.5, bound="lbp-forward"),
    )
    certificate = bnncert.certify(problem, method)[0].certificate
    assert certificate is not None
    assert verdict(tmp_path, problem, certificate).code == "row-not-positive"


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
