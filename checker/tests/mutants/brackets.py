"""Lines of radii whose ends say too much."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from mutants.outcomes import Checker, never

LINE = {"index": 0, "label": 0, "at_least": "0.75", "certified": 0.25, "falsified": 0.5}
# What is asked at the first end, and what else at the second.
OTHERS: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
    ({}, {"x": [0.5, 0.25]}),
    ({}, {"norm": "l2"}),
    ({}, {"clip": (0.0, 2.0)}),
    ({}, {"rows": [[-1.0, 1.0]]}),
    ({"rows": [[2.0, -1.0]]}, {"rows": [[3.0, -1.0]]}),
    ({"offsets": [1.0]}, {"offsets": [2.0]}),
)


def question(checker: Checker, eps: float, **said: Any) -> Any:
    """That class 0 comes before class 1 on a ball."""
    own = {"norm": "linf", "x": [0.5, 0.5], "clip": (0.0, 1.0)}
    own |= {"rows": [[1.0, -1.0]], "offsets": [0.0]} | said
    x, rows, offsets = (np.array(own[name]) for name in ("x", "rows", "offsets"))
    region = checker.region.Region(own["norm"], x, eps, x - eps, x + eps, own["clip"])
    return checker.question.Question(region, rows, offsets)


def radii(checker: Checker) -> None:
    check = import_module("bnncert_check.radii").check_radii

    def holds(lines: list[Any], accepted: Any) -> bool:
        found = check(Path(), lines, accepted)
        return all(verdict.status == checker.ACCEPT for verdict in found)

    first, second = question(checker, 0.25), question(checker, 0.5)
    proved = {(0, 0.25): ((0.75, 1.0), first, 0), (0, 0.5): ((0.0, 0.5), second, 0)}
    never(holds([LINE, LINE], proved), "radii of an input twice")
    for change in (
        {"at_least": "0.76"},  # which neither end settles
        {"at_least": "0.5", "certified": None},  # what is exactly the threshold is not below it
        {"certified": 0.5, "falsified": None},
        {"certified": None, "falsified": 0.25},
        {"label": 1},
        {"label": None},
        {"at_least": "2"},
        {"certified": None, "falsified": 0.5, "index": 1},
    ):
        never(holds([LINE | change], proved | {(1, 0.25): proved[0, 0.25]}), f"radii with {change}")
    undecided = {(0, 0.25): ((0.5, 1.0), first, 0), (0, 0.5): ((0.5, 1.0), second, 0)}
    never(holds([LINE | {"falsified": None}], undecided), "a lower end below the threshold")
    never(holds([LINE | {"certified": None}], undecided), "an upper end above the threshold")
    for one, other in OTHERS:
        asked = question(checker, 0.25, **one), question(checker, 0.5, **other)
        mixed = {(0, 0.25): ((0.75, 1.0), asked[0], 0), (0, 0.5): ((0.0, 0.5), asked[1], 0)}
        never(holds([LINE], mixed), f"two questions: {other}")
    box = {(0, 0.25): ((0.75, 1.0), question(checker, 0.25, norm="box"), 0)}
    never(holds([LINE | {"falsified": None}], box), "the radius of a box")
    never(not holds([LINE], proved), "not the radii themselves")
