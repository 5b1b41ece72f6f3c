"""Norms and determinants of many small symmetric matrices C [..., n, n] without negative
eigenvalues, by products and Cholesky factors: eigenvalues a GPU finds for one matrix at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 20  # of Lanczos


def norms(matrices: Tensor) -> Tensor:
    """|C| from below [...], by Lanczos' steps from one vector: nearly always to the last digits."""
    size = matrices.shape[-1]
    v = torch.arange(1, size + 1, dtype=matrices.dtype, device=matrices.device).cos().unsqueeze(-1)
    v = (v / torch.linalg.vector_norm(v)).expand(*matrices.shape[:-1], 1)
    before, beside = torch.zeros_like(v), torch.zeros_like(v[..., :1, :])
    diagonal, off = [], []
    for _ in range(min(STEPS, size)):
        moved = matrices @ v - beside * before
        along = (v * moved).sum(-2, keepdim=True)
        moved = moved - along * v
        beside = torch.linalg.vector_norm(moved, dim=-2, keepdim=True)
        before, v = v, moved / beside.clamp_min(1e-200)
        diagonal.append(along)
        off.append(beside)
    inner, outer = (torch.cat(x, -1).squeeze(-2) for x in (diagonal, off))
    small = torch.diag_embed(inner) + torch.diag_embed(outer[..., :-1], -1)
    found: Tensor = torch.linalg.eigvalsh(small)[..., -1].clamp_min(0)
    return found


def log_determinants(matrices: Tensor, scales: Tensor) -> Tensor:
    """log det(I - λC) [...] for λ [...]; minus infinity where that is not positive definite."""
    shrunk = matrices * -scales[..., None, None]
    shrunk.diagonal(dim1=-2, dim2=-1).add_(1)
    factors, info = torch.linalg.cholesky_ex(shrunk)
    logarithms = 2 * factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.where(info == 0, logarithms, -torch.inf)
