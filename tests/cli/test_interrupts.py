"""Ctrl-C: nothing half done is left, and what is proved is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bnncert import _certify as front_door
from bnncert.concentration import refine as refine_module
from commands import Run


@pytest.fixture(autouse=True)
def keyboard() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests themselves run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def in_eights(length: int, *_: Any) -> Iterator[slice]:
    """Batches of eight inputs, whatever fits."""
    return (slice(start, min(start + 8, length)) for start in range(0, length, 8))


def interrupted_in_batch(
    number: int, module: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody presses Ctrl-C when the function is called for the so-many-th time."""
    original, calls = getattr(module, name), list[int]()

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    monkeypatch.setattr(module, name, interrupted)
    monkeypatch.setattr("bnncert._certify.slices", in_eights)


@pytest.mark.parametrize("command", ["certify", "decide"])
def test_an_interrupt_before_the_first_result_changes_nothing(
    command: str, run: Run, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [command, files["p"], "--inputs", files["x"], "--eps", 0.3, "--out", tmp_path / "out"]
    assert run(*asked)[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    interrupted_in_batch(1, front_door, "_observed", monkeypatch)
    code, text, error = run(*asked)
    assert (code, "Traceback" in error, "interrupted" in error, text) == (130, False, True, "")
    assert {
        path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*") if path.is_file()
    } == before


@pytest.mark.parametrize("command", ["certify", "decide"])
def test_an_interrupt_between_batches_keeps_what_is_there(
    command: str, run: Run, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_in_batch(2, front_door, "_observed", monkeypatch)
    code, text, error = run(
        command, files["p"], "--inputs", files["x"], "--eps", 0.3, "--out", tmp_path / "out"
    )
    assert (code, "Traceback" in error, "interrupted" in error) == (130, False, True)
    assert "goes on" not in error  # given again, the command begins anew
    assert "bnncert run" in error
    (stored,) = (tmp_path / "out").glob("*.jsonl")
    assert len(stored.read_text().splitlines()) == 8
    assert "and certificates are in" in text
    assert run("check", tmp_path / "out", "--posterior", files["p"])[0] == 0


def test_an_interrupted_search_reports_what_it_has(
    run: Run, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inputs of the search are written, those after it are not begun, and the exit code says
    so."""
    tightened, calls = refine_module.tighten, list[int]()

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return tightened(*arguments)

    monkeypatch.setattr(refine_module, "tighten", interrupted)
    monkeypatch.setattr("bnncert._certify.slices", in_eights)
    monkeypatch.setattr("bnncert.concentration.method.LOW", 0)
    command = [
        "certify",
        files["p"],
        "--inputs",
        files["x"],
        "--eps",
        0.3,
        "--effort",
        2,
        "--out",
        tmp_path / "out",
    ]
    code, text, error = run(*command)
    assert (code, "Traceback" in error) == (130, False)
    assert "interrupted" in error
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 8
    assert "results and certificates are in" in text
    assert run("check", tmp_path / "out", "--posterior", files["p"])[0] == 0
