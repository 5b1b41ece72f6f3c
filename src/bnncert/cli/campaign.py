"""The commands of campaigns: run, status, merge and export. torch is imported inside them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.options import Device, device_named

if TYPE_CHECKING:
    from bnncert.campaign.executors import Workers
    from bnncert.campaign.plan import Plan
    from bnncert.campaign.progress import Progress
    from bnncert.campaign.store import Store

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended
Folder = Annotated[Path, typer.Argument(help="A run folder: what `bnncert run` wrote.")]
Processes = Annotated[
    int,
    typer.Option(
        min=0, help="Processes that share the cores or take the GPUs in turn; 0: this one alone."
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler (tcp://...), or local for a cluster of --workers."
    ),
]


def run(
    campaign: Annotated[Path, typer.Argument(help="Campaign file: .toml, .yaml or .yml.")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; the campaign's name without its ending.")
    ] = None,
    device: Device = "cpu",
    workers: Processes = 0,
    dask: Scheduler = None,
    shard: Annotated[
        str | None,
        typer.Option(help="I/N: only the I-th of N parts, into a folder of its own; see merge."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and what it will cost; run nothing.")
    ] = False,
    json_log: Annotated[
        Path | None, typer.Option(help="Append progress as JSON lines to this file.")
    ] = None,
) -> None:
    """Certify posteriors x inputs x eps x methods into a run folder.

    The same command resumes an interrupted run: what is stored is not computed again. Exit code 1
    if an item ended in error.
    """
    from bnncert.campaign.plan import make_plan, read_shard
    from bnncert.campaign.record import recorded
    from bnncert.campaign.schema import read_campaign
    from bnncert.campaign.store import open_store
    from bnncert.results.manifest import write_manifest

    part = read_shard(shard) if shard else (1, 1)
    plan = make_plan(read_campaign(campaign))
    folder = out or Path(campaign.stem)
    if plan.repeated:
        print(f"{plan.repeated} inputs occur more than once; each is asked about once")
    if dry_run:
        _print_plan(plan, folder, device, max(1, workers), part)
        return

    started = time.perf_counter()
    with (
        open_store(folder, create=True) as store,
        _workers(dask, workers, device_named(device)) as chosen,
    ):
        store.enter(plan)
        write_manifest(folder, recorded(plan, device))
        state = _run(plan, store, chosen, device, part, json_log)
    seconds = time.perf_counter() - started
    print(f"{state}; {seconds:.1f} s; results and certificates are in {folder}")
    if state.errors:
        print(
            f"{state.errors} items ended in error; `bnncert status` says why, "
            "the same command tries them again"
        )
        raise typer.Exit(1)


def _run(
    plan: Plan,
    store: Store,
    workers: Workers,
    device: str,
    part: tuple[int, int],
    json_log: Path | None,
) -> Progress:
    """Run one part of the plan into the store; where Ctrl-C ends it, the program ends here."""
    from bnncert.campaign.progress import showing
    from bnncert.campaign.runner import Interrupted, Runner
    from bnncert.campaign.table import write_results

    try:
        with showing(json_log) as show:
            state = Runner(plan, store, workers, device, show).run(plan.chunks(*part))
    except Interrupted:
        write_results(store)
        _say_how_to_resume()
        sys.exit(INTERRUPTED)
    except KeyboardInterrupt:
        _say_how_to_resume()
        # A thread that computes cannot be stopped, and a plain exit would wait for it.
        os._exit(INTERRUPTED)
    write_results(store)
    return state


def _say_how_to_resume() -> None:
    print(
        f"bnncert: stopped; to resume: bnncert {shlex.join(sys.argv[1:])}",
        file=sys.stderr,
        flush=True,
    )


def _workers(dask: str | None, workers: int, device: str) -> AbstractContextManager[Workers]:
    from bnncert.campaign.executors import dask_workers, in_process, processes

    if dask is not None:
        return dask_workers(dask, workers, device)
    return nullcontext(processes(workers, device) if workers else in_process())


def _print_plan(plan: Plan, folder: Path, device: str, workers: int, part: tuple[int, int]) -> None:
    from bnncert.campaign.plan import estimate_cost

    job = plan.job
    chunks = plan.chunks(*part)
    methods = ", then ".join(f"{m.name} {c}" for m, c in zip(job.methods, job.configs, strict=True))
    print(
        "posteriors  "
        f"{', '.join(f'{subject.name} ({subject.size} weights)' for subject in plan.subjects)}"
    )
    print(
        f"inputs      {len(plan.indices)}; "
        f"eps {', '.join(f'{eps:g}' for eps in job.eps)} ({job.question.norm})"
    )
    print(f"methods     {methods}")
    if job.at_least is not None:
        print(f"            each only where it is still open whether P_safe >= {job.at_least}")
    share = sum(map(plan.items_of, chunks)) / plan.items
    print(
        f"items       {plan.items}; {len(chunks)} chunks of up to {plan.chunk} inputs here, "
        f"{share:.0%} of the items"
    )
    costs = estimate_cost(plan, device_named(device))
    for cost in costs:
        print(
            f"            {cost.subject.name}: "
            f"{_duration(cost.seconds)} on one worker, {cost.bytes / 1e6:.1f} MB"
        )
    seconds, size = (
        share * sum(values) for values in zip(*((c.seconds, c.bytes) for c in costs), strict=True)
    )
    there = next(place for place in (folder, *folder.absolute().parents) if place.is_dir())
    free = shutil.disk_usage(there).free
    print(
        f"cost        about {_duration(seconds / workers)} on {workers} x {device}, "
        "told from a few inputs;"
    )
    print(f"            {size / 1e9:.2f} GB of certificates, {free / 1e9:.0f} GB free")
    if size > free:
        print(f"            the certificates will not fit into {str(folder)!r}")


def _duration(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h"
        if seconds >= 3600
        else f"{seconds / 60:.1f} min"
        if seconds >= 60
        else f"{seconds:.1f} s"
    )


def status(folder: Folder) -> None:
    """Say how far a run is.

    Of each posterior and eps the items stored, the certified mean, and what failed.
    """
    from bnncert.campaign.store import open_store
    from bnncert.campaign.table import method_counts, reasons, summary
    from bnncert.console import percent

    with open_store(folder) as store:
        print(
            f"{'posterior':<16} {'eps':>8} {'items':>8} {'stored':>8} "
            f"{'errors':>6} {'at least':>9} {'at most':>9}"
        )
        for line in summary(store):
            numbers = f"{line.items:>8} {line.stored:>8} {line.errors:>6}"
            means = f"{percent(line.lower):>9} {percent(line.upper, up=True):>9}"
            print(f"{line.name:<16} {line.eps:>8g} {numbers} {means}")
        for name, count in method_counts(store):
            print(f"{count} results of {name}")
        if store.about("at_least"):
            print(
                f"P_safe >= {store.about('at_least')} is asked: "
                "an item that a method decides goes to none after it"
            )
        for count, reason in reasons(store):
            print(f"{count} in error: {reason}")
        print(f"{store.runners()} at work on it now")


def merge(
    target: Annotated[Path, typer.Argument(help="Run folder to make or to add to.")],
    shards: Annotated[list[Path], typer.Argument(help="Run folders of the shards.")],
) -> None:
    """Join the run folders of shards; the shards stay as they are."""
    from bnncert.campaign.merge import merge as join
    from bnncert.campaign.store import open_store
    from bnncert.campaign.table import write_results

    count = join(target, shards)
    with open_store(target) as store:
        lines = write_results(store)
    print(f"{count} results from {len(shards)} folders; {target} holds {lines}")


def export(
    folder: Folder,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV.")] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="Write the table as Parquet (needs pyarrow).")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write certified means by posterior and eps as Markdown.")
    ] = None,
) -> None:
    """Write the table of a run.

    Without options its results.jsonl, which check and report read.
    """
    from bnncert.campaign.store import open_store
    from bnncert.campaign.table import export_csv, export_markdown, export_parquet, write_results

    with open_store(folder) as store:
        if csv is not None:
            print(f"{csv}: {export_csv(store, csv)} rows")
        if parquet is not None:
            print(f"{parquet}: {export_parquet(store, parquet)} rows")
        if markdown is not None:
            print(f"{markdown}: {export_markdown(store, markdown)} rows")
        if csv is None and parquet is None and markdown is None:
            print(f"{folder}: {write_results(store)} results")


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    for command in (run, status, merge, export):
        app.command()(command)
