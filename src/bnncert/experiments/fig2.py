"""The paper's Figure 2: the region that each method covers, cut by a plane through weight space,
for one image.

The plane moves the two weights that the image's smallest margin depends on most, in units of their
standard deviation; all others stay at the posterior mean. Each method has its one box around the
mean, with at most 50 bound calls.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from bnncert._certify import certify
from bnncert.bounds import BOUNDS
from bnncert.boxes.growth import grow
from bnncert.experiments.plots import draw_covers
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import BOX_METHODS, SEED, first
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.posteriors.independent import Normal

SIDE = 31  # networks along each side of the plane


def cells(setting: Setting) -> list[Cell]:
    return [Cell("one image", partial(_covered, setting))]


def _covered(setting: Setting) -> list[Row]:
    subject = first(setting)
    everyone = subject.problem(setting.device)
    image = _image(everyone)
    problem = everyone[image : image + 1]
    axes = _axes(problem)
    rows = []
    reach = 1.0
    for name, method in BOX_METHODS.items():
        lower, box = _box(problem, name)
        sides = [_in_sigmas(problem, box, axis) for axis in axes] if box is not None else []
        reach = max(reach, *(abs(end) for side in sides for end in side), 1.0)
        rectangle = [[*sides[0], *sides[1]]] if sides else []
        rows.append(
            {
                "network": subject.name,
                "image": image,
                "method": name,
                "lower": lower,
                "boxes": rectangle,
            }
        )
        rows[-1] |= {"weights": axes, "step": method.step}
    extent = 1.25 * reach
    safe = _safe(problem, axes, extent)
    return [row | {"extent": extent, "safe": safe} for row in rows]


def _image(problem: Problem) -> int:
    """The first image whose box carries some mass but not all of it.

    Failing that, one with any mass, or one the mean gets right.
    """
    masses = [result.lower for result in certify(problem, BOX_METHODS["PIE"], seed=SEED)]
    right: list[int] = (~problem.misclassified()).nonzero().flatten().tolist()
    partly = [i for i, mass in enumerate(masses) if 0.01 < mass < 0.999]
    return [*partly, *(i for i, mass in enumerate(masses) if mass > 0.01), *right, 0][0]


def _axes(problem: Problem) -> list[int]:
    """The two weights with the largest |gradient| σ of the smallest margin."""
    mean = problem.posterior.center.clone().requires_grad_()
    torch.autograd.backward(problem.margins(mean).min())
    if mean.grad is None:
        raise TypeError("margins depend on the weights")
    return (mean.grad.abs() * _normal(problem).std).topk(2).indices.tolist()


def _box(problem: Problem, name: str) -> tuple[float, Box | None]:
    plan = BOX_METHODS[name].plan()
    found, _ = grow(problem, plan, SEED)
    if not found[0]:
        return 0.0, None
    box = found[0][0].box(plan.growth, _normal(problem).spread)
    return float(_normal(problem).log_mass(box).exp()), box


def _in_sigmas(problem: Problem, box: Box, weight: int) -> list[float]:
    mean, std = _normal(problem).mean[weight], _normal(problem).std[weight]
    return [float((end[weight] - mean) / std) for end in (box.lower, box.upper)]


def _safe(problem: Problem, axes: list[int], extent: float) -> list[list[bool]]:
    """Which networks of the plane a linear bound proves safe, rows by the second weight."""
    posterior = _normal(problem)
    spec = problem.specification
    ticks = torch.linspace(-extent, extent, SIDE, dtype=torch.float64).tolist()
    return [
        [_proved(problem, _moved(posterior, axes, (a, b)), spec.rows) for a in ticks] for b in ticks
    ]


def _moved(posterior: Normal, axes: list[int], sigmas: tuple[float, float]) -> Tensor:
    weights = posterior.mean.clone()
    for weight, distance in zip(axes, sigmas, strict=True):
        weights[weight] += distance * posterior.std[weight]
    return weights


def _proved(problem: Problem, weights: Tensor, rows: Tensor) -> bool:
    spec = problem.specification
    return bool(
        (
            BOUNDS["lbp"](problem.network, Box.point(weights), spec.region, rows, spec.offsets) > 0
        ).all()
    )


def _normal(problem: Problem) -> Normal:
    if not isinstance(problem.posterior, Normal):
        raise TypeError("subjects have independent Gaussian posteriors")
    return problem.posterior


def draw(rows: list[Row]) -> Figure:
    extent = (-rows[0]["extent"], rows[0]["extent"])
    covers = {
        row["method"]: (
            row["boxes"],
            [(0.0, 0.0)],  # all grow from the mean
            f"P ≥ {row['lower']:.3f}" if row["boxes"] else "no safe box",
        )
        for row in rows
    }
    subject = f"{rows[0]['network']}, image {rows[0]['image']}"
    title = f"{subject}: covered part of a plane through weight space"
    labels = tuple(f"weight {weight}, in σ" for weight in rows[0]["weights"])
    return draw_covers(covers, np.array(rows[0]["safe"]), extent, title, (labels[0], labels[1]))


FIG2 = Experiment("the part of weight space each method covers, for one image", cells, draw)
