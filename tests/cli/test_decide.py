"""`bnncert decide`: decisions that the checker accepts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bnncert import mlp, save_posterior
from bnncert.posteriors import Normal
from commands import Run
from scenarios import vector


def test_decide_writes_decisions_that_the_checker_accepts(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    asked = (files["p"], "--inputs", files["x"], "--eps", "0.001,0.01", "--select", "0:3")
    code, out, _ = run("decide", *asked, "--out", tmp_path / "d")
    assert code == 0
    assert "not of P_safe" in out
    lines = [
        json.loads(line) for line in (tmp_path / "d" / "decisions.jsonl").read_text().splitlines()
    ]
    assert [(line["index"], line["eps"]) for line in lines] == [
        (i, e) for i in range(3) for e in (0.001, 0.01)
    ]
    assert {line["quantity"] for line in lines} == {"softmax"}
    assert all((tmp_path / "d" / line["certificate"]).is_file() for line in lines)
    code, out, _ = run("check", tmp_path / "d", "--posterior", files["p"])
    assert code == 0
    assert "6 ACCEPT" in out
    code, _, error = run("certify", *asked, "--out", tmp_path / "d")
    assert code == 2
    assert "holds no results.jsonl" in error


def test_decide_on_a_regression(run: Run, tmp_path: Path) -> None:
    network = mlp(2, 1)
    save_posterior(
        tmp_path / "r.safetensors", network, Normal(vector(1.0, 1.0, 0.0), vector(0.1, 0.1, 0.1))
    )
    np.savez(tmp_path / "r.npz", x=np.array([[1.0, 2.0], [0.0, 0.0]]), y=np.array([3.0, 1.0]))
    asked = (tmp_path / "r.safetensors", "--inputs", tmp_path / "r.npz", "--eps", 0.1)
    code, out, _ = run("decide", *asked, "--tolerance", 0.5)
    assert code == 0
    assert "mean of the output" in out
    assert "1 of 2 inputs decided" in out
    code, _, error = run("decide", *asked)
    assert code == 2
    assert "with a tolerance" in error
