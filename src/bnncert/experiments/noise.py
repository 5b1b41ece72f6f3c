"""A neuron's weight noise as a box sees it and as it is: 784 inputs in [0, 1], each weight's
deviation N(0, 0.01²)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import norm

from bnncert.experiments.plots import draw_noise
from bnncert.experiments.run import Cell, Experiment, Row, Setting

SIGMA = 0.01
INPUTS = 784
FAILURE = 1e-3


def cells(_: Setting) -> list[Cell]:
    return [Cell("noise", _rows)]


def _rows() -> list[Row]:
    # Mostly dark, like an image.
    x = np.clip(np.random.default_rng(0).normal(-0.3, 0.6, INPUTS), 0, 1)
    # One tail of one weight, so that all hold together.
    each = -np.expm1(np.log1p(-FAILURE) / INPUTS) / 2
    sd = SIGMA * float(np.linalg.norm(x))
    reaches = {"gaussian_reach": float(norm.isf(FAILURE / 2)) * sd}
    return [
        {"sd": sd} | reaches | {"box_reach": float(norm.isf(each)) * SIGMA * float(np.abs(x).sum())}
    ]


def draw(rows: list[Row]) -> Figure:
    return draw_noise(**rows[0], title="Both hold with probability 99.9 %")


NOISE = Experiment("a pre-activation's noise, and what a weight box makes of it", cells, draw)
