"""Batching: work is cut to a memory budget, so that no width or batch size is too large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from bnncert.errors import InputError

T = TypeVar("T")
# Bytes of working tensors; the allocator's peak stays within about twice this.
CPU_BUDGET = 96 * 2**20
CUDA_SHARE = 12  # of the free memory; a third is a quarter faster and takes four times as much


def memory_budget(device: torch.device) -> int:
    """Bytes a bound may use for its working tensors on `device`."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free) // CUDA_SHARE
    return CPU_BUDGET


def slices(length: int, bytes_each: int, device: torch.device) -> Iterator[slice]:
    """Consecutive slices of range(length), as long as the budget allows, at least one item."""
    step = max(1, memory_budget(device) // max(1, bytes_each))
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def in_batches(
    compute: Callable[[slice], T], length: int, bytes_each: int, device: torch.device
) -> list[T]:
    """compute over all of range(length), slice by slice and in order.

    A slice that does not fit is halved.
    """
    results: list[T] = []
    pending = list(slices(length, bytes_each, device))[::-1]
    while pending:
        part = pending.pop()
        try:
            results.append(compute(part))
        except torch.OutOfMemoryError:
            middle = (part.start + part.stop) // 2
            if middle == part.start:
                raise InputError(
                    "one input alone does not fit into memory; use a larger device"
                ) from None
            torch.cuda.empty_cache()
            pending += [slice(middle, part.stop), slice(part.start, middle)]
    return results
