"""map: a whole operating region."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.certify import INTERRUPTED, Method
from bnncert.cli.options import Device, Names, Posterior, Seed, device_named, takes_method
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.data import Dataset
    from bnncert.data.regions import OperatingRegion
    from bnncert.map.cells import Cell
    from bnncert.map.folder import Map
    from bnncert.map.proving import Prover
    from bnncert.map.run import Progress
    from bnncert.model.standardisation import Column
    from bnncert.results.manifest import Manifest

WORST = 5  # cells that are shown
VNNLIB = ".vnnlib"


def register(app: typer.Typer) -> None:
    app.command(name="map")(region_map)


@takes_method
def region_map(
    posterior: Posterior,
    options: dict[str, Any],
    out: Annotated[Path, typer.Option(help="Folder of the map; the same one resumes it.")],
    region: Annotated[
        str | None,
        typer.Option(
            help="Operating region: low, high, name, unit, center, scale and smallest of every "
            "input, as .toml, .csv or .npz; or that of the data set advisory. A VNN-LIB condition "
            "brings its own."
        ),
    ] = None,
    condition: Annotated[
        str,
        typer.Option(
            help="What is safe: class predicted, class 2, class not 2, -1 <= y0 <= 1, "
            "y0 - y1 >= 0.5, joined by and, or and parentheses; or a .vnnlib file."
        ),
    ] = "class predicted",
    at_least: Annotated[
        str, typer.Option(help="Threshold τ: is P_safe of a cell at least this?")
    ] = "0.95",
    parts: Annotated[
        int, typer.Option(help="Cells are cut to at most this part of each side.")
    ] = 32,
    seconds: Annotated[
        float, typer.Option("--time", help="Seconds, after which this run ends.")
    ] = 600.0,
    cells: Annotated[int, typer.Option(help="Cells of the whole map at most.")] = 100_000,
    names: Names = None,
    method: Method = None,
    device: Device = "cpu",
    seed: Seed = 0,
) -> None:
    """Map an operating region, cell by cell.

    It is cut until each cell is certified, falsified or as small as cells may be.
    Every cell has certificates of its own; `check` also checks that the cells cover the region.
    A run that was interrupted, or ended with its budget, goes on when the command is given again.
    """
    from bnncert.ask import method_named
    from bnncert.importers import load_posterior
    from bnncert.map.condition import load_condition
    from bnncert.map.folder import read_map, write_table
    from bnncert.map.proving import Prover
    from bnncert.map.run import Budget
    from bnncert.methods import Concentration, default_method
    from bnncert.record import names_for
    from bnncert.results.answers import threshold
    from bnncert.results.manifest import write_manifest

    asked = threshold(at_least)
    budget = Budget(seconds, cells)
    network, weights = load_posterior(posterior)
    if network.standardisation is not None and not network.standardisation.is_identity:
        raise InputError(
            f"{str(posterior)!r} takes values that are standardised, and a region has measured "
            "ones; make a posterior that takes these: "
            "bnncert import FILE --as native --measured --out NEW"
        )
    name = method or default_method(weights).name
    if name == Concentration.name:
        options = {"at_least": float(asked)} | options
    prover = Prover(
        network,
        weights.to(device_named(device)),
        load_condition(condition, network.outputs),
        method_named(name, options),
        asked,
        seed,
    )
    started = time.perf_counter()
    called = names_for(names, network, _data_of(region)).outputs
    sides = _region(region, condition)
    complete, finished = _mapped(prover, sides, parts, budget, out)
    found = read_map(out)
    write_manifest(
        out, _manifest(posterior, prover, sides, found.box, condition, called, _file(region))
    )
    write_table(out, found)
    show_map(found)
    print(f"{time.perf_counter() - started:.1f} s; the map and its certificates are in {out}")
    if not finished:
        raise typer.Exit(INTERRUPTED)
    if not complete:
        print("the budget is spent: the same command goes on, with more --time or --cells")


def _manifest(
    path: Path,
    prover: Prover,
    region: OperatingRegion,
    box: Cell,
    condition: str,
    outputs: tuple[Column, ...],
    source: Path | None,
) -> Manifest:
    """What the map is about; sides in their units, and outputs or classes by name."""
    from bnncert.model.standardisation import Column
    from bnncert.record import about_region, methods_asked
    from bnncert.results.answers import threshold
    from bnncert.results.manifest import subject, written_now

    posterior = prover.posterior
    subjects = [subject(prover.network, posterior, path)]
    ends = box.lower.tolist(), box.upper.tolist()
    features = [
        Column(
            f"{side.name} ({side.unit})" if side.unit else side.name,
            float(side.center),
            float(side.scale),
        )
        for side in region.dimensions
    ]
    return written_now(
        about_region(condition, *ends, subjects, threshold(prover.at_least), source),
        methods_asked(list(dict.fromkeys([prover.quick, prover.thorough]))),
        seed=prover.seed,
        features=tuple(features),
        outputs=outputs,
        device=posterior.center.device.type,
    )


def _file(region: str | None) -> Path | None:
    """The file of a region, if it is one."""
    from bnncert.data import named

    return None if region is None or named(region) else Path(region)


def _region(source: str | None, condition: str) -> Any:
    from bnncert.data import load_operating_region
    from bnncert.map.condition import region_of

    if source is not None:
        return load_operating_region(source)
    if condition.endswith(VNNLIB):
        return region_of(condition)
    raise InputError("no region is given; give --region FILE, as .toml, .csv or .npz")


def _mapped(prover: Any, region: Any, parts: int, budget: Any, out: Path) -> tuple[bool, bool]:
    """Whether no cell is left open, and whether the run came to its end."""
    from bnncert.map.cells import Cell
    from bnncert.map.folder import identity, question_of, write_map
    from bnncert.map.run import Mapping, smallest_sizes
    from bnncert.map.store import open_store

    box = region.box(prover.network.input_shape)
    whole = Cell(0, box.lower.flatten().numpy(), box.upper.flatten().numpy())
    if not (whole.lower < whole.upper).any():
        raise InputError("the region is one point; certify an input instead")
    sizes = smallest_sizes(region, whole.lower, whole.upper, parts)
    question = question_of(prover, region, whole, str(prover.at_least))
    how = {"method": prover.method.name, "method options": repr(prover.method), "seed": prover.seed}
    with open_store(out) as store:
        store.enter(identity(question, how, sizes.tolist()))
        complete, finished = False, True
        with _shown() as show:
            try:
                complete = Mapping(store, prover, whole, sizes, budget, show).run()
            except KeyboardInterrupt:
                finished = False
        write_map(store, question, whole)
    return complete, finished


def _data_of(region: str | None) -> Dataset | None:
    """The data set whose region is mapped, if that is what was named: it knows its classes."""
    from bnncert.data import load_inputs, named

    return load_inputs(region) if region is not None and named(region) else None


class _shown:  # noqa: N801 (used like a function)
    """A progress bar over the volume that is decided."""

    def __init__(self) -> None:
        from bnncert.console import progress

        self.bar = progress("mapping")

    def __enter__(self) -> Any:
        bar = self.bar.__enter__()
        task = bar.add_task("mapping", total=100, note="")

        def show(state: Progress) -> None:
            decided = sum(share for name, share in state.shares.items() if name != "undecided")
            note = f"{state.cells} cells, {state.open} open"
            bar.update(task, completed=int(100 * decided), note=note)

        return show

    def __exit__(self, *reason: Any) -> None:
        self.bar.__exit__(*reason)


def show_map(found: Map) -> None:
    """Shares of the volume, and the worst cells."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from bnncert.console import percent
    from bnncert.map.folder import exact_share, worst
    from bnncert.results.rows import Status

    console = Console()
    console.print(
        f"{found.text}, P_safe >= {found.at_least}", highlight=False, soft_wrap=True, markup=False
    )
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for name in ("status", "cells", "of the volume"):
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    shares = found.shares()
    for status, exact in shares.items():
        count = sum(each.status is status for each in found.cells)
        table.add_row(str(status), str(count), f"{100 * float(exact):.2f} %")
    console.print(table)
    surely, maybe = shares[Status.CERTIFIED], 1 - shares[Status.FALSIFIED]
    lower, upper = found.mean()
    console.print(
        f"cells with P_safe >= {found.at_least}: at least {percent(float(surely))}, at most "
        f"{percent(float(maybe), up=True)} of the volume; mean P_safe of cells at least "
        f"{percent(float(lower))}, at most {percent(float(upper), up=True)}",
        highlight=False,
        soft_wrap=True,
    )
    for each in worst(found)[:WORST]:
        console.print(
            f"worst: cell {each.cell.number}, {percent(each.lower)} to "
            f"{percent(each.upper, up=True)}, {_place(found, each)}",
            highlight=False,
            soft_wrap=True,
        )
    small = [each for each in found.cells if each.status is Status.UNDECIDED]
    if small:
        volume = float(max(exact_share(each.cell, found.box) for each in small))
        console.print(f"largest undecided cell: {100 * volume:.3g} % of the volume")


def _place(found: Map, each: Any) -> str:
    """A cell's ends, in their units."""
    sides = zip(found.region.dimensions, each.cell.lower, each.cell.upper, strict=True)
    said = [
        f"{side.name} {side.value(low):.6g} to {side.value(high):.6g} {side.unit}".rstrip()
        for side, low, high in sides
        if side.low < side.high
    ]
    return ", ".join(said)
