"""bench: the benchmark's instances, answers, scores and pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.options import Device, device_named
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.bench.recipes import Recipe
    from bnncert.bench.scores import Score
    from bnncert.bench.suite import Instance

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
        help="Instances with known truth, answers of any tool, and scores.",
    )
    bench.command("list")(bench_list)
    bench.command("make")(bench_make)
    bench.command("run")(bench_run)
    bench.command("score")(bench_score)
    bench.command("report")(bench_report)
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


def bench_run(
    full: Full = False,
    track: Tracks = None,
    tool: Annotated[
        list[str] | None, typer.Option(help="Only this tool of ours; may be given several times.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(help="A program to enter instead: it is given an instance's JSON file."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the program is called.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Instances that are worked on at once.")] = 2,
    device: Device = "cpu",
    out: Out = FOLDER,
) -> None:
    """Ask tools about the instances, and have their certificates checked.

    Without --tool and --command all of ours are asked. Interrupted runs go on: what has been
    answered is not asked again.
    """
    from bnncert.bench.entrants import Own, command_line
    from bnncert.bench.runs import run
    from bnncert.bench.suite import make, read_suite
    from bnncert.bench.tools import TOOLS
    from bnncert.console import progress

    if command is None and name is not None:
        raise InputError("--name is for a --command; leave it out")
    if command is not None and tool:
        raise InputError("--command is entered instead of tools of ours; leave --tool out")
    entrants = (
        [Own(each, device_named(device)) for each in tool or TOOLS]
        if command is None
        else [command_line(command, name)]
    )
    chosen = at_hand(full, track)
    make(chosen, out)
    asked = {recipe.name for recipe in chosen}
    instances = [instance for instance in read_suite(out) if instance.name in asked]
    with progress("asking") as bar:
        task = bar.add_task("asking", total=len(entrants) * len(instances), note="")
        run(out, instances, entrants, workers, lambda _: bar.advance(task))
    print(f"the answers are in {out}; their points: bnncert bench score --out {out}")


def bench_score(
    out: Out = FOLDER,
    against: Annotated[
        Path | None,
        typer.Option(help="A scores.json of before: exit code 1 where anything has become worse."),
    ] = None,
) -> None:
    """The points of every tool by track, with every wrong answer."""
    from bnncert.bench.scores import SCORES, losses, write_scores
    from bnncert.cli.scoreboard import show_scores

    instances, scores = _scored(out)
    write_scores(out / SCORES, scores)
    show_scores(instances, scores)
    lost = losses(scores, against) if against else []
    for line in lost:
        print(line)
    if lost:
        raise typer.Exit(1)


def bench_report(out: Out = FOLDER) -> None:
    """Pages about the scores: all tools, and a page a track."""
    from bnncert.bench.pages import write_pages

    path = write_pages(out, *_scored(out))
    print(f"{path}, and a page a track beside it")


def _scored(folder: Path) -> tuple[list[Instance], list[Score]]:
    from bnncert.bench.runs import current, read_answers
    from bnncert.bench.scores import confirmed, score
    from bnncert.bench.suite import read_suite

    instances = read_suite(folder)
    answers = confirmed(folder, instances, current(read_answers(folder), instances))
    scores = score(instances, answers)
    if not scores:
        raise InputError(f"{str(folder)!r} holds no answers to its suite; bnncert bench run first")
    return instances, scores


def at_hand(full: bool, track: list[str] | None) -> list[Recipe]:
    """The recipes whose networks are there; a line says which others are not."""
    from bnncert.bench.suite import missing
    from bnncert.bench.tracks import recipes

    found = recipes(full, track or ())
    lacking = missing(found)
    for name in lacking:
        print(f"left out: the instances of {name}, which is not trained; bnncert zoo train {name}")
    return [recipe for recipe in found if recipe.needs not in lacking]
