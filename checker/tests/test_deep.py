"""The checker on two hidden layers: each part against what it bounds, and what tampering does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, arb_mat
from safetensors.numpy import save_file

from bnncert import Network, Problem, ball, certify, half_space, save_posterior
from bnncert.layers import Dense, ReLU, Tanh
from bnncert.posteriors import Normal
from bnncert_check import ACCEPT, ERROR, REJECT, check_certificate, read_model
from bnncert_check.deep import majorants, rows
from bnncert_check.deep.majorants import Factors, Majorants, exp_down, exp_up, hold, ratio_up
from bnncert_check.deep.products import NODES, Exponent, expectation, is_positive
from bnncert_check.deep.rectified import Gaussian, between, moment, positive
from checking import parse
from scenarios import vector

Change = Callable[[dict[str, Any], dict[str, Any]], None]


def deep_problem(eps: float = 0.0, deviation: float = 0.3) -> Problem:
    """A 1-3-3-1 network whose row is below 0 in a few of a hundred draws; one neuron of its second
    layer is nearly dead, with a loud weight behind it."""
    network = Network((1,), (Dense(1, 3), ReLU(), Dense(3, 3), ReLU(), Dense(3, 1)))
    generator = torch.Generator().manual_seed(4)
    mean = torch.rand(network.size, generator=generator).double() + 0.7
    std = torch.full_like(mean, deviation)
    start = network.split(torch.arange(network.size))
    mean[start[2][1][0]], std[start[4][0][0, 0]] = -8.0, 10 * deviation
    mean[start[4][0][1, 0]] = -0.2
    spec = half_space(ball(vector(1.0).reshape(1, 1), eps), vector(1.0), 0.0)
    return Problem(network, Normal(mean, std), spec)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a posterior and an accepted certificate."""
    folder, problem = tmp_path_factory.mktemp("deep"), deep_problem()
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    result = certify(problem)[0]
    assert result.certificate is not None
    result.certificate.write(folder / "c.safetensors")
    return folder


def verdict(folder: Path, name: str = "c") -> Any:
    model = read_model(folder / "p.safetensors")
    return check_certificate(folder / f"{name}.safetensors", model)


def test_it_is_accepted_and_below_the_truth(made: Path) -> None:
    header, tensors = parse(made / "c.safetensors")
    lower = header["evidence"]["components"][0]["lower"]
    assert lower["two_layers"] is True
    assert len(tensors["c0.capped"]) == 1
    found = verdict(made)
    assert found.status == ACCEPT, found
    problem = deep_problem()
    generator = torch.Generator().manual_seed(0)
    draws = problem.posterior.mean + problem.posterior.std * torch.randn(
        50_000, problem.network.size, generator=generator, dtype=torch.float64
    )
    share = float((problem.margins(draws) > 0).double().mean())
    assert 0.2 < found.supported[0] < share


def test_certain_weights_and_ends_that_hold_anyway(tmp_path: Path) -> None:
    """A single first neuron that is often off, so that T = r² is its least and needs no charge."""
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 2), ReLU(), Dense(2, 1)))
    mean, std = vector(0.2, 0.1, 0.5, 0.5, 0.5, 0.5, 1, 1, 2), torch.full((9,), 0.5).double()
    std[0], std[8] = 0.0, 0.3
    spec = half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.0)
    save_posterior(tmp_path / "p.safetensors", network, Normal(mean, std))
    result = certify(Problem(network, Normal(mean, std), spec))[0]
    assert result.certificate is not None
    result.certificate.write(tmp_path / "c.safetensors")
    _, tensors = parse(tmp_path / "c.safetensors")
    assert (tensors["c0.ends"][:, 2] <= 0.25).all()
    found = verdict(tmp_path)
    assert found.status == ACCEPT
    assert found.supported[0] > 0.9


def scaled(name: str, factor: float) -> Change:
    def change(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[f"c0.{name}"] = tensors[f"c0.{name}"] * factor

    return change


def put(name: str, index: tuple[int, ...], value: float) -> Change:
    def change(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[f"c0.{name}"] = tensors[f"c0.{name}"].copy()
        tensors[f"c0.{name}"][index] = value

    return change


def shifted(name: str, column: int, by: float) -> Change:
    def change(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[f"c0.{name}"] = tensors[f"c0.{name}"].copy()
        tensors[f"c0.{name}"][..., column] += by

    return change


# What makes a bound smaller than it is must not pass; what makes a choice worse need not.
REJECTED: dict[str, tuple[Change, str]] = {
    "lower levels": (shifted("majorants", 0, -0.01), "probability-too-high"),
    "a level of infinity": (shifted("majorants", 0, 1e300), "probability-too-high"),
    "slopes of another majorant": (shifted("majorants", 1, -0.3), "probability-too-high"),
    "less of the variances": (shifted("majorants", 2, -0.3), "probability-too-high"),
    "flatter bends": (scaled("majorants", 0.9), "probability-too-high"),
    "lower tails": (shifted("tails", 0, -5.0), "probability-too-high"),
    "narrower ends": (shifted("ends", 1, -1.0), "probability-too-high"),
    "narrower variances": (shifted("ends", 3, -0.3), "probability-too-high"),
    "higher lower ends": (shifted("ends", 0, 0.5), "probability-too-high"),
    "higher least variances": (shifted("ends", 2, 0.05), "probability-too-high"),
    "lower caps": (scaled("caps", 0.5), "probability-too-high"),
    "no curvature and no power": (put("powers", (0,), 1.0), "probability-too-high"),
    "too much curvature": (scaled("curvatures", 1e3), "probability-too-high"),
    "another scale": (scaled("scales", 1.3), "probability-too-high"),
    "no scale": (scaled("scales", 0.0), "probability-too-high"),
    "negative caps": (put("caps", (0,), -1.0), "choice-out-of-range"),
    "ends in the wrong order": (put("ends", (0, 0), 1e3), "choice-out-of-range"),
    "variances of 0": (put("ends", (0, 2), 0.0), "choice-out-of-range"),
    "negative tilts": (put("tilts", (0, 0), -1.0), "choice-out-of-range"),
    "negative bends": (put("majorants", (0, 0, 3), -1.0), "choice-out-of-range"),
    "negative curvature": (put("curvatures", (0, 0), -1.0), "choice-out-of-range"),
    "a power below 1": (put("powers", (0,), 0.5), "choice-out-of-range"),
    "negative ceilings": (put("ceilings", (0,), -1.0), "choice-out-of-range"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_tampering_is_rejected(made: Path, tmp_path: Path, name: str) -> None:
    change, code = REJECTED[name]
    found = changed(made, tmp_path, change)
    assert (found.status, found.code) == (REJECT, code)


def changed(made: Path, folder: Path, change: Change) -> Any:
    header, tensors = parse(made / "c.safetensors")
    change(header, tensors)
    said = {"bnncert": json.dumps(header)}
    save_file(tensors, folder / "c.safetensors", metadata=said)
    return check_certificate(folder / "c.safetensors", read_model(made / "p.safetensors"))


def test_what_is_malformed_is_said(made: Path, tmp_path: Path) -> None:
    def outside(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["c0.capped"] = np.array([7], np.int32)

    assert changed(made, tmp_path, outside).code == "malformed"

    def twice(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors["c0.capped"] = np.array([0, 0], np.int32)

    assert changed(made, tmp_path, twice).code == "malformed"


NAMES = ["caps", "ends", "tilts", "ceilings", "tails", "scales", "majorants", "centers"]


@pytest.mark.parametrize("name", [*NAMES, "curvatures", "powers"])
def test_forged_numbers(made: Path, tmp_path: Path, name: str) -> None:
    """NaN, infinity, another shape or nothing are malformed; what is huge, negative or 0 proves
    nothing that is false."""
    true = verdict(made).supported[0]

    def emptied(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[f"c0.{name}"] = tensors[f"c0.{name}"][:0]

    def repeated(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[f"c0.{name}"] = np.concatenate([tensors[f"c0.{name}"]] * 2)

    def dropped(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        del tensors[f"c0.{name}"]

    for change in (emptied, repeated, dropped, scaled(name, np.nan), scaled(name, np.inf)):
        assert changed(made, tmp_path, change).code == "malformed"
    for factor in (-1.0, 0.0, 1e-300, 1e10, 1e300):
        found = changed(made, tmp_path, scaled(name, factor))
        assert found.status in (REJECT, ERROR) or found.supported[0] <= true + 0.02


@pytest.mark.parametrize("case", ["a region", "tanh"])
def test_what_it_does_not_speak_of(made: Path, tmp_path: Path, case: str) -> None:
    """The same evidence for a ball, or for another network."""
    problem = deep_problem(0.01, 0.01) if case == "a region" else deep_problem()
    layers = problem.network.layers
    if case == "tanh":
        network = Network((1,), (*layers[:1], Tanh(), *layers[2:]))
        problem = Problem(network, problem.posterior, problem.specification)
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    result = certify(problem)[0]
    assert result.certificate is not None
    result.certificate.write(tmp_path / "own.safetensors")
    header, tensors = parse(tmp_path / "own.safetensors")
    deep_header, deep_tensors = parse(made / "c.safetensors")
    header["evidence"] = deep_header["evidence"]
    asked = {name: tensors[name] for name in ("x", "rows", "offsets")}
    own = {name: value for name, value in deep_tensors.items() if name.startswith("c0.")}
    save_file(asked | own, tmp_path / "c.safetensors", metadata={"bnncert": json.dumps(header)})
    found = verdict(tmp_path)
    assert (found.status, found.code) == (ERROR, "unsupported")


def exact_moment(m: float, v: float, a: float, b: float, cap: float) -> mpmath.mpf:
    s = mpmath.sqrt(v)
    points = [0, cap / 4, cap / 2, cap]
    inside = mpmath.quad(lambda z: mpmath.exp(a * z + b * z * z / 2) * mpmath.npdf(z, m, s), points)
    return mpmath.ncdf(-m / s) + (inside if cap > 0 else 0)


@pytest.mark.parametrize(
    ("m", "v", "a", "b", "cap"),
    [(0.0, 1.0, 0.5, 0.1, 3.0), (-3.0, 1.0, 4.0, -0.5, 1.5), (-2.0, 2.0, 1.0, 0.1, 0.0)],
)
def test_moments(m: float, v: float, a: float, b: float, cap: float) -> None:
    z = Gaussian(arb(m), arb(v))
    found = float(moment(z, arb(a), arb(b), arb(cap)))
    assert found == pytest.approx(float(exact_moment(m, v, a, b, cap)), rel=1e-10)
    steep = float(moment(z, arb(a), arb(0.9), arb(cap)))
    assert steep >= float(exact_moment(m, v, a, 0.9, cap))
    assert str(positive(z, arb(a), arb(2), arb(cap))) == "nan"


def test_what_is_too_uncertain_is_not_bounded() -> None:
    z = Gaussian(arb(0), arb(1))
    assert str(moment(z, arb(0), arb(0, 4), arb(3))) == "nan"  # b may be steep, or below 0
    lost = arb(2) ** 200 + arb(1) / 3 - arb(2) ** 200
    found = rows._floats([arb(0.5), arb(0), lost, arb("nan")])
    assert found[:2].tolist() == [0.5, 0]
    assert np.isnan(found[2:]).all()
    near = [np.array([value]) for value in (0.0, 1 - 2.0**-30, np.inf)]
    flat = Majorants(*(np.zeros(1) for _ in range(4)))
    assert ratio_up(Factors(*near), flat, np.zeros(1), np.ones(1))[0] == np.inf


def test_tails_far_out_are_sharp() -> None:
    """So that what a prover shows of them is accepted."""
    for z in (11.9, 12.1, 13.0, 20.0, 37.0):
        level = float(mpmath.log(mpmath.ncdf(-z)))
        above = Majorants(np.array([level]), *(np.zeros(1) for _ in range(3)))
        own = Factors(np.zeros(1), np.zeros(1), np.array([z]), tail=True)
        found = ratio_up(own, above, np.zeros(1), np.ones(1))[0]
        assert 1 - 1e-9 <= found <= 1 + 5e-5


def test_what_is_cut_off_far_below_its_centre_is_sharp() -> None:
    """E[exp(14 z); 0 < z <= 2.7]: without the ceiling it would be e^66 times as much."""
    for b, ceiling, m, t in ((14.0, 2.7, -1.7, 0.7), (14.0, 2.7, 0.5, 0.7), (-14.0, 0.3, 1.0, 0.1)):
        own = Factors(*(np.array([value]) for value in (b, 0.0, ceiling)))
        exact = exact_factor(m, t, b, 0.0, ceiling, False)
        above = Majorants(np.array([np.log(exact)]), *(np.zeros(1) for _ in range(3)))
        found = ratio_up(own, above, np.array([m]), np.array([t]))[0]
        assert 1 - 1e-12 <= found <= 1 + 1e-6


def test_probabilities_between() -> None:
    for low, high in ((None, -3.0), (-1.0, 2.0), (2.0, 3.0), (-9.0, -8.0), (1.0, None)):
        ends = (None if end is None else arb(end) for end in (low, high))
        below = 0 if low is None else mpmath.ncdf(low)
        exact = (1 if high is None else mpmath.ncdf(high)) - below
        assert float(between(*ends)) == pytest.approx(float(exact), rel=1e-12)
    assert float(between(arb(-3), None)) == pytest.approx(float(mpmath.ncdf(3)))
    assert float(between(None, None)) == 1


def test_exponentials() -> None:
    x = np.concatenate([np.linspace(-700, 700, 4001), [-1e4, 1e4, 0.0]])
    above, below = exp_up(x), exp_down(x)
    for value, high, low in zip(x.tolist(), above.tolist(), below.tolist(), strict=True):
        assert low <= mpmath.exp(value) <= high
        if abs(value) <= 700:
            assert high <= low * (1 + 1e-8)
    assert np.isnan(exp_up(np.array([np.nan]))).all()


def test_ratios_against_high_precision() -> None:
    """Where factors are cut off, where they are not, and tails alone; near and far out."""
    generator = np.random.default_rng(0)
    for tail in (False, True):
        for _ in range(60):
            m, t = generator.uniform(-12, 12), generator.uniform(0.2, 6)
            b, c = generator.normal(), generator.uniform(0, 0.1)
            ceiling = [np.inf, 0.0, 3.0][int(generator.integers(0, 3))]
            ceiling, c = (2.0, 0.0) if tail else (ceiling, c if np.isinf(ceiling) else 0.0)
            one = [np.array([value]) for value in (b, c, ceiling)]
            flat = Majorants(*(np.zeros(1) for _ in range(4)))
            found = ratio_up(Factors(*one, tail=tail), flat, np.array([m]), np.array([t]))[0]
            exact = exact_factor(m, t, b, c, ceiling, tail)
            assert exact <= found <= exact * 1.01 + 1e-9


def exact_factor(m: float, t: float, b: float, c: float, ceiling: float, tail: bool) -> float:
    s = t**0.5
    if tail:
        return float(mpmath.ncdf((m - ceiling) / s))
    top = min(ceiling, max(m, 0) + 14 * s + abs(b) * t)
    points = [top * k / 12 for k in range(13)]
    inside = mpmath.quad(lambda z: mpmath.exp(b * z + c * z * z / 2) * mpmath.npdf(z, m, s), points)
    return float(mpmath.ncdf(-m / s) + (inside if top > 0 else 0))


def one_neuron(level: float, bend: float = 0.0) -> tuple[Factors, Any, Majorants]:
    """G of b = 1 on [-3, 3] x [1, 2]: largest against a flat line at (3, 2)."""
    factors = Factors(np.array([1.0]), np.zeros(1), np.array([np.inf]))
    ends = np.array([[-3.0, 3.0, 1.0, 2.0]])
    return factors, ends, Majorants(np.array([level]), np.zeros(1), np.zeros(1), np.array([bend]))


def test_majorants_hold_on_the_whole_rectangle() -> None:
    top = float(np.log(exact_factor(3.0, 2.0, 1.0, 0.0, np.inf, False)))
    assert hold(*one_neuron(top + 1e-3)).all()
    assert not hold(*one_neuron(top - 1e-6)).any()
    # A line through the factor's ends is below it nowhere but between them, where it bends.
    wide = np.array([[-3.0, 3.0, 1.0, 1.0]])
    factors = Factors(np.array([-1.0]), np.zeros(1), np.array([np.inf]))
    ends = [np.log(exact_factor(m, 1.0, -1.0, 0.0, np.inf, False)) for m in (-3.0, 3.0)]
    slope = (ends[1] - ends[0]) / 6
    line = [np.array([float(x)]) for x in (ends[0] + 3 * slope + 1e-6, slope, 0.0, 0.0)]
    assert not hold(factors, wide, Majorants(*line)).any()


def test_majorants_too_costly_to_prove_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    top = float(np.log(exact_factor(3.0, 2.0, 1.0, 0.0, np.inf, False)))
    monkeypatch.setattr(majorants, "MOST", 1)
    assert not hold(*one_neuron(top + 1e-5)).any()


def test_positive_definite_matrices() -> None:
    assert is_positive(arb_mat([[2, 1], [1, 2]]))
    assert not is_positive(arb_mat([[1, 2], [2, 1]]))
    assert not is_positive(arb_mat([[1, 1], [1, 1]]))  # on the border
    assert not is_positive(arb_mat([[arb("nan"), 0], [0, 1]]))
    assert not is_positive(arb_mat([[arb(1, 2), 0], [0, 1]]))  # a ball with 0 in it


def exponent(coupling: list[list[float]], center: list[float]) -> Exponent:
    size = len(center)
    zero = [arb(0)] * size
    return Exponent(zero, zero, np.array(center), arb_mat(coupling))


def test_expectations_of_one_neuron_are_sharp() -> None:
    """E exp(½ c (h - h⁰)²) for one neuron: Hölder loses nothing."""
    z, c, center = Gaussian(arb(0.5), arb(1)), 0.3, 0.7
    found = expectation([z], np.array([3.0]), exponent([[c]], [center]), np.array([0.4]), 1.001)
    exact = mpmath.quad(
        lambda t: mpmath.exp(c * (max(t, 0) - center) ** 2 / 2) * mpmath.npdf(t, 0.5, 1),
        [-12, -5, 0, 1, 2, 3],
    )
    assert float(exact) <= float(found) <= float(exact) * 1.01


def test_expectations_need_their_conditions() -> None:
    z, caps = [Gaussian(arb(0.5), arb(1))] * 2, np.full(2, 3.0)
    tied = exponent([[0.3, 0.3], [0.3, 0.3]], [0.7, 0.7])
    assert float(expectation(z, caps, tied, np.full(2, 0.2), 2.001)) > 1
    for curvature, power in ((0.2, 1.5), (2.0, 2.001)):
        found = expectation(z, caps, tied, np.full(2, curvature), power)
        assert str(found) == "nan"


def test_neurons_that_nothing_couples() -> None:
    """C = 0: the product of the factors, whatever p is."""
    z, caps = [Gaussian(arb(0.5), arb(1))] * 2, np.full(2, 3.0)
    found = expectation(z, caps, exponent([[0, 0], [0, 0]], [0.7, 0.7]), np.ones(2), 1.5)
    assert float(found) == pytest.approx(float(mpmath.ncdf(2.5)) ** 2, rel=1e-9)


def test_rare_neurons_weigh_far_out() -> None:
    """50 neurons, m = -3, τ = 1, H = 1.01, U = 1, √β = .7/H: the value is more than a thousand
    times what nine deviations of X show, and the nodes go beyond them."""
    size, cap = 50, 1.01
    assert NODES[-1] > 20
    strength = (0.7 / cap) ** 2
    tied = exponent([[strength] * size] * size, [0.0] * size)
    z = [Gaussian(arb(-3), arb(1))] * size
    found = expectation(z, np.full(size, cap), tied, np.full(size, 0.002), size * (1 + 1e-6))
    grid = np.linspace(0, cap, 102)
    one = np.diff([float(mpmath.ncdf(x + 3)) for x in grid])
    one[0] += float(mpmath.ncdf(3))
    law = np.ones(1)
    for _ in range(size):
        law = np.convolve(law, one)
    total = np.arange(len(law)) * (cap / 101)
    exact = float((law * np.exp(strength * total**2 / 2)).sum())
    assert exact > 2
    assert not float(found) < exact
