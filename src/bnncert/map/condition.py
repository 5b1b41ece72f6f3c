"""Conditions on outputs, as text or from a VNN-LIB file: linear rows, joined by `and` and `or`.

    class predicted              the class that the central network gives the middle of the cell
    class 2, class not 2         class 2 stays before every other; it does not
    y0 - 2*y1 >= 0.5             a half-space, strictly; also a chain: -1 <= y0 <= 1
    ... and ..., ... or ...      `and` binds closer; parentheses

A condition is kept as clauses, all of which must hold; of a clause one alternative must, and of an
alternative every row a·y + d > 0. With certified bounds of each, whatever their dependence,

    P(∀x: all clauses)  >=  1 - Σ_k (1 - l_k),     l_k = max_j of P(∀x: alternative j of clause k),
    P(∀x: all clauses)  <=  P(clause k at x*)  <=  Σ_j of P(alternative j of clause k at x*)

for every clause k and every point x* of the region. The upper bounds of alternatives on the whole
region must not be added up: one may hold on one part of it, and another on the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bnncert.data.regions import Dimension, OperatingRegion
from bnncert.errors import InputError
from bnncert.importers.smtlib import Inequality
from bnncert.importers.vnnlib import common_factor, read_property

PREDICTED = "predicted"
MOST = 64  # alternatives and clauses
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)|(?P<output>y[0-9]{1,6})\b"
    r"|(?P<word>[A-Za-z]+)|(?P<sign><=|>=|<|>|[-+*()]))"
)
HINT = "write for example: class predicted, class not 2, -1 <= y0 <= 1, y0 - y1 >= 0.5 or y2 <= 3"


@dataclass(frozen=True)
class Row:
    """Σ_j coefficients[j] y_j + offset > 0, exactly."""

    coefficients: tuple[float, ...]
    offset: float


Atom: TypeAlias = Row | str  # PREDICTED is the one that is no row
Alternative: TypeAlias = tuple[Atom, ...]
Clause: TypeAlias = tuple[Alternative, ...]


@dataclass(frozen=True)
class Joint:
    """Parts that must hold all, or of which one must."""

    every: bool
    parts: tuple[Tree, ...]


Tree: TypeAlias = Joint | Alternative


@dataclass(frozen=True)
class Condition:
    """Every clause holds, of each one alternative, of that every row.

    >>> parse_condition("y0 >= 0.5 or class 1", 2).clauses[0][1]
    (Row(coefficients=(-1.0, 1.0), offset=0.0),)
    """

    text: str
    clauses: tuple[Clause, ...]
    outputs: int

    @property
    def predicted(self) -> bool:
        """Whether it speaks of the class that the central network gives the middle of a cell."""
        return any(atom == PREDICTED for c in self.clauses for a in c for atom in a)

    def rows(self, alternative: Alternative, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The rows [B, R, outputs] and offsets [B, R] of cells whose predicted classes are labels
        [B]."""
        parts = [self._of(atom, labels) for atom in alternative]
        matrices, offsets = zip(*parts, strict=True)
        return torch.cat(matrices, 1), torch.cat(offsets, 1)

    def _of(self, atom: Atom, labels: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(atom, Row):
            row = torch.tensor(atom.coefficients, dtype=torch.float64)
            offset = torch.tensor([[atom.offset]], dtype=torch.float64)
            return row.expand(len(labels), 1, -1), offset.expand(len(labels), 1)
        identity = torch.eye(self.outputs, dtype=torch.float64)
        others = torch.tensor(
            [[j for j in range(self.outputs) if j != k] for k in range(self.outputs)]
        )
        rows = identity[labels].unsqueeze(1) - identity[others[labels]]
        return rows, torch.zeros(rows.shape[:2], dtype=torch.float64)

    def margins(self, outputs: Tensor, labels: Tensor) -> list[list[Tensor]]:
        """How far outputs [B, P, outputs] of P points a cell satisfy each alternative of each
        clause, [B, P]: its smallest row."""
        found = []
        for clause in self.clauses:
            each = []
            for alternative in clause:
                rows, offsets = self.rows(alternative, labels)
                each.append((outputs @ rows.mT + offsets.unsqueeze(1)).amin(-1))
            found.append(each)
        return found

    def described(self) -> dict[str, Any]:
        """As JSON, exact numbers in hexadecimal."""
        clauses = [
            [[_described(atom) for atom in alternative] for alternative in clause]
            for clause in self.clauses
        ]
        return {"text": self.text, "clauses": clauses}


def _described(atom: Atom) -> Any:
    if isinstance(atom, Row):
        return {"row": [value.hex() for value in atom.coefficients], "offset": atom.offset.hex()}
    return atom


def load_condition(said: str, outputs: int) -> Condition:
    """The condition of a VNN-LIB file, or that a text states."""
    if not said.endswith(".vnnlib"):
        return parse_condition(said, outputs)
    path = Path(said)
    try:
        found = read_property(path)
        if found.outputs != outputs:
            raise InputError(
                f"the file has {found.outputs} outputs, the network {outputs}; give matching ones"
            )
        if len(found.cases) > 1:
            raise InputError(
                f"it asks about {len(found.cases)} input boxes; ask about them one by one"
            )
        clauses = [_refuted(together, outputs) for together in found.cases[0][1]]
        return _condition(f"no counterexample of {path.name}", clauses, outputs)
    except InputError as error:
        raise InputError(f"{str(path)!r}, {error}") from error


def region_of(path: str | Path) -> OperatingRegion:
    """The input box of a VNN-LIB file; its sides are called as there."""
    try:
        found = read_property(path)
        if len(found.cases) > 1:
            raise InputError(
                f"it asks about {len(found.cases)} input boxes; ask about them one by one"
            )
    except InputError as error:
        raise InputError(f"{str(path)!r}, {error}") from error
    sides = enumerate(found.cases[0][0])
    return OperatingRegion(tuple(Dimension(f"X_{i}", low, high) for i, (low, high) in sides))


def _refuted(together: Sequence[Inequality], outputs: int) -> Clause:
    """Inequalities a·y <= b do not hold all at once where a·y - b > 0 for one of them."""
    rows = []
    for inequality in together:
        sides = {int(name[2:]): value for name, value in inequality.coefficients.items()}
        rows.append((_row(sides, -inequality.bound, outputs),))
    return tuple(rows)


def parse_condition(text: str, outputs: int) -> Condition:
    """The condition that a text states; an `InputError` says what is wrong with it."""
    try:
        tree = _Parser(text, outputs).whole()
        return _condition(" ".join(text.split()), _normal(tree), outputs)
    except InputError as error:
        raise InputError(f"condition {text!r}: {error}") from error


def _condition(text: str, clauses: Sequence[Clause], outputs: int) -> Condition:
    """Clauses with one alternative are one clause: their rows are bounded together."""
    single = tuple(atom for clause in clauses if len(clause) == 1 for atom in clause[0])
    rest = [clause for clause in clauses if len(clause) > 1]
    joined = [(tuple(dict.fromkeys(single)),)] if single else []
    found = tuple(dict.fromkeys([*joined, *rest]))
    if len(found) > MOST or any(len(clause) > MOST for clause in found):
        raise InputError(f"it has more than {MOST} parts; ask about fewer at once")
    return Condition(text, found, outputs)


def _normal(tree: Tree) -> list[Clause]:
    """Clauses of a tree: those of all its parts, or alternatives of any of them."""
    if not isinstance(tree, Joint):
        return [(tree,)]
    each = [_normal(part) for part in tree.parts]
    if tree.every:
        return [clause for clauses in each for clause in clauses]
    alternatives: list[Alternative] = []
    for clauses in each:
        alternatives += [_joined(choice) for choice in product(*clauses)]
        if len(alternatives) > MOST:
            raise InputError(f"it has more than {MOST} alternatives; ask about fewer at once")
    return [tuple(dict.fromkeys(alternatives))]


def _joined(parts: Iterable[Alternative]) -> Alternative:
    return tuple(dict.fromkeys(atom for part in parts for atom in part))


def _row(coefficients: dict[int, Fraction], constant: Fraction, outputs: int) -> Row:
    """Σ a_j y_j + d > 0 in floats, multiplied by a positive number that makes it exact."""
    exact = [coefficients.get(j, Fraction(0)) for j in range(outputs)]
    if not any(exact):
        raise InputError(f"an inequality speaks of no output; {HINT}")
    factor = common_factor([*exact, constant])
    if factor is None:
        raise InputError("a number has more digits than floats hold; give fewer")
    return Row(tuple(float(value * factor) for value in exact), float(constant * factor))


class _Parser:
    """Recursive descent: or, and, parentheses, classes, chains of linear terms."""

    def __init__(self, text: str, outputs: int) -> None:
        self.outputs = outputs
        self.tokens: list[tuple[str, str]] = []
        text, place = text.rstrip(), 0
        while place < len(text):
            found = TOKEN.match(text, place)
            if found is None:
                raise InputError(f"{text[place:].strip()[:20]!r} is not understood; {HINT}")
            self.tokens.append((found.lastgroup or "", found[0].strip()))
            place = found.end()
        self.at = 0
        self.depth = 0

    def whole(self) -> Tree:
        found = self._any()
        if self.at < len(self.tokens):
            raise self._wrong()
        return found

    def _any(self) -> Tree:
        return self._several("or", self._all)

    def _all(self) -> Tree:
        return self._several("and", self._part)

    def _several(self, word: str, read: Callable[[], Tree]) -> Tree:
        parts = [read()]
        while self._next() == ("word", word):
            self.at += 1
            parts.append(read())
        return parts[0] if len(parts) == 1 else Joint(word == "and", tuple(parts))

    def _part(self) -> Tree:
        if self._next() == ("sign", "("):
            return self._in_parentheses()
        if self._next() == ("word", "class"):
            self.at += 1
            return self._class()
        return self._chain()

    def _in_parentheses(self) -> Tree:
        self.depth += 1
        if self.depth > MOST:
            raise InputError(f"more than {MOST} parentheses stand in each other")
        self.at += 1
        found = self._any()
        self._take("sign", ")")
        self.depth -= 1
        return found

    def _class(self) -> Tree:
        negated = self._next() == ("word", "not")
        self.at += negated
        kind, token = self._next()
        if self.outputs < 2:
            raise InputError("the network has one output and so no classes; ask about y0")
        if (kind, token) == ("word", PREDICTED) and not negated:
            self.at += 1
            return (PREDICTED,)
        if kind != "number" or not token.isdigit():
            raise self._wrong()
        self.at += 1
        label = self._output(token)
        others = [j for j in range(self.outputs) if j != label]
        if negated:
            refuted = tuple((self._before(j, label),) for j in others)
            return Joint(False, refuted) if len(others) > 1 else refuted[0]
        return tuple(self._before(label, j) for j in others)

    def _before(self, first: int, second: int) -> Row:
        return Row(tuple(float((i == first) - (i == second)) for i in range(self.outputs)), 0.0)

    def _output(self, digits: str) -> int:
        found = int(digits)
        if found >= self.outputs:
            raise InputError(
                f"output {found} does not exist; the network has outputs 0 to {self.outputs - 1}"
            )
        return found

    def _chain(self) -> Tree:
        """term <= term <= ...; a tie is not safe, so that < and <= are one."""
        left = self._sum()
        rows: list[Atom] = []
        while self._next()[1] in ("<=", ">=", "<", ">"):
            less = self._next()[1].startswith("<")
            self.at += 1
            right = self._sum()
            low, high = (left, right) if less else (right, left)
            sides = {
                j: high[0].get(j, Fraction(0)) - low[0].get(j, Fraction(0))
                for j in (*low[0], *high[0])
            }
            rows.append(_row(sides, high[1] - low[1], self.outputs))
            left = right
        if not rows:
            raise self._wrong()
        return tuple(rows)

    def _sum(self) -> tuple[dict[int, Fraction], Fraction]:
        coefficients: dict[int, Fraction] = {}
        constant = Fraction(0)
        first = True
        while first or self._next()[1] in ("+", "-"):
            sign = 1
            while self._next()[1] in ("+", "-"):
                sign *= -1 if self._next()[1] == "-" else 1
                self.at += 1
            factor, output = self._product()
            if output is None:
                constant += sign * factor
            else:
                coefficients[output] = coefficients.get(output, Fraction(0)) + sign * factor
            first = False
        return coefficients, constant

    def _product(self) -> tuple[Fraction, int | None]:
        factor, output = Fraction(1), None
        while True:
            kind, token = self._next()
            if kind == "number":
                factor *= Fraction(token)
            elif kind == "output" and output is None:
                output = self._output(token[1:])
            else:
                raise self._wrong()
            self.at += 1
            if self._next() != ("sign", "*"):
                return factor, output
            self.at += 1

    def _next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def _take(self, kind: str, token: str) -> None:
        if self._next() != (kind, token):
            raise self._wrong()
        self.at += 1

    def _wrong(self) -> InputError:
        said = " ".join(token for _, token in self.tokens[: self.at])
        after = f" after {said[-30:]!r}" if said else ""
        token = self._next()[1]
        if not token:
            return InputError(f"it ends{after} too early; {HINT}")
        return InputError(f"{token!r}{after} is not understood; {HINT}")
