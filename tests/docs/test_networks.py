"""The page of networks: its residual network is certified, refined and checked, and what it shows
comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import Run
from pages import fenced, text

LOWER = re.compile(r"^ +\d +\d +\d +certified +([\d.]+) +1$", re.M)


def test_the_page_runs(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("flint")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    shown, printed = "", ""
    for language, content in fenced(text("networks.md")):
        if language == "python":
            exec(compile(content, "networks.md", "exec"), names)
            printed += capsys.readouterr().out
        elif language == "text":
            shown += content
        else:
            program, *arguments = content.split()
            assert program == "bnncert"
            code, output, _ = run(*arguments)
            assert code == 0
            assert output.splitlines()[-1] == "ACCEPT: 3 ACCEPT, 0 REJECT, 0 ERROR"
    lower = [float(value) for value in LOWER.findall(printed)]
    assert len(lower) == 6
    # Slopes are optimised, and differ in their last digits from machine to machine.
    assert lower == pytest.approx([float(value) for value in LOWER.findall(shown)], abs=1e-3)
    assert lower[5] > lower[2]
