"""Lines of results: statuses that follow from the numbers, and those of old folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnncert import InputError
from bnncert.results.folder import read_results
from report_folders import write_folder


def old(_: int, own: dict[str, Any]) -> dict[str, Any]:
    """A line as it was before statuses spoke of a threshold."""
    word = "certified" if own["lower"] > 0 else "unverified"
    status = word if own["label"] == own["predicted"] else "misclassified"
    return {name: value for name, value in own.items() if name != "at_least"} | {"status": status}


def test_old_folders_read_as_what_their_bounds_settle(tmp_path: Path) -> None:
    """With 0.95 for the threshold, or that of the answer which stood beside it in campaigns."""
    now = write_folder(tmp_path / "now", 8)
    write_folder(tmp_path / "then", 8, line=old)
    found = read_results(tmp_path / "then")
    assert [row.status for row in found] == [line["status"] for line in now]
    assert {row.at_least for row in found} == {"0.95"}

    def campaign(i: int, own: dict[str, Any]) -> dict[str, Any]:
        return old(i, own) | {"at_least": "0.2", "answer": "unsat"}

    write_folder(tmp_path / "campaign", 8, line=campaign)
    assert read_results(tmp_path / "campaign")[2].status == "certified"
    assert read_results(tmp_path / "now")[2].status == "falsified"


@pytest.mark.parametrize("status", ["undecided", "unverified", "misclassified", "sure"])
def test_a_status_that_does_not_follow_is_refused(status: str, tmp_path: Path) -> None:
    def line(i: int, own: dict[str, Any]) -> dict[str, Any]:
        return own | {"status": status} if i == 1 else own

    write_folder(tmp_path / "run", 2, line=line)
    with pytest.raises(InputError, match=f"line 2 .*status is '{status}', from the numbers"):
        read_results(tmp_path / "run")
