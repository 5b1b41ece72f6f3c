"""bench: the benchmark's instances, answers, scores and pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bnncert.bench.recipes import Recipe

FOLDER = Path("bnncert-bench")
Full = Annotated[
    bool, typer.Option("--full/--quick", help="All instances, or those of a few minutes (default).")
]
Tracks = Annotated[
    list[str] | None, typer.Option("--track", help="Only this track; may be given several times.")
]
Out = Annotated[Path, typer.Option(help="Folder of the benchmark: its suite, answers and pages.")]


def register(app: typer.Typer) -> None:
    bench = typer.Typer(
        no_args_is_help=True,
        help="Instances with known truth, answers of any tool, and scores: see docs/benchmark.md.",
    )
    bench.command("list")(bench_list)
    bench.command("make")(bench_make)
    app.add_typer(bench, name="bench")


def bench_list(full: Full = False, track: Tracks = None) -> None:
    """Every instance: what it asks, at which threshold, and which mistake it catches."""
    from bnncert.bench.tracks import TRACKS, recipes

    found = recipes(full, track or ())
    for name, about in TRACKS.items():
        own = [recipe for recipe in found if recipe.track == name]
        if own:
            print(f"{name}: {about} ({len(own)} instances)")
        for recipe in own:
            print(f"  {recipe.name}: {recipe.about}; τ = {recipe.threshold}")
            if recipe.catches:
                print(f"      catches: {recipe.catches}")


def bench_make(full: Full = False, track: Tracks = None, out: Out = FOLDER) -> None:
    """Write the instances as files that any tool can read."""
    from bnncert.bench.suite import make

    made = make(at_hand(full, track), out)
    print(f"{len(list((made / 'instances').glob('*.json')))} instances are in {made}")


def at_hand(full: bool, track: list[str] | None) -> list[Recipe]:
    """The recipes whose networks are there; a line says which others are not."""
    from bnncert.bench.suite import missing
    from bnncert.bench.tracks import recipes

    found = recipes(full, track or ())
    lacking = missing(found)
    for name in lacking:
        print(f"left out: the instances of {name}, which is not trained; bnncert zoo train {name}")
    return [recipe for recipe in found if recipe.needs not in lacking]
