"""Campaigns: what their files may say, that nothing is computed twice or lost, and that results
never contradict."""

from __future__ import annotations

import csv
import json
import multiprocessing
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import (
    Concentration,
    Problem,
    certify,
    load_posterior,
    mlp,
    read_certificate,
    save_posterior,
)
from bnncert.campaign import store as storing
from bnncert.campaign import work
from bnncert.campaign.executors import Workers, processes
from bnncert.campaign.merge import merge
from bnncert.campaign.plan import Chunk, Missing, estimate_cost, make_plan, read_shard
from bnncert.campaign.schema import read_campaign
from bnncert.campaign.store import STORE, open_store, stored_row
from bnncert.campaign.table import export_csv, export_parquet, records, summary, write_results
from bnncert.campaign.work import Computed, Row, Task, compute
from bnncert.cli.main import main
from bnncert.errors import InputError
from bnncert.posteriors import Empirical
from bnncert.results.answers import answer
from bnncert.results.rows import Status
from bnncert_check import ACCEPT, check_results, read_model, read_results
from campaigns import (
    INPUTS,
    Instead,
    bundles,
    dying,
    environment,
    plan_of,
    run_here,
    table,
    write_campaign,
)
from scenarios import gaussian

ITEMS = 2 * INPUTS * 2  # posteriors, inputs, radii


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("campaign"))


@pytest.fixture(scope="module")
def finished(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    state = run_here(campaign, folder)
    assert (state.done, state.computed, state.errors) == (ITEMS, ITEMS, 0)
    return folder


# --- Campaign files ---

METHODS = {"effort": [{"name": "concentration", "effort": 7}], "word": [{"name": "magic"}]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"epsilon": 0.1}, "key 'epsilon' is not known; did you mean 'eps'?"),
    "nothing close": ({"zzz": 1}, "key 'zzz' is not known; choose posteriors"),
    "no inputs": ({"inputs": None}, "'inputs' is missing"),
    "no eps": ({"eps": []}, "at least one radius"),
    "negative eps": ({"eps": [-0.1]}, "eps is -0.1; give a finite radius of at least 0"),
    "infinite eps": ({"eps": [float("inf")]}, "eps is inf; give a finite radius of at least 0"),
    "eps twice": ({"eps": [0.1, 0.1]}, "each once"),
    "eps text": ({"eps": "0.1"}, "'eps' is '0.1'; give a list or a whole number or a number"),
    "eps true": ({"eps": [True]}, "'eps' is True"),
    "chunk 0": ({"chunk": 0}, "'chunk' is 0"),
    "seed": ({"seed": -1}, "'seed' is -1"),
    "threshold": ({"at_least": 1.5}, "'at_least' is 1.5"),
    "norm": ({"norm": "l3"}, "norm 'l3' is not known; choose linf"),
    "clip": ({"clip": [1, 0]}, "clip range (1.0, 0.0) is empty"),
    "clip of three": ({"clip": [0, 1, 2]}, "'clip' is [0, 1, 2]"),
    "no methods": ({"methods": []}, "'methods' is empty"),
    "method without a name": ({"methods": [{"effort": 1}]}, "tables with a name"),
    "unknown method": ({"methods": METHODS["word"]}, "method 'magic' is not known"),
    "unknown option": ({"methods": [{"name": "pie", "steps": 1}]}, "did you mean 'step'?"),
    "option's type": (
        {"methods": [{"name": "pie", "samples": 1.5}]},
        "'pie.samples' is 1.5; give a whole number",
    ),
    "option's value": ({"methods": METHODS["effort"]}, "effort is 7"),
    "same method twice": ({"methods": ["concentration", "concentration"]}, "twice"),
    "no posteriors": ({"posteriors": []}, "'posteriors' names none"),
    "posterior twice": (
        {"posteriors": ["narrow.safetensors", "narrow.safetensors"]},
        "two files of one name",
    ),
    "posterior a number": ({"posteriors": [3]}, "'posteriors' is 3"),
    "posterior missing": ({"posteriors": ["nowhere.safetensors"]}, "does not exist"),
    "one posterior, two names": (
        {"posteriors": {"a": "wide.safetensors", "b": "wide.safetensors"}},
        "are the same",
    ),
    "inputs missing": ({"inputs": "nowhere.npz"}, "neither a data set"),
    "select": ({"select": "0:99"}, "leaves the 12 inputs"),
    "select twice": ({"select": "3,3"}, "names an input twice"),
    "target": ({"target": 9}, "posterior 'narrow': target class 9"),
    "tolerance": ({"tolerance": -1.0}, "tolerance is -1.0"),
    "inputs outside": ({"clip": [0.4, 0.6]}, "leaves the clip range"),
    "wrong family": ({"methods": ["enumeration"]}, "family 'normal' is not for method enumeration"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line_before_anything_runs(case: str, tmp_path: Path) -> None:
    changes, message = WRONG[case]
    with pytest.raises(InputError) as caught:
        plan_of(write_campaign(tmp_path, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", "{}", "unknown ending"),
        ("c.toml", "eps = ", "is not valid TOML"),
        ("c.yaml", "eps: [1", "is not valid YAML"),
        ("c.yaml", "- 1", "is not a table"),
        ("c.toml", None, "cannot be read"),
        ("c.toml", b"\xff", "is not valid TOML"),
    ],
)
def test_files_that_cannot_be_read(
    name: str, text: str | bytes | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as caught:
        read_campaign(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_yaml_says_the_same_as_toml(campaign: Path) -> None:
    path = campaign.with_suffix(".yaml")
    path.write_text(
        "inputs: x.npz\neps: [0.02, 0.2]\nposteriors: [narrow.safetensors, wide.safetensors]\n"
        "methods:\n  - {name: concentration, effort: [0, 1]}\nat_least: 0.9\nchunk: 3\n"
    )
    assert read_campaign(path) == read_campaign(campaign)


def test_defaults_and_the_order_of_methods(tmp_path: Path) -> None:
    """Cheap methods come first where a threshold lets the others be spared; else they stay as they
    are listed."""
    plain = read_campaign(write_campaign(tmp_path, methods=None, at_least=None))
    assert plain.methods == (Concentration(),)
    asked = read_campaign(write_campaign(tmp_path, methods=None, at_least=0.95))
    plain_stages = (Concentration(0, upper=True), Concentration(1, upper=True))
    assert asked.methods == (
        *plain_stages,
        *(Concentration(e, upper=True, at_least=0.95) for e in (2, 3)),
    )
    assert asked.at_least == Decimal("0.95")
    limited = [{"name": "concentration", "effort": 2, "nodes": 50, "time_limit": 3}]
    assert read_campaign(write_campaign(tmp_path, methods=limited)).methods == (
        Concentration(2, False, 50, 3),
    )
    listed = ["pie", {"name": "concentration", "effort": [1, 0]}]
    names = [
        (m.name, getattr(m, "effort", None))
        for m in read_campaign(write_campaign(tmp_path, methods=listed)).methods
    ]
    assert names == [("concentration", 0), ("concentration", 1), ("pie", None)]
    unordered = read_campaign(write_campaign(tmp_path, methods=listed, at_least=None)).methods
    assert [getattr(method, "effort", None) for method in unordered] == [None, 1, 0]


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/2/3", "a/b", "-1/2"])
def test_shards_are_parts_of_a_whole(text: str) -> None:
    with pytest.raises(InputError, match="is not I/N"):
        read_shard(text)


# --- Results ---


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
        for result in certify(problem, job.methods[0], indices=indices):
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
    undecided = {
        key
        for key, r in first.items()
        if r["answer"] == "unknown" and r["status"] != "misclassified"
    }
    assert 0 < len(undecided) < ITEMS
    assert second.keys() == undecided
    assert any(r["lower"] > first[key]["lower"] for key, r in second.items())
    assert all(r["answer"] == answer(r["lower"], r["upper"], Decimal("0.9")) for r in found)


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


# --- Executors ---


def test_processes_give_the_same_results(campaign: Path, finished: Path, tmp_path: Path) -> None:
    state = run_here(campaign, tmp_path / "run", processes(2, "cpu"))
    assert state.errors == 0
    assert table(tmp_path / "run") == table(finished)
    assert bundles(tmp_path / "run") == bundles(finished)


def test_merged_shards_are_the_whole(campaign: Path, finished: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"shard{part}" for part in (1, 2, 3)]
    done = [run_here(campaign, folder, part=(k, 3)).done for k, folder in enumerate(folders, 1)]
    assert sum(done) == ITEMS
    assert merge(tmp_path / "whole", folders) == len(table(finished))
    assert table(tmp_path / "whole") == table(finished)
    assert bundles(tmp_path / "whole") == bundles(finished)
    with open_store(tmp_path / "whole") as store, open_store(finished) as other:
        assert summary(store) == summary(other)
    assert run_here(campaign, tmp_path / "whole").computed == 0


def test_only_shards_of_one_campaign_are_merged(finished: Path, tmp_path: Path) -> None:
    run_here(write_campaign(tmp_path, select="0:2"), tmp_path / "other")
    with pytest.raises(InputError, match="another campaign"):
        merge(tmp_path / "whole", [finished, tmp_path / "other"])
    with pytest.raises(InputError, match="no run folder"):
        merge(tmp_path / "whole", [tmp_path])


def test_a_chunk_that_kills_its_worker_costs_one_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others that were in flight are computed again; the guilty chunk is halved down to the guilty
    input."""
    path = write_campaign(
        tmp_path, eps=[0.02], posteriors=["narrow.safetensors"], methods=["concentration"]
    )
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["campaigns"])  # which it finds by the environment alone
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    workers = Workers(lambda: Instead(ProcessPoolExecutor(2, context), dying), lambda: 3)
    state = run_here(path, tmp_path / "run", workers)
    assert (state.done, state.errors) == (12, 1)
    errors = [row for row in table(tmp_path / "run") if row[6] == "error"]
    assert [row[-1] for row in errors] == ["the worker process died"]
    assert errors[0][1] == plan_of(path).input_digests[5]
    again = run_here(path, tmp_path / "run")
    assert (again.computed, again.errors) == (1, 0)
    run_here(path, tmp_path / "calm")
    assert table(tmp_path / "run") == table(tmp_path / "calm")


def test_memory_that_runs_out_halves_the_chunk(tmp_path: Path) -> None:
    path = write_campaign(
        tmp_path, eps=[0.02], posteriors=["narrow.safetensors"], chunk=12, methods=["concentration"]
    )
    seen: list[int] = []

    def short(task: Task) -> Computed:
        seen.append(len(task.x))
        if len(task.x) > 3 or 5 in task.indices:
            raise MemoryError("it is\nused up")
        return compute(task)

    state = run_here(
        path, tmp_path / "run", Workers(lambda: Instead(ThreadPoolExecutor(1), short), lambda: 2)
    )
    assert (state.done, state.errors) == (12, 1)
    assert sorted(seen, reverse=True)[:5] == [12, 6, 6, 3, 3]
    assert [row[-1] for row in table(tmp_path / "run") if row[6] == "error"] == [
        "MemoryError: it is used up"
    ]


def test_a_posterior_that_changed_is_an_error_with_its_reason(tmp_path: Path) -> None:
    path = write_campaign(tmp_path, select="0:2", eps=[0.02], posteriors=["narrow.safetensors"])
    plan = plan_of(path)
    (tmp_path / "wide.safetensors").rename(tmp_path / "narrow.safetensors")
    chunk = Chunk(plan.subjects[0], (0, 1))
    work._model.cache_clear()
    with pytest.raises(InputError, match="not the one that was planned"):
        compute(plan.task(chunk, plan.missing(chunk, {}), "cpu"))


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
        for status, lower in ((stored.status, stored.lower - 1e-6), ("unverified", stored.lower)):
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


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, standard output and standard error of `bnncert ARGUMENTS`."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bnncert", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = int(error.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


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
    path = write_campaign(tmp_path, tolerance=3.0, select="0:4", posteriors=["narrow.safetensors"])
    assert run_here(path, tmp_path / "regression").errors == 0
    assert {row[6] for row in table(tmp_path / "regression")} <= {"certified", "unverified"}
    with sqlite3.connect(tmp_path / "regression" / STORE) as connection:
        assert connection.execute("SELECT DISTINCT label FROM items").fetchall() == [(None,)]
    connection.close()
