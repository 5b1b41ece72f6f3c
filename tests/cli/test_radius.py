"""`bnncert radius`: table, folder, figure and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Run


def test_radii_are_written_shown_and_accepted(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "radii"
    asked = (files["p"], "--inputs", files["x"], "--select", "0:2", "--close", "0.5")
    code, said, _ = run("radius", *asked, "--at-least", "0.9", "--out", out)
    assert code == 0
    assert "certified up to" in said
    assert "of 2 with a certified radius, median" in said
    lines = [json.loads(text) for text in (out / "radii.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == [0, 1]
    assert {line["at_least"] for line in lines} == {"0.9"}
    assert (out / "radii.svg").read_text().count("<svg") == 1
    assert (out / "radii.png").is_file()
    code, said, _ = run("check", out, "--posterior", files["p"])
    assert code == 0
    assert "radii.jsonl:2  input 1: P_safe >= 0.9" in said

    # The page takes the checker's verdicts of the results, and leaves those of the radii.
    _, said, _ = run("check", out, "--posterior", files["p"], "--json")
    (out / "check.json").write_text(said)
    code, _, _ = run("report", out)
    assert code == 0

    # Results that replace these have no radii.
    code, _, _ = run("certify", *asked[:5], "--eps", "0.01", "--out", out)
    assert code == 0
    assert not (out / "radii.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--at-least", "2"), "is not a probability"),
        (("--first", "2"), "the smaller one first"),
        (("--close", "0"), "a share between 0 and 1"),
        (("--eps", "0.1"), "No such option: --eps"),
        (("--norm", "l3"), "norm 'l3' is not known"),
        (("--select", "99"), "leaves the"),
    ],
)
def test_messages(run: Run, files: dict[str, Path], options: tuple[str, ...], message: str) -> None:
    code, _, error = run("radius", files["p"], "--inputs", files["x"], *options)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
