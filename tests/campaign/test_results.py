"""Campaigns: nothing is computed twice or lost, effort goes where it is needed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import Problem, certify, load_posterior, mlp, read_certificate, save_posterior
from bnncert.campaign.plan import make_plan
from bnncert.campaign.schema import read_campaign
from bnncert.campaign.store import STORE, open_store
from bnncert.campaign.table import records, write_results
from bnncert.posteriors import Empirical
from bnncert.results.answers import status
from bnncert_check import ACCEPT, check_results, read_model, read_results
from campaigns import ITEMS, bundles, plan_of, run_here, table, write_campaign
from scenarios import gaussian


def test_results_are_those_of_certify(campaign: Path, finished: Path) -> None:
    """Same numbers; and from the same chunk, certificates with the bytes that `certify` would have
    written."""
    plan = plan_of(campaign)
    job = plan.job
    with open_store(finished) as store:
        found = {(r["name"], r["index"], r["eps"], r["config"]): r for r in records(store)}
    compared = 0
    for chunk in plan.chunks():
        network, posterior = load_posterior(chunk.subject.path)
        part = list(chunk.positions)
        problem = Problem(
            network, posterior, job.specification(network, plan.x[part], plan.y[part])
        )
        indices = [index for index in part for _ in job.eps]
        for result in certify(problem, job.methods[0], indices=indices, at_least=job.at_least):
            record = found[chunk.subject.name, result.index, result.eps, job.configs[0]]
            names = ("status", "label", "predicted", "lower", "upper", "bound_calls", "seed")
            assert [record[name] for name in names] == [getattr(result, name) for name in names]
            assert (record["certificate"] is None) == (result.certificate is None)
            if result.certificate is not None:
                assert (
                    read_certificate(finished / record["certificate"]).content()
                    == result.certificate.content()
                )
                compared += 1
        for result in certify(problem, job.methods[1], indices=indices):
            record = found.get((chunk.subject.name, result.index, result.eps, job.configs[1]))
            assert record is None or record["lower"] == pytest.approx(
                result.lower, rel=0, abs=1e-12
            )
    assert compared > ITEMS / 2


def test_effort_goes_where_the_threshold_is_open(finished: Path) -> None:
    """The second method answers exactly for the items that the first left open, and decides some of
    them."""
    with open_store(finished) as store:
        found = list(records(store))
    first = {(r["name"], r["index"], r["eps"]): r for r in found if '"effort":0' in r["config"]}
    second = {(r["name"], r["index"], r["eps"]): r for r in found if '"effort":1' in r["config"]}
    assert len(first) == ITEMS
    undecided = {key for key, r in first.items() if r["status"] == "undecided"}
    assert 0 < len(undecided) < ITEMS
    assert second.keys() == undecided
    assert any(r["lower"] > first[key]["lower"] for key, r in second.items())
    follows = [status(r["label"], r["predicted"], r["lower"], r["upper"], "0.9") for r in found]
    assert [(r["status"], r["at_least"]) for r in found] == [(word, "0.9") for word in follows]


def test_misclassified_inputs_are_not_refined(tmp_path: Path) -> None:
    path = write_campaign(tmp_path, select="0:4", eps=[0.02], posteriors=["narrow.safetensors"])
    with np.load(tmp_path / "x.npz") as file:
        x, y = file["x"], file["y"]
    np.savez(tmp_path / "x.npz", x=x, y=(y + 1) % 3)
    run_here(path, tmp_path / "run")
    assert [(row[6], 'effort":0' in row[4]) for row in table(tmp_path / "run")] == [
        ("misclassified", True)
    ] * 4


def test_every_certificate_is_accepted(campaign: Path, finished: Path) -> None:
    with open_store(finished) as store:
        assert write_results(store) == len(table(finished))
    lines = read_results(finished)
    verdicts = [
        verdict
        for name in ("narrow", "wide")
        for verdict in check_results(
            finished, lines, read_model(campaign.parent / f"{name}.safetensors")
        )
    ]
    assert len(verdicts) == len(lines)
    assert {verdict.status for verdict in verdicts} == {ACCEPT}


def test_a_second_run_computes_nothing(campaign: Path, finished: Path) -> None:
    before, files = table(finished), bundles(finished)
    state = run_here(campaign, finished)
    assert (state.done, state.computed) == (ITEMS, 0)
    assert (table(finished), bundles(finished)) == (before, files)


def test_what_is_missing_is_computed_and_nothing_else(finished: Path, tmp_path: Path) -> None:
    """More inputs, and a method that was not there: earlier rows stay, with their bundles."""
    few = write_campaign(tmp_path, select="0:5", methods=["concentration"], at_least=None)
    run_here(few, tmp_path / "run")
    before = table(tmp_path / "run")
    assert len(before) == 2 * 5 * 2
    state = run_here(
        write_campaign(tmp_path, methods=["concentration"], at_least=None), tmp_path / "run"
    )
    assert state.computed == 2 * 7 * 2
    both = write_campaign(tmp_path)
    run_here(both, tmp_path / "run")
    assert set(before) <= set(table(tmp_path / "run"))
    # What effort 1 had decided before is not asked of effort 0.
    decided = {row[:3] for row in table(finished)} - {
        row[:3] for row in table(tmp_path / "run") if 'effort":0' in row[4]
    }
    lower = {row[:3]: row[8] for row in table(tmp_path / "run") if 'effort":1' in row[4]}
    assert decided
    assert all(lower[key] >= 0.9 for key in decided)


def test_chunks_do_not_matter(finished: Path, tmp_path: Path) -> None:
    path = write_campaign(tmp_path, chunk=7)
    run_here(path, tmp_path / "run")
    for row, other in zip(table(tmp_path / "run"), table(finished), strict=True):
        assert (*row[:8], *row[10:]) == (*other[:8], *other[10:])
        assert row[8:10] == pytest.approx(other[8:10], rel=0, abs=1e-12)


def test_equal_inputs_are_asked_about_once(tmp_path: Path) -> None:
    """Two lines with one certificate would count it twice."""
    path = write_campaign(
        tmp_path, select="0:4", eps=[0.02], posteriors=["narrow.safetensors"], chunk=2
    )
    with np.load(tmp_path / "x.npz") as file:
        x, y = file["x"], file["y"]
    np.savez(tmp_path / "x.npz", x=x[[0, 1, 0, 1]], y=y[[0, 1, 0, 1]])
    state = run_here(path, tmp_path / "run")
    assert state.done == 2
    assert make_plan(read_campaign(path)).repeated == 2
    with open_store(tmp_path / "run") as store:
        found = list(records(store))
    assert len(table(tmp_path / "run")) == 2
    assert [r["index"] for r in found] == [0, 1]


def test_empirical_posteriors_and_regressions_have_campaigns_too(tmp_path: Path) -> None:
    path = write_campaign(
        tmp_path,
        methods=["enumeration"],
        posteriors=["list.safetensors"],
        at_least=None,
        select="0:6",
    )
    network = mlp(4, 6, 3)
    save_posterior(
        tmp_path / "list.safetensors",
        network,
        Empirical(gaussian(5, network.size, generator=torch.Generator().manual_seed(0))),
    )
    assert run_here(path, tmp_path / "run").errors == 0
    assert {row[3] for row in table(tmp_path / "run")} == {"enumeration"}
    path = write_campaign(
        tmp_path, tolerance=3.0, output=2, select="0:4", posteriors=["narrow.safetensors"]
    )
    assert run_here(path, tmp_path / "regression").errors == 0
    assert {row[6] for row in table(tmp_path / "regression")} <= {"certified", "undecided"}
    with sqlite3.connect(tmp_path / "regression" / STORE) as connection:
        assert connection.execute("SELECT DISTINCT label FROM items").fetchall() == [(None,)]
    connection.close()
