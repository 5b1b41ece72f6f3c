"""The checker's verdicts in the report: shown, and refused where they are of other results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bnncert import Concentration, InputError
from bnncert.cli.display import percent
from bnncert.report.page import write_report
from report_folders import verdicts, write_folder
from report_pages import certified, mean_of, written


def test_without_verdicts_the_page_says_so(tmp_path: Path) -> None:
    write_folder(tmp_path / "a run", 8)
    page = written(tmp_path / "a run")
    assert "Not checked independently." in page.words
    run = f"{tmp_path}/a run"
    command = f"bnncert check '{run}' --posterior POSTERIOR --json > '{run}/check.json'"
    assert command in page.words
    assert page.data["verdict"] == [None] * 8
    assert "Checked independently" not in page.words


def test_verdicts_are_shown(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 8)
    verdicts(tmp_path / "run", lines)
    page = written(tmp_path / "run")
    assert "Checked independently." in page.words
    assert [cells[8] for cells in page.rows()] == ["accepted"] * 8
    bounds = page.facts(1)
    assert bounds["supported by the checker"] == f"{lines[1]['lower']!r} to {lines[1]['upper']!r}"
    assert page.facts(0)["reason"] == "claims nothing"


def test_rejected_results_are_struck_out_and_not_counted(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 8)
    verdicts(
        tmp_path / "run",
        lines,
        status={1: "REJECT", 3: "ERROR"},
        code={1: "probability-too-high", 3: "unreadable"},
        message={1: "at most 0.5 is supported"},
    )
    page = written(tmp_path / "run")
    assert [cells[8] for cells in page.rows()[:4]] == [
        "accepted",
        "rejected",
        "accepted",
        "not checkable",
    ]
    assert page.facts(1)["reason"] == "probability-too-high: at most 0.5 is supported"
    assert "6 accepted, 1 rejected, 1 not checkable" in page.words
    assert page.text.count('<tr class="void">') == 2
    counted = [line for i, line in enumerate(lines) if i not in (1, 3)]
    lower, upper = (
        sum(line["lower"] for line in counted) / 8,
        (sum(line["upper"] for line in counted) + 2) / 8,
    )
    assert f"{percent(lower)} ≤ mean Psafe ≤ {percent(upper, up=True)}" in page.words
    claimed = percent(mean_of(lines, "lower")), percent(mean_of(lines, "upper"), up=True)
    assert "Claimed was a mean of at least {} and at most {};".format(*claimed) in page.words


STALE: dict[str, Callable[[list[Any]], object]] = {
    "fewer": lambda found: found.pop(),
    "other claim": lambda found: found[1].update(claimed=[0.5, 1.0]),
    "other certificate": lambda found: found[1].update(path="elsewhere/000000.safetensors"),
    "other radius": lambda found: found[1].update(eps=0.5),
    "other label": lambda found: found[1].update(label=9),
    "accepts a claim it did not see": lambda found: found[1].update(
        path="results.jsonl:2", claimed=None
    ),
    "no verdict": lambda found: found[1].update(status="FINE"),
    "no status": lambda found: found[1].pop("status"),
    "not an object": lambda found: found.__setitem__(1, "ACCEPT"),
}


@pytest.mark.parametrize("change", STALE)
def test_verdicts_of_other_results_are_refused(change: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    verdicts(folder, write_folder(folder, 8))
    content = json.loads((folder / "check.json").read_text())
    STALE[change](content["certificates"])
    (folder / "check.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"check\.json.*check again: bnncert check"):
        write_report(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"certificates": null}', "[" * 100_000])
def test_broken_verdicts_are_refused(text: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4)
    (tmp_path / "run" / "check.json").write_text(text)
    with pytest.raises(InputError, match=r"check\.json.*check again"):
        write_report(tmp_path / "run")


def test_the_checker_s_own_words_fit(
    tmp_path: Path, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `bnncert check --json` prints is what the report reads."""
    run = pytest.importorskip("bnncert_check.__main__", reason="needs python-flint").run
    posterior = certified(tmp_path / "run", trained, Concentration(upper=True), eps=0.05)
    run(tmp_path / "run", posterior, True)
    (tmp_path / "run" / "check.json").write_text(capsys.readouterr().out)
    assert set(written(tmp_path / "run").data["verdict"]) == {"ACCEPT"}
