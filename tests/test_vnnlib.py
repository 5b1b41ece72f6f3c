"""VNN-LIB files: their grammar, their polarity, exact decimals, disjunctions, conjunctions, and
hostile text."""

from __future__ import annotations

import itertools
import math
import operator
import random
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bnncert import Concentration, InputError, Network, Problem, certify, mlp, save_posterior
from bnncert.importers import smtlib
from bnncert.importers.vnnlib import (
    CONJUNCTION,
    ROUNDED_BOX,
    ROUNDED_ROWS,
    Query,
    load_vnnlib,
    parse,
)
from bnncert.layers import Dense, Flatten
from bnncert.model.layers import Layer
from bnncert.posteriors import Normal
from bnncert.results.answers import answer, jointly
from bnncert.results.folder import result_folder
from bnncert_check import ACCEPT, check_results, read_model, read_results
from pages import blocks
from scenarios import gaussian, random_network, random_posterior, vector


def linear(inputs: int, outputs: int) -> Network:
    return Network((inputs,), (Dense(inputs, outputs, bias=False),))


def declare(inputs: int, outputs: int) -> str:
    names = [f"X_{i}" for i in range(inputs)] + [f"Y_{j}" for j in range(outputs)]
    return "".join(f"(declare-const {name} Real)\n" for name in names)


def bounds(*intervals: tuple[object, object]) -> str:
    return "".join(
        f"(assert (>= X_{i} {low}))\n(assert (<= X_{i} {high}))\n"
        for i, (low, high) in enumerate(intervals)
    )


def load(path: Path, text: str, network: Network, weights: Tensor) -> Query:
    file = path / "property.vnnlib"
    file.write_text(text)
    return load_vnnlib(file, network, weights)


def identity(path: Path, outputs: str, *intervals: tuple[object, object], extra: str = "") -> Query:
    """The question about y = x on the given box, unsafe where `outputs` holds."""
    n = len(intervals)
    text = declare(n, n) + bounds(*intervals) + f"(assert {outputs})\n" + extra
    return load(path, text, linear(n, n), torch.eye(n, dtype=torch.float64).flatten())


def rows(query: Query, index: int = 0) -> tuple[list[list[float]], list[float]]:
    spec = query.specifications[index]
    return spec.rows[0].tolist(), spec.offsets[0].tolist()


def box(query: Query, index: int = 0) -> tuple[list[float], list[float]]:
    region = query.specifications[index].region
    return region.box.lower.flatten().tolist(), region.box.upper.flatten().tolist()


# ------------------------------------------------------------------------------------------------- grammar


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


# ------------------------------------------------------------------------------------------------- decimals


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


# ------------------------------------------------------------------------------------------------- polarity


def decimal(choose: random.Random) -> str:
    return choose.choice(
        ["0", "1", "-1", "0.5", f"{choose.uniform(-2, 2):.3f}", f"{choose.uniform(-2, 2):.2e}"]
    )


def random_inequality(choose: random.Random, outputs: int) -> str:
    parts = [f"(* {decimal(choose)} Y_{j})" for j in range(outputs) if choose.random() < 0.7] or [
        "Y_0"
    ]
    return f"({choose.choice(['<=', '>='])} (+ {' '.join(parts)}) {decimal(choose)})"


def random_formula(choose: random.Random, outputs: int, depth: int = 2) -> str:
    if depth == 0 or choose.random() < 0.3:
        return random_inequality(choose, outputs)
    parts = [random_formula(choose, outputs, depth - 1) for _ in range(choose.randint(1, 3))]
    return f"({choose.choice(['and', 'or'])} {' '.join(parts)})"


COMPARE: dict[str, Callable[[Fraction, Fraction], bool]] = {"<=": operator.le, ">=": operator.ge}


def holds(formula: str | smtlib.Group, values: dict[str, Fraction]) -> bool:
    """The formula evaluated as written."""
    assert not isinstance(formula, str)
    word, *parts = formula.items
    if word in ("and", "or"):
        return (all if word == "and" else any)(holds(part, values) for part in parts)
    return COMPARE[str(word)](value(parts[0], values), value(parts[1], values))


def value(term: str | smtlib.Group, values: dict[str, Fraction]) -> Fraction:
    if isinstance(term, str):
        return values[term] if term in values else Fraction(term)
    word, *parts = term.items
    found = [value(part, values) for part in parts]
    return sum(found, Fraction(0)) if word == "+" else math.prod(found, start=Fraction(1))


@pytest.mark.parametrize("seed", range(150))
def test_rows_say_what_the_file_says(seed: int, tmp_path: Path) -> None:
    """All rows positive at y: no counterexample. If the query is exact, the other way round too;
    ties are unsafe."""
    choose = random.Random(seed)
    outputs = choose.randint(1, 3)
    formula = random_formula(choose, outputs)
    (parsed,) = smtlib.commands(formula)
    text = declare(1, outputs) + bounds((0, 1)) + f"(assert {formula})"
    # Constants alone may decide a formula: then it is the same at every output.
    decided = holds(parsed, {f"Y_{j}": Fraction(0) for j in range(outputs)})
    try:
        query = load(tmp_path, text, linear(1, outputs), torch.ones(outputs).double())
    except InputError as error:
        reason = str(error)
    else:
        reason = ""
    if reason:
        assert ("not restricted" if decided else "contradict") in reason
        return
    matrix, offsets = rows(query)
    for _ in range(200):
        y = [
            Fraction(
                choose.choice([0, 1, -1, choose.randint(-3000, 3000)]), choose.choice([1, 2, 1000])
            )
        ] * outputs
        y = [choose.choice([entry, Fraction(choose.randint(-3, 3))]) for entry in y]
        unsafe = holds(parsed, {f"Y_{j}": entry for j, entry in enumerate(y)})
        margins = [
            sum((Fraction(a) * b for a, b in zip(row, y, strict=True)), Fraction(d))
            for row, d in zip(matrix, offsets, strict=True)
        ]
        safe = all(margin > 0 for margin in margins)
        assert not (safe and unsafe)
        assert not query.exact or safe == (not unsafe)


CERTAIN = {  # unsafe outputs of y = x on [1, 2] x [3, 4], and whether the property holds
    "(<= Y_0 0.5)": True,
    "(<= Y_0 1)": False,  # the tie x = 1 is a counterexample
    "(>= Y_0 0.5)": False,
    "(<= Y_1 Y_0)": True,
    "(>= Y_1 Y_0)": False,
    "(or (<= Y_0 0.5) (>= Y_1 5))": True,
    "(or (<= Y_0 0.5) (>= Y_1 4))": False,
    "(and (<= Y_0 0.5) (>= Y_1 3))": True,
    "(and (<= Y_0 3) (>= Y_1 4.5))": True,
    "(<= (+ (* 0.1 Y_0) (* 0.1 Y_1)) 0.39)": True,
    "(<= (+ (* 0.1 Y_0) (* 0.1 Y_1)) 0.41)": False,
}


@pytest.mark.parametrize("unsafe", CERTAIN)
def test_certain_networks_hold_a_property_or_do_not(unsafe: str, tmp_path: Path) -> None:
    """A deterministic network is safe with probability 1 or 0, and the bounds say which."""
    query = identity(tmp_path, unsafe, (1, 2), (3, 4))
    weights = Normal(
        torch.eye(2, dtype=torch.float64).flatten(), torch.zeros(4, dtype=torch.float64)
    )
    (result,) = certify(
        Problem(linear(2, 2), weights, query.specifications[0]), Concentration(upper=query.exact)
    )
    assert result.lower == (1 if CERTAIN[unsafe] else 0)
    if query.exact and unsafe not in (
        "(<= Y_0 1)",
        "(or (<= Y_0 0.5) (>= Y_1 4))",
    ):  # a tie is not found by attacks
        assert result.upper == (1 if CERTAIN[unsafe] else 0)


def test_the_probability_of_no_counterexample_is_known(tmp_path: Path) -> None:
    """y = w x, w ~ N(1, 1/2²), x in [1, 2], unsafe iff y <= 0: P_safe = Φ(2)."""
    query = identity(tmp_path, "(<= Y_0 0)", (1, 2))
    (result,) = certify(
        Problem(linear(1, 1), Normal(vector(1), vector(0.5)), query.specifications[0])
    )
    exact = (1 + math.erf(2 / math.sqrt(2))) / 2
    assert 0.8 < result.lower <= exact
    both = identity(tmp_path, "(or (<= Y_0 0) (>= Y_0 4))", (1, 2))
    (result,) = certify(
        Problem(linear(1, 1), Normal(vector(1), vector(0.5)), both.specifications[0])
    )
    assert 0.3 < result.lower <= 2 * exact - 1


# ------------------------------------------------------------------------------------------------- and, or, boxes


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


TWO_BOXES = """(assert (or (and (>= X_0 0) (<= X_0 1) (<= Y_0 -1)) (and (>= X_0 2) (<= X_0 3) (>= Y_0 7) )
 (and (>= X_0 2) (<= X_0 3) (<= Y_0 0)) (and (>= X_0 9) (<= X_0 8) (<= Y_0 0)) ))"""


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


def test_bounds_of_several_boxes_together() -> None:
    """1 - Σ (1 - lower), rounded down, and the smallest upper."""
    assert jointly([(0.75, 1.0)]) == (0.75, 1.0)
    assert jointly([(0.75, 1.0), (0.5, 0.875)]) == (0.25, 0.875)
    assert jointly([(0.25, 0.5), (0.5, 0.75)]) == (0.0, 0.5)
    choose = random.Random(0)
    for count in range(1, 40):
        lowers = [1 - 10 ** choose.uniform(-18, -2) for _ in range(count)]
        exact = 1 - sum(1 - Fraction(lower) for lower in lowers)
        lower, _ = jointly([(lower, 1.0) for lower in lowers])
        assert Fraction(lower) <= exact < Fraction(math.nextafter(lower, 2))


def test_the_union_bound_holds_where_the_probability_is_known(tmp_path: Path) -> None:
    """y = w x on x = 1 and x = -1, unsafe iff y <= -1: P(|w| < 1) for w ~ N(0, 1/2²), whatever each
    box says."""
    text = declare(1, 1) + (
        "(assert (or (and (<= X_0 1) (>= X_0 1)) (and (<= X_0 -1) (>= X_0 -1))))(assert (<= "
        "Y_0 -1))"
    )
    query = load(tmp_path, text, linear(1, 1), vector(0))
    weights = Normal(vector(0), vector(0.5))
    results = [certify(Problem(linear(1, 1), weights, spec))[0] for spec in query.specifications]
    exact = math.erf(2 / math.sqrt(2))
    lower, upper = jointly([(result.lower, result.upper) for result in results])
    assert exact - 1e-6 < lower <= exact <= upper


def test_answers() -> None:
    """Thresholds are the decimals that were typed: the float 0.95 is less than 95/100."""
    from decimal import Decimal

    assert [
        answer(lower, upper, 0.5) for lower, upper in ((0.5, 1), (0.4, 0.49), (0.4, 0.5), (0, 1))
    ] == [
        "unsat",
        "sat",
        "unknown",
        "unknown",
    ]
    assert answer(0.95, 1, 0.95) == "unsat"
    assert answer(0.95, 1, Decimal("0.95")) == "unknown"
    assert answer(0, 1, Decimal("1e-999999")) == "unknown"
    for wrong in (-0.1, 1.1, math.nan, math.inf):
        with pytest.raises(InputError, match="threshold"):
            answer(0, 1, wrong)


@pytest.mark.parametrize("seed", range(12))
def test_the_checker_accepts_what_files_ask(seed: int, tmp_path: Path) -> None:
    """Random networks and boxes: every certificate of every box, also the upper bounds."""
    choose = random.Random(seed)
    network = random_network(seed)
    posterior = random_posterior(seed, network)
    n = math.prod(network.input_shape)
    sides = [(f"{-choose.random():.4f}", f"{choose.random():.4f}") for _ in range(n)]
    y = network.forward(posterior.mean, torch.zeros(1, *network.input_shape, dtype=torch.float64))[
        0
    ]
    levels = [f"(<= Y_{j} {float(v) - choose.choice([-0.5, 3]):.17f})" for j, v in enumerate(y)]
    cases = f"(assert (or {' '.join(levels)}))\n(assert (or (<= X_0 {sides[0][1]}) (>= X_0 {sides[0][0]})))"
    query = load(
        tmp_path, declare(n, network.outputs) + bounds(*sides) + cases, network, posterior.mean
    )
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    with result_folder(tmp_path / "out") as store:
        for i, specification in enumerate(query.specifications):
            store(
                certify(
                    Problem(network, posterior, specification),
                    Concentration(upper=True),
                    indices=[i],
                )
            )
    verdicts = [
        *check_results(
            tmp_path / "out", read_results(tmp_path / "out"), read_model(tmp_path / "p.safetensors")
        )
    ]
    assert [verdict.status for verdict in verdicts] == [ACCEPT] * len(query.specifications)


# ------------------------------------------------------------------------------------------------- refusals


HEAD = declare(1, 1)
GOOD = HEAD + bounds((0, 1)) + "(assert (<= Y_0 0))\n"
WRONG = {
    "unclosed": (
        GOOD + "(assert (<= Y_0 1)",
        "line 6: the parenthesis opened here is never closed",
    ),
    "closed twice": (GOOD + ")", "line 6: ')' stands outside"),
    "no parentheses": ("hello", "line 1: 'hello' stands outside"),
    "empty group": (GOOD + "()", "line 6: a parenthesis must be followed"),
    "nested": (GOOD + "(" * 10**6, "line 6: more than 64 parentheses"),
    "nested and closed": ("(" * 10**6 + ")" * 10**6, "line 1: more than 64"),
    "nested formula": (GOOD + "(assert " + "(and " * 10**5 + ")" * 10**5, "line 6: more than 64"),
    "huge exponent": (GOOD + "(assert (<= Y_0 1e999999))", "line 6: constant '1e999999' is too"),
    "huger exponent": (GOOD + "(assert (<= Y_0 1e999999999999))", "too large"),
    "tiny exponent": (GOOD + "(assert (<= Y_0 1e-999999))", "line 6: constant '1e-999999' is too"),
    "many digits": (GOOD + f"(assert (<= Y_0 {'9' * 5000}))", "line 6: constant '9999"),
    "large product": (
        GOOD + f"(assert (<= (* {'1e999 ' * 999} Y_0) 1))",
        "line 6: exact arithmetic",
    ),
    "larger than floats": (
        HEAD + bounds((0, 1)) + "(assert (<= Y_0 1e400))",
        "larger than every float",
    ),
    "a box larger than floats": (
        HEAD + bounds((0, "1e400")) + "(assert (<= Y_0 0))",
        "larger than every float",
    ),
    "nan": (
        GOOD + "(assert (<= Y_0 nan))",
        "line 6: 'nan' is neither a number nor a declared variable",
    ),
    "inf": (GOOD + "(assert (<= Y_0 inf))", "line 6: 'inf' is neither"),
    "words": (GOOD + "(assert (<= Y_0 1_0))", "line 6: '1_0' is neither"),
    "other digits": (GOOD + "(assert (<= Y_0 ١))", "not ASCII"),
    "undeclared": (
        GOOD + "(assert (<= Y_1 0))",
        "line 6: 'Y_1' is neither a number nor a declared variable",
    ),
    "used before": ("(assert (<= Y_0 0))" + GOOD, "line 1: 'Y_0' is neither"),
    "gap": (GOOD + "(declare-const X_2 Real)", "variable X_1 is not declared"),
    "no outputs": ("(declare-const X_0 Real)" + bounds((0, 1)), "variable Y_0 is not declared"),
    "declared twice": (GOOD + "(declare-const X_0 Real)", "line 6: give (declare-const X_0 Real)"),
    "another sort": ("(declare-const X_0 Int)", "line 1: give"),
    "another name": ("(declare-const Z_0 Real)", "line 1: give"),
    "no upper bound": (HEAD + "(assert (>= X_0 0))(assert (<= Y_0 0))", "X_0 has no upper bound"),
    "no lower bound": (HEAD + "(assert (<= X_0 0))(assert (<= Y_0 0))", "X_0 has no lower bound"),
    "no bounds": (HEAD + "(assert (<= Y_0 0))", "X_0 has no lower bound"),
    "empty box": (HEAD + bounds((1, 0)) + "(assert (<= Y_0 0))", "contradict"),
    "false": (GOOD + "(assert (<= 1 0))", "contradict"),
    "no output": (HEAD + bounds((0, 1)), "outputs are not restricted"),
    "a case without": (
        GOOD[: GOOD.rindex("(assert")] + "(assert (or (<= Y_0 0) (<= 0 1)))",
        "not restricted",
    ),
    "strict": (GOOD + "(assert (< Y_0 0))", "line 6: operator '<' is not supported"),
    "equal": (GOOD + "(assert (= Y_0 0))", "line 6: operator '=' is not supported"),
    "not": (GOOD + "(assert (not (<= Y_0 0)))", "line 6: operator 'not' is not supported"),
    "division": (
        GOOD + "(assert (<= (/ Y_0 2) 0))",
        "line 6: operator '/' is not supported in a term",
    ),
    "product": (GOOD + "(assert (<= (* Y_0 Y_0) 0))", "line 6: a product of two variables"),
    "input and output": (
        GOOD + "(assert (<= X_0 Y_0))",
        "line 6: an inequality over inputs and outputs",
    ),
    "two inputs": (
        declare(2, 1) + bounds((0, 1), (0, 1)) + "(assert (<= X_0 X_1))(assert (<= Y_0 0))",
        "line 8: an inequality over several inputs",
    ),
    "three terms": (GOOD + "(assert (<= 0 Y_0 1))", "line 6: <= compares two terms, not 3"),
    "no terms": (GOOD + "(assert (<= (+) Y_0))", "line 6: + has no operands"),
    "two formulas": (
        GOOD + "(assert (<= Y_0 1) (<= Y_0 2))",
        "line 6: assert takes one formula, not 2",
    ),
    "a word": (GOOD + "(assert true)", "line 6: 'true' is not a formula"),
    "another command": (GOOD + "(check-sat)", "line 6: command 'check-sat' is not supported"),
    "version 2": ("(vnnlib-version <2.0>)\n(declare-network N)", "line 1: this is VNN-LIB 2.0"),
    "version 2 too": ("(declare-network N)", "line 1: this is VNN-LIB 2.0"),
    "too many cases": (
        GOOD + "\n".join(f"(assert (or (<= Y_0 {i}) (<= Y_0 {-i})))" for i in range(40)),
        "line 45: the formula falls into more than",
    ),
    "other sizes": (
        declare(2, 1) + bounds((0, 1), (0, 1)) + "(assert (<= Y_0 0))",
        "2 inputs and 1 outputs",
    ),
    "binary": ("\x00\xff", "not ASCII"),
    "nothing": ("", "X_0 is not declared"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_supported_is_refused_by_line(name: str, tmp_path: Path) -> None:
    """One line that names the place, quickly and in little memory."""
    text, message = WRONG[name]
    tracemalloc.start()
    started = time.perf_counter()
    with pytest.raises(InputError) as refused:
        load(tmp_path, text, linear(1, 1), vector(1))
    seconds, (_, memory) = time.perf_counter() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    assert seconds < 20
    assert memory < 512 * 2**20


def test_missing_and_large_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_vnnlib(tmp_path / "none.vnnlib", linear(1, 1), vector(1))
    with (tmp_path / "large.vnnlib").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="larger than 32 MiB"):
        load_vnnlib(tmp_path / "large.vnnlib", linear(1, 1), vector(1))


def test_a_file_of_an_image_is_read_quickly() -> None:
    """3 x 32 x 32 inputs and 10 classes."""
    cases = " ".join(f"(and (>= Y_{j} Y_0))" for j in range(1, 10))
    text = declare(3072, 10) + bounds(*[("0.123456", "0.234567")] * 3072) + f"(assert (or {cases}))"
    started = time.perf_counter()
    assert [len(unsafe) for _, unsafe in parse(text).cases] == [9]
    assert time.perf_counter() - started < 20


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


@pytest.mark.parametrize("seed", range(20))
def test_random_text_is_refused_or_read(seed: int, tmp_path: Path) -> None:
    """Nothing but an `InputError` comes of files with pieces moved, dropped or doubled."""
    choose = random.Random(seed)
    words = GOOD.replace("(", " ( ").replace(")", " ) ").split()
    generator = torch.Generator().manual_seed(seed)
    network = mlp(1, 2, 1)
    for _ in range(100):
        broken = list(words)
        for _ in range(choose.randint(1, 3)):
            i, j = choose.randrange(len(broken)), choose.randrange(len(broken))
            broken[i : i + 1] = choose.choice(
                [[], [broken[i]] * 2, [broken[j]], ["1e5"], ["(", "or"]]
            )
        try:
            query = load(
                tmp_path, " ".join(broken), network, gaussian(network.size, generator=generator)
            )
        except InputError:
            continue
        assert all(len(specification) == 1 for specification in query.specifications)
