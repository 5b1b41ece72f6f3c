"""Proofs by laws: a lower bound of P_safe from the law of each row, summed over the rows.

P(some x, row r: M_r(x) <= 0) <= Σ_r [P(β + Σ T - K - u <= L g⁺) + η] + P(some z, v beyond cells)
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from bnncert.evidence.laws import Law, LineLaw, SharedLaw
from bnncert.laws.anchored import prove_by_anchors
from bnncert.laws.cells import OUTSIDE
from bnncert.laws.corners import References, constant, corners, grid_of, references, slopes
from bnncert.laws.head import Head, Margins, has_trunk, head, in_scale, margins, read_box
from bnncert.laws.lattice import Choice
from bnncert.laws.lines import THRESHOLD, line_corners, lines
from bnncert.laws.references import chosen
from bnncert.laws.remainder import Remainder, remainders
from bnncert.laws.rows import SPARE, Ready, best_row
from bnncert.model.activations import ReLU
from bnncert.model.problem import Problem
from bnncert.numerics.tails import normal_tail
from bnncert.posteriors.independent import Normal

MANY = 48  # neurons from which on cells are coarser
FINE, COARSE = (32, 2, 16, 3), (26, 3, 12, 5)  # cells of z and their parts, of v and theirs
SIZES, WIDE = (2**12, 2**14), 9.0  # of the lattice; its window, in standard deviations
LINES_FINE, LINES_COARSE = (64, 6, 24, 6), (48, 2, 16, 4)  # the same for lines
LINES_SIZE, LINES_WIDE = 2**16, 24.0
LINES_ROOM = 2**21  # points of all neurons' lattices together, which a checker holds
FEW = 8  # inputs up to which ReLUs may do better one by one
ENOUGH = 0.99  # of a bound: anchors are not sought beyond it
NOTHING = (Remainder(0.0, 1.0, 1.0, 0.0),)


def prove_laws(problem: Problem, posterior: Normal) -> list[Law]:
    """The bound of every input on a box that holds what the hidden layer reads."""
    network, spec = problem.network, problem.specification
    net, box = head(network, posterior), read_box(network, posterior, spec.region)
    found = [
        _prove(net, box.lower[i], box.upper[i], spec.rows[i], spec.offsets[i])
        for i in range(len(problem))
    ]
    if not has_trunk(network):
        return found
    ends = zip(box.lower.cpu(), box.upper.cpu(), strict=True)
    return [replace(law, trunk=own) for law, own in zip(found, ends, strict=True)]


def _prove(net: Head, lower: Tensor, upper: Tensor, rows: Tensor, offsets: Tensor) -> Law:
    """By all that may do well; the best."""
    own = margins(net, lower, upper, rows, offsets)
    scaled, moving = in_scale(net, lower, upper, rows, offsets), upper > lower
    relu = isinstance(net.activation, ReLU)
    found: list[Law] = []
    if not relu or len(lower) <= FEW:
        found.append(_by_lines(net, own, scaled))
    if relu:
        found.append(_by_references(own, moving, scaled))
    best = max(found, key=lambda law: law.bound)
    if scaled and int(moving.sum()) == 1 and best.bound < ENOUGH:
        anchored = prove_by_anchors(net, lower, upper, rows, offsets)
        found += [anchored] if anchored is not None else []
    return max(found, key=lambda law: law.bound)


def _by_references(own: Margins, moving: Tensor, scaled: bool) -> SharedLaw:
    many = len(own.mean) >= MANY
    counts = COARSE if many else FINE
    at = grid_of(own, counts, (0.0,))
    found = _rounded(own, chosen(own, at))
    ends = corners(own, found, at, slopes(own, found, at))

    def ends_of(row: int) -> tuple[Tensor, Tensor]:
        return ends.value[row], ends.squared[row]

    ready = Ready(own, at, ends_of, SIZES[many], WIDE, floored=False)
    left = constant(own, found).tolist()
    each = [
        best_row(ready, r, left[r], options)
        for r, options in enumerate(remainders(own, found, at, ends))
    ]
    theta, y = (_on_all(x, moving) for x in (found.theta, found.y))
    kept = _table([(u.share, u.scale, u.chance) for _, _, u in each])
    bound = _bound(own, each, 0.0 if scaled else 1.0)
    return SharedLaw(bound, counts, ready.size, _numbers(each), kept, theta, y)


def _by_lines(net: Head, own: Margins, scaled: bool) -> LineLaw:
    many = len(own.mean) >= MANY
    counts = LINES_COARSE if many else LINES_FINE
    at = grid_of(own, counts, net.activation.traits.kinks or (0.0,))
    found = lines(net.activation, own, at, THRESHOLD)
    size = min(2 ** int(math.log2(LINES_ROOM / len(own.mean))), LINES_SIZE)
    ends = partial(line_corners, own, at, found)
    ready = Ready(own, at, ends, size, LINES_WIDE, floored=True)
    each = [best_row(ready, r, 0.0, NOTHING) for r in range(len(own.v))]
    farther = float(normal_tail(torch.tensor(THRESHOLD).double())) * len(own.mean) * (1 + SPARE)
    extra = (farther if len(own.radius) else 0.0) if scaled else 1.0
    slopes_of = found.slopes.cpu()
    bound = _bound(own, each, extra)
    return LineLaw(bound, counts, ready.size, _numbers(each), THRESHOLD, slopes_of)


Each = list[tuple[float, Choice, Remainder]]


def _bound(own: Margins, each: Each, extra: float) -> float:
    """Failures of all rows, what is beyond the cells, and more."""
    beyond = 2 * OUTSIDE * len(own.mean) * (1 + len(each)) * (1 + SPARE)
    failing = (math.fsum(failure for failure, _, _ in each) + beyond + extra) * (1 + SPARE)
    return max(0.0, 1 - failing)


def _numbers(each: Each) -> Tensor:
    return _table([(c.step, float(c.low), c.rate, c.curb, c.noise, c.tilt) for _, c, _ in each])


def _rounded(rows: Margins, found: References) -> References:
    """With references that float32 holds."""
    theta, y = (x.float().double() for x in (found.theta, found.y))
    return references(rows, theta.clamp_min(1e-12), y)


def _on_all(values: Tensor, moving: Tensor) -> Tensor:
    """Of the moving inputs, among ones for the others; on the processor, as files hold it."""
    found = torch.ones(len(values), len(moving), dtype=torch.float32)
    found[:, moving.cpu()] = values.float().cpu()
    return found


def _table(rows: list[tuple[float, ...]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)
