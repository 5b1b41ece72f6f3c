"""`bnncert map`: shares, folder, resuming and messages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands import Run


@pytest.fixture
def region(tmp_path: Path) -> Path:
    """Two of four inputs vary."""
    path = tmp_path / "region.csv"
    path.write_text("name,unit,low,high\na,m,-8,8\nb,,-8.5,7.5\nc,,0.5,0.5\nd,,0.5,0.5\n")
    return path


def test_a_map_is_written_shown_and_accepted(
    run: Run, files: dict[str, Path], region: Path, tmp_path: Path
) -> None:
    asked = ("map", files["p"], "--region", region, "--parts", 4, "--effort", 0)
    out = tmp_path / "map"
    code, said, _ = run(*asked, "--cells", 2, "--out", out)
    assert code == 0
    assert "the budget is spent: the same command goes on" in said
    code, said, _ = run(*asked, "--out", out)
    assert code == 0
    assert "class predicted, P_safe >= 0.95" in said
    assert "of the volume; mean P_safe of cells at least" in said
    assert "budget" not in said
    assert (out / "cells.csv").read_text().startswith("cell,a [m] from,a [m] to,b from")
    code, said, _ = run("check", out, "--posterior", files["p"])
    assert code == 0
    assert "cells cover the region (a -8 to 8 m, b -8.5 to 7.5, c 0.5 to 0.5" in said
    code, _, error = run(*asked, "--at-least", "0.9", "--out", out)
    assert code == 2
    assert "holds the map of another question" in error
    code, said, _ = run("check", out, "--posterior", files["p"], "--json")
    assert json.loads(said)["verdict"] == "ACCEPT"


def test_a_vnnlib_file_brings_its_region(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "map"
    asked = ("map", files["p"], "--condition", files["robust"], "--parts", 1, "--effort", 0)
    code, said, _ = run(*asked, "--out", out)
    assert code == 0
    assert "no counterexample of robust.vnnlib" in said
    assert [side["name"] for side in json.loads((out / "map.json").read_text())["region"]] == [
        "X_0",
        "X_1",
        "X_2",
        "X_3",
    ]
    code, _, _ = run("check", out, "--posterior", files["p"])
    assert code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no region is given"),
        (("--region", "missing.toml"), "cannot be read"),
        (("--region", "{three}"), "has 3 dimensions, the network takes (4,)"),
        (("--region", "{point}"), "the region is one point"),
        (("--region", "{region}", "--condition", "y9 >= 0"), "output 9 does not exist"),
        (("--region", "{region}", "--condition", "perhaps"), "is not understood"),
        (("--region", "{region}", "--at-least", "2"), "is not a probability"),
        (("--region", "{region}", "--parts", "0"), "parts are 0"),
        (("--region", "{region}", "--time", "0"), "seconds above 0"),
        (("--region", "{region}", "--cells", "0"), "cells are 0"),
        (("--region", "{region}", "--method", "magic"), "method 'magic' is not known"),
    ],
)
def test_messages(
    run: Run,
    files: dict[str, Path],
    region: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    message: str,
) -> None:
    np.savez(tmp_path / "three.npz", lower=np.zeros(3), upper=np.ones(3))
    np.savez(tmp_path / "point.npz", lower=np.zeros(4), upper=np.zeros(4))
    places = {"region": region, "three": tmp_path / "three.npz", "point": tmp_path / "point.npz"}
    given = [option.format(**places) for option in options]
    code, _, error = run("map", files["p"], *given, "--out", tmp_path / "out")
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
