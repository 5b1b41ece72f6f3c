"""The backward walk of CROWN (Zhang et al. 2018): from rows on the output to rows on the input.

Rows on a node become rows on the nodes before it, layer by layer.

A step is one layer as the walk sees it. Where a node is read more than once, the rows that come
back to it add up. What the steps leave out, or pay, is gathered in a tally. This one walk serves
linear bounds over weight boxes (backward LBP, CROWN), functionals of Gaussian weights, their
slopes, domains of branch and bound, and predictive means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from bnncert.bounds.windows import Window
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT


@dataclass(frozen=True, eq=False)
class Shared:
    """Slopes along noise that weights share: of each coordinate q the slope C_q at the centres and
    the most that |C_q| can grow by; how far the vector of slopes can be from C; and of one layer
    perhaps the most that its product with C can grow by.

    F is a supremum over pairs (x, h) of linear functions of the noise, whose slopes along what is
    shared are c(x, h). So L² is at most what independent noise adds to it, and sup |c|²: with
    d = c - C,

        |c|² = Σ_q c_q² <= Σ_q (|C_q| + radius_q)²,
        |c|² = |C|² + 2 C·d + |d|² <= |C|² + 2 along + reach² <= (|C| + reach)².

    Any set that holds all those pairs will do, and of several ways to see it the least counts.
    """

    center: Tensor  # [B, R, k]
    radius: Tensor  # [B, R, k]
    reach: Tensor  # [B, R]
    along: Tensor | None = None  # [B, R]

    def plus(self, other: Shared) -> Shared:
        center = self.center + other.center
        rounding = 2 * UNIT * center.abs() + TINY
        radius = self.radius + other.radius + rounding
        return Shared(center, radius, self.reach + other.reach + rounding.sum(-1))

    @property
    def squared(self) -> Tensor:
        """Its part of L²: the least of Σ_q (|center_q| + radius_q)², (|center| + reach)² and
        |center|² + 2 along + reach²."""
        by_coordinate = ((self.center.abs() + self.radius) ** 2).sum(-1)
        at_center = (self.center**2).sum(-1)
        least = torch.minimum(by_coordinate, (at_center.sqrt() + self.reach) ** 2)
        if self.along is None:
            return least
        return torch.minimum(least, at_center + 2 * self.along + self.reach**2)


@dataclass(frozen=True, eq=False)
class Seen:
    """Noise that reaches the input through affine forms: its standard deviations there [B, R, n],
    what the value pays [B, R] beside them, and what it pays where boxes meet that noise instead."""

    std: Tensor
    paid: Tensor
    instead: Tensor


@dataclass(frozen=True, eq=False)
class Tally:
    """What a walk has gathered: the value, and of random weights L² of independent noise and slopes
    along shared noise, in each way that they are known. `input_std` waits for the fold at the
    input, and so does what was `seen` of the input through layers that are certain."""

    value: Tensor  # [B or 1, R]
    variance: Tensor  # [B or 1, R]
    shared: tuple[Shared, ...] = ()
    input_std: Tensor | None = None  # [B, R, n]
    seen: Seen | None = None

    def gained(self, constant: Tensor) -> Tally:
        return replace(self, value=self.value + constant)

    def sharing(self, *ways: Shared) -> Tally:
        """With the noise of one more layer, known in one way or in two: the first of one layer goes
        with the first of another, as the pairs (x, h) lie in all of their sets at once."""
        if not self.shared:
            return replace(self, shared=ways)
        count = max(len(self.shared), len(ways))
        before, more = (known * (count // len(known)) for known in (self.shared, ways))
        joined = (one.plus(other) for one, other in zip(before, more, strict=True))
        return replace(self, shared=tuple(joined))


class Step(Protocol):
    """One layer as the backward walk sees it."""

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        """rows·layer(h) >= new rows·h + what the tally gains, for every h in the input boxes.

        rows [B or 1, R, *outputs]; new rows for each node that the layer reads.
        """
        ...

    def __getitem__(self, index: Tensor | slice) -> Step:
        """For some of the inputs."""
        ...

    def crop(self, before: Window, after: Window) -> Step:
        """For part of an image: what it gives in one window, from what it reads in another."""
        ...


def walk(
    network: Network, steps: Sequence[Step], boxes: Sequence[Box | None], rows: Tensor
) -> tuple[dict[int, Tensor], Tally]:
    """The last step's rows pulled back to the input: the rows on every node, and the tally.

    boxes: of the nodes so far; where rows add up, what rounding changes meets the node's box.
    """
    zero = torch.zeros(1, rows.shape[1], dtype=rows.dtype, device=rows.device)
    tally = Tally(zero, zero)
    found = {len(steps): rows}
    for k in reversed(range(len(steps))):
        if k + 1 not in found:
            continue  # a node that only layers beyond the walk's start read
        pulled, tally = steps[k].pull(found[k + 1], tally)
        for node, part in zip(network.reads[k], pulled, strict=True):
            if node not in found:
                found[node] = part
            else:
                found[node] = found[node] + part
                tally = tally.gained(-_rounding(found[node], boxes[node]))
    return found, tally


def known_boxes(boxes: Sequence[Box | None]) -> list[Box]:
    """Boxes of nodes that must have one: all but the terms of a sum."""
    found = [box for box in boxes if box is not None]
    if len(found) < len(boxes):
        raise TypeError("only the terms of a sum may have no box")
    return found


def _rounding(rows: Tensor, box: Box | None) -> Tensor:
    """What one rounding of the rows changes, at most."""
    if box is None:
        raise TypeError("a node that is read twice needs a box")
    return 2 * UNIT * dot(rows.flatten(2).abs(), box.magnitude.flatten(1)) + TINY
