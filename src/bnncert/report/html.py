"""Pages that need nothing beside themselves: templates, styles and what browsers may load."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template


def shipped(package: str, name: str) -> str:
    """A file in the package's folder of templates."""
    return (files(package) / "templates" / name).read_text(encoding="utf-8")


def template(text: str) -> Template:
    """Everything is escaped, and what a page asks for must be there."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"),
        "ensure_ascii": False,
        "allow_nan": False,
    }
    return environment.from_string(text)


def policy(style: str, script: str) -> str:
    """Content security: the page's own style, script and pictures, and nothing from elsewhere."""
    own = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{own[0]}'; script-src 'sha256-{own[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
