"""The certified interval closing over time: branch and bound at four times the paper's radius."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import torch
from matplotlib.figure import Figure
from torch import Tensor

from bnncert.concentration.method import gaussian_components
from bnncert.concentration.proof import prove
from bnncert.concentration.refine import Limits, refine
from bnncert.concentration.upper import refute
from bnncert.experiments.plots import draw_intervals
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import SEED, Subject, subjects
from bnncert.model.problem import Problem

FACTOR = 4
SECONDS = 60.0
NODES = 10**6


@dataclass(frozen=True)
class Closing:
    """Mean bounds in percent by the seconds after which they were known.

    Also the domains bounded, and seconds of search; for each input the point [B, *shape] of its
    certified upper bound, the clean input where there is none.
    """

    history: list[tuple[float, float, float]]
    domains: int
    searching: float
    points: Tensor


@torch.no_grad()
def closing(problem: Problem, seconds: float, rule: str = "both") -> Closing:
    """Attack, prove, refine, refute again, as Concentration(effort=3, upper=True) does, with the
    bounds over time.

    Points that the search finds enter the upper bound at the end.
    """
    _, (posterior,) = gaussian_components(problem)
    start = time.perf_counter()
    history = list[tuple[float, float, float]]()
    refuted = refute(problem, posterior, SEED)
    upper = [found.upper if found else 1.0 for found in refuted]
    left = [i for i, found in enumerate(refuted) if found is None]
    part = problem[torch.tensor(left, dtype=torch.int64, device=problem.specification.rows.device)]

    def note(lower: Tensor) -> None:
        ends = (float(lower.sum()), sum(upper))
        history.append((time.perf_counter() - start, *(100 * end / len(problem) for end in ends)))  # type: ignore[arg-type]

    proofs = prove(part, posterior, 1)
    note(torch.tensor([proof.bound for proof in proofs], dtype=torch.float64))
    began = time.perf_counter()
    found = refine(
        part, posterior, proofs, Limits(NODES, max(0.0, start + seconds - began), rule=rule), note
    )
    searching = time.perf_counter() - began
    broken = sorted(found.counterexamples)
    if broken:
        points = torch.stack([found.counterexamples[i] for i in broken])
        again = refute(part[torch.tensor(broken, device=points.device)], posterior, SEED, points)
        for i, refutation in zip(broken, again, strict=True):
            refuted[left[i]] = refutation
            upper[left[i]] = refutation.upper if refutation else 1.0
    note(torch.tensor([proof.bound for proof in found.proofs], dtype=torch.float64))
    clean = problem.specification.region.center
    worst = torch.stack(
        [
            known.point.to(clean.device) if known and known.point is not None else clean[i]
            for i, known in enumerate(refuted)
        ]
    )
    return Closing(history, sum(found.domains), searching, worst)


def cells(setting: Setting) -> list[Cell]:
    names = ("2x50",) if setting.quick else ("1x128", "1x512", "2x50")
    return [
        Cell(subject.name, partial(_rows, subject, setting)) for subject in subjects(setting, names)
    ]


def _rows(subject: Subject, setting: Setting) -> list[Row]:
    problem = subject.problem(setting.device, FACTOR * subject.eps)
    found = closing(problem, 5.0 if setting.quick else SECONDS)
    own = {"network": subject.name, "eps": FACTOR * subject.eps, "domains": found.domains}
    return [
        own | {"seconds": s, "lower": lower, "upper": upper} for s, lower, upper in found.history
    ]


def draw(rows: list[Row]) -> Figure:
    intervals: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        points = intervals.setdefault(f"{row['network']}, ε = {row['eps']:g}", [])
        points.append((row["seconds"], row["lower"], row["upper"]))
    return draw_intervals(
        intervals, "seconds", "mean P_safe, %", "The certified interval closing over time"
    )


REFINEMENT = Experiment(
    "the certified interval closing over time, by branch and bound", cells, draw
)
