"""Bad folders get one clear line and no page; the same folder gives the same page."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bnncert import PIE, InputError, save_posterior
from bnncert.cli.main import main
from bnncert.posteriors import Normal
from bnncert.report.page import write_report
from report_folders import write_folder
from report_pages import certified


def change_line(folder: Path, **changes: object) -> None:
    lines = (folder / "results.jsonl").read_text().splitlines()
    lines[1] = json.dumps(json.loads(lines[1]) | changes)
    (folder / "results.jsonl").write_text("\n".join(lines))


def write_lines(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "results.jsonl").write_text(text)


def first_certificate(folder: Path) -> Path:
    return (
        folder / json.loads((folder / "results.jsonl").read_text().splitlines()[1])["certificate"]
    )


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "no results": (lambda folder: (folder / "results.jsonl").unlink(), "holds no results.jsonl"),
    "empty results": (write_lines(""), "is empty"),
    "not JSON": (write_lines("{"), "line 1 of .* is malformed"),
    "not an object": (write_lines("[1]"), "not an object"),
    "blank line": (write_lines("\n"), "line 1 of .* is malformed"),
    "not a number": (write_lines('{"index": NaN}'), "NaN is not a number"),
    "deep": (write_lines("[" * 100_000), "line 1 of .* is malformed"),
    "not text": (lambda folder: (folder / "results.jsonl").write_bytes(b"\xff"), "cannot be read"),
    "field missing": (write_lines('{"index": 1}'), "label is missing"),
    "unknown status": (
        lambda folder: change_line(folder, status="fine"),
        "line 2 of .*status is 'fine'",
    ),
    "lower above upper": (
        lambda folder: change_line(folder, lower=0.9, upper=0.5),
        "lower is 0.9 and upper 0.5",
    ),
    "no probability": (lambda folder: change_line(folder, upper=1.5), "upper 1.5"),
    "infinite eps": (lambda folder: change_line(folder, eps=10**400), "malformed"),
    "negative seconds": (lambda folder: change_line(folder, seconds=-1), "seconds -1"),
    "bad estimate": (
        lambda folder: change_line(folder, estimate={"samples": 1}),
        "verified is missing",
    ),
    "estimate no object": (lambda folder: change_line(folder, estimate=3), "not an object"),
    "certificate gone": (
        lambda folder: first_certificate(folder).unlink(),
        "certificate .* is missing",
    ),
    "no certificate": (
        lambda folder: change_line(folder, certificate=None),
        "names no certificate",
    ),
    "certificate outside": (
        lambda folder: change_line(folder, certificate="../../x"),
        "not a path inside",
    ),
    "certificate absolute": (
        lambda folder: change_line(folder, certificate="/etc/passwd"),
        "not a path inside",
    ),
    "certificate no path": (
        lambda folder: change_line(folder, certificate="a\0b"),
        "not a path inside",
    ),
    "certificate a folder": (
        lambda folder: change_line(folder, certificate="certificates"),
        "is missing",
    ),
    "certificate no tensors": (
        lambda folder: first_certificate(folder).write_text("x"),
        "not a safetensors file",
    ),
    "other claim": (lambda folder: change_line(folder, lower=0.96), "claims other bounds"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_folders_get_one_clear_line_and_no_page(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil, message = WRONG[name]
    write_folder(tmp_path / "run", 4)
    spoil(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    code, error = run(["report", tmp_path / "run"], capsys, monkeypatch)
    assert code == 2
    assert re.search(message, error)
    assert error.startswith("bnncert: ")
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def run(
    arguments: list[object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["bnncert", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    output = capsys.readouterr()
    return int(exit_.value.code or 0), output.err or output.out


@pytest.mark.parametrize("change", ["claim", "digests", "region", "versions", "method", "evidence"])
def test_certificates_that_lack_something_are_named(change: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 4, **{change: None})
    with pytest.raises(
        InputError, match=r"000003\.safetensors' is not a certificate of bnncert .* certify again"
    ):
        write_report(tmp_path / "run")


def test_out_and_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "run", 4)
    path = tmp_path / "page.html"
    code, text = run(["report", tmp_path / "run", "--out", path], capsys, monkeypatch)
    assert (code, text) == (0, f"{path} ({path.stat().st_size / 1e6:.2f} MB)\n")
    assert not (tmp_path / "run" / "report.html").exists()
    for wrong in (tmp_path, tmp_path / "none" / "page.html"):
        assert run(["report", tmp_path / "run", "--out", wrong], capsys, monkeypatch)[0] == 2
    assert run(["report", tmp_path / "nothing"], capsys, monkeypatch)[0] == 2


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, PIE(samples=2))
    first = write_report(tmp_path / "run", posterior).read_bytes()
    assert write_report(tmp_path / "run", posterior).read_bytes() == first


def test_a_posterior_that_was_not_certified_is_refused(tmp_path: Path, trained: Any) -> None:
    certified(tmp_path / "run", trained, PIE(samples=2))
    network, posterior, _, _ = trained
    save_posterior(
        tmp_path / "other.safetensors", network, Normal(posterior.mean + 1, posterior.std)
    )
    with pytest.raises(InputError, match="another posterior"):
        write_report(tmp_path / "run", tmp_path / "other.safetensors")
