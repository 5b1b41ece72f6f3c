"""VNN-LIB files that are refused, by line: what is not supported, and hostile text."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path

import pytest
import torch

from bnncert import InputError, mlp
from bnncert.importers.vnnlib import load_vnnlib
from scenarios import gaussian, vector
from vnnlib_files import bounds, declare, linear, load

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
    started = time.process_time()
    with pytest.raises(InputError) as refused:
        load(tmp_path, text, linear(1, 1), vector(1))
    seconds, (_, memory) = time.process_time() - started, tracemalloc.get_traced_memory()
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
