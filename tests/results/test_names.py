"""Which bound gave the ends, in a word, as lines and tables say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bnncert import Problem, ball, certify, half_space, mlp
from bnncert.cli.display import show_results
from bnncert.methods import PIE, Concentration, Enumeration, Method
from bnncert.posteriors import Empirical, Mixture, Normal
from bnncert.posteriors.base import Posterior
from bnncert.results.rows import Result
from deep_networks import random_deep
from open_problems import open_problem
from scenarios import vector

ONE = mlp(1, 1, 1)  # y = v relu(w x + b) + β
NARROW = Normal(torch.ones(4).double(), torch.full((4,), 0.05).double())
WIDE = Normal(torch.ones(4).double(), torch.full((4,), 0.8).double())


def asked(posterior: Posterior, method: Method, at_least: float = 0.0) -> Result:
    spec = half_space(ball(vector(1.0).reshape(1, 1), 0.1), vector(1.0), at_least)
    return certify(Problem(ONE, posterior, spec), method)[0]


BOTH = Mixture((0.5, 0.5), (NARROW, WIDE))
LISTED = Empirical(NARROW.mean.unsqueeze(0))


@pytest.mark.parametrize(
    ("posterior", "method", "at_least", "names"),
    [
        (NARROW, Concentration(), 0.0, ("linear", None)),
        (NARROW, Concentration(upper=True), 1.0, ("linear", None)),
        (NARROW, Concentration(effort=0, upper=True), 4.0, (None, "linear")),
        (WIDE, Concentration(upper=True), 0.5, ("lines", "joint")),
        (BOTH, Concentration(), 0.0, ("linear+lines", None)),
        (NARROW, PIE(samples=2), 0.0, ("boxes", None)),
        (LISTED, Enumeration(), 0.0, ("networks", None)),
        (LISTED, Enumeration(), 9.0, (None, "networks")),
    ],
)
def test_the_names_of_bounds(
    posterior: Posterior, method: Method, at_least: float, names: tuple[str | None, str | None]
) -> None:
    result = asked(posterior, method, at_least)
    assert (result.lower_by, result.upper_by) == names


def test_branch_and_bound_splits() -> None:
    assert "splits" in {row.lower_by for row in certify(open_problem(7), Concentration(effort=2))}


def test_two_layers_have_moments() -> None:
    problem, _, _ = random_deep(3)
    (found,) = certify(problem, Concentration())
    assert found.lower_by == "moments"


def test_lines_and_tables_hold_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = half_space(ball(vector(1.0).reshape(1, 1), 0.1), vector(1.0), 0.5)
    results = certify(Problem(ONE, WIDE, spec), Concentration(upper=True))
    results.save(tmp_path / "out")
    line = json.loads((tmp_path / "out" / "results.jsonl").read_text())
    assert (line["lower_by"], line["upper_by"]) == ("lines", "joint")
    show_results(results, "a run")
    shown = capsys.readouterr().out
    assert "by" in shown.split()
    assert "lines/joint" in shown.split()
    assert "calls" not in shown.split()
    show_results([asked(NARROW, PIE(samples=2))], "boxes")
    assert "calls" in capsys.readouterr().out.split()
