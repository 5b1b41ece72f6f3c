"""The last layer alone against many digits: m from below, L from above, and both nearly right."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from bnncert_check.activations import Lines
from bnncert_check.functionals import Trace, last_layer, noisy, stands_alone
from bnncert_check.layers import Activation
from bnncert_check.linear import ActivationStep, Interval
from bnncert_check.model import Posterior
from bnncert_check.network import Network
from bnncert_check.region import Region
from bnncert_check.weighted import Dense
from soundness.forging import Array, Random

SIZES = {"plain": 0, "wild": 60, "subnormal": 520}  # in powers of two


def exact(layer: Dense, posterior: Posterior, h: Interval, row: Array) -> tuple[mpf, mpf]:
    """E min over the box of Σ_j D_j h_j + d, D_j ~ N(a_j, s_j²), and sup over it of the standard
    deviation."""
    mean, std = (layer.matrix(posterior.fields[name]) for name in ("mean", "std"))
    rows = [mpf(v) for v in row.tolist()]
    a = [mpmath.fdot(rows, map(mpf, own)) for own in mean.tolist()]
    variances = [
        mpmath.fsum((r * mpf(v)) ** 2 for r, v in zip(rows, own, strict=True))
        for own in std.tolist()
    ]
    value, squared = a[-1], variances[-1]
    ends = zip(a, variances, h.lower.tolist(), h.upper.tolist(), strict=False)
    for center, variance, low, high in ends:
        middle, half = (mpf(low) + mpf(high)) / 2, (mpf(high) - mpf(low)) / 2
        value += center * middle - half * expected(center, mpmath.sqrt(variance))
        squared += variance * max(abs(mpf(low)), abs(mpf(high))) ** 2
    return value, mpmath.sqrt(squared)


def expected(a: mpf, s: mpf) -> mpf:
    """E|N(a, s²)|"""
    if s == 0:
        return abs(a)
    z = a / s
    tail = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-z * z / 2)
    return s * tail + a * mpmath.erf(z / mpmath.sqrt(2))


def a_case(rng: Random, kind: str) -> tuple[Trace, Dense, Posterior, Array]:
    """Boxes that are points, one-sided or wide; weights that are certain, narrow or wide."""
    inputs, outputs, rows = (int(n) for n in rng.integers(1, 7, 3))
    layer = Dense(inputs, outputs, bool(rng.random() < 0.7), 0)
    scale = 2.0 ** rng.integers(-SIZES[kind], SIZES[kind] // 8 + 1, layer.size)
    std = rng.random(layer.size) * 10.0 ** rng.uniform(-6, 3) * (rng.random(layer.size) < 0.7)
    posterior = Posterior("normal", {"mean": rng.normal(size=layer.size) * scale, "std": std})
    ends = np.sort(rng.normal(size=(2, inputs)) * 10.0 ** rng.uniform(-9, 6), 0)
    ends[1] = np.where(rng.random(inputs) < 0.2, ends[0], ends[1])
    ends = np.where(rng.random(inputs) < 0.3, np.maximum(ends, 0), ends)
    h = Interval(ends[0], ends[1])
    network = Network((inputs,), (Activation("ReLU", 0.0, inputs, 0), layer), ((0,), (1,)))
    region = Region("linf", np.zeros(inputs), 0.0, np.zeros(inputs), np.zeros(inputs))
    relu = ActivationStep(Lines(*np.zeros((4, inputs))), h)
    steps = [noisy(layer, posterior, Trace(network, region, [relu], {}), h)]
    coefficients = rng.normal(size=(rows, outputs)) * (rng.random((rows, outputs)) < 0.8)
    return Trace(network, region, [*steps], {}), layer, posterior, coefficients


@pytest.mark.parametrize("kind", SIZES)
def test_the_last_layer_alone_against_many_digits(kind: str) -> None:
    rng, noisy_ones = np.random.default_rng(6), 0
    for _ in range(150):
        traced, layer, posterior, rows = a_case(rng, kind)
        assert stands_alone(traced)
        (step,) = traced.noisy
        for row, m, slope in zip(rows, *last_layer(traced, rows), strict=True):
            value, lipschitz = exact(layer, posterior, step.h, row)
            size = mpmath.fsum(abs(v) for v in (value, lipschitz)) + mpf(1e-130)
            size += mpf(float(np.abs(row) @ np.abs(step.mean).T @ np.append(step.h.magnitude, 1)))
            assert value - 1e-9 * size <= mpf(float(m)) <= value
            assert lipschitz <= mpf(float(slope)) <= lipschitz + 1e-9 * size
            noisy_ones += slope > 0
    assert noisy_ones > 100
