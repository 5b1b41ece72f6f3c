"""Figures, drawn from result values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

Rectangles = Sequence[tuple[float, float, float, float]]  # left, right, bottom, top
SAFE, BOX, EDGE, INK = "#dbe9f6", "#e8833a", "#8c3d00", "#333333"


def draw_covers(
    covers: Mapping[str, tuple[Rectangles, float]],
    safe: NDArray[np.bool_],
    extent: tuple[float, float],
    title: str,
) -> Figure:
    """One panel a method: the safe set of two weights, the boxes that cover it and the mass they certify.

    safe: [n, n] on a regular grid over extent × extent, rows by the second weight.
    """
    figure = Figure(figsize=(3.1 * len(covers), 3.5), layout="constrained")
    axes = figure.subplots(1, len(covers), sharey=True, squeeze=False)[0]
    low, high = extent
    for axis, (name, (rectangles, mass)) in zip(axes, covers.items(), strict=True):
        axis.contourf(
            np.linspace(low, high, len(safe)), np.linspace(low, high, len(safe)), safe, [0.5, 1], colors=[SAFE]
        )
        for left, right, bottom, top in rectangles:
            axis.add_patch(Rectangle((left, bottom), right - left, top - bottom, fc=BOX, ec=EDGE, alpha=0.45, lw=1.2))
            axis.plot((left + right) / 2, (bottom + top) / 2, ".", color=INK, ms=4)
        axis.set(xlim=extent, ylim=extent, aspect="equal", xlabel="$w_1$", title=f"{name}: P ≥ {mass:.3f}")
    axes[0].set_ylabel("$w_2$")
    figure.suptitle(title, fontsize=11)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """The figure as PATH.svg and PATH.png, the same bytes for the same rows."""
    for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
        figure.savefig(path.with_suffix(suffix), dpi=150, metadata=metadata)


def draw_noise(sd: float, gaussian_reach: float, box_reach: float, title: str) -> Figure:
    """A neuron's weight noise: its density, the interval that holds it, and the interval that a weight box gives."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axis = figure.subplots()
    z = np.linspace(-1.15 * box_reach, 1.15 * box_reach, 2001)
    density = np.exp(-((z / sd) ** 2) / 2)
    axis.fill_between(z, density, color=SAFE, ec="#3b75af", lw=1.2)
    for height, reach, colour, label in (
        (1.12, gaussian_reach, "#3b75af", "the sum itself"),
        (1.3, box_reach, BOX, "every weight in its interval at once"),
    ):
        axis.annotate(
            "", (-reach, height), (reach, height), arrowprops={"arrowstyle": "<->", "color": colour, "lw": 1.8}
        )
        axis.text(0, height + 0.03, f"{label}: ± {reach:.3f}", ha="center", va="bottom", color=colour, fontsize=9)
    axis.set(ylim=(0, 1.5), yticks=[], xlabel="noise of the pre-activation", title=title)
    axis.spines[["left", "top", "right"]].set_visible(False)
    return figure
