"""Curves, clips and parametric ReLUs: lines and ranges against mpmath, descriptions, and what the
prover writes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx
from mpmath import mpf

import bnncert
from bnncert import GIE, PIE, Concentration, Enumeration, Problem, Sampling, decide
from bnncert.concentration.moments import output_norms
from bnncert.methods import Method
from bnncert.model.layers import described
from bnncert.model.network import mlp
from bnncert.model.specification import ball, class_robust, half_space, output_interval
from bnncert.posteriors import Empirical, Normal
from bnncert_check import ACCEPT, CannotCheck, check_certificate, predictive, read_model
from bnncert_check.activations import default_slopes, image, lines
from bnncert_check.curves import Curve
from bnncert_check.descriptions import READERS
from bnncert_check.layers import Activation
from bnncert_check.model import NPZ_ACTIVATIONS
from bnncert_check.region import Region
from curves import curve
from scenarios import (
    CURVES,
    EVERY,
    KINKED,
    correlated,
    draw_many,
    gaussian,
    random_problem,
    vector,
    wider,
)
from soundness.forging import ETA, certified, with_margin

LATER = (*CURVES, *KINKED)
INTERVALS = [
    *((0.0, 0.0), (-0.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (2.0, 2.0), (-3.0, -3.0), (3.0, 3.0)),
    *((-60.0, -50.0), (50.0, 60.0), (-800.0, 900.0), (-800.0, -90.0), (-ETA, ETA), (0.0, ETA)),
    *((-1e-300, 1e-310), (-1e150, 1e150), (1e5, 1e6), (-1e6, 3.0), (-1e300, -1e299)),
    *((-3.0, 3.0), (-0.76, -0.75), (-1.42, -1.41), (1.41421356, 1.41421357), (0.0, 6.0)),
    *((-1.0, 1.0), (-1.3, -1.2), (6.0, 7.0), (0.5, 2.0), (1e300, 1.5e300), (-4.0, -1.5)),
]


@pytest.fixture(autouse=True)
def _enough_digits() -> Any:
    with ctx.workprec(128), np.errstate(all="ignore"):
        yield


def read(layer: object, *shape: int) -> Activation:
    entry = json.loads(json.dumps(described(layer)))  # type: ignore[arg-type]
    found, _ = READERS[entry["type"]](entry, shape, 0, 1)
    assert isinstance(found, Activation)
    return found


def function(layer: Any) -> Callable[[Any], Any]:
    if layer in CURVES:
        return lambda z: curve(layer)(mpf(z))
    if isinstance(layer, bnncert.layers.Hardtanh):
        return lambda z: min(max(Fraction(z), Fraction(layer.low)), Fraction(layer.high))
    return lambda z: Fraction(z) * (1 if z >= 0 else Fraction(layer.slopes[0]))


@pytest.mark.parametrize("layer", LATER, ids=str)
def test_activations_never_leave_their_lines(layer: Any) -> None:
    """Whatever the slopes; the default ones are in the range that proofs may have; the image holds
    every value."""
    rng, f = np.random.default_rng(8), function(layer)
    center, radius = rng.normal(0, 4, 40), 10 ** rng.uniform(-9, 1.5, 40)
    l, u = np.array([*INTERVALS, *zip(center - radius, center + radius, strict=True)]).T
    activation = read(layer, len(l))
    default, (low, high) = default_slopes(activation, l, u), image(activation, l, u)
    least, most = activation.traits.slopes
    assert all(((slopes >= least) & (slopes <= most)).all() for slopes in default)
    constant = [np.full_like(l, a) for a in (-3.0, -0.1, 0.0, 1e-20, 0.25, 1.0, 1.05, 4.0)]
    tried = [*constant, *rng.uniform(least, most, (3, len(l))), *default]
    found = [lines(activation, l, u, slopes, slopes) for slopes in tried]
    number: Any = mpf if layer in CURVES else Fraction
    with mpmath.workdps(60):
        for i in range(len(l)):
            inside = [
                -1.4,
                -0.7517,
                0.0,
                0.5,
                1.0,
                2.0,
                6.0,
                *(l[i] + (u[i] - l[i]) * rng.random(6)),
            ]
            for z in {l[i], u[i], *(z for z in inside if l[i] <= z <= u[i])}:
                value = f(float(z))
                assert number(float(low[i])) <= value <= number(float(high[i]))
                for slopes, line in zip(tried, found, strict=True):
                    rise = number(float(slopes[i])) * number(float(z))
                    below, above = (rise + number(float(e[i])) for e in (line.lower, line.upper))
                    assert below <= value <= above, (l[i], u[i], float(slopes[i]))


@pytest.mark.parametrize("layer", LATER, ids=str)
def test_lines_touch(layer: Any) -> None:
    """Neither line nor the image could be much closer."""
    rng = np.random.default_rng(3)
    center, radius = rng.normal(0, 3, 60), rng.uniform(0.01, 5, 60)
    l, u = center - radius, center + radius
    activation = read(layer, len(l))
    slopes = default_slopes(activation, l, u)
    found, (low, high) = lines(activation, l, u, *slopes), image(activation, l, u)
    share = torch.linspace(0, 1, 4001).double()
    z = torch.from_numpy(l)[:, None] + torch.from_numpy(u - l)[:, None] * share
    f = layer(z)
    below = f - torch.from_numpy(slopes[0])[:, None] * z - torch.from_numpy(found.lower)[:, None]
    above = torch.from_numpy(slopes[1])[:, None] * z + torch.from_numpy(found.upper)[:, None] - f
    assert float(below.amin(1).max()) < 1e-2
    assert float(above.amin(1).max()) < 1e-2
    assert float((f.amin(1) - torch.from_numpy(low)).max()) < 1e-2
    assert float((torch.from_numpy(high) - f.amax(1)).max()) < 1e-2


@pytest.mark.parametrize("layer", CURVES, ids=str)
def test_values_slopes_and_turns_are_those_of_the_formulas(layer: Any) -> None:
    form = read(layer, 1).traits.form
    assert isinstance(form, Curve)
    true = curve(layer)
    points = [*np.linspace(-9, 9, 73) + 0.01, -40.0, 40.0, -700.0, 700.0, 1e-9, -1e-9]
    with mpmath.workdps(50):
        for z in map(float, points):
            _holds(form.value(arb(z)), true(mpf(z)), 1e-30)
            _holds(form.slope(arb(z)), mpmath.diff(true, mpf(z)), 1e-14)
            near = float(form.near_slope(np.array([z]))[0])
            assert near == pytest.approx(float(mpmath.diff(true, mpf(z))), rel=1e-9, abs=1e-12)
        for (low, high), left, right in zip(form.turns, form.bends, form.bends[1:], strict=False):
            gap = mpf(2) ** -40 * (low == high)
            for z, bend in ((mpf(low) - gap, left), (mpf(high) + gap, right)):
                second = mpmath.diff(true, z, 2, h=mpf(10) ** -18)
                assert mpmath.sign(second) == bend or (bend == 0 and abs(second) < 1e-9)


def _holds(ball: arb, value: mpf, width: float) -> None:
    """The ball holds the value, and is narrow."""
    middle, radius = mpf(str(ball.mid().str(50, radius=False))), mpf(float(ball.rad()))
    assert abs(middle - value) <= radius + mpf(width) * (1 + abs(value))
    assert radius <= mpf(1e-30) * (1 + abs(value))


@pytest.mark.parametrize("layer", CURVES, ids=str)
def test_a_curve_bends_one_way_between_its_turns(layer: Any) -> None:
    """By certain slopes at 400 points of every part."""
    form = read(layer, 1).traits.form
    assert isinstance(form, Curve)
    ends = [(-30.0, -30.0), *form.turns, (30.0, 30.0)]
    for (_, left), (right, _), bend in zip(ends, ends[1:], form.bends, strict=False):
        points = np.linspace(left, right, 402)[1:-1].tolist()
        slopes = [form.slope(arb(z)) for z in points]
        for first, second in pairwise(slopes):
            assert not bend * (second - first) < 0
            assert bend or not (second - first > 0 or second - first < 0)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "GELU"},
        {"type": "GELU", "approximate": "erf"},
        {"type": "SiLU", "slope": 0.1},
        {"type": "ELU", "alpha": 0.0},
        {"type": "ELU", "alpha": -1.0},
        {"type": "ELU", "alpha": 1e9},
        {"type": "ELU", "alpha": math.nan},
        {"type": "Softplus", "beta": 0.0},
        {"type": "Softplus", "beta": 1e-9},
        {"type": "Softplus", "beta": math.inf},
        {"type": "Softplus", "beta": "1"},
        {"type": "Hardtanh", "low": 1.0, "high": 1.0},
        {"type": "Hardtanh", "low": -math.inf, "high": 1.0},
        {"type": "Hardtanh", "low": 0.0},
        {"type": "PReLU", "slopes": [], "shape": []},
        {"type": "PReLU", "slopes": [0.1, 0.2], "shape": [3]},
        {"type": "PReLU", "slopes": [0.1, 0.2], "shape": [2]},
        {"type": "PReLU", "slopes": [0.1, 0.2], "shape": [2, 1]},
        {"type": "PReLU", "slopes": [1e4], "shape": []},
        {"type": "PReLU", "slopes": [math.nan], "shape": []},
    ],
    ids=str,
)
def test_descriptions_are_strict(entry: dict[str, Any]) -> None:
    with pytest.raises(CannotCheck):
        READERS[entry["type"]](entry, (3,), 0, 1)


def test_slopes_of_their_own_spread_over_channels() -> None:
    found = read(bnncert.layers.PReLU((0.5, -1.0), (2, 1, 1)), 2, 2, 3)
    assert np.asarray(found.below).tolist() == [0.5] * 6 + [-1.0] * 6
    assert found.traits.slopes == (-1.0, 1.0)
    assert found.traits.growth == (1.0, 0.0)


METHODS: list[Method] = [
    Concentration(effort=0, upper=True),
    Concentration(effort=1),
    Concentration(effort=2, nodes=20),
    PIE(samples=3),
    GIE(samples=3),
    Sampling(5, 0.7),
]


@pytest.mark.parametrize("layer", LATER, ids=str)
def test_certificates_are_accepted(layer: Any, tmp_path: Path) -> None:
    headers = []
    for seed in range(12):
        problem = random_problem(seed, activations=(layer,), batch=1)
        method = METHODS[seed % len(METHODS)]
        if isinstance(method, Concentration):
            problem = correlated(problem, seed) if seed > 7 else wider(problem, seed)
        problem = with_margin(problem, 0.3 + seed % 3)
        headers += certified(tmp_path, problem, method, seed)
    assert len(headers) > 4


@pytest.mark.parametrize("layer", LATER, ids=str)
def test_means_are_accepted(layer: Any, tmp_path: Path) -> None:
    """Of both quantities; the checker's moments are the prover's."""
    network = mlp(2, 3, 2, activation=layer)
    generator = torch.Generator().manual_seed(2)
    mean, std = gaussian(network.size, generator=generator), torch.full((network.size,), 0.01)
    region = ball(gaussian(1, 2, generator=generator), 0.01)
    label = network.forward(mean, region.center).argmax(-1)
    file = tmp_path / "p.safetensors"
    bnncert.save_posterior(file, network, Normal(mean, std.double()))
    model = read_model(file)
    for spec in (class_robust(region, label, 2), output_interval(region, -9.0, 9.0, 2, 1)):
        problem = Problem(network, Normal(mean, std.double()), spec)
        found = decide(problem)[0].certificate
        assert found is not None
        found.write(tmp_path / "c.safetensors")
        assert check_certificate(tmp_path / "c.safetensors", model).status == ACCEPT
    box = region.box
    own = Region("box", box.lower[0].numpy(), 0.0, box.lower[0].numpy(), box.upper[0].numpy())
    norms = predictive.output_norms(model, model.components[0].posterior, own)
    expected = output_norms(network, problem.posterior, region)[0]
    assert norms == pytest.approx(expected.numpy(), rel=1e-10)


@pytest.mark.parametrize("layer", KINKED, ids=str)
def test_lists_of_networks_are_accepted(layer: Any, tmp_path: Path) -> None:
    for seed in range(4):
        problem = with_margin(random_problem(seed, activations=(layer,), batch=1), 0.5)
        drawn = draw_many(problem.posterior, 6, torch.Generator().manual_seed(seed))
        networks = Problem(problem.network, Empirical(drawn), problem.specification)
        assert certified(tmp_path, networks, Enumeration(), seed)


@pytest.mark.parametrize("name", NPZ_ACTIVATIONS)
def test_npz_files_are_read_alike(name: str, tmp_path: Path) -> None:
    rng, path = np.random.default_rng(9), tmp_path / "posterior.npz"
    arrays = {
        "W0": rng.normal(size=(3, 4)),
        "b0": rng.normal(size=4),
        "W1": rng.normal(size=(4, 2)),
    }
    stds = {f"{key}_std": np.full(value.shape, 1e-3) for key, value in arrays.items()}
    means = {f"{key}_mean": value for key, value in arrays.items()}
    np.savez(path, meta=json.dumps({"activations": [name, "linear"]}), **means, **stds)
    region = ball(torch.from_numpy(rng.random((1, 3))), 0.02)
    problem = Problem(*bnncert.load_posterior(path), half_space(region, vector(1.0, -1.0), 0.0))
    assert certified(tmp_path, with_margin(problem, 2.0), Concentration(), 0, path)


def test_every_activation_is_named_alike() -> None:
    kinds = {type(layer).__name__ for layer in EVERY}
    assert kinds == {entry for entry in READERS if entry in dir(bnncert.layers)} & kinds
    assert mlp(2, 2, 2, activation=CURVES[0]).layers[1] == CURVES[0]
