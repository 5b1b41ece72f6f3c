"""Maps: a region's cells, which must cover it, and what is claimed of each.

map.json says the region, the condition, the threshold and how the region was cut; cells.jsonl has a
line for every part that was cut no further. Starting from the whole region every cut replaces a box
by the two parts on either side of it, which both contain the cut: so nothing is left out, and cells
share no more than their faces. Every cell's certificates must be about that cell, this posterior
and this condition.

Of the clauses of a condition all must hold, of the alternatives of a clause one (`conditions`):

    P(all clauses on the cell)  >=  1 - Σ_k (1 - P(some alternative of clause k on the cell)),
    P(all clauses on the cell)  <=  Σ_j P(alternative j of clause k at one point of the cell).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from bnncert_check.certificate import examine
from bnncert_check.conditions import (
    Clause,
    in_words,
    names_predicted,
    read_clauses,
    require_predicted,
    rows_of,
)
from bnncert_check.files import read_lines, reading, regular, require_room, strict_json
from bnncert_check.folder import (
    CERTIFIED,
    DECISIONS,
    FALSIFIED,
    RADII,
    RESULTS,
    UNDECIDED,
    identity_of,
    inside,
)
from bnncert_check.grammar import (
    exact,
    index,
    listed,
    members,
    number,
    threshold,
    whole,
    word,
    written,
)
from bnncert_check.manifest import read_manifest
from bnncert_check.model import Column, Model
from bnncert_check.question import Question, said
from bnncert_check.verdict import ACCEPT, P_SAFE, CannotCheck, Reason, Rejected, Verdict

MAP, CELLS = "map.json", "cells.jsonl"
SCHEMA = "bnncert-map/1"
STATUSES = (CERTIFIED, FALSIFIED, UNDECIDED)
OF_MAP = ("schema", "digests", "at_least", "condition", "region", "cuts", "shares")
OF_SIDE = ("name", "unit", "low", "high", "center", "scale", "lower", "upper")
OF_CELL = ("cell", "low", "high", "status", "class", "lower", "upper", "below", "above", "point")
FRACTION = re.compile(r"-?[0-9]{1,2000}(/[0-9]{1,2000})?")

Box: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper ends
Examined: TypeAlias = Callable[[str], tuple[Verdict, Question | None]]


@dataclass(frozen=True)
class Side:
    """A dimension: its name and unit, its ends there, and what the network reads at them."""

    name: str
    unit: str
    low: Fraction
    high: Fraction
    lower: float
    upper: float
    column: Column

    @property
    def named(self) -> tuple[str, Column]:
        return (f"{self.name} ({self.unit})" if self.unit else self.name), self.column


@dataclass(frozen=True)
class Map:
    """What map.json says. Cuts: of a box by its number the dimension, the place, and the numbers of
    the parts below and above."""

    at_least: Fraction
    text: str
    clauses: tuple[Clause, ...]
    sides: tuple[Side, ...]
    cuts: dict[int, tuple[int, float, int, int]]
    shares: dict[str, tuple[float, float]]
    outputs: int

    @property
    def condition(self) -> str:
        """What the clauses say; the text is for people, and nothing rests on it."""
        said = in_words(self.clauses, self.outputs)
        return said if said == self.text else f"{said} (called {self.text!r})"

    @property
    def box(self) -> Box:
        return tuple(side.lower for side in self.sides), tuple(side.upper for side in self.sides)


@dataclass(frozen=True)
class Line:
    """What a line of cells.jsonl says."""

    cell: int
    box: Box
    status: str
    label: int | None
    lower: float
    upper: float
    below: tuple[str | None, ...]
    above: tuple[int, tuple[str, ...]] | None


def is_map(folder: Path) -> bool:
    return (folder / MAP).is_file()


def count_lines(folder: Path) -> int:
    """Of verdicts to come: one for each cell, and one for the whole."""
    return len(read_lines(folder / CELLS)) + 1


def check_map(folder: Path, model: Model) -> Iterator[Verdict]:
    """A verdict for every cell, then one for the map as a whole."""
    path = folder / MAP
    try:
        _require_alone(folder)
        with reading(f"{str(path)!r} is no map"):
            found = _read_map(strict_json(regular(path).read_text()), model)
        if (manifest := read_manifest(folder)) is not None:
            sides = tuple(side.named for side in found.sides)
            manifest.require_map(model, found.at_least, found.text, found.box, sides)
        lines = read_lines(folder / CELLS)
        # Each cut makes two ends.
        held, size = 16 * len(found.sides) * len(found.cuts), path.stat().st_size + model.size
        require_room(held, size, f"{len(found.cuts)} cuts")
        boxes = _boxes(found)
    except Reason as reason:
        yield Verdict(str(path), reason.status, reason.code, reason.message)
        return
    volumes = dict.fromkeys(STATUSES, Fraction(0))
    seen: set[int] = set()
    examined = _examined(folder, model)
    for i, value in enumerate(lines, 1):
        where = f"{folder / CELLS}:{i}", f"line {i}"
        yield _check_line(where, value, found, boxes, model, examined, (seen, volumes))
    yield _check_whole(path, found, boxes, seen, volumes)


def _require_alone(folder: Path) -> None:
    """What stands beside a map would not be checked."""
    for name in (RESULTS, DECISIONS, RADII):
        if (folder / name).exists():
            raise CannotCheck("malformed", f"{str(folder)!r} holds both {MAP} and {name}")


def _read_map(value: Any, model: Model) -> Map:
    said = members(value, "the map", OF_MAP)
    if said["schema"] != SCHEMA:
        raise CannotCheck("unsupported", f"the map is not of schema {SCHEMA}")
    digests = members(said["digests"], "the digests", ("architecture", "posterior"))
    known = {"architecture": model.architecture_digest, "posterior": model.posterior_digest}
    for name, own in known.items():
        if digests[name] != own:
            raise Rejected("digest-mismatch", f"the map is about another {name}")
    condition = members(said["condition"], "the condition", ("text", "clauses"))
    sides = tuple(_side(side) for side in listed(said["region"], "the region"))
    if len(sides) != math.prod(model.input_shape):
        raise CannotCheck("malformed", "the region has not one side for each input")
    if len({side.name for side in sides}) < len(sides):
        raise CannotCheck("malformed", "two sides of the region have one name")
    shares = members(said["shares"], "the shares", STATUSES)
    return Map(
        threshold(said["at_least"], "the threshold"),
        word(condition["text"], "the condition's text"),
        read_clauses(condition["clauses"], model.outputs),
        sides,
        _cuts(said["cuts"], len(sides)),
        {name: _share(shares[name]) for name in STATUSES},
        model.outputs,
    )


def _side(value: Any) -> Side:
    """What was written must lie within what the network reads, which are the nearest floats: of a
    wider box the shares would be those of other places."""
    said = members(value, "a side of the region", OF_SIDE)
    name = word(said["name"], "the name of a side")
    low, high, center, scale = (
        _fraction(said[key], f"{key} of {name!r}") for key in ("low", "high", "center", "scale")
    )
    lower, upper = (exact(said[key], f"{key} of {name!r}") for key in ("lower", "upper"))
    if not (scale > 0 and low <= high):
        raise CannotCheck("malformed", f"side {name!r} is empty, or its scale is not above 0")
    first, last = (low - center) / scale, (high - center) / scale
    if not (lower <= first and last <= upper):
        raise Rejected("cells-do-not-cover", f"side {name!r} is longer than what was mapped of it")
    if not (math.nextafter(lower, math.inf) > first and math.nextafter(upper, -math.inf) < last):
        raise Rejected("cells-do-not-cover", f"side {name!r} is shorter than what was mapped")
    unit, column = word(said["unit"], f"the unit of {name!r}"), Column(float(center), float(scale))
    return Side(name, unit, low, high, lower, upper, column)


def _fraction(value: Any, where: str) -> Fraction:
    with reading(f"{where} is no fraction", "malformed"):
        if not FRACTION.fullmatch(word(value, where)):
            raise ValueError("write it as p or p/q")
        return Fraction(value)


def _cuts(value: Any, dimensions: int) -> dict[int, tuple[int, float, int, int]]:
    found: dict[int, tuple[int, float, int, int]] = {}
    for entry in listed(value, "the cuts"):
        cut = listed(entry, "a cut", 5)
        box, below, above = (whole(cut[i], "the number of a box", 0) for i in (0, 3, 4))
        if box in found:
            raise CannotCheck("malformed", f"box {box} is cut twice")
        at = exact(cut[2], "the place of a cut")
        found[box] = index(cut[1], "the dimension of a cut", dimensions), at, below, above
    return found


def _share(value: Any) -> tuple[float, float]:
    low, high = (number(end, "a share", 0.0, 1.0) for end in listed(value, "a share", 2))
    return low, high


def _boxes(found: Map) -> dict[int, Box]:
    """The parts that are cut no further, by number; together they cover the region."""
    boxes: dict[int, Box] = {}
    left = [(0, found.box)]
    reached: set[int] = set()
    while left:
        box, (lower, upper) = left.pop()
        if box in reached:
            raise Rejected("cells-do-not-cover", f"box {box} comes out of two cuts")
        reached.add(box)
        if box not in found.cuts:
            boxes[box] = lower, upper
            continue
        dimension, at, below, above = found.cuts[box]
        if not lower[dimension] < at < upper[dimension]:  # at an end a part would be the box again
            raise Rejected("cells-do-not-cover", f"box {box} is not cut in its inside")
        left.append((below, (lower, _with(upper, dimension, at))))
        left.append((above, (_with(lower, dimension, at), upper)))
    if not found.cuts.keys() <= reached:
        raise Rejected("cells-do-not-cover", "a box is cut that is no part of the region")
    return boxes


def _with(ends: tuple[float, ...], dimension: int, at: float) -> tuple[float, ...]:
    return (*ends[:dimension], at, *ends[dimension + 1 :])


def _check_line(
    where: tuple[str, str],
    value: Any,
    found: Map,
    boxes: dict[int, Box],
    model: Model,
    examined: Examined,
    so_far: tuple[set[int], dict[str, Fraction]],
) -> Verdict:
    seen, volumes = so_far
    verdict = Verdict(where[0], ACCEPT)
    try:
        line = _line(value, where[1], found)
        if line.cell in seen:
            raise Rejected("result-repeated", f"another line is about cell {line.cell}")
        if boxes.get(line.cell) != line.box:
            raise Rejected("cells-do-not-cover", f"cell {line.cell} is not the part it was cut to")
        _require_class(line, found, model)
        _require_status(line, found.at_least)
        _require_lower(line, found, examined)
        _require_upper(line, found, examined)
        seen.add(line.cell)
        volumes[line.status] += _volume(line.box, found.box)
        label = "" if line.label is None else f", class {line.label}"
        question = f"the condition of {MAP}{label} on cell {line.cell}: {_place(line.box, found)}"
        return replace(verdict, claimed=(line.lower, line.upper), question=question)
    except Reason as reason:
        return replace(verdict, status=reason.status, code=reason.code, message=reason.message)


def _line(value: Any, where: str, found: Map) -> Line:
    said = members(value, where, OF_CELL)
    ends = [
        tuple(
            number(end, f"an end in {where}")
            for end in listed(said[name], f"{name} of {where}", len(found.sides))
        )
        for name in ("low", "high")
    ]
    lower, upper = (
        number(said[name], f"{name} of {where}", 0.0, 1.0) for name in ("lower", "upper")
    )
    if not lower <= upper:
        raise Rejected("claim-not-a-probability", f"{where} claims {lower} to {upper}")
    label = said["class"]
    if label is not None:
        index(label, f"class of {where}", found.outputs)
    if said["point"] is not None:  # a hint for people; nothing rests on it
        entries = listed(said["point"], f"point of {where}", len(found.sides))
        point = tuple(number(each, f"point of {where}") for each in entries)
        if not _within((point, point), (ends[0], ends[1])):
            raise CannotCheck("malformed", f"point of {where} lies outside its cell")
    return Line(
        whole(said["cell"], f"cell of {where}", 0),
        (ends[0], ends[1]),
        word(said["status"], f"status of {where}", STATUSES),
        label,
        lower,
        upper,
        tuple(
            None if path is None else word(path, f"a certificate of {where}")
            for path in listed(said["below"], f"below of {where}")
        ),
        _above(said["above"], where, found),
    )


def _above(value: Any, where: str, found: Map) -> tuple[int, tuple[str, ...]] | None:
    if value is None:
        return None
    said = members(value, f"above of {where}", ("clause", "certificates"))
    clause = index(said["clause"], f"clause of {where}", len(found.clauses))
    count = len(found.clauses[clause])
    paths = listed(said["certificates"], f"certificates of {where}", count)
    return clause, tuple(word(path, f"a certificate of {where}") for path in paths)


def _require_class(line: Line, found: Map, model: Model) -> None:
    if line.label is None:
        return
    if not names_predicted(found.clauses):
        raise CannotCheck("malformed", "the line names a class, and the condition is about none")
    require_predicted(line.label, line.box, model)


def _require_status(line: Line, at_least: Fraction) -> None:
    holds, fails = Fraction(line.lower) >= at_least, Fraction(line.upper) < at_least
    status = CERTIFIED if holds else FALSIFIED if fails else UNDECIDED
    if line.status != status:
        raise Rejected("result-mismatch", f"status: the line says {line.status!r}, not {status!r}")


def _require_lower(line: Line, found: Map, examined: Examined) -> None:
    """1 - Σ_k (1 - l_k), of each clause one alternative, proved on the cell; 0 without any."""
    supported = Fraction(0)
    if line.below:
        if len(line.below) != len(found.clauses):
            raise CannotCheck("malformed", "there is not one certificate for each clause")
        failure = Fraction(0)
        for path, clause in zip(line.below, found.clauses, strict=True):
            lower = 0.0
            if path is not None:
                (lower, _), question = _accepted(path, examined)
                _require_rows(question, clause, line.label, path)
                if _ends(question) != line.box:
                    raise Rejected("cell-mismatch", f"{path} is about another box")
            failure += 1 - Fraction(lower)
        supported = max(Fraction(0), 1 - failure)
    if not Fraction(line.lower) <= supported:
        message = f"claimed {P_SAFE} >= {line.lower!r}, supported is {float(supported)!r}"
        raise Rejected("probability-too-high", message)


def _require_upper(line: Line, found: Map, examined: Examined) -> None:
    """Σ_j u_j over the alternatives of one clause: of the only one on a part of the cell, of
    several at one point of it; 1 without any."""
    supported = Fraction(1)
    if line.above is not None:
        k, paths = line.above
        supported, points = Fraction(0), set()
        for path, alternative in zip(paths, found.clauses[k], strict=True):
            (_, upper), question = _accepted(path, examined)
            _require_rows(question, (alternative,), line.label, path)
            if not _within(_ends(question), line.box):
                raise Rejected("cell-mismatch", f"{path} is about another box")
            points.add(_ends(question))
            supported += Fraction(upper)
        ((lower, upper_end),) = points if len(points) == 1 else ((None, None),)
        if len(paths) > 1 and (lower is None or lower != upper_end):
            raise Rejected("cell-mismatch", "alternatives are bounded at different points")
    if not Fraction(line.upper) >= min(supported, Fraction(1)):
        message = f"claimed {P_SAFE} <= {line.upper!r}, supported is {float(supported)!r}"
        raise Rejected("upper-too-low", message)


def _examined(folder: Path, model: Model) -> Examined:
    """Each certificate is examined once, however often and by whatever names lines name it."""
    known: dict[Any, tuple[Verdict, Question | None]] = {}

    def examined(path: str) -> tuple[Verdict, Question | None]:
        place = inside(folder, path)
        which = identity_of(place)
        if which not in known:
            known[which] = examine(place, model)
        return known[which]

    return examined


def _accepted(path: str, examined: Examined) -> tuple[tuple[float, float], Question]:
    """The bounds that a certificate claims, if they are supported, and its question."""
    verdict, question = examined(path)
    if verdict.status != ACCEPT or verdict.claimed is None or question is None:
        reason = CannotCheck if verdict.status != "REJECT" else Rejected
        raise reason(verdict.code or "malformed", f"{path}: {verdict.message}")
    if verdict.quantity != P_SAFE or question.region.norm != "box":
        raise Rejected("cell-mismatch", f"{path} does not bound {P_SAFE} on a box")
    return verdict.claimed, question


def _ends(question: Question) -> Box:
    return tuple(question.region.lower.tolist()), tuple(question.region.upper.tolist())


def _within(inner: Box, outer: Box) -> bool:
    return all(low <= l and u <= high for l, u, low, high in zip(*inner, *outer, strict=True))


def _require_rows(question: Question, clause: Clause, label: int | None, path: str) -> None:
    """The certificate's rows say what those of one alternative say."""
    asked = said(question.rows, question.offsets)
    if not any(
        said(*rows_of(alternative, label, question.rows.shape[1])) == asked
        for alternative in clause
    ):
        raise Rejected("cell-mismatch", f"{path} is about another condition")


def _volume(box: Box, whole_box: Box) -> Fraction:
    """Of the region's; sides of length 0 have no say."""
    found = Fraction(1)
    for low, high, first, last in zip(*box, *whole_box, strict=True):
        if first < last:
            found *= (Fraction(high) - Fraction(low)) / (Fraction(last) - Fraction(first))
    return found


def _place(box: Box, found: Map) -> str:
    said = [
        f"{side.name} reads {low!r} to {high!r}"
        for side, low, high in zip(found.sides, *box, strict=True)
        if side.lower < side.upper
    ]
    return ", ".join(said)


def _check_whole(
    path: Path,
    found: Map,
    boxes: dict[int, Box],
    seen: set[int],
    volumes: dict[str, Fraction],
) -> Verdict:
    verdict = Verdict(str(path), ACCEPT)
    missing = len(boxes.keys() - seen)
    if missing:
        message = f"{missing} of {len(boxes)} cells have no accepted line: there are gaps"
        return replace(verdict, status="REJECT", code="cells-do-not-cover", message=message)
    for name, (low, high) in found.shares.items():
        if not Fraction(low) <= volumes[name] <= Fraction(high):
            message = (
                f"the share that is {name} is {float(volumes[name])!r}, not {low!r} to {high!r}"
            )
            return replace(verdict, status="REJECT", code="result-mismatch", message=message)
    region = ", ".join(
        f"{side.name} {written(side.low)} to {written(side.high)} {side.unit}".rstrip()
        for side in found.sides
    )
    shares = ", ".join(f"{_shown(name, volumes[name])} {name}" for name in STATUSES)
    words = (
        f"{len(boxes)} cells cover the region ({region}) and share no more than faces; of its "
        f"volume at {P_SAFE} >= {written(found.at_least)}: {shares}; condition: {found.condition}"
    )
    return replace(verdict, message=words)


def _shown(status: str, share: Fraction) -> str:
    """In six decimals: of what is certified never more, of what is not never less."""
    scaled = share * 10**6
    rounded = math.floor(scaled) if status == CERTIFIED else math.ceil(scaled)
    return f"{rounded / 10**6:.6f}"
