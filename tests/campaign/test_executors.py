"""Campaigns in processes and shards: the same results, whatever dies."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bnncert.campaign import work
from bnncert.campaign.executors import Workers, processes
from bnncert.campaign.merge import merge
from bnncert.campaign.plan import Chunk
from bnncert.campaign.store import open_store
from bnncert.campaign.table import summary
from bnncert.campaign.work import Computed, Task, compute
from bnncert.errors import InputError
from campaigns import (
    ITEMS,
    Instead,
    bundles,
    dying,
    environment,
    plan_of,
    run_here,
    table,
    write_campaign,
)


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


class Breaking(ThreadPoolExecutor):
    """Takes one chunk, and then says that a process has died."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._threads:
            raise BrokenExecutor
        return super().submit(*args, **kwargs)


def test_a_pool_that_breaks_before_it_is_told_of_a_chunk_is_started_anew(tmp_path: Path) -> None:
    path = write_campaign(
        tmp_path, eps=[0.02], posteriors=["narrow.safetensors"], methods=["concentration"]
    )
    started: list[Breaking] = []

    def start() -> Breaking:
        started.append(Breaking(1))
        return started[-1]

    state = run_here(path, tmp_path / "run", Workers(start, lambda: 3))
    assert (state.done, state.errors) == (12, 0)
    assert len(started) > 1
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
