"""A map: the region's cells, cut until each is certified, falsified or at its smallest size.

The largest open cells are bounded first, many at once, quickly; what is certified is done. A cell
that is not is cut, unless it is as small as cells may be, or the central network fails wherever it
was looked at in it: then it is bounded thoroughly, from both sides, and stays one cell if that
settles the threshold, or if it cannot be cut. So a cell that is falsified and could be cut further
is cut further while parts of it may be certified.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch

from bnncert.campaign.bundle import pack
from bnncert.data.regions import OperatingRegion
from bnncert.errors import InputError
from bnncert.evidence.certificate import Certificate
from bnncert.map.cells import Cell, Ends, Seen, cut, look, share
from bnncert.map.proving import Bound, Prover
from bnncert.map.store import Store, bundle_path
from bnncert.results.answers import settled
from bnncert.results.rows import Status

CHUNK = 512  # cells bounded at once
PARTS = 32  # of each side at most, unless the region says how small cells may be
POINTS = ("c0.point", "points")  # tensors of evidence that hold counterexamples


@dataclass(frozen=True)
class Budget:
    """Seconds of this run, and cells of the whole map; no more are bounded when one is spent."""

    seconds: float
    cells: int

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise InputError(f"time is {self.seconds:g}; give seconds above 0")
        if not self.cells >= 1:
            raise InputError(f"cells are {self.cells}; give at least 1")


def smallest_sizes(region: OperatingRegion, lower: Ends, upper: Ends, parts: int) -> Ends:
    """How long a side of a cell may still be when it is cut no more."""
    if parts < 1:
        raise InputError(f"parts are {parts}; give at least 1")
    sizes = (upper - lower) / parts
    for i, dimension in enumerate(region.dimensions):
        if dimension.smallest is not None:
            sizes[i] = float(Fraction(dimension.smallest) / dimension.scale)
    found: Ends = sizes * (1 + 2.0**-40)  # halves of halves may be a rounding longer
    return found


@dataclass(eq=False)
class Frontier:
    """The cells that nothing is known of yet, the largest first; and how many cells there are."""

    region: Cell
    leaves: int
    heap: list[tuple[float, int, Cell]] = field(default_factory=list)
    held: list[Cell] = field(default_factory=list)  # to be cut, with no cells left for it

    def put(self, cell: Cell) -> None:
        heapq.heappush(self.heap, (-share(cell, self.region), cell.number, cell))

    def take(self, count: int) -> list[Cell]:
        return [heapq.heappop(self.heap)[-1] for _ in range(min(count, len(self.heap)))]


def leaves_of(store: Store, region: Cell) -> list[tuple[Cell, str | None]]:
    """Every cell of the tree that is cut no further, its ends told from the cuts, and its line."""
    found: list[tuple[Cell, str | None]] = []
    ends: dict[int, tuple[tuple[Ends, Ends], tuple[Ends, Ends]]] = {}
    for node in store.nodes():
        if node.parent is None or node.side is None:
            cell = region
        else:
            cell = Cell(node.number, *ends[node.parent][node.side])
        if node.dimension is not None and node.at is not None:
            ends[node.number] = cell.halves(node.dimension, node.at)
        else:
            found.append((cell, node.line))
    return found


@dataclass(frozen=True)
class Progress:
    """How far a run is: shares of volume by status, and cells."""

    shares: dict[str, float]
    cells: int
    open: int


@dataclass(eq=False)
class Mapping:
    """One run over a store's tree, until nothing is open or the budget is spent."""

    store: Store
    prover: Prover
    region: Cell
    smallest: Ends
    budget: Budget
    show: Callable[[Progress], None]
    shares: dict[str, float] = field(default_factory=dict)

    def run(self) -> bool:
        """Whether no cell is left open."""
        leaves = leaves_of(self.store, self.region)
        frontier = Frontier(self.region, leaves=len(leaves))
        for cell, line in leaves:
            if line is None:
                frontier.put(cell)
            else:
                self._count(cell, json.loads(line)["status"])
        deadline = time.monotonic() + self.budget.seconds
        while frontier.heap and time.monotonic() < deadline:
            self._chunk(frontier, frontier.take(CHUNK))
            self.show(Progress(dict(self.shares), frontier.leaves, len(frontier.heap)))
        return not frontier.heap and not frontier.held

    def _count(self, cell: Cell, status: str) -> None:
        self.shares[status] = self.shares.get(status, 0.0) + share(cell, self.region)

    def _chunk(self, frontier: Frontier, cells: list[Cell]) -> None:
        prover = self.prover
        seen = look(prover.network, prover.posterior.center, prover.condition, cells)
        bounds = prover.below(cells, seen)
        cuts = [
            cut(cell, change, self.smallest)
            for cell, change in zip(cells, seen.change.numpy(), strict=True)
        ]
        at_end = [
            i
            for i, bound in enumerate(bounds)
            if self._status(bound) is not Status.CERTIFIED
            and (cuts[i] is None or bool(seen.hopeless[i]))
        ]
        for i, bound in zip(at_end, self._thoroughly(cells, seen, bounds, at_end), strict=True):
            bounds[i] = bound
        ended = set(at_end)

        entered = _Entered(self.store.chunks)
        for i, (cell, bound) in enumerate(zip(cells, bounds, strict=True)):
            status, where = self._status(bound), cuts[i]
            # That a cell is falsified is no reason to cut it no further: parts may be certified.
            known = status is Status.CERTIFIED or (status is Status.FALSIFIED and i in ended)
            if known or where is None:
                label = int(seen.labels[i]) if prover.condition.predicted else None
                entered.know(cell, bound, status, label)
                self._count(cell, status)
            elif frontier.leaves < self.budget.cells:
                frontier.leaves += 1
                entered.cuts.append((cell, *where))
            else:
                frontier.held.append(cell)
        for child in self._enter(entered):
            frontier.put(child)

    def _enter(self, entered: _Entered) -> list[Cell]:
        """Store what became of a chunk; the new cells."""
        number = self.store.next_number
        children: list[Cell] = []
        born: list[tuple[int, int, int]] = []
        for cell, dimension, at in entered.cuts:
            for side, ends in enumerate(cell.halves(dimension, at)):
                children.append(Cell(number + len(children), *ends))
                born.append((children[-1].number, cell.number, side))
        cuts = [(cell.number, dimension, at) for cell, dimension, at in entered.cuts]
        bundle = pack(entered.members) if entered.members else b""
        self.store.add(entered.chunk, bundle, entered.lines, cuts, born)
        return children

    def _thoroughly(
        self, cells: Sequence[Cell], seen: Seen, known: Sequence[Bound], chosen: list[int]
    ) -> list[Bound]:
        if not chosen:
            return []
        index = torch.tensor(chosen)
        part = Seen(
            seen.labels[index],
            seen.points[index],
            [[margin[index] for margin in each] for each in seen.margins],
            seen.change[index],
        )
        return self.prover.both([cells[i] for i in chosen], part, [known[i] for i in chosen])

    def _status(self, bound: Bound) -> Status:
        return settled(bound.lower, bound.upper, self.prover.at_least)


@dataclass(eq=False)
class _Entered:
    """What a chunk's cells have become: lines and certificates, or cuts."""

    chunk: int
    lines: list[tuple[int, str]] = field(default_factory=list)
    cuts: list[tuple[Cell, int, float]] = field(default_factory=list)
    members: list[tuple[str, bytes]] = field(default_factory=list)

    def know(self, cell: Cell, bound: Bound, status: Status, label: int | None) -> None:
        """Enter what is known of a cell, with its certificates."""
        paths: dict[int, str] = {}

        def keep(certificate: Certificate | None) -> str | None:
            if certificate is None:
                return None
            if id(certificate) not in paths:
                name = f"{cell.number:08d}-{len(paths)}.safetensors"
                self.members.append((name, certificate.content()))
                paths[id(certificate)] = f"{bundle_path(self.chunk)}/{name}"
            return paths[id(certificate)]

        below = [keep(certificate) for certificate in bound.below]
        above = None
        point = None
        if bound.above is not None:
            clause, certificates = bound.above
            above = {"clause": clause, "certificates": [keep(one) for one in certificates]}
            point = counterexample(certificates)
        line = cell_line(cell, status, (bound.lower, bound.upper), label)
        line |= {"below": below, "above": above, "point": point}
        self.lines.append((cell.number, json.dumps(line, allow_nan=False)))


def cell_line(
    cell: Cell, status: Status, bounds: tuple[float, float], label: int | None
) -> dict[str, Any]:
    """A line of cells.jsonl; without certificates it claims nothing."""
    return {
        "cell": cell.number,
        "low": cell.lower.tolist(),
        "high": cell.upper.tolist(),
        "status": str(status),
        "class": label,
        "lower": bounds[0],
        "upper": bounds[1],
        "below": [],
        "above": None,
        "point": None,
    }


def counterexample(certificates: Sequence[Certificate]) -> list[float] | None:
    """Where in the cell networks fail, if the evidence says so."""
    first = certificates[0]
    if len(certificates) > 1:  # all are about one point
        return [float(value) for value in first.x.flatten()]
    for name in POINTS:
        if name in first.tensors and first.tensors[name].numel() >= first.x.numel():
            return [float(v) for v in first.tensors[name].reshape(-1, first.x.numel())[0]]
    return None
