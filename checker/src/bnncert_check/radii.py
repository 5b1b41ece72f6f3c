"""radii.jsonl of a result folder: for each input up to which radius P_safe is at least a threshold,
and from which on it is not.

P_safe falls as the radius grows, so that one certificate at each end says it. Both must be accepted
lines of the folder's results, settle the threshold, and be about the same input and condition.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bnncert_check.files import read_lines
from bnncert_check.folder import RADII, Accepted
from bnncert_check.grammar import members, number, threshold, whole
from bnncert_check.question import Question
from bnncert_check.verdict import ACCEPT, P_SAFE, Reason, Rejected, Verdict

ABOUT = ("index", "label", "at_least", "certified", "falsified")
Proof: TypeAlias = tuple[Question, int | None]


def read_radii(folder: Path) -> list[Any]:
    """The lines as they stand in the file; none where there is no such file."""
    path = folder / RADII
    return read_lines(path) if path.exists() else []


def check_radii(folder: Path, lines: list[Any], accepted: Accepted) -> list[Verdict]:
    """One verdict a line."""
    seen: set[int] = set()
    return [_check_line(folder / RADII, i, line, accepted, seen) for i, line in enumerate(lines, 1)]


def _check_line(path: Path, i: int, value: Any, accepted: Accepted, seen: set[int]) -> Verdict:
    where, about = f"{path}:{i}", f"line {i}"
    try:
        found = members(value, about, ABOUT)
        index = whole(found["index"], f"index of {about}", 0)
        at_least = threshold(found["at_least"], f"at_least of {about}")
        if index in seen:
            raise Rejected("result-repeated", f"another line has the radii of input {index}")
        seen.add(index)
        proofs, said = [], []
        for name, words in (("certified", "up to"), ("falsified", "not from")):
            if found[name] is None:
                continue
            eps = number(found[name], f"{name} of {about}", 0.0)
            proofs.append(_proved(name, (index, eps), at_least, accepted))
            said.append(f"{words} {eps!r}")
        _require_one_question(index, found["label"], proofs)
    except Reason as reason:
        return Verdict(where, reason.status, reason.code, reason.message)
    limits = ", ".join(said) or "of no radius is anything known"
    words = f"input {index}: {P_SAFE} >= {found['at_least']} {limits}"
    if proofs:
        question, _ = proofs[0]
        region = question.region
        words += f": {question.condition}, {region.norm} ball{region.clipped}"
    return Verdict(where, ACCEPT, message=words)


def _proved(name: str, at: tuple[int, float], at_least: Fraction, accepted: Accepted) -> Proof:
    """The question of the certificate that settles the threshold there, and its line's class."""
    where = f"input {at[0]} at radius {at[1]!r}"
    if at not in accepted:
        raise Rejected("radius-not-proved", f"no accepted result is about {where}")
    (lower, upper), question, label = accepted[at]
    holds, fails = Fraction(lower) >= at_least, Fraction(upper) < at_least
    if not (holds if name == "certified" else fails):
        raise Rejected(
            "radius-not-proved", f"{where} is not {name}: {lower!r} <= {P_SAFE} <= {upper!r}"
        )
    return question, label


def _require_one_question(index: int, label: Any, proofs: list[Proof]) -> None:
    """But for the radius; the label is that of their lines."""
    for question, own in proofs:
        first, _ = proofs[0]
        if question.region.norm == "box":
            raise Rejected("radius-not-proved", f"input {index} has a box, which has no radius")
        same = (
            np.array_equal(question.region.x, first.region.x)
            and (question.region.norm, question.region.clip)
            == (first.region.norm, first.region.clip)
            and np.array_equal(question.rows, first.rows)
            and np.array_equal(question.offsets, first.offsets)
        )
        if not same:
            raise Rejected(
                "radius-not-proved", f"the certificates of input {index} ask different questions"
            )
        if label != own:
            raise Rejected(
                "radius-not-proved",
                f"input {index}: the line says class {label!r}, its result {own!r}",
            )
