"""A hook of the site's build: below `$ bnncert ... --help` on a page comes what the program
answers."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from bnncert.cli.main import app

ASKED = re.compile(r"^\$ bnncert (.*--help)$", re.M)


def answer(arguments: str) -> str:
    """What `bnncert ARGUMENTS` prints."""
    result = CliRunner().invoke(app, arguments.split(), prog_name="bnncert")
    if result.exit_code:
        raise RuntimeError(f"bnncert {arguments}: {result.output}")
    return result.output.strip()


def on_page_markdown(markdown: str, **_: object) -> str:
    return ASKED.sub(lambda found: f"{found[0]}\n{answer(found[1])}", markdown)
