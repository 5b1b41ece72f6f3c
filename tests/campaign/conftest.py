"""A campaign, and an uninterrupted run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns import ITEMS, run_here, write_campaign


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_campaign(tmp_path_factory.mktemp("campaign"))


@pytest.fixture(scope="session")
def finished(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    state = run_here(campaign, folder)
    assert (state.done, state.computed, state.errors) == (ITEMS, ITEMS, 0)
    return folder
