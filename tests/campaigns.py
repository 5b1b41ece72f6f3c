"""Campaigns for tests: tiny networks, a few images, and what a run folder holds."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bnncert
from bnncert import mlp, save_posterior
from bnncert.campaign.executors import Workers, in_process
from bnncert.campaign.plan import Plan, make_plan
from bnncert.campaign.progress import Progress
from bnncert.campaign.runner import Runner
from bnncert.campaign.schema import read_campaign
from bnncert.campaign.store import STORE, open_store
from bnncert.campaign.work import Computed, Task, compute
from bnncert.posteriors import Normal
from scenarios import gaussian

INPUTS = 12
ITEMS = 2 * INPUTS * 2  # posteriors, inputs, radii
COMPARED = (
    "posterior, input, spec, method, config, version, "
    "status, predicted, lower, upper, bound_calls, member, reason"
)


def write_campaign(folder: Path, **changes: Any) -> Path:
    """Two posteriors, 12 images, two radii, two methods and a threshold: 48 items in 8 chunks."""
    network = mlp(4, 6, 3)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(2))
    for name, std in (("narrow", 0.02), ("wide", 0.12)):
        save_posterior(
            folder / f"{name}.safetensors", network, Normal(mean, torch.full_like(mean, std))
        )
    x = np.random.default_rng(0).integers(0, 256, (INPUTS, 2, 2), np.uint8)
    y = network.forward(mean, torch.from_numpy(x.reshape(INPUTS, 4) / 255.0)).argmax(-1).numpy()
    np.savez(folder / "x.npz", x=x, y=y)
    settings = {
        "inputs": "x.npz",
        "eps": [0.02, 0.2],
        "posteriors": ["narrow.safetensors", "wide.safetensors"],
        "methods": [{"name": "concentration", "effort": [0, 1]}],
        "at_least": 0.9,
        "chunk": 3,
    }
    path = folder / "campaign.toml"
    lines = [
        f"{key} = {toml(value)}\n"
        for key, value in (settings | changes).items()
        if value is not None
    ]
    path.write_text("".join(lines))
    return path


def toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def plan_of(path: Path) -> Plan:
    return make_plan(read_campaign(path))


def run_here(
    path: Path, folder: Path, workers: Workers | None = None, part: tuple[int, int] = (1, 1)
) -> Progress:
    """The campaign, without the command line."""
    plan = plan_of(path)
    with open_store(folder, create=True) as store:
        store.enter(plan)
        return Runner(plan, store, workers or in_process(), "cpu", lambda _: None).run(
            plan.chunks(*part)
        )


def table(folder: Path) -> list[tuple[Any, ...]]:
    """All that is stored but for times and the names of bundles."""
    with sqlite3.connect(folder / STORE) as connection:
        rows = connection.execute(
            f"SELECT {COMPARED}, reason FROM results ORDER BY {COMPARED}"
        ).fetchall()
    connection.close()
    return rows


def bundles(folder: Path) -> set[str]:
    return {path.name for path in (folder / "bundles").iterdir()}


def environment() -> dict[str, str]:
    """In which a new interpreter finds this package, and these tests."""
    paths = [str(Path(bnncert.__file__).parents[1]), str(Path(__file__).parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bnncert", *map(str, arguments)]


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """`bnncert ARGUMENTS` as a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(*arguments), env=environment(), **(pipes | options))


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


class Instead(Executor):
    """An executor whose tasks are computed by something else than `compute`."""

    def __init__(self, inner: Executor, instead: Callable[[Task], Computed]) -> None:
        self.inner, self.instead = inner, instead

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert fn is compute
        return self.inner.submit(self.instead, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.inner.shutdown(wait, cancel_futures=cancel_futures)


def dying(task: Task) -> Computed:
    """The process is killed, as by the kernel when memory is short, over any chunk with input 5."""
    if 5 in task.indices:
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(task)
