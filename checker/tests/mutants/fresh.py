"""The package imported afresh, from texts instead of files."""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import bnncert_check
from mutants.outcomes import Checker
from mutants.table import SOURCES


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the package in texts instead of files."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def find_spec(self, name: str, *_: object) -> Any:
        root, _, stem = name.partition(".")
        package = any(
            other.startswith(f"{stem}." if stem else "") for other in self.texts if other != stem
        )
        return (
            importlib.util.spec_from_loader(name, self, is_package=package)
            if root == "bnncert_check"
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        _execute(self.texts[module.__name__.partition(".")[2]], module.__dict__)


def _execute(text: str, *where: dict[str, Any]) -> None:
    exec(_compiled(text), *where)


@cache
def _compiled(text: str) -> Any:
    return compile(text, "<bnncert_check>", "exec")


@contextmanager
def imported(texts: dict[str, str]) -> Iterator[Checker]:
    """The package made of these texts; other tests get their modules back."""

    def modules() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] == "bnncert_check"]

    saved, finder = {name: sys.modules.pop(name) for name in modules()}, Sources(texts)
    sys.meta_path.insert(0, finder)
    try:
        # Most of the time goes into texts that dataclasses write, of the same ones again and again.
        with patch.object(dataclasses, "exec", _execute, create=True):
            checker: Checker = importlib.import_module("bnncert_check")
        if texts["tails"] == SOURCES["tails"]:
            checker.tails._table = bnncert_check.tails._table  # made once
        yield checker
    finally:
        sys.meta_path.remove(finder)
        for name in modules():
            del sys.modules[name]
        sys.modules.update(saved)


def chain(checker: Checker, input_shape: tuple[int, ...], layers: tuple[Any, ...]) -> Any:
    """A network in which each layer reads the one before it."""
    reads = tuple((k,) for k in range(len(layers)))
    return checker.network.Network(input_shape, layers, reads)
