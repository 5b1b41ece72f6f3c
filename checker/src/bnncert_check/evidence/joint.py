"""Joint laws of rows at a point as certificates hold them: windows and terms.

All of these are choices: whatever they are, what is computed from them holds. Which pairs there
are is no choice: what is made of them is true of a forest, or of all pairs.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from bnncert_check.arithmetic import Array
from bnncert_check.evidence.proof import Asked
from bnncert_check.files import require_room
from bnncert_check.grammar import exact, index, listed, members, whole
from bnncert_check.joint.neurons import CELLS, require_shape
from bnncert_check.joint.rests import BLOCKS, DOUBLINGS, Window
from bnncert_check.joint.rows import Pairs, Together
from bnncert_check.joint.series import Joint
from bnncert_check.joint.sums import work
from bnncert_check.laws.rows import require_form
from bnncert_check.question import Question
from bnncert_check.verdict import CannotCheck, Rejected

JOINT, TOGETHER = "joint", "together"
MOST_TERMS = (2**10, 2**7)  # of one row, and of each of two
MOST_NODES = 2**11  # of two pieces
LEAST, MOST = 2.0**-100, 2.0**100  # of windows, noises and tilts
IN_A_STEP = 4  # nodes at a frequency
HELD = 16  # numbers of a neuron's cell, of its node and of a frequency, about


def is_joint(value: Any) -> bool:
    return type(value) is dict and JOINT in value


def is_beside(value: Any) -> bool:
    return type(value) is dict and TOGETHER in value


def read_joint(
    value: Any, prefix: str, asked: Asked, question: Question, inside: bool = False
) -> Together:
    """inside: of an upper bound, where some rows are enough, and all pairs of these are asked
    for."""
    found = members(value, f"proof {prefix!r}", ("probability", JOINT))
    exact(found["probability"], f"the probability of {prefix!r}")
    laws = _laws(found[JOINT], f"{prefix}j", asked)
    singles = tuple(law for law in laws if len(law.rows) == 1)
    pairs = tuple(law for law in laws if len(law.rows) == 2)
    every = [row for law in singles for row in law.rows]
    if inside:
        _require_all(every, pairs, prefix, question)
    else:
        if sorted(every) != list(range(asked.rows)):
            raise CannotCheck("malformed", f"the laws of {prefix!r} do not have every row once")
        _require_forest(pairs, prefix)
    return Together(singles, pairs)


def read_together(value: Any, prefix: str, asked: Asked) -> Pairs:
    """Beside a law of a region."""
    laws = _laws(value, f"{prefix}t", asked)
    if not all(len(law.rows) == 2 for law in laws):
        raise CannotCheck("malformed", f"what stands beside the law of {prefix!r} are no pairs")
    _require_forest(laws, prefix)
    shape = asked.model.input_shape
    points = (
        asked.tensors.numbers(f"{prefix}t{k}.point", shape).reshape(-1) for k in range(len(laws))
    )
    return Pairs(tuple(zip(laws, points, strict=True)))


def _laws(value: Any, prefix: str, asked: Asked) -> tuple[Joint, ...]:
    require_shape(require_form(asked.model, asked.posterior).activation)
    said = listed(value, f"the joint laws of {prefix!r}")
    return tuple(_law(each, f"{prefix}{k}.", asked) for k, each in enumerate(said))


def _law(value: Any, prefix: str, asked: Asked) -> Joint:
    found = members(value, f"the law {prefix!r}", ("rows", "terms"))
    said = listed(found["rows"], f"the rows of {prefix!r}")
    rows = tuple(index(row, f"a row of {prefix!r}", asked.rows) for row in said)
    if len(rows) not in (1, 2) or len({*rows}) < len(rows):
        raise CannotCheck("malformed", f"law {prefix!r} is not of one row or of two")
    counts = listed(found["terms"], f"the terms of {prefix!r}", len(rows))
    most = MOST_TERMS[len(rows) - 1]
    terms = tuple(whole(count, f"the terms of {prefix!r}", 1, most) for count in counts)
    _require_effort(terms, prefix, asked)
    table = asked.tensors.numbers(f"{prefix}windows", (len(rows), 5))
    return Joint(rows, terms, tuple(_window(row, prefix) for row in table))


def _window(row: Array, prefix: str) -> Window:
    low, high, noise, *tilts = row.tolist()
    window = Window(low, high, noise, (tilts[0], tilts[1]))
    sizes = [-low, high, *tilts, *([noise] if noise else [])]
    if not (all(LEAST <= size <= MOST for size in sizes) and window.end > 0):
        raise Rejected("choice-out-of-range", f"{prefix!r} has a window that is none")
    return window


def _require_effort(terms: tuple[int, ...], prefix: str, asked: Asked) -> None:
    """In memory for a law, and in time."""
    neurons = require_form(asked.model, asked.posterior).hidden.outputs
    columns = 2 * terms[1] + 1 if len(terms) > 1 else 1
    frequencies = (terms[0] + 1) * columns
    total = asked.tensors.size + asked.model.size
    held = HELD * (neurons * CELLS + frequencies + MOST_NODES * columns)
    require_room(8 * held, total, f"the joint law {prefix!r} of {neurons} neurons")
    falls = CELLS * (sum(terms) + len(terms) * (4 * BLOCKS + DOUBLINGS))
    nodes = work(neurons, len(terms), frequencies) // IN_A_STEP
    asked.spend(nodes + neurons * falls, f"the joint law {prefix!r}")


def _require_forest(pairs: tuple[Joint, ...], prefix: str) -> None:
    """No pair joins rows that others join already."""
    root: dict[int, int] = {}

    def of(row: int) -> int:
        while row in root:
            row = root[row]
        return row

    for law in pairs:
        first, second = map(of, law.rows)
        if first == second:
            raise CannotCheck("malformed", f"the pairs of {prefix!r} go round in a circle")
        root[first] = second


def _require_all(
    rows: list[int], pairs: tuple[Joint, ...], prefix: str, question: Question
) -> None:
    """Every pair once, but for rows of which one is positive for sure where the other is not."""
    named = [frozenset(law.rows) for law in pairs]
    asked = {frozenset(pair) for pair in combinations(rows, 2)}
    if not rows or len({*rows}) < len(rows) or len({*named}) < len(named) or not asked >= {*named}:
        raise CannotCheck("malformed", f"the laws of {prefix!r} are not of some rows and pairs")
    for pair in asked.difference(named):
        first, second = pair
        opposite = (question.rows[first] == -question.rows[second]).all()
        if not (opposite and question.offsets[first] > -question.offsets[second]):
            raise Rejected("rows-not-opposite", f"rows {first} and {second} may fail together")
