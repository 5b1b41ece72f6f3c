"""Ties, numbers that float32 or float64 do not hold, and probabilities next to 0 and 1."""

from __future__ import annotations

from bnncert.bench.known.instance import ONE, known, weight
from bnncert.bench.models import Model, dense, normal
from bnncert.bench.recipes import Recipe, keeps, point, positive, rows
from bnncert.model.activations import LeakyReLU, ReLU

LARGE = 2.0**26  # times a slope of float32, an error of more than 1
TRAP = 2.0**25  # beside which float32 holds every fourth whole number
HUGE = 2.0**54  # beside which float64 does so


def _dead() -> Model:
    """y = relu(w x), which is exactly 0 where w is negative."""
    return normal((1,), dense([[0.5]], 1.0), ReLU(), dense([[1.0]]))


def _twins() -> Model:
    """Two classes whose outputs are always equal."""
    return normal((1,), dense([[0.25]], 1.0), dense([[1.0, 1.0]]))


def _single() -> Model:
    """y = (2²⁵ + 3) x + b, b ~ N(-(2²⁵ + 4), 1/4): float32 rounds the first weight up by 1."""
    return normal((1,), dense([[TRAP + 3]], bias=-(TRAP + 4), bias_std=0.5))


def _order() -> Model:
    """y = 2⁵⁴ x1 - x2 - 2⁵⁴ x3 + b, b ~ N(1/2, 1/64): from left to right, float64 loses the -1."""
    return normal((3,), dense([[HUGE], [-1.0], [-HUGE]], bias=0.5, bias_std=0.125))


def _slope() -> Model:
    """y = -2²⁶ leaky(-1) + b, b ~ N(-2²⁶·0.3 - 1, 1/4): of its slope 0.3 float32 rounds up."""
    slope = LeakyReLU(0.3)
    last = dense([[-LARGE]], bias=-LARGE * 0.3 - 1, bias_std=0.5)
    return normal((1,), dense([[-1.0]]), slope, last)


ROUNDINGS: tuple[Recipe, ...] = (
    known(
        "tie-dead",
        "relu(w) > 0, a tie where the neuron is dead",
        _dead,
        lambda: positive(ONE),  # Φ(1/2)
        "0.69",
        "a tie taken for safe: y >= 0",
    ),
    known(
        "tie-classes",
        "two classes with equal outputs",
        _twins,
        lambda: keeps(ONE, 0, 2),  # 0
        "0.5",
        "a tie taken for the first class, as argmax does",
    ),
    known(
        "float32",
        "a weight that float32 rounds up",
        _single,
        lambda: positive(ONE),  # Q(2)
        "0.03",
        "weights in float32",
    ),
    known(
        "float64",
        "large weights that cancel",
        _order,
        lambda: positive(point(1.0, 1.0, 1.0)),  # Q(4)
        "0.5",
        "the rounding of float64 not charged",
    ),
    known(
        "slope",
        "a leaky ReLU of slope 0.3, 2²⁶ times",
        _slope,
        lambda: positive(ONE),  # Q(2)
        "0.03",
        "the slope of a leaky ReLU in float32",
    ),
    known(
        "far-safe",
        "ten standard deviations from failure",
        weight,
        lambda: rows(ONE, [[1.0]], [10.0]),  # 1 - Q(10)
        "0.5",
        "a failure of 8e-24 that a difference of distribution functions rounds to 0",
    ),
    known(
        "far-unsafe",
        "ten standard deviations from safety",
        weight,
        lambda: rows(ONE, [[1.0]], [-10.0]),  # Q(10)
        "0.5",
        "a probability of 8e-24 that a difference of distribution functions rounds to 0",
    ),
)
