"""Specifications: regions rounded outward, minima of linear rows over them, output rows, and what
is refused."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction

import mpmath
import pytest
import torch
from torch import Tensor

from bnncert import certify
from bnncert.errors import InputError
from bnncert.model.box import Box
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import (
    NORMS,
    Region,
    Specification,
    ball,
    class_robust,
    explicit_box,
    half_space,
    output_interval,
)
from bnncert.posteriors.independent import Normal
from scenarios import gaussian, random_region, sample_region, vector

ONE = vector(1.0).reshape(1, 1)


def point(*values: float, eps: float = 0.0, norm: str = "linf") -> Region:
    return ball(vector(*values).unsqueeze(0), eps, norm)


# ----------------------------------------------------------------------------------------- rounding


def awkward_numbers() -> list[tuple[float, float]]:
    """Centres and radii of every size: subnormal, tiny, ordinary, huge, powers of two, zeros of
    either sign."""
    choose = random.Random(0)
    centers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        1 / 3,
        2.0**-1074,
        2.0**-1022,
        1e-300,
        1e300,
        math.nextafter(1, 2),
        2.0**53,
    ]
    radii = [2.0**-1074, 1e-300, 1e-17, 2.0**-53, 2.0**-54, 0.025, 0.1, 1.0, 1e17, 1e300]
    chosen = [(c, r) for c in centers for r in radii]
    return chosen + [(choose.uniform(-2, 2), 10.0 ** choose.uniform(-18, 2)) for _ in range(300)]


@pytest.mark.parametrize("norm", NORMS)
def test_the_box_of_a_ball_is_rounded_outward(norm: str) -> None:
    """In rational arithmetic lower <= c - eps and c + eps <= upper, and neither by more than two
    floats."""
    pairs = awkward_numbers()
    center, eps = (vector(*column) for column in zip(*pairs, strict=True))
    box = ball(center.unsqueeze(1), eps, norm).box
    for (c, r), low, high in zip(
        pairs, box.lower[:, 0].tolist(), box.upper[:, 0].tolist(), strict=True
    ):
        bottom, top = Fraction(c) - Fraction(r), Fraction(c) + Fraction(r)
        assert (
            Fraction(low)
            <= bottom
            <= Fraction(math.nextafter(math.nextafter(low, math.inf), math.inf))
        )
        assert (
            Fraction(high)
            >= top
            >= Fraction(math.nextafter(math.nextafter(high, -math.inf), -math.inf))
        )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("clip", [None, (0.0, 1.0)])
def test_radius_zero_is_the_point(norm: str, clip: tuple[float, float] | None) -> None:
    """eps = 0 is not rounded outward: the region is the clean input itself."""
    x = vector(0.0, 1 / 3, 1.0).unsqueeze(0)
    box = ball(x, 0.0, norm, clip).box
    assert torch.equal(box.lower, x)
    assert torch.equal(box.upper, x)


def test_clipping_cuts_and_does_not_move() -> None:
    box = ball(vector(0.01, 0.5, 1.0).unsqueeze(0), 0.025, clip=(0.0, 1.0)).box
    assert box.lower[0].tolist() == pytest.approx([0.0, 0.475, 0.975], rel=1e-15)
    assert box.upper[0].tolist() == pytest.approx([0.035, 0.525, 1.0], rel=1e-15)
    assert box.lower.min() >= 0
    assert box.upper.max() <= 1


def test_every_input_may_have_its_radius() -> None:
    region = ball(vector(1, 2).reshape(2, 1), vector(0.0, 0.5))
    assert region.eps.tolist() == [0.0, 0.5]
    assert region.box.upper.flatten().tolist() == pytest.approx([1.0, 2.5], rel=1e-15)


# ------------------------------------------------------------------------------------------- minima


def exact_dot(row: Tensor, x: Tensor) -> Fraction:
    pairs = zip(row.flatten().tolist(), x.flatten().tolist(), strict=True)
    return sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))


def exact_box_minimum(row: Tensor, box: Box) -> Fraction:
    ends = zip(
        row.flatten().tolist(),
        box.lower.flatten().tolist(),
        box.upper.flatten().tolist(),
        strict=True,
    )
    return sum(
        (min(Fraction(a) * Fraction(l), Fraction(a) * Fraction(u)) for a, l, u in ends), Fraction(0)
    )


def exact_ball_minimum(row: Tensor, region: Region) -> mpmath.mpf:
    """A·c - eps ||A||_dual in 60 digits, for one input."""
    with mpmath.workdps(60):
        center = exact_dot(row, region.center[0])
        entries = [mpmath.mpf(a) for a in row.flatten().tolist()]
        dual = mpmath.norm(entries, 2) if region.norm == "l2" else max(abs(a) for a in entries)
        return (
            mpmath.mpf(center.numerator) / center.denominator - mpmath.mpf(float(region.eps)) * dual
        )


def rows_for(seed: int, *shape: int) -> Tensor:
    """Rows whose entries differ in size by up to 10^8, some of them 0."""
    generator = torch.Generator().manual_seed(seed)
    scale = 10 ** (8 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 4)
    rows = gaussian(*shape, generator=generator) * scale
    return torch.where(torch.rand(*shape, generator=generator) < 0.1, 0.0, rows)


@pytest.mark.parametrize("seed", range(30))
def test_minimum_over_a_box(seed: int) -> None:
    """Never above the exact minimum, which a box takes at a vertex, and below it by rounding
    only."""
    region = random_region(seed, (2, 3), "linf", batch=2)
    rows = rows_for(seed, 2, 4, 2, 3)
    for i, found in enumerate(region.minimum(rows).tolist()):
        for r, value in enumerate(found):
            exact = exact_box_minimum(rows[i, r], region.box[i])
            assert Fraction(value) <= exact
            assert float(exact) - value <= 1e-12 * float(rows[i, r].abs().sum())


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("seed", range(20))
def test_minimum_over_a_ball(norm: str, seed: int) -> None:
    """Without clipping the dual norm gives the exact minimum."""
    generator = torch.Generator().manual_seed(seed)
    region = ball(gaussian(1, 5, generator=generator), 10.0 ** (seed % 5 - 3), norm)
    rows = rows_for(seed, 1, 4, 5)
    for row, value in zip(rows[0], region.minimum(rows)[0].tolist(), strict=True):
        exact = exact_ball_minimum(row, region)
        assert mpmath.mpf(value) <= exact
        assert float(exact) - value <= 1e-12 * float(row.abs().sum()) * (
            1 + float(region.center.abs().max())
        )


def test_minimum_by_hand() -> None:
    """3 x - 4 y around (1, 1) with radius 1/2: -1 less 7/2, 5/2 and 4/2."""
    row = vector(3, -4).reshape(1, 1, 2)
    found = {norm: float(point(1, 1, eps=0.5, norm=norm).minimum(row)) for norm in NORMS}
    assert found == pytest.approx({"linf": -4.5, "l2": -3.5, "l1": -3.0}, abs=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", range(20))
def test_no_sampled_point_is_below_the_minimum(norm: str, seed: int) -> None:
    """Clipped or not, boundary included."""
    region = random_region(seed, (2, 2), norm)
    rows = rows_for(seed, 3, 2, 2, 2)
    x = sample_region(region, 400, torch.Generator().manual_seed(seed))
    values = torch.einsum("brij,sbij->sbr", rows, x)
    rounding = 1e-14 * rows.abs().sum((-2, -1)) * (1 + region.box.magnitude.amax())
    assert bool((values >= region.minimum(rows) - rounding).all())


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_clipped_ball_is_better_than_either(norm: str) -> None:
    """A ball cut by the clip range: both the box and the ball bound its minimum, and the larger is
    taken."""
    center = vector(0.05, 0.5).unsqueeze(0)
    free, cut = ball(center, 0.2, norm), ball(center, 0.2, norm, (0.0, 1.0))
    along, across = vector(1.0, 0.0).reshape(1, 1, 2), vector(1.0, 1.0).reshape(1, 1, 2)
    assert float(cut.minimum(along)) == pytest.approx(0.0, abs=1e-12)
    assert float(cut.minimum(across)) >= float(free.minimum(across))
    assert float(cut.minimum(across)) > 0.05 + 0.5 - 0.4


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("size", [1e-200, 1e-170, 1e-160, 1e160, 1e200])
def test_no_norm_under_or_overflows(norm: str, size: float) -> None:
    """x1 over the ball of radius 2 around (1, 0) falls to -1: times `size` that is never taken for
    positive."""
    row = vector(size, 0.0).reshape(1, 1, 2)
    assert not float(point(1, 0, eps=2.0, norm=norm).minimum(row)) > -size


# ------------------------------------------------------------------------------------- constructors


def test_class_rows_by_hand() -> None:
    """y_label - y_j for every rival, in the rivals' order."""
    spec = class_robust(ball(torch.zeros(2, 1, dtype=torch.float64), 0.1), [0, 2], 3)
    assert spec.rows.tolist() == [[[1, -1, 0], [1, 0, -1]], [[-1, 0, 1], [0, -1, 1]]]
    assert spec.offsets.tolist() == [[0, 0], [0, 0]]
    assert spec.labels is not None
    assert spec.labels.tolist() == [0, 2]


def test_one_target_is_one_row() -> None:
    spec = class_robust(
        ball(torch.zeros(2, 1, dtype=torch.float64), 0.1), torch.tensor([0, 2]), 3, target=1
    )
    assert spec.rows.tolist() == [[[1, -1, 0]], [[0, -1, 1]]]


def test_half_space_by_hand() -> None:
    """2 y0 - y1 >= 3"""
    spec = half_space(point(0.0), vector(2, -1), 3.0)
    assert spec.margins(vector(4, 1).unsqueeze(0)).tolist() == [[4.0]]
    assert spec.margins(vector(2, 1).unsqueeze(0)).tolist() == [[0.0]]
    assert spec.labels is None


def test_output_interval_by_hand() -> None:
    """-1 <= y1 <= 2, and one interval an input."""
    spec = output_interval(point(0.0), -1.0, 2.0, outputs=2, output=1)
    assert spec.margins(vector(9, 1.5).unsqueeze(0)).tolist() == [[2.5, 0.5]]
    assert spec.margins(vector(9, 2.5).unsqueeze(0)).tolist() == [[3.5, -0.5]]
    several = output_interval(
        ball(torch.zeros(2, 1, dtype=torch.float64), 0.0), vector(0, 10), vector(1, 11)
    )
    assert several.margins(vector(0.5, 10.25).reshape(2, 1)).tolist() == [[0.5, 0.5], [0.25, 0.75]]


def test_explicit_box() -> None:
    """The box is the region, whatever the clean input; its midpoint unless given."""
    box = Box(vector(0, 2).unsqueeze(0), vector(1, 6).unsqueeze(0))
    region = explicit_box(box)
    assert region.center.tolist() == [[0.5, 4.0]]
    assert region.eps.tolist() == [2.0]
    assert float(region.minimum(vector(1, -1).reshape(1, 1, 2))) == pytest.approx(-6.0, abs=1e-12)
    given = explicit_box(box, vector(0, 6).unsqueeze(0))
    assert given.center.tolist() == [[0.0, 6.0]]
    assert float(given.minimum(vector(1, -1).reshape(1, 1, 2))) == pytest.approx(-6.0, abs=1e-12)


def test_indexing_keeps_what_belongs_together() -> None:
    center = vector(1, 2, 3).reshape(3, 1)
    spec = class_robust(ball(center, vector(0.1, 0.2, 0.3)), [0, 1, 0], 2)
    last = spec[torch.tensor([2])]
    assert (last.region.center.item(), last.region.eps.item()) == (3.0, 0.3)
    assert last.rows.tolist() == [[[1, -1]]]
    assert torch.equal(last.region.box.upper, spec.region.box.upper[2:])
    assert len(spec[1:]) == 2
    assert last.digest == spec[2:].digest != spec[:1].digest


def specifications() -> dict[str, Specification]:
    """One that is plain, and others that differ from it in one respect."""
    x = vector(0.5, 0.5).unsqueeze(0)
    plain = ball(x, 0.1)
    return {
        "plain": half_space(plain, vector(1.0), 0.0),
        "center": half_space(ball(x + 0.1, 0.1), vector(1.0), 0.0),
        "eps": half_space(ball(x, 0.2), vector(1.0), 0.0),
        "norm": half_space(ball(x, 0.1, "l2"), vector(1.0), 0.0),
        "clip": half_space(ball(x, 0.1, clip=(0.0, 1.0)), vector(1.0), 0.0),
        "rows": half_space(plain, vector(2.0), 0.0),
        "offsets": half_space(plain, vector(1.0), math.nextafter(0, 1)),
        "box": half_space(explicit_box(Box(x - 0.1, x + 0.2), x), vector(1.0), 0.0),
    }


def test_every_change_of_the_question_changes_its_digest() -> None:
    digests = {name: spec.digest for name, spec in specifications().items()}
    assert len(set(digests.values())) == len(digests)
    assert {name: spec.digest for name, spec in specifications().items()} == digests


# ----------------------------------------------------------------------------------------- refusals

PIXELS = vector(0.0, 0.5, 1.0).unsqueeze(0)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "above the clip range": (
        lambda: ball(PIXELS + 0.5, 0.1, clip=(0.0, 1.0)),
        "input 0 leaves the clip range",
    ),
    "below the clip range": (
        lambda: ball(PIXELS - 2.0**-60, 0.1, clip=(0.0, 1.0)),
        "input 0 leaves the clip range",
    ),
    "second input outside": (
        lambda: ball(torch.cat([PIXELS, PIXELS + 1]), 0.1, clip=(0.0, 1.0)),
        "input 1 leaves",
    ),
    "empty clip range": (
        lambda: ball(PIXELS, 0.1, clip=(1.0, 0.0)),
        "clip range 1.0 to 0.0 is empty",
    ),
    "NaN clip range": (lambda: ball(PIXELS, 0.1, clip=(0.0, math.nan)), "clip range"),
    "negative eps": (lambda: ball(PIXELS, -0.1), "eps is -0.1"),
    "negative eps of one input": (lambda: ball(torch.cat([PIXELS] * 2), vector(0.1, -0.1)), "eps"),
    "NaN eps": (lambda: ball(PIXELS, math.nan), "eps is nan"),
    "infinite eps": (lambda: ball(PIXELS, math.inf), "eps is inf"),
    "too many eps": (lambda: ball(PIXELS, vector(0.1, 0.1)), "eps"),
    "NaN pixel": (
        lambda: ball(PIXELS.clone().index_fill_(1, torch.tensor(1), math.nan), 0.1),
        "NaN or infinity",
    ),
    "NaN pixel and a clip": (
        lambda: ball(PIXELS * math.nan, 0.1, clip=(0.0, 1.0)),
        "NaN or infinity",
    ),
    "infinite pixel": (lambda: ball(PIXELS * math.inf, 0.1), "NaN or infinity"),
    "unknown norm": (lambda: ball(PIXELS, 0.1, "l3"), "norm 'l3' is not known"),
    "float32 input": (lambda: ball(PIXELS.float(), 0.1), "float32; certified bounds need float64"),
    "whole-number input": (lambda: ball(torch.ones(1, 3, dtype=torch.int64), 0.1), "float64"),
    "float32 box": (lambda: explicit_box(Box(PIXELS.float(), PIXELS.float())), "float64"),
    "infinite box": (lambda: explicit_box(Box(PIXELS, PIXELS * 0 + math.inf)), "NaN or infinity"),
    "centre outside its box": (
        lambda: explicit_box(Box(PIXELS, PIXELS + 1), PIXELS - 1),
        "outside its input box",
    ),
    "centre of another shape": (lambda: explicit_box(Box(PIXELS, PIXELS + 1), PIXELS[0]), "shape"),
    "label too large": (lambda: class_robust(point(0.0), [3], 3), "label 3 is out of range"),
    "negative label": (lambda: class_robust(point(0.0), [-1], 3), "label -1 is out of range"),
    "fractional label": (lambda: class_robust(point(0.0), vector(1.5), 3), "label"),
    "too many labels": (lambda: class_robust(point(0.0), [0, 1], 3), "2 labels for 1 inputs"),
    "no label": (lambda: class_robust(point(0.0), [], 3), "0 labels for 1 inputs"),
    "one class": (lambda: class_robust(point(0.0), [0], 1), "at least two outputs"),
    "target is the label": (lambda: class_robust(point(0.0), [1], 3, target=1), "target class 1"),
    "target out of range": (lambda: class_robust(point(0.0), [1], 3, target=3), "target class 3"),
    "NaN normal": (lambda: half_space(point(0.0), vector(math.nan), 0.0), "NaN or infinity"),
    "NaN bound": (lambda: half_space(point(0.0), vector(1.0), math.nan), "NaN or infinity"),
    "empty output interval": (
        lambda: output_interval(point(0.0), 1.0, 0.0),
        "output interval 1.0 to 0.0 is empty",
    ),
    "NaN output interval": (lambda: output_interval(point(0.0), math.nan, 1.0), "output interval"),
    "no such output": (
        lambda: output_interval(point(0.0), 0.0, 1.0, outputs=2, output=2),
        "output",
    ),
    "too many intervals": (lambda: output_interval(point(0.0), vector(0.0, 0.0), 1.0), "interval"),
    "no rows": (
        lambda: Specification(
            point(0.0), torch.zeros(1, 0, 2).double(), torch.zeros(1, 0).double()
        ),
        "no output row",
    ),
    "float32 rows": (
        lambda: Specification(point(0.0), torch.ones(1, 1, 2), torch.zeros(1, 1).double()),
        "float64",
    ),
    "float32 offsets": (
        lambda: Specification(point(0.0), torch.ones(1, 1, 2).double(), torch.zeros(1, 1)),
        "float64",
    ),
    "rows without a batch": (
        lambda: Specification(point(0.0), torch.ones(1, 2).double(), torch.zeros(1).double()),
        "rows",
    ),
    "offsets of another shape": (
        lambda: Specification(point(0.0), torch.ones(1, 1, 2).double(), torch.zeros(1, 2).double()),
        "offsets",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_question_is_one_clear_error(name: str) -> None:
    """An InputError of one line that names what is wrong; never another exception, never a silent
    repair."""
    build, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


def problem(network: Network, spec: Specification, weights: int | None = None) -> Problem:
    size = weights or network.size
    return Problem(network, Normal(torch.zeros(size).double(), torch.ones(size).double()), spec)


@pytest.mark.parametrize(
    ("network", "spec", "weights", "message"),
    [
        (mlp(2, 2), class_robust(point(0.0), [0], 2), None, r"inputs have shape \(1,\)"),
        (
            mlp(2, 2),
            class_robust(ball(torch.zeros(1, 2, 1).double(), 0), [0], 2),
            None,
            r"inputs have shape \(2, 1\)",
        ),
        (mlp(1, 2), class_robust(point(0.0), [0], 3), None, "output rows have 3 entries"),
        (mlp(1, 2), half_space(point(0.0), vector(1.0), 0.0), None, "output rows have 1 entries"),
        (mlp(1, 2), class_robust(point(0.0), [0], 2), 5, "posterior has 5 weights, the network 4"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    network: Network, spec: Specification, weights: int | None, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        problem(network, spec, weights)
    assert "\n" not in str(caught.value)


def test_the_problem_digest_names_all_three_parts() -> None:
    """Another architecture of the same size, another posterior or another question is another
    problem."""
    spec = half_space(point(0.0), vector(1.0), 0.0)
    plain, deeper = mlp(1, 1, 1), mlp(1, 1, 1, 1)
    several = [
        problem(plain, spec),
        problem(deeper, spec),
        Problem(plain, Normal(torch.zeros(4).double(), 2 * torch.ones(4).double()), spec),
        problem(plain, half_space(point(0.0), vector(1.0), 1.0)),
    ]
    assert len({each.digest for each in several}) == len(several)
    assert problem(plain, spec).digest == several[0].digest


def test_clip_ranges_are_floats() -> None:
    """However they were given: a digest must not depend on it."""
    x = vector(0.5).reshape(1, 1)
    digests = {
        half_space(ball(x, 0.1, clip=clip), vector(1.0), 0.0).digest
        for clip in ((0, 1), (0.0, 1.0))
    }
    assert len(digests) == 1


def test_rows_that_say_the_same_are_said_once() -> None:
    region = ball(torch.zeros(2, 1).double(), 0.5)

    def kept(rows: list[list[float]], offsets: list[float]) -> list[list[float]]:
        """Of the second of two inputs; the first has nothing but zeros."""
        zeros = [[0.0] * len(rows[0])] * len(rows)
        matrix = torch.tensor([zeros, rows], dtype=torch.float64)
        ends = torch.tensor([[0.0] * len(rows), offsets], dtype=torch.float64)
        found = Specification(region, matrix, ends).distinct()
        assert len(found) == 2
        return found.rows[1].tolist()

    assert kept([[1.0, 3.0], [2.0, 6.0], [1.0, 3.0]], [1.0, 2.0, 1.0]) == [[1.0, 3.0]]
    for other in ([-1.0, -3.0], [3.0, 9.0], [1.0, 0.0], [math.nextafter(1, 2), 3.0]):
        assert kept([[1.0, 3.0], other], [1.0, 1.0]) == [[1.0, 3.0], other]
    assert kept([[1.0, 3.0], [1.0, 3.0]], [1.0, 1.5]) == [[1.0, 3.0], [1.0, 3.0]]
    assert kept([[0.0, 3.0], [-0.0, 6.0]], [0.0, -0.0]) == [[0.0, 3.0]]
    large = [math.ldexp(1, 1023), math.ldexp(1, -1074)]  # a quotient loses the second of them
    assert kept([large, [large[0], 0.0], large], [0.0] * 3) == [large, [large[0], 0.0]]
    assert kept([[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0]) == [[0.0, 0.0]]
    # What a product loses to underflow is not the same.
    small, large = [2.0**-1074, 1.0], [0.0, 2.0**-600]
    assert kept([small, large], [0.0, 0.0]) == [small, large]


def test_rows_that_repeat_in_some_inputs_alone_are_kept() -> None:
    matrix = torch.tensor([[[1.0], [2.0]], [[1.0], [3.0]]]).double()
    spec = Specification(ball(torch.zeros(2, 1).double(), 0.5), matrix, torch.zeros(2, 2).double())
    assert spec.distinct() is spec


def test_a_row_that_is_written_three_times_fails_once() -> None:
    region = point(1.0)
    matrix = torch.tensor([[[1.0], [2.0], [1.0]]]).double()
    spec = Specification(region, matrix, vector(1.0, 2.0, 1.0).unsqueeze(0)).distinct()
    posterior = Normal(vector(0.0, 0.0), vector(1.0, 0.0))
    (found,) = certify(Problem(mlp(1, 1), posterior, spec))
    assert 0.8413 < found.lower <= 0.8413447461
