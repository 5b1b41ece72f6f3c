"""The part of SMT-LIB that VNN-LIB 1.0 is written in, read exactly: every number is a fraction.

    command = (declare-const NAME Real) | (assert formula)
    formula = (<= term term) | (>= term term) | (and formula ...) | (or formula ...)
    term    = NUMBER | NAME | (+ term ...) | (- term ...) | (* term ...), linear in the names

A formula is kept in disjunctive normal form: a list of cases, each a list of inequalities that hold
together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from bnncert.errors import InputError

DEEPEST = 64  # parentheses inside each other
LONGEST = 1000  # characters of a constant, and the largest power of ten in it
MOST_BITS = 2**14  # of a numerator or denominator
# Of a formula in disjunctive normal form.
MOST_CASES = 2**17
MOST_INEQUALITIES = 2**21
TOKEN = re.compile(r"[()]|[^\s()]+")
ZERO, ONE = Fraction(0), Fraction(1)
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")


class Group(NamedTuple):
    """What stands between two parentheses, and the line of the first."""

    line: int
    items: list[str | Group]


@dataclass(frozen=True)
class Inequality:
    """Σ_v coefficients[v] v <= bound; no coefficient is 0."""

    coefficients: dict[str, Fraction]
    bound: Fraction
    line: int


Formula: TypeAlias = list[list[Inequality]]
Sum: TypeAlias = tuple[dict[str, Fraction], Fraction]  # coefficients and constant


def refusal(line: int, message: str) -> InputError:
    return InputError(f"line {line}: {message}")


def commands(text: str) -> Iterator[Group]:
    """The groups that stand in no other, one at a time."""
    tokens = _tokens(text)
    for line, token in tokens:
        if token != "(":
            raise refusal(
                line, f"{token[:40]!r} stands outside every command; check the parentheses"
            )
        yield _group(tokens, line, 1)


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Parentheses and words with their lines; a semicolon starts a comment."""
    for number, line in enumerate(text.split("\n"), 1):
        for match in TOKEN.finditer(line.partition(";")[0]):
            yield number, match.group()


def _group(tokens: Iterator[tuple[int, str]], line: int, depth: int) -> Group:
    if depth > DEEPEST:
        raise refusal(
            line, f"more than {DEEPEST} parentheses inside each other; write the formula flatter"
        )
    items: list[str | Group] = []
    for number, token in tokens:
        if token == ")":
            return Group(line, items)
        items.append(_group(tokens, number, depth + 1) if token == "(" else token)
    raise refusal(line, "the parenthesis opened here is never closed")


def head(group: Group) -> str:
    """The word a group begins with."""
    if not group.items or not isinstance(group.items[0], str):
        raise refusal(
            group.line, "a parenthesis must be followed by a word such as assert, and, <= or +"
        )
    return group.items[0]


def normal_form(formula: str | Group, names: Container[str], line: int) -> Formula:
    """The cases of a formula over the declared names.

    None if it is false, one without inequalities if it is true.
    """
    if isinstance(formula, str):
        raise refusal(
            line,
            f"{formula[:40]!r} is not a formula; give (<= ...), (>= ...), (and ...) or (or ...)",
        )
    operator = head(formula)
    operands = formula.items[1:]
    line = formula.line
    match operator:
        case "<=" | ">=":
            return _comparison(operator, operands, names, line)
        case "and":
            return conjunction([normal_form(operand, names, line) for operand in operands], line)
        case "or":
            return [case for operand in operands for case in normal_form(operand, names, line)]
    raise refusal(
        line,
        f"operator {operator[:40]!r} is not supported in a formula; supported: <=, >=, and, or",
    )


def conjunction(parts: Sequence[Formula], line: int) -> Formula:
    """One case for every choice of a case from each part."""
    cases: Formula = [[inequality for part in parts if len(part) == 1 for inequality in part[0]]]
    for part in parts:
        if len(part) == 1:
            continue
        inequalities = len(part) * sum(map(len, cases)) + len(cases) * sum(map(len, part))
        if len(cases) * len(part) > MOST_CASES or inequalities > MOST_INEQUALITIES:
            raise refusal(
                line, f"the formula falls into more than {MOST_CASES} cases; split the file"
            )
        cases = [first + second for first in cases for second in part]
    return cases


def _comparison(
    operator: str, operands: Sequence[str | Group], names: Container[str], line: int
) -> Formula:
    """left <= right as Σ a v <= b; without variables it is true or false by itself."""
    if len(operands) != 2:
        raise refusal(line, f"{operator} compares two terms, not {len(operands)}")
    left, right = (
        _term(operand, names, line)
        for operand in (operands if operator == "<=" else operands[::-1])
    )
    coefficients, constant = _add([left, _scale(right, -ONE, line)], line)
    if coefficients:
        return [[Inequality(coefficients, -constant, line)]]
    return [[]] if constant <= 0 else []


def _term(term: str | Group, names: Container[str], line: int) -> Sum:
    if isinstance(term, str):
        if term in names:
            return {term: ONE}, ZERO
        return {}, _number(term, line)
    operator = head(term)
    line = term.line
    if operator not in ARITHMETIC:
        raise refusal(
            line,
            (
                f"operator {operator[:40]!r} is not supported in a term; "
                f"supported: {', '.join(ARITHMETIC)}"
            ),
        )
    operands = [_term(operand, names, line) for operand in term.items[1:]]
    if not operands:
        raise refusal(line, f"{operator} has no operands")
    return ARITHMETIC[operator](operands, line)


def _number(word: str, line: int) -> Fraction:
    match = NUMBER.fullmatch(word)
    if match is None:
        raise refusal(line, f"{word[:40]!r} is neither a number nor a declared variable")
    if len(word) > LONGEST or len(match[1] or "") > 5 or abs(int(match[1] or 0)) > LONGEST:
        raise refusal(line, f"constant {word[:40]!r} is too long, too large or too small")
    return Fraction(word)


def _add(operands: Sequence[Sum], line: int) -> Sum:
    coefficients: dict[str, Fraction] = {}
    total = ZERO
    for parts, constant in operands:
        total = _bounded(total + constant, line) if constant else total
        for name, value in parts.items():
            coefficients[name] = (
                _bounded(coefficients[name] + value, line) if name in coefficients else value
            )
    return {name: value for name, value in coefficients.items() if value}, total


def _subtract(operands: Sequence[Sum], line: int) -> Sum:
    """The first less the others; alone, its negative."""
    first, *others = operands
    if not others:
        return _scale(first, -ONE, line)
    return _add([first, *(_scale(other, -ONE, line) for other in others)], line)


def _multiply(operands: Sequence[Sum], line: int) -> Sum:
    variable = [operand for operand in operands if operand[0]]
    if len(variable) > 1:
        raise refusal(line, "a product of two variables is not linear")
    product: Sum = variable[0] if variable else ({}, ONE)
    for coefficients, constant in operands:
        if not coefficients:
            product = _scale(product, constant, line)
    return product


def _scale(term: Sum, factor: Fraction, line: int) -> Sum:
    coefficients, constant = term
    scaled = {
        name: _bounded(value * factor, line) for name, value in coefficients.items() if factor
    }
    return scaled, _bounded(constant * factor, line)


ARITHMETIC: dict[str, Callable[[Sequence[Sum], int], Sum]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
}


def _bounded(value: Fraction, line: int) -> Fraction:
    """The value, if exact arithmetic with it stays cheap."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        raise refusal(line, "exact arithmetic with these constants takes too many digits")
    return value
