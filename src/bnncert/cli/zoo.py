"""zoo: the networks that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.options import Device
from bnncert.cli.train import fit


def register(app: typer.Typer) -> None:
    zoo = typer.Typer(
        no_args_is_help=True,
        help="Networks that are shipped, or trained by one command.",
    )
    zoo.command("list")(zoo_list)
    zoo.command("train")(zoo_train)
    zoo.command("path")(zoo_path)
    app.add_typer(zoo, name="zoo")


def zoo_list() -> None:
    """Every network, its data and accuracy, and whether it is at hand."""
    from rich.console import Console
    from rich.table import Table

    from bnncert.zoo.recipes import ZOO, shipped_index, trained_path

    # Narrow enough for 80 columns.
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("name", "data", "paper", "correct", "σ", "at hand", "about"):
        table.add_column(
            name, justify="right" if name in ("paper", "correct", "σ") else "left", no_wrap=True
        )
    shipped = shipped_index()
    for name, made in ZOO.items():
        known = shipped.get(name)
        trained = trained_path(name).is_file()
        correct, std = (known["accuracy"], f"{known['std']:.1g}") if known else (None, "–")
        right = "–" if correct is None else f"{100 * correct:.2f} %"  # a regression has none
        place = "shipped" if known else "trained" if trained else "–"
        paper = "–" if made.paper is None else f"{made.paper:g} %"
        table.add_row(name, made.data, paper, right, std, place, made.about)
    Console().print(table)


def zoo_train(
    name: Annotated[str, typer.Argument(help="A name that `zoo list` shows.")],
    device: Device = "cpu",
    out: Annotated[
        Path | None, typer.Option(help="Where to write it; by default where `zoo path` finds it.")
    ] = None,
) -> None:
    """Train a network by its recipe; an interrupted run goes on where it stopped."""
    from bnncert.zoo.recipes import recipe, trained_path

    made = recipe(name)
    path = out or trained_path(name)
    if out is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    fit(made, path, device)


def zoo_path(name: Annotated[str, typer.Argument(help="A name that `zoo list` shows.")]) -> None:
    """Print where the trained posterior is."""
    from bnncert.zoo.recipes import posterior_path

    print(posterior_path(name))
