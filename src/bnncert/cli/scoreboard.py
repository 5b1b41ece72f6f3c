"""The closing table of a benchmark: points by tool and track, and what was wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bnncert.bench.scores import Score, ranked
from bnncert.bench.suite import Instance


def show_scores(instances: Sequence[Instance], scores: Sequence[Score]) -> None:
    """Two tables with a line a tool, the best first: totals, tracks; then every wrong answer."""
    console = Console()
    tools = ranked(scores)
    totals = _table("tool", "points", "wrong", "settled", "accepted", "seconds")
    for tool, own in tools:
        totals.add_row(
            tool if own[0].certified else f"{tool} *",
            _points(own),
            str(sum(bool(one.wrong) for one in own)),
            str(sum(one.settled for one in own)),
            str(sum(one.accepted for one in own)),
            f"{math.fsum(one.seconds for one in own):.1f}",
        )
    console.print(totals)
    tracks = list(dict.fromkeys(instance.track for instance in instances))
    # Five letters of each, so that all of them fit into 80 columns.
    by_track = _table("points", *(track[:5] for track in tracks))
    for tool, own in tools:
        parts = ([one for one in own if one.track == track] for track in tracks)
        by_track.add_row(tool, *map(_points, parts))
    console.print(by_track)
    if not all(one.certified for one in scores):
        console.print("* estimates, not certificates", highlight=False)
    print(f"at most {25 * len(instances)} points, 25 for each of {len(instances)} instances")
    for one in scores:
        if one.wrong:
            print(f"wrong: {one.tool} on {one.instance}: {one.wrong}")


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _points(scores: Sequence[Score]) -> str:
    return f"{math.fsum(one.points for one in scores):.0f}" if scores else "–"
