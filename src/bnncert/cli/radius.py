"""radius: how far an input may move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.certify import INTERRUPTED, Method
from bnncert.cli.options import (
    Device,
    Names,
    Posterior,
    Seed,
    device_named,
    takes_method,
    takes_question,
)
from bnncert.question import Question

if TYPE_CHECKING:
    from bnncert.radius import Radii
    from bnncert.results.manifest import Manifest

SHOWN = 25  # rows of the table; all of them are in radii.jsonl


def register(app: typer.Typer) -> None:
    app.command()(radius)


@takes_method
@takes_question(leave_out=("eps", "eps_file"))
def radius(
    posterior: Posterior,
    question: Question,
    options: dict[str, Any],
    at_least: Annotated[
        str, typer.Option(help="Threshold τ: up to which radius is P_safe at least this?")
    ] = "0.95",
    first: Annotated[float, typer.Option(help="Radius to start from.")] = 0.01,
    largest: Annotated[float, typer.Option(help="No larger radius is asked about.")] = 1.0,
    close: Annotated[
        float, typer.Option(help="An end is found to this share of itself; 0.01 is 1 %.")
    ] = 0.01,
    method: Method = None,
    names: Names = None,
    device: Device = "cpu",
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for radii.jsonl, a figure, and both ends' certificates."),
    ] = None,
) -> None:
    """Find how far each input may move: certified radii.

    For each input the largest radius that is certified and the smallest that is falsified.
    Up to the first P_safe is at least the threshold, from the second on it is below; between them
    nothing is known. An upper bound is searched too (method concentration).
    """
    from bnncert.ask import ask, method_named
    from bnncert.importers import load_posterior
    from bnncert.methods import Concentration, default_method
    from bnncert.radius import Search, certified_radii
    from bnncert.record import about_data, methods_asked, names_for
    from bnncert.results.answers import threshold
    from bnncert.results.manifest import subject, written_now

    asked_for = threshold(at_least)
    search = Search(first, largest, close)
    network, weights = load_posterior(posterior)
    weights = weights.to(device_named(device))
    name = method or default_method(weights).name
    if name == Concentration.name:
        options = {"upper": True, "at_least": float(asked_for)} | options
    chosen = method_named(name, options)
    asked = ask(replace(question, eps=(0.0,)), network, weights)
    with _shown(len(asked.indices)) as show:
        found = certified_radii(
            asked.problem,
            chosen,
            asked_for,
            search=search,
            seed=seed,
            indices=asked.indices,
            progress=show,
        )
    title = f"{posterior.name}, {question.norm}, method {name}: P_safe >= {at_least}"
    show_radii(found, title)
    if out:
        about = about_data(
            replace(asked.question, eps=()),
            asked.data,
            asked.indices,
            [subject(network, weights, posterior)],
            at_least=asked_for,
            searched=True,
        )
        called = names_for(names, network, asked.data)
        manifest = written_now(
            about,
            methods_asked([chosen]),
            seed=seed,
            features=called.features,
            outputs=called.outputs,
            device=device,
        )
        _save(found, out, title, manifest)
        print(f"radii, their figure and certificates are in {out}")
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)


class _shown:  # noqa: N801 (used like a function)
    """A progress bar over inputs whose radii are found, with the number of bounds so far."""

    def __init__(self, total: int) -> None:
        from bnncert.console import progress

        self.bar = progress("searching")
        self.total = total

    def __enter__(self) -> Any:
        bar = self.bar.__enter__()
        task = bar.add_task("searching", total=self.total, note="")
        return lambda done, calls: bar.update(task, completed=done, note=f"{calls} bounds")

    def __exit__(self, *reason: Any) -> None:
        self.bar.__exit__(*reason)


def show_radii(found: Radii, title: str) -> None:
    """A row per input (the first few), and the medians."""
    from statistics import median

    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from bnncert.console import radius_text

    table = Table(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ("input", "label", "certified up to", "falsified from"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.radii[:SHOWN]:
        label = "–" if each.label is None else str(each.label)
        table.add_row(
            str(each.index),
            label,
            radius_text(each.certified),
            radius_text(each.falsified, up=True),
        )
    console = Console()
    console.print(table)
    if len(found.radii) > SHOWN:
        console.print(f"... and {len(found.radii) - SHOWN} more")
    count = len(found.radii)
    some = sum(each.certified is not None for each in found.radii)
    ends = sum(each.falsified is not None for each in found.radii)
    middle = median(each.certified or 0.0 for each in found.radii)
    console.print(
        f"{some} of {count} with a certified radius, median {middle:.4g} (0 where none is); "
        f"{ends} with a falsified one",
        highlight=False,
        soft_wrap=True,
    )


def _save(found: Radii, out: Path, title: str, manifest: Manifest) -> None:
    from bnncert.experiments.plots import draw_radii, save_figure

    found.save(out, manifest)
    certified = [each.certified for each in found.radii]
    falsified = [each.falsified for each in found.radii]
    save_figure(draw_radii(certified, falsified, title), out / "radii")
