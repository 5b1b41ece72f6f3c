"""The benchmark's pages: one about all tools, and one a track, which need no network; and the plot
as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bnncert.bench.scores import Score, ranked
from bnncert.bench.suite import Instance
from bnncert.bench.tools import TOOLS
from bnncert.bench.tracks import TRACKS
from bnncert.console import percent
from bnncert.experiments.plots import COLOURS, OTHERS, draw_settled, save_figure
from bnncert.files.tensors import write_atomically
from bnncert.report import html
from bnncert.report.summary import percent_bar
from bnncert.version import __version__

PAGES, INDEX, PICTURE = "report", "index.html", "settled"
PACKAGE = "bnncert.bench"
WIDTH, HEIGHT = 600.0, 240.0  # of the plot
LEAST = 0.01  # seconds at its lower end
FAMILIES = {"concentration": "concentration", "pie": "PIE", "gie": "GIE", "sampling": "sampling"}
BROKEN = {"published": "7 4", "0": "1 3", "2": "7 4", "3": "2 3"}  # by the end of a tool's name


def write_pages(folder: Path, instances: Sequence[Instance], scores: Sequence[Score]) -> Path:
    """Write FOLDER/report/index.html, a page a track and a picture, and return the first's path."""
    pages = folder / PAGES
    pages.mkdir(parents=True, exist_ok=True)
    tools = [tool for tool, _ in ranked(scores)]
    style = html.shipped("bnncert.report", "report.css") + html.shipped(PACKAGE, "bench.css")
    style += _colours(tools)
    tracks = [
        {"name": track, "about": about, "instances": count}
        for track, about in TRACKS.items()
        if (count := sum(instance.track == track for instance in instances))
    ]
    shared = {
        "version": __version__,
        "style": Markup(style),
        "policy": html.policy(style, ""),
        "tracks": tracks,
    }
    about_all = html.template(html.shipped(PACKAGE, "index.html.jinja"))
    _write(pages / INDEX, about_all.render(shared | _overview(instances, scores)))
    about_one = html.template(html.shipped(PACKAGE, "track.html.jinja"))
    for track in tracks:
        own = [instance for instance in instances if instance.track == track["name"]]
        _write(
            pages / f"{track['name']}.html",
            about_one.render(shared | {"track": track} | _of_track(own, scores, tools)),
        )
    _picture(scores, pages / PICTURE)
    return pages / INDEX


def _overview(instances: Sequence[Instance], scores: Sequence[Score]) -> dict[str, Any]:
    tracks = list(dict.fromkeys(instance.track for instance in instances))
    tools = ranked(scores)
    longest = max(instance.timeout for instance in instances)
    most = max(sum(one.settled for one in own) for _, own in tools)
    return {
        "count": len(instances),
        "most": 25 * len(instances),
        "columns": tracks,
        "tools": [_summary(tool, own, tracks) for tool, own in tools],
        "wrong": [one for one in scores if one.wrong],
        "curves": [
            {"tool": tool, "key": k, "path": _cactus(own, most, longest)}
            for k, (tool, own) in enumerate(tools)
            if any(one.settled for one in own)
        ],
        "settled": most,
        "seconds": [
            {"y": f"{_height(value, longest):.1f}", "text": f"{value:g}"}
            for value in (0.01, 0.1, 1.0, 10.0, 100.0)
            if value <= longest
        ],
        "size": (f"{WIDTH:g}", f"{HEIGHT:g}"),
        "checked": any(one.accepted for one in scores),
    }


def _summary(tool: str, own: Sequence[Score], tracks: Sequence[str]) -> dict[str, Any]:
    by_track = {track: [one.points for one in own if one.track == track] for track in tracks}
    return {
        "name": tool,
        "about": TOOLS[tool].about if tool in TOOLS else "",
        "certified": own[0].certified,
        "tracks": [f"{math.fsum(found):.0f}" if found else "–" for found in by_track.values()],
        "points": f"{math.fsum(one.points for one in own):.0f}",
        "wrong": sum(bool(one.wrong) for one in own),
        "settled": sum(one.settled for one in own),
        "accepted": sum(one.accepted for one in own),
        "seconds": f"{math.fsum(one.seconds for one in own):.1f}",
    }


def _of_track(
    instances: Sequence[Instance], scores: Sequence[Score], tools: Sequence[str]
) -> dict[str, Any]:
    order = {tool: k for k, tool in enumerate(tools)}
    return {
        "instances": [
            {
                "name": instance.name,
                "about": instance.fields["about"],
                "catches": instance.fields["catches"],
                "threshold": instance.fields["threshold"],
                "timeout": f"{instance.timeout:g}",
                "truth": _truth(instance),
                "rows": [
                    _row(one)
                    for one in sorted(scores, key=lambda one: order[one.tool])
                    if one.instance == instance.name
                ],
            }
            for instance in instances
        ]
    }


def _truth(instance: Instance) -> str | None:
    if instance.truth is None:
        return None
    low, high = sorted((instance.truth.lower_at_most, instance.truth.upper_at_least))
    ends = [f"{float(end):.10g}" for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _row(one: Score) -> dict[str, Any]:
    return {
        "tool": one.tool,
        "certified": one.certified,
        "answered": one.status == "answered",
        "status": one.status,
        "lower": percent(one.lower),
        "upper": percent(one.upper, up=True),
        "bar": percent_bar(one.lower, one.upper),
        "points": f"{one.points:.1f}",
        "accepted": one.accepted,
        "settled": one.settled,
        "wrong": one.wrong,
        "seconds": f"{one.seconds:.2f}",
        "reason": one.reason,
    }


def _cactus(own: Sequence[Score], most: int, longest: float) -> str:
    """How many instances the tool settles, its quickest first, and the seconds of the last."""
    seconds = sorted(one.seconds for one in own if one.settled)
    step = WIDTH / most
    path = f"M0 {_height(seconds[0], longest):.1f}"
    for k, value in enumerate(seconds, 1):
        path += f"V{_height(value, longest):.1f}H{k * step:.1f}"
    return path


def _height(seconds: float, longest: float) -> float:
    """From the top, on a logarithmic scale."""
    share = math.log(max(seconds, LEAST) / LEAST) / math.log(max(longest, 1.0) / LEAST)
    return HEIGHT * (1 - min(share, 1.0))


def _styles(tools: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A colour a family of methods, as in every figure, and dashes that tell them apart inside
    it."""
    found, others = {}, iter(OTHERS * len(tools))
    for tool in tools:
        family, _, end = tool.partition("-")
        colour = COLOURS[FAMILIES[family]] if family in FAMILIES and tool in TOOLS else next(others)
        found[tool] = colour, BROKEN.get(end, "") if tool in TOOLS else ""
    return found


def _colours(tools: Sequence[str]) -> str:
    rules = ""
    for k, (colour, dashes) in enumerate(_styles(tools).values()):
        broken = f" stroke-dasharray: {dashes};" if dashes else ""
        rules += f".line.k{k} {{ stroke: {colour};{broken} }}\n"
    return rules


def _picture(scores: Sequence[Score], path: Path) -> None:
    """The plot by itself, for other documents: PATH.svg and PATH.png."""
    tools = ranked(scores)
    styles, seconds = _styles([tool for tool, _ in tools]), {}
    for tool, own in tools:
        if settled := [one.seconds for one in own if one.settled]:
            name = f"{tool}{'' if own[0].certified else ' *'} ({len(settled)})"
            seconds[name], styles[name] = settled, styles[tool]
    if seconds:
        title = f"Instances settled, of {len({one.instance for one in scores})}"
        save_figure(draw_settled(seconds, styles, title), path)


def _write(path: Path, page: str) -> None:
    write_atomically(path, page.encode("utf-8", "replace"))
