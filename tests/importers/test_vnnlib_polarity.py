"""VNN-LIB files: their polarity, against the formulas themselves, and certificates of them."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from bnncert import Concentration, InputError, Problem, certify, save_posterior
from bnncert.importers import smtlib
from bnncert.posteriors import Normal
from bnncert.results.answers import jointly
from bnncert.results.folder import result_folder
from bnncert_check import ACCEPT, check_results, read_model, read_results
from scenarios import random_network, random_posterior, vector
from vnnlib_files import bounds, declare, identity, linear, load, rows

# ----------------------------------------------------------------------------------------- polarity


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
    low, high = sides[0]
    cases = f"(assert (or {' '.join(levels)}))\n(assert (or (<= X_0 {high}) (>= X_0 {low})))"
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
