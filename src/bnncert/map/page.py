"""The page of a map: one file that needs no network, with heat maps of any two dimensions.

What it draws are the lines of cells.jsonl, and verdicts are those that the checker printed into
check.json; the page proves nothing itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from markupsafe import Markup

from bnncert.console import percent
from bnncert.errors import InputError
from bnncert.files.tensors import write_atomically
from bnncert.importers import load_posterior
from bnncert.map.folder import CELLS, STATUSES, Map, MapCell, exact_share, read_map, worst
from bnncert.model.network import Network
from bnncert.posteriors.base import Posterior
from bnncert.report.coordinates import Table
from bnncert.report.html import policy, shipped, template
from bnncert.report.page import PAGE
from bnncert.report.statement import answered_by, drawn_from, particulars
from bnncert.results.manifest import Manifest, VnnLib, read_manifest
from bnncert.results.rows import Status
from bnncert.version import __version__

Model: TypeAlias = tuple[Network, Posterior]
REPORT, OWN = "bnncert.report", "bnncert.map"
CHECK = "check.json"
MOST = 50_000  # cells on a page that browsers still draw
WORST = 50  # rows of its table
DRAWN = 12  # dimensions to choose from
MEANING = {
    Status.CERTIFIED: "P_safe of the cell is proved to reach the threshold.",
    Status.FALSIFIED: (
        "P_safe of the cell is proved to be below it: networks fail at a point of the cell, "
        "not necessarily everywhere in it."
    ),
    Status.UNDECIDED: "neither is proved.",
}


def write_page(folder: Path, out: Path | None = None, posterior: Path | None = None) -> Path:
    """Write the page of a map, by default into its folder, and return its path.

    posterior: the one that was mapped, for what the network at its centre gives where networks
    fail.
    """
    found = read_map(folder)
    model = None if posterior is None else _mapped(found, posterior)
    if len(found.cells) > MOST:
        raise InputError(
            f"{str(folder)!r} has {len(found.cells)} cells, a page shows at most {MOST}; "
            "map with fewer --parts, or read cells.csv"
        )
    path = out or folder / PAGE
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--out {str(path)!r} must be a file in a folder that exists")
    text = render(folder, found, model).encode("utf-8", "replace")
    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(
            f"--out {str(path)!r} cannot be written ({error.strerror}); name another"
        ) from error
    return path


def _mapped(found: Map, path: Path) -> Model:
    """The network and the posterior in a file, if they are those of the map."""
    model = network, posterior = load_posterior(path)
    own = {"architecture": network.digest, "posterior": posterior.digest}
    if own != found.question["digests"]:
        raise InputError(f"{str(path)!r} is not the posterior of this map; give the one it is of")
    return model


def render(folder: Path, found: Map, model: Model | None = None) -> str:
    style = shipped(REPORT, "report.css") + shipped(OWN, "map.css")
    script = shipped(OWN, "map.js")
    manifest = read_manifest(folder)
    names = [] if manifest is None else [column.name for column in manifest.outputs]
    condition = None if manifest is None else manifest.question.condition
    shares = found.shares()
    return template(shipped(OWN, "map.html.jinja")).render(
        name=folder.resolve().name,
        version=__version__,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        found=found,
        statement=statement(found, manifest),
        property=condition.text if isinstance(condition, VnnLib) else None,
        sides=found.region.dimensions,
        statuses=[
            (
                status,
                sum(each.status is status for each in found.cells),
                f"{100 * float(shares[status]):.2f} %",
                MEANING[status],
            )
            for status in STATUSES
        ],
        surely=percent(float(shares[Status.CERTIFIED])),
        maybe=percent(1 - float(shares[Status.FALSIFIED]), up=True),
        bar=_bar(found),
        check=verdicts(folder, found),
        facts=[] if manifest is None else particulars(manifest),
        digests=found.question["digests"],
        worst=[_row(found, each, names) for each in worst(found)[:WORST]],
        failing=failing(found, names, model),
        modelled=model is not None,
        classes=any(each.label is not None for each in found.cells),
        data=_data(found, names),
    )


def statement(found: Map, manifest: Manifest | None) -> list[str]:
    """What was asked and found, in sentences."""
    sides = [
        f"{side.name} from {float(side.low):.12g} to {float(side.high):.12g} {side.unit}".rstrip()
        for side in found.region.dimensions
    ]
    shares = found.shares()
    drawn = "the posterior" if manifest is None else drawn_from(manifest.question.subjects)
    asked = (
        f"P_safe of a cell is the probability that a network drawn at random from {drawn} "
        f"satisfies the condition “{found.text}” at every point of the cell at once. The question "
        f"is whether it is at least {found.at_least}."
    )
    if found.question["condition"]["clauses"] and "predicted" in found.text:
        asked += (
            " “Predicted” is the class that the network at the posterior’s centre gives the middle "
            "of the cell."
        )
    if manifest is not None and isinstance(manifest.question.condition, VnnLib):
        asked += " The file states the counterexample; its whole text stands below."
    answered = [] if manifest is None else [f"Answered by {answered_by(manifest)}."]
    return [
        f"The operating region is {', '.join(sides)}, cut into {len(found.cells)} cells.",
        asked,
        f"It is so, proved, on {float(100 * shares[Status.CERTIFIED]):.4g} % of the region’s "
        f"volume, and not so, proved, on {float(100 * shares[Status.FALSIFIED]):.4g} %.",
        *answered,
        "Nothing is said about inputs outside the region, about how likely any of its points is, "
        "or about whether the posterior is the right one.",
    ]


def _bar(found: Map) -> dict[str, str]:
    shares = found.shares()
    safe, unsafe = (100 * float(shares[s]) for s in (Status.CERTIFIED, Status.FALSIFIED))
    return {"safe": f"{safe:.3f}", "from": f"{100 - unsafe:.3f}", "unsafe": f"{unsafe:.3f}"}


def verdicts(folder: Path, found: Map) -> dict[str, Any] | None:
    """How many of its cells, and whether the cover, the checker accepted; None if it was not
    run."""
    path = folder / CHECK
    if not path.is_file():
        return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))["certificates"]
        if len(said) != len(found.cells) + 1:
            raise ValueError(f"it holds {len(said)} verdicts for {len(found.cells)} cells")
        for i, (entry, each) in enumerate(zip(said, found.cells, strict=False), 1):
            claimed = entry["claimed"]
            if not entry["path"].endswith(f"{CELLS}:{i}") or (
                entry["status"] == "ACCEPT" and claimed != [each.lower, each.upper]
            ):
                raise ValueError(f"verdict {i} is of another cell")
        accepted = sum(entry["status"] == "ACCEPT" for entry in said)
        covered = said[-1]["status"] == "ACCEPT"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{str(path)!r} is not what the checker prints of this map ({error}); check again: "
            f"bnncert check {folder} --posterior POSTERIOR --json > {path}"
        ) from error
    words = said[-1]["message"] if covered else ""
    return {
        "all": accepted == len(said),
        "accepted": accepted - covered,
        "covered": covered,
        "words": words,
    }


def _row(found: Map, each: MapCell, names: Sequence[str]) -> dict[str, Any]:
    sides = found.region.dimensions
    ends = zip(sides, each.cell.lower, each.cell.upper, strict=True)
    return {
        "number": each.cell.number,
        "ends": [f"{side.value(low):.6g} to {side.value(high):.6g}" for side, low, high in ends],
        "status": str(each.status),
        "class": _named(each.label, names),
        "lower": percent(each.lower),
        "upper": percent(each.upper, up=True),
        "share": f"{100 * float(exact_share(each.cell, found.box)):.3g} %",
    }


def failing(found: Map, names: Sequence[str], model: Model | None) -> Table | None:
    """Points of the worst cells where networks fail, and what the network at the centre gives
    there."""
    sides = found.region.dimensions
    cells = [(each.cell.number, each.point) for each in worst(found)[:WORST]]
    known = [(number, point) for number, point in cells if point is not None]
    if not known:
        return None
    columns = ["cell", *(f"{s.name} [{s.unit}]" if s.unit else s.name for s in sides)]
    rows = [
        (str(number), *(f"{s.value(v):.6g}" for s, v in zip(sides, point, strict=True)))
        for number, point in known
    ]
    if model is not None:
        network, posterior = model
        points = torch.tensor([point for _, point in known], dtype=torch.float64)
        outputs = network.forward(posterior.center, points.reshape(-1, *network.input_shape))
        called = [_named(j, names) if names else f"y{j}" for j in range(network.outputs)]
        columns += called
        rows = [
            (*row, *(f"{value:.6g}" for value in values))
            for row, values in zip(rows, outputs.tolist(), strict=True)
        ]
    return Table("", tuple(columns), tuple(rows))


def _named(label: int | None, names: Sequence[str]) -> str:
    if label is None:
        return "–"
    return names[label] if label < len(names) else str(label)


def _data(found: Map, names: Sequence[str]) -> dict[str, Any]:
    """What the page's script draws: the ends of cells as places in a list for each dimension."""
    chosen = [i for i, side in enumerate(found.region.dimensions) if side.low < side.high][:DRAWN]
    sides, cells = [], []
    places = []
    for i in chosen:
        side = found.region.dimensions[i]
        ends = sorted(
            {float(end) for each in found.cells for end in (each.cell.lower[i], each.cell.upper[i])}
        )
        places.append({end: k for k, end in enumerate(ends)})
        values = [float(f"{side.value(end):.9g}") for end in ends]
        sides.append({"name": side.name, "unit": side.unit, "ends": values})
    for each in found.cells:
        own = [
            at[float(ends[i])]
            for i, at in zip(chosen, places, strict=True)
            for ends in (each.cell.lower, each.cell.upper)
        ]
        known = (STATUSES.index(each.status), -1 if each.label is None else each.label)
        cells.append([*own, *known, round(each.lower, 6), round(each.upper, 6), each.cell.number])
    labels = sorted({each.label for each in found.cells if each.label is not None})
    classes = {label: _named(label, names) for label in labels}
    return {
        "sides": sides,
        "cells": cells,
        "statuses": [str(status) for status in STATUSES],
        "classes": classes,
        "at_least": float(found.at_least),
    }
