"""VNN-LIB files: their grammar, exact decimals, disjunctions and conjunctions."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from bnncert import Network, mlp, save_posterior
from bnncert.importers.vnnlib import CONJUNCTION, ROUNDED_BOX, ROUNDED_ROWS, parse
from bnncert.layers import Dense, Flatten
from bnncert.model.layers import Layer
from pages import blocks
from scenarios import random_posterior, vector
from vnnlib_files import TWO_BOXES, bounds, box, declare, identity, linear, load, rows

# ------------------------------------------------------------------------------------------ grammar


ROBUST = """; a comment (with parentheses
(set-logic QF_LRA)
(declare-const X_0 Real)  (declare-const X_1 Real)
(declare-const Y_0 Real)(declare-const
  Y_1 Real)
(declare-const Y_2 Real)

(assert (>= X_0 0.25)) (assert (<= X_0 0.75))
(assert (and (<= -1 X_1) (<= X_1 1e0)))   ; bounds from the other side
(assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0))))
"""


def test_a_file_as_the_competition_writes_it(tmp_path: Path) -> None:
    """Class 0 before 1 and 2: two rows, a label, an exact box."""
    query = load(tmp_path, ROBUST, linear(2, 3), torch.ones(6, dtype=torch.float64))
    assert query.exact
    assert query.notes == ()
    assert rows(query) == ([[1, -1, 0], [1, 0, -1]], [0, 0])
    assert box(query) == ([0.25, -1.0], [0.75, 1.0])
    assert query.specifications[0].labels is not None
    assert query.specifications[0].labels.tolist() == [0]


TERMS = {
    "(<= Y_0 2)": ([1, 0], -2),
    "(>= Y_0 2)": ([-1, 0], 2),
    "(<= 2 Y_0)": ([-1, 0], 2),
    "(<= Y_0 Y_1)": ([1, -1], 0),
    "(<= (+ Y_0 Y_1 1) 3)": ([1, 1], -2),
    "(<= (- Y_0 Y_1 1) 3)": ([1, -1], -4),
    "(<= (- Y_0) 3)": ([-1, 0], -3),
    "(<= (- 3) Y_0)": ([-1, 0], -3),
    "(<= (* 2 Y_0 3) 5)": ([6, 0], -5),
    "(<= (* (+ 1 1) (- Y_0 Y_1)) -1.0E+1)": ([1, -1], 5),
    "(<= (+ Y_0 (* 0 Y_1)) .5)": ([2, 0], -1),
    "(<= (+ Y_0 Y_1 (* -1 Y_1)) +1.)": ([1, 0], -1),
    "(<= (* 0.1 Y_0) (* 0.3 Y_1))": ([1, -3], 0),
    "(<= (+ (* 0.25 Y_0) (* 1e-3 Y_1)) 3.991125)": ([2000, 8], -31929),
}


@pytest.mark.parametrize("inequality", TERMS)
def test_linear_terms(inequality: str, tmp_path: Path) -> None:
    """Counterexample a·y <= b, safe a·y - b > 0, in whole numbers without a common divisor."""
    query = identity(tmp_path, inequality, (0, 1), (0, 1))
    assert rows(query) == ([TERMS[inequality][0]], [TERMS[inequality][1]])
    assert query.exact


def test_formulas_without_variables_are_decided(tmp_path: Path) -> None:
    expected = rows(identity(tmp_path, "(<= Y_0 0)", (0, 1)))
    for same in (
        "(and (<= Y_0 0) (<= 1 2))",
        "(or (<= Y_0 0) (<= 2 1))",
        "(and (or (<= Y_0 0) (or)) (and))",
    ):
        query = identity(tmp_path, same, (0, 1))
        assert (rows(query), query.exact) == (expected, True)


def test_repeated_inequalities_count_once(tmp_path: Path) -> None:
    """The same row in two disjuncts is one row; of two parallel conjuncts the tighter one says
    everything."""
    twice = identity(tmp_path, "(or (<= Y_0 0) (<= (* 2 Y_0) 0))", (0, 1))
    assert rows(twice) == ([[1]], [0])
    parallel = identity(tmp_path, "(and (<= Y_0 2) (<= Y_0 1) (<= Y_0 3))", (0, 1))
    assert rows(parallel) == ([[1]], [-1])
    assert parallel.exact


def test_inputs_are_laid_out_row_by_row(tmp_path: Path) -> None:
    layers: tuple[Layer, ...] = (Flatten(), Dense(6, 1, bias=False))
    text = declare(6, 1) + bounds(*((i, i + 1) for i in range(6))) + "(assert (<= Y_0 0))"
    region = (
        load(tmp_path, text, Network((2, 3), layers), torch.ones(6).double())
        .specifications[0]
        .region
    )
    assert region.box.lower[0].tolist() == [[0, 1, 2], [3, 4, 5]]


# ----------------------------------------------------------------------------------------- decimals


DECIMALS = [
    "0.1",
    "-0.1",
    "0.3",
    "1e-3",
    "0.5",
    "0",
    "-0.0",
    "1",
    "123456789.123456789123456789",
    "1e-320",
    "-1e-400",
]


@pytest.mark.parametrize("word", DECIMALS)
def test_boxes_of_floats_hold_the_boxes_of_decimals(word: str, tmp_path: Path) -> None:
    """lower <= decimal <= upper in rational arithmetic, and both ends are the nearest such
    floats."""
    query = identity(tmp_path, "(<= Y_0 0)", (word, word))
    ((low,), (high,)), exact = box(query), Fraction(word)
    assert Fraction(low) <= exact <= Fraction(high)
    assert (
        Fraction(math.nextafter(low, math.inf)) > exact > Fraction(math.nextafter(high, -math.inf))
    )
    held = low == high
    assert query.exact == held
    assert query.notes == (() if held else (ROUNDED_BOX,))


def test_a_wide_box_of_decimals_allows_upper_bounds(tmp_path: Path) -> None:
    """The points of upper bounds lie a little inside, so that rounding its ends outward does no
    harm."""
    query = identity(tmp_path, "(<= Y_0 0)", ("0.1", "0.3"))
    inner = query.specifications[0].region.inner()
    assert query.exact
    assert (
        Fraction(1, 10)
        <= Fraction(float(inner.lower))
        <= Fraction(float(inner.upper))
        <= Fraction(3, 10)
    )


def test_offsets_that_floats_cannot_hold_are_rounded_against_the_claim(tmp_path: Path) -> None:
    """Y_0 <= b with 25 digits: the row y - b' > 0 has b' >= b, and by less than a float."""
    word = "0.1234567890123456789012345"
    query = identity(tmp_path, f"(<= Y_0 {word})", (0, 1))
    ((coefficient,),), (offset,) = rows(query)
    scale = Fraction(coefficient)
    assert Fraction(offset) <= -Fraction(word) * scale < Fraction(math.nextafter(offset, math.inf))
    assert (query.exact, query.notes) == (False, (ROUNDED_ROWS,))


def test_coefficients_that_floats_cannot_hold_make_the_row_harder(tmp_path: Path) -> None:
    """Wherever all rows are positive the exact inequality fails, also for outputs as large as the
    rows allow."""
    first, second = "0.12345678901234567891", "-0.98765432109876543219"
    query = identity(tmp_path, f"(<= (+ (* {first} Y_0) (* {second} Y_1)) 0.1)", (0, 1), (0, 1))
    matrix, offsets = rows(query)
    assert (query.exact, query.notes) == (False, (ROUNDED_ROWS,))
    reach = offsets[-1]
    assert reach >= 2**20
    assert matrix[0][1] == -1
    assert matrix[1:] == [[1, 0], [-1, 0]]
    for y0, slack in itertools.product((-reach / 2, -1.0, 0.0, 3.0, reach / 2), (0, 1, 10**6)):
        # On the border of the float row, and a little above it.
        y1 = (
            Fraction(slack) / 10**18 - Fraction(offsets[0]) - Fraction(matrix[0][0]) * Fraction(y0)
        ) / Fraction(matrix[0][1])
        exact = Fraction(first) * Fraction(y0) + Fraction(second) * y1
        if abs(y1) < reach and slack:
            assert exact > Fraction(1, 10)


# ----------------------------------------------------------------------------------- and, or, boxes


def test_of_a_conjunction_the_row_with_the_largest_margin_is_taken(tmp_path: Path) -> None:
    """At the centre y = (0.5, 0.5): Y_0 <= 0.25 fails by 0.25, Y_1 <= -1 by 1.5, however they are
    scaled."""
    query = identity(tmp_path, "(and (<= (* 1000 Y_0) 250) (<= Y_1 -1))", (0, 1), (0, 1))
    assert rows(query) == ([[0, 1]], [1])
    assert (query.exact, query.notes) == (False, (CONJUNCTION,))
    mixed = identity(tmp_path, "(or (>= Y_0 3) (and (<= Y_0 -2) (<= Y_1 -1)))", (0, 1), (0, 1))
    assert rows(mixed) == ([[-1, 0], [1, 0]], [3, 2])


def test_asserted_outputs_hold_in_every_case(tmp_path: Path) -> None:
    """(or A B) and C is (A and C) or (B and C)."""
    query = identity(
        tmp_path, "(or (<= Y_0 -1) (<= Y_1 -2))", (0, 1), (0, 1), extra="(assert (<= Y_0 -5))"
    )
    assert rows(query) == ([[1, 0]], [5])
    assert query.notes == (CONJUNCTION,)


def test_several_boxes_are_several_specifications(tmp_path: Path) -> None:
    """One a box, with the rows of all its cases; an empty box has no counterexample."""
    query = load(tmp_path, declare(1, 1) + TWO_BOXES, linear(1, 1), vector(1))
    assert len(query.specifications) == 2
    assert (box(query, 0), rows(query, 0)) == (([0], [1]), ([[1]], [1]))
    assert (box(query, 1), rows(query, 1)) == (([2], [3]), ([[-1], [1]], [7, 0]))
    assert query.exact


def test_boxes_narrow_what_holds_everywhere(tmp_path: Path) -> None:
    text = (
        declare(2, 1)
        + bounds((0, 4), (0, 1))
        + "(assert (or (<= X_0 1) (>= X_0 3)))(assert (<= Y_0 0))"
    )
    query = load(tmp_path, text, linear(2, 1), vector(1, 1))
    assert [box(query, i) for i in range(2)] == [([0, 0], [1, 1]), ([3, 0], [4, 1])]


def test_a_file_of_an_image_is_read_quickly() -> None:
    """3 x 32 x 32 inputs and 10 classes."""
    cases = " ".join(f"(and (>= Y_{j} Y_0))" for j in range(1, 10))
    text = declare(3072, 10) + bounds(*[("0.123456", "0.234567")] * 3072) + f"(assert (or {cases}))"
    started = time.process_time()
    assert [len(unsafe) for _, unsafe in parse(text).cases] == [9]
    assert time.process_time() - started < 20


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python on the page about questions, in its order."""
    several_radii, vnnlib = blocks("specifications.md", "Several radii") + blocks(
        "specifications.md", "VNN-LIB"
    )
    monkeypatch.chdir(tmp_path)
    network = mlp(2, 3, 3)
    save_posterior("posterior.safetensors", network, random_posterior(0, network))
    Path("property.vnnlib").write_text(ROBUST)
    for code in (several_radii, vnnlib):
        names: dict[str, object] = {}
        exec(code, names)
        assert names["results"]
