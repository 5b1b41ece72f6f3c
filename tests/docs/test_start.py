"""The five-minute page: its code is one program, its commands follow, and what it says comes
out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import Run
from pages import run_page, text

INTERVAL = re.compile(r"^(\d)  (\w+) +([\d.]+) <= P_safe <= ([\d.]+)$", re.M)


def intervals(output: str) -> list[tuple[str, str, float, float]]:
    return [
        (index, status, float(lower), float(upper))
        for index, status, lower, upper in INTERVAL.findall(output)
    ]


def test_the_page_runs(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flint")
    monkeypatch.chdir(tmp_path)
    printed, shown, said = run_page("start.md", run, capsys)
    # Training differs in the last digits from machine to machine, and the bounds in the second.
    assert len(intervals(shown)) == 4
    for expected, found in zip(intervals(shown), intervals(printed), strict=True):
        assert found[:2] == expected[:2]
        assert found[2:] == pytest.approx(expected[2:], abs=0.1)
    (verdict,) = re.findall(r"The verdict is `(.*?)`", text("start.md"))
    assert verdict in said[1].splitlines()
    assert Path("results/report.html").is_file()
