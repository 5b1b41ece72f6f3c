"""Products that broadcast over a batch."""

from __future__ import annotations

from torch import Tensor


def dot(rows: Tensor, vector: Tensor) -> Tensor:
    """rows [B or 1, R, n] times a shared [n] or paired [B, n] vector, [B, R]."""
    if vector.dim() == 1:
        return rows @ vector
    if len(rows) == 1:  # rows shared by the batch: one matrix product instead of B copies
        return vector @ rows[0].mT
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
