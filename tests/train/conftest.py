"""One thread for training."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def training(one_thread: None) -> None:
    """Every test of the folder."""
