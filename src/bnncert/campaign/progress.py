"""Progress of a run: a live display on terminals, now and then a line elsewhere, JSON lines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bnncert.console import percent, progress
from bnncert.errors import InputError

EVERY = 10.0  # seconds between two lines


@dataclass(frozen=True)
class Progress:
    """So far: `done` of `total` items, of which `computed` now and the rest before.

    `lower` sums their lower bounds.
    """

    total: int
    done: int = 0
    computed: int = 0
    errors: int = 0
    lower: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Items a second."""
        return self.computed / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds, at this rate."""
        return (self.total - self.done) / self.rate if self.rate else None

    @property
    def mean(self) -> float:
        """Mean certified lower bound; what is not certified counts 0."""
        return self.lower / self.done if self.done else 0.0

    def __str__(self) -> str:
        left = "" if self.left is None or self.done == self.total else f", {_clock(self.left)} left"
        errors = f", {self.errors} in error" if self.errors else ""
        return (
            f"{self.done} of {self.total} items, {self.rate:.1f} a second{left}, "
            f"certified mean so far {percent(self.mean)}{errors}"
        )


Show: TypeAlias = Callable[[Progress], None]


@contextmanager
def showing(json_log: Path | None) -> Iterator[Show]:
    """A function to call with every change; the last one is shown however it came."""
    with ExitStack() as stack:
        shows = [stack.enter_context(_live() if sys.stderr.isatty() else _lines())]
        if json_log is not None:
            shows.append(stack.enter_context(_json_lines(json_log)))

        def show_all(state: Progress) -> None:
            for show in shows:
                show(state)

        yield show_all


@contextmanager
def _live() -> Iterator[Show]:
    with progress("certifying") as bar:
        task = bar.add_task("certifying", total=None, note="")

        def show(state: Progress) -> None:
            note = f"{state.rate:.1f}/s  certified mean {percent(state.mean)}"
            note += f"  {state.errors} in error" if state.errors else ""
            bar.update(task, total=state.total, completed=state.done, note=note)

        yield show


@contextmanager
def _lines() -> Iterator[Show]:
    shown = time.monotonic()
    last: Progress | None = None

    def show(state: Progress) -> None:
        nonlocal shown, last
        last = state
        if time.monotonic() - shown >= EVERY:
            shown = time.monotonic()
            print(state, file=sys.stderr, flush=True)

    yield show
    if last is not None:
        print(last, file=sys.stderr, flush=True)


@contextmanager
def _json_lines(path: Path) -> Iterator[Show]:
    try:
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--json-log {str(path)!r} cannot be written ({error.strerror}); name another"
        ) from error
    with file:

        def show(state: Progress) -> None:
            fields = {
                **vars(state),
                "rate": state.rate,
                "left": state.left,
                "mean": state.mean,
                "time": time.time(),
            }
            print(json.dumps(fields), file=file, flush=True)

        yield show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02d} min"
        if hours
        else f"{minutes} min {rest:02d} s"
        if minutes
        else f"{rest} s"
    )
