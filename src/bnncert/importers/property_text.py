"""What a VNN-LIB text says: declared inputs and outputs, and its counterexamples, case by case."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from bnncert.errors import InputError
from bnncert.importers.smtlib import (
    Formula,
    Group,
    Inequality,
    commands,
    conjunction,
    head,
    normal_form,
    refusal,
)

MOST_ENTRIES = 2**24  # of all input boxes together
VARIABLE = re.compile(r"([XY])_(0|[1-9][0-9]{0,7})")
IGNORED = ("set-logic", "set-info", "set-option")
SECOND = ("vnnlib-version", "declare-network")

# Intervals that may still lack an end.
Open: TypeAlias = dict[int, tuple[Fraction | None, Fraction | None]]
Closed: TypeAlias = tuple[tuple[Fraction, Fraction], ...]
Case: TypeAlias = tuple[Closed, tuple[list[Inequality], ...]]


@dataclass(frozen=True)
class Property:
    """What a file says: the number of outputs, and for every input box the unsafe output sets.

    An output set is a list of inequalities that hold at once; an output in any of the sets is a
    counterexample.
    """

    outputs: int
    cases: tuple[Case, ...]


def parse(text: str) -> Property:
    """Inputs, outputs and counterexamples of a file.

    An `InputError` with its line for anything else.
    """
    declared: set[str] = set()
    asserted: list[Formula] = []
    line = 1
    for command in commands(text):
        match head(command):
            case "declare-const":
                declared.add(_declared(command, declared))
            case "assert":
                line = command.line
                asserted.append(normal_form(_asserted(command), declared, line))
            case word if word in SECOND:
                raise refusal(command.line, "this is VNN-LIB 2.0; give the property in version 1.0")
            case word if word not in IGNORED:
                raise refusal(
                    command.line,
                    f"command {word[:40]!r} is not supported; supported: declare-const, assert",
                )
    inputs, outputs = _count(declared, "X"), _count(declared, "Y")
    return Property(outputs, _cases(asserted, inputs, line))


def _declared(command: Group, before: set[str]) -> str:
    match command.items:
        case [_, str(name), "Real"] if VARIABLE.fullmatch(name) and name not in before:
            return name
    raise refusal(
        command.line, "give (declare-const X_0 Real), with X_i or Y_i and each of them once"
    )


def _asserted(command: Group) -> str | Group:
    if len(command.items) != 2:
        raise refusal(command.line, f"assert takes one formula, not {len(command.items) - 1}")
    return command.items[1]


def _count(declared: set[str], letter: str) -> int:
    names = {name for name in declared if name[0] == letter}
    missing = [f"{letter}_{i}" for i in range(len(names) or 1) if f"{letter}_{i}" not in names]
    if missing:
        raise InputError(
            f"variable {missing[0]} is not declared; "
            f"declare {letter}_0, {letter}_1, ... without gaps"
        )
    return len(names)


def _cases(asserted: Sequence[Formula], inputs: int, line: int) -> tuple[Case, ...]:
    """The unsafe output sets of every input box that is not empty."""
    # What holds in every case is read once: most files bound their inputs there.
    certain = [inequality for formula in asserted if len(formula) == 1 for inequality in formula[0]]
    everywhere = _box({}, [inequality for inequality in certain if _about(inequality) == "X"])
    always = [inequality for inequality in certain if _about(inequality) == "Y"]
    found: dict[frozenset[object], tuple[Open, list[list[Inequality]]]] = {}
    for case in (
        [] if _empty(everywhere) else conjunction([f for f in asserted if len(f) != 1], line)
    ):
        box = _box(everywhere, [inequality for inequality in case if _about(inequality) == "X"])
        own = {i: interval for i, interval in box.items() if everywhere.get(i) != interval}
        if not _empty(own):
            _, unsafe = found.setdefault(frozenset(own.items()), (own, []))
            unsafe.append(
                [*always, *(inequality for inequality in case if _about(inequality) == "Y")]
            )
    if not found:
        raise InputError(
            "the assertions contradict each other: there is no counterexample, whatever the network"
        )
    if not all(together for _, unsafe in found.values() for together in unsafe):
        raise InputError("outputs are not restricted: every input of a box is a counterexample")
    if len(found) * inputs > MOST_ENTRIES:
        raise InputError(f"{len(found)} boxes of {inputs} inputs are too many; split the file")
    return tuple(
        (_closed({**everywhere, **own}, inputs), tuple(unsafe)) for own, unsafe in found.values()
    )


def _about(inequality: Inequality) -> str:
    """X or Y: what it speaks of."""
    letters = {name[0] for name in inequality.coefficients}
    if len(letters) > 1:
        raise refusal(
            inequality.line, "an inequality over inputs and outputs together is not supported"
        )
    return letters.pop()


def _box(within: Open, inequalities: Sequence[Inequality]) -> Open:
    """The intervals that the inequalities, each of one input, leave of those they are within."""
    box: Open = {}
    for inequality in inequalities:
        if len(inequality.coefficients) > 1:
            raise refusal(
                inequality.line,
                "an inequality over several inputs is not supported: regions are boxes",
            )
        ((name, factor),) = inequality.coefficients.items()
        index = int(name[2:])
        end = inequality.bound / factor
        low, high = box.get(index, within.get(index, (None, None)))
        if factor > 0:
            box[index] = (low, end if high is None else min(high, end))
        else:
            box[index] = (end if low is None else max(low, end), high)
    return box


def _empty(box: Open) -> bool:
    return any(low is not None and high is not None and low > high for low, high in box.values())


def _closed(box: Open, inputs: int) -> Closed:
    """All intervals in order; each must have both ends."""
    intervals = []
    for i in range(inputs):
        low, high = box.get(i, (None, None))
        if low is None or high is None:
            raise InputError(
                f"variable X_{i} has no {'lower' if low is None else 'upper'} bound; give both ends"
            )
        intervals.append((low, high))
    return tuple(intervals)
