"""How an experiment is run: cell by cell, each kept as soon as it is done, then written as rows and
drawn from them.

In FOLDER: NAME.json (rows, settings, versions, machine), NAME.csv, NAME.svg and NAME.png. Until all
cells are done they are lines of NAME.partial.jsonl, from which the same call goes on after an
interruption.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import torch
from matplotlib.figure import Figure

from bnncert.console import progress
from bnncert.errors import InputError
from bnncert.experiments.plots import INK, save_figure
from bnncert.files.tensors import write_atomically
from bnncert.version import __version__

Row: TypeAlias = dict[str, Any]  # JSON values
QUICK = "quick: few images and networks, not the figures of the documentation"


@dataclass(frozen=True)
class Setting:
    """What a user chooses: small and fast or whole, whose posteriors, and where to compute."""

    quick: bool = False
    published: Path | None = None
    device: str = "cpu"

    @property
    def images(self) -> int:
        return 10 if self.quick else 50

    @property
    def drawn(self) -> int:
        """Sampled networks for an empirical ceiling; the paper's figure is 50."""
        return 10 if self.quick else 50


@dataclass(frozen=True)
class Cell:
    """One step: a name that does not change from run to run, and what gives its rows."""

    key: str
    compute: Callable[[], list[Row]]


@dataclass(frozen=True)
class Experiment:
    """Cells for a setting, and the figure of their rows."""

    about: str
    cells: Callable[[Setting], Sequence[Cell]]
    draw: Callable[[list[Row]], Figure]


def run(
    name: str, experiment: Experiment, setting: Setting, folder: Path, keep: bool = False
) -> list[Row]:
    """Everything the experiment writes; the rows are returned.

    With `keep` a finished one is not run again.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"output folder {str(folder)!r} cannot be made ({error.strerror}); name another"
        ) from error
    cells = experiment.cells(setting)
    identity = json.loads(json.dumps(_identity(name, setting, cells)))
    if keep and (rows := _finished(folder / f"{name}.json", identity)) is not None:
        return rows
    partial = folder / f"{name}.partial.jsonl"
    done = dict(_earlier(partial, identity))
    with partial.open("a", encoding="utf-8") as lines, progress(name) as bar:
        task = bar.add_task(name, total=len(cells), completed=len(done), note="")
        for cell in cells:
            if cell.key in done:
                continue
            bar.update(task, note=cell.key)
            done[cell.key] = cell.compute()
            lines.write(
                json.dumps({"key": cell.key, "rows": done[cell.key]}, allow_nan=False) + "\n"
            )
            lines.flush()
            os.fsync(lines.fileno())
            bar.advance(task)
    rows = [row for cell in cells for row in done[cell.key]]
    settings = identity | {"machine": _machine(setting.device)}
    write_atomically(
        folder / f"{name}.json", (json.dumps(settings | {"rows": rows}, indent=1) + "\n").encode()
    )
    write_atomically(folder / f"{name}.csv", _csv(rows).encode())
    redraw(name, experiment, folder)
    partial.unlink()
    return rows


def redraw(name: str, experiment: Experiment, folder: Path) -> None:
    """The figure, from the rows as they were written."""
    written = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    figure = experiment.draw(written["rows"])
    if written["settings"]["quick"]:
        figure.supylabel(QUICK, fontsize=6, color=INK)  # below there may be a legend
    save_figure(figure, folder / name)


def _identity(name: str, setting: Setting, cells: Sequence[Cell]) -> Row:
    """What rows depend on: an unfinished run with another one is begun anew."""
    own = asdict(setting) | {"published": setting.published and str(setting.published)}
    packages = {package: version(package) for package in ("torch", "numpy", "scipy")}
    keys = [cell.key for cell in cells]
    return {
        "experiment": name,
        "settings": own,
        "versions": {"bnncert": __version__} | packages,
        "cells": keys,
    }


def _finished(path: Path, identity: Row) -> list[Row] | None:
    """The rows of a finished run with this identity."""
    if not path.is_file():
        return None
    written = json.loads(path.read_text(encoding="utf-8"))
    return written["rows"] if {key: written.get(key) for key in identity} == identity else None


def _earlier(partial: Path, identity: Row) -> Iterator[tuple[str, list[Row]]]:
    """The cells of an unfinished run with this identity; of another, the file is replaced."""
    lines = partial.read_text(encoding="utf-8").split("\n") if partial.is_file() else []
    whole = [json.loads(line) for line in lines[:-1]]  # what follows the last line end was cut off
    if whole[:1] != [identity]:
        partial.write_text(json.dumps(identity) + "\n", encoding="utf-8")
        return
    partial.write_text("".join(json.dumps(line) + "\n" for line in whole), encoding="utf-8")
    yield from ((line["key"], line["rows"]) for line in whole[1:])


def _machine(device: str) -> Row:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    return {"device": name, "threads": torch.get_num_threads(), "python": platform.python_version()}


def _csv(rows: list[Row]) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
