"""The page of regression: from the table that it writes to the report, with fewer epochs and
inputs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commands import Run
from pages import fenced, text

PAGE = "regression.md"
QUICKER = {"--epochs 300": "--epochs 20", "456:": "456:459"}

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_page_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flint")
    if not Path(os.environ.get("BNNCERT_DATA", ""), "uci_boston.npz").is_file():
        pytest.skip("BNNCERT_DATA is not set to a folder with uci_boston.npz")
    monkeypatch.chdir(tmp_path)
    parts = fenced(text(PAGE))
    (table,) = (content for language, content in parts if language == "python")
    exec(compile(table, PAGE, "exec", dont_inherit=True), {})
    (commands,) = (content for language, content in parts if language == "sh")
    for before, after in QUICKER.items():
        assert before in commands
        commands = commands.replace(before, after)
    said = []
    for line in commands.splitlines():
        code, output, error = run(*line.split()[1:])
        assert (code, error) == (0, "")
        said.append(output)
    assert "RMSE at the mean" in said[0]
    assert "tolerance 5 of medv" in " ".join(said[1].split())
    assert Path("results/report.html").is_file()
    assert "ACCEPT: 3 ACCEPT, 0 REJECT, 0 ERROR" in said[2].splitlines()
