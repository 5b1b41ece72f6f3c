"""What a mutant must not do, and the type of the whole package, as it is or mutated."""

from __future__ import annotations

from typing import Any, TypeAlias

Checker: TypeAlias = Any  # the package, as it is or mutated


class Wrong(Exception):  # noqa: N818 (an outcome, not a fault)
    """Something false was accepted, or a bound is on the wrong side."""


def never(outcome: bool, what: str) -> None:
    if outcome:
        raise Wrong(what)


def never_above(value: Any, bound: Any, what: str) -> None:
    """NaN is no bound at all, so it is not a wrong one."""
    never(bool(value > bound), what)
