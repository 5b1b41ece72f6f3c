"""The pages and the manifests of a regression, a property and a map name all that a signature
rests on, as they are read in a browser."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bnncert import load_posterior
from browsing import needs_browser, opened
from commands import Run

pytestmark = needs_browser
SIDES = ("size", "age", "rooms")
REGION = "name,unit,low,high,scale\nsize,km,-10,10,10\nage,a,-2,2,2\nrooms,,0,1,\n"
EVERYWHERE = ("normal, ", "0.95", "concentration", "effort", "torch ", "bnncert ", "Linux", "seed")


def asked(run: Run, folder: Path, posterior: Path, *command: object) -> dict[str, Any]:
    """Answer, check, report; the manifest."""
    assert run(command[0], posterior, *command[1:], "--out", folder)[0] == 0
    code, said, _ = run("check", folder, "--posterior", posterior, "--json")
    assert code == 0
    (folder / "check.json").write_text(said)
    assert run("report", folder, "--posterior", posterior)[0] == 0
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def region_file(folder: Path) -> Path:
    path = folder / "region.csv"
    path.write_text(REGION)
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def reads(page: Any, manifest: dict[str, Any], *words: str) -> str:
    """The page's text, which has these words, those of every run, and the manifest's facts."""
    text = " ".join(page.inner_text("body").split())
    (who,) = manifest["question"]["subjects"]
    facts = (who["posterior"], who["source"]["sha256"], manifest["date"], manifest["command"])
    facts += (manifest["machine"]["cpu"], manifest["versions"]["torch"])
    for part in (*EVERYWHERE, *facts, *words):
        assert " ".join(part.split()) in text, part
    assert not re.search(r"\b(None|nan|True|False)\b", text)
    return text


def test_a_regression(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    posterior, inputs = files["r.safetensors"], files["x.npz"]
    asks = ["--inputs", inputs, "--eps", 0.05, "--clip", -9, 9, "--tolerance", 9, "--upper"]
    manifest = asked(run, tmp_path / "out", posterior, "certify", *asks)
    with opened(tmp_path / "out" / "report.html") as page:
        reads(
            page,
            manifest,
            f"r.safetensors, SHA-256 {digest(posterior)}",
            f"x.npz, SHA-256 {digest(inputs)}",
            "keeps output 0 (price) within 9 of the target of the input, as it was measured",
            "each differ from those of the input by at most ε = 0.05 standard deviations",
            "coordinates lie between -9 and 9",
            "norm linf, radii 0.05",
        )
        page.locator("button[aria-label='Details of input 2']").click()
        entry = " ".join(page.locator(".detail").inner_text().split())
        for part in ("coordinate input from to counterexample", *SIDES):
            assert part in entry, part
        assert "output at the input at the counterexample price" in entry


def test_a_property(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    posterior, question = files["c.safetensors"], files["q.vnnlib"]
    asks = ["--vnnlib", question, "--upper", "--names", files["names.toml"]]
    manifest = asked(run, tmp_path / "out", posterior, "certify", *asks)
    assert manifest["question"]["condition"]["text"] == question.read_text()
    with opened(tmp_path / "out" / "report.html") as page:
        reads(
            page,
            manifest,
            f"c.safetensors, SHA-256 {digest(posterior)}",
            f"q.vnnlib, SHA-256 {digest(question)}",
            "has no counterexample as the VNN-LIB file “q.vnnlib” describes them",
            "every point between the ends that are given for each entry",
            question.read_text(),
        )
        page.locator("button[aria-label='Details of input 0']").click()
        entry = " ".join(page.locator(".detail").inner_text().split())
        assert "coordinate input from to counterexample x0 0.5 0.25 0.75" in entry
        assert "output at the input at the counterexample stay" in entry
        assert "label class 1 (left)" in entry


@pytest.mark.parametrize("condition", ["class predicted", "q.vnnlib"])
def test_a_map(run: Run, files: dict[str, Path], tmp_path: Path, condition: str) -> None:
    posterior, region = files["c.safetensors"], region_file(tmp_path)
    asks = ["--region", region, "--condition", files.get(condition, condition), "--parts", 2]
    named = ["--names", files["names.toml"]]
    manifest = asked(run, tmp_path / "out", posterior, "map", *asks, *named)
    words = ["condition class predicted"]
    if condition in files:
        words = [f"q.vnnlib, SHA-256 {digest(files[condition])}", files[condition].read_text()]
    with opened(tmp_path / "out" / "report.html") as page:
        reads(
            page,
            manifest,
            f"c.safetensors, SHA-256 {digest(posterior)}",
            f"region.csv, SHA-256 {digest(region)}",
            "from the posterior “c.safetensors” (normal, 31 weights)",
            "size from -10 to 10 km, age from -2 to 2 a, rooms from 0 to 1, cut into",
            "cells cover the region",
            "Answered by concentration (effort 0, upper no, at least 0.95); then concentration "
            "(effort 1, upper yes, at least 0.95).",
            *words,
        )
        table = page.locator("[aria-label='Points where networks fail']")
        heads = table.locator("th[scope=col]").all_inner_texts()
        assert heads == ["cell", "size [km]", "age [a]", "rooms", "stay", "left", "right"]
        first = [float(cell) for cell in table.locator("tbody td").all_inner_texts()[:6]]
    network, weights = load_posterior(posterior)
    point = network.forward(
        weights.center, weights.center.new_tensor([[first[0] / 10, first[1] / 2, first[2]]])
    )
    assert point[0].tolist() == pytest.approx(first[3:], rel=1e-3, abs=1e-3)


def test_a_map_takes_its_own_posterior_alone(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asks = ["--region", region_file(tmp_path), "--parts", 1, "--out", out]
    assert run("map", files["c.safetensors"], *asks)[0] == 0
    code, _, said = run("report", out, "--posterior", files["r.safetensors"])
    assert (code, "is not the posterior of this map" in " ".join(said.split())) == (2, True)
    code, _, said = run("report", out, "--eps", 0.1)
    assert (code, "neither --eps nor --names" in " ".join(said.split())) == (2, True)
