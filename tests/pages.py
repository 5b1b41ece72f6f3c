"""The documentation as code: the fenced blocks of a page, by heading."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str, heading: str) -> list[str]:
    """The Python blocks below a heading, up to the next one; "" for those above the first second-level heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    sections = dict(
        zip(["", *re.findall(r"^## (.*)$", text, re.M)], re.split(r"^## .*$", text, flags=re.M), strict=True)
    )
    return re.findall(r"^```python\n(.*?)^```$", sections[heading], re.M | re.S)


def run(code: str, **known: object) -> dict[str, object]:
    """What the names are after the code, at most ten lines of it, started with those that are known."""
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 10, f"{len(lines)} lines of code; a page shows at most ten"
    names = dict(known)
    exec(compile(code, "<page>", "exec"), names)
    return names
