"""Certified bounds against the width of the posterior: every σ times a factor."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import Subject, ceiling, certified, first
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
    found = [
        own | {"method": name} | certified(problem, method) for name, method in METHODS.items()
    ]
    return [*found, own | {"method": "ceiling", "lower": ceiling(problem, setting.drawn)}]


def draw(rows: list[Row]) -> Figure:
    lines = {
        name: [(row["scale"], row["lower"]) for row in rows if row["method"] == name]
        for name in (*METHODS, "ceiling")
    }
    upper = [(row["scale"], row["upper"]) for row in rows if row["method"] == "concentration"]
    title = (
        f"{rows[0]['network']}, ε = {rows[0]['eps']:g}: bounds against the width of the posterior"
    )
    return draw_lines(
        lines | {"certified upper bound": upper},
        "every σ times",
        "mean P_safe, %",
        title,
        logarithmic="x",
    )


SIGMA = Experiment("certified bounds against the width of the posterior", cells, draw)
