"""What runs of a campaign survive: being killed, each other, Ctrl-C, and disks that take no more.

usage: python crashes.py CAMPAIGN FOLDER KILLS     leaves run folders and outcomes.json in FOLDER

Every run is a fork of this program, so that a hundred of them start as fast as one.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bnncert.campaign.store import STORE
from bnncert.cli.main import main as program
from campaigns import bundles, run_here, table

LONGEST = 0.5  # seconds a run is left alone


def fork(act: Callable[[], object], said: Path) -> int:
    """A child that acts and says in a file what it prints; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        act()
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def outcome(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def command(*arguments: object) -> None:
    sys.argv = ["bnncert", *map(str, arguments)]
    program()


def killed(campaign: Path, folder: Path, kills: int) -> dict[str, Any]:
    """Runs that are killed at random moments; one that comes to its end is kept, and the next
    begins anew."""
    moments = random.Random(0)
    count = finished = 0
    while count < kills:
        child = fork(lambda: run_here(campaign, folder / "killed"), folder / "said")
        time.sleep(moments.uniform(0, LONGEST))
        os.kill(child, signal.SIGKILL)
        code = outcome(child)
        examine(folder / "killed")
        count += code == -signal.SIGKILL
        if code == 0:
            (folder / "killed").rename(folder / f"finished{finished}")
            finished += 1
    end = outcome(fork(lambda: run_here(campaign, folder / "killed"), folder / "said"))
    return {"kills": count, "finished": finished, "end": end}


def examine(folder: Path) -> None:
    """Whatever is stored is whole, at any moment."""
    if not (folder / STORE).exists():
        return
    connection = sqlite3.connect(folder / STORE)
    try:
        if (
            connection.execute("SELECT name FROM sqlite_master WHERE name = 'results'").fetchone()
            is None
        ):
            return
        ((sound,),) = connection.execute("PRAGMA integrity_check").fetchall()
        rows = connection.execute(
            "SELECT bundle, member FROM results WHERE member IS NOT NULL"
        ).fetchall()
    finally:
        connection.close()
    for bundle in {bundle for bundle, _ in rows}:
        with zipfile.ZipFile(folder / "bundles" / bundle) as archive:
            if (
                sound != "ok"
                or archive.testzip()
                or not {m for b, m in rows if b == bundle} <= set(archive.namelist())
            ):
                sys.exit(f"{folder}: {sound}, {bundle} is not whole")


def together(campaign: Path, folder: Path) -> dict[str, Any]:
    """Two runners at once."""
    pair = [
        fork(lambda: command("run", campaign, "--out", folder / "shared"), folder / f"said{k}")
        for k in range(2)
    ]
    return {
        "codes": [outcome(child) for child in pair],
        "said": [(folder / f"said{k}").read_text() for k in range(2)],
    }


def interrupted(campaign: Path, folder: Path) -> dict[str, Any]:
    """Ctrl-C, as soon as something is stored."""
    run = folder / "interrupted"
    child = fork(lambda: command("run", campaign, "--out", run), folder / "said")
    while not ((run / STORE).exists() and len(bundles(run)) > 1):
        time.sleep(0.01)
    os.kill(child, signal.SIGINT)
    return {
        "code": outcome(child),
        "said": (folder / "said").read_text(),
        "stored": len(table(run)),
    }


def limited(campaign: Path, folder: Path) -> dict[str, Any]:
    """A run that may write no file longer than some limit, and goes on without one."""

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        command("run", campaign, "--out", folder / "limited")

    found = {"code": outcome(fork(act, folder / "said")), "said": (folder / "said").read_text()}
    return found | {"stored": len(table(folder / "limited"))}


def full(campaign: Path, folder: Path) -> dict[str, Any]:
    """A disk that is full, and is then read-only; nothing if this user may not mount one."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=350k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        return {}
    try:
        first = outcome(
            fork(lambda: command("run", campaign, "--out", disk / "run"), folder / "said")
        )
        found: dict[str, Any] = {"full": first, "said when full": (folder / "said").read_text()}
        found["stored"] = len(table(disk / "run"))
        examine(disk / "run")
        subprocess.run(["mount", "-o", "remount,ro,size=8m", str(disk)], check=True)
        found["read-only"] = outcome(
            fork(lambda: command("run", campaign, "--out", disk / "run"), folder / "said")
        )
        found["said when read-only"] = (folder / "said").read_text()
        subprocess.run(["mount", "-o", "remount,rw,size=8m", str(disk)], check=True)
        found["end"] = outcome(
            fork(lambda: command("run", campaign, "--out", disk / "run"), folder / "said")
        )
        subprocess.run(["cp", "-r", str(disk / "run"), str(folder / "room")], check=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    return found


def main(campaign: Path, folder: Path, kills: int) -> None:
    torch.set_num_threads(1)  # no thread may be there when a process forks
    outcomes = {"killed": killed(campaign, folder, kills)}
    for act in (together, interrupted, limited, full):
        outcomes[act.__name__] = act(campaign, folder)
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
