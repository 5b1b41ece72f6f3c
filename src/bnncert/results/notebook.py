"""Progress in a notebook, where nobody sees standard error: a line below the cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def notebook_progress(total: int) -> Callable[[Sequence[Any]], None] | None:
    """What shows how many of so many inputs are done, when called with the rows that have come, and
    leaves nothing in the end; None outside of notebooks."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(shell, "kernel"):  # none, or that of a terminal
        return None
    from IPython.display import display

    started = time.perf_counter()
    handle = display(_line(0, total, 0.0), raw=True, display_id=True)
    done = 0

    def show(rows: Sequence[Any]) -> None:
        nonlocal done
        done += len(rows)
        handle.update(_line(done, total, time.perf_counter() - started), raw=True)

    return show


def _line(done: int, total: int, seconds: float) -> dict[str, str]:
    if done >= total:
        return {"text/plain": ""}
    left = f", about {seconds / done * (total - done):.0f} s left" if done else ""
    return {"text/plain": f"{done} of {total} inputs{left}"}
