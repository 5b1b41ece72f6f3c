"""Pages of reports as tests read them, and folders of real results."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bnncert import Problem, ball, certify, class_robust, save_posterior
from bnncert.report.page import write_report
from bnncert.results.folder import result_folder

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
            i for i, cells in enumerate(self.cells) if cells[0] == "input" and "status" in cells
        )
        return self.cells[start + 1 :]

    def facts(self, row: int) -> dict[str, str]:
        return {
            self.data["texts"][name]: self.data["texts"][value]
            for name, value in self.data["facts"][row]
        }


def written(folder: Path, posterior: Path | None = None) -> Page:
    return Page(write_report(folder, posterior).read_text(encoding="utf-8"))


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


def mean_of(lines: list[dict[str, Any]], end: str) -> float:
    return sum(line[end] for line in lines) / len(lines)
