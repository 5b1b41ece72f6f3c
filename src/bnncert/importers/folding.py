"""A drawing as the layers of a network: without what the output does not depend on, with constants
folded into the linear layer before them where nothing else reads between.

A batch normalisation is such a constant: with s = γ / √(variance + ε),

    γ (W x + b - mean) / √(variance + ε) + β  =  (s W) x + s b + (β - s mean).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bnncert.importers.drawing import Bayesian, Drawing, Entry, Mark, constant_scale
from bnncert.importers.reading import Dropout, Source
from bnncert.model.layers import Conv2d, Dense, Layer, Scale


@dataclass(frozen=True, eq=False)
class Finished:
    """Layers in order, the nodes they read, and their sources, by letter."""

    layers: tuple[Layer, ...]
    reads: tuple[tuple[int, ...], ...]
    sources: tuple[Mapping[str, Source], ...]
    dropouts: tuple[Dropout, ...]
    bayesian: tuple[Bayesian, ...]
    constants: tuple[str, ...]  # parameters taken as certain


def finished(drawing: Drawing, end: int) -> Finished:
    """What leads to the node `end`."""
    nodes = _reached({k + 1: entry for k, entry in enumerate(drawing.entries)}, end)
    nodes, end, normalised = _folded(nodes, end)
    resolved = _without_marks(nodes)
    kept = [node for node, entry in nodes.items() if not isinstance(entry.layer, Mark)]
    number = {0: 0} | {node: k + 1 for k, node in enumerate(kept)}
    entries = [nodes[node] for node in kept]
    return Finished(
        tuple(entry.layer for entry in entries if not isinstance(entry.layer, Mark)),
        tuple(tuple(number[resolved[read]] for read in entry.reads) for entry in entries),
        tuple(entry.sources for entry in entries),
        tuple(
            _dropout(entry.layer, node, nodes, number, resolved, node in normalised)
            for node, entry in nodes.items()
            if isinstance(entry.layer, Mark)
        ),
        tuple(entry.bayesian for entry in entries if entry.bayesian),
        tuple(sorted({name for entry in entries for name in entry.constants})),
    )


def _reached(entries: Mapping[int, Entry], end: int) -> dict[int, Entry]:
    """In the order of the drawing."""
    wanted = {end}
    for node in sorted(entries, reverse=True):
        if node in wanted:
            wanted.update(entries[node].reads)
    return {node: entry for node, entry in entries.items() if node in wanted}


def _folded(nodes: dict[int, Entry], end: int) -> tuple[dict[int, Entry], int, set[int]]:
    """With constants in the layers before them, where the output then is, and the marks between."""
    readers = Counter(read for entry in nodes.values() for read in entry.reads)
    readers[end] += 1
    moved: dict[int, int] = {}
    normalised: set[int] = set()
    found: dict[int, Entry] = {}
    for node, entry in nodes.items():
        entry = replace(entry, reads=tuple(moved.get(read, read) for read in entry.reads))
        marks, before = _alone(found, readers, entry.reads[0])
        joined = _joined(found[before], entry, bool(marks)) if before in found else None
        if joined is None:
            found[node] = entry
            continue
        found[before] = joined
        moved[node] = entry.reads[0]
        readers[entry.reads[0]] = readers[node]
        normalised.update(marks)
    return found, moved.get(end, end), normalised


def _alone(nodes: Mapping[int, Entry], readers: Counter[int], node: int) -> tuple[list[int], int]:
    """The marks on the way back to a layer, and its node; 0 if anything else reads between."""
    marks: list[int] = []
    while node in nodes and readers[node] == 1:
        if not isinstance(nodes[node].layer, Mark):
            return marks, node
        marks.append(node)
        node = nodes[node].reads[0]
    return marks, 0


def _joined(before: Entry, entry: Entry, marked: bool) -> Entry | None:
    """Both as one layer, if the second is made of constants that fit the first."""
    layer = before.layer
    if entry.affine is None or not isinstance(entry.layer, Scale):
        return None
    factor, shift = entry.affine
    constants = before.constants | entry.constants
    if before.affine is not None and not marked:
        own = factor * before.affine[0], factor * before.affine[1] + shift
        scale, sources = constant_scale(*own)
        return Entry(scale, before.reads, sources, affine=own, constants=constants)
    if not isinstance(layer, Dense | Conv2d) or any(size > 1 for size in entry.layer.shape[1:]):
        return None
    outputs = layer.outputs if isinstance(layer, Dense) else layer.out_channels
    factor, shift = factor.flatten().expand(outputs), shift.flatten().expand(outputs)
    bias = before.sources.get("b", Source(None, (outputs,)))
    sources = {"W": before.sources["W"].followed_by(factor), "b": bias.followed_by(factor, shift)}
    return replace(before, layer=replace(layer, bias=True), sources=sources, constants=constants)


def _dropout(
    mark: Mark,
    node: int,
    nodes: Mapping[int, Entry],
    number: Mapping[int, int],
    resolved: Mapping[int, int],
    normalised: bool,
) -> Dropout:
    readers = tuple(number[reader] - 1 for reader in _readers(nodes, node))
    return Dropout(mark.place, mark.kind, mark.p, number[resolved[node]], readers, normalised)


def _without_marks(nodes: Mapping[int, Entry]) -> dict[int, int]:
    """For every node the one whose values it has."""
    found = {0: 0}
    for node, entry in nodes.items():
        found[node] = found[entry.reads[0]] if isinstance(entry.layer, Mark) else node
    return found


def _readers(nodes: Mapping[int, Entry], node: int) -> list[int]:
    """The layers that read a node, through marks too."""
    found = []
    for reader, entry in nodes.items():
        if node in entry.reads:
            through = isinstance(entry.layer, Mark)
            found += _readers(nodes, reader) if through else [reader]
    return found
