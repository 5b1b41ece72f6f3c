"""The mutants: texts of the package, and what takes their place.

In `table.txt` a line names a module; below it: name ¦ text that occurs once in the module ¦ what
takes its place. A line that starts with a space goes on with the one above. How a text is broken
into lines does not matter: any white space stands for any other, and after an opening bracket or
before a closing one there may be more, also a comma before that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import bnncert_check

ROOT = Path(bnncert_check.__file__).parent
# By dotted name; a package's own text has the package's name, that of the whole none.
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    .removesuffix("__init__")
    .strip("."): path.read_text()
    for path in ROOT.rglob("*.py")
}


TABLE = Path(__file__).with_name("table.txt").read_text(encoding="utf-8")


def mutants() -> Iterator[tuple[str, str, str, str]]:
    """Name, module, original and mutated text."""
    module = ""
    for line in re.sub(r"\n +", " ", TABLE.strip()).splitlines():
        name, *texts = re.split(r" ¦ ?", line)
        module = module if texts else name
        if texts:
            yield f"{module}: {name}", module, *texts


def mutated(texts: dict[str, str], module: str, original: str, new: str) -> dict[str, str]:
    """The texts with one piece of a module replaced, which occurs in it exactly once."""
    changed, count = re.subn(_pattern(original), lambda _: new, texts[module])
    assert count == 1, f"{count} times in {module}: {original}"
    return texts | {module: changed}


def _pattern(text: str) -> str:
    return "".join(map(_piece, re.findall(r"\s+|\w+|[^\w\s]", text)))


def _piece(token: str) -> str:
    if token.isspace():
        return r"\s+"
    before = r",?\s*" if token in ")]}" else ""
    after = r"\s*" if token in "([{" else ""
    return before + re.escape(token) + after


# Defects that were once there and that more than one line now keeps out: by name the module, its
# text and what it was.
DEFECTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "widths that start at 0": (
        (
            "splits",
            "(len(layer.traits.kinks), layer.width) for",
            "(len(layer.traits.kinks), layer.width * (layer.position > 0)) for",
        ),
        ("splits", "np.ones((1, layer.width), bool)", "np.ones_like(signs[:1], bool)"),
        ("evidence.proof", ".all() and count > 0", ".all()"),
    ),
    "mixtures by their first component": (
        ("model", "if family not in GAUSSIAN:", "if False:"),
        ("model", "for component in self.components:", "for component in self.components[:1]:"),
        ("model", "if others:", "if False:"),
        (
            "evidence.predictive",
            "for component in model.components)",
            "for component in model.components[:1])",
        ),
    ),
    "status without a certificate": (
        ("folder", "and self.status != DECIDED", ""),
        ("folder", "line.status, line.follows)", "line.status, line.status)"),
    ),
}
