"""Campaigns: throughput with certificates and storage, overhead, several processes, and how the
cost grows.

usage: BNNCERT_DATA=FOLDER python benchmarks/campaign.py MODE ...

    test-set [cpu|cuda] [IMAGES] [WORKERS] [EFFORT]
                            the paper's six networks x three radii, end to end; 10,000 images
    overhead [IMAGES]       a campaign against calling certify on the same chunks
    parallel [IMAGES]       two processes and two Dask workers against one process
    certificates [IMAGES]   size of a certificate, and milliseconds to make and to store it
    growth [FIGURE]         seconds per input over inputs, width and depth (random networks)

Every campaign runs in a folder of its own that is removed; seconds are of the whole run: reading
the files, planning, bounds, certificates, SQLite, and every fsync.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray
from paper import EPS, load

from bnncert import Concentration, certify, mlp, save_posterior
from bnncert.campaign.executors import Workers, dask_workers, in_process, processes
from bnncert.campaign.plan import make_plan
from bnncert.campaign.runner import Runner
from bnncert.campaign.schema import read_campaign
from bnncert.campaign.store import open_store
from bnncert.campaign.table import write_results
from bnncert.data import FOLDER, load_inputs
from bnncert.posteriors import Normal

RADII = (0.001, 0.01, 0.025)
CHUNK = {"cpu": 128, "cuda": 2000}


@dataclass(frozen=True)
class Measured:
    """A campaign that came to its end.

    processor: time of this process and of those it started that have ended. rate: items a second
    once the workers are up, from the first stored chunk to the last.
    """

    seconds: float
    processor: float
    rate: float
    items: int
    certificates: int
    bytes: int
    mean: float
    errors: int


def measure(
    settings: dict[str, Any],
    device: str = "cpu",
    workers: AbstractContextManager[Workers] | None = None,
) -> Measured:
    """Run a campaign in a temporary folder, results.jsonl included."""
    with tempfile.TemporaryDirectory() as name, workers or nullcontext(in_process()) as chosen:
        path = Path(name) / "campaign.toml"
        folder = Path(name) / "run"
        path.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in settings.items()))
        started = _clocks()
        plan = make_plan(read_campaign(path))
        with open_store(folder, create=True) as store:
            store.enter(plan)
            steps: list[tuple[float, int]] = []
            show = lambda state: steps.append((time.perf_counter(), state.done))  # noqa: E731
            state = Runner(plan, store, chosen, device, show).run(plan.chunks())
            write_results(store)
            seconds, processor = _clocks() - started
            certificates = store.connection.execute("SELECT count(member) FROM results").fetchone()[
                0
            ]
        size = sum(file.stat().st_size for file in (folder / "bundles").iterdir())
        rate = (steps[-1][1] - steps[0][1]) / max(steps[-1][0] - steps[0][0], 1e-9)
        return Measured(
            float(seconds),
            float(processor),
            rate,
            state.done,
            certificates,
            size,
            state.mean,
            state.errors,
        )


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_toml(entry)}' for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, (str, Path)) else repr(value)


def paper(
    images: int, names: tuple[str, ...], eps: tuple[float, ...], effort: int, device: str
) -> dict[str, Any]:
    """The settings of a campaign on the paper's networks."""
    folder = Path(os.environ[FOLDER]).resolve() / "posteriors"
    return {
        "inputs": "mnist",
        "select": f"0:{images}",
        "eps": eps,
        "posteriors": {name: folder / f"paper_{name}.npz" for name in names},
        "methods": [{"name": "concentration", "effort": effort}],
        "chunk": CHUNK[device],
    }


def whole_test_set(
    device: str = "cpu", images: str = "10000", workers: str = "0", effort: str = "0"
) -> None:
    name = (
        torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    chosen = processes(int(workers), device) if int(workers) else in_process()
    settings = paper(int(images), tuple(EPS), RADII, int(effort), device)
    found = measure(settings, device, nullcontext(chosen))
    print(
        f"{name}, torch {torch.__version__}, {workers} worker processes, "
        f"effort {effort}, radii {RADII}"
    )
    print(
        f"{found.items} items, {found.certificates} certificates, {found.bytes / 1e9:.2f} GB, "
        f"{found.errors} errors"
    )
    print(f"mean certified {100 * found.mean:.2f} %")
    print(f"total {found.seconds:.1f} s, {found.items / found.seconds:.0f} items a second")


def overhead(images: str = "512", repeats: str = "3") -> None:
    """The same chunks by `certify`, which drops its results, and by a campaign.

    The campaign stores them and their certificates. Processor time as well as time on the wall, and
    the least of some repeats taken in turn: other programs only ever make a run longer.
    """
    torch.set_num_threads(1)
    print("| network | eps | effort | certify, s | campaign, s | ratio | ratio of processor time |")
    print("|---|---|---|---|---|---|---|")
    for name, effort in (
        ("1x128", 0),
        ("1x512", 0),
        ("2x50", 0),
        ("2x150", 0),
        ("1x128", 1),
        ("2x50", 1),
    ):
        count = int(images) // (4 if effort or name == "2x150" else 1)
        settings = paper(count, (name,), (EPS[name],), effort, "cpu")
        problem = load(name, count)
        method = Concentration(effort)
        parts = range(0, count, CHUNK["cpu"])
        direct = []
        stored = []
        for _ in range(int(repeats)):
            started = _clocks()
            for start in parts:
                certify(problem[start : start + CHUNK["cpu"]], method)
            direct.append(_clocks() - started)
            stored.append(_stored_seconds(settings))
        (wall, cpu), (wall_stored, cpu_stored) = np.min(direct, 0), np.min(stored, 0)
        numbers = (
            f"{wall:.2f} | {wall_stored:.2f} | {wall_stored / wall:.3f} | {cpu_stored / cpu:.3f}"
        )
        print(f"| {name} | {EPS[name]} | {effort} | {numbers} |", flush=True)


def _clocks() -> NDArray[np.float64]:
    """On the wall, and of the processors."""
    used = os.times()
    return np.array(
        [time.perf_counter(), used.user + used.system + used.children_user + used.children_system]
    )


def _stored_seconds(settings: dict[str, Any]) -> NDArray[np.float64]:
    """Of computing and storing alone: what is read and planned before is left out."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "campaign.toml"
        path.write_text("".join(f"{key} = {_toml(value)}\n" for key, value in settings.items()))
        plan = make_plan(read_campaign(path))
        with open_store(Path(name) / "run", create=True) as store:
            store.enter(plan)
            started = _clocks()
            Runner(plan, store, in_process(), "cpu", lambda _: None).run(plan.chunks())
            return _clocks() - started


def parallel(images: str = "256") -> None:
    """One thread per process, whichever way.

    Starting processes takes seconds, once: the rate is without it. Whether the machine had two
    processors to give is told too; those that Dask's workers used are not seen from here.
    """
    settings = paper(int(images), ("2x50", "2x150"), (0.001, 0.01), 0, "cpu") | {"chunk": 16}
    ways: dict[str, Callable[[], AbstractContextManager[Workers]]] = {
        "this process, one thread": lambda: nullcontext(in_process()),
        "two processes": lambda: nullcontext(processes(2, "cpu")),
        "Dask, two worker processes": lambda: dask_workers("local", 2, "cpu"),
    }
    torch.set_num_threads(1)
    alone = 0.0
    load = os.getloadavg()[0]
    print(f"load before: {load:.1f}")
    print(
        "| workers | seconds in all | processors it got | items a second | times as fast "
        "|\n|---|---|---|---|---|"
    )
    for name, workers in ways.items():
        found = measure(settings, "cpu", workers())
        alone = alone or found.rate
        got = found.processor / found.seconds
        print(
            (
                f"| {name} | {found.seconds:.1f} | {got:.1f} | "
                f"{found.rate:.1f} | {found.rate / alone:.2f} |"
            ),
            flush=True,
        )


def certificates(images: str = "200") -> None:
    """Of one thread: a certificate's bytes, and what it costs beside the bounds."""
    torch.set_num_threads(1)
    print(
        "| network | effort | KB a certificate | ms to write its bytes | ms to store it "
        "|\n|---|---|---|---|---|"
    )
    for name, effort in (
        ("1x128", 0),
        ("1x128", 1),
        ("1x512", 0),
        ("1x512", 1),
        ("2x50", 0),
        ("2x50", 1),
    ):
        count = int(images) // (2 if effort else 1)
        found = [
            r.certificate
            for r in certify(load(name, count, 2.0), Concentration(effort))
            if r.certificate
        ]
        started = time.perf_counter()
        contents = [certificate.content() for certificate in found]
        written = (time.perf_counter() - started) / len(found)
        size = sum(map(len, contents)) / len(contents)
        print(
            (
                f"| {name} | {effort} | {size / 1e3:.1f} | {1e3 * written:.2f} | "
                f"{1e3 * _storing(contents):.2f} |"
            ),
            flush=True,
        )


def _storing(contents: list[bytes]) -> float:
    """Seconds a certificate: a bundle, its fsync, and a transaction of its rows."""
    from bnncert.campaign.bundle import pack
    from bnncert.campaign.plan import Key
    from bnncert.campaign.store import stored_row
    from bnncert.campaign.work import Row

    spec = '{"clip":[0.0,1.0],"eps":"0x1.47ae147ae147bp-7","label":7,"norm":"linf","target":null}'
    with (
        tempfile.TemporaryDirectory() as name,
        open_store(Path(name) / "run", create=True) as store,
    ):
        started = time.perf_counter()
        bundle = pack((f"{k:06d}.safetensors", content) for k, content in enumerate(contents))
        keys = [
            Key("p" * 64, f"{k:064d}", spec, "concentration", '{"effort":0}', "0")
            for k in range(len(contents))
        ]
        rows = [
            Row(k, 0, "certified", 7, 0.5, 1.0, 1, 0.1, f"{k:06d}.safetensors")
            for k in range(len(contents))
        ]
        store.add(
            [stored_row(key, row, "b.zip") for key, row in zip(keys, rows, strict=True)],
            "b.zip",
            bundle,
        )
        return (time.perf_counter() - started) / len(contents)


GROWTH: dict[str, list[tuple[int, tuple[int, ...]]]] = {
    "inputs": [(count, (64, 64)) for count in (32, 64, 128, 256, 512)],
    "width": [(64, (width, width)) for width in (32, 64, 128, 256)],
    "depth": [(64, (64,) * depth) for depth in (1, 2, 3, 4)],
}


def growth(figure: str = "") -> None:
    """Random networks of 784 inputs: processor time of a campaign on one thread, along one
    direction at a time."""
    torch.set_num_threads(1)
    measured: dict[str, list[tuple[int, float]]] = {}
    print("| grows | value | inputs | hidden | seconds | ms an input |\n|---|---|---|---|---|---|")
    for name, cases in GROWTH.items():
        for count, hidden in cases:
            seconds = _random_network(count, hidden)
            value = {"inputs": count, "width": hidden[0], "depth": len(hidden)}[name]
            measured.setdefault(name, []).append((value, seconds))
            shape = "x".join(map(str, hidden))
            print(
                (
                    f"| {name} | {value} | {count} | {shape} | "
                    f"{seconds:.2f} | {1e3 * seconds / count:.1f} |"
                ),
                flush=True,
            )
    if figure:
        _draw(measured, Path(figure))


def _random_network(count: int, hidden: tuple[int, ...]) -> float:
    generator = torch.Generator().manual_seed(0)
    network = mlp(784, *hidden, 10)
    mean = torch.randn(network.size, generator=generator, dtype=torch.float64) / 28
    x = np.random.default_rng(0).integers(0, 256, (count, 784), np.uint8)
    labels = network.forward(mean, torch.from_numpy(x / 255.0)).argmax(-1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_posterior(folder / "p.safetensors", network, Normal(mean, torch.full_like(mean, 1e-3)))
        np.savez(folder / "x.npz", x=x, y=labels.numpy())
        settings = {
            "inputs": folder / "x.npz",
            "eps": 1e-3,
            "posteriors": [folder / "p.safetensors"],
            "chunk": 64,
        }
        return measure(settings | {"methods": [{"name": "concentration", "effort": 0}]}).processor


def _draw(measured: dict[str, list[tuple[int, float]]], path: Path) -> None:
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (name, points) in zip(axes, measured.items(), strict=True):
        axis.loglog(*zip(*points, strict=True), "o-")
        axis.set_xlabel(name)
        axis.set_xticks([value for value, _ in points], [str(value) for value, _ in points])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of one core")
    with rc_context({"svg.hashsalt": "scale"}):
        figure.savefig(path, metadata={"Date": None})


MODES = {
    "test-set": whole_test_set,
    "overhead": overhead,
    "parallel": parallel,
    "certificates": certificates,
    "growth": growth,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in MODES:
        sys.exit(__doc__)
    load_inputs("mnist")  # fails now rather than half-way
    MODES[sys.argv[1]](*sys.argv[2:])
