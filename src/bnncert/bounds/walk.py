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

from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT


@dataclass(frozen=True, eq=False)
class Tally:
    """What a walk has gathered: the value, and of random weights L² of independent noise and slopes
    along shared noise.

    For coordinate q of the shared noise: its slope at the boxes' centres and the most that the
    boxes can add, so that its part of L² is at most (|center_q| + radius_q)². `input_std` waits for
    the fold at the input.
    """

    value: Tensor  # [B or 1, R]
    variance: Tensor  # [B or 1, R]
    center: Tensor | None = None  # [B, R, k]
    radius: Tensor | None = None  # [B, R, k]
    input_std: Tensor | None = None  # [B, R, n]

    def gained(self, constant: Tensor) -> Tally:
        return replace(self, value=self.value + constant)


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


def _rounding(rows: Tensor, box: Box | None) -> Tensor:
    """What one rounding of the rows changes, at most."""
    if box is None:
        raise TypeError("a node that is read twice needs a box")
    return 2 * UNIT * dot(rows.flatten(2).abs(), box.magnitude.flatten(1)) + TINY
