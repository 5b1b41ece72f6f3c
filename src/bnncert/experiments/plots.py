"""Figures, drawn from result values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

Rectangles = Sequence[tuple[float, float, float, float]]  # left, right, bottom, top
Centres = Sequence[tuple[float, float]]  # from which the boxes grew; theirs need not be the middle
SAFE, BOX, INK = "#dbe9f6", "#e8833a", "#333333"
# One colour and mark a method in every figure, told apart by lightness and size too; what follows a
# comma in a name changes the line alone. Broken lines are no lower bounds.
COLOURS = {
    "sampling": "#b8b8b8",
    "PIE": "#e8b13a",
    "GIE": "#e8833a",
    "concentration": "#1f5a99",
    "ceiling": INK,
    "certified upper bound": "#7a1f3d",
    "as much as survives": INK,
}
MARKS = {"sampling": ("s", 9), "PIE": ("D", 7), "GIE": ("^", 5)}  # the larger ones lie below
BROKEN = {"ceiling": ":", "certified upper bound": "--", "as much as survives": "--"}
NAMED = {"ceiling": "attacked networks that survive (estimate)"}
TICKS = 9  # values of an axis that are labelled one by one
SPAN = 10  # of the axis of values that hardly differ
OTHERS = ("#4d8f5b", "#8b6fb3", "#2a9d9d", "#c2577e", "#a3762f", "#6f6f6f")  # of no method


def draw_covers(
    covers: Mapping[str, tuple[Rectangles, Centres, str]],
    safe: NDArray[np.bool_],
    extent: tuple[float, float],
    title: str,
    labels: tuple[str, str],
) -> Figure:
    """One panel a method: the safe set of two weights, the boxes that cover it and what that
    certifies.

    safe: [n, n] on a regular grid over extent × extent, rows by the second weight.
    """
    figure = Figure(figsize=(3.1 * len(covers), 3.5), layout="constrained")
    axes = figure.subplots(1, len(covers), sharey=True, squeeze=False)[0]
    low, high = extent
    for axis, (name, (rectangles, centres, caption)) in zip(axes, covers.items(), strict=True):
        axis.contourf(
            np.linspace(low, high, len(safe)),
            np.linspace(low, high, len(safe)),
            safe,
            [0.5, 1],
            colors=[SAFE],
        )
        for left, right, bottom, top in rectangles:
            box = Rectangle((left, bottom), right - left, top - bottom)
            box.set(facecolor=COLOURS[name], edgecolor=INK, alpha=0.55, linewidth=1.2)
            axis.add_patch(box)
        for across, up in centres:
            axis.plot(across, up, ".", color=INK, ms=5)
        axis.set(
            xlim=extent, ylim=extent, aspect="equal", xlabel=labels[0], title=f"{name}: {caption}"
        )
    axes[0].set_ylabel(labels[1])
    figure.suptitle(title, fontsize=11)
    return figure


def draw_lines(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    x: str,
    y: str,
    title: str,
    logarithmic: str = "",
    joined: bool = True,
) -> Figure:
    """One line per name through its points, or the points alone.

    `logarithmic` names the axes that are ("x", "xy").
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    kinds = list(dict.fromkeys(name.partition(",")[2] for name in lines))
    for k, (name, points) in enumerate(lines.items()):
        method, _, kind = name.partition(",")
        colour = COLOURS.get(method, OTHERS[k % len(OTHERS)])
        mark, size = MARKS.get(method, ("o", 3.5))
        line = ("-", "-.", ":")[kinds.index(kind) % 3 if method in COLOURS else 0] if joined else ""
        across, up = [p[0] for p in points], [p[1] for p in points]
        axis.plot(
            across,
            up,
            BROKEN.get(name, mark + line),
            color=colour,
            label=NAMED.get(name, name),
            lw=1.4 if name in BROKEN else 1.8,
            ms=size,
        )
    if "x" in logarithmic:
        axis.set_xscale("log")
        values = sorted({p[0] for points in lines.values() for p in points})
        if len(values) <= TICKS:
            axis.set_xticks(values, [f"{value:g}" for value in values])
            axis.set_xticks([], minor=True)
    if "y" in logarithmic:
        axis.set_yscale("log")
    elif 2 * min(values := [p[1] for points in lines.values() for p in points]) < max(values):
        axis.set_ylim(bottom=0)  # what lies close together is shown larger instead
    elif max(values) - min(values) < SPAN:
        middle = (max(values) + min(values)) / 2
        axis.set_ylim(middle - 0.6 * SPAN, middle + 0.6 * SPAN)
    axis.set(xlabel=x, ylabel=y)
    axis.set_title(title, fontsize=11)
    axis.grid(color="#e6e6e6", lw=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def draw_settled(
    seconds: Mapping[str, Sequence[float]], styles: Mapping[str, tuple[str, str]], title: str
) -> Figure:
    """How many questions each tool settles, its quickest first, and the seconds of the last.

    styles: colour and dashes of each, as the page of a benchmark has them.
    """
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
    for tool, own in seconds.items():
        colour, dashes = styles[tool]
        line = (0, tuple(map(float, dashes.split()))) if dashes else "-"
        count = range(len(own) + 1)
        values = sorted(own)
        axis.step(
            count,
            [values[0], *values],
            color=colour,
            ls=line,
            label=tool,
            lw=1.8,
        )
    axis.set(yscale="log", xlabel="instances settled", ylabel="seconds an instance")
    axis.set_xlim(left=0)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_title(title, fontsize=11)
    axis.grid(color="#e6e6e6", lw=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def draw_bars(values: Mapping[str, Mapping[str, float]], y: str, title: str) -> Figure:
    """A group a label, in it one bar a name with its number above."""
    labels = list(dict.fromkeys(label for each in values.values() for label in each))
    figure = Figure(
        figsize=(max(6.4, 0.32 * len(labels) * (len(values) + 1.5)), 3.8), layout="constrained"
    )
    axis = figure.subplots()
    width = 0.86 / max(1, len(values))
    for k, (name, each) in enumerate(values.items()):
        places = [labels.index(label) + (k - (len(values) - 1) / 2) * width for label in each]
        colour = COLOURS.get(name, OTHERS[k % len(OTHERS)])
        filling = "white" if name in BROKEN else colour  # no lower bound
        bars = axis.bar(
            places,
            list(each.values()),
            width,
            color=filling,
            edgecolor=colour,
            lw=0.8,
            label=NAMED.get(name, name),
        )
        axis.bar_label(bars, fmt="{:.1f}", fontsize=6, padding=1, color=INK)
    axis.set_xticks(range(len(labels)), labels)
    axis.set_ylabel(y)
    axis.set_title(title, fontsize=11)
    axis.margins(y=0.12)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=min(3, len(values)), frameon=False, fontsize=8)
    return figure


def draw_intervals(
    intervals: Mapping[str, Sequence[tuple[float, float, float]]], x: str, y: str, title: str
) -> Figure:
    """One panel a name: the interval of every point (x, lower, upper), each kept until the next;
    before the first everything is open."""
    figure = Figure(figsize=(max(5.0, 3.1 * len(intervals)), 3.2), layout="constrained")
    axes = figure.subplots(1, len(intervals), squeeze=False)[0]
    for axis, (name, points) in zip(axes, intervals.items(), strict=True):
        last = 1.05 * points[-1][0]
        known = [(0.0, 0.0, 100.0), *points, (last, *points[-1][1:])]
        across, lower, upper = zip(*known, strict=True)
        axis.fill_between(across, lower, upper, step="post", color=SAFE)
        for ends, line in ((upper, "certified upper bound"), (lower, "concentration")):
            axis.step(
                across, ends, BROKEN.get(line, "-"), where="post", color=COLOURS[line], lw=1.6
            )
        axis.set(xlabel=x, xlim=(0, last), ylim=(-4, 104))
        axis.set_title(f"{name}: {lower[-1]:.2f} to {upper[-1]:.2f}", fontsize=10)
        axis.grid(color="#e6e6e6", lw=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(y)
    figure.suptitle(title, fontsize=11)
    return figure


def draw_radii(
    certified: Sequence[float | None], falsified: Sequence[float | None], title: str
) -> Figure:
    """The share of inputs that are certified at a radius, and of those that may be: not falsified.

    None: of an input without any certified radius, and of one that nothing falsifies."""
    count = len(certified)
    last = 1.1 * max([eps for eps in (*certified, *falsified) if eps is not None] + [1e-9])
    radii = sorted({0.0, last, *(eps for eps in (*certified, *falsified) if eps is not None)})
    sure = [sum(eps is not None and eps >= at for eps in certified) for at in radii]
    maybe = [sum(eps is None or eps > at for eps in falsified) for at in radii]
    lower, upper = ([100 * number / count for number in each] for each in (sure, maybe))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    # At a radius itself an input is still certified, and already falsified.
    axis.step(radii, lower, where="pre", color=COLOURS["concentration"], label="certified")
    name = "certified upper bound"
    axis.step(radii, upper, BROKEN[name], where="post", color=COLOURS[name], label="not falsified")
    axis.set(xlabel="radius ε", ylabel="inputs, %", xlim=(0, last), ylim=(-4, 104))
    axis.set_title(title, fontsize=11)
    axis.grid(color="#e6e6e6", lw=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def draw_trade(
    lines: Mapping[str, Sequence[tuple[float, float, float]]],
    labels: tuple[str, str, str],
    panels: tuple[str, str],
    title: str,
) -> Figure:
    """One colour per name and its points (setting, x, y), x and y in percent, y at most x.

    On the left y against x: hollow the first points, the others larger with the setting. On the
    right both against the setting, x broken. `labels` are those of setting, x and y.
    """
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    trade, course = figure.subplots(1, 2, sharey=True)
    for colour, (name, points) in zip(OTHERS, lines.items(), strict=False):
        settings, across, up = zip(*points, strict=True)
        sizes = range(20, 20 * len(points), 20)
        trade.plot(across, up, color=colour, lw=1.2, alpha=0.45)
        trade.scatter(across[:1], up[:1], 48, color="white", ec=colour, lw=1.8, zorder=3)
        trade.scatter(across[1:], up[1:], sizes, color=colour, ec="white", lw=0.6, zorder=3)
        course.plot(settings, across, "--", color=colour, lw=1.2)
        course.plot(settings, up, color=colour, lw=1.8, label=name)
        course.scatter(settings[:1], up[:1], 48, color="white", ec=colour, lw=1.8, zorder=3)
        course.scatter(settings[1:], up[1:], 24, color=colour, zorder=3)
    low, high = trade.get_xlim()
    trade.plot((low, high), (low, high), "--", color=INK, lw=1.2, label=f"{labels[1]}, the limit")
    trade.set(xlim=(low, high), ylim=(-4, 104), xlabel=f"{labels[1]}, %", ylabel=f"{labels[2]}, %")
    ticks = sorted({point[0] for points in lines.values() for point in points})
    course.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    course.set_xlabel(labels[0])
    for axis, panel in zip((trade, course), panels, strict=True):
        axis.set_title(panel, fontsize=10)
        axis.grid(color="#e6e6e6", lw=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=11)
    figure.legend(loc="outside lower center", ncols=len(lines) + 1, frameon=False, fontsize=9)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """The figure as PATH.svg and PATH.png, the same bytes for the same rows."""
    # panels of equal aspect find their place in the second pass only
    figure.draw_without_rendering()
    with rc_context({"svg.hashsalt": "bnncert"}):  # names of elements, random otherwise
        for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
            figure.savefig(path.with_name(path.name + suffix), dpi=150, metadata=metadata)


def draw_noise(sd: float, gaussian_reach: float, box_reach: float, title: str) -> Figure:
    """A neuron's weight noise: its density, the interval that holds it, and a weight box's."""
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    axis = figure.subplots()
    z = np.linspace(-1.15 * box_reach, 1.15 * box_reach, 2001)
    density = np.exp(-((z / sd) ** 2) / 2)
    axis.fill_between(z, density, color=SAFE, ec=COLOURS["concentration"], lw=1.2)
    for height, reach, colour, label in (
        (1.12, gaussian_reach, COLOURS["concentration"], "the sum itself"),
        (1.3, box_reach, BOX, "every weight in its interval at once"),
    ):
        axis.annotate(
            "",
            (-reach, height),
            (reach, height),
            arrowprops={"arrowstyle": "<->", "color": colour, "lw": 1.8},
        )
        axis.text(
            0,
            height + 0.03,
            f"{label}: ± {reach:.3f}",
            ha="center",
            va="bottom",
            color=colour,
            fontsize=9,
        )
    axis.set(ylim=(0, 1.5), yticks=[], xlabel="noise of the pre-activation", title=title)
    axis.spines[["left", "top", "right"]].set_visible(False)
    return figure
