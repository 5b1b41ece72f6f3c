"""Certified bounds against the width of the posterior: every σ times a factor."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import Subject, compared, first, lines_against
from bnncert.methods import GIE, Concentration, Method

SCALES = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 200.0, 400.0)
METHODS: dict[str, Method] = {"GIE": GIE(samples=1), "concentration": Concentration(upper=True)}


def cells(setting: Setting) -> list[Cell]:
    subject = first(setting)
    scales = SCALES[1::2] if setting.quick else SCALES
    return [
        Cell(f"{subject.name} {scale:g}", partial(_rows, subject, setting, scale))
        for scale in scales
    ]


def _rows(subject: Subject, setting: Setting, scale: float) -> list[Row]:
    problem = subject.problem(setting.device, scale=scale)
    own = {"network": subject.name, "eps": subject.eps, "scale": scale}
    return compared(problem, METHODS, own, setting.drawn)


def draw(rows: list[Row]) -> Figure:
    lines = lines_against(rows, "scale", METHODS)
    subject = f"{rows[0]['network']}, ε = {rows[0]['eps']:g}"
    title = f"{subject}: bounds against the width of the posterior"
    return draw_lines(lines, "every σ times", "mean P_safe, %", title, logarithmic="x")


SIGMA = Experiment("certified bounds against the width of the posterior", cells, draw)
