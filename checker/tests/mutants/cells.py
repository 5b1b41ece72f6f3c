"""A map of two cells, and maps like it that say what is not so.

Of inputs a, b the network gives y0 = 4a - 2.5 + N(0, 1/4) and y1 = 0. Where 0 <= a <= 1 class 1 is
predicted, and at a = 1 it is wrong nearly always; where 1 <= a <= 2 class 0 comes first with a
probability of 0.9986.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from mutants.certificates import Case, Problem, averaged, fields, smooth
from mutants.outcomes import Checker, never

Said: TypeAlias = dict[str, Any]

FIRST, OTHER = ((1.0, -1.0),), ((-1.0, 1.0),)  # class 0, class 1
NET = Problem(
    ((2, 2),),
    fields([4, 0, 0, 0, -2.5, 0], [0, 0, 0, 0, 0.5, 0]),
    (1.5, 0.5),
    0.5,
    FIRST,
    norm="box",
)
LEFT = replace(NET, x=(0.5, 0.5), rows=OTHER)
HOLDS, FAILS = (0.99, 1), (0, 0.01)


def at(a: float, rows: Any, offset: float = 0.0) -> Problem:
    return replace(NET, x=(a, 0.5), eps=0.0, rows=rows, offsets=(offset,))


def failing(problem: Problem, a: float, upper: float = 0.01) -> Case:
    return Case("", problem, smooth(point=[a, 0.5]), (0, 1), [], (0, upper))


def holding(problem: Problem, lower: float = 0.99) -> Case:
    return Case("", problem, smooth(), (0, 1), [], (lower, 1))


CASES = {
    "right": holding(NET),
    "right, 3 more": holding(replace(NET, offsets=(3.0,)), 0.999),
    "right, class 1": failing(replace(NET, rows=OTHER), 1.5),
    "left": failing(LEFT, 1.0),
    "left, 1 less": failing(replace(LEFT, offsets=(-1.0,)), 1.0),
    "left, a ball": failing(replace(LEFT, x=(0.75, 0.5), eps=0.125, norm="linf"), 0.875, 0.05),
    "class 0 by 3": failing(replace(LEFT, rows=FIRST, offsets=(-3.0,)), 1.0),
    "class 1 at 1": failing(at(1.0, OTHER), 1.0),
    "class 0 by 3 at 1": failing(at(1.0, FIRST, -3.0), 1.0),
    "class 0 by 3 at 0": failing(at(0.0, FIRST, -3.0), 0.0),
    "class 0 at 0": failing(at(0.0, FIRST), 0.0),
    "class 1 holds at 0": holding(at(0.0, OTHER)),
    "a softmax": Case("", NET, averaged(), (0, 1), [], (0.5, 1, 0)),
}
PREDICTED = [["predicted"]]
MORE = {"row": [(1.0).hex(), (-1.0).hex()], "offset": (3.0).hex()}
LESS = MORE | {"offset": (-3.0).hex()}
UNKNOWN: Said = {"status": "undecided", "lower": 0, "upper": 1, "below": [], "above": None}


def by(*names: str, clause: int = 0) -> Said:
    return {"clause": clause, "certificates": list(names)}


def side(name: str, high: int) -> Said:
    ends = {"low": "0", "high": f"{high}", "lower": (0.0).hex(), "upper": float(high).hex()}
    return {"name": name, "unit": "", "center": "0", "scale": "1"} | ends


SIDES = side("a", 2), side("b", 1)
ABOUT: Said = {
    "schema": "bnncert-map/1",
    "digests": {name: NET.digests[name] for name in ("architecture", "posterior")},
    "at_least": "0.95",
    "condition": {"text": "", "clauses": [PREDICTED]},
    "region": SIDES,
    "cuts": [[0, 0, (1.0).hex(), 1, 2]],
    "shares": {"certified": [0.5, 0.5], "falsified": [0.5, 0.5], "undecided": [0, 0]},
}
BROKEN: Said = {"cell": 1, "low": [0, 0], "high": [1, 1], "status": "falsified", "class": 1}
BROKEN |= {"lower": 0, "upper": 0.01, "below": [], "above": by("left"), "point": None}
SAFE: Said = {"cell": 2, "low": [1, 0], "high": [2, 1], "status": "certified", "class": 0}
SAFE |= {"lower": 0.99, "upper": 1, "below": ["right"], "above": None, "point": None}


def clauses(*each: Any) -> Said:
    return {"condition": {"text": "", "clauses": list(each)}}


def shares(certified: float, falsified: float) -> Said:
    found = {"certified": certified, "falsified": falsified, "undecided": 0.0}
    return {"shares": {name: [share, share] for name, share in found.items()}}


EITHER = clauses([["predicted"], [LESS]])
BOTH = clauses(PREDICTED, [[MORE]])
THIN = SAFE | UNKNOWN | {"cell": 4, "low": [1, 1]}
EDGE = {"cuts": [*ABOUT["cuts"], [2, 1, (1.0).hex(), 3, 4]]}
NOWHERE = {"cuts": [*ABOUT["cuts"], [9, 0, (1.0).hex(), 10, 11]]}
ELSEWHERE = {"low": [1, 0], "high": [2, 1], "below": ["right"]}
PROVED = {"status": "certified", "lower": 0.99, "upper": 1, "above": None}
REFUTED = {"status": "falsified", "lower": 0, "upper": 0.01, "below": []}
POINTS = by("class 1 at 1", "class 0 by 3 at 1")
# Changes of map.json, and all lines.
TRUE: tuple[tuple[Said, list[Said]], ...] = (
    ({}, [BROKEN, SAFE]),
    (BOTH, [BROKEN, SAFE | {"lower": 0.985, "below": ["right", "right, 3 more"]}]),
    (EITHER, [BROKEN | {"upper": 0.02, "above": POINTS}, SAFE]),
)
FALSE: dict[str, tuple[Said, list[Said]]] = {
    "another posterior": ({"digests": ABOUT["digests"] | {"posterior": ""}}, [BROKEN, SAFE]),
    "a longer side": ({"region": [SIDES[0] | {"high": "3"}, SIDES[1]]}, [BROKEN, SAFE]),
    "a side from lower on": ({"region": [SIDES[0] | {"low": "-1"}, SIDES[1]]}, [BROKEN, SAFE]),
    "a shorter side": ({"region": [SIDES[0] | {"high": "1"}, SIDES[1]]}, [BROKEN, SAFE]),
    "two sides of one name": ({"region": [SIDES[0], side("a", 1)]}, [BROKEN, SAFE]),
    "a box cut twice": ({"cuts": 2 * ABOUT["cuts"]}, [BROKEN, SAFE]),
    "one number for two parts": ({"cuts": [[0, 0, (1.0).hex(), 1, 1]]} | shares(0, 0.5), [BROKEN]),
    "a cut at an end": (EDGE, [BROKEN, SAFE | {"cell": 3}, THIN]),
    "a cut of no part": (NOWHERE, [BROKEN, SAFE]),
    "no line of a cell": (shares(0, 0.5), [BROKEN]),
    "a cell twice": (shares(1, 0.5), [BROKEN, SAFE, SAFE]),
    "another cell's box": (shares(1, 0), [BROKEN | PROVED | ELSEWHERE | {"class": 0}, SAFE]),
    "shares": (shares(0.75, 0.25), [BROKEN, SAFE]),
    "a class": (
        shares(0, 1),
        [BROKEN, SAFE | REFUTED | {"class": 1, "above": by("right, class 1")}],
    ),
    "a status": ({}, [BROKEN, SAFE | {"lower": 0.5}]),
    "a status of the upper bound": ({"at_least": "0.995"}, [BROKEN, SAFE]),
    "a status of the threshold": ({"at_least": "0.25"}, [BROKEN | {"upper": 0.25}, SAFE]),
    "a lower bound": ({}, [BROKEN, SAFE | {"lower": 0.995}]),
    "an upper bound": ({}, [BROKEN | {"upper": 0.005}, SAFE]),
    "a certificate of a part": (
        shares(1, 0),
        [BROKEN | PROVED | {"below": ["class 1 holds at 0"]}, SAFE],
    ),
    "a point outside": (shares(0, 1), [BROKEN, SAFE | REFUTED | {"above": by("class 0 at 0")}]),
    "other rows below": ({}, [BROKEN, SAFE | {"below": ["right, 3 more"]}]),
    "opposite rows above": (
        shares(0, 1),
        [BROKEN, SAFE | REFUTED | {"above": by("right, class 1")}],
    ),
    "other rows above": ({}, [BROKEN | {"above": by("left, 1 less")}, SAFE]),
    "a ball": ({}, [BROKEN | {"above": by("left, a ball"), "upper": 0.05}, SAFE]),
    "a softmax": (
        {"at_least": "0.5"},
        [BROKEN, SAFE | {"lower": 0.5, "below": ["a softmax"]}],
    ),
    "the best of two clauses": (
        BOTH,
        [BROKEN, SAFE | {"lower": 0.99, "below": ["right", "right, 3 more"]}],
    ),
    "a clause without a certificate": (BOTH, [BROKEN, SAFE | {"below": ["right", None]}]),
    "the best of two alternatives": (EITHER, [BROKEN | {"above": POINTS}, SAFE]),
    "alternatives at two points": (
        EITHER,
        [BROKEN | {"upper": 0.02, "above": by("class 1 at 1", "class 0 by 3 at 0")}, SAFE],
    ),
    "alternatives at no point": (
        EITHER,
        [BROKEN | {"upper": 0.02, "above": by("left", "class 0 by 3")}, SAFE],
    ),
}


@cache
def folder() -> TemporaryDirectory[str]:
    """The certificates, under their names."""
    made = TemporaryDirectory()
    for number, (name, case) in enumerate(CASES.items()):
        case.write(Path(made.name), number)
        (Path(made.name) / f"{number}.true").rename(Path(made.name) / name)
    return made


def maps(checker: Checker) -> None:
    place = Path(folder().name)
    model = checker.read_model(place / "0.posterior")
    check = import_module("bnncert_check.maps").check_map

    def holds(about: Said, lines: list[Said]) -> bool:
        (place / "map.json").write_text(json.dumps(ABOUT | about))
        (place / "cells.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return all(verdict.status == checker.ACCEPT for verdict in check(place, model))

    for name, said in FALSE.items():
        never(holds(*said), name)
    for i, said in enumerate(TRUE):
        never(not holds(*said), f"not true map {i}")
