"""Lines, ranges and moments of curves, clips and parametric ReLUs, whose values are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import mpmath
import numpy as np
from mpmath import mpf

from mutants.numbers import random_floats
from mutants.outcomes import Checker, never, never_above

Function: TypeAlias = Callable[[mpf], mpf]
SELU_SCALE, SELU_ALPHA = mpf(1.0507009873554805), mpf(1.6732632423543772)


def _exponential(scale: mpf, alpha: mpf) -> Function:
    return lambda z: scale * (z if z > 0 else alpha * mpmath.expm1(z))


def _parametric(slope: float) -> Function:
    return lambda z: z if z >= 0 else mpf(slope) * z


def _tanh_gelu(z: mpf) -> mpf:
    y = 2 * mpmath.sqrt(2 / mpmath.pi) * (z + mpf(44715) / 10**6 * z**3)
    return z / (1 + mpmath.exp(-y))


KNOWN: list[tuple[dict[str, Any], Function]] = [
    ({"type": "GELU", "approximate": "none"}, lambda z: z * mpmath.ncdf(z)),
    ({"type": "GELU", "approximate": "tanh"}, _tanh_gelu),
    ({"type": "SiLU"}, lambda z: z / (1 + mpmath.exp(-z))),
    ({"type": "Mish"}, lambda z: z * mpmath.tanh(mpmath.log1p(mpmath.exp(z)))),
    ({"type": "Softplus", "beta": 0.5}, lambda z: 2 * mpmath.log1p(mpmath.exp(z / 2))),
    ({"type": "ELU", "alpha": 0.5}, _exponential(mpf(1), mpf(0.5))),
    ({"type": "ELU", "alpha": 3.0}, _exponential(mpf(1), mpf(3))),
    ({"type": "SELU"}, _exponential(SELU_SCALE, SELU_ALPHA)),
    ({"type": "HardSwish"}, lambda z: z * min(max(z + 3, 0), 6) / 6),
    ({"type": "Softsign"}, lambda z: z / (1 + abs(z))),
    ({"type": "Hardtanh", "low": -2.0, "high": 0.5}, lambda z: min(max(z, mpf(-2)), mpf(0.5))),
    ({"type": "Hardtanh", "low": 1.0, "high": 2.0}, lambda z: min(max(z, mpf(1)), mpf(2))),
    ({"type": "PReLU", "slopes": [-1.5], "shape": []}, _parametric(-1.5)),
    ({"type": "PReLU", "slopes": [2.5], "shape": []}, _parametric(2.5)),
]


def curve_lines(checker: Checker) -> None:
    """Neither lines nor ranges cross what they bound, however badly the points are chosen that
    need no trust."""
    ends = [*np.sort(3 * random_floats(3, 3, 2)).tolist(), (-6.0, 5.0), (-4.0, 0.3), (-0.3, 6.0)]
    ends += [(-1.0, 3.0), (-1.0, 4.0), (-3.0, 1.0), (-4.0, 1.0), (-1.3, 0.5), (-0.8, 1.4)]
    slopes = np.array([*np.linspace(-0.5, 1.5, 15), 0.0, 1.0, 1.02, 1.05, -0.02, -0.05])
    checker.tangents.POSITIONS = 0
    for entry, f in KNOWN:
        activation, _ = checker.descriptions.READERS[entry["type"]](entry, (1,), 0, 1)
        flat = activation.traits.flat_below and f(mpf(-1)) != 0
        never(flat, f"{entry} would not matter below 0")
        for l, u in ends:
            values = _image_holds(checker, activation, f, l, u)
            for checker.tangents.HALVINGS in (0, 1):
                _lines_hold(checker, activation, values, (l, u), slopes)
    _channels(checker)
    _wide_turns(checker)
    _moments(checker)


def _image_holds(
    checker: Checker, activation: Any, f: Function, l: float, u: float
) -> list[tuple[float, float]]:
    """And values of f, rounded: other functions of `suite` are exact where it matters."""
    found = checker.activations.image(activation, np.array([l]), np.array([u]))
    low, high = (mpf(float(end[0])) for end in found)
    inside = [-3.0, -1.5, -1.28, -0.75, 0.0, 0.5, 1.0, 2.0, 3.0, *np.linspace(l, u, 13)]
    values = [(z, f(mpf(float(z)))) for z in inside if l <= z <= u]
    for _, value in values:
        never_above(low, value, "an image's lower end")
        never_above(value, high, "an image's upper end")
    return [(float(z), float(value)) for z, value in values]


def _lines_hold(
    checker: Checker,
    activation: Any,
    values: list[tuple[float, float]],
    ends: tuple[float, float],
    slopes: Any,
) -> None:
    l, u = (np.full_like(slopes, end) for end in ends)
    found = checker.activations.lines(activation, l, u, slopes, slopes)
    for z, value in values:
        slack = 1e-14 * (1 + abs(value) + np.abs(slopes * z))
        below = slopes * z + found.lower - value - slack
        above = value - slopes * z - found.upper - slack
        never_above(float(np.max(below)), 0.0, "a lower line")
        never_above(float(np.max(above)), 0.0, "an upper line")


def _channels(checker: Checker) -> None:
    """Slopes 0 and -1 of two channels of two pixels each: on [-1, 1] the images are [0, 1]."""
    entry = {"type": "PReLU", "slopes": [0.0, -1.0], "shape": [2, 1]}
    activation, _ = checker.descriptions.READERS["PReLU"](entry, (2, 2), 0, 1)
    below = -np.ones(4)
    low, high = checker.activations.image(activation, below, below)
    for one, other, value in zip(low, high, (0, 0, 1, 1), strict=True):
        never_above(float(one), value, "a channel's lower end")
        never_above(value, float(other), "a channel's upper end")


def _wide_turns(checker: Checker) -> None:
    """z² of which nothing is known in [-1, 1] but its slopes."""
    parts = {"turns": ((-1.0, 1.0),), "bends": (0, 0), "slopes": (-4.0, 4.0), "valley": (-1.0, 1.0)}
    square, twice = lambda z: z * z, lambda z: 2 * z
    form = checker.curves.Curve(square, twice, square, twice, **parts)
    l, u, none = (np.array([value]) for value in (-2.0, 2.0, 0.0))
    never_above(float(checker.tangents.least(form, 1, none, l, u)[0]), 0, "the least square")
    never_above(float(checker.tangents.image(form, l, u)[0][0]), 0, "the range of squares")


def _moments(checker: Checker) -> None:
    """Of networks without noise, the outputs themselves."""
    for entry, f in KNOWN:
        layers = [{"type": "Dense", "inputs": 1, "outputs": 1, "bias": True}, entry]
        network = checker.network.read_network({"input_shape": [1], "layers": layers})
        model = checker.model.Model(network, (), "", "")
        for bias in (-7.0, 0.0, 7.0):
            fields = {"mean": np.array([1.0, bias]), "std": np.zeros(2)}
            law = checker.model.Posterior("normal", fields)
            region = checker.region.point_region(np.zeros(1))
            found = checker.predictive.output_norms(model, law, region)
            never_above(abs(f(mpf(bias))), mpf(float(found[0])), f"the size of {entry}")
