"""The one error a user can cause."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


class InputError(ValueError):
    """Something the caller gave is wrong; the message is one line that names it and the fix.

    >>> from bnncert import mlp
    >>> mlp(3)
    Traceback (most recent call last):
    bnncert.errors.InputError: mlp(3,) has no layer; give the input width and at least one more
    """


def closest(name: str, known: Sequence[str]) -> str:
    """A hint, where the name is nearly one that is known."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else ""
