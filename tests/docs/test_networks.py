"""The page of networks: its residual network is certified, refined and checked, and what it shows
comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import Run
from pages import run_page

LOWER = re.compile(r"^ +\d +\d +\d +\w+ +([\d.]+) +[\d.]+$", re.M)


def test_the_page_runs(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flint")
    monkeypatch.chdir(tmp_path)
    printed, shown, said = run_page("networks.md", run, capsys)
    verdict = "ACCEPT: 3 ACCEPT, 0 REJECT, 0 ERROR"
    assert all(verdict in output.splitlines() for output in said)
    assert said
    lower = [float(value) for value in LOWER.findall(printed)]
    assert len(lower) == 9
    # Slopes are optimised, and differ in their last digits from machine to machine.
    assert lower == pytest.approx([float(value) for value in LOWER.findall(shown)], abs=1e-3)
    assert lower[5] > lower[2]
