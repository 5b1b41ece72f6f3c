"""Concentration at one, two and four times the paper's radius, with upper bound and ceiling."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_bars
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import PAPER, Subject, ceiling, certified, subjects
from bnncert.methods import Concentration

FACTORS = (1, 2, 4)


def cells(setting: Setting) -> list[Cell]:
    names = (
        ("1x128", "2x50") if setting.quick else tuple(name for name in PAPER if PAPER[name].eps > 0)
    )
    return [
        Cell(f"{subject.name} {factor}", partial(_rows, subject, setting, factor))
        for subject in subjects(setting, names)
        for factor in FACTORS
    ]


def _rows(subject: Subject, setting: Setting, factor: int) -> list[Row]:
    eps = factor * subject.eps
    problem = subject.problem(setting.device, eps)
    found = certified(problem, Concentration(upper=True))
    return [
        {"network": subject.name, "eps": eps, **found, "ceiling": ceiling(problem, setting.drawn)}
    ]


def draw(rows: list[Row]) -> Figure:
    values = {
        name: {f"{row['network']}\n{row['eps']:g}": row[field] for row in rows}
        for name, field in (
            ("concentration", "lower"),
            ("certified upper bound", "upper"),
            ("ceiling", "ceiling"),
        )
    }
    return draw_bars(
        values, "mean P_safe, %", "Concentration at 1, 2 and 4 times the paper's radius"
    )


RADII = Experiment("concentration at 1, 2 and 4 times the paper's radius", cells, draw)
