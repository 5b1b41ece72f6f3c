"""Scores of answers.

    10 (1 - width)      for the interval
    + 10                if it settles whether P_safe >= τ, either way
    + 5                 if our checker accepts its certificate
    -150 instead        if it leaves out the truth, or what another tool's checked certificate says

There is no tolerance: numbers are compared exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from bnncert.bench.runs import ANSWERED, Answer, checked
from bnncert.bench.suite import Instance
from bnncert.bench.verdicts import Verdict
from bnncert.bench.workers import Worker
from bnncert.errors import InputError

SCORES = "scores.json"
INTERVAL, SETTLED, ACCEPTED, WRONG = 10.0, 10.0, 5.0, -150.0
KEPT = {"lower": 1e6, "points": 1e4}  # parts of 1 that a table keeps: the rest is the machine's


@dataclass(frozen=True)
class Score:
    """The points of an answer, and what they are for.

    wrong: what the answer contradicts; nothing if it contradicts nothing known.
    """

    tool: str
    instance: str
    track: str
    status: str
    points: float
    lower: float
    upper: float
    seconds: float
    settled: bool
    accepted: bool
    certified: bool
    wrong: str = ""
    reason: str = ""


def score(instances: Sequence[Instance], answers: Sequence[Answer]) -> list[Score]:
    """The score of every answer, in the order of the instances."""
    by_instance: dict[str, list[Answer]] = {}
    for answer in answers:
        by_instance.setdefault(answer.instance, []).append(answer)
    return [
        _scored(instance, answer, by_instance[instance.name])
        for instance in instances
        for answer in by_instance.get(instance.name, [])
    ]


def _scored(instance: Instance, answer: Answer, all_of_them: Iterable[Answer]) -> Score:
    said = answer.status == ANSWERED
    wrong = contradiction(instance, answer, all_of_them) if said else ""
    settled = said and settles(answer, instance.threshold)
    accepted = said and is_accepted(answer)
    width = answer.upper - answer.lower if said else 1.0
    points = INTERVAL * (1 - width) + SETTLED * settled + ACCEPTED * accepted
    return Score(
        tool=answer.tool,
        instance=instance.name,
        track=instance.track,
        status=answer.status,
        points=WRONG if wrong else points,
        lower=answer.lower,
        upper=answer.upper,
        seconds=answer.seconds,
        settled=settled and not wrong,
        accepted=accepted,
        certified=answer.certified,
        wrong=wrong,
        reason=_reason(answer),
    )


def settles(answer: Answer, threshold: Fraction) -> bool:
    """Whether the interval says that P_safe >= τ, or that it is not."""
    return Fraction(answer.lower) >= threshold or Fraction(answer.upper) < threshold


def is_accepted(answer: Answer) -> bool:
    """Whether the checker accepts a certificate that says as much as the answer, and anything."""
    verdict = answer.verdict
    if verdict is None or not verdict.accepted or answer.upper - answer.lower == 1:
        return False
    return verdict.lower >= answer.lower and verdict.upper <= answer.upper


def contradiction(instance: Instance, answer: Answer, others: Iterable[Answer]) -> str:
    """What the answer leaves out: the truth, or what a checked certificate of another tool says."""
    lower, upper = Fraction(answer.lower), Fraction(answer.upper)
    truth = instance.truth
    if truth is not None and lower > truth.lower_at_most:
        return f"lower bound {answer.lower!r}, but the truth is {float(truth.lower_at_most)!r}"
    if truth is not None and upper < truth.upper_at_least:
        return f"upper bound {answer.upper!r}, but the truth is {float(truth.upper_at_least)!r}"
    for other in others:
        verdict = other.verdict
        if other.tool == answer.tool or verdict is None or not verdict.accepted:
            continue
        if _disjoint(answer, verdict):
            return (
                f"[{answer.lower!r}, {answer.upper!r}], but a checked certificate of {other.tool} "
                f"says [{verdict.lower!r}, {verdict.upper!r}]"
            )
    return ""


def confirmed(
    folder: Path, instances: Sequence[Instance], answers: Sequence[Answer]
) -> list[Answer]:
    """The answers, with certificates that put another tool in the wrong checked once more.

    A line that says "accepted" costs others 150 points; only the file itself may do so.
    """
    asked = {instance.name: instance for instance in instances}
    worker, found = Worker(threads=1), []
    try:
        for answer in answers:
            verdict, instance = answer.verdict, asked[answer.instance]
            if verdict is not None and verdict.accepted and _accuses(answer, verdict, answers):
                path = folder / str(answer.certificate)
                verdict = checked(path, instance.path, instance.digest, worker)
            found.append(replace(answer, verdict=verdict))
    finally:
        worker.close()
    return found


def _accuses(answer: Answer, verdict: Verdict, others: Iterable[Answer]) -> bool:
    return any(
        other.instance == answer.instance
        and other.tool != answer.tool
        and _disjoint(other, verdict)
        for other in others
    )


def _disjoint(answer: Answer, verdict: Verdict) -> bool:
    """Floats are compared exactly."""
    return answer.lower > verdict.upper or answer.upper < verdict.lower


def ranked(scores: Sequence[Score]) -> list[tuple[str, list[Score]]]:
    """Each tool with its scores, in the order of their sums."""
    own: dict[str, list[Score]] = {}
    for one in scores:
        own.setdefault(one.tool, []).append(one)
    return sorted(own.items(), key=lambda item: -math.fsum(one.points for one in item[1]))


def write_scores(path: Path, scores: Sequence[Score]) -> None:
    """A table of tools and instances, which later runs can be compared with.

    What can only fall is rounded down.
    """
    table: dict[str, dict[str, Any]] = {}
    for one in scores:
        fields = asdict(one)
        del fields["tool"], fields["instance"]
        kept = {name: math.floor(fields[name] * parts) / parts for name, parts in KEPT.items()}
        table.setdefault(one.tool, {})[one.instance] = fields | kept
    path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def losses(scores: Sequence[Score], stored: Path) -> list[str]:
    """Where a lower bound or a score is below that of a stored table, each in one line."""
    known = _table(stored)
    now = {(one.tool, one.instance): one for one in scores}
    found = []
    for tool, rows in known.items():
        for instance, before in rows.items():
            one = now.get((tool, instance))
            what = f"{tool} on {instance}"
            if one is None:
                found.append(f"{what}: no answer, where there was one")
                continue
            why = "; ".join(filter(None, (one.wrong, one.reason)))
            for name, value in (("lower", one.lower), ("points", one.points)):
                if value < before[name]:
                    because = f" ({why})" if why else ""
                    found.append(f"{what}: {name} {value:.9g}, was {before[name]:.9g}{because}")
    return found


def _table(path: Path) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    try:
        found: dict[str, dict[str, dict[str, float]]] = json.loads(path.read_text(encoding="utf-8"))
        for rows in found.values():
            for row in rows.values():
                float(row["lower"]), float(row["points"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{str(path)!r} is no table of scores ({error}); bnncert bench score writes them"
        ) from error
    return found


def _reason(answer: Answer) -> str:
    """Why there is no answer, or why its certificate does not count."""
    if answer.status != ANSWERED:
        return answer.reason
    if answer.verdict is None:
        return ""
    if not answer.verdict.accepted:
        return answer.verdict.reason
    return "" if is_accepted(answer) else "the certificate says less than the answer, or nothing"
