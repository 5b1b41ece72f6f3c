"""The HTML report: its numbers are the results', no text becomes markup, and bad folders get one
clear line."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from bnncert import (
    GIE,
    PIE,
    Box,
    Concentration,
    InputError,
    Network,
    Problem,
    ball,
    certify,
    class_robust,
    half_space,
    mlp,
    save_posterior,
)
from bnncert.cli.display import percent
from bnncert.cli.main import main
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import LowRankNormal, Mixture, Normal, Uniform
from bnncert.posteriors.base import Posterior
from bnncert.report.cross_section import (
    CODES,
    REACH,
    SIDE,
    STEP,
    CrossSection,
    cross_section,
    dangerous_plane,
)
from bnncert.report.entries import Entry, Picture
from bnncert.report.evidence import in_words, row_in_words
from bnncert.report.page import BYTES_EACH, RADII, render, write_report
from bnncert.report.pictures import as_image, difference, png, shrink, to_pixels, value_range
from bnncert.results.folder import StoredResult, read_results, result_folder
from report_folders import at_radii, fields, header, verdicts, write_folder
from scenarios import gaussian, vector

LIMIT = 3_000_000  # bytes of a page about a thousand inputs
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}&amp;"


class Page(HTMLParser):
    """The elements of a page, the text of its table, and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes = text, Counter[str](), list[tuple[str, str | None]]()
        self.cells: list[list[str]] = []
        self._inside: list[str] = []
        self.scripts: list[str] = []
        self.words = ""
        self.feed(text)
        self.data = json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        if tag not in ("meta", "link", "img", "input"):
            self._inside.append(tag)
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "script" in self._inside:
            self.scripts[-1] += data
        elif "style" not in self._inside:
            self.words += data
            if "td" in self._inside or "th" in self._inside:
                self.cells[-1][-1] += data

    def rows(self) -> list[list[str]]:
        """The table of inputs."""
        start = next(
            i for i, cells in enumerate(self.cells) if cells[0] == "input" and "label" in cells
        )
        return self.cells[start + 1 :]

    def facts(self, row: int) -> dict[str, str]:
        return {
            self.data["texts"][name]: self.data["texts"][value]
            for name, value in self.data["facts"][row]
        }


def written(folder: Path, posterior: Path | None = None) -> Page:
    return Page(write_report(folder, posterior).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trained() -> tuple[Network, Normal, torch.Tensor, torch.Tensor]:
    """A random network on 8 x 8 images that it classifies as it does."""
    generator = torch.Generator().manual_seed(0)
    network = mlp(64, 6, 3)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.01).double()
    )
    x = torch.rand(6, 64, generator=generator, dtype=torch.float64)
    return network, posterior, x, network.forward(posterior.mean, x).argmax(-1)


def certified(folder: Path, trained: Any, method: Any, eps: float = 0.01, samples: int = 0) -> Path:
    """A folder of real results, and its posterior beside it."""
    network, posterior, x, y = trained
    problem = Problem(
        network, posterior, class_robust(ball(x, eps, clip=(0, 1)), y, network.outputs)
    )
    with result_folder(folder) as store:
        store(certify(problem, method, samples=samples))
    save_posterior(folder.with_suffix(".safetensors"), network, posterior)
    return folder.with_suffix(".safetensors")


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
    assert (counts["certified"], counts["unverified"], counts["misclassified"]) == (
        "20",
        "10",
        "10",
    )
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
        paths, (_mean(lines, "lower"), 1 - _mean(lines, "upper")), strict=True
    ):
        area = at = 0.0
        for height, end in re.findall(r"V([\d.]+)H(\d+)", steps):
            area += abs(float(base) - float(height)) * (int(end) - at)
            at = int(end)
        assert area / len(lines) / 100 == pytest.approx(mean, abs=1e-4)


def _mean(lines: list[dict[str, Any]], end: str) -> float:
    return sum(line[end] for line in lines) / len(lines)


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
    assert page.cells[heading][4:] == ["certified", "unverified", "misclassified", "inputs"]
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
        assert cells[4:] == [
            str(statuses[name]) for name in ("certified", "unverified", "misclassified")
        ] + ["10"]
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
        return own | {"lower": 0, "upper": 1, "status": "unverified", "certificate": None}

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


# What a hostile folder can do


def hostile_folder(folder: Path) -> list[dict[str, Any]]:
    """Every text of lines and certificates is an attempt to break out of where it stands."""
    name = f"certificates/{HOSTILE}/{{}}.safetensors"
    return write_folder(
        folder,
        8,
        line=lambda i, own: (
            own | {"method": HOSTILE, "certificate": own["certificate"] and name.format(i)}
        ),
        digests=dict.fromkeys(("architecture", "posterior", "specification", "problem"), HOSTILE),
        region={"norm": HOSTILE, "clip": [0.0, 1.0], "eps": HOSTILE},
        method={"name": HOSTILE, HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        kind=HOSTILE,
        evidence={"components": [{"weight": HOSTILE, "upper": None}]},
    )


def test_no_text_becomes_markup(tmp_path: Path) -> None:
    """A page about hostile texts has the elements and attributes of an innocent one, and tells them
    as they are."""
    folder = tmp_path / HOSTILE.replace("/", "∕") / "run"
    lines = hostile_folder(folder)
    bad = dict.fromkeys(range(8), HOSTILE)
    verdicts(folder, lines, status=dict.fromkeys(range(8), "REJECT"), code=bad, message=bad)
    innocent = write_folder(tmp_path / "innocent", 8)
    verdicts(tmp_path / "innocent", innocent, status=dict.fromkeys(range(8), "REJECT"))
    page, plain = written(folder), written(tmp_path / "innocent")
    assert page.tags == plain.tags
    assert Counter(name for name, _ in page.attributes) == Counter(
        name for name, _ in plain.attributes
    )
    assert page.scripts[1] == plain.scripts[1]
    assert "<script>alert" not in page.text
    for name in ("method", "norm", "kind of evidence", "digest of the problem"):
        assert page.facts(1)[name] == HOSTILE
    assert page.facts(1)["reason"] == f"{HOSTILE}: {HOSTILE}"
    assert page.facts(1)["certificate"] == lines[1]["certificate"]
    assert HOSTILE in page.words


def test_no_text_becomes_markup_in_evidence(tmp_path: Path) -> None:
    growth = {"step": 0.5, "rho": 0.2, "zero_gradient_only": False}
    evidence = {
        "bound": HOSTILE,
        "growth": growth,
        "boxes": [{"draw": HOSTILE, "steps": HOSTILE}] * 2,
        "union": {"rule": HOSTILE},
    }
    centers = {f"center{i}": torch.zeros(2).double() for i in range(2)}
    write_folder(tmp_path / "run", 8, more=centers, kind="boxes", evidence=evidence)
    page = written(tmp_path / "run")
    assert page.tags["script"] == 2
    assert sum(HOSTILE in text for text in page.data["texts"]) >= 2


@pytest.mark.parametrize("label", [HOSTILE, 1.5, True, [1]])
def test_labels_are_whole_numbers(label: object, tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4, line=lambda _, own: own | {"label": label})
    with pytest.raises(InputError, match=r"line 1 of .* is malformed"):
        write_report(tmp_path / "run")


def test_the_page_needs_and_allows_nothing_from_outside(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 40)
    page = written(tmp_path / "run")
    assert not re.search(r"https?:|@import|@font-face|url\((?!#)", page.text)
    links = [
        value or ""
        for name, value in page.attributes
        if name in ("src", "href", "action", "srcset")
    ]
    assert all(link.startswith("data:") for link in links)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]


def test_the_content_security_policy_allows_this_script_and_style_alone(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4)
    page = written(tmp_path / "run")
    policy = next(
        value
        for name, value in page.attributes
        if name == "content" and "default-src" in (value or "")
    )
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert style
    assert policy == (
        f"default-src 'none'; style-src '{_hash(style[1])}'; script-src "
        f"'{_hash(page.scripts[1])}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.text.index("Content-Security-Policy") < page.text.index("<style")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_odd_characters_can_be_written(tmp_path: Path) -> None:
    """Half a surrogate pair is no character: the page shows a question mark instead of failing."""
    write_folder(tmp_path / "run", 4, line=lambda _, own: own | {"method": "half \ud800\u2028"})
    assert "half ?\u2028" in written(tmp_path / "run").words


# Verdicts of the checker


def test_without_verdicts_the_page_says_so(tmp_path: Path) -> None:
    write_folder(tmp_path / "a run", 8)
    page = written(tmp_path / "a run")
    assert "Not checked independently." in page.words
    command = f"bnncert check '{tmp_path}/a run' --posterior POSTERIOR --json > '{tmp_path}/a run/check.json'"
    assert command in page.words
    assert page.data["verdict"] == [None] * 8
    assert "Checked independently" not in page.words


def test_verdicts_are_shown(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 8)
    verdicts(tmp_path / "run", lines)
    page = written(tmp_path / "run")
    assert "Checked independently." in page.words
    assert [cells[8] for cells in page.rows()] == ["accepted"] * 8
    bounds = page.facts(1)
    assert bounds["supported by the checker"] == f"{lines[1]['lower']!r} to {lines[1]['upper']!r}"
    assert page.facts(0)["reason"] == "claims nothing"


def test_rejected_results_are_struck_out_and_not_counted(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 8)
    verdicts(
        tmp_path / "run",
        lines,
        status={1: "REJECT", 3: "ERROR"},
        code={1: "probability-too-high", 3: "unreadable"},
        message={1: "at most 0.5 is supported"},
    )
    page = written(tmp_path / "run")
    assert [cells[8] for cells in page.rows()[:4]] == [
        "accepted",
        "rejected",
        "accepted",
        "not checkable",
    ]
    assert page.facts(1)["reason"] == "probability-too-high: at most 0.5 is supported"
    assert "6 accepted, 1 rejected, 1 not checkable" in page.words
    assert page.text.count('<tr class="void">') == 2
    counted = [line for i, line in enumerate(lines) if i not in (1, 3)]
    lower, upper = (
        sum(line["lower"] for line in counted) / 8,
        (sum(line["upper"] for line in counted) + 2) / 8,
    )
    assert f"{percent(lower)} ≤ mean Psafe ≤ {percent(upper, up=True)}" in page.words
    claimed = percent(_mean(lines, "lower")), percent(_mean(lines, "upper"), up=True)
    assert "Claimed was a mean of at least {} and at most {};".format(*claimed) in page.words


STALE: dict[str, Callable[[list[Any]], object]] = {
    "fewer": lambda found: found.pop(),
    "other claim": lambda found: found[1].update(claimed=[0.5, 1.0]),
    "other certificate": lambda found: found[1].update(path="elsewhere/000000.safetensors"),
    "other radius": lambda found: found[1].update(eps=0.5),
    "other label": lambda found: found[1].update(label=9),
    "accepts a claim it did not see": lambda found: found[1].update(
        path="results.jsonl:2", claimed=None
    ),
    "no verdict": lambda found: found[1].update(status="FINE"),
    "no status": lambda found: found[1].pop("status"),
    "not an object": lambda found: found.__setitem__(1, "ACCEPT"),
}


@pytest.mark.parametrize("change", STALE)
def test_verdicts_of_other_results_are_refused(change: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    verdicts(folder, write_folder(folder, 8))
    content = json.loads((folder / "check.json").read_text())
    STALE[change](content["certificates"])
    (folder / "check.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"check\.json.*check again: bnncert check"):
        write_report(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"certificates": null}', "[" * 100_000])
def test_broken_verdicts_are_refused(text: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4)
    (tmp_path / "run" / "check.json").write_text(text)
    with pytest.raises(InputError, match=r"check\.json.*check again"):
        write_report(tmp_path / "run")


def test_the_checker_s_own_words_fit(
    tmp_path: Path, trained: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `bnncert check --json` prints is what the report reads."""
    run = pytest.importorskip("bnncert_check.__main__", reason="needs python-flint").run
    posterior = certified(tmp_path / "run", trained, Concentration(upper=True), eps=0.05)
    run(tmp_path / "run", posterior, True)
    (tmp_path / "run" / "check.json").write_text(capsys.readouterr().out)
    assert set(written(tmp_path / "run").data["verdict"]) == {"ACCEPT"}


# Mistakes


def change_line(folder: Path, **changes: object) -> None:
    lines = (folder / "results.jsonl").read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | changes)
    (folder / "results.jsonl").write_text("\n".join(lines))


def write_lines(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "results.jsonl").write_text(text)


def first_certificate(folder: Path) -> Path:
    return (
        folder / json.loads((folder / "results.jsonl").read_text().splitlines()[1])["certificate"]
    )


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "no results": (lambda folder: (folder / "results.jsonl").unlink(), "holds no results.jsonl"),
    "empty results": (write_lines(""), "is empty"),
    "not JSON": (write_lines("{"), "line 1 of .* is malformed"),
    "not an object": (write_lines("[1]"), "not an object"),
    "blank line": (write_lines("\n"), "line 1 of .* is malformed"),
    "not a number": (write_lines('{"index": NaN}'), "NaN is not a number"),
    "deep": (write_lines("[" * 100_000), "line 1 of .* is malformed"),
    "not text": (lambda folder: (folder / "results.jsonl").write_bytes(b"\xff"), "cannot be read"),
    "field missing": (write_lines('{"index": 1}'), "label is missing"),
    "unknown status": (lambda folder: change_line(folder, status="fine"), ("line 2 of .*status is " "'fine'")),
    "lower above upper": (lambda folder: change_line(folder, lower=0.9, upper=0.5), ("lower is 0.9 and upper " "0.5")),
    "no probability": (lambda folder: change_line(folder, upper=1.5), "upper 1.5"),
    "infinite eps": (lambda folder: change_line(folder, eps=10**400), "malformed"),
    "negative seconds": (lambda folder: change_line(folder, seconds=-1), "seconds -1"),
    "bad estimate": (lambda folder: change_line(folder, estimate={"samples": 1}), ("verified is " "missing")),
    "estimate no object": (lambda folder: change_line(folder, estimate=3), "not an object"),
    "certificate gone": (lambda folder: first_certificate(folder).unlink(), ("certificate .* is " "missing")),
    "no certificate": (lambda folder: change_line(folder, certificate=None), "names no certificate"),
    "certificate outside": (lambda folder: change_line(folder, certificate="../../x"), "not a path inside"),
    "certificate absolute": (lambda folder: change_line(folder, certificate="/etc/passwd"), "not a path inside"),
    "certificate no path": (lambda folder: change_line(folder, certificate="a\0b"), "not a path inside"),
    "certificate a folder": (lambda folder: change_line(folder, certificate="certificates"), "is missing"),
    "certificate no tensors": (lambda folder: first_certificate(folder).write_text("x"), ("not a safetensors " "file")),
    "other claim": (lambda folder: change_line(folder, lower=0.123), "claims other bounds"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_folders_get_one_clear_line_and_no_page(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, message = WRONG[name]
    write_folder(tmp_path / "run", 4)
    spoil(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    code, error = run(["report", tmp_path / "run"], capsys, monkeypatch)
    assert code == 2
    assert re.search(message, error)
    assert error.startswith("bnncert: ")
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def run(
    arguments: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["bnncert", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    output = capsys.readouterr()
    return int(exit_.value.code or 0), output.err or output.out


@pytest.mark.parametrize("change", ["claim", "digests", "region", "versions", "method", "evidence"])
def test_certificates_that_lack_something_are_named(change: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4, **{change: None})
    with pytest.raises(
        InputError, match=r"000003\.safetensors' is not a certificate of bnncert .* certify again"
    ):
        write_report(tmp_path / "run")


def test_out_and_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "run", 4)
    path = tmp_path / "page.html"
    code, text = run(["report", tmp_path / "run", "--out", path], capsys, monkeypatch)
    assert (code, text) == (0, f"{path} ({path.stat().st_size / 1e6:.2f} MB)\n")
    assert not (tmp_path / "run" / "report.html").exists()
    for wrong in (tmp_path, tmp_path / "none" / "page.html"):
        assert run(["report", tmp_path / "run", "--out", wrong], capsys, monkeypatch)[0] == 2
    assert run(["report", tmp_path / "nothing"], capsys, monkeypatch)[0] == 2


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, PIE(samples=2))
    first = write_report(tmp_path / "run", posterior).read_bytes()
    assert write_report(tmp_path / "run", posterior).read_bytes() == first


def test_a_posterior_that_was_not_certified_is_refused(tmp_path: Path, trained: Any) -> None:
    certified(tmp_path / "run", trained, PIE(samples=2))
    network, posterior, _, _ = trained
    save_posterior(
        tmp_path / "other.safetensors", network, Normal(posterior.mean + 1, posterior.std)
    )
    with pytest.raises(InputError, match="another posterior"):
        write_report(tmp_path / "run", tmp_path / "other.safetensors")


# Size


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


# Pictures


def decoded(content: bytes) -> np.ndarray[Any, Any]:
    pixels = np.round(imread(io.BytesIO(content)) * 255).astype(np.uint8)
    return pixels if pixels.ndim == 3 else pixels[..., None]


@pytest.mark.parametrize("shape", [(28, 28, 1), (1, 9, 1), (32, 20, 3)])
@pytest.mark.parametrize("smooth", [False, True])
def test_png_files_hold_the_pixels(shape: tuple[int, ...], smooth: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    if smooth:
        pixels = np.broadcast_to(
            np.arange(shape[1], dtype=np.uint8)[None, :, None] * 5, shape
        ).copy()
    assert np.array_equal(decoded(png(pixels)), pixels)


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((64,), (8, 8, 1)),
        ((784,), (28, 28, 1)),
        ((3072,), (32, 32, 3)),
        ((28, 28), (28, 28, 1)),
        ((1, 28, 20), (28, 20, 1)),
        ((3, 32, 32), (32, 32, 3)),
        ((13,), None),
        ((4,), None),
        ((65,), None),
        ((28, 20), None),
        ((2, 28, 28), None),
        ((3, 4, 4), None),
    ],
)
def test_what_is_an_image(shape: tuple[int, ...], picture: tuple[int, ...] | None) -> None:
    image = as_image(torch.zeros(shape, dtype=torch.float64))
    assert (None if image is None else image.shape) == picture


def test_colours_and_rows_keep_their_place() -> None:
    x = torch.zeros(3, 8, 8, dtype=torch.float64)
    x[1, 2, 5] = 1.0  # green, third row, sixth column
    image = as_image(x)
    assert image is not None
    pixels = to_pixels(image, (0.0, 1.0))
    assert pixels[2, 5].tolist() == [0, 255, 0]
    assert pixels.sum() == 255


def test_the_range_of_values() -> None:
    image = np.array([[[-2.0], [2.0]]])
    assert value_range(image, (-3.0, 3.0)) == (-3.0, 3.0)
    assert value_range(image, (-math.inf, math.inf)) == (-2.0, 2.0)
    assert value_range(image / 4 + 0.5, None) == (0.0, 1.0)
    assert to_pixels(image, (-2.0, 2.0)).flatten().tolist() == [0, 255]
    assert to_pixels(image, (2.0, 2.0)).flatten().tolist() == [0, 0]
    assert to_pixels(np.array([[[math.nan]]]), (0.0, 1.0)).item() == 0


def test_differences_are_scaled_and_signed() -> None:
    image, other = np.zeros((1, 3, 1)), np.array([[[-0.01], [0.0], [0.005]]])
    pixels, largest = difference(image, other)
    assert largest == 0.01
    assert pixels[0, 0, 0] == 0
    assert pixels[0, 1, 0] == 128
    assert 190 <= pixels[0, 2, 0] <= 203
    assert difference(image, image)[0].flatten().tolist() == [128] * 3


def test_shrinking_takes_means() -> None:
    pixels = np.array([[0, 100, 7], [50, 250, 9], [3, 3, 1]], np.uint8)[..., None]
    assert shrink(pixels, 2)[..., 0].tolist() == [[100, 8], [3, 1]]
    assert shrink(pixels, 1) is pixels


def test_one_dimensional_inputs_have_no_picture(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 8, shape=(13,))
    page = written(tmp_path / "run")
    assert page.tags["img"] == 0
    assert all(figure is None for figure in page.data["figures"])


def test_colour_images_and_their_counterexamples(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 8, shape=(3, 12, 10))
    page = written(tmp_path / "run")
    assert page.tags["img"] == sum(line["certificate"] is not None for line in lines)
    assert page.data["figures"][1] is None
    point, change, largest = page.data["figures"][2]["point"]
    assert decoded(base64.b64decode(point.split(",")[1])).shape == (12, 10, 3)
    assert decoded(base64.b64decode(change.split(",")[1])).shape == (12, 10, 3)
    assert float(largest) == 0.025


# Evidence in words


def test_boxes_in_words(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, GIE(samples=9, budget=200))
    page = written(tmp_path / "run", posterior)
    words = [" ".join(page.data["texts"][i] for i in own) for own in page.data["words"]]
    known = [text for text in words if text]
    assert any("boxes of weights is proved safe on the whole region" in text for text in known)
    assert all("backward linear bounds (lbp)" in text for text in known)
    assert any("the posterior's centre" in text and "1.2 times that" in text for text in known)


def test_a_counterexample_in_words(tmp_path: Path, trained: Any) -> None:
    certified(tmp_path / "run", trained, Concentration(upper=True), eps=0.9)
    texts = written(tmp_path / "run").data["texts"]
    assert any(
        re.match(r"At the stored counterexample class \d before class \d fails with probability", t)
        for t in texts
    )
    assert "No lower bound above 0 was found." in texts


def test_rows_in_words() -> None:
    rows = torch.tensor([[0.0, -1.0, 1.0], [0.0, 2.0, -1.0]])
    assert row_in_words(0, rows) == "class 2 before class 1"
    assert row_in_words(1, rows) == "output row 1"


def test_components_are_told_apart() -> None:
    from bnncert.evidence.certificate import Certificate

    own = header(0, 0.5, 0.9)
    own["evidence"]["components"] *= 2
    points = {f"c{i}.point": torch.zeros(2).double() for i in range(2)}
    words = in_words(Certificate(own, points | {"rows": torch.tensor([[1.0, -1.0]])}))
    assert [text.split(":")[0] for text in words] == ["Component 0 (weight 1)"] * 2 + [
        "Component 1 (weight 1)"
    ] * 2


# Cross-sections


def codes(section: CrossSection) -> np.ndarray[Any, Any]:
    """The grid [a, b] of codes."""
    text = "".join(letter * int(n) for letter, n in re.findall(r"([a-f])(\d+)", section.runs))
    return np.array([CODES.index(letter) for letter in text]).reshape(SIDE, SIDE)


def two_weights(mean: torch.Tensor, std: torch.Tensor) -> Problem:
    """y = w0 x + w1 at x = 1, safe iff y > 0."""
    network = Network((1,), (Dense(1, 1),))
    return Problem(
        network,
        Normal(mean, std),
        half_space(ball(torch.ones(1, 1).double(), 0), torch.ones(1), 0.0),
    )


def test_the_plane_of_a_linear_network() -> None:
    """The margin 5 + 3 ξ0 + 4 ξ1 falls by 5 a standard deviation along u = -(3, 4) / 5: wrong from
    a = 1 on, any b."""
    section = cross_section(two_weights(vector(2, 3), vector(3, 4)), None, [], 0)
    assert section is not None
    axis = np.linspace(-REACH, REACH, SIDE)
    assert np.array_equal(codes(section), np.where(axis < 1 - 1e-9, 2, 0)[:, None].repeat(SIDE, 1))
    assert section.wrong_at == (1.0,)
    assert not section.boxed


def test_the_other_point_has_its_own_colour() -> None:
    """At x = 0 the margin is w1 = 3 + 4 ξ1, at x = 1 the sum."""
    section = cross_section(two_weights(vector(2, 3), vector(3, 4)), vector(0.0), [], 0)
    assert section is not None
    plane = dangerous_plane(two_weights(vector(2, 3), vector(3, 4)), 0)
    assert plane is not None
    axis = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    a, b = torch.meshgrid(axis, axis, indexing="ij")
    w = plane.center + a[..., None] * plane.along + b[..., None] * plane.across
    clean, other = w.sum(-1), w[..., 1]
    clear = (clean.abs() > 1e-9) & (other.abs() > 1e-9)
    expected = torch.where(clean > 0, torch.where(other > 0, 2, 1), 0)
    assert np.array_equal(codes(section)[clear], expected[clear])
    assert section.wrong_at == (1.0, 1.0)


def test_boxes_are_marked() -> None:
    problem = two_weights(vector(2, 3), vector(3, 4))
    boxes = [Box(vector(-1, -1), vector(5, 7)), Box(vector(1, 2), vector(11, 30))]
    section, plane = cross_section(problem, None, boxes, 7), dangerous_plane(problem, 7)
    assert section is not None
    assert plane is not None
    assert section.boxed
    for i, j in np.random.default_rng(0).integers(0, SIDE, (300, 2)):
        a, b = -REACH + STEP * i, -REACH + STEP * j
        w = plane.center + a * plane.along + b * plane.across
        inside = any(bool((box.lower <= w).all() and (w <= box.upper).all()) for box in boxes)
        assert (codes(section)[i, j] >= 3) == inside


def test_a_box_with_a_fixed_weight_outside_holds_nothing() -> None:
    problem = two_weights(vector(2, 3), vector(3, 4))
    section = cross_section(problem, None, [Box(vector(50, -99), vector(99, 99))], 0)
    assert section is not None
    assert not section.boxed


@pytest.mark.parametrize("seed", range(3))
def test_the_plane_is_that_of_the_networks_in_it(trained: Any, seed: int) -> None:
    """Any network of the grid, taken by itself, gives what the picture says; axes are orthonormal
    in units of σ."""
    network, posterior, x, y = trained
    wide = Normal(posterior.mean, 0.2 * posterior.mean.abs())
    problem = Problem(
        network, wide, class_robust(ball(x[seed : seed + 1], 0), y[seed : seed + 1], 3)
    )
    point = (x[seed] + 0.3 * x[seed].flip(0)).clamp(0, 1)
    section, plane = cross_section(problem, point, [], seed), dangerous_plane(problem, seed)
    assert section is not None
    assert plane is not None
    u, v = plane.along / wide.std, plane.across / wide.std
    assert [float(u @ u), float(v @ v), float(u @ v)] == pytest.approx([1, 1, 0], abs=1e-9)
    seen = codes(section)
    for i, j in np.random.default_rng(seed).integers(0, SIDE, (200, 2)):
        w = plane.center + (-REACH + STEP * i) * plane.along + (-REACH + STEP * j) * plane.across
        right = [
            bool((problem.specification.margins(network.forward(w, p[None])) > 0).all())
            for p in (x[seed], point)
        ]
        assert seen[i, j] == (0 if not right[0] else 2 if right[1] else 1)
    assert len(set(seen.flatten().tolist())) > 1


def test_the_first_direction_is_the_most_dangerous(trained: Any) -> None:
    network, posterior, x, y = trained
    problem = Problem(network, posterior, class_robust(ball(x[:1], 0), y[:1], 3))
    plane = dangerous_plane(problem, 0)
    assert plane is not None
    row = problem.margins(posterior.mean)[0].argmin()

    def margin(direction: torch.Tensor) -> float:
        return float(problem.margins(posterior.mean + 1e-3 * direction)[0, row])

    others = posterior.std * torch.nn.functional.normalize(
        torch.randn(200, posterior.size).double(), dim=1
    )
    assert margin(plane.along) < min(margin(other) for other in others)


def test_correlated_weights_and_mixtures() -> None:
    """w = mean + factor η: the plane is spanned by η, and a mixture's is that of its heaviest
    component."""
    problem = two_weights(vector(2, 3), vector(3, 4))
    factor = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    low_rank = LowRankNormal(vector(2, 3), vector(0, 0), factor)
    mixture = Mixture((0.3, 0.7), (Normal(vector(9, 9), vector(1, 1)), low_rank))
    for posterior in (low_rank, mixture):
        section = cross_section(
            Problem(problem.network, posterior, problem.specification), None, [], 0
        )
        assert section is not None
        assert section.wrong_at == (1.0,)


def test_convolutions_are_walked_too() -> None:
    from bnncert.layers import Conv2d, Flatten, MaxPool2d

    network = Network((1, 8, 8), (Conv2d(1, 2, 3), ReLU(), MaxPool2d(2), Flatten(), Dense(18, 3)))
    generator = torch.Generator().manual_seed(1)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.3).double()
    )
    x = torch.rand(1, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = network.forward(posterior.mean, x).argmax(-1)
    problem = Problem(network, posterior, class_robust(ball(x, 0), y, 3))
    section, plane = cross_section(problem, None, [], 0), dangerous_plane(problem, 0)
    assert section is not None
    assert plane is not None
    for i, j in np.random.default_rng(0).integers(0, SIDE, (50, 2)):
        w = plane.center + (-REACH + STEP * i) * plane.along + (-REACH + STEP * j) * plane.across
        assert codes(section)[i, j] == 2 * bool((problem.margins(w) > 0).all())


class Single(Posterior):
    """A law that is no scaled noise: one network, always."""

    family = "single"
    center = vector(2, 3)

    def draw(self, generator: np.random.Generator) -> torch.Tensor:  # noqa: ARG002 (nothing is random)
        return self.center


def test_no_plane_for_other_laws() -> None:
    problem = two_weights(vector(2, 3), vector(3, 4))
    assert (
        cross_section(Problem(problem.network, Single(), problem.specification), None, [], 0)
        is None
    )


@pytest.mark.parametrize("std", [(0.0, 0.0), (0.0, 1.0)])
def test_no_plane_without_two_random_weights(std: tuple[float, float]) -> None:
    assert cross_section(two_weights(vector(2, 3), vector(*std)), None, [], 0) is None


def test_cross_sections_in_the_page(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, PIE(samples=2))
    page = written(tmp_path / "run", posterior)
    captions = [page.data["texts"][i] for i in page.data["captions"]]
    for figure, caption, line in zip(
        page.data["figures"], captions, read_results(tmp_path / "run"), strict=True
    ):
        assert (figure is not None) == (line.certificate is not None)
        if figure:
            assert sum(int(n) for n in re.findall(r"\d+", figure["section"][0])) == SIDE * SIDE
            assert figure["section"][1] == 1
            assert "Marked: inside the proved boxes." in caption
    assert page.data["unit"] == "standard deviations"
    without = written(tmp_path / "run")
    assert "--posterior FILE" in " ".join(without.data["texts"])


def test_cross_sections_of_upper_bounds(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, Concentration(upper=True), eps=0.9)
    page = written(tmp_path / "run", posterior)
    assert {figure["section"][1] for figure in page.data["figures"]} == {2}
    assert all(len(figure["point"]) == 3 for figure in page.data["figures"])
    assert any(
        "on the counterexample the network at the centre is already wrong" in text
        for text in page.data["texts"]
    )
    assert any("no part of the plane is marked" in text for text in page.data["texts"])


def test_other_families_name_their_unit(tmp_path: Path, trained: Any) -> None:
    network, posterior, x, y = trained
    flat = Uniform(posterior.mean - 0.001, posterior.mean + 0.001)
    certified(tmp_path / "run", (network, flat, x, y), PIE(samples=1))
    assert written(tmp_path / "run", tmp_path / "run.safetensors").data["unit"] == "half-widths"
