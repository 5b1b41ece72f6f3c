"""The paper's runtime comparison: what GIE's gradients cost beside the bound calls."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from matplotlib.figure import Figure

from bnncert.bounds import BOUNDS
from bnncert.boxes.growth import gradient_signs, independent
from bnncert.experiments.plots import draw_bars
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import PAPER, Subject, subjects
from bnncert.model.box import Box

REPEATS = 5
CALLS = 50  # bound calls per image, as everywhere


def cells(setting: Setting) -> list[Cell]:
    names = ("1x128", "2x50") if setting.quick else tuple(PAPER)
    return [
        Cell(subject.name, partial(_rows, subject, setting)) for subject in subjects(setting, names)
    ]


def _rows(subject: Subject, setting: Setting) -> list[Row]:
    problem = subject.problem(setting.device)
    posterior = independent(problem)
    spec = problem.specification
    weights = Box(posterior.center - posterior.spread, posterior.center + posterior.spread)
    arguments = (problem.network, weights, spec.region, spec.rows, spec.offsets)
    gradient = _seconds(lambda: gradient_signs(problem, posterior.center), setting.device)
    found = []
    forward = [] if "cnn" in subject.name else ["lbp-forward"]
    for bound in ("lbp", *forward):
        call = _seconds(partial(BOUNDS[bound], *arguments), setting.device)
        row = {
            "network": subject.name,
            "bound": bound,
            "images": len(problem),
            "gradient seconds": gradient,
        }
        found.append(row | {"call seconds": call, "overhead": 100 * gradient / (CALLS * call)})
    return found


def _seconds(compute: Callable[[], object], device: str) -> float:
    """The median of a few runs, the first not counted."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        compute()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def draw(rows: list[Row]) -> Figure:
    values = {
        bound: {row["network"]: row["overhead"] for row in rows if row["bound"] == bound}
        for bound in dict.fromkeys(row["bound"] for row in rows)
    }
    return draw_bars(
        values, "% of the time of 50 bound calls", "What GIE's gradient costs, by bound"
    )


RUNTIME = Experiment("overhead of GIE's gradients", cells, draw)
