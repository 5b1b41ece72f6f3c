"""Proofs by laws: a lower bound of P_safe from the law of each row, summed over the rows.

P(some x, row r: M_r(x) <= 0) <= Σ_r [P(β + Σ T - K - u <= L g⁺) + η] + P(some z, v beyond cells)
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from bnncert.evidence.laws import Law, LineLaw, SharedLaw
from bnncert.laws.anchored import prove_by_anchors
from bnncert.laws.cells import OUTSIDE
from bnncert.laws.corners import grid_of
from bnncert.laws.head import Head, Margins, has_trunk, head, in_scale, margins, read_box
from bnncert.laws.lines import THRESHOLD, line_corners, lines
from bnncert.laws.remainder import nothing
from bnncert.laws.rows import SPARE, Ready, best_rows
from bnncert.laws.shared import Lattice, Wanted, memory, prove_shared
from bnncert.model.activations import ReLU
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.numerics.batching import in_batches
from bnncert.numerics.tails import normal_tail
from bnncert.posteriors.independent import Normal

MANY = 48  # neurons from which on cells are coarser
FINE, COARSE = (32, 2, 16, 3), (26, 3, 12, 5)  # cells of z and their parts, of v and theirs
SIZES = (2**12, 2**14)  # of the lattice
LINES_FINE, LINES_COARSE = (64, 6, 24, 6), (48, 2, 16, 4)  # the same for lines
LINES_SIZE, LINES_WIDE = 2**16, 24.0
LINES_ROOM = 2**21  # points of all neurons' lattices together, which a checker holds
FEW = 8  # inputs up to which ReLUs may do better one by one
PAID = 16  # inputs for every row: files of these pay for a checker's work on finer lattices
ENOUGH = 0.99  # of a bound: anchors are not sought beyond it


def prove_laws(problem: Problem, posterior: Normal, wanted: Wanted | None = None) -> list[Law]:
    """The bound of every input on a box that holds what the hidden layer reads."""
    wanted = wanted or Wanted()
    network, spec = problem.network, problem.specification
    net, box = head(network, posterior), read_box(network, posterior, spec.region)
    found: dict[int, Law] = {}
    for alike in _alike(box):
        part, own = spec[alike], box[alike]
        prove = partial(_prove_part, net, own, (part.rows, part.offsets), wanted)
        each = in_batches(prove, len(part), _bytes(net, part.rows.shape[1]), alike.device)
        found |= zip(alike.tolist(), chain.from_iterable(each), strict=True)
    laws = [found[i] for i in range(len(problem))]
    if not has_trunk(network):
        return laws
    ends = zip(box.lower.cpu(), box.upper.cpu(), strict=True)
    return [replace(law, trunk=own) for law, own in zip(laws, ends, strict=True)]


def _alike(box: Box) -> list[Tensor]:
    """Indices of boxes in which the same inputs move."""
    kinds, kind = torch.unique(box.upper > box.lower, dim=0, return_inverse=True)
    return [(kind == k).nonzero().squeeze(-1) for k in range(len(kinds))]


def _bytes(net: Head, rows: int) -> int:
    """About what the working tensors of one input take."""
    inputs, neurons = net.weight.shape
    shared = isinstance(net.activation, ReLU) and inputs > FEW
    lattice = _of_references(neurons) if shared else _of_lines(neurons)
    return memory(inputs, neurons, rows, lattice, shared=shared)


def _of_references(neurons: int) -> Lattice:
    """Numbers of cells and of their parts, and the size of the lattice."""
    many = neurons >= MANY
    return Lattice(COARSE if many else FINE, SIZES[many])


def _of_lines(neurons: int) -> Lattice:
    size = min(2 ** int(math.log2(LINES_ROOM / neurons)), LINES_SIZE)
    return Lattice(LINES_COARSE if neurons >= MANY else LINES_FINE, size)


def _prove_part(
    net: Head, box: Box, asked: tuple[Tensor, Tensor], wanted: Wanted, part: slice
) -> list[Law]:
    """By all that may do well; the best."""
    lower, upper, rows, offsets = (x[part] for x in (box.lower, box.upper, *asked))
    own = margins(net, lower, upper, rows, offsets)
    scaled, moving = in_scale(net, lower, upper, rows, offsets), (upper > lower)[0]
    relu = isinstance(net.activation, ReLU)
    found: list[list[Law]] = []
    if not relu or lower.shape[-1] <= FEW:
        found.append(_by_lines(net, own, scaled))
    if relu:
        finer = wanted.finer and lower.shape[-1] >= PAID * rows.shape[1]
        found.append(_by_references(own, moving, scaled, replace(wanted, finer=finer)))
    best = [max(laws, key=lambda law: law.bound) for laws in zip(*found, strict=True)]
    if int(moving.sum()) != 1:
        return best
    return [
        _anchored(net, (lower[i], upper[i]), rows[i], offsets[i], law) if scaled[i] else law
        for i, law in enumerate(best)
    ]


def _anchored(
    net: Head, box: tuple[Tensor, Tensor], rows: Tensor, offsets: Tensor, known: Law
) -> Law:
    """By anchors, where they are better than what is known."""
    if known.bound >= ENOUGH:
        return known
    found = prove_by_anchors(net, *box, rows, offsets)
    return known if found is None or found.bound <= known.bound else found


def _by_references(own: Margins, moving: Tensor, scaled: Tensor, wanted: Wanted) -> list[Law]:
    found = prove_shared(own, _of_references(own.mean.shape[-1]), wanted)
    failures = torch.stack([one.failure for _, one in found])
    bounds = _bounds(own, failures, torch.where(scaled, 0.0, 1.0).tolist())
    laws: list[Law] = []
    for bound, (lattice, one) in zip(bounds, found, strict=True):
        theta, y = (_on_all(x, moving) for x in (one.theta, one.y))
        chosen = one.numbers, one.remainder, theta, y, one.blend
        laws.append(SharedLaw(bound, lattice.cells, lattice.size, *chosen))
    return laws


def _by_lines(net: Head, own: Margins, scaled: Tensor) -> list[Law]:
    neurons = own.mean.shape[-1]
    lattice = _of_lines(neurons)
    at = grid_of(own, lattice.cells, net.activation.traits.kinks or (0.0,))
    found = lines(net.activation, own, at, THRESHOLD)
    ends = partial(line_corners, own, at, found)
    ready = Ready(own, at, ends, lattice.size, LINES_WIDE, floored=True)
    proved = best_rows(ready, torch.zeros_like(own.beta), nothing(own))
    farther = float(normal_tail(torch.tensor(THRESHOLD).double())) * neurons * (1 + SPARE)
    extra = farther if own.radius.shape[-1] else 0.0
    bounds = _bounds(own, proved.failure, torch.where(scaled, extra, 1.0).tolist())
    each = zip(bounds, proved.numbers, found.slopes.cpu(), strict=True)
    common = lattice.cells, lattice.size
    return [LineLaw(bound, *common, own, THRESHOLD, kept) for bound, own, kept in each]


def _bounds(own: Margins, failures: Tensor, extra: list[float]) -> list[float]:
    """By failures of all rows, what is beyond the cells, and more; perhaps below 0, where rows that
    fail together were counted twice."""
    rows, neurons = own.v.shape[1:]
    beyond = 2 * OUTSIDE * neurons * (1 + rows) * (1 + SPARE)
    sums = (math.fsum(one) for one in failures.tolist())
    return [
        1 - (failing + beyond + more) * (1 + SPARE)
        for failing, more in zip(sums, extra, strict=True)
    ]


def _on_all(values: Tensor, moving: Tensor) -> Tensor:
    """Of the moving inputs, among ones for the others; on the processor, as files hold it."""
    found = torch.ones(*values.shape[:-1], len(moving), dtype=torch.float32)
    found[..., moving.cpu()] = values.float().cpu()
    return found
