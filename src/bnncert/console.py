"""What programs say to a person: progress bars, and numbers rounded the safe way."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress(label: str) -> Progress:
    """A progress bar on standard error that disappears when it is done.

    Nothing where that is no terminal.
    """
    columns = (
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def percent(probability: float, up: bool = False) -> str:
    """Rounded down, or up for upper bounds."""
    hundredths = math.ceil(probability * 1e4) if up else math.floor(probability * 1e4)
    return f"{hundredths / 100:.2f} %"


def radius_text(radius: float | None, *, up: bool = False) -> str:
    """Six digits, rounded against the claim: a certified radius down, a falsified one up.

    >>> radius_text(0.12345678), radius_text(0.12345678, up=True)
    ('0.123456', '0.123457')
    """
    if radius is None:
        return "–"
    rounded = Context(prec=6, rounding=ROUND_CEILING if up else ROUND_FLOOR).create_decimal(radius)
    return f"{float(rounded):.6g}"
