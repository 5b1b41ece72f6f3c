"""The page of a map: what it says, and its heat maps in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from bnncert import InputError, mlp, save_posterior
from bnncert.map.page import write_page
from bnncert.posteriors import Normal
from browsing import needs_browser, opened
from commands import Run, runner

REGION = "name,unit,low,high,scale\ndistance,km,-10,10,10\nspeed,m/s,-2,2,2\nheight,,0,1,\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, run: Run) -> Path:
    """A map of three inputs whose class is that of the larger one, checked."""
    mean = torch.tensor([1, 0, 0, 1, 0.1, 0, 0, 0]).double()
    save_posterior(tmp_path / "p.safetensors", mlp(3, 2), Normal(mean, torch.full_like(mean, 0.01)))
    (tmp_path / "region.csv").write_text(REGION)
    (tmp_path / "names.toml").write_text('outputs = ["<b>left", "right"]')
    out = tmp_path / "map"
    asked = ("--region", tmp_path / "region.csv", "--parts", 4, "--effort", 0)
    named = ("--names", tmp_path / "names.toml")
    code, _, _ = run("map", tmp_path / "p.safetensors", *asked, *named, "--out", out)
    assert code == 0
    _, said, _ = run("check", out, "--posterior", tmp_path / "p.safetensors", "--json")
    (out / "check.json").write_text(said)
    return out


def test_the_page_says_what_was_asked_and_found(folder: Path, run: Run) -> None:
    code, _, _ = run("report", folder)
    assert code == 0
    page = (folder / "report.html").read_text()
    for words in (
        "distance from -10 to 10 km, speed from -2 to 2 m/s, height from 0 to 1",
        "whether it is at least 0.95",
        "class predicted",
        "and that they cover the region",
        "Checked independently",
        "digest of the posterior",
        "p.safetensors",
        "the network reads",
        "Where networks fail",
        "region file",
        "Answered by concentration",
        "In the checker’s own words",
        "&lt;b&gt;left",
    ):
        assert words in page, words
    assert "<b>left" not in page.replace("\\u003cb\\u003eleft", "")
    assert "None" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


def test_verdicts_must_be_of_this_map(folder: Path) -> None:
    said = json.loads((folder / "check.json").read_text())
    said["certificates"][0]["status"] = "REJECT"
    (folder / "check.json").write_text(json.dumps(said))
    assert "Not everything passed" in write_page(folder).read_text()
    said["certificates"][1]["claimed"] = [0.5, 0.6]
    (folder / "check.json").write_text(json.dumps(said))
    with pytest.raises(InputError, match="is not what the checker prints of this map"):
        write_page(folder)
    (folder / "check.json").unlink()
    assert "Not checked independently" in write_page(folder).read_text()
    with pytest.raises(InputError, match="must be a file in a folder that exists"):
        write_page(folder, folder / "nowhere" / "page.html")


@needs_browser
def test_heat_maps_in_a_browser(folder: Path) -> None:
    with opened(write_page(folder)) as page:

        def colours() -> set[str]:
            found = page.evaluate(
                "() => [...new Set([...Array(64 * 64).keys()].map(k => context.getImageData("
                "8 * (k % 64) + 4, 8 * Math.floor(k / 64) + 4, 1, 1).data.join(',')))]"
            )
            return set(found)

        assert len(colours()) >= 2  # certified corners, falsified cells between them
        page.select_option("#colour", "class")
        assert len(colours()) >= 3  # both classes, and what is falsified
        assert "<b>left" in page.inner_text("#keys")
        page.select_option("#colour", "bound")
        assert "100 %" in page.inner_text("#keys")

        # The third dimension is held at a value, or at its worst.
        assert "height at 0.5" in page.inner_text("#fixed")
        page.check("#fixed input[type=checkbox]")
        assert "height: worst" in page.inner_text("#fixed")
        page.select_option("#x", "2")
        assert "distance [km] at 0" in page.inner_text("#fixed")
        page.select_option("#y", "2")  # not both the same
        assert page.input_value("#x") != "2"
        page.hover("#heat", position={"x": 20, "y": 20})
        assert "P_safe from" in page.inner_text("#told")

        # On paper nothing is left to choose from, and what was chosen is said.
        page.emulate_media(media="print")
        assert page.locator(".controls :is(select, input)").evaluate_all(
            "own => own.every(one => !one.offsetParent)"
        )
        printed = page.inner_text(".controls").split("\n")
        assert any(re.fullmatch(r"(distance|speed) .* at 0", line) for line in printed)
        assert not {"across", "colour", "worst over all of it"} & set(printed)
