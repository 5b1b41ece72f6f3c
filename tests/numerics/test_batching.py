"""Batches: slices cover everything once."""

from __future__ import annotations

import pytest
import torch

from bnncert.numerics import batching


def test_slices_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "CPU_BUDGET", 100)
    cpu = torch.device("cpu")
    for length, each in [(0, 10), (1, 10), (10, 10), (11, 10), (5, 1000), (7, 0), (25, 33)]:
        covered = [i for part in batching.slices(length, each, cpu) for i in range(length)[part]]
        assert covered == list(range(length))
    assert [part.stop - part.start for part in batching.slices(25, 33, cpu)] == [3] * 8 + [1]
