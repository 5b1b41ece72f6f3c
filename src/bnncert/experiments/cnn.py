"""Convolutional networks on CIFAR10 at ε of 0 to 2/255: concentration, PIE and GIE (10 bound
calls), the ceiling."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.data import load_inputs
from bnncert.errors import InputError
from bnncert.experiments.plots import draw_bars
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import ceiling, certified
from bnncert.importers import load_posterior
from bnncert.methods import GIE, PIE, Concentration, Method
from bnncert.model.problem import Problem
from bnncert.model.specification import ball, class_robust
from bnncert.zoo.recipes import posterior_path

NETWORKS = ("cnn", "cnn-bayesian")
STEPS = (0, 1, 2)
METHODS: dict[str, Method] = {
    "PIE": PIE(samples=10, budget=10),
    "GIE": GIE(samples=10, budget=10),
    "concentration": Concentration(upper=True),
}
DRAWN = 20


def cells(setting: Setting) -> list[Cell]:
    names = NETWORKS[:1] if setting.quick else NETWORKS
    return [
        Cell(f"{name} {steps}/255 {method}", partial(_rows, setting, name, steps, method))
        for name in names
        for steps in STEPS
        for method in (*METHODS, "ceiling")
    ]


def _rows(setting: Setting, name: str, steps: int, method: str) -> list[Row]:
    network, posterior = load_posterior(posterior_path(name))
    data = load_inputs("cifar10")
    count = 2 if setting.quick else 50
    if data.y is None:
        raise InputError("data set 'cifar10' came without labels; get it again")
    specification = class_robust(
        ball(data.x[:count], steps / 255, clip=(0, 1)), data.y[:count], network.outputs
    )
    problem = Problem(network, posterior, specification).to(setting.device)
    found = (
        certified(problem, METHODS[method])
        if method in METHODS
        else {"lower": ceiling(problem, DRAWN)}
    )
    return [{"network": name, "eps": f"{steps}/255", "method": method, "images": count, **found}]


def draw(rows: list[Row]) -> Figure:
    values = {
        method: {
            f"{row['network']}\n{row['eps']}": row["lower"]
            for row in rows
            if row["method"] == method
        }
        for method in (*METHODS, "ceiling")
    }
    return draw_bars(values, "mean certified P_safe, %", "Convolutional networks on CIFAR10")


CNN = Experiment("convolutional networks on CIFAR10 (not part of all: hours on a CPU)", cells, draw)
