"""What a page says of many entries together: mean bounds, counts by threshold, areas of a chart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from bnncert.console import percent
from bnncert.report.entries import ACCEPT, HALF_WIDTHS, VERDICTS, Entry

THRESHOLDS = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
NAMED = 4  # different values of a setting that are written out
# Different radii that get a summary of their own; of more, as with one per input, there is one.
RADII = 12


def radius_texts(entries: Sequence[Entry]) -> dict[float, str]:
    """The radii in ascending order, as short as tells them apart; none if there is but one, and
    none of boxes, whose sides differ."""
    if any(HALF_WIDTHS in entry.facts for entry in entries):
        return {}
    radii = sorted({entry.result.eps for entry in entries})
    if len(radii) == 1:
        return {}
    # 17 digits tell all floats apart.
    texts = ([f"{eps:.{digits}g}" for eps in radii] for digits in range(4, 18))
    shortest = next(found for found in texts if len(set(found)) == len(radii))
    return dict(zip(radii, shortest, strict=True))


def summaries(entries: Sequence[Entry], radii: Mapping[float, str]) -> list[dict[str, Any]]:
    """A summary for each radius, in ascending order; one for all where there are too many."""
    if not 1 < len(radii) <= RADII:
        return [_group(entries, None)]
    return [
        _group([entry for entry in entries if entry.result.eps == eps], text)
        for eps, text in radii.items()
    ]


def _group(entries: Sequence[Entry], eps: str | None) -> dict[str, Any]:
    bounds = [_believed(entry) for entry in entries]
    return {
        "eps": eps,
        "count": len(entries),
        "mean": _mean(bounds),
        "claimed": _mean([(entry.result.lower, entry.result.upper) for entry in entries]),
        "statuses": Counter(entry.result.status for entry in entries),
        "chart": _chart(bounds),
        "thresholds": _thresholds(bounds),
    }


def _believed(entry: Entry) -> tuple[float, float]:
    """The bounds of an entry; 0 to 1, which says nothing, where the checker did not accept them."""
    accepted = entry.verdict is None or entry.verdict.status == ACCEPT
    return (entry.result.lower, entry.result.upper) if accepted else (0.0, 1.0)


def _mean(bounds: Sequence[tuple[float, float]]) -> dict[str, Any]:
    lower, upper = (math.fsum(ends) / len(bounds) for ends in zip(*bounds, strict=True))
    return {
        "lower": percent(lower),
        "upper": percent(upper, up=True),
        "bar": percent_bar(lower, upper),
    }


def percent_bar(lower: float, upper: float) -> dict[str, str]:
    """Percent of a bar's width: proved safe, where proved unsafe begins, and how much that is."""
    return {
        "safe": f"{100 * lower:.2f}",
        "from": f"{100 * upper:.2f}",
        "unsafe": f"{100 * (1 - upper):.2f}",
    }


def shared(entries: Sequence[Entry], names: Iterable[str]) -> list[tuple[str, str]]:
    """What all entries have in common, by name; where they differ, the values or how many."""
    found = []
    for name in names:
        values = list(dict.fromkeys(entry.facts[name] for entry in entries if name in entry.facts))
        text = (
            ", ".join(value or "–" for value in values) or "not stored: no result has a certificate"
        )
        found.append((name, text if len(values) <= NAMED else f"{len(values)} different ones"))
    return found


def _chart(bounds: Sequence[tuple[float, float]]) -> dict[str, str]:
    """Inputs in order of their bounds: the areas below the lower and above the upper bounds.

    One unit wide per input, 100 high. Both areas are exact means: of what is proved safe, and of
    what is proved unsafe.
    """
    ordered = sorted(bounds)
    return {
        "safe": _area([lower for lower, _ in ordered], 100),
        "unsafe": _area([upper for _, upper in ordered], 0),
    }


def _area(probabilities: Sequence[float], base: int) -> str:
    """An SVG path of steps, one per input, from the line y = base."""
    x = 0
    path = f"M0 {base}"
    for height, same in groupby(f"{100 * (1 - probability):.2f}" for probability in probabilities):
        x += len(list(same))
        path += f"V{height}H{x}"
    return f"{path}V{base}Z"


def _thresholds(bounds: Sequence[tuple[float, float]]) -> list[tuple[str, int, int]]:
    """For each p: inputs whose P_safe is surely at least p, and those whose may be."""
    lowers = [lower for lower, _ in bounds]
    uppers = [upper for _, upper in bounds]
    positive = ("> 0 %", sum(lower > 0 for lower in lowers), sum(upper > 0 for upper in uppers))
    return [positive] + [
        (
            f"≥ {100 * p:.6g} %",
            sum(lower >= p for lower in lowers),
            sum(upper >= p for upper in uppers),
        )
        for p in THRESHOLDS
    ]


def counted_verdicts(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """How many results the checker accepted; None if it was not run."""
    verdicts = Counter(entry.verdict.status for entry in entries if entry.verdict)
    if not verdicts:
        return None
    counts = [f"{verdicts[status]} {word}" for status, word in VERDICTS.items() if verdicts[status]]
    return {"counts": ", ".join(counts), "all": verdicts[ACCEPT] == len(entries)}
