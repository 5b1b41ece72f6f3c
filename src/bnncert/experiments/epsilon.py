"""Certified lower and upper bounds against ε for all methods, with the empirical ceiling."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import BOX_METHODS, Subject, compared, first, lines_against
from bnncert.methods import Concentration, Method

FACTORS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
METHODS: dict[str, Method] = {
    **BOX_METHODS,
    "concentration": Concentration(upper=True),
}


def cells(setting: Setting) -> list[Cell]:
    subject = first(setting)
    factors = FACTORS[::2] if setting.quick else FACTORS
    return [
        Cell(f"{subject.name} {factor:g}", partial(_rows, subject, setting, factor))
        for factor in factors
    ]


def _rows(subject: Subject, setting: Setting, factor: float) -> list[Row]:
    problem = subject.problem(setting.device, factor * subject.eps)
    own = {"network": subject.name, "eps": factor * subject.eps}
    return compared(problem, METHODS, own, setting.drawn)


def draw(rows: list[Row]) -> Figure:
    lines = lines_against(rows, "eps", METHODS)
    title = f"{rows[0]['network']}: bounds against ε"
    return draw_lines(lines, "ε", "mean P_safe, %", title)


EPSILON = Experiment("certified bounds of all methods against ε, with the ceiling", cells, draw)
