"""Batching: work is cut to a memory budget, so that width and batch size never decide whether a call fits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

CPU_BUDGET = 192 * 2**20  # bytes of working tensors; the allocator's peak stays within about twice this


def memory_budget(device: torch.device) -> int:
    """Bytes a bound may use for its working tensors on `device`."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) // 3
    return CPU_BUDGET


def slices(length: int, bytes_each: int, device: torch.device) -> Iterator[slice]:
    """Consecutive slices of range(length), each as long as the budget allows and at least one item."""
    step = max(1, memory_budget(device) // max(1, bytes_each))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))
