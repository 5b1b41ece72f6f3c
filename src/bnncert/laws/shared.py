"""Laws of ReLUs that share the input's worst case: by row the slopes that do best, of a few.

A blend w says how much of a row's slopes is their mean over z. Wide posteriors do best with w = 0.
Where z varies little beside what moves it, A does too once slopes are alike, and the remainder is
small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from bnncert.laws.corners import References, constant, corners, grid_of, references, slopes
from bnncert.laws.head import Margins
from bnncert.laws.references import chosen
from bnncert.laws.remainder import SHARES, remainders
from bnncert.laws.rows import Ready, best_rows
from bnncert.numerics.batching import in_batches

WIDE = 9.0  # of the lattice's window, in standard deviations
BLENDS = (1.0, 0.5)  # w that are tried beside 0
MOVED = 1.0  # what moves z, in units of its deviation, from which on they are


@dataclass(frozen=True)
class Wanted:
    """enough: a bound from which on no more is tried. finer: whether cells and lattices may be."""

    enough: float = 0.99
    finer: bool = False


@dataclass(frozen=True)
class Lattice:
    """Cells of z and their parts, of v and theirs, and the size of the lattice."""

    cells: tuple[int, int, int, int]
    size: int

    @property
    def finer(self) -> Lattice:
        first, parts, second, others = self.cells
        return Lattice((2 * first, parts, 2 * second, others), 4 * self.size)


@dataclass(frozen=True, eq=False)
class Shared:
    """Failures of rows [B, R], and what gave them: the numbers of a choice [B, R, 6] and of a
    remainder [B, R, 3], references [B, R, J] of the inputs that move, and blends [B, R]."""

    failure: Tensor
    numbers: Tensor
    remainder: Tensor
    theta: Tensor
    y: Tensor
    blend: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return (getattr(self, field.name) for field in fields(self))

    def __getitem__(self, index: Any) -> Shared:
        return Shared(*(own[index] for own in self))

    def with_others(self, index: tuple[Tensor, ...], others: Shared) -> Shared:
        """With these there."""
        each = zip(self, others, strict=True)
        return Shared(*(own.index_put(index, new) for own, new in each))

    def open(self, enough: float) -> Tensor:
        """Of which inputs less is proved, [B]."""
        return self.failure.sum(-1) > 1 - enough


def memory(inputs: int, neurons: int, rows: int, lattice: Lattice, *, shared: bool = True) -> int:
    """About what the working tensors of one input take; shared: with remainders of all rows."""
    counts = lattice.cells
    corners, atoms = 4 * counts[0] * counts[2], math.prod(counts)
    at_once = rows if shared else 1
    grams = at_once * 3 * len(SHARES) * min(2 * neurons, inputs) ** 2
    held = at_once * (20 * corners + 6 * inputs)
    return 8 * (neurons * (held + 12 * atoms + 8 * lattice.size) + grams)


def prove_shared(rows: Margins, lattice: Lattice, wanted: Wanted) -> list[tuple[Lattice, Shared]]:
    """Of every input; where less than enough is proved with the blends that do best, and then on a
    finer lattice, if that is wanted."""
    found = by_blend(rows, lattice, torch.zeros_like(rows.beta))
    if rows.radius.shape[-1]:
        found = _blended(rows, lattice, found, wanted.enough)
    laws = [(lattice, found[i]) for i in range(len(found.failure))]
    left = found.open(wanted.enough).nonzero().squeeze(-1)
    if not wanted.finer or not len(left):
        return laws
    others = _finer(rows[left.to(rows.mean.device)], lattice.finer, found.blend[left])
    for k, i in enumerate(left.tolist()):
        if float(others.failure[k].sum()) < float(found.failure[i].sum()):
            laws[i] = lattice.finer, others[k]
    return laws


def _blended(rows: Margins, lattice: Lattice, found: Shared, enough: float) -> Shared:
    """Rows that fail noticeably, each with the best of all blends. Those that nothing is known of
    come first: while an input has one, nothing is proved of it."""
    moved = rows.swept(rows.weight).mean(-1) >= MOVED * rows.std.mean(-1)
    moved = moved.unsqueeze(-1).cpu()
    for blend in BLENDS:
        for known in (False, True):
            where = moved & _noticed(found, enough, known) & (found.blend != blend)
            found = _better(rows, lattice, found, where.nonzero(as_tuple=True), blend)
    return found


def _noticed(found: Shared, enough: float, known: bool) -> Tensor:
    """Of which rows [B, R] another blend may be of use."""
    unknown = found.failure >= 1
    if not known:
        return unknown
    some = found.failure > (1 - enough) / found.failure.shape[1]
    return some & (found.open(enough) & ~unknown.any(-1)).unsqueeze(-1)


def _better(
    rows: Margins, lattice: Lattice, found: Shared, where: tuple[Tensor, ...], blend: float
) -> Shared:
    """With this blend for those of some rows that do better with it."""
    if not len(where[0]):
        return found
    there = [index.to(rows.mean.device) for index in where]

    def prove(part: slice) -> Shared:
        own = rows.alone(*(index[part] for index in there))
        return by_blend(own, lattice, torch.full_like(own.beta, blend))

    other = _in_parts(prove, rows, 1, lattice, len(where[0]))[:, 0]
    better = other.failure < found.failure[where]
    return found.with_others(tuple(index[better] for index in where), other[better])


def _finer(rows: Margins, lattice: Lattice, blend: Tensor) -> Shared:
    def prove(part: slice) -> Shared:
        own = rows[torch.arange(len(rows.mean), device=rows.mean.device)[part]]
        return by_blend(own, lattice, blend[part].to(rows.mean.device))

    return _in_parts(prove, rows, blend.shape[1], lattice, len(blend))


def _in_parts(
    prove: Callable[[slice], Shared], rows: Margins, at_once: int, lattice: Lattice, length: int
) -> Shared:
    inputs, neurons = rows.weight.shape
    each = memory(inputs, neurons, at_once, lattice)
    parts = in_batches(prove, length, each, rows.mean.device)
    return Shared(*(torch.cat(own) for own in zip(*parts, strict=True)))


def by_blend(rows: Margins, lattice: Lattice, blend: Tensor) -> Shared:
    """With blends [B, R]."""
    at = grid_of(rows, lattice.cells, (0.0,))
    found = _rounded(rows, chosen(rows, at, blend))
    ends = corners(rows, found, at, slopes(rows, found, at, blend))

    def ends_of(row: int) -> tuple[Tensor, Tensor]:
        return ends.value[:, row], ends.squared[:, row]

    ready = Ready(rows, at, ends_of, lattice.size, WIDE, floored=False)
    proved = best_rows(ready, constant(rows, found), remainders(rows, found, at, ends))
    known = proved.failure, proved.numbers, proved.remainder, found.theta, found.y, blend
    return Shared(*(x.cpu() for x in known))


def _rounded(rows: Margins, found: References) -> References:
    """With references that float32 holds."""
    theta, y = (x.float().double() for x in (found.theta, found.y))
    return references(rows, theta.clamp_min(1e-12), y)
