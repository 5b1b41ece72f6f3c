"""The checker on correlated weights at a point: each part against what it bounds, and what
tampering does."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, arb_mat, ctx
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy.special import ndtr

from bnncert import (
    Concentration,
    Network,
    Problem,
    Specification,
    ball,
    certify,
    output_interval,
    save_posterior,
)
from bnncert.layers import Dense, ReLU, Sigmoid, Tanh
from bnncert.posteriors import LowRankNormal, Normal
from bnncert_check import ACCEPT, ERROR, REJECT, check_certificate, read_model
from bnncert_check.correlated import gaussian, majorants, moments, tails
from bnncert_check.correlated.majorants import Interval, Majorant, centered, is_above
from bnncert_check.verdict import CannotCheck
from checking import parse
from scenarios import vector

Array = NDArray[np.float64]
Change = Callable[[dict[str, Any], dict[str, Any]], None]
LOW, HIGH = -4.0, 3.5


@pytest.fixture(autouse=True)
def as_the_checker_computes() -> Iterator[None]:
    with ctx.workprec(128), np.errstate(all="ignore"):
        yield


def posterior_of(kind: str = "both", scale: float = 0.6) -> LowRankNormal:
    """Of 1-2-1: seven weights; both hidden neurons are random, the first alone, or none."""
    generator = np.random.default_rng(3)
    mean = 0.3 * generator.normal(size=7)
    factor = scale * (np.eye(7) + 0.25 * generator.normal(size=(7, 7)))
    factor[4:] *= 3.0
    std = np.full(7, 0.05)
    certain = {"both": [], "one": [1, 3], "none": [0, 1, 2, 3]}[kind]
    factor[certain], std[certain] = 0, 0
    return LowRankNormal(*(torch.from_numpy(part) for part in (mean, std, factor)))


def network_of(activation: Any = None) -> Network:
    return Network((1,), (Dense(1, 2), activation or Tanh(), Dense(2, 1)))


def problem_of(
    kind: str = "both", eps: float = 0.0, activation: Any = None, scale: float = 0.6
) -> Problem:
    spec = output_interval(ball(vector(1.0).reshape(1, 1), eps), low=LOW, high=HIGH)
    return Problem(network_of(activation), posterior_of(kind, scale), spec)


def wide(eps: float = 0.0) -> Specification:
    return output_interval(ball(vector(1.0).reshape(1, 1), eps), low=-40.0, high=40.0)


def law_of(posterior: LowRankNormal) -> tuple[Array, Array]:
    """Mean and covariance of (h1, h2, b, v1, v2) at x = 1."""
    forms = np.zeros((5, 7))
    forms[0, [0, 2]] = forms[1, [1, 3]] = 1
    forms[2, 6] = forms[3, 4] = forms[4, 5] = 1
    factor = posterior.factor.numpy()
    covariance = factor @ factor.T + np.diag(posterior.std.numpy() ** 2)
    return forms @ posterior.mean.numpy(), forms @ covariance @ forms.T


def nodes_of(posterior: LowRankNormal, f: Callable[[Array], Array]) -> tuple[Array, ...]:
    """By quadrature over h: masses, and a and q there. Nothing of it is the checker's."""
    mean, covariance = law_of(posterior)
    some = np.diag(covariance)[:2] > 0
    root = np.zeros((2, 2))
    root[np.ix_(some, some)] = np.linalg.cholesky(covariance[:2, :2][np.ix_(some, some)])
    places = (np.arange(601) - 300) * 0.03
    weights = np.exp(-(places**2) / 2)
    first, second = (part.ravel() for part in np.meshgrid(places, places))
    mass = np.outer(weights, weights).ravel()
    h = mean[:2, None] + root @ np.stack([first, second])
    regression = covariance[2:, :2] @ np.linalg.pinv(covariance[:2, :2])
    given = covariance[2:, 2:] - regression @ covariance[:2, 2:]
    t = np.concatenate([np.ones((1, h.shape[1])), f(h)])
    v = mean[2:, None] + regression @ (h - mean[:2, None])
    return mass / mass.sum(), (v * t).sum(0), (t * (given @ t)).sum(0)


def sigmoid(h: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-h)))


def share_of(posterior: LowRankNormal, f: Callable[[Array], Array] = np.tanh) -> float:
    mass, a, q = nodes_of(posterior, f)
    s = np.sqrt(q)
    return float(mass @ (ndtr((HIGH - a) / s) - ndtr((LOW - a) / s)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a posterior and an accepted certificate of both ends."""
    folder, problem = tmp_path_factory.mktemp("correlated"), problem_of()
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    result = certify(problem, Concentration(upper=True))[0]
    assert result.certificate is not None
    assert (result.lower_by, result.upper_by) == ("correlated", "correlated")
    result.certificate.write(folder / "c.safetensors")
    return folder


def verdict(folder: Path, name: str = "c") -> Any:
    model = read_model(folder / "p.safetensors")
    return check_certificate(folder / f"{name}.safetensors", model)


def test_it_is_accepted_and_about_the_truth(made: Path) -> None:
    found, share = verdict(made), share_of(posterior_of())
    assert found.status == ACCEPT, found
    lower, upper = found.supported
    assert lower < share < upper < lower + 0.1, (lower, share, upper)


@pytest.mark.parametrize("kind", ["one", "both"])
@pytest.mark.parametrize("activation", [Tanh(), Sigmoid()])
def test_one_random_neuron_or_two(tmp_path: Path, kind: str, activation: Any) -> None:
    problem = problem_of(kind, activation=activation, scale=1.2)
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    result = certify(problem, Concentration(upper=True))[0]
    assert result.certificate is not None
    result.certificate.write(tmp_path / "c.safetensors")
    found = verdict(tmp_path)
    assert found.status == ACCEPT, found
    f = np.tanh if isinstance(activation, Tanh) else sigmoid
    share = share_of(posterior_of(kind, 1.2), f)
    assert found.supported[0] - 1e-6 < share < found.supported[1] + 1e-6
    assert found.supported[1] - found.supported[0] < 0.16


def joint_of(folder: Path, row: float = 1.0) -> gaussian.Joint:
    model = read_model(folder / "p.safetensors")
    posterior = model.components[0].posterior
    form = gaussian.require_form(model.network, posterior)
    return gaussian.joint(gaussian.at_point(form, np.array([1.0])), np.array([row]))


def moments_of(own: gaussian.Joint, terms: int, center: float) -> moments.Moments:
    return moments.moments(own, moments.hermite(own, terms + 2), terms, center)


def holds(ball_: arb, value: float) -> bool:
    return bool(abs(ball_ - value) < 1e-9 * (1 + abs(value))) and bool(ball_.rad() < 1e-9)


@pytest.mark.parametrize("kind", ["both", "one"])
def test_moments_are_those_of_a_quadrature(tmp_path: Path, kind: str) -> None:
    own = posterior_of(kind)
    save_posterior(tmp_path / "p.safetensors", network_of(), own)
    found = moments_of(joint_of(tmp_path), 60, 0.3)
    mass, a, q = nodes_of(own, np.tanh)
    assert holds(found.first, float(mass @ (a - 0.3)))
    assert holds(found.second, float(mass @ (a - 0.3) ** 2))
    assert holds(found.noise, float(mass @ q))


def test_few_terms_are_vague_and_hold(made: Path) -> None:
    mass, _, q = nodes_of(posterior_of(), np.tanh)
    for terms in (2, 4, 8):
        found = moments_of(joint_of(made), terms, 0.0)
        off = abs(float(found.noise.mid()) - float(mass @ q))
        assert off <= float(found.noise.rad()) + 1e-9
        assert float(found.noise.rad()) > 1e-9


def test_pre_activations_of_correlation_1_need_more_terms_than_there_are(tmp_path: Path) -> None:
    """ρ = 1 - 2^-20: the series' weights still rise at its end, which says nothing."""
    own = gaussian.Joint(
        read_model(_saved(tmp_path)).network.layers[1],
        [arb(0), arb(0)],
        [arb(1), arb(1)],
        [arb(0), arb(1), arb(1)],
        *(arb_mat([[int(i == j) for j in range(size)] for i in range(3)]) for size in (3, 2)),
        arb_mat([[1, 1 - 2.0**-20], [1 - 2.0**-20, 1]]),
        arb_mat([[int(i == j) for j in range(3)] for i in range(3)]),
    )
    assert not moments_of(own, 96, 0.0).second.is_finite()


def _saved(folder: Path) -> Path:
    save_posterior(folder / "p.safetensors", network_of(), posterior_of())
    return folder / "p.safetensors"


def frame_of(folder: Path) -> tails.Frame:
    _, tensors = parse(folder / "c.safetensors")
    return tails.Frame(*(tensors[f"c0.g0.{name}"] for name in ("centers", "bounds", "powers")))


def choice(rate: float, slope: float, curvature: float) -> tails.Choice:
    return tails.Choice(rate, np.full(2, slope), np.full(2, curvature))


def test_tails_are_never_below_a_quadrature(made: Path) -> None:
    own, at = joint_of(made), frame_of(made)
    assert tails.is_framed(own, at)
    of = tails.cells(own, at)
    mass, _, q = nodes_of(posterior_of(), np.tanh)
    assert q.max() <= tails.most(own, at) + 1e-12
    useful = 0
    for rate in (0.1, 0.5, 1.0, 2.0):
        exact = math.log(float(mass @ np.exp(-rate * q)))
        for slope in (-0.2, 0.0, 0.3):
            for curvature in (0.1, 0.6, 1.5):
                found = tails.log_tail(own, at, of, choice(rate, slope, curvature))
                assert found > exact, (rate, slope, curvature)
                useful += bool(found < exact + 0.5)
    assert useful > 1


def test_tails_of_what_does_not_converge_are_infinite(made: Path) -> None:
    own, at = joint_of(made), frame_of(made)
    of = tails.cells(own, at)
    assert tails.log_tail(own, at, of, choice(50.0, 0.0, 30.0)) == tails.INFINITE
    assert tails.log_tail(own, at, of, choice(1.0, 0.0, 0.001)) == tails.INFINITE
    assert tails.log_tail(own, at, of, choice(1.0, 1.6, 0.05)) == tails.INFINITE


def test_masses_hold_all_of_a_law(made: Path) -> None:
    of = tails.cells(joint_of(made), frame_of(made))
    total = of.mass.sum(-1)
    assert ((total >= 1) & (total < 1 + 1e-9)).all()
    assert (of.low <= of.high).all()


PARABOLA = Majorant((1.02, 0.0, 0.0, 0.0), np.zeros(0), np.zeros(0))


@pytest.mark.parametrize("inside", [False, True])
def test_majorants_are_above_at_random_points(inside: bool) -> None:
    asked = Interval(-1.0, 1.5, inside)
    found = Majorant((0.9, 0.05, 0.3, -0.02), np.array([0.6]), np.array([0.3]))
    assert is_above(asked, found, 4.0)
    generator = np.random.default_rng(0)
    a, q = generator.normal(size=10_000) * 5, generator.uniform(0, 4, 10_000)
    value = 0.9 + 0.05 * a + 0.3 * a**2 - 0.02 * q + 0.6 * np.exp(-0.3 * q)
    within = ndtr((1.5 - a) / np.sqrt(q)) - ndtr((-1.0 - a) / np.sqrt(q))
    assert (value >= (within if inside else 1 - within)).all()


# What is not above F somewhere: numbers, weights, rates, the interval, q⁺.
BELOW = [
    ((0.99, 0.0, 0.0, 0.0), (), (), (-1.0, 1.0, True), 1.0),
    ((0.99, 0.0, 0.0, 0.0), (), (), (-1.0, 1.0, False), 1.0),
    ((1.01, 0.001, 0.0, 0.0), (), (), (-1.0, 1.0, True), 1.0),
    ((1.01, 0.0, 0.0, -0.02), (), (), (-1.0, math.inf, False), 1.0),
    ((0.0, 0.0, 0.4, 0.0), (), (), (-1.0, 1.0, False), 1.0),
    ((0.0, 0.0, 1e300, 0.0), (), (), (-1.0, 1.0, False), 1.0),
    ((0.1, 0.0, 0.0, 0.0), (0.89,), (0.1,), (-1.0, 1.0, True), 1.0),
    ((-5.0, 1.0, 0.1, 0.0), (), (), (-math.inf, 1.0, True), 1.0),
    # Just below the highest chance of all.
    ((math.erf(2**-0.5) - 1e-3, 0.0, 0.0, 0.0), (), (), (-1.0, 1.0, True), 1.0),
]


@pytest.mark.parametrize("case", BELOW)
def test_what_is_not_above_is_refused(case: Any) -> None:
    numbers, weights, rates, (low, high, inside), most = case
    found = Majorant(numbers, np.array(weights), np.array(rates))
    assert not is_above(Interval(low, high, inside), found, most)


def test_what_touches_takes_too_many_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """F = G on a line: boxes there are cut for ever."""
    monkeypatch.setattr(majorants, "BOXES", 2**10)
    touching = Majorant((1.0, 0.0, 0.0, 0.0), np.zeros(0), np.zeros(0))
    assert not is_above(Interval(-1.0, 1.0, True), touching, 1.0)
    monkeypatch.setattr(majorants, "ROUNDS", 3)
    assert not is_above(Interval(-1.0, 1.0, True), touching, 1.0)
    assert is_above(Interval(-1.0, 1.0, True), PARABOLA, 1.0)


def test_intervals_about_their_centre() -> None:
    for inside in (False, True):
        center, found = centered(0.1, 0.7, inside)
        assert center == (0.1 + 0.7) / 2
        wide = found.low < 0.1 - center and found.high > 0.7 - center
        assert wide is inside
        center, found = centered(-math.inf, 0.7, inside)
        assert (center, found.low) == (0.7, -math.inf)


def scaled(name: str, factor: float) -> Change:
    def change(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[name] = tensors[name] * factor

    return change


def put(name: str, index: int, value: float) -> Change:
    def change(_: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors[name] = tensors[name].copy()
        tensors[name].reshape(-1)[index] = value

    return change


def said(part: str, key: str, value: Any) -> Change:
    def change(header: dict[str, Any], _: dict[str, Any]) -> None:
        found = header["evidence"]["components"][0]
        found = found["lower"] if part == "lower" else found["upper"]["failure"]
        found["correlated"][0][key] = value

    return change


def with_opposite(header: dict[str, Any], _: dict[str, Any]) -> None:
    upper = header["evidence"]["components"][0]["upper"]
    upper["opposite"] = {"row": 1, "failure": upper["failure"]}


def another_row(header: dict[str, Any], _: dict[str, Any]) -> None:
    header["evidence"]["components"][0]["upper"]["row"] = 1


def more_tails(_: dict[str, Any], tensors: dict[str, Any]) -> None:
    for name in ("rates", "weights", "slopes", "curvatures"):
        own = tensors[f"c0.g0.{name}"]
        tensors[f"c0.g0.{name}"] = np.concatenate([own[:1]] * 17)


# What makes a bound smaller than it is must not pass.
REFUSED: dict[str, tuple[Change, str]] = {
    "a lower level": (put("c0.g0.numbers", 0, -2.0), "probability-too-high"),
    "a bend below 0": (put("c0.g0.numbers", 2, -0.1), "choice-out-of-range"),
    "weights below 0": (scaled("c0.g0.weights", -1), "choice-out-of-range"),
    "rates of 0": (scaled("c0.g0.rates", 0), "choice-out-of-range"),
    "curvatures below 0": (scaled("c0.g0.curvatures", -1), "choice-out-of-range"),
    "powers of 0": (scaled("c0.g0.powers", 0), "choice-out-of-range"),
    "powers of ½": (scaled("c0.g0.powers", 0.5), "probability-too-high"),
    "half the bounds": (scaled("c0.g0.bounds", 0.5), "probability-too-high"),
    "a centre elsewhere": (scaled("c0.g0.centers", -3.0), "probability-too-high"),
    "a tenth of the weights": (scaled("c0.g0.weights", 0.1), "probability-too-high"),
    "two terms": (said("lower", "terms", 2), "probability-too-high"),
    "one row twice": (said("lower", "rows", [0, 0]), "rows-not-opposite"),
    "an upper level": (put("c0.upper.g0.numbers", 0, -2.0), "upper-too-low"),
    "half the upper bounds": (scaled("c0.upper.g0.bounds", 0.5), "upper-too-low"),
}
MALFORMED: dict[str, tuple[Change, str]] = {
    "one row": (said("lower", "rows", [0]), "malformed"),
    "no row": (said("lower", "rows", []), "malformed"),
    "three rows": (said("lower", "rows", [0, 1, 0]), "malformed"),
    "terms of none": (said("lower", "terms", 0), "malformed"),
    "an opposite": (with_opposite, "malformed"),
    "another row": (another_row, "malformed"),
    "more tails": (more_tails, "too-large"),
}


@pytest.mark.parametrize("name", [*REFUSED, *MALFORMED])
def test_what_tampering_does(made: Path, name: str) -> None:
    change, code = (REFUSED | MALFORMED)[name]
    header, tensors = parse(made / "c.safetensors")
    change(header, tensors)
    write(made / "t.safetensors", header, tensors)
    found = verdict(made, "t")
    assert found.status == (REJECT if name in REFUSED else ERROR), found
    assert found.code == code, found


def write(path: Path, header: dict[str, Any], tensors: dict[str, Any]) -> None:
    own = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    save_file(own, path, metadata={"bnncert": json.dumps(header)})


def test_whatever_is_chosen_is_true(made: Path) -> None:
    """Random choices about those that were made: what they support is never beyond the truth."""
    header, tensors = parse(made / "c.safetensors")
    generator, share = np.random.default_rng(0), share_of(posterior_of())
    model = read_model(made / "p.safetensors")
    lower = upper = 0
    for _ in range(60):
        own = dict(tensors)
        for name in [key for key in own if ".g0." in key and generator.random() < 0.4]:
            noise = generator.normal(size=own[name].shape)
            own[name] = own[name] * np.exp(noise * 10.0 ** generator.uniform(-4, -0.5))
        write(made / "f.safetensors", header, own)
        found = check_certificate(made / "f.safetensors", model)
        if found.supported is not None:
            assert found.supported[0] <= share <= found.supported[1], found
            lower += found.supported[0] > 0
            upper += found.supported[1] < 1
    assert lower > 3
    assert upper > 3


def saved_with(folder: Path, rows: list[int], factor: Any, std: float) -> Path:
    """With such shared noise of some weights, and own noise of all."""
    own = posterior_of()
    shared = own.factor.clone()
    shared[rows] = torch.as_tensor(factor, dtype=torch.float64)
    noise = torch.full_like(own.std, std)
    save_posterior(folder / "p.safetensors", network_of(), LowRankNormal(own.mean, noise, shared))
    return folder


def test_output_weights_may_share_nothing(tmp_path: Path) -> None:
    own = joint_of(saved_with(tmp_path, [4, 5, 6], 0.0, 0.5))
    assert all(own.along[i, j] == 0 for i in range(3) for j in range(2))
    assert holds(own.given[0, 0], 0.25)


CERTAIN: dict[str, Any] = {
    "nothing is shared": LowRankNormal(
        posterior_of().mean, torch.full((7,), 0.3).double(), torch.zeros(7, 0).double()
    ),
    "pre-activations are certain": posterior_of("none"),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_noise_of_which_there_is_none(name: str, tmp_path: Path) -> None:
    own = CERTAIN[name]
    save_posterior(tmp_path / "p.safetensors", network_of(), own)
    here = joint_of(tmp_path)
    at = tails.Frame(np.zeros(2), np.full(2, 40.0), np.full(2, 2.0))
    assert tails.is_framed(here, at)
    found, (mass, a, q) = moments_of(here, 20, 0.0), nodes_of(own, np.tanh)
    assert holds(found.first, float(mass @ a))
    assert holds(found.second, float(mass @ a**2))
    assert holds(found.noise, float(mass @ q))
    exact = math.log(float(mass @ np.exp(-0.02 * q)))
    log = tails.log_tail(here, at, tails.cells(here, at), choice(0.02, 0.0, 0.2))
    assert exact < log < exact + 3


def test_pre_activations_that_determine_each_other(tmp_path: Path) -> None:
    same = posterior_of().factor[:1]
    with pytest.raises(CannotCheck, match="determine each other"):
        joint_of(saved_with(tmp_path, [0, 1, 2, 3], same, 0.0))


def test_a_variance_that_may_be_0() -> None:
    with pytest.raises(CannotCheck, match="not surely above 0"):
        gaussian._deviation(arb(0, 1))


def test_deviations_for_which_there_are_not_enough_nodes(tmp_path: Path) -> None:
    own = joint_of(saved_with(tmp_path, [0], 1e4, 0.1))
    with pytest.raises(CannotCheck, match="too many nodes"):
        moments_of(own, 10, 0.0)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(network_of(ReLU()), posterior_of(), wide()),
        Problem(network_of(), Normal(posterior_of().mean, posterior_of().std), wide()),
        Problem(network_of(), posterior_of(), wide(0.1)),
    ],
)
def test_other_networks_noise_and_regions(made: Path, tmp_path: Path, problem: Problem) -> None:
    """The proof is of another question, whose digests are right."""
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    result = certify(problem, Concentration(effort=0))[0]
    header, tensors = parse(made / "c.safetensors")
    assert result.certificate is not None
    result.certificate.write(tmp_path / "o.safetensors")
    other, others = parse(tmp_path / "o.safetensors")
    other["evidence"] = header["evidence"]
    kept = {name: value for name, value in others.items() if not name.startswith("c0.")}
    ours = {name: value for name, value in tensors.items() if name.startswith("c0.")}
    write(tmp_path / "o.safetensors", other, kept | ours)
    found = verdict(tmp_path, "o")
    assert (found.status, found.code) == (ERROR, "unsupported"), found
