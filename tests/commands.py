"""The command line as tests call it: exit code, standard output and standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

import pytest

from bnncert.cli.main import main

Run: TypeAlias = Callable[..., tuple[int, str, str]]


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bnncert", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as error:
            code = int(error.code or 0)
        output = capsys.readouterr()
        return code, output.out, output.err

    return call
