"""What runs of a campaign survive: being killed, each other, and disks that take no more.

usage: python crashes.py CAMPAIGN FOLDER ACTION [KILLS]     each run is a fork, so that a hundred of them take no longer to start than one
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from bnncert.campaign.store import STORE
from bnncert.errors import InputError
from campaigns import run_here

LONGEST = 0.4  # seconds a run is left alone


def fork(act: Callable[[], object], messages: Path) -> int:
    """A child that acts and says in a file what stopped it; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        act()
        code = 0
    except InputError as error:
        messages.write_text(str(error))
        code = 2
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def outcome(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(campaign: Path, folder: Path, kills: int) -> None:
    """Runs that are killed at random moments; one that comes to its end is kept, and the next begins anew."""
    moments = random.Random(0)
    killed = finished = 0
    while killed < kills:
        child = fork(lambda: run_here(campaign, folder / "killed"), folder / "message")
        time.sleep(moments.uniform(0, LONGEST))
        os.kill(child, signal.SIGKILL)
        code = outcome(child)
        check(folder / "killed")
        if code == -signal.SIGKILL:
            killed += 1
        else:
            (folder / "killed").rename(folder / f"finished{finished}")
            finished += 1
    end = outcome(fork(lambda: run_here(campaign, folder / "killed"), folder / "message"))
    print(f"{killed} kills, {finished} campaigns that came to their end on the way; the last run ended with {end}")


def check(folder: Path) -> None:
    """Whatever is stored is whole, at any moment."""
    if not (folder / STORE).exists():
        return
    connection = sqlite3.connect(folder / STORE)
    try:
        if connection.execute("SELECT name FROM sqlite_master WHERE name = 'results'").fetchone() is None:
            return
        ((sound,),) = connection.execute("PRAGMA integrity_check").fetchall()
        rows = connection.execute("SELECT bundle, member FROM results WHERE member IS NOT NULL").fetchall()
    finally:
        connection.close()
    for bundle in {bundle for bundle, _ in rows}:
        with zipfile.ZipFile(folder / "bundles" / bundle) as archive:
            if sound != "ok" or archive.testzip() or not {m for b, m in rows if b == bundle} <= set(archive.namelist()):
                sys.exit(f"{folder}: {sound}, {bundle} is not whole")


def together(campaign: Path, folder: Path) -> None:
    """Two runners at once."""
    pair = [fork(lambda: run_here(campaign, folder / "shared"), folder / f"message{k}") for k in range(2)]
    print([outcome(child) for child in pair])


def full(campaign: Path, folder: Path) -> None:
    """A run that may write no file longer than some limit, then one on a disk that is full, if there is one."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))
        run_here(campaign, folder / "run")

    print(outcome(fork(limited, folder / "message")))


def main(campaign: Path, folder: Path, action: str, kills: str = "0") -> None:
    torch.set_num_threads(1)  # no thread may be there when a process forks
    match action:
        case "kill":
            kill(campaign, folder, int(kills))
        case "together":
            together(campaign, folder)
        case "full":
            full(campaign, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
