"""What a person sees in the terminal: progress bars and the closing table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bnncert.certificate import Result
from bnncert.methods.statistical import Estimate
from bnncert.zoo import ZOO, shipped_index, trained_path

SHOWN = 25  # rows of the table; all of them are in results.jsonl


def progress(label: str) -> Progress:
    """A progress bar on standard error that disappears when it is done; nothing where that is no terminal."""
    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def show_results(results: Sequence[Result], title: str) -> None:
    """A row an input (the first few) and the summary."""
    estimated = any(result.estimate for result in results)
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ["input", "label", "predicted", "status", "at least", "at most", "calls"] + ["estimate*"] * estimated:
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for r in results[:SHOWN]:
        cells = [r.index, _dash(r.label), _dash(r.predicted), r.status, percent(r.lower), percent(r.upper, up=True)]
        table.add_row(*map(str, cells), str(r.bound_calls), *[_interval(r.estimate)] * estimated)
    console = Console()
    console.print(table)
    if len(results) > SHOWN:
        console.print(f"... and {len(results) - SHOWN} more inputs")
    console.print(summary(results), highlight=False, soft_wrap=True)
    if results and results[0].estimate:
        drawn = results[0].estimate
        console.print(f"* not certified: {drawn.confidence:.0%} confidence, {drawn.samples} networks", highlight=False)


def show_zoo() -> None:
    """One row a network: what it is, the paper's accuracy, its own, and where it comes from."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ("name", "data", "paper", "accuracy", "σ", "at hand", "about"):
        table.add_column(name, justify="right" if name in ("paper", "accuracy", "σ") else "left", no_wrap=True)
    shipped = shipped_index()
    for name, made in ZOO.items():
        known, trained = shipped.get(name), trained_path(name).is_file()
        measured = (f"{100 * known['accuracy']:.2f} %", f"{known['std']:.1g}") if known else ("–", "–")
        place = "shipped" if known else "trained" if trained else "–"
        paper = "–" if made.paper is None else f"{made.paper:g} %"
        table.add_row(name, made.data, paper, *measured, place, made.about)
    Console().print(table)


def summary(results: Sequence[Result]) -> str:
    """Mean certified probability over all inputs, what is not certified counting 0, and the statuses."""
    lower, upper = (sum(getattr(result, end) for result in results) / len(results) for end in ("lower", "upper"))
    counts = ", ".join(f"{count} {status}" for status, count in Counter(r.status for r in results).items())
    seconds = sum(result.seconds for result in results)
    interval = f"at least {percent(lower)}, at most {percent(upper, up=True)}"
    return f"mean P_safe {interval} over {len(results)} inputs ({counts}); {seconds:.1f} s"


def percent(probability: float, up: bool = False) -> str:
    """Rounded down, or up for upper bounds: the table never shows more than was certified."""
    hundredths = math.ceil(probability * 1e4) if up else math.floor(probability * 1e4)
    return f"{hundredths / 100:.2f} %"


def _interval(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f} %"


def _dash(value: int | None) -> str:
    return "–" if value is None else str(value)
