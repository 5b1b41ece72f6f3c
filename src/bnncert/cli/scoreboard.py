"""The closing table of a benchmark: points by tool and track, and what was wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from bnncert.bench.scores import Score
from bnncert.bench.suite import Instance


def show_scores(instances: Sequence[Instance], scores: Sequence[Score]) -> None:
    """A line a tool, the best first; then every wrong answer."""
    tracks = list(dict.fromkeys(instance.track for instance in instances))
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("tool", no_wrap=True)
    for name in (*tracks, "points", "wrong", "settled", "accepted", "seconds"):
        table.add_column(name, justify="right")
    for tool, own in ranked(scores):
        points = [_points([one for one in own if one.track == track]) for track in tracks]
        table.add_row(
            tool if own[0].certified else f"{tool} *",
            *points,
            _points(own),
            str(sum(bool(one.wrong) for one in own)),
            str(sum(one.settled for one in own)),
            str(sum(one.accepted for one in own)),
            f"{math.fsum(one.seconds for one in own):.1f}",
        )
    console = Console()
    console.print(table)
    if not all(one.certified for one in scores):
        console.print("* estimates, not certificates", highlight=False)
    print(f"at most {25 * len(instances)} points, 25 for each of {len(instances)} instances")
    for one in scores:
        if one.wrong:
            print(f"wrong: {one.tool} on {one.instance}: {one.wrong}")


def ranked(scores: Sequence[Score]) -> list[tuple[str, list[Score]]]:
    """Each tool with its scores, in the order of their sums."""
    own: dict[str, list[Score]] = {}
    for one in scores:
        own.setdefault(one.tool, []).append(one)
    return sorted(own.items(), key=lambda item: -math.fsum(one.points for one in item[1]))


def _points(scores: Sequence[Score]) -> str:
    return f"{math.fsum(one.points for one in scores):.0f}" if scores else "–"
