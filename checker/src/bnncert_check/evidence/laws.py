"""A proof by laws as certificates hold it: cells, a lattice, and references for every row, or
lines for every neuron with a threshold or about anchors.

All of these are choices: whatever they are, what is computed from them holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bnncert_check.arithmetic import Array
from bnncert_check.evidence.proof import Asked
from bnncert_check.files import require_room
from bnncert_check.grammar import exact, flag, listed, members, whole
from bnncert_check.laws.anchored import AnchorLaw, Fall, finer
from bnncert_check.laws.lattice import Choice
from bnncert_check.laws.replies import ReplyLaw
from bnncert_check.laws.reply import ADDED
from bnncert_check.laws.rows import (
    Form,
    LineLaw,
    SharedLaw,
    at_once,
    require_form,
    require_relu,
)
from bnncert_check.linear import Interval
from bnncert_check.verdict import CannotCheck

LAW = "law"
NUMBERS, REMAINDER = 6, 3
MOST_CELLS, MOST_PARTS = 256, 16
SIZES = (2**4, 2**17)  # of the lattice, a power of 2
FARTHEST = 2.0**40  # index of the lattice
# Of a cell, an atom and an entry of a lattice: numbers that are held, and steps, about.
HELD, STEPS = (24 * 4, 12, 6), (32, 1, 1)
ENDS = 64  # of lines, numbers that are held of a cell of z
THRESHOLD, TRUNK, ALONG, REPLY = "threshold", "trunk", "along", "reply"
BLENDS = "blends"
MOST_DEVIATIONS = 64.0  # of a threshold
MOST_SHARE = 2.0**20  # of Hölder's inequality, and the least is one by it
STEEPEST = 2.0**20  # of lines: no product with them is infinite
MOST_ALONG, LINES = 64, 2**11  # cells of ξ; steps for two lines on one of them, about
# Steps for the proxies of a neuron's remainder, about; fewer neurons take as long as these.
PROXIES, FEWEST = 2**15, 2**5
ENDS_OF_ROW = 3  # laws of a row by anchors: at the anchor, and on the way to both ends


def is_law(value: Any) -> bool:
    return type(value) is dict and LAW in value


def is_reply(value: Any) -> bool:
    return is_law(value) and type(value[LAW]) is dict and REPLY in value[LAW]


def read_law(value: Any, prefix: str, asked: Asked) -> SharedLaw | LineLaw | AnchorLaw:
    law = _members(value, prefix, (), (THRESHOLD, TRUNK, ALONG, BLENDS))
    form = require_form(asked.model, asked.posterior)
    hidden = form.hidden
    if THRESHOLD in law and ALONG in law:
        raise CannotCheck("malformed", f"the law of {prefix!r} has two forms")
    if BLENDS in law and (THRESHOLD in law or ALONG in law):
        raise CannotCheck("malformed", f"the law of {prefix!r} has lines and blends slopes")
    if THRESHOLD not in law and ALONG not in law:
        require_relu(form.activation)
    cells, size = _lattice(law, prefix)
    along = whole(law[ALONG], "cells along the input", 1, MOST_ALONG) if ALONG in law else 0
    sums = ENDS_OF_ROW if along else 1
    _require_effort(cells, size, (along, sums), hidden.outputs, asked)
    # A box that a certificate proposes may be wider than a point's.
    if THRESHOLD not in law and not along and (asked.moving or TRUNK in law):
        _require_proxies(hidden.outputs, asked)
    table = (asked.rows, ENDS_OF_ROW, NUMBERS) if along else (asked.rows, NUMBERS)
    numbers = asked.tensors.numbers(f"{prefix}{LAW}.numbers", table).reshape(-1, NUMBERS)
    common = cells, size, tuple(_choice(row, prefix) for row in numbers)
    trunk = _trunk(law, form, prefix, asked)
    if along:
        shape = (asked.rows, hidden.outputs, cells[0], 2)
        return AnchorLaw(*common, trunk, along, *_anchors(shape, along, prefix, asked))
    if THRESHOLD in law:
        threshold = _threshold(law[THRESHOLD], prefix)
        slopes = _slopes((hidden.outputs, cells[0], 2), 1, f"{prefix}{LAW}.slopes", asked)
        return LineLaw(*common, trunk, threshold, slopes)
    references = _references(prefix, hidden.inputs, asked)
    return SharedLaw(*common, trunk, *references, _blends(law, prefix, asked))


def read_reply(value: Any, prefix: str, asked: Asked) -> ReplyLaw:
    """Of one row, at the least of two ends of an interval of P_safe alone."""
    law = _members(value, prefix, (REPLY,), ())
    form = require_form(asked.model, asked.posterior)
    cells, size = _lattice(law, prefix)
    _require_effort((cells[0] + ADDED, *cells[1:]), size, (0, 1), form.hidden.outputs, asked)
    _require_proxies(form.hidden.outputs, asked)
    (numbers,) = asked.tensors.numbers(f"{prefix}{LAW}.numbers", (1, NUMBERS))
    choice = _choice(numbers, prefix)
    if not choice.rate > 0:
        raise CannotCheck("malformed", f"the law of {prefix!r} has no rate for its noise")
    said = listed(law[REPLY], f"the reply of {prefix!r}", 2)
    threshold, share = (exact(one, f"the reply of {prefix!r}") for one in said)
    if not (0 <= threshold <= MOST_DEVIATIONS and 1 / MOST_SHARE <= share <= MOST_SHARE):
        raise CannotCheck("malformed", f"the reply of {prefix!r} is {threshold}, {share}")
    remainder = _remainders(prefix, asked)
    weights = asked.tensors.numbers(f"{prefix}{LAW}.weights", (form.hidden.outputs,))
    center = asked.tensors.numbers(f"{prefix}{LAW}.center", (form.hidden.inputs,))
    return ReplyLaw(cells, size, choice, threshold, share, remainder, weights, center)


def _members(
    value: Any, prefix: str, more: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, Any]:
    found = members(value, f"proof {prefix!r}", ("probability", LAW))
    exact(found["probability"], f"the probability of {prefix!r}")
    return members(found[LAW], f"the law of {prefix!r}", ("cells", "size", *more), optional)


def read_fall(value: Any, prefix: str, asked: Asked) -> Fall:
    """From the point of an opposite row to that of a row."""
    law = members(value, f"the fall {prefix!r}", ("probability", "cells", "size", ALONG))
    exact(law["probability"], f"the probability of {prefix!r}")
    form = require_form(asked.model, asked.posterior)
    cells, size = _lattice(law, prefix)
    along = whole(law[ALONG], "cells along the input", 1, MOST_ALONG)
    _require_effort(cells, size, (along, 1), form.hidden.outputs, asked)
    (numbers,) = asked.tensors.numbers(f"{prefix}numbers", (1, NUMBERS))
    slopes = _slopes((form.hidden.outputs, cells[0], 2), along, f"{prefix}slopes", asked)
    return Fall(cells, size, (_choice(numbers, prefix),), None, along, slopes)


def _lattice(law: dict[str, Any], prefix: str) -> tuple[tuple[int, int, int, int], int]:
    named = ("cells of z", "parts of z", "cells of v", "parts of v")
    most = (MOST_CELLS, MOST_PARTS) * 2
    least = (2, 1) * 2
    said = listed(law["cells"], f"the cells of {prefix!r}", 4)
    first, parts, second, others = (
        whole(*each) for each in zip(said, named, least, most, strict=True)
    )
    size = whole(law["size"], "the size of the lattice", *SIZES)
    if size & (size - 1):
        raise CannotCheck("malformed", f"the size of the lattice is {size}, not a power of 2")
    return (first, parts, second, others), size


def _threshold(value: Any, prefix: str) -> float:
    deviations = exact(value, f"the threshold of {prefix!r}")
    if not 0 <= deviations <= MOST_DEVIATIONS:
        raise CannotCheck("malformed", f"the threshold of {prefix!r} is {deviations}")
    return deviations


def _slopes(shape: tuple[int, ...], along: int, name: str, asked: Asked) -> Array:
    """Of lines, on as many cells of ξ."""
    require_room(
        8 * ENDS * shape[-3] * shape[-2] * along,
        asked.tensors.size + asked.model.size,
        f"the lines of {shape[-3]} neurons",
    )
    slopes = asked.tensors.numbers(name, shape)
    if not (np.abs(slopes) <= STEEPEST).all():
        raise CannotCheck("malformed", f"{name!r} are beyond {STEEPEST:g}")
    return slopes


def _anchors(
    shape: tuple[int, int, int, int], along: int, prefix: str, asked: Asked
) -> tuple[Array, Array, Array]:
    """By row an anchor, q and slopes."""
    anchors, spared = (
        asked.tensors.numbers(f"{prefix}{LAW}.{name}", (asked.rows,))
        for name in ("anchors", "spared")
    )
    if not (spared >= 0).all():
        raise CannotCheck("malformed", f"the law of {prefix!r} spares less than nothing")
    return anchors, spared, _slopes(shape, along, f"{prefix}{LAW}.slopes", asked)


def _trunk(law: dict[str, Any], form: Form, prefix: str, asked: Asked) -> Interval | None:
    """The box of what the hidden layer reads, where that is not the input itself."""
    said = flag(law.get(TRUNK, False), TRUNK)
    if said != (form.node != 0):
        raise CannotCheck("malformed", f"the law of {prefix!r} speaks of another layer's input")
    if not said:
        return None
    lower, upper = (
        asked.tensors.numbers(f"{prefix}{LAW}.{end}", (form.hidden.inputs,))
        for end in ("lower", "upper")
    )
    return Interval(lower, upper)


def _references(prefix: str, inputs: int, asked: Asked) -> tuple[Array, Array, Array]:
    """Of the remainder, θ and y⁰."""
    rows, name = asked.rows, f"{prefix}{LAW}."
    remainders = _remainders(prefix, asked)
    theta, y = (
        asked.tensors.numbers(name + of, (rows, inputs), "float32") for of in ("theta", "y")
    )
    if not (theta > 0).all():
        raise CannotCheck(
            "malformed", f"the law of {prefix!r} has a reference that is not positive"
        )
    return remainders, theta, y


def _blends(law: dict[str, Any], prefix: str, asked: Asked) -> tuple[float, ...]:
    """Of every row how much of its slopes is their mean; nothing, where none is named."""
    if BLENDS not in law:
        return (0.0,) * asked.rows
    what = f"the blends of {prefix!r}"
    found = tuple(exact(one, what) for one in listed(law[BLENDS], what, asked.rows))
    if not all(0 <= blend <= 1 for blend in found):
        raise CannotCheck("malformed", f"{what} are not all from 0 to 1")
    return found


def _remainders(prefix: str, asked: Asked) -> Array:
    """Of every row share, scale and chance."""
    found: Array = asked.tensors.numbers(f"{prefix}{LAW}.remainders", (asked.rows, REMAINDER))
    if not ((found[:, :2] > 0).all() and (found[:, 2] >= 0).all()):
        raise CannotCheck("malformed", f"the law of {prefix!r} has a choice that is not positive")
    return found


def _require_effort(
    counts: tuple[int, int, int, int], size: int, rest: tuple[int, int], neurons: int, asked: Asked
) -> None:
    """In memory for the neurons that are treated together, and in time for all of every row, beside
    what laws of the file took so far; rest: the cells of ξ of laws along an input, 0 for others,
    and the sums of a row."""
    along, sums = rest
    lines = counts[0] * along * LINES
    if along:
        counts = finer(counts, along)
    number = counts[0] * counts[2]
    numbers = number, number * counts[1] * counts[3], size
    held, steps = (
        sum(own * each for own, each in zip(numbers, costs, strict=True)) for costs in (HELD, STEPS)
    )
    together, total = min(at_once(counts, size), neurons), asked.tensors.size + asked.model.size
    require_room(8 * together * held, total, f"the laws of {together} neurons")
    steps = sums * steps + lines
    what = f"the laws of {asked.rows} rows of {neurons} neurons"
    asked.spend(asked.rows * neurons * steps, what)


def _require_proxies(neurons: int, asked: Asked) -> None:
    """Of every neuron and row two, found together."""
    what = f"the remainders of {asked.rows} rows of {neurons} neurons"
    asked.spend(asked.rows * PROXIES * max(neurons, FEWEST), what)


def _choice(row: Array, prefix: str) -> Choice:
    step, low, rate, curb, noise, tilt = row.tolist()
    positive = step > 0 and rate >= 0 and curb >= 0 and 0 < noise < 1 and tilt > 0
    if not positive or low != np.rint(low) or not abs(low) <= FARTHEST:
        raise CannotCheck("malformed", f"the law of {prefix!r} has a lattice that is none")
    return Choice(step, int(low), rate, curb, noise, tilt)
