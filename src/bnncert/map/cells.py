"""Cells: boxes of a region, where to look in them, and where to cut them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from bnncert.map.condition import Condition
from bnncert.model.network import Network

Ends = NDArray[np.float64]
POINTS = 16  # of a cell, its middle first, where the central network is looked at
MOST_CORNERS = 4  # dimensions


@dataclass(frozen=True, eq=False)
class Cell:
    """A part [lower, upper] (flat) of the region, by its number."""

    number: int
    lower: Ends
    upper: Ends

    def halves(self, dimension: int, at: float) -> tuple[tuple[Ends, Ends], tuple[Ends, Ends]]:
        """Below and above the cut, which both contain."""
        below, above = self.upper.copy(), self.lower.copy()
        below[dimension] = above[dimension] = at
        return (self.lower, below), (above, self.upper)


def middle(lower: Ends, upper: Ends) -> Ends:
    """One float for each dimension, between the ends if there is any between them."""
    found: Ends = lower / 2 + upper / 2
    return np.clip(found, lower, upper)


def share(cell: Cell, region: Cell) -> float:
    """Of the region's volume, nearly; sides of length 0 have no say."""
    widths, whole = cell.upper - cell.lower, region.upper - region.lower
    wide = whole > 0
    return float(np.prod(widths[wide] / whole[wide]))


@dataclass(frozen=True, eq=False)
class Seen:
    """What the central network does in cells: the class at their middles [B], at POINTS points the
    margin of every alternative, and by how much the smallest margin changes along each side
    [B, d]."""

    labels: Tensor
    points: Tensor  # [B, P, d]
    margins: list[list[Tensor]]  # [B, P] each
    change: Tensor

    @property
    def worst(self) -> Tensor:
        """The smallest clause's best alternative at every point [B, P]."""
        return _together(self.margins)

    @property
    def hopeless(self) -> Tensor:
        """Cells [B] where the central network fails wherever it was looked at: no part of such a
        one is likely to be certified."""
        return (self.worst <= 0).all(1)


def look(network: Network, center: Tensor, condition: Condition, cells: Sequence[Cell]) -> Seen:
    """Nothing certified; in plain floating point."""
    device = center.device
    lower, upper = (
        torch.from_numpy(np.stack(ends)).to(device)
        for ends in ([c.lower for c in cells], [c.upper for c in cells])
    )
    places = _places(lower.shape[1]).to(device)
    points = lower.unsqueeze(1) + places * (upper - lower).unsqueeze(1)
    points = points.detach().requires_grad_()
    with torch.enable_grad():
        flat = points.reshape(-1, *network.input_shape)
        outputs = network.forward(center, flat).reshape(*points.shape[:2], -1).cpu()
        labels = outputs[:, 0].argmax(-1)
        margins = condition.margins(outputs, labels)
        (gradient,) = torch.autograd.grad(_together(margins).sum(), points)
    change = gradient.abs().mean(1) * (upper - lower)
    found = [[margin.detach() for margin in each] for each in margins]
    return Seen(labels, points.detach().cpu(), found, change.cpu())


def _together(margins: list[list[Tensor]]) -> Tensor:
    clauses = [torch.stack(each).amax(0) for each in margins]
    return torch.stack(clauses).amin(0)


def _places(dimensions: int) -> Tensor:
    """The middle, the corners where they are few, and points that fill the unit cube evenly."""
    found = [torch.full((1, dimensions), 0.5, dtype=torch.float64)]
    if dimensions <= MOST_CORNERS:
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        found.append(torch.cartesian_prod(*[ends] * dimensions).reshape(-1, dimensions))
    even = SobolEngine(dimensions)  # type: ignore[no-untyped-call]
    return torch.cat([*found, even.draw(POINTS, dtype=torch.float64)])


def cut(cell: Cell, change: Ends, smallest: Ends) -> tuple[int, float] | None:
    """Along which dimension and where to cut: of those that are still longer than the smallest the
    one that changes the margin most, or the longest where none does. None: it is at its end."""
    widths = cell.upper - cell.lower
    at = middle(cell.lower, cell.upper)
    able = (widths > smallest) & (cell.lower < at) & (at < cell.upper)
    if not able.any():
        return None
    sizes = np.where(np.isfinite(change), change, 0.0) if change[able].max() > 0 else widths
    chosen = int(np.where(able, sizes, -1.0).argmax())
    return chosen, float(at[chosen])
