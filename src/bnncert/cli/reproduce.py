"""reproduce, demo and doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bnncert.cli.options import Device, device_named
from bnncert.errors import InputError


def register(app: typer.Typer) -> None:
    app.command()(reproduce)
    app.command()(demo)
    app.command()(doctor)


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="table1, fig1 to fig5, runtime, epsilon, ...; all; or list.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Few images and networks: all in under ten minutes.")
    ] = False,
    published: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the published posteriors, paper_1x128.npz and so on; else the zoo."
        ),
    ] = None,
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for rows and figures.")] = Path("reproduction"),
) -> None:
    """Run the paper's experiments and ours.

    Prints their tables, writes rows (CSV, JSON) and figures. Interrupted runs go on.
    """
    from rich.console import Console

    from bnncert.experiments import ALL, EXPERIMENTS, QUICK, Setting, run
    from bnncert.experiments.tables import table

    if experiment == "list":
        for name, each in EXPERIMENTS.items():
            print(f"{name:<8} {each.about}")
        return
    if experiment not in (*EXPERIMENTS, "all"):
        raise InputError(
            f"experiment {experiment!r} is not known; choose all, {', '.join(EXPERIMENTS)}"
        )
    if published is not None and not published.is_dir():
        raise InputError(
            f"--published {str(published)!r} is no folder; "
            "name the one with paper_1x128.npz and so on"
        )
    setting = Setting(quick, published, device_named(device))
    for name in ALL if experiment == "all" else (experiment,):
        rows = run(name, EXPERIMENTS[name], setting, out, keep=experiment == "all")
        print(f"{name}: {EXPERIMENTS[name].about}")
        Console().print(table(rows))
        print(f"{name:<8} {len(rows)} rows: {out / name}.csv, .json, .svg, .png", flush=True)
    if quick:
        print(QUICK)


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the posterior, results and certificates.")
    ] = Path("bnncert-demo"),
) -> None:
    """Train, certify and check a small BNN in under a minute.

    Certifies test images of the digits with every method, and shows the table.
    """
    from bnncert.cli.demo import run_demo

    run_demo(out)


def doctor() -> None:
    """Say what this installation can do.

    Versions, devices, data, optional packages.
    """
    from bnncert.cli.doctor import examine

    for name, finding in examine():
        print(f"{name:<14} {finding}")
