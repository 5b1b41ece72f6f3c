"""The paper's Figure 3: what GIE certifies against ρ, the extra growth along the gradient."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import Subject, certified, several
from bnncert.methods import GIE

RHOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


def cells(setting: Setting) -> list[Cell]:
    rhos = RHOS[::2] if setting.quick else RHOS
    return [
        Cell(f"{each.name} {rho:g}", partial(_row, each, setting, rho))
        for each in several(setting)
        for rho in rhos
    ]


def _row(subject: Subject, setting: Setting, rho: float) -> list[Row]:
    found = certified(subject.problem(setting.device), GIE(samples=1, rho=rho))
    return [{"network": subject.name, "eps": subject.eps, "rho": rho, **found}]


def draw(rows: list[Row]) -> Figure:
    lines = {
        f"{name}, ε = {next(row['eps'] for row in rows if row['network'] == name):g}": [
            (row["rho"], row["lower"]) for row in rows if row["network"] == name
        ]
        for name in dict.fromkeys(row["network"] for row in rows)
    }
    return draw_lines(lines, "ρ", "mean certified P_safe, %", "GIE against ρ; ρ = 0 is PIE")


FIG3 = Experiment("GIE against ρ", cells, draw)
