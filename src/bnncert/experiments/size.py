"""Seconds per image against the size of the network.

784 inputs, ten outputs, untrained weights, σ = 1e-4, ε = 0.001.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import certified
from bnncert.methods import PIE, Concentration, Method
from bnncert.model.network import mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import ball, class_robust
from bnncert.posteriors.independent import Normal

WIDTHS = (32, 64, 128, 256, 512)
DEPTHS = (1, 2, 3)
METHODS: dict[str, Method] = {
    "PIE": PIE(samples=1, budget=10),
    "concentration": Concentration(effort=0),
}
INPUTS = 784
CLASSES = 10
SEED = 0


def cells(setting: Setting) -> list[Cell]:
    widths, depths = (WIDTHS[:3], DEPTHS[:2]) if setting.quick else (WIDTHS, DEPTHS)
    sizes = [(depth, width) for depth in depths for width in widths]
    return [
        Cell(f"{depth}x{width}", partial(_rows, setting, depth, width)) for depth, width in sizes
    ]


def _rows(setting: Setting, depth: int, width: int) -> list[Row]:
    problem = _problem(depth, width, setting.images).to(setting.device)
    own = {"depth": depth, "width": width, "weights": problem.network.size, "images": len(problem)}
    return [own | {"method": name} | certified(problem, method) for name, method in METHODS.items()]


def _problem(depth: int, width: int, images: int) -> Problem:
    """Each image's class is the one the mean network gives it."""
    generator = torch.Generator().manual_seed(SEED)
    network = mlp(INPUTS, *[width] * depth, CLASSES)
    mean = torch.zeros(network.size, dtype=torch.float64)
    for means in network.split(mean):
        if means:
            means[0].normal_(0, math.sqrt(2 / means[0].shape[0]), generator=generator)
    x = torch.rand(images, INPUTS, generator=generator, dtype=torch.float64)
    y = network.forward(mean, x).argmax(-1)
    posterior = Normal(mean, torch.full_like(mean, 1e-4))
    return Problem(network, posterior, class_robust(ball(x, 1e-3, clip=(0, 1)), y, CLASSES))


def draw(rows: list[Row]) -> Figure:
    kinds = dict.fromkeys((row["method"], row["depth"]) for row in rows)
    lines = {
        f"{method}, {depth} hidden": [
            (row["width"], row["seconds"])
            for row in rows
            if (row["method"], row["depth"]) == (method, depth)
        ]
        for method, depth in kinds
    }
    return draw_lines(
        lines, "neurons a layer", "seconds an image", "Time against network size", logarithmic="xy"
    )


SIZE = Experiment("time against network size", cells, draw)
