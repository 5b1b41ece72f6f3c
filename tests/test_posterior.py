"""Posterior families: validation, sampling against scipy.stats, box masses against 60-digit
arithmetic.

The oracle below is written with mpmath from the definitions and shares nothing with the code under
test. Comparisons are exact: a mass rounded down may never exceed the true one, not even in the last
bit.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf
from scipy import stats
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.box import Box
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import (
    DOWN,
    FAMILIES,
    UP,
    Independent,
    Laplace,
    Normal,
    StudentT,
    TruncatedNormal,
    Uniform,
)

INF = math.inf
KINDS = {kind.family: kind for kind in (Normal, Uniform, TruncatedNormal, Laplace, StudentT)}


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def interval(lower: float, upper: float) -> Box:
    return Box(vector(lower), vector(upper))


# ---- the oracle: interval masses at 60 digits or more --------------------------------------------


def symmetric_log(tail: mpmath.mpf, a: mpf, b: mpf) -> mpf:
    """log P(a <= Z <= b) for a symmetric law with P(Z > z) = tail(z), z >= 0."""
    if a > 0 or b < 0:
        return mpmath.log(tail(max(a, -b)) - tail(max(b, -a)))
    return mpmath.log1p(-tail(-a) - tail(b))


def normal_tail(z: mpf) -> mpf:
    """Q(z); beyond 10⁴, where even its exponent is a large number, 0."""
    return mpmath.erfc(z / mpmath.sqrt(2)) / 2 if z < 10_000 else mpf(0)


def laplace_tail(z: mpf) -> mpf:
    return mpmath.exp(-z) / 2 if z < 10_000 else mpf(0)


def student_tail(z: mpf, df: mpf) -> mpf:
    """P(T > z), through the regularised incomplete beta function at whichever argument is below
    1/2."""
    half = mpf(1) / 2
    if mpmath.isinf(z):
        return mpf(0)
    if z * z > df:
        return mpmath.betainc(df / 2, half, 0, df / (df + z * z), regularized=True) / 2
    return half - mpmath.betainc(half, df / 2, 0, z * z / (df + z * z), regularized=True) / 2


def exact_interval_log(posterior: Independent, weight: int, lower: float, upper: float) -> mpf:
    """log P(lower <= w <= upper) of one weight, with the stored floats taken as exact."""
    parameters = {name: mpf(float(value[weight])) for name, value in posterior.tensors().items()}
    l, u = mpf(lower), mpf(upper)
    match posterior:
        case Normal():
            return _scaled(normal_tail, l, u, parameters["mean"], parameters["std"])
        case Laplace():
            return _scaled(laplace_tail, l, u, parameters["loc"], parameters["scale"])
        case StudentT():
            df = parameters["df"]
            return _scaled(
                lambda z: student_tail(z, df), l, u, parameters["loc"], parameters["scale"]
            )
        case Uniform():
            low, high = parameters["low"], parameters["high"]
            if low == high:
                return mpf(0) if l <= low <= u else -mpmath.inf
            return mpmath.log(max(min(u, high) - max(l, low), 0) / (high - low))
        case TruncatedNormal():
            mean, std, low, high = parameters.values()
            if std == 0 or max(l, low) > min(u, high):
                return (
                    _scaled(normal_tail, max(l, low), min(u, high), mean, std)
                    if std == 0
                    else -mpmath.inf
                )
            part = _scaled(normal_tail, max(l, low), min(u, high), mean, std)
            return part - _scaled(normal_tail, low, high, mean, std)
    raise NotImplementedError(posterior.family)


def _scaled(tail: mpmath.mpf, l: mpf, u: mpf, center: mpf, scale: mpf) -> mpf:
    if scale == 0:
        return mpf(0) if l <= center <= u else -mpmath.inf
    return symmetric_log(tail, (l - center) / scale, (u - center) / scale)


def exact_log(posterior: Independent, box: Box, digits: int = 60) -> mpf:
    """log P(w in box), weight by weight."""
    ends = zip(box.lower.tolist(), box.upper.tolist(), strict=True)
    with mpmath.workdps(digits):
        return mpmath.fsum(exact_interval_log(posterior, i, l, u) for i, (l, u) in enumerate(ends))


def assert_bracketed(posterior: Independent, box: Box, exact: mpf) -> None:
    """DOWN is at most the exact log mass and UP at least, without tolerance."""
    down, up = mpf(float(posterior.log_mass(box))), mpf(float(posterior.log_mass(box, UP)))
    assert down <= exact, (
        f"rounded down, but above by {mpmath.nstr(down - exact, 3)}: {posterior} {box}"
    )
    assert exact <= up, f"rounded up, but below by {mpmath.nstr(exact - up, 3)}: {posterior} {box}"


# ---- one representative of each family -----------------------------------------------------------


def make(family: str, size: int) -> Independent:
    """A posterior of `size` equal weights, away from any special position."""
    parameters = {
        "normal": (0.3, 0.07),
        "uniform": (-0.4, 0.9),
        "truncated-normal": (0.3, 0.7, -0.2, 1.9),
        "laplace": (-1.5, 0.2),
        "student-t": (0.8, 0.5, 9.0),
    }[family]
    return KINDS[family](*(torch.full((size,), value, dtype=torch.float64) for value in parameters))


REFERENCE = {
    "normal": stats.norm(0.3, 0.07),
    "uniform": stats.uniform(-0.4, 1.3),
    "truncated-normal": stats.truncnorm((-0.2 - 0.3) / 0.7, (1.9 - 0.3) / 0.7, loc=0.3, scale=0.7),
    "laplace": stats.laplace(-1.5, 0.2),
    "student-t": stats.t(9.0, loc=0.8, scale=0.5),
}
every_family = pytest.mark.parametrize("family", list(KINDS))


def test_every_family_has_a_reference() -> None:
    """A new family of independent weights must be added to the contract tests."""
    independent = {name for name, kind in FAMILIES.items() if issubclass(kind, Independent)}
    assert independent == set(KINDS) == set(REFERENCE)


@pytest.mark.parametrize(
    ("posterior", "center", "spread"),
    [
        (Normal(vector(0.5), vector(0.25)), 0.5, 0.25),
        (Uniform(vector(-1.0), vector(2.0)), 0.5, 1.5),
        (TruncatedNormal(vector(0.5), vector(0.25), vector(0.0), vector(2.0)), 0.5, 0.25),
        (TruncatedNormal(vector(0.5), vector(0.25), vector(0.75), vector(2.0)), 0.75, 0.25),
        (Laplace(vector(0.5), vector(0.25)), 0.5, 0.25),
        (StudentT(vector(0.5), vector(0.25), vector(4.0)), 0.5, 0.25),
    ],
    ids=lambda value: getattr(value, "family", ""),
)
def test_center_and_spread(posterior: Independent, center: float, spread: float) -> None:
    """Where boxes are grown from and in which unit; the centre lies in the support."""
    assert float(posterior.center) == center
    assert float(posterior.spread) == spread
    assert posterior.size == 1


# ---- sampling ------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize(
    ("count", "size"), [(1, 20_000), (4_000, 1)], ids=["across weights", "across draws"]
)
def test_samples_follow_the_distribution(family: str, count: int, size: int) -> None:
    """Every empirical quantile at once: by the DKW inequality P(sup |F_n - F| > e) <= 2 exp(-2 n
    e²), here 1e-6."""
    draws = np.sort(sample(make(family, size), count, seed=3).flatten().numpy())
    n = count * size
    expected = REFERENCE[family].cdf(draws)
    distance = max(np.max(np.arange(1, n + 1) / n - expected), np.max(expected - np.arange(n) / n))
    assert distance <= math.sqrt(math.log(2e6) / (2 * n))


@every_family
def test_sample_moments(family: str) -> None:
    """Mean and variance within five standard errors, sd / sqrt(n) and variance * sqrt((kurtosis +
    2) / n)."""
    n = 40_000
    draws = sample(make(family, n), 1, seed=5).numpy()
    mean, variance, kurtosis = (float(moment) for moment in REFERENCE[family].stats(moments="mvk"))
    assert abs(draws.mean() - mean) <= 5 * math.sqrt(variance / n)
    assert abs(draws.var() - variance) <= 5 * variance * math.sqrt((kurtosis + 2) / n)


@every_family
def test_weights_and_draws_are_uncorrelated(family: str) -> None:
    """Neighbouring weights of one draw, and neighbouring draws of one weight: |r| <= 5 /
    sqrt(n)."""
    n = 4_000
    ranks = REFERENCE[family].cdf(sample(make(family, 2), n, seed=11).numpy())
    assert abs(np.corrcoef(ranks[:, 0], ranks[:, 1])[0, 1]) <= 5 / math.sqrt(n)
    assert abs(np.corrcoef(ranks[:-1, 0], ranks[1:, 0])[0, 1]) <= 5 / math.sqrt(n - 1)


@every_family
def test_draw_k_depends_on_seed_and_k_alone(family: str) -> None:
    """Asked for alone, in fives or in part, draw k is the same to the last bit."""
    posterior = make(family, 17)
    five = sample(posterior, 5, seed=7)
    assert five.shape == (5, 17)
    assert torch.equal(five, torch.cat([sample(posterior, 1, seed=7, first=k) for k in range(5)]))
    assert torch.equal(five[2:], sample(posterior, 3, seed=7, first=2))
    assert torch.equal(five, sample(posterior, 5, seed=7))


@every_family
def test_different_seeds_and_indices_give_different_draws(family: str) -> None:
    """No draw repeats among the first draws of neighbouring seeds."""
    draws = torch.cat([sample(make(family, 4), 5, seed) for seed in range(5)])
    assert len({tuple(draw) for draw in draws.tolist()}) == 25


def test_large_seeds_do_not_repeat_small_ones() -> None:
    """Seeds that need more than 32 bits have a sequence of their own, or are refused."""
    posterior = make("normal", 4)
    seeds = [0, 1, 2**32, 2**32 + 1, 2**33]
    try:
        draws = torch.cat([sample(posterior, 3, seed) for seed in seeds])
    except InputError:
        return
    assert len({tuple(draw) for draw in draws.tolist()}) == 3 * len(seeds)


@every_family
def test_samples_ignore_the_global_generators(family: str) -> None:
    """Seeding or using torch's and numpy's global generators changes nothing."""
    posterior = make(family, 3)
    before = sample(posterior, 2, seed=1)
    torch.manual_seed(123)
    torch.rand(10)
    assert torch.equal(before, sample(posterior, 2, seed=1))


DETERMINISTIC = [
    Normal(vector(1.25, 0.0), vector(0.0, 1.0)),
    Uniform(vector(1.25, 0.0), vector(1.25, 1.0)),
    TruncatedNormal(vector(1.25, 0.0), vector(0.0, 1.0), vector(0.0, -1.0), vector(2.0, 1.0)),
    Laplace(vector(1.25, 0.0), vector(0.0, 1.0)),
    StudentT(vector(1.25, 0.0), vector(0.0, 1.0), vector(3.0, 3.0)),
]
deterministic = pytest.mark.parametrize(
    "posterior", DETERMINISTIC, ids=lambda posterior: posterior.family
)


@deterministic
def test_a_deterministic_weight_never_moves(posterior: Independent) -> None:
    """Spread 0: every draw is the centre, while the other weight varies."""
    draws = sample(posterior, 20, seed=0)
    assert bool((draws[:, 0] == 1.25).all())
    assert len(set(draws[:, 1].tolist())) == 20


class Extreme:
    """Stands for a generator at the end of its range: every uniform number is `value`."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, size: int) -> np.ndarray:
        return np.full(size, self.value)


@pytest.mark.parametrize("family", ["uniform", "truncated-normal", "laplace", "student-t"])
@pytest.mark.parametrize("value", [0.0, 1 - 2**-53])
def test_the_ends_of_the_generators_range_give_finite_draws(family: str, value: float) -> None:
    """Uniform numbers lie in [0, 1): exactly 0 happens, and must not become an infinite weight."""
    assert bool(make(family, 2).draw(Extreme(value)).isfinite().all())


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
def test_bounded_families_stay_in_their_support(family: str) -> None:
    """No draw outside [low, high], ends included."""
    posterior = make(family, 1000)
    draws = sample(posterior, 20, seed=2)
    assert bool(((posterior.low <= draws) & (draws <= posterior.high)).all())


@pytest.mark.parametrize(("low", "high"), [(30.0, 31.0), (-31.0, -30.0), (8.0, 8.5)])
def test_far_tail_truncation_is_sampled(low: float, high: float) -> None:
    """Truncation to a far tail keeps the digits: the DKW bound holds there too."""
    n = 5_000
    posterior = TruncatedNormal(
        *(torch.full((n,), value, dtype=torch.float64) for value in (0.0, 1.0, low, high))
    )
    draws = np.sort(sample(posterior, 1, seed=4)[0].numpy())
    near, far = min(abs(low), abs(high)), max(abs(low), abs(high))
    distance = draws if low > 0 else -draws[::-1]
    below = (stats.norm.sf(near) - stats.norm.sf(distance)) / (
        stats.norm.sf(near) - stats.norm.sf(far)
    )
    error = max(np.max(np.arange(1, n + 1) / n - below), np.max(below - np.arange(n) / n))
    assert error <= math.sqrt(math.log(2e6) / (2 * n))


# ---- validation ----------------------------------------------------------------------------------


def parameters_of(family: str) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in make(family, 3).tensors().items()}


FIELDS = [(family, name) for family in KINDS for name in make(family, 1).tensors()]
every_field = pytest.mark.parametrize(("family", "name"), FIELDS)


@every_field
@pytest.mark.parametrize("value", [math.nan, INF, -INF])
def test_non_finite_parameters_are_refused(family: str, name: str, value: float) -> None:
    """One NaN or infinity in any array is one clear error that names the array."""
    parameters = parameters_of(family)
    parameters[name][1] = value
    with pytest.raises(InputError, match=f"'{name}'"):
        KINDS[family](**parameters)


@every_field
@pytest.mark.parametrize("length", [1, 2, 4])
def test_arrays_of_different_lengths_are_refused(family: str, name: str, length: int) -> None:
    """Not even a length that torch would broadcast."""
    parameters = parameters_of(family)
    parameters[name] = parameters[name][:1].expand(length).clone()
    with pytest.raises(InputError, match="one length"):
        KINDS[family](**parameters)


@every_family
def test_matrices_are_refused(family: str) -> None:
    """Parameters are flat vectors."""
    with pytest.raises(InputError, match="vectors"):
        KINDS[family](
            **{name: value.reshape(1, 3) for name, value in parameters_of(family).items()}
        )


@every_field
def test_other_dtypes_are_refused(family: str, name: str) -> None:
    """float32 parameters are refused, not promoted."""
    parameters = parameters_of(family)
    parameters[name] = parameters[name].float()
    with pytest.raises(InputError, match="float64"):
        KINDS[family](**parameters)


@pytest.mark.parametrize(
    ("family", "name"),
    [("normal", "std"), ("truncated-normal", "std"), ("laplace", "scale"), ("student-t", "scale")],
)
@pytest.mark.parametrize("value", [-1.0, -5e-324])
def test_negative_scales_are_refused(family: str, name: str, value: float) -> None:
    """Even the smallest negative number."""
    parameters = parameters_of(family)
    parameters[name][2] = value
    with pytest.raises(InputError, match="negative"):
        KINDS[family](**parameters)


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
def test_crossed_supports_are_refused(family: str) -> None:
    """low > high somewhere."""
    parameters = parameters_of(family)
    parameters["low"][0] = math.nextafter(float(parameters["high"][0]), INF)
    with pytest.raises(InputError, match="exceeds"):
        KINDS[family](**parameters)


@pytest.mark.parametrize("df", [0.0, -1.0, 0.5, math.nextafter(1.0, 0.0), 1.1e10])
def test_student_has_1_to_1e10_degrees_of_freedom(df: float) -> None:
    """Below 1 the tails are heavier than the arithmetic allows for; beyond 1e10 no checker could
    tell it from Gauss."""
    with pytest.raises(InputError, match="degrees of freedom"):
        StudentT(vector(0.0, 0.0), vector(1.0, 1.0), vector(2.0, df))
    StudentT(vector(0.0, 0.0), vector(1.0, 1.0), vector(1.0, 1e10))


@pytest.mark.parametrize(("low", "high"), [(40.0, 41.0), (-41.0, -40.0), (2.0, 2.0), (0.0, 0.0)])
def test_truncation_to_no_mass_is_refused(low: float, high: float) -> None:
    """An interval whose mass cannot be told from 0 leaves nothing to condition on."""
    with pytest.raises(InputError, match="no mass"):
        TruncatedNormal(vector(0.0), vector(1.0), vector(low), vector(high))


def test_a_deterministic_weight_outside_its_support_is_refused() -> None:
    """The point mass must lie in [low, high]."""
    with pytest.raises(InputError, match="deterministic"):
        TruncatedNormal(vector(2.0), vector(0.0), vector(-1.0), vector(1.0))
    TruncatedNormal(vector(1.0), vector(0.0), vector(-1.0), vector(1.0))


@every_family
@pytest.mark.parametrize(("weights", "length"), [(3, 1), (3, 2), (3, 4), (1, 3)])
def test_a_box_of_another_length_is_refused(family: str, weights: int, length: int) -> None:
    """A box over fewer or more weights has no mass under this posterior: an error, never a
    broadcast number."""
    box = Box(torch.full((length,), -9.0).double(), torch.full((length,), 9.0).double())
    with pytest.raises(InputError):
        make(family, weights).log_mass(box)


# ---- box masses ----------------------------------------------------------------------------------

Z = [
    1e-8,
    1e-4,
    0.03,
    0.5,
    0.6744897501960817,
    1.0,
    2.0,
    3.0,
    5.0,
    8.0,
    8.3,
    12.0,
    20.0,
    30.0,
    37.0,
]
SHAPES = {
    "symmetric": (-1.0, 1.0),
    "lopsided": (-0.3, 1.0),
    "right": (1.0, 1.7),
    "left": (-1.7, -1.0),
    "narrow": (1.0, 1.0 + 1e-9),
    "one ulp": (1.0, 1.0 + 2**-52),
    "from the centre": (0.0, 1.0),
    "right tail": (1.0, INF),
    "left tail": (-INF, -1.0),
    "all but the right tail": (-INF, 1.0),
    "all but the left tail": (-1.0, INF),
}
every_shape = pytest.mark.parametrize("shape", list(SHAPES))


def shaped(center: float, scale: float, z: float, shape: str) -> Box:
    return interval(*(center + scale * z * end for end in SHAPES[shape]))


@every_shape
@pytest.mark.parametrize(
    ("mean", "std"), [(0.0, 1.0), (0.3, 0.07), (-1e6, 1e-3), (1e-200, 1e-210), (1e100, 1e99)]
)
def test_normal_mass_is_bracketed(mean: float, std: float, shape: str) -> None:
    """z from 1e-8 to 37, straddling or on one side, at several places and scales."""
    posterior = Normal(vector(mean), vector(std))
    for z in Z:
        box = shaped(mean, std, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@every_family
@every_shape
def test_every_family_is_bracketed(family: str, shape: str) -> None:
    """The same shapes for each family, in units of its spread about its centre."""
    posterior = make(family, 1)
    center, spread = float(posterior.center), float(posterior.spread)
    for z in (1e-8, 1e-3, 0.2, 0.5, 1.0, 1.5, 3.0, 9.0, 30.0):
        box = shaped(center, spread, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@every_family
def test_random_intervals_are_bracketed(family: str) -> None:
    """Random parameters and random ends, one weight at a time."""
    rng = np.random.default_rng(17)
    for _ in range(150):
        posterior = random_weight(family, rng)
        scale = 10 ** rng.uniform(-2, 1) * max(float(posterior.spread), 1e-3)
        box = interval(*np.sort(float(posterior.center) + scale * rng.normal(size=2)))
        assert_bracketed(posterior, box, exact_log(posterior, box))


def random_weight(family: str, rng: np.random.Generator) -> Independent:
    center, scale = vector(rng.normal()), vector(10 ** rng.uniform(-3, 1))
    low, high = center - scale * rng.uniform(-2, 3), center + scale * rng.uniform(2.1, 4)
    match family:
        case "uniform":
            return Uniform(low, high)
        case "truncated-normal":
            return TruncatedNormal(center, scale, low, high)
        case "student-t":
            return StudentT(center, scale, vector(10 ** rng.uniform(0, 3)))
    return KINDS[family](center, scale)


@pytest.mark.parametrize("size", [1, 10, 1_000, 100_000, 1_000_000])
@pytest.mark.parametrize(
    ("z", "shape"), [(1e-8, "symmetric"), (4.0, "lopsided"), (30.0, "right"), (37.0, "symmetric")]
)
def test_many_equal_weights_are_bracketed(size: int, z: float, shape: str) -> None:
    """One interval repeated: the exact log mass is `size` times that of one weight, up to a million
    weights."""
    one = shaped(0.3, 0.07, z, shape)
    exact = exact_log(make("normal", 1), one, digits=80)
    box = Box(one.lower.expand(size), one.upper.expand(size))
    with mpmath.workdps(80):
        assert_bracketed(make("normal", size), box, size * exact)


@every_family
def test_mixed_weights_are_bracketed(family: str) -> None:
    """Hundreds of different weights at once, in every relation to their intervals."""
    rng = np.random.default_rng(23)
    posteriors = [random_weight(family, rng) for _ in range(200)]
    names = posteriors[0].tensors()
    posterior = KINDS[family](
        **{name: torch.cat([p.tensors()[name] for p in posteriors]) for name in names}
    )
    ends = posterior.center + posterior.spread * torch.from_numpy(
        rng.normal(size=(2, 200)) * rng.choice([0.4, 5], 200)
    )
    box = Box(ends.amin(0), ends.amax(0))
    if family == "uniform":
        box = Box(posterior.center - ends.std(0), box.upper.maximum(posterior.center))
    exact = exact_log(posterior, box)
    assert_bracketed(posterior, box, exact)


def test_a_batch_of_boxes_equals_the_boxes_one_by_one() -> None:
    """Leading dimensions are a batch; only the last one is summed."""
    posterior = Normal(vector(0.0, 1.0, -1.0), vector(1.0, 0.5, 0.0))
    centers = torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.5, -1.5], [0.0, 0.0, 3.0]]).double()
    batch = Box(centers - 1, centers + 1)
    assert posterior.log_mass(batch).tolist() == [
        float(posterior.log_mass(batch[i])) for i in range(3)
    ]


@pytest.mark.parametrize(
    ("family", "allowed"),
    [
        ("normal", 1e-11),
        ("truncated-normal", 1e-11),
        ("laplace", 1e-11),
        ("student-t", 1e-9),
        ("uniform", 1e-11),
    ],
)
@pytest.mark.parametrize("shape", ["symmetric", "lopsided", "all but the right tail"])
def test_straddling_masses_are_tight(family: str, allowed: float, shape: str) -> None:
    """Rounding costs a tiny part of the log mass when the interval holds the centre: no digits are
    lost near 1."""
    posterior = make(family, 1)
    for z in (1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0):
        box = shaped(float(posterior.center), float(posterior.spread), z, shape)
        down, up = float(posterior.log_mass(box)), float(posterior.log_mass(box, UP))
        assert up - down <= allowed * abs(down)


def test_a_thousand_weights_at_three_sigma() -> None:
    """Example 3.2 of the paper: p_3 = 0.9973002 per weight, so ±3σ in 1000 dimensions holds 0.067 <
    0.08."""
    posterior = make("normal", 1000)
    box = Box(posterior.mean - 3 * posterior.std, posterior.mean + 3 * posterior.std)
    mass = math.exp(float(posterior.log_mass(box)))
    assert mass == pytest.approx(0.9973002**1000, rel=1e-4)
    assert 0.0665 < mass < 0.0675 < 0.08


# ---- infinite ends, underflow, overflow ----------------------------------------------------------


@every_family
def test_the_whole_line_has_mass_one(family: str) -> None:
    """Infinite ends give log mass 0 between DOWN and UP, with nothing worth naming lost."""
    posterior = make(family, 2)
    box = Box(vector(-INF, -INF), vector(INF, INF))
    assert_bracketed(posterior, box, mpf(0))
    assert float(posterior.log_mass(box)) >= -1e-100


@every_family
@pytest.mark.parametrize("end", [-INF, INF])
def test_a_box_at_infinity_has_no_mass(family: str, end: float) -> None:
    """[inf, inf] is a legal box that no finite weight is in."""
    assert float(make(family, 1).log_mass(interval(end, end))) == -INF


@pytest.mark.parametrize("shape", ["symmetric", "right", "left", "right tail", "left tail"])
def test_normal_tails_that_underflow_are_bracketed(shape: str) -> None:
    """Q(z) is subnormal from z = 37.5 and 0 from 38.6 on: few or no digits, but still a bound."""
    posterior = Normal(vector(0.0), vector(1.0))
    for z in (37.6, 37.8, 38.0, 38.2, 38.4, 38.6, 39.0):
        box = shaped(0.0, 1.0, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("shape", ["symmetric", "right", "left", "right tail", "left tail"])
def test_laplace_tails_that_underflow_are_bracketed(shape: str) -> None:
    """exp(-z) is subnormal from z = 708 and 0 from 746 on."""
    posterior = Laplace(vector(0.0), vector(1.0))
    for z in (700.0, 715.0, 740.0, 744.0, 750.0):
        box = shaped(0.0, 1.0, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("kind", [Normal, Laplace], ids=lambda kind: kind.family)
def test_arguments_that_underflow_are_bracketed(kind: type[Independent]) -> None:
    """A box of width 1e-20 under a scale of 1e+300: z is subnormal."""
    try:
        posterior = kind(vector(0.0), vector(1e300))
    except InputError:
        return
    for box in (
        interval(-3e-21, 7e-21),
        interval(3e-21, 7e-21),
        interval(3e-21, INF),
        interval(0.0, 1e-30),
    ):
        assert_bracketed(posterior, box, exact_log(posterior, box, digits=700))


@pytest.mark.parametrize("kind", [Normal, Laplace], ids=lambda kind: kind.family)
@pytest.mark.parametrize(
    ("lower", "upper"), [(-1.7e308, 1.7e308), (-1.7e308, 1e308), (-1.7e308, -1.2e308)]
)
def test_distances_that_overflow_are_bracketed(
    kind: type[Independent], lower: float, upper: float
) -> None:
    """l - mean = -2.7e308 is no float, but only 2.7 σ: taking it for -inf would forget a tail. Or
    it is refused."""
    try:
        posterior = kind(vector(1e308), vector(1e308))
    except InputError:
        return
    box = interval(lower, upper)
    assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.7e308), (-1e308, 1e308), (0.0, 1.0)])
def test_a_uniform_width_that_overflows_is_bracketed(lower: float, upper: float) -> None:
    """high - low = 3.4e308 is no float: half the support must not count as all of it. Or it is
    refused."""
    try:
        posterior = Uniform(vector(-1.7e308), vector(1.7e308))
    except InputError:
        return
    box = interval(lower, upper)
    assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("df", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("z", [1e3, 1e5, 1e6, 1e7, 1e8, 1e9, 1e12])
def test_student_half_lines_are_bracketed(z: float, df: float) -> None:
    """P(0 < T < z) for large z: the tail that is missing from 1/2 is far above the rounding of
    z²/(df + z²)."""
    posterior = StudentT(vector(0.0), vector(1.0), vector(df))
    for box in (interval(0.0, z), interval(-z, 0.0), interval(-z, z), interval(z, 3 * z)):
        assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("df", [1.0, 3.0])
@pytest.mark.parametrize("end", [1e140, 1e160, 1e300, INF])
def test_student_ends_whose_square_overflows_are_bracketed(end: float, df: float) -> None:
    """z² is no float beyond 1e154, and the tail there is still positive."""
    posterior = StudentT(vector(0.0), vector(1.0), vector(df))
    for box in (interval(-end, end), interval(0.0, end), interval(1e120, end)):
        assert_bracketed(posterior, box, exact_log(posterior, box, digits=700))


@pytest.mark.parametrize("df", [1e3, 1e5, 1e6, 1e8, 1e10])
def test_student_with_many_degrees_of_freedom_is_bracketed(df: float) -> None:
    """df/(df + z²) is near 1 and keeps few digits of z²: the bounds must not depend on them."""
    posterior = StudentT(vector(0.0), vector(1.0), vector(df))
    for z in np.random.default_rng(29).uniform(0.3, 7, size=20).tolist():
        for box in (interval(-z, z), interval(z, z + 1)):
            assert_bracketed(posterior, box, exact_log(posterior, box))


# ---- degenerate weights and boxes ----------------------------------------------------------------


@deterministic
@pytest.mark.parametrize("ends", [(1.0, 2.0), (1.25, 2.0), (1.0, 1.25), (1.25, 1.25)])
def test_a_deterministic_weight_inside_or_touching_counts_one(
    posterior: Independent, ends: tuple[float, float]
) -> None:
    """Spread 0: the box is closed, so a face through the weight holds it; the mass is the other
    weight's."""
    box = Box(vector(ends[0], -0.4), vector(ends[1], 0.7))
    assert float(posterior.log_masses(box)[0]) == 0.0
    assert_bracketed(posterior, box, exact_log(posterior, box))
    assert float(posterior.log_mass(box)) > -INF


@deterministic
@pytest.mark.parametrize(
    "ends",
    [(math.nextafter(1.25, 2.0), 2.0), (0.0, math.nextafter(1.25, 0.0)), (-INF, 1.0), (3.0, INF)],
)
@pytest.mark.parametrize("direction", [DOWN, UP])
def test_a_deterministic_weight_outside_counts_zero(
    posterior: Independent, ends: tuple[float, float], direction: int
) -> None:
    """One ulp outside is outside, whatever the direction of rounding."""
    assert (
        float(posterior.log_mass(Box(vector(ends[0], -0.4), vector(ends[1], 0.7)), direction))
        == -INF
    )


def test_nothing_random_has_mass_exactly_one() -> None:
    """All spreads 0 and all weights inside: log mass 0 in both directions."""
    posterior = Normal(vector(0.0, 1.0), vector(0.0, 0.0))
    box = Box(vector(0.0, 0.0), vector(0.0, 2.0))
    assert float(posterior.log_mass(box)) == float(posterior.log_mass(box, UP)) == 0.0


@every_family
@pytest.mark.parametrize("offset", [0.0, 0.1, -0.3])
def test_a_point_has_no_mass_where_nothing_is_deterministic(family: str, offset: float) -> None:
    """l = u: exactly 0 rounded down, and at most rounding noise rounded up."""
    posterior = make(family, 1)
    point = Box.point(posterior.center + offset * posterior.spread)
    assert float(posterior.log_mass(point)) == -INF
    assert float(posterior.log_mass(point, UP)) <= math.log(1e-9)


@pytest.mark.parametrize("kind", [Normal, Laplace], ids=lambda kind: kind.family)
@pytest.mark.parametrize("mean", [0.0, 1.0, -1e100])
def test_subnormal_spread_is_neither_zero_nor_an_error(
    kind: type[Independent], mean: float
) -> None:
    """σ = 5e-324: all mass near the mean, none off it, and half on each side of it."""
    posterior = kind(vector(mean), vector(5e-324))
    above, below = math.nextafter(mean, INF), math.nextafter(mean, -INF)
    assert (
        -1e-300
        <= float(posterior.log_mass(interval(mean - 1 - abs(mean), mean + 1 + abs(mean))))
        <= 0
    )
    assert float(posterior.log_mass(interval(mean, mean))) == -INF
    assert float(posterior.log_mass(interval(mean, INF))) == pytest.approx(math.log(0.5), rel=1e-12)
    for box in (
        interval(below, above),
        interval(above, above + 1 + abs(mean)),
        interval(below, mean),
    ):
        assert_bracketed(posterior, box, exact_log(posterior, box))


def test_a_uniform_of_subnormal_width_is_no_point_mass() -> None:
    """[0, 5e-324] is not an atom: {0} has no mass in it. Or it is refused."""
    try:
        posterior = Uniform(vector(0.0), vector(5e-324))
    except InputError:
        return
    assert_bracketed(posterior, interval(0.0, 0.0), -mpf(INF))
    assert_bracketed(posterior, interval(0.0, 5e-324), mpf(0))


# ---- truncation and bounded support --------------------------------------------------------------


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
@pytest.mark.parametrize("margin", [0.0, 1e-9, 5.0, INF])
@pytest.mark.parametrize("direction", [DOWN, UP])
def test_the_whole_support_has_mass_exactly_one(family: str, margin: float, direction: int) -> None:
    """A box that holds [low, high] loses nothing to rounding."""
    posterior = make(family, 5)
    assert (
        float(posterior.log_mass(Box(posterior.low - margin, posterior.high + margin), direction))
        == 0.0
    )


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
@pytest.mark.parametrize("direction", [DOWN, UP])
def test_outside_the_support_there_is_no_mass(family: str, direction: int) -> None:
    """Beyond either end by one ulp: -inf, whatever the direction."""
    posterior = make(family, 1)
    low, high = float(posterior.low), float(posterior.high)
    for box in (
        interval(math.nextafter(high, INF), high + 1),
        interval(low - 1, math.nextafter(low, -INF)),
    ):
        assert float(posterior.log_mass(box, direction)) == -INF


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
def test_touching_the_support_has_no_mass(family: str) -> None:
    """A face in common is a point, and a point has no mass."""
    posterior = make(family, 1)
    low, high = float(posterior.low), float(posterior.high)
    assert float(posterior.log_mass(interval(high, high + 1))) == -INF
    assert float(posterior.log_mass(interval(low - 1, low))) == -INF


@pytest.mark.parametrize(
    ("low", "high"), [(5.0, 6.0), (30.0, 31.0), (-31.0, -30.0), (36.0, 37.0), (-37.0, -30.0)]
)
def test_far_tail_truncation_is_bracketed(low: float, high: float) -> None:
    """Conditioning on a far tail: a ratio of two tiny masses, each rounded against the claim."""
    posterior = TruncatedNormal(vector(0.0), vector(1.0), vector(low), vector(high))
    for start, end in [
        (0.0, 0.01),
        (0.0, 0.5),
        (0.3, 0.4),
        (0.9, 1.0),
        (1e-9, 1.0),
        (0.0, 1 - 1e-9),
    ]:
        box = interval(low + start * (high - low), low + end * (high - low))
        assert_bracketed(posterior, box, exact_log(posterior, box))


def test_slivers_cut_from_the_support_are_bracketed() -> None:
    """Nearly the whole support: the ratio is so near 1 that roundings in the same direction would
    show."""
    rng = np.random.default_rng(37)
    for _ in range(100):
        low, high = np.sort(rng.normal(0, 2, 2)).tolist()
        posterior = TruncatedNormal(vector(0.0), vector(1.0), vector(low), vector(high))
        for cut in (10 ** rng.uniform(-15, -5, 2) * (high - low)).tolist():
            for box in (interval(low + cut, high), interval(low, high - cut)):
                assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("width", [1e-5, 1e-50, 1e-150, 1e-200, 1e-250, 1e-300])
def test_narrow_truncation_is_bracketed(width: float) -> None:
    """A support far narrower than σ: both log masses are large, their difference is not."""
    posterior = TruncatedNormal(vector(0.0), vector(1.0), vector(-width), vector(width))
    for fraction in np.random.default_rng(31).uniform(-0.9, 0.99, size=40).tolist():
        box = interval(-width * fraction, width)
        assert_bracketed(posterior, box, exact_log(posterior, box, digits=400))
