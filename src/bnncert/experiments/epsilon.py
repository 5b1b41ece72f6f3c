"""Certified lower and upper bounds against ε for all methods, with the empirical ceiling."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import BOX_METHODS, Subject, ceiling, certified, first
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
    found = [
        own | {"method": name} | certified(problem, method) for name, method in METHODS.items()
    ]
    return [*found, own | {"method": "ceiling", "lower": ceiling(problem, setting.drawn)}]


def draw(rows: list[Row]) -> Figure:
    lines = {
        name: [(row["eps"], row["lower"]) for row in rows if row["method"] == name]
        for name in (*METHODS, "ceiling")
    }
    upper = [(row["eps"], row["upper"]) for row in rows if row["method"] == "concentration"]
    return draw_lines(
        lines | {"certified upper bound": upper},
        "ε",
        "mean P_safe, %",
        f"{rows[0]['network']}: bounds against ε",
    )


EPSILON = Experiment("certified bounds of all methods against ε, with the ceiling", cells, draw)
