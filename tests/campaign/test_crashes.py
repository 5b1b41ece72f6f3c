"""Campaigns that are killed, interrupted, run twice at once or out of room: resumed, they end like
calm ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from campaigns import bundles, environment, run_here, table, write_campaign

TESTS = Path(__file__).parents[1]


class Crashes:
    """A campaign, an uninterrupted run of it, and what became of the others."""

    def __init__(self, folder: Path, kills: int, **changes: Any) -> None:
        self.folder, self.campaign = folder, write_campaign(folder, **changes)
        run_here(self.campaign, folder / "calm")
        command = [
            sys.executable,
            str(TESTS / "crashes.py"),
            str(self.campaign),
            str(folder),
            str(kills),
        ]
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == 0, done.stderr
        self.outcomes: dict[str, Any] = json.loads((folder / "outcomes.json").read_text())

    def same(self, name: str) -> bool:
        """Whether a run folder holds what the uninterrupted one does, and nothing else."""
        calm, run = self.folder / "calm", self.folder / name
        return table(run) == table(calm) and bundles(run) == bundles(calm)

    def resumed(self, name: str) -> bool:
        run_here(self.campaign, self.folder / name)
        return self.same(name)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> Crashes:
    """With plain slopes alone, which are quick."""
    return Crashes(
        tmp_path_factory.mktemp("crashes"), 6, methods=[{"name": "concentration", "effort": 0}]
    )


def kills(crashes: Crashes) -> int:
    """All runs that were killed and resumed end in the same table; how many kills there were."""
    found = crashes.outcomes["killed"]
    assert found["end"] == 0
    for name in ("killed", *(f"finished{k}" for k in range(found["finished"]))):
        assert crashes.same(name)
    return int(found["kills"])


def test_killed_runs_resume_to_the_same_table(crashes: Crashes) -> None:
    assert kills(crashes) == 6


@pytest.mark.slow
def test_a_hundred_killed_runs_resume_to_the_same_table(tmp_path: Path) -> None:
    assert kills(Crashes(tmp_path, 100)) == 100


def test_two_runners_share_a_folder(crashes: Crashes) -> None:
    found = crashes.outcomes["together"]
    assert found["codes"] == [0, 0]
    assert not any("conflict" in text for text in found["said"])
    assert crashes.same("shared")


def test_ctrl_c_stores_what_is_in_flight_and_says_how_to_go_on(crashes: Crashes) -> None:
    found, run = crashes.outcomes["interrupted"], crashes.folder / "interrupted"
    assert found["code"] == 130
    assert f"to resume: bnncert run {crashes.campaign} --out {run}\n" in found["said"]
    assert "Traceback" not in found["said"]
    assert 0 < found["stored"] < len(table(crashes.folder / "calm"))
    assert len((run / "results.jsonl").read_text().splitlines()) == found["stored"]
    assert crashes.resumed("interrupted")


def test_files_that_may_not_grow(crashes: Crashes) -> None:
    found = crashes.outcomes["limited"]
    assert found["code"] == 2
    assert_one_line(found["said"])
    assert 0 < found["stored"] < len(table(crashes.folder / "calm"))
    assert crashes.resumed("limited")


def test_full_and_read_only_disks(crashes: Crashes) -> None:
    found = crashes.outcomes["full"]
    if not found:
        pytest.skip("this user may not mount a disk")
    assert (found["full"], found["read-only"], found["end"]) == (2, 2, 0)
    assert_one_line(found["said when full"])
    assert_one_line(found["said when read-only"])
    assert 0 < found["stored"] < len(table(crashes.folder / "calm"))
    assert crashes.same("room")


def assert_one_line(said: str) -> None:
    """What cannot be done, why, and that nothing is lost; after the line of progress, if there was
    time for one."""
    *_, last = said.splitlines()
    assert last.startswith("bnncert: run folder '")
    assert "cannot be written (" in last
    assert "intact" in last
    assert "Traceback" not in said
