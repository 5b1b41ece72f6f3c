"""Products that broadcast over a batch: weights and vectors may be shared by the batch or be one an input."""

from __future__ import annotations

from torch import Tensor


def through(h: Tensor, weights: Tensor) -> Tensor:
    """h [B, in] through shared [in, out] or paired [B, in, out] weights, [B, out]."""
    return h @ weights if weights.dim() == 2 else (h.unsqueeze(1) @ weights).squeeze(1)


def dot(rows: Tensor, vector: Tensor) -> Tensor:
    """rows [B or 1, R, n] times a shared [n] or paired [B, n] vector, [B, R]."""
    if vector.dim() == 1:
        return rows @ vector
    if len(rows) == 1:  # rows shared by the batch: one matrix product instead of B copies
        return vector @ rows[0].mT
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
