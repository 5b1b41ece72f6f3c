"""Wrong formulas, planted into a tool: each gets -150 on the instance that is there for it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

import wrong_tools
from bnncert.bench.entrants import command_line
from bnncert.bench.known import KNOWN
from bnncert.bench.runs import current, read_answers, run
from bnncert.bench.scores import Score, score
from bnncert.bench.suite import make, read_suite
from wrong_tools import MISTAKES

TOOL = Path(wrong_tools.__file__)


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> list[Score]:
    """Of the wrong tool, and of what it does where an instance catches a second mistake."""
    folder = tmp_path_factory.mktemp("bench")
    make(KNOWN, folder)
    instances = read_suite(folder)
    second = [one for one in instances if len(MISTAKES[one.name.removeprefix("truth-")]) > 1]
    for number, asked in enumerate([instances, second]):
        words = shlex.join([sys.executable, str(TOOL), str(number)])
        run(folder, asked, [command_line(words, f"wrong-{number}")], workers=1)
    return score(instances, current(read_answers(folder), instances))


def test_every_mistake_is_answered(scores: list[Score]) -> None:
    """No mistake fails to say something."""
    assert len(scores) == sum(map(len, MISTAKES.values())) == len(KNOWN) + 2
    assert [(one.instance, one.reason) for one in scores if one.status != "answered"] == []


def test_every_mistake_gets_the_worst_score(scores: list[Score]) -> None:
    assert [(one.tool, one.instance, one.points) for one in scores if one.points != -150] == []
    assert all(one.wrong and not one.settled for one in scores)
