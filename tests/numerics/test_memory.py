"""Freed memory is kept: a loop over large tensors takes its pages once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bnncert.numerics.memory import keep_freed_memory

LOOP = """
import resource, torch
from bnncert.numerics.memory import keep_freed_memory
if {keep}:
    assert keep_freed_memory()
def work(times):
    for _ in range(times):
        torch.ones(10_000_000)
work(9)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work(20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", LOOP.format(keep=keep)],
        env=plain,
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def test_pages_are_taken_once() -> None:
    if not keep_freed_memory():
        pytest.skip("this C library has no mallopt")
    taken = 20 * 40_000_000 // 4096
    assert faults(keep=False) > taken / 8  # pages may be large
    assert faults(keep=True) < taken / 100
