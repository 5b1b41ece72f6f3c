"""Fixtures of several folders."""

from __future__ import annotations

import pytest

from commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, standard output and standard error of `bnncert ARGUMENTS`."""
    return runner(capsys, monkeypatch)
