"""The HTML report of a result folder: one file that needs no network.

Numbers come from results.jsonl, pictures and words from the certificates, verdicts from what the
independent checker printed. The report proves nothing itself; it says what is certified, what is
estimated and what was checked.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bnncert.console import percent, progress
from bnncert.data.names import Names, read_names
from bnncert.errors import InputError
from bnncert.evidence.predictive import MEAN
from bnncert.files.tensors import write_atomically
from bnncert.importers import load_posterior
from bnncert.report.cross_section import FARTHER, REACH, SIDE, unit
from bnncert.report.entries import (
    HALF_WIDTHS,
    VERDICTS,
    Called,
    Entry,
    check_command,
    read_entry,
    read_statement,
    read_verdicts,
)
from bnncert.report.html import policy, shipped, template
from bnncert.report.inputs import inputs_at_hand
from bnncert.report.pictures import data_uri, shrink
from bnncert.report.radii import radii_section, read_radii
from bnncert.report.statement import name_of, particulars, statement
from bnncert.report.summary import counted_verdicts, percent_bar, radius_texts, shared, summaries
from bnncert.results.folder import STATUSES, StoredResult, read_results
from bnncert.results.manifest import Manifest, OutputWithin, VnnLib, read_manifest
from bnncert.results.rows import P_SAFE, Status
from bnncert.version import __version__

PAGE = "report.html"
PACKAGE = "bnncert.report"
# Of the page per input, for at least THOUSAND inputs; what does not fit is left out, and said so.
BYTES_EACH = 2_900
THUMBNAIL_BYTES_EACH = 1_250  # of these
THOUSAND = 1_000
MOST = 20_000  # results on a page that browsers still open
PRINTED = 100  # results of a page whose entries are all open on paper
SETTINGS = ("threshold", "bounds of", "method", "options", "ε", "norm", "clip", "seed")
PROVENANCE = (
    "digest of the posterior",
    "digest of the architecture",
    "kind of evidence",
    "made with",
)
DECIDING = (Status.DECIDED, Status.UNDECIDED)
MEANING = {
    "certified": "the lower bound reaches the threshold.",
    "falsified": "the upper bound stays below the threshold.",
    "undecided": "the bounds settle the question neither way; they hold all the same.",
    "misclassified": (
        "the network at the posterior’s centre is wrong on the clean input; the bounds hold."
    ),
    "error": "the computation failed. Nothing is known.",
    "decided": "the averaged network keeps its answer on the whole region.",
}


def write_report(
    folder: Path,
    posterior: Path | None = None,
    out: Path | None = None,
    eps: float | None = None,
    names: Path | None = None,
) -> Path:
    """Write the page of a result folder, by default into it, and return its path.

    posterior: the posterior that was certified, for cross-sections through its centre; of a
    campaign's folder the page shows its results alone. eps: only those of this radius. names: a
    file with names of coordinates and outputs, instead of those in the manifest.
    """
    path = out or folder / PAGE
    model = load_posterior(posterior) if posterior else None
    results = _about(folder, read_results(folder), model[1].digest if model else None)
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(f"--out {str(path)!r} must be a file in a folder that exists")
    manifest = _named(read_manifest(folder), names)
    called = _called(manifest, names, folder)
    verdicts = read_verdicts(folder, results)
    pairs = [(result, verdicts[i] if verdicts else None) for i, result in enumerate(results)]
    shown = [(result, verdict) for result, verdict in pairs if eps in (None, result.eps)]
    if not 0 < len(shown) <= MOST:
        raise InputError(
            f"{str(folder)!r} has {len(shown)} such results, a page shows 1 to {MOST}; "
            "choose another --eps"
        )
    entries = []
    with progress("reading") as bar:
        task = bar.add_task("reading", total=len(shown), note="")
        for result, verdict in shown:
            entries.append(read_entry(folder, result, verdict, model, called))
            bar.advance(task)
    searched = radii_section([] if eps is not None else read_radii(folder), called.outputs)
    page = render(folder, entries, unit(model[1]) if model else None, manifest, called, searched)
    try:
        write_atomically(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise InputError(
            f"--out {str(path)!r} cannot be written ({error.strerror}); name another"
        ) from error
    return path


def _about(folder: Path, results: list[StoredResult], posterior: str | None) -> list[StoredResult]:
    """The results of one posterior, where the folder speaks of several."""
    named = {result.posterior for result in results} - {None}
    if posterior is None and len(named) > 1:
        raise InputError(
            f"{str(folder)!r} speaks of {len(named)} posteriors; "
            "give --posterior the one to report on"
        )
    kept = [result for result in results if not named or posterior in (None, result.posterior)]
    if not kept:
        raise InputError(
            f"nothing in {str(folder)!r} speaks of this posterior; "
            "give --posterior one that was certified"
        )
    return kept


def _called(manifest: Manifest | None, names: Path | None, folder: Path) -> Called:
    """Of a file, else of the manifest."""
    if manifest is not None:
        asked = manifest.question
        bounded = None
        if isinstance(asked.condition, OutputWithin) and manifest.outputs:
            bounded = manifest.outputs[asked.condition.output]
        boxed = asked.region.norm == "box"
        there = inputs_at_hand(manifest, folder)
        return Called(manifest.features, manifest.outputs, boxed, bounded, there)
    given = Names() if names is None else read_names(names)
    return Called(given.features, given.outputs)


def _named(manifest: Manifest | None, names: Path | None) -> Manifest | None:
    """The manifest with the names of a file in the place of its own."""
    if manifest is None or names is None:
        return manifest
    given = read_names(names)
    features, outputs = (
        tuple(replace(own, name=column.name) for own, column in zip(known, new, strict=True))
        if len(known) == len(new)
        else new or known
        for known, new in (
            (manifest.features, given.features),
            (manifest.outputs, given.outputs),
        )
    )
    return replace(manifest, features=features, outputs=outputs)


def render(
    folder: Path,
    entries: Sequence[Entry],
    unit: str | None,
    manifest: Manifest | None = None,
    called: Called | None = None,
    searched: Mapping[str, Any] | None = None,
) -> str:
    """The page; unit is what the cross-sections' axes count, None where no posterior was given;
    searched are radii that were looked for."""
    thumbnails, factor = _thumbnails(entries)
    figures = [_figure(entry, factor) for entry in entries]
    about = _about_question(manifest)
    context = _context(folder, entries, thumbnails, unit, called or Called())
    page = _template(context | about | {"searched": searched})
    empty = page([None] * len(entries)).encode("utf-8", "replace")
    room = BYTES_EACH * max(THOUSAND, len(entries)) - len(empty)
    return page(_fitting(figures, room))


def _template(context: dict[str, Any]) -> Callable[[Sequence[object]], str]:
    """The page as a function of its figures."""
    own = template(shipped(PACKAGE, "report.html.jinja"))
    style, script = shipped(PACKAGE, "report.css"), shipped(PACKAGE, "report.js")
    context |= {"style": Markup(style), "script": Markup(script), "policy": policy(style, script)}
    return lambda figures: own.render(context, data=context["data"] | {"figures": figures})


def _about_question(manifest: Manifest | None) -> dict[str, Any]:
    """What was asked, where the folder says so."""
    if manifest is None:
        return {"statement": None, "particulars": [], "property": None}
    asked = manifest.question.condition
    return {
        "statement": statement(manifest),
        "particulars": particulars(manifest),
        "property": asked.text if isinstance(asked, VnnLib) else None,
    }


def _context(
    folder: Path,
    entries: Sequence[Entry],
    thumbnails: Sequence[str | None],
    unit: str | None,
    called: Called,
) -> dict[str, Any]:
    results = [entry.result for entry in entries]
    radii = radius_texts(entries)
    counts = Counter(result.status for result in results)
    return {
        "name": folder.resolve().name,
        "version": __version__,
        "results": len(entries),
        "inputs": len({result.index for result in results}) if radii else len(entries),
        "radii": radii,
        "groups": summaries(entries, radii),
        "settings": shared(entries, _settings(entries)),
        "regression": any(result.low is not None for result in results),
        "provenance": shared(entries, PROVENANCE),
        "statuses": [
            (status, counts[status], MEANING[status])
            for status in (STATUSES if results[0].quantity == P_SAFE else DECIDING)
        ],
        "quantity": results[0].quantity,
        "decided": counts[Status.DECIDED],
        "labels": sorted({result.label for result in results if result.label is not None}),
        "total_seconds": f"{math.fsum(result.seconds for result in results):.1f} s",
        "estimated": any(result.estimate for result in results),
        "check": counted_verdicts(entries),
        "checker_words": read_statement(folder),
        "check_command": check_command(folder),
        "verdict_words": VERDICTS,
        "rows": [
            _row(entry, uri, radii, called) for entry, uri in zip(entries, thumbnails, strict=True)
        ],
        "unit": unit,
        "data": _data(entries, unit, bool(radii)),
    }


def _settings(entries: Sequence[Entry]) -> list[str]:
    """What the page says of all results together; boxes have sides in the place of a radius."""
    boxed = any(HALF_WIDTHS in entry.facts for entry in entries)
    decisions = entries[0].result.quantity != P_SAFE
    lacking = ("threshold", "seed") if decisions else ("bounds of",)
    names = [name for name in SETTINGS if name not in lacking]
    return [HALF_WIDTHS if boxed and name == "ε" else name for name in names]


def _asked(result: StoredResult, called: Called) -> list[tuple[str, str]]:
    """Label and prediction, each with its name; of a regression target and output."""
    if result.low is not None and result.high is not None:
        output = "–" if result.output is None else f"{result.output:.5g}"
        return [(f"{(result.low + result.high) / 2:.5g}", ""), (output, "")]
    return [
        ("–", "") if index is None else (str(index), name_of(called.outputs, index, "class"))
        for index in (result.label, result.predicted)
    ]


def _bound(result: StoredResult, value: float, called: Called, *, up: bool = False) -> str:
    """A probability in percent, a mean as its output was measured."""
    if result.quantity == MEAN:
        return f"{called.bounded.measured(value) if called.bounded else value:.6g}"
    return percent(value, up=up)


def _row(
    entry: Entry, thumbnail: str | None, radii: Mapping[float, str], called: Called
) -> dict[str, Any]:
    result = entry.result
    drawn = result.estimate
    return {
        "result": result,
        "asked": _asked(result, called),
        "thumbnail": thumbnail,
        "eps": radii.get(result.eps),
        "lower": _bound(result, result.lower, called),
        "upper": _bound(result, result.upper, called, up=True),
        "bar": None if result.quantity == MEAN else percent_bar(result.lower, result.upper),
        "seconds": f"{result.seconds:.3f}",
        "estimate": f"{100 * drawn.low:.1f}–{100 * drawn.high:.1f} %" if drawn else "–",
        "verdict": entry.verdict.status if entry.verdict else None,
    }


def _thumbnails(entries: Sequence[Entry]) -> tuple[list[str | None], int]:
    """Pictures of the clean inputs, and by what factor they had to be made smaller."""
    pixels = [entry.picture.clean if entry.picture else None for entry in entries]
    largest = max((max(own.shape[:2]) for own in pixels if own is not None), default=1)
    factor = 1
    while True:
        uris = [None if own is None else data_uri(shrink(own, factor)) for own in pixels]
        size = sum(len(uri) for uri in uris if uri)
        if size <= THUMBNAIL_BYTES_EACH * max(THOUSAND, len(entries)) or factor >= largest:
            return uris, factor
        factor *= 2


def _figure(entry: Entry, factor: int) -> dict[str, Any] | None:
    """What is drawn when an entry is opened: the counterexample, the cross-section."""
    figure: dict[str, Any] = {}
    picture = entry.picture
    section = entry.section
    if picture and picture.point is not None and picture.change is not None:
        uris = [data_uri(shrink(pixels, factor)) for pixels in (picture.point, picture.change)]
        figure["point"] = [*uris, f"{picture.largest:.3g}"]
    if section:
        figure["section"] = [section.runs, len(section.wrong_at)]
    if entry.tables:
        figure["tables"] = [[table.caption, table.columns, table.rows] for table in entry.tables]
    return figure or None


def _caption(entry: Entry, unit: str | None) -> str:
    """What the cross-section shows, or why there is none."""
    if entry.result.certificate is None:
        return "Nothing is claimed for this input, so neither it nor any evidence is stored."
    if unit is None:
        return "For a cross-section through the posterior, give the report --posterior FILE."
    if entry.section is None:
        return (
            "No cross-section: no standard deviations, "
            "or a smallest margin that two random weights do not move."
        )

    points = ("On the clean input", "on the counterexample")
    ways = "; ".join(
        f"{name} {_wrong_at(at, unit)}"
        for name, at in zip(points, entry.section.wrong_at, strict=False)
    )
    least, last = entry.section.margins
    falls = (
        f"The smallest margin on the clean input is {least:.3g} at the centre and {last:.3g} at "
        f"{REACH:g} {unit} along it"
    )
    if entry.section.wrong_at[0] is None:
        beyond = entry.section.beyond
        found = f"at about {beyond:.3g}" if beyond else f"up to {REACH * FARTHER[-1]:.4g}"
        falls += (
            f"; the first wrong network was met {found}" if beyond else f"; none is wrong {found}"
        )
    return f"{ways}. {falls}. {_marked(entry)}"


def _wrong_at(distance: float | None, unit: str) -> str:
    if distance is None:
        return f"no network up to {REACH:g} {unit} along the dangerous direction is wrong"
    if distance == 0:
        return "the network at the centre is already wrong"
    return f"networks are wrong from {distance:g} {unit} along the dangerous direction"


def _marked(entry: Entry) -> str:
    if entry.facts["kind of evidence"] == "boxes":
        boxed = entry.section is not None and entry.section.boxed
        return "Marked: inside the proved boxes." if boxed else "No proved box meets it."
    return "The evidence bounds all weights together, so no part of the plane is marked as proved."


def _fitting(figures: Sequence[object], room: int) -> list[object]:
    """The figures in order while there is room; "left out" instead of those that do not fit."""
    kept: list[object] = []
    for figure in figures:
        size = len(json.dumps(figure, ensure_ascii=False).encode())
        fits = figure is None or size <= room
        room -= size if fits else 0
        kept.append(figure if fits else "left out")
    return kept


def _data(entries: Sequence[Entry], unit: str | None, several_radii: bool) -> dict[str, Any]:
    """What the page's script needs: numbers by column, and what each entry tells, by number."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    results = [entry.result for entry in entries]
    columns = (
        "index",
        "label",
        "predicted",
        "status",
        "lower",
        "upper",
        "seconds",
        *["eps"] * several_radii,
    )
    data: dict[str, Any] = {name: [getattr(result, name) for result in results] for name in columns}
    for i, result in enumerate(results):
        if result.low is not None and result.high is not None:  # what those columns show then
            data["label"][i] = (result.low + result.high) / 2
            data["predicted"][i] = result.output
    data["estimate"] = [result.estimate.low if result.estimate else None for result in results]
    data["verdict"] = [entry.verdict.status if entry.verdict else None for entry in entries]
    data["facts"] = [
        [(number(name), number(value)) for name, value in entry.facts.items()] for entry in entries
    ]
    data["captions"] = [number(_caption(entry, unit)) for entry in entries]
    data["words"] = [[number(sentence) for sentence in entry.words] for entry in entries]
    shown = {"side": SIDE, "reach": REACH, "unit": unit, "printed": PRINTED}
    return data | {"texts": list(texts)} | shown
