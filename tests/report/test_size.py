"""The size of a page about a thousand inputs."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import numpy as np
import pytest

from bnncert.report.cross_section import CrossSection
from bnncert.report.entries import Entry, Picture
from bnncert.report.page import BYTES_EACH, render, write_report
from bnncert.results.folder import StoredResult
from report_folders import fields, write_folder
from report_pages import Page

LIMIT = 3_000_000  # bytes of a page about a thousand inputs


def many(count: int, shape: tuple[int, ...]) -> list[Entry]:
    """Entries that are as hard to compress as can be, each with a counterexample and a
    cross-section."""
    generator = np.random.default_rng(0)
    runs = "".join(
        f"{code}{n}" for code, n in zip("cb" * 60, [20, 20] * 59 + [20, 21], strict=True)
    )
    entries = []
    for i in range(count):
        clean, point, change = generator.integers(0, 256, (3, *shape), np.uint8)
        result = StoredResult(
            **fields(i, 0.1 + i * 1e-5, 0.9), target=None, estimate=None, line=i + 1, posterior=None
        )
        facts = {
            "certified lower bound": repr(result.lower),
            "kind of evidence": "concentration",
            "digest of the problem": hashlib.sha256(bytes([i % 256, i // 256])).hexdigest(),
        }
        words = [
            f"With probability at least {result.lower!r} every hidden neuron stays in its interval."
        ]
        section = CrossSection(runs, (None, 0.0))
        entries.append(
            Entry(result, None, facts, words, Picture(clean, point, change, 0.025), section)
        )
    return entries


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3)])
def test_a_thousand_inputs_stay_below_the_limit(shape: tuple[int, ...], tmp_path: Path) -> None:
    """What does not fit is left out, the last inputs' pictures first, and the page says where."""
    page = Page(render(tmp_path, many(1000, shape), "standard deviations"))
    assert len(page.text.encode()) < LIMIT
    assert page.tags["img"] == 1000
    assert len(page.rows()) == 1000
    left_out = [i for i, figure in enumerate(page.data["figures"]) if figure == "left out"]
    assert 0 < len(left_out) < 1000
    assert page.data["figures"][0]["section"]


def test_small_runs_keep_everything(tmp_path: Path) -> None:
    page = Page(render(tmp_path, many(100, (32, 32, 3)), "standard deviations"))
    assert "left out" not in page.data["figures"]
    width = int.from_bytes(
        base64.b64decode(page.data["figures"][0]["point"][0].split(",")[1])[16:20], "big"
    )
    assert width == 32
    assert len(page.text) < BYTES_EACH * 1000


def test_a_thousand_images_of_a_folder(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 1000)
    path = write_report(tmp_path / "run")
    assert path.stat().st_size < LIMIT
