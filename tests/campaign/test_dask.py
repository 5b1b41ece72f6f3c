"""Campaigns on a Dask cluster: a scheduler and two workers, each a process of its own, one of which
is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bnncert.campaign import executors
from bnncert.campaign.executors import dask_workers
from bnncert.errors import InputError
from campaigns import bundles, environment, run_here, table, write_campaign

QUIET = ["--no-dashboard", "--protocol", "tcp"]


def dask(program: str, file: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        f"distributed.cli.dask_{program}",
        "--scheduler-file",
        str(file),
        *QUIET,
        *options,
    ]
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


class Cluster:
    """A scheduler and two workers."""

    def __init__(self, folder: Path) -> None:
        file = folder / "scheduler.json"
        self.scheduler = dask("scheduler", file, "--host", "127.0.0.1", "--port", "0")
        options = ("--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
        self.workers = [dask("worker", file, *options) for _ in range(2)]
        end = time.monotonic() + 60
        while not (file.exists() and file.read_text().endswith("}")):
            assert time.monotonic() < end
            time.sleep(0.05)
        self.address = str(json.loads(file.read_text())["address"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    for process in (*found.workers, found.scheduler):
        process.kill()
        process.wait()


def test_a_cluster_finishes_though_a_worker_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    """Half-way, with a chunk in its hands; the results are those of one process."""
    campaign = write_campaign(tmp_path)
    run_here(campaign, tmp_path / "here")
    folder = tmp_path / "dask"

    def kill_half_way() -> None:
        while not ((folder / "bundles").exists() and len(bundles(folder)) >= 3):
            time.sleep(0.01)
        cluster.workers[0].send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_half_way, daemon=True)
    with dask_workers(cluster.address, 0, "cpu") as workers:
        while workers.in_flight() < 4:  # both are there
            time.sleep(0.05)
        killer.start()
        state = run_here(campaign, folder, workers)
    killer.join(timeout=60)
    assert cluster.workers[0].wait(timeout=60) == -signal.SIGKILL
    assert cluster.workers[1].poll() is None
    assert (state.done, state.computed, state.errors) == (48, 48, 0)
    assert table(folder) == table(tmp_path / "here")
    assert bundles(folder) == bundles(tmp_path / "here")


def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "ANSWER", 0.5)
    for address in ("tcp://127.0.0.1:1", "nonsense:"):
        with (
            pytest.raises(InputError, match=f"no Dask scheduler answers at '{address}'"),
            dask_workers(address, 0, "cpu"),
        ):
            pass
