"""The benchmark on the command line, from the instances to the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bnncert.bench.tracks import TRACKS, recipes
from commands import Run, runner


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def test_a_tool_is_asked_scored_and_compared(cli: Run, tmp_path: Path) -> None:
    """What has become worse is said, with exit code 1."""
    out = tmp_path / "bench"
    asked = ("--track", "samples", "--tool", "enumeration", "--workers", 1, "--out", out)
    code, printed, _ = cli("bench", "run", *asked)
    assert (code, printed.strip()) == (
        0,
        f"the answers are in {out}; their points: bnncert bench score --out {out}",
    )
    code, printed, _ = cli("bench", "score", "--out", out)
    assert code == 0
    assert "at most 200 points, 25 for each of 8 instances" in printed
    assert re.search(r"enumeration +\d+ +0 +\d +8 ", printed)

    code, printed, _ = cli("bench", "score", "--out", out, "--against", out / "scores.json")
    assert code == 0
    better = json.loads((out / "scores.json").read_text())
    better["enumeration"]["samples-3-0.0625"]["lower"] = 0.75
    table = tmp_path / "before.json"
    table.write_text(json.dumps(better))
    code, printed, _ = cli("bench", "score", "--out", out, "--against", table)
    assert code == 1
    assert "enumeration on samples-3-0.0625: lower 0.58" in printed.splitlines()[-1]

    code, printed, _ = cli("bench", "report", "--out", out)
    assert code == 0
    assert (out / "report" / "samples.html").is_file()


def test_a_folder_without_answers_is_one_line(cli: Run, tmp_path: Path) -> None:
    assert cli("bench", "make", "--track", "samples", "--out", tmp_path / "b")[0] == 0
    for command in ("score", "report"):
        code, _, err = cli("bench", command, "--out", tmp_path / "b")
        assert code == 2
        assert "holds no answers to its suite; bnncert bench run first" in err


WRONG = {
    "tool": (["--tool", "nope"], "tool 'nope' is not known"),
    "command": (["--command", "nope-program"], "'nope-program' is no program"),
    "name alone": (["--name", "mine"], "--name is for a --command"),
    "both": (["--command", "python x.py", "--tool", "pie"], "leave --tool out"),
    "track": (["--track", "nope"], "track 'nope' is not known"),
    "workers": (["--workers", "0"], "'--workers'"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_mistakes_are_one_line(options: list[str], message: str, cli: Run, tmp_path: Path) -> None:
    code, _, err = cli("bench", "run", *options, "--out", tmp_path / "b")
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "b").exists()


def test_the_page_counts_the_instances() -> None:
    """The documentation's table of tracks."""
    page = (Path(__file__).parents[2] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \|", page, re.M)
    counts = [
        [sum(recipe.track == track for recipe in recipes(full)) for full in (False, True)]
        for track in TRACKS
    ]
    assert [(name, int(quick), int(full)) for name, quick, full in rows] == [
        (track, *pair) for track, pair in zip(TRACKS, counts, strict=True)
    ]
    assert f"{len(recipes(full=True))} instances in the place of {len(recipes())}" in page
