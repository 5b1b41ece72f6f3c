"""The store of a campaign: results never contradict, runners are kept apart; tables, commands."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnncert import mlp, save_posterior
from bnncert.campaign import store as storing
from bnncert.campaign.plan import Missing, estimate_cost
from bnncert.campaign.store import STORE, open_store, stored_row
from bnncert.campaign.table import export_csv, export_parquet, records
from bnncert.campaign.work import Row
from bnncert.errors import InputError
from bnncert.posteriors import Empirical
from bnncert.results.rows import Status
from campaigns import plan_of, run_here, table
from commands import Run

# --- The store ---


def test_conflicting_results_are_a_loud_error(campaign: Path, tmp_path: Path) -> None:
    """Differences of rounding are none; anything more is refused, and the store stays as it is."""
    plan = plan_of(campaign)
    chunk = plan.chunks()[0]
    run_here(campaign, tmp_path / "run", part=(1, 8))
    before = table(tmp_path / "run")
    with open_store(tmp_path / "run") as store:
        (key, stored), *_ = store.stored(chunk.subject.digest, plan.input_digests).items()

        def enter(status: str, lower: float) -> None:
            (failed,) = plan.failed(chunk, Missing(((0,),), {}), "none")
            found = replace(failed.answer, status=Status(status), lower=lower, upper=stored.upper)
            store.add([stored_row(key, Row(0, 0, found), "b")], "b", b"")

        enter(stored.status, stored.lower - 1e-12)
        enter("error", 0.0)
        enter("undecided", stored.lower)  # of another threshold
        for status, lower in ((stored.status, stored.lower - 1e-6), ("misclassified", 0.0)):
            with pytest.raises(InputError, match="conflicting results"):
                enter(status, lower)
    assert table(tmp_path / "run") == before


def test_claims_keep_runners_apart(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(finished) as store:
        here = storing._me()
        assert store.claim("a")
        assert store.claim("a")
        monkeypatch.setattr(storing, "_me", lambda: ("another host", 1))
        assert not store.claim("a")
        assert store.claim("b")
        monkeypatch.setattr(storing, "_me", lambda: here)
        assert not store.claim("b")
        assert store.runners() == 2
        monkeypatch.setattr(storing, "LEASE", -1.0)
        store.renew()
        monkeypatch.setattr(storing, "_me", lambda: ("another host", 2))
        assert store.claim("a")  # nobody has renewed it
        monkeypatch.setattr(storing, "_me", lambda: (here[0], 2**22 + 1))
        monkeypatch.setattr(storing, "LEASE", 60.0)
        assert store.claim("c")
        monkeypatch.setattr(storing, "_me", lambda: here)
        assert store.claim("c")  # there is no such process
        store.connection.execute("DELETE FROM claims")


def test_a_folder_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"), open_store(tmp_path, create=True):
        pass
    with pytest.raises(InputError, match="no run folder"), open_store(tmp_path / "nowhere"):
        pass
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / STORE).write_text(
        "no database, whatever its name says; and long enough to be one"
    )
    with pytest.raises(InputError, match="cannot be"), open_store(tmp_path / "text", create=True):
        pass
    with open_store(tmp_path / "later", create=True) as store:
        store.connection.execute("INSERT INTO about VALUES ('schema', 'bnncert-campaign/9')")
    with pytest.raises(InputError, match="campaign/9"), open_store(tmp_path / "later"):
        pass


# --- Tables and the command line ---


def test_tables_hold_every_result_exactly(finished: Path, tmp_path: Path) -> None:
    from pyarrow import parquet

    with open_store(finished) as store:
        found = list(records(store))
        assert (
            export_csv(store, tmp_path / "t.csv")
            == export_parquet(store, tmp_path / "t.parquet")
            == len(found)
        )
        with pytest.raises(InputError, match="cannot be written"):
            export_csv(store, tmp_path / "nowhere" / "t.csv")
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == found
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(float(r["lower"]), float(r["upper"]), int(r["index"])) for r in rows] == [
        (r["lower"], r["upper"], r["index"]) for r in found
    ]


def test_the_commands(
    campaign: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan, run, look, check, report: one story."""
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("run", campaign, "--dry-run")
    assert code == 0
    assert "48; 8 chunks of up to 3 inputs" in out
    assert "P_safe >= 0.9" in out
    assert not (tmp_path / "campaign").exists()
    code, out, err = run("run", campaign, "--json-log", "log.jsonl")
    assert code == 0
    assert "48 of 48 items" in out
    assert "certified mean so far" in err
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["done"] for line in log] == list(range(6, 49, 6))
    assert 0 < log[-1]["mean"] < 1
    code, out, _ = run("status", "campaign")
    assert code == 0
    assert [line.split()[:5] for line in out.splitlines()[1:5]] == [
        [name, eps, "12", "12", "0"] for name in ("narrow", "wide") for eps in ("0.02", "0.2")
    ]
    posterior = campaign.parent / "wide.safetensors"
    code, out, err = run("check", "campaign", "--posterior", posterior, "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "ACCEPT")
    assert "other posteriors" in err
    (tmp_path / "campaign" / "check.json").write_text(out)
    code, _, err = run("report", "campaign")
    assert (code, "speaks of 2 posteriors" in err) == (2, True)
    assert run("report", "campaign", "--posterior", posterior)[0] == 0
    page = tmp_path / "campaign" / "report.html"
    everything = page.read_text()
    assert run("report", "campaign", "--posterior", posterior, "--eps", 0.2)[0] == 0
    assert "accepted" in page.read_text()
    assert len(page.read_text()) < len(everything)
    code, _, err = run("report", "campaign", "--posterior", posterior, "--eps", 0.3)
    assert (code, "has 0 such results" in err) == (2, True)
    save_posterior(
        tmp_path / "other.safetensors",
        mlp(4, 6, 3),
        Empirical(torch.zeros(1, 51, dtype=torch.float64)),
    )
    code, _, err = run("report", "campaign", "--posterior", "other.safetensors")
    assert (code, "speaks of this posterior" in err) == (2, True)
    code, out, _ = run("export", "campaign", "--csv", "t.csv")
    assert (code, len((tmp_path / "t.csv").read_text().splitlines())) == (
        0,
        1 + len(table(tmp_path / "campaign")),
    )
    assert run("export", "campaign", "--markdown", "t.md")[0] == 0
    head, _, *lines = (tmp_path / "t.md").read_text().splitlines()
    said = [line.split() for line in run("status", "campaign")[1].splitlines()]
    assert "at least" in head
    for line in lines:  # what status says
        name, eps, _, stored, lower, _ = (cell.strip() for cell in line.strip("|").split("|"))
        assert any(row[:2] == [name, eps] and {stored, lower[:-2]} <= set(row) for row in said)
    assert lines
    assert run("export", "campaign")[0] == 0
    assert run("run", campaign, "--shard", "1/1", "--out", "part")[0] == 0
    code, out, _ = run("merge", "campaign", "part")
    assert code == 0
    for arguments, message in (
        (["run", campaign, "--device", "tpu"], "device 'tpu'"),
        (["run", campaign, "--json-log", "no/log"], "--json-log"),
        (["status", tmp_path], "no run folder"),
    ):
        code, _, err = run(*arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


def test_the_cost_is_told_from_a_few_inputs(campaign: Path, finished: Path) -> None:
    """Bytes scale up to what the run has written, but for what differs between inputs."""
    costs = estimate_cost(plan_of(campaign), "cpu")
    written = sum(path.stat().st_size for path in (finished / "bundles").iterdir())
    assert sum(cost.bytes for cost in costs) == pytest.approx(written, rel=0.3)
    assert all(cost.seconds > 0 for cost in costs)
