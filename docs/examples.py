"""A hook of the site's build: examples in docstrings, the lines from `>>>`, are shown as code.

Markdown would take them for quotations.
"""

from __future__ import annotations

from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from mkdocs.plugins import event_priority

BEFORE_FENCES = 100  # fenced blocks are read at 25


class Examples(Preprocessor):
    """Fences each example, from its first line to the next empty one."""

    def run(self, lines: list[str]) -> list[str]:
        found: list[str] = []
        inside = False
        for line in lines:
            if not inside and line.startswith(">>> "):
                found += ["```pycon"]
                inside = True
            elif inside and not line.strip():
                found += ["```"]
                inside = False
            found.append(line)
        return [*found, "```"] if inside else found


class ExamplesExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (the library's name)
        md.preprocessors.register(Examples(md), "examples", BEFORE_FENCES)


@event_priority(100)  # before the reference's plugin takes the list of extensions
def on_config(config: Any) -> None:
    config.markdown_extensions.append(ExamplesExtension())
