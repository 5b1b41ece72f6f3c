"""The page of certified radii: its table and chart, and what the checker refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bnncert import InputError, Problem, ball, half_space, mlp, save_posterior
from bnncert.console import radius_text
from bnncert.methods import Concentration
from bnncert.posteriors import Normal
from bnncert.radius import certified_radii
from bnncert.report import write_report
from bnncert.report.radii import read_radii
from commands import Run
from report_pages import written


@pytest.fixture
def folder(tmp_path: Path, run: Run) -> Path:
    """y = w x, w ~ N(1, 0.1²), above 1/2 around 1, around 1/4 (never) and around 1000 (always)."""
    mean, std = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.1, 0.0]).double()
    network, posterior = mlp(1, 1), Normal(mean, std)
    x = torch.tensor([[1.0], [0.25], [1000.0]]).double()
    problem = Problem(network, posterior, half_space(ball(x, 0.0), torch.ones(1), 0.5))
    found = certified_radii(problem, Concentration(effort=0, upper=True), "0.95")
    found.save(tmp_path / "out")
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    code, said, _ = run(
        "check", tmp_path / "out", "--posterior", tmp_path / "p.safetensors", "--json"
    )
    assert code == 0
    (tmp_path / "out" / "check.json").write_text(said)
    return tmp_path / "out"


def test_radii_are_told_and_drawn(folder: Path) -> None:
    page = written(folder)
    assert "2 of 3 inputs certified up to a radius" in " ".join(page.words.split())
    assert "Certified intervals" not in page.words
    assert "Checked independently" in page.words
    first, second, third = read_radii(folder)
    assert (second.certified, second.falsified, third.falsified) == (None, 0.0, None)
    rows = [cells for cells in page.cells if len(cells) == 4 and cells[1] == "–"]
    assert first.certified is not None
    assert first.falsified is not None
    assert float(rows[0][2]) <= first.certified < first.falsified <= float(rows[0][3])
    assert rows[1:] == [["1", "–", "–", "0"], ["2", "–", "1", "–"]]
    # Of three inputs one is falsified from 0 on, and two are certified at first.
    assert 'd="M0 100V33.33' in page.text
    assert 'd="M0 0V33.33' in page.text


def test_what_the_checker_refused_is_unknown(folder: Path) -> None:
    said = json.loads((folder / "check.json").read_text())
    said["certificates"][-1]["status"] = "REJECT"  # the line of the third input
    (folder / "check.json").write_text(json.dumps(said))
    page = written(folder)
    words = " ".join(page.words.split())
    assert "1 of 3 inputs certified up to a radius" in words
    assert "Not everything passed the independent check" in words
    assert "of the radii 1 refused" in words
    assert "(refused by the checker)" in words
    said["certificates"].pop()
    (folder / "check.json").write_text(json.dumps(said))
    with pytest.raises(InputError, match="holds 2 verdicts for 3 lines"):
        write_report(folder)
    (folder / "check.json").unlink()
    assert "2 of 3 inputs" in written(folder).words


@pytest.mark.parametrize(
    ("name", "value"), [("certified", -1.0), ("falsified", "x"), ("label", "7"), ("index", None)]
)
def test_lines_that_are_no_radii(folder: Path, name: str, value: object) -> None:
    path = folder / "radii.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0][name] = value
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match="is not what radius wrote"):
        write_report(folder)


def test_ends_are_rounded_against_the_claim() -> None:
    assert (radius_text(0.12345678), radius_text(0.12345612, up=True)) == ("0.123456", "0.123457")
    assert (radius_text(0.0), radius_text(None), radius_text(1.0, up=True)) == ("0", "–", "1")
    assert radius_text(1.23456789e-9) == "1.23456e-09"
