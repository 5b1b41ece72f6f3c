"""The HTML report: its numbers are the results', also at several radii."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bnncert.cli.display import percent
from bnncert.report.summary import RADII
from bnncert.results.folder import read_results
from report_folders import at_radii, verdicts, write_folder
from report_pages import mean_of, written

SETTLED = ("certified", "falsified", "undecided")


def test_the_numbers_are_those_of_the_results(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 40)
    page = written(tmp_path / "run")
    for name in ("index", "label", "predicted", "status", "lower", "upper", "seconds"):
        assert page.data[name] == [line[name] for line in lines]
    for i, (cells, line) in enumerate(zip(page.rows(), lines, strict=True)):
        assert cells[:4] == [str(line[name]) for name in ("index", "label", "predicted", "status")]
        assert (cells[4], cells[6]) == (percent(line["lower"]), percent(line["upper"], up=True))
        assert page.facts(i)["certified lower bound"] == repr(line["lower"])
        assert page.facts(i)["certified upper bound"] == repr(line["upper"])
        assert page.facts(i).get("certificate") == line["certificate"]
        assert page.facts(i)["seconds"] == repr(line["seconds"])


def test_bounds_are_rounded_against_the_claim(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 40)
    for cells, line in zip(
        written(tmp_path / "run").rows(), read_results(tmp_path / "run"), strict=True
    ):
        assert float(cells[4][:-2]) <= 100 * line.lower + 1e-9  # of multiplying by 100
        assert float(cells[6][:-2]) >= 100 * line.upper - 1e-9
        assert abs(float(cells[4][:-2]) - 100 * line.lower) < 0.01 + 1e-9


def test_the_summary_says_what_was_run(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 40)
    page = written(tmp_path / "run")
    lower, upper = (
        math.fsum(line[end] for line in lines) / len(lines) for end in ("lower", "upper")
    )
    assert f"{percent(lower)} ≤ mean Psafe ≤ {percent(upper, up=True)}" in page.words
    for text in (
        "concentration",
        "effort 1, upper yes",
        "0.025",
        "linf",
        "0 to 1",
        "a" * 64,
        "b" * 64,
        "torch 2.6",
    ):
        assert text in page.words
    counts = {cells[0]: cells[1] for cells in page.cells if len(cells) == 3}
    assert counts | {"error": "0"} == counts
    statuses = Counter(line["status"] for line in lines)
    assert set(statuses) == {"certified", "falsified", "undecided", "misclassified"}
    assert {name: int(counts[name]) for name in statuses} == statuses
    assert f"{sum(line['seconds'] for line in lines):.1f} s" in page.words


def test_the_distribution_is_also_a_table(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 40)
    table = {
        cells[0]: cells[1:]
        for cells in written(tmp_path / "run").cells
        if cells[0].startswith(("≥", ">"))
    }
    for text, p in (("≥ 50 %", 0.5), ("≥ 99.9 %", 0.999), ("≥ 99.9999 %", 0.999999)):
        assert table[text] == [
            str(sum(line[end] >= p for line in lines)) for end in ("lower", "upper")
        ]
    assert table["> 0 %"][0] == "20"


def test_the_chart_has_the_means_as_areas(tmp_path: Path) -> None:
    """The area below the lower bounds is their mean, that above the upper bounds what is missing to
    theirs."""
    lines = write_folder(tmp_path / "run", 40)
    paths = re.findall(
        r'<path class="(?:un)?safe" d="M0 (\d+)(.*?)V\1Z"', written(tmp_path / "run").text
    )
    for (base, steps), mean in zip(
        paths, (mean_of(lines, "lower"), 1 - mean_of(lines, "upper")), strict=True
    ):
        area = at = 0.0
        for height, end in re.findall(r"V([\d.]+)H(\d+)", steps):
            area += abs(float(base) - float(height)) * (int(end) - at)
            at = int(end)
        assert area / len(lines) / 100 == pytest.approx(mean, abs=1e-4)


def test_different_settings_are_told(tmp_path: Path) -> None:
    def line(i: int, own: dict[str, Any]) -> dict[str, Any]:
        return own | {"eps": 0.01 * (1 + i), "method": f"method{i % 2}"}

    write_folder(tmp_path / "run", 8, line=line)
    settings = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", written(tmp_path / "run").text))
    assert (settings["method"], settings["ε"]) == ("method0, method1", "8 different ones")


# Several radii in one folder


def test_every_radius_has_its_summary(tmp_path: Path) -> None:
    radii = (0.1, 2 / 255, 8 / 255)
    lines = write_folder(tmp_path / "run", 30, line=at_radii(*radii))
    verdicts(tmp_path / "run", lines, status={5: "REJECT"})
    page = written(tmp_path / "run")
    heading = next(i for i, cells in enumerate(page.cells) if cells[0] == "ε")
    assert page.cells[heading][4:] == [*SETTLED, "misclassified", "inputs"]
    charts = re.findall(r"<h3>ε = (.*?)</h3>", page.text)
    assert charts == ["0.007843", "0.03137", "0.1"]
    tables = [cells for cells in page.cells if cells[0] == "≥ 50 %"]
    for text, eps, cells, counted in zip(
        charts, sorted(radii), page.cells[heading + 1 :], tables, strict=False
    ):
        own = [
            (0, 1) if i == 5 else (line["lower"], line["upper"])
            for i, line in enumerate(lines)
            if line["eps"] == eps
        ]
        lower, upper = (math.fsum(ends) / 10 for ends in zip(*own, strict=True))
        assert (cells[0], cells[1], cells[3]) == (text, percent(lower), percent(upper, up=True))
        statuses = Counter(line["status"] for line in lines if line["eps"] == eps)
        assert cells[4:] == [str(statuses[name]) for name in (*SETTLED, "misclassified")] + ["10"]
        assert counted[1:] == [
            str(sum(end >= 0.5 for end in ends)) for ends in zip(*own, strict=True)
        ]
        claimed = math.fsum(line["lower"] for line in lines if line["eps"] == eps) / 10
        assert re.search(
            rf"at least {re.escape(percent(claimed))} and at most [\d.]+ % at ε = {text}",
            page.words,
        )
    assert "≤ mean Psafe ≤" not in page.words
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page.text))
    assert (facts["inputs"], facts["results"]) == ("10", "30")


def test_the_table_names_the_radius(tmp_path: Path) -> None:
    radii = (0.1, 8 / 255)
    lines = write_folder(tmp_path / "run", 8, line=at_radii(*radii))
    page = written(tmp_path / "run")
    assert page.data["eps"] == [line["eps"] for line in lines]
    assert [cells[:3] for cells in page.rows()[:2]] == [["0", "0.1", "0"], ["0", "0.03137", "1"]]
    assert ("aria-label", "Details of input 0 at ε = 0.03137") in page.attributes
    assert [page.facts(i)["ε"] for i in range(2)] == ["0.1", repr(8 / 255)]
    options = re.search(r'<select name="eps">(.*?)</select>', page.text)
    assert options is not None
    assert [float(value) for value in re.findall(r'value="([\d.]+)"', options[1])] == sorted(radii)


def test_near_radii_are_told_apart(tmp_path: Path) -> None:
    radii = (0.1, math.nextafter(0.1, 1), 0.3)
    write_folder(tmp_path / "run", 6, line=at_radii(*radii))
    shown = [cells[1] for cells in written(tmp_path / "run").rows()[:3]]
    assert [float(text) for text in shown] == list(radii)


@pytest.mark.parametrize("repeated", [False, True])
def test_a_radius_an_input_gets_one_summary(repeated: bool, tmp_path: Path) -> None:
    radii = [0.01 * (1 + i) for i in range(RADII + 1)]
    count = (1 + repeated) * len(radii)
    lines = write_folder(tmp_path / "run", count, line=at_radii(*radii))
    for i, line in enumerate(lines):
        line["index"] = line["index"] if repeated else i
    (tmp_path / "run" / "results.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    page = written(tmp_path / "run")
    lower, upper = (math.fsum(line[end] for line in lines) / count for end in ("lower", "upper"))
    assert f"{percent(lower)} ≤ mean Psafe ≤ {percent(upper, up=True)}" in page.words
    assert (
        f"means over {count} {'results' if repeated else 'inputs'} at {len(radii)} different radii"
        in page.words
    )
    assert "<h3>" not in page.text
    assert [cells[1] for cells in page.rows()] == [f"{line['eps']:.4g}" for line in lines]


def test_one_radius_needs_no_column(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 8)
    page = written(tmp_path / "run")
    assert "eps" not in page.data
    assert ("class", "eps") not in page.attributes
    assert "<h3>" not in page.text
    assert ("aria-label", "Details of input 3") in page.attributes


def test_a_run_that_proved_nothing(tmp_path: Path) -> None:
    def line(_: int, own: dict[str, Any]) -> dict[str, Any]:
        return own | {"lower": 0, "upper": 1, "status": "undecided", "certificate": None}

    write_folder(tmp_path / "run", 3, line=line)
    page = written(tmp_path / "run")
    assert "0.00 % ≤ mean Psafe ≤ 100.00 %" in page.words
    assert "not stored: no result has a certificate" in page.words
    assert "nothing is claimed" in page.data["texts"][page.data["captions"][0]].lower()
    assert page.tags["img"] == 0


def test_estimates_are_told_apart(tmp_path: Path) -> None:
    drawn = {
        "samples": 20,
        "verified": 11,
        "survived": 17,
        "confidence": 0.99,
        "low": 0.25,
        "high": 0.96875,
    }
    write_folder(tmp_path / "run", 8, line=lambda i, own: own | ({"estimate": drawn} if i else {}))
    page = written(tmp_path / "run")
    assert "estimate*" in page.words
    assert "Estimated, not certified" in page.words
    assert [cells[8] for cells in page.rows()[:2]] == ["–", "25.0–96.9 %"]
    assert page.facts(1)["estimated, not certified"] == (
        "0.25 to 0.96875 with 99% confidence; of 20 networks drawn, 11 are robust and 3 are not"
    )
    write_folder(tmp_path / "plain", 8)
    assert not re.search("estimate(d, not|\\*)", written(tmp_path / "plain").words, re.IGNORECASE)
