"""Fixtures of several folders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, standard output and standard error of `bnncert ARGUMENTS`."""
    return runner(capsys, monkeypatch)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads only slow small networks down, by far where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
