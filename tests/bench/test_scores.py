"""Scores: exactly the rule, by hand-made answers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bnncert import InputError
from bnncert.bench.entrants import Own
from bnncert.bench.known import KNOWN
from bnncert.bench.runs import Answer, read_answers, run
from bnncert.bench.scores import confirmed, losses, score, write_scores
from bnncert.bench.suite import Instance, make, read_suite
from bnncert.bench.verdicts import Verdict

TRUTH = 0.7602499389065233  # of truth-linear, whose threshold is .75; the float below it


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Instance:
    folder = tmp_path_factory.mktemp("bench")
    make(KNOWN[:1], folder)
    return read_suite(folder)[0]


def unknown(instance: Instance) -> Instance:
    """The same where nobody knows the truth."""
    return replace(instance, truth=None)


def answer(
    instance: Instance, lower: float, upper: float, tool: str = "a", **more: object
) -> Answer:
    fields = {"tool": tool, "instance": instance.name, "digest": instance.digest, "seconds": 1.0}
    known = Answer(**fields, status="answered", lower=lower, upper=upper)  # type: ignore[arg-type]
    return replace(known, **more)  # type: ignore[arg-type]


def points(instance: Instance, *answers: Answer) -> list[float]:
    return [one.points for one in score([instance], answers)]


def accepted(lower: float, upper: float) -> Verdict:
    return Verdict(True, lower, upper)


def test_the_width_the_threshold_and_the_certificate_count(instance: Instance) -> None:
    said = [
        (answer(instance, 0.5, 1.0), 5.0),  # half a width, open
        (answer(instance, 0.75, 1.0), 7.5 + 10),  # P_safe is at least τ
        (answer(instance, 0.75, 1.0, verdict=accepted(0.75, 1.0)), 7.5 + 10 + 5),
        (answer(instance, 0.75, 1.0, verdict=accepted(0.7, 1.0)), 7.5 + 10),  # certifies less
        (answer(instance, 0.75, 1.0, verdict=Verdict(False)), 7.5 + 10),
        (answer(instance, 0.0, 1.0, verdict=accepted(0.0, 1.0)), 0.0),  # certifies nothing
        (answer(instance, 0.0, 1.0, status="timeout"), 0.0),
    ]
    for one, expected in said:
        assert points(instance, one) == [expected]


def test_below_the_threshold_is_an_answer_too(instance: Instance) -> None:
    unsure = unknown(instance)
    assert points(unsure, answer(unsure, 0.0, 0.5)) == [5 + 10]
    assert points(unsure, answer(unsure, 0.0, 0.75)) == [2.5]  # it may be τ


def test_there_is_no_tolerance(instance: Instance) -> None:
    """The next float beyond the truth is wrong, whatever else the answer has."""
    best = answer(instance, TRUTH, math.nextafter(TRUTH, 1))
    assert points(instance, best) == [pytest.approx(20)]
    for low, high in ((math.nextafter(TRUTH, 1), 1.0), (0.0, TRUTH)):
        wrong = answer(instance, low, high, verdict=accepted(low, high))
        (found,) = score([instance], [wrong])
        assert found.points == -150
        assert "but the truth is 0.76024993890652" in found.wrong
        assert not found.settled


def test_a_checked_certificate_of_another_tool_is_as_good_as_the_truth(instance: Instance) -> None:
    """One that is not accepted is not, nor one's own."""
    unsure = unknown(instance)
    proved = answer(unsure, 0.25, 0.5, verdict=accepted(0.25, 0.5))
    above, below = answer(unsure, 0.5625, 1.0, tool="b"), answer(unsure, 0.0, 0.125, tool="b")
    assert points(unsure, proved, above)[1] == points(unsure, proved, below)[1] == -150
    assert points(unsure, proved, above)[0] > 0
    claimed = replace(proved, verdict=Verdict(False, 0.25, 0.5))
    assert points(unsure, claimed, above)[1] > 0
    touching = answer(unsure, 0.5, 1.0, tool="b")
    assert points(unsure, proved, touching)[1] > 0
    own = replace(proved, lower=0.5625, upper=1.0)
    assert points(unsure, own)[0] > 0


def test_what_was_not_answered_has_no_points(instance: Instance) -> None:
    """Whatever its line says."""
    late = answer(instance, 0.75, 1.0, status="timeout", verdict=accepted(0.75, 1.0))
    (found,) = score([instance], [late])
    assert (found.points, found.settled, found.accepted, found.wrong) == (0.0, False, False, "")


def test_only_a_certificate_that_is_there_puts_others_in_the_wrong(tmp_path: Path) -> None:
    """A line that says "accepted" is not enough: the file is checked once more."""
    make(KNOWN[:1], tmp_path)
    (known,) = read_suite(tmp_path)
    run(tmp_path, [known], [Own("concentration-1")], workers=1)
    (honest,) = read_answers(tmp_path)
    unsure = unknown(known)
    files = (honest.certificate, "certificates/nowhere.safetensors", "../../etc", None)
    said = accepted(0.0, 0.5)
    forged = [
        replace(answer(unsure, 0.0, 0.5, tool=f"forger-{k}", verdict=said), certificate=file)
        for k, file in enumerate(files)
    ]
    every = [honest, *forged]
    assert score([unsure], every)[0].points == -150  # unconfirmed
    read = confirmed(tmp_path, [unsure], every)
    again = read[1].verdict  # the file is honest, and says something else than the line
    assert again is not None
    assert (again.lower, again.upper) == (honest.lower, honest.upper)
    first, *others = score([unsure], read)
    assert first.points == score([unsure], [honest])[0].points > 0
    assert [one.points for one in others] == [-150] * len(files)  # by the honest certificate


def test_what_has_become_worse_is_said_with_the_reason(instance: Instance, tmp_path: Path) -> None:
    before = answer(instance, 0.75, 1.0, verdict=accepted(0.75, 1.0))
    table = tmp_path / "scores.json"
    write_scores(table, score([instance], [before]))
    assert losses(score([instance], [before]), table) == []
    assert (
        losses(score([instance], [answer(instance, 0.76, 1.0, verdict=accepted(0.76, 1))]), table)
        == []
    )
    now = replace(before, lower=0.5, verdict=Verdict(False, reason="REJECT"))
    assert losses(score([instance], [now]), table) == [
        "a on truth-linear: lower 0.5, was 0.75 (REJECT)",
        "a on truth-linear: points 5, was 22.5 (REJECT)",
    ]
    assert losses([], table) == ["a on truth-linear: no answer, where there was one"]
    late = replace(before, status="timeout", lower=0.0, upper=1.0, verdict=None, reason="late")
    assert losses(score([instance], [late]), table)[0].endswith("lower 0, was 0.75 (late)")


def test_a_table_is_rounded_down(instance: Instance, tmp_path: Path) -> None:
    """So that the last digits, which machines differ in, are no loss."""
    table = tmp_path / "scores.json"
    write_scores(table, score([instance], [answer(instance, 0.12345678, 1.0)]))
    stored = json.loads(table.read_text())["a"]["truth-linear"]
    assert (stored["lower"], stored["points"]) == (0.123456, 1.2345)


def test_what_is_no_table_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    for content in ("", "[]", '{"a": {"b": {}}}'):
        path.write_text(content)
        with pytest.raises(InputError, match="is no table of scores"):
            losses([], path)
