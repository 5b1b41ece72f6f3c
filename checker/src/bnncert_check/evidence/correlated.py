"""The choices of a bound for correlated weights at a point, as certificates hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bnncert_check.arithmetic import Array
from bnncert_check.correlated.gaussian import Form, largest_deviation, require_form
from bnncert_check.correlated.majorants import BOXES
from bnncert_check.correlated.moments import COLUMNS, node_steps
from bnncert_check.correlated.rows import Correlated, Group
from bnncert_check.correlated.tails import CELLS, SLOPES, Choice, Frame
from bnncert_check.evidence.proof import Asked
from bnncert_check.files import require_room
from bnncert_check.grammar import exact, index, listed, members, whole
from bnncert_check.verdict import CannotCheck, Rejected

CORRELATED = "correlated"
TERMS = (2, COLUMNS - 2)
MOST_TAILS = 16
HELD, HELD_OF_TWO = 2**4, 2**8  # numbers that are held of a cell of a neuron, and of two neurons
# Steps of a cell of a neuron at all places of s, and of three neurons in products, about.
CELL, PRODUCT = SLOPES // 2, 12
NUMBER = 2**7  # steps of a weight of the last layer, for every noise that it shares


def is_correlation(value: Any) -> bool:
    return type(value) is dict and CORRELATED in value


def read_correlated(
    value: Any, prefix: str, asked: Asked, rows: Array, x: Array, inside: bool = False
) -> Correlated:
    """Every number may be anything that the theorem speaks of. rows: of the question; x: the point;
    inside: of an upper bound, where one group is enough."""
    found = members(value, f"proof {prefix!r}", ("probability", CORRELATED))
    exact(found["probability"], f"the probability of {prefix!r}")
    form = require_form(asked.model.network, asked.posterior)
    width = form.hidden.outputs
    total = asked.tensors.size + asked.model.size
    held = width * (HELD * CELLS + HELD_OF_TWO * width)
    require_room(8 * held, total, f"the cells of {width} neurons")
    said = listed(found[CORRELATED], f"the groups of {prefix!r}", 1 if inside else None)
    groups = tuple(_group(one, f"{prefix}g{g}.", asked, rows) for g, one in enumerate(said))
    asked.spend(_steps(form, x, groups), f"{len(groups)} groups of rows")
    every = sorted(row for group in groups for row in group.rows)
    if not inside and every != list(range(len(rows))):
        raise CannotCheck("malformed", f"the groups of {prefix!r} do not have every row once")
    return Correlated(groups)


def _steps(form: Form, x: Array, groups: tuple[Group, ...]) -> int:
    """Of the nodes that all groups share, and of each its own."""
    width, outputs = form.hidden.outputs, form.last.outputs
    noises = int(form.posterior.fields["factor"].shape[1]) + 2  # and means and deviations
    each = PRODUCT * width**3 + noises * (width + 1) * (width + NUMBER * outputs)
    tails = sum(len(group.tails) for group in groups)
    boxes = BOXES * (len(groups) + tails) + CELL * CELLS * width * tails
    return node_steps(largest_deviation(form, x), width) + len(groups) * each + boxes


def _group(value: Any, prefix: str, asked: Asked, rows: Array) -> Group:
    said = members(value, f"group {prefix!r}", ("rows", "terms"))
    numbers = listed(said["rows"], f"the rows of {prefix!r}")
    chosen = tuple(index(row, f"a row of {prefix!r}", len(rows)) for row in numbers)
    if len(chosen) not in (1, 2):
        raise CannotCheck("malformed", f"group {prefix!r} has {len(chosen)} rows")
    if len(chosen) == 2 and not (rows[chosen[0]] == -rows[chosen[1]]).all():
        raise Rejected("rows-not-opposite", f"the rows of {prefix!r} are not opposite")
    terms = whole(said["terms"], f"the terms of {prefix!r}", *TERMS)
    return _choices(chosen, terms, prefix, asked)


def _choices(chosen: tuple[int, ...], terms: int, prefix: str, asked: Asked) -> Group:
    n, tensors = asked.model.layers[1].outputs, asked.tensors
    (count,) = tensors.shape(f"{prefix}rates", 1)
    if count > MOST_TAILS:
        raise CannotCheck("too-large", f"group {prefix!r} has {count} tails")

    def numbers(name: str, *shape: int) -> Array:
        return tensors.numbers(prefix + name, shape)

    level, slope, bend, noise = numbers("numbers", 4).tolist()
    frame = Frame(numbers("centers", n), numbers("bounds", n), numbers("powers", n))
    rates, weights = numbers("rates", count), numbers("weights", count)
    slopes, curvatures = numbers("slopes", count, n), numbers("curvatures", count, n)
    positive = (frame.power, rates)
    others = (weights, curvatures, np.array([bend]))
    if not (all((x > 0).all() for x in positive) and all((x >= 0).all() for x in others)):
        raise Rejected("choice-out-of-range", f"group {prefix!r} holds what the theorem does not")
    each = zip(rates.tolist(), slopes, curvatures, strict=True)
    tails = tuple(Choice(*one) for one in each)
    return Group(chosen, terms, (level, slope, bend, noise), weights, frame, tails)
