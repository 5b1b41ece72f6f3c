"""Ctrl-C while everybody is busy: one line, exit code 130, nobody left behind, and the run goes
on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bnncert.bench.runs import read_answers
from bnncert.bench.workers import DiedError, Worker
from worker_tasks import sleep

PATIENCE = 60.0  # seconds until a test gives up
ENDING = 10.0  # seconds; what was to be killed would go on for minutes
pytestmark = pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")

# Answers the first instance; then leaves its number, starts a program that hardly ends, and waits.
BUSY = """
import os, pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
if "samples-0" not in sys.argv[1] and not (here / "go").exists():
    (here / f"{os.getpid()}.busy").touch()
    subprocess.run(["sleep", "600"])
print('{"lower": 0.0, "upper": 1.0}')
"""


def begun(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A run in a session of its own, which can be sent signals as a terminal sends them."""
    words = [sys.executable, "-m", "bnncert", "bench", "run", "--track", "samples", *options]
    return subprocess.Popen(
        [*words, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears,
    )


def hears() -> None:
    """Also where the tests themselves run in the background, which ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for(folder: Path, pattern: str, count: int) -> list[Path]:
    end = time.monotonic() + PATIENCE
    while len(found := list(folder.glob(pattern))) < count:
        assert time.monotonic() < end, f"no {pattern} in {folder}"
        time.sleep(0.02)
    return found


def interrupted(run: subprocess.Popen[str]) -> None:
    """Twice at once, as `timeout -s INT` does: the process, and its group."""
    os.kill(run.pid, signal.SIGINT)
    os.killpg(run.pid, signal.SIGINT)
    printed, complaint = run.communicate(timeout=PATIENCE)
    assert (run.returncode, printed) == (130, "")
    said = "bnncert: interrupted; the same command goes on where this one stopped"
    assert complaint.split("\r")[-1].strip().splitlines() == [said]
    assert left(run.pid) == []  # workers are of the same group


def left(group: int) -> list[str]:
    """Who is alive after seconds in which who is ending, as Python's tracker of resources is once
    its parent has ended, has done so."""
    end = time.monotonic() + ENDING
    while (found := alive(group)) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def alive(group: int) -> list[str]:
    """The processes of a group, but for those that are dead and only wait to be counted."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True
    )
    return [
        line
        for line in listed.stdout.splitlines()
        if line.split()[0] == str(group) and not line.split()[1].startswith("Z")
    ]


def test_programs_are_killed_and_the_run_goes_on(tmp_path: Path) -> None:
    """With what they started."""
    tool = tmp_path / "busy.py"
    tool.write_text(BUSY)
    options = ("--command", shlex.join([sys.executable, str(tool)]), "--workers", "3")
    run = begun(tmp_path / "out", *options)
    busy = wait_for(tmp_path, "*.busy", 3)
    interrupted(run)
    for path in busy:
        assert left(int(path.stem)) == []
    kept = read_answers(tmp_path / "out")
    assert {answer.instance.split("-")[1] for answer in kept} == {"0"}

    (tmp_path / "go").touch()
    again = begun(tmp_path / "out", *options)
    assert again.communicate(timeout=PATIENCE)[1].find("Traceback") == -1
    found = read_answers(tmp_path / "out")
    assert (again.returncode, len(found), found[: len(kept)]) == (0, 8, kept)


def test_workers_that_start_are_ended(tmp_path: Path) -> None:
    """In the midst of their imports, where a signal of their own would be a traceback."""
    run = begun(tmp_path / "out", "--tool", "enumeration", "--workers", "4")
    wait_for(tmp_path / "out", "answers.jsonl", 1)
    time.sleep(0.5)
    interrupted(run)


def test_a_worker_is_ended_by_another_thread() -> None:
    """Its call fails at once, and nothing starts any more."""
    worker, failed = Worker(threads=1), list[str]()
    assert worker.call(len, [1], seconds=PATIENCE) == 1

    def call() -> None:
        try:
            worker.call(sleep, 600, seconds=600)
        except DiedError as error:
            failed.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    worker.end()
    thread.join(PATIENCE)
    assert len(failed) == 1
    for start in (
        lambda: worker.call(len, [1], seconds=1),
        lambda: worker.printed(["true"], seconds=1),
    ):
        with pytest.raises(DiedError, match="the run was ended"):
            start()
    worker.close()
