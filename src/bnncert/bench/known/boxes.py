"""Boxes of weights, whose masses overlap or were integrated over others; boxes of inputs; and rows
that say the same."""

from __future__ import annotations

from bnncert.bench.known.instance import ONE, known, weight
from bnncert.bench.models import Model, dense, normal
from bnncert.bench.recipes import Recipe, box, positive, rows, within
from bnncert.model.activations import ReLU


def _noisy_line() -> Model:
    """y = w x + b, both random."""
    return normal((1,), dense([[1.0]], 1.0, bias=0.25, bias_std=0.5))


def _two_weights() -> Model:
    """y = (w1 x, w2 x), both standard normal."""
    return normal((1,), dense([[0.0, 0.0]], 1.0))


def _islands() -> Model:
    """y = |w x|."""
    return normal((1,), dense([[0.0]], 1.0), dense([[1.0, -1.0]]), ReLU(), dense([[1.0], [1.0]]))


def _quadrants() -> Model:
    """y = |w1 + w2| - |w1 - w2| - 1: both weights beyond 1/2 on the same side."""
    parts = dense([[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]])
    ends = dense([[1.0], [1.0], [-1.0], [-1.0]], bias=-1.0)
    return normal((1,), dense([[0.0, 0.0]], 1.0), parts, ReLU(), ends)


BOXES: tuple[Recipe, ...] = (
    known(
        "noisy-line",
        "w x + b > 0 on an interval",
        _noisy_line,
        lambda: positive(box([0.5], [1.5])),  # ∫ φ(w) P(b > -min(w/2, 3w/2)) dw
        "0.8",
        "the clean input in the place of the region",
    ),
    known(
        "box-width",
        "a normal output inside ±1 standard deviation",
        weight,
        lambda: within(ONE, -1.0, 1.0),  # 1 - 2 Q(1)
        "0.68",
        "a box of ±λσ proved and one of ±2λσ integrated",
    ),
    known(
        "overlap",
        "two normal outputs inside ±1 standard deviation",
        _two_weights,
        lambda: rows(ONE, [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [1.0] * 4),
        "0.46",  # (1 - 2 Q(1))²
        "masses of overlapping boxes added, or inclusion and exclusion ended at an odd depth",
    ),
    known(
        "islands",
        "two safe intervals of one weight",
        _islands,
        lambda: within(ONE, 1.0, 2.0),  # 2 (Q(1) - Q(2))
        "0.27",
        "an empty intersection of boxes that became a box",
    ),
    known(
        "quadrants",
        "two safe quadrants of two weights",
        _quadrants,
        lambda: positive(ONE),  # 2 Q(1/2)²
        "0.19",
        "masses added in each dimension and then multiplied",
    ),
    known(
        "outside",
        "w x < 1 on [0, 1], unsafe from w = 1 on",
        lambda: weight(0.5, 0.25),
        lambda: rows(box([0.0], [1.0]), [[-1.0]], [1.0]),  # Φ(2)
        "0.97",
        "an upper bound by a point outside of the region",
    ),
    known(
        "repeated-rows",
        "one output row, written three times",
        weight,
        lambda: rows(ONE, [[1.0], [2.0], [1.0]], [1.0, 2.0, 1.0]),  # Φ(1)
        "0.84",
        "repeated rows charged, or multiplied, for an upper bound",
    ),
)
