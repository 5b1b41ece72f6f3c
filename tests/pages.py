"""The documentation as code: the fenced blocks of a page, by language and heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import Run

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def text(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def fenced(markdown: str) -> list[tuple[str, str]]:
    """Language and content of every fenced block, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", markdown, re.M | re.S)


def blocks(page: str, heading: str = "") -> list[str]:
    """The Python blocks below a heading, up to the next one; "" for those above the first
    second-level heading."""
    markdown = text(page)
    sections = dict(
        zip(
            ["", *re.findall(r"^## (.*)$", markdown, re.M)],
            re.split(r"^## .*$", markdown, flags=re.M),
            strict=True,
        )
    )
    return [content for language, content in fenced(sections[heading]) if language == "python"]


def run(code: str, **known: object) -> dict[str, object]:
    """What the names are after the code, at most ten lines of it, started with those that are
    known."""
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 10, f"{len(lines)} lines of code; a page shows at most ten"
    names = dict(known)
    exec(compile(code, "<page>", "exec", dont_inherit=True), names)
    return names


def run_page(
    page: str, command: Run, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str, list[str]]:
    """A page as one program: what its Python blocks print, what it shows that they do, and what
    each of its commands says."""
    names: dict[str, object] = {}
    printed, shown, said = "", "", []
    for language, content in fenced(text(page)):
        if language == "python":
            exec(compile(content, page, "exec", dont_inherit=True), names)
            printed += capsys.readouterr().out
        elif language == "text":
            shown += content
        else:
            for line in content.splitlines():
                program, *arguments = line.split()
                assert program == "bnncert"
                code, output, _ = command(*arguments)
                assert code == 0
                said.append(output)
    return printed, shown, said
