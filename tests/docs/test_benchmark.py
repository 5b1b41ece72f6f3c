"""The benchmark's page shows a tool that is right, if modest."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from bnncert.bench.entrants import command_line
from bnncert.bench.known import KNOWN
from bnncert.bench.runs import current, read_answers, run
from bnncert.bench.scores import score
from bnncert.bench.suite import make, read_suite
from pages import blocks


def test_the_tool_of_the_page_is_never_wrong(tmp_path: Path) -> None:
    """On the whole truth set; it proves something of several instances."""
    (code,) = blocks("benchmark.md", "Enter a tool")
    assert len([line for line in code.splitlines() if line.strip()]) <= 35
    tool = tmp_path / "my_tool.py"
    tool.write_text(code, encoding="utf-8")
    make(KNOWN, tmp_path)
    instances = read_suite(tmp_path)
    words = shlex.join([sys.executable, str(tool)])
    run(tmp_path, instances, [command_line(words, None)], workers=1)
    scores = score(instances, current(read_answers(tmp_path), instances))
    assert [
        (one.instance, one.wrong or one.reason) for one in scores if one.wrong or one.reason
    ] == []
    assert sum(one.settled for one in scores) >= 4
