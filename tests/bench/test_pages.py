"""The benchmark's pages: whole, without a network, and true to the scores."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bnncert.bench.known import KNOWN
from bnncert.bench.pages import write_pages
from bnncert.bench.runs import Answer
from bnncert.bench.scores import Score, score
from bnncert.bench.suite import Instance, make, read_suite
from bnncert.bench.verdicts import Verdict
from bnncert.experiments.plots import COLOURS


@pytest.fixture(scope="module")
def instances(tmp_path_factory: pytest.TempPathFactory) -> list[Instance]:
    folder = tmp_path_factory.mktemp("bench")
    make(KNOWN[:3], folder)
    return read_suite(folder)


def scores_of(instances: list[Instance]) -> list[Score]:
    """One tool that is right, one that is wrong, one that says <nothing>."""
    right = [
        Answer("concentration-1", one.name, one.digest, "answered", 0.1, 0.5, 1.0)
        for one in instances
    ]
    right[0] = replace(right[0], lower=0.76, verdict=Verdict(True, 0.76, 1.0))
    wrong = [replace(one, tool="mine", lower=0.99, seconds=3.0) for one in right]
    late = [replace(one, tool="late", status="error", reason="<b>died</b>") for one in right[:1]]
    return score(instances, [*right, *wrong, *late])


class Reader(HTMLParser):
    """The text of a page, its tags, and what it refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.tags, self.links = "", [], []  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src") and value]

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.text = re.sub(r"\s+", " ", reader.text)
    return reader


def test_the_pages_say_who_is_wrong_and_where(instances: list[Instance], tmp_path: Path) -> None:
    index = read(write_pages(tmp_path, instances, scores_of(instances)))
    assert "3 tools on 3 instances" in index.text
    assert "3 wrong answers:" in index.text
    assert "mine on truth-linear: lower bound 0.99, but the truth is 0.7602" in index.text
    # 10 · .76 + 10 + 5, then half a width twice
    assert re.search(r"concentration-1 33 33 0 1 1 0\.3", index.text)
    assert re.search(r"mine -450 -450 3 0 0 9\.0", index.text)


def test_a_page_a_track_has_every_answer(instances: list[Instance], tmp_path: Path) -> None:
    write_pages(tmp_path, instances, scores_of(instances))
    page = read(tmp_path / "report" / "truth.html")
    for instance in instances:
        assert instance.name in page.text
        assert instance.fields["catches"] in page.text
    assert "Truth: 0.7602499389." in page.text
    assert "76.00 % 100.00 % 22.6 yes accepted 0.10" in page.text
    assert "error: <b>died</b>" in page.text


def test_the_pages_need_nothing_beside_themselves(
    instances: list[Instance], tmp_path: Path
) -> None:
    """Links go to the pages beside, and what a tool said is no markup."""
    write_pages(tmp_path, instances, scores_of(instances))
    pages = sorted((tmp_path / "report").glob("*.html"))
    assert [path.name for path in pages] == ["index.html", "truth.html"]
    for path in pages:
        page = read(path)
        others = {link for link in page.links if not link.startswith("data:")}
        assert others <= {"index.html", "truth.html"}
        assert "script" not in page.tags
        assert "b" not in page.tags
        assert 'style="' not in path.read_text(encoding="utf-8")


def test_without_wrong_answers_the_page_says_so(instances: list[Instance], tmp_path: Path) -> None:
    right = [one for one in scores_of(instances) if one.tool == "concentration-1"]
    index = read(write_pages(tmp_path, instances, right))
    assert "No wrong answer" in index.text
    assert index.tags.count("aside") == 1


def test_the_plot_is_a_picture_too(instances: list[Instance], tmp_path: Path) -> None:
    """Of those that settle anything, by name and count, in the colours of the page; the same bytes
    each time."""
    statistics = [
        replace(one, tool="statistics", certified=False, points=0.0)
        for one in scores_of(instances)
        if one.tool == "concentration-1"
    ]
    scores = [*scores_of(instances), *statistics]
    write_pages(tmp_path, instances, scores)
    picture = (tmp_path / "report" / "settled.svg").read_bytes()
    drawn = re.findall(r"<!-- (.+?) -->", picture.decode())
    assert "concentration-1 (1)" in drawn
    assert "statistics * (1)" in drawn
    assert "Instances settled, of 3" in drawn
    assert not [text for text in drawn if text.startswith(("mine", "late"))]
    assert (tmp_path / "report" / "settled.png").stat().st_size > 1000
    assert COLOURS["concentration"].encode() in picture
    write_pages(tmp_path, instances, scores)
    assert (tmp_path / "report" / "settled.svg").read_bytes() == picture


def test_where_nobody_settles_anything_there_is_no_picture(
    instances: list[Instance], tmp_path: Path
) -> None:
    wrong = [one for one in scores_of(instances) if one.tool == "mine"]
    write_pages(tmp_path, instances, wrong)
    assert not (tmp_path / "report" / "settled.svg").exists()
