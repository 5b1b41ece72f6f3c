"""One page in a real browser, the distribution's own Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE = 10_000  # milliseconds: a busy machine must not fail the tests
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install chromium"
)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The page, in which no error must happen while it is open."""
    sync_api = pytest.importorskip("playwright.sync_api")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium refuses to root
    complaints: list[str] = []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if said.type == "error" else None
        )
        page.goto(path.as_uri())
        yield page
        browser.close()
    assert complaints == []
