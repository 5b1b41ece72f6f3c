"""The checker as a program: what it prints, its exit codes, and that it runs alone."""

from __future__ import annotations

import io
import json
import math
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from safetensors.numpy import save

from bnncert_check import ACCEPT, REJECT, Verdict
from bnncert_check.__main__ import _with_progress, main, run
from bnncert_check.files import strict_json
from bnncert_check.verdict import ERRORS, EXIT_CODES, REJECTIONS, Support
from checking import NOTHING, Workshop, program, results

SOURCE = Path(__file__).parents[1] / "src"


def without_seconds(text: str) -> list[str]:
    return [row for row in text.splitlines() if '"seconds"' not in row]


@pytest.fixture(scope="module")
def targets(workshop: Workshop) -> dict[str, Path]:
    """What to check, by the exit code it should lead to."""
    header, tensors = workshop.read("lower")
    header["claim"]["lower"] = "0x1p0"
    (workshop.folder / "high.safetensors").write_bytes(
        save(tensors, {"bnncert": json.dumps(header)})
    )
    return {
        "accept": workshop.folder / "lower.safetensors",
        "reject": workshop.folder / "high.safetensors",
        "error": workshop.folder / "nowhere",
        "folder": workshop.folder,
    }


CODES = {"accept": 0, "reject": 1, "error": 2, "folder": 1}


@pytest.mark.parametrize("name", CODES)
def test_both_programs_say_the_same(
    name: str, targets: dict[str, Path], workshop: Workshop
) -> None:
    results(workshop, {}, {"certificate": None}, {"certificate": "nowhere"})
    for option in ([], ["--json"]):
        arguments = [targets[name], "--posterior", workshop.posterior, *option]
        code, text, error = program(*arguments)
        other = program(*arguments, module="bnncert check")
        assert (code, error) == (CODES[name], "")
        assert (other[0], without_seconds(other[1]), other[2]) == (code, without_seconds(text), "")


def test_it_says_in_words_what_was_certified(
    targets: dict[str, Path], workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for name in ("accept", "reject", "error"):
        assert run(targets[name], workshop.posterior, False) == CODES[name]
        said[name] = capsys.readouterr().out
        assert said[name].count("\n") == 1
    assert (
        " <= P_safe <= 1.0: 2 output rows positive on linf ball of radius 0.1\n" in said["accept"]
    )
    assert said["reject"].startswith(
        f"REJECT  {targets['reject']}  probability-too-high: claimed P_safe >= 1.0, "
    )
    assert said["error"].startswith(f"ERROR  {targets['error']}  unreadable: ")
    folder = results(workshop, {}, NOTHING)
    assert run(folder, workshop.posterior, False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("results.jsonl:2  claims nothing")
    assert lines[2] == "ACCEPT: 2 ACCEPT, 0 REJECT, 0 ERROR"


def test_rejections_come_before_errors(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, lost = {}, {"certificate": None}, {"certificate": "nowhere"}
    for lines, code in (([good, lost], 2), ([good, bad], 1), ([good], 0), ([lost, bad, good], 1)):
        assert run(results(workshop, *lines), workshop.posterior, False) == code
    assert "REJECT: 1 ACCEPT, 1 REJECT, 1 ERROR" in capsys.readouterr().out


def test_json_has_every_verdict(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    folder = results(workshop, {}, {"certificate": None})
    assert run(folder, workshop.posterior, True) == 1
    said = json.loads(capsys.readouterr().out)
    assert list(said) == ["verdict", "statement", "certificates"]
    assert said["verdict"] == REJECT
    assert [list(entry) for entry in said["certificates"]] == [
        [field.name for field in fields(Verdict)]
    ] * 2
    assert [entry["code"] for entry in said["certificates"]] == [None, "certificate-missing"]
    assert said["certificates"][0]["claimed"][1] == 1.0


MISTAKES = {
    "no certificate": ("nowhere", "p.safetensors", "does not exist"),
    "no posterior": ("lower.safetensors", "nowhere", "no such file"),
    "posterior is a folder": ("lower.safetensors", ".", "no such file"),
    "posterior is a certificate": (
        "lower.safetensors",
        "box.safetensors",
        "is not of schema bnncert-posterior/1",
    ),
    "certificate is a posterior": (
        "p.safetensors",
        "p.safetensors",
        "is not of schema bnncert-certificate/1",
    ),
    "folder without results": ("empty", "p.safetensors", "not a file of results"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_line(
    name: str, workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    target, posterior, message = MISTAKES[name]
    (workshop.folder / "empty").mkdir(exist_ok=True)
    assert run(workshop.folder / target, workshop.folder / posterior, False) == 2
    said = capsys.readouterr().out
    assert said.startswith("ERROR  ")
    assert message in said
    assert said.count("\n") == 1


def test_json_is_strict(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Arb gives up, so that what is supported is not known."""

    def nothing(*_: object) -> Support:
        return Support(math.nan, 1.0)

    monkeypatch.setattr("bnncert_check.evidence.concentration.Concentration.supported", nothing)
    assert run(workshop.folder / "lower.safetensors", workshop.folder / "p.safetensors", True) == 2
    assert strict_json(capsys.readouterr().out)["certificates"][0]["code"] == "not-finite"


def test_a_name_too_long_is_a_mistake(workshop: Workshop) -> None:
    assert run(Path("a" * 300), workshop.posterior, False) == 2


def test_a_path_cannot_pretend_to_be_a_verdict(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    run(results(workshop, {"certificate": "x\nACCEPT  all is well"}), workshop.posterior, False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ERROR", "Posterior", "There"]


def test_the_program_itself(
    targets: dict[str, Path], workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["bnncert_check", str(targets["reject"]), "--posterior", str(workshop.posterior)],
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == EXIT_CODES[REJECT]
    monkeypatch.delitem(sys.modules, "bnncert_check.__main__")
    with pytest.raises(SystemExit) as end:
        runpy.run_module("bnncert_check", run_name="__main__")
    assert end.value.code == EXIT_CODES[REJECT]


def test_options_are_explained_without_a_traceback() -> None:
    assert program("--help")[0] == 0
    code, _, error = program("only-a-target")
    assert code == 2
    assert "--posterior" in error
    assert "Traceback" not in error


class Terminal(io.StringIO):
    """Standard error that is, or is not, a terminal."""

    def __init__(self, is_one: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_one  # type: ignore[method-assign]


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [Verdict(str(i), ACCEPT) for i in range(3)]
    for is_one in (False, True):
        terminal = Terminal(is_one)
        monkeypatch.setattr(sys, "stderr", terminal)
        assert list(_with_progress(iter(verdicts), 3)) == verdicts
        shown = terminal.getvalue()
        assert shown.count("\r") == 3 * is_one
    assert shown.startswith("\rchecking [##########                    ] 1/3\r")
    assert shown.endswith("[##############################] 3/3\n")


ALONE = """
import sys
class Blocker:
    names = {"torch", "scipy", "safetensors", "typer", "rich", "jinja2", "matplotlib", "bnncert"}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
sys.path.insert(0, sys.argv.pop(1))
from bnncert_check.__main__ import main
try:
    main()
finally:
    assert not Blocker.names & {name.split(".")[0] for name in sys.modules}
    try:
        import bnncert
    except ImportError:
        print("alone")
"""


def test_it_runs_alone(targets: dict[str, Path], workshop: Workshop) -> None:
    """Where neither bnncert nor what that needs can be imported."""
    for name in ("accept", "reject"):
        command = [
            sys.executable,
            "-I",
            "-c",
            ALONE,
            SOURCE,
            targets[name],
            "--posterior",
            workshop.posterior,
        ]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=100
        )
        assert (done.returncode, done.stderr) == (CODES[name], "")
        assert done.stdout.endswith("alone\n")


@pytest.mark.parametrize("name", ["accept", "reject", "error"])
def test_verdicts_do_not_rest_on_assertions(
    name: str, targets: dict[str, Path], workshop: Workshop
) -> None:
    code, text, error = program(targets[name], "--posterior", workshop.posterior, options=("-O",))
    assert (code, error) == (CODES[name], "")
    assert text.startswith(name.upper())


def test_every_reason_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")
    assert all(f"| `{code}` |" in page for code in REJECTIONS | ERRORS)
