"""Conditions of maps: their clauses, what they say in words, and whose class is predicted.

A condition is a list of clauses that must all hold, a clause a list of alternatives of which one
must, an alternative a list of rows that must all be positive. The class that is predicted on a cell
is the one that the network at the posterior's centre gives the cell's middle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from flint import ctx

from bnncert_check.arithmetic import BITS, UNIT, Array, down, require_ieee_arithmetic, up
from bnncert_check.grammar import exact, listed, members
from bnncert_check.linear import row_bounds
from bnncert_check.mass import WeightBox
from bnncert_check.model import EMPIRICAL, Model
from bnncert_check.region import Region, point_region
from bnncert_check.verdict import CannotCheck, Rejected

PREDICTED = "predicted"
NEAREST = 1e-9  # relative, of the distances of samples to their mean

Atom: TypeAlias = tuple[tuple[float, ...], float] | None  # a row and its offset; None: predicted
Alternative: TypeAlias = tuple[Atom, ...]
Clause: TypeAlias = tuple[Alternative, ...]


def read_clauses(value: Any, outputs: int) -> tuple[Clause, ...]:
    return tuple(
        tuple(_alternative(each, outputs) for each in _some(clause, "a clause"))
        for clause in _some(value, "the clauses")
    )


def _some(value: Any, where: str) -> list[Any]:
    found = listed(value, where)
    if not found:
        raise CannotCheck("malformed", f"{where} has no part")
    return found


def _alternative(value: Any, outputs: int) -> Alternative:
    atoms: list[Atom] = []
    for atom in _some(value, "an alternative"):
        if atom == PREDICTED:
            if outputs < 2:
                raise CannotCheck("malformed", "the network has no classes")
            atoms.append(None)
            continue
        said = members(atom, "a row", ("row", "offset"))
        row = tuple(exact(each, "a coefficient") for each in listed(said["row"], "a row", outputs))
        atoms.append((row, exact(said["offset"], "an offset")))
    return tuple(atoms)


def names_predicted(clauses: Sequence[Clause]) -> bool:
    return any(None in alternative for clause in clauses for alternative in clause)


def rows_of(alternative: Alternative, label: int | None, outputs: int) -> tuple[Array, Array]:
    """Rows [R, outputs] and offsets [R], on a cell of this class."""
    rows, offsets = [], []
    for atom in alternative:
        if atom is not None:
            rows.append(atom[0])
            offsets.append(atom[1])
            continue
        if label is None:
            raise CannotCheck("malformed", "the line names no class, which the condition is about")
        before = _before_others(label, outputs)
        rows += before
        offsets += [0.0] * len(before)
    return np.array(rows), np.array(offsets)


def _before_others(label: int, outputs: int) -> list[tuple[float, ...]]:
    return [
        tuple(float((i == label) - (i == other)) for i in range(outputs))
        for other in range(outputs)
        if other != label
    ]


def in_words(clauses: Sequence[Clause], outputs: int) -> str:
    """The clauses themselves, so that nothing else can be said of them."""
    return " and ".join(_of_clause(clause, outputs, len(clauses) > 1) for clause in clauses)


def _of_clause(clause: Clause, outputs: int, inner: bool) -> str:
    several = len(clause) > 1
    found = " or ".join(_of_alternative(each, outputs, several) for each in clause)
    return f"({found})" if several and inner else found


def _of_alternative(alternative: Alternative, outputs: int, inner: bool) -> str:
    for label in range(outputs if outputs > 1 else 0):
        if alternative == tuple((row, 0.0) for row in _before_others(label, outputs)):
            return f"class {label}"
    found = " and ".join(map(_of_atom, alternative))
    return f"({found})" if len(alternative) > 1 and inner else found


def _of_atom(atom: Atom) -> str:
    if atom is None:
        return f"class {PREDICTED}"
    row, offset = atom
    terms = [_of_term(value, f"y{i}") for i, value in enumerate(row) if value]
    return f"{' + '.join(terms) or '0'} > {_of_number(0.0 - offset)}"


def _of_term(value: float, name: str) -> str:
    return name if value == 1 else f"{_of_number(value)}*{name}"


def _of_number(value: float) -> str:
    return repr(value).removesuffix(".0")


def require_predicted(
    label: int, ends: tuple[Sequence[float], Sequence[float]], model: Model
) -> None:
    """No other class surely comes before the label's at the middle of a cell; ties, and what
    rounding cannot tell apart from them, are nobody's."""
    with ctx.workprec(BITS), np.errstate(all="ignore"):
        require_ieee_arithmetic()
        rows = -np.array(_before_others(label, model.outputs))
        offsets, there = np.zeros(len(rows)), _middle(*map(np.array, ends))
        bounds = [
            row_bounds(model, WeightBox(weights, weights), there, rows, offsets)
            for weights in _centers(model)
        ]
    if not any(((each <= 0) & np.isfinite(each)).all() for each in bounds):
        raise Rejected(
            "result-mismatch", f"class: {label} is not what the posterior's centre gives the middle"
        )


def _middle(lower: Array, upper: Array) -> Region:
    """A box around the middle, however that was rounded."""
    middle = lower / 2 + upper / 2
    reach = 8 * UNIT * np.maximum(np.abs(lower), np.abs(upper))
    ends = np.maximum(down(middle - reach), lower), np.minimum(up(middle + reach), upper)
    return replace(point_region(middle), lower=ends[0], upper=ends[1])


def _centers(model: Model) -> Iterator[Array]:
    """The centre: of a mixture that of its heaviest component, of samples the one nearest to their
    mean, where rounding leaves no doubt about it."""
    heaviest = max(model.components, key=lambda component: component.weight).posterior
    if heaviest.family not in EMPIRICAL:
        yield heaviest.center
        return
    samples = heaviest.fields["samples"]
    distances = np.linalg.norm(samples - samples.mean(0), axis=1)
    yield from samples[distances <= distances.min() * (1 + NEAREST)]
