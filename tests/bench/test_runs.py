"""Runs: what is answered is kept, whatever ends a run, and every way to fail is one line."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bnncert import InputError
from bnncert.bench.entrants import Command, Own, _read, command_line
from bnncert.bench.known import KNOWN
from bnncert.bench.models import Model, dense, normal
from bnncert.bench.recipes import Recipe
from bnncert.bench.runs import ANSWERS, Answer, _appending, current, read_answers, run
from bnncert.bench.suite import Instance, make, read_suite
from bnncert.bench.verdicts import CHANGED, Verdict
from bnncert.bench.workers import DiedError, TooLongError, Worker
from worker_tasks import fail, sleep

BY_NAME = {recipe.name.removeprefix("truth-"): recipe for recipe in KNOWN}
FEW = ("linear", "thirds", "logit")


def suite(folder: Path, *recipes: Recipe) -> list[Instance]:
    make(recipes or [BY_NAME[name] for name in FEW], folder)
    return read_suite(folder)


def program(folder: Path, code: str, name: str = "tool") -> Command:
    """A command that runs the code with the instance as sys.argv[1]."""
    path = folder / f"{name}.py"
    path.write_text(f"import json, shutil, sys, time\n{code}\n")
    return command_line(shlex.join([sys.executable, str(path)]), name)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three instances by two tools of ours."""
    folder = tmp_path_factory.mktemp("bench")
    run(folder, suite(folder), [Own("concentration-1"), Own("enumeration")], workers=1)
    return folder


def by_key(folder: Path) -> dict[tuple[str, str], Answer]:
    return {
        (answer.tool, answer.instance.removeprefix("truth-")): answer
        for answer in read_answers(folder)
    }


def test_our_tools_answer_with_checked_certificates(answered: Path) -> None:
    """And refuse, by name, what they do not take."""
    found = by_key(answered)
    assert len(found) == 6
    for tool, instance in (("concentration-1", "linear"), ("enumeration", "thirds")):
        answer = found[tool, instance]
        assert (answer.status, answer.certified) == ("answered", True)
        assert answer.verdict is not None
        assert answer.verdict.accepted, answer.verdict.reason
        assert (answer.verdict.lower, answer.verdict.upper) == (answer.lower, answer.upper)
    predictive = found["concentration-1", "logit"]
    assert predictive.verdict is not None
    assert predictive.verdict.accepted, predictive.verdict.reason
    refused = found["concentration-1", "thirds"]
    assert (refused.status, refused.lower, refused.upper) == ("refused", 0.0, 1.0)
    assert "enumeration" in refused.reason


def test_what_is_answered_is_not_asked_again(answered: Path, tmp_path: Path) -> None:
    """Half a line, of a run that was killed, is written anew."""
    folder = tmp_path / "bench"
    shutil.copytree(answered, folder)
    content = (folder / ANSWERS).read_bytes()
    (folder / ANSWERS).write_bytes(content[: content.rfind(b"\n", 0, -1) + 20])
    asked: list[Answer] = []
    tools = [Own("concentration-1"), Own("enumeration")]
    run(folder, read_suite(folder), tools, workers=2, on_answer=asked.append)
    assert len(asked) == 1
    before = {key: replace(answer, seconds=0.0) for key, answer in by_key(answered).items()}
    after = {key: replace(answer, seconds=0.0) for key, answer in by_key(folder).items()}
    assert after == before


def test_answers_to_another_question_do_not_count(answered: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    shutil.copytree(answered, folder)
    instances = suite(folder, replace(BY_NAME["linear"], threshold="0.5"))
    kept = current(read_answers(folder), instances)
    assert {answer.instance for answer in kept} == {"truth-thirds", "truth-logit"}


def test_a_command_answers(tmp_path: Path) -> None:
    """It is given the instance's file; its last line counts."""
    code = "print('hello'); asked = json.load(open(sys.argv[1]))\n"
    code += "print(json.dumps({'lower': asked['offsets'][0], 'upper': 1}))"
    run(tmp_path, suite(tmp_path), [program(tmp_path, code)], workers=1)
    (linear, *_) = read_answers(tmp_path)
    assert (linear.tool, linear.status, linear.lower, linear.upper) == (
        "tool",
        "answered",
        0.0,
        1.0,
    )


WRONG = {
    "no line": ("pass", "no answer"),
    "no json": ("print('0.5')", "no answer"),
    "nan": ('print(\'{"lower": NaN, "upper": 1}\')', "NaN is no number"),
    "empty": ('print(\'{"lower": 0.5, "upper": 0.25}\')', "no interval of probabilities"),
    "above 1": ('print(\'{"lower": 0.5, "upper": 1.5}\')', "no interval of probabilities"),
    "words": ('print(\'{"lower": "0.5", "upper": 1}\')', "no interval of probabilities"),
    "truth values": ('print(\'{"lower": false, "upper": true}\')', "no interval"),
    "infinite": ('print(\'{"lower": 0, "upper": 1e999}\')', "no interval of probabilities"),
    "minus infinity": ('print(\'{"lower": -Infinity, "upper": 1}\')', "-Infinity is no number"),
    "negative": ('print(\'{"lower": -1e-30, "upper": 1}\')', "no interval of probabilities"),
    "barely above 1": (
        'print(\'{"lower": 0, "upper": 1.00000000000000000000001}\')',
        "no interval of probabilities",
    ),
    "barely empty": (
        'print(\'{"lower": 0.50000000000000000001, "upper": 0.5}\')',
        "no interval of probabilities",
    ),
    "no exponent": ('print(\'{"lower": 1e-99999999999999999999, "upper": 1}\')', "no answer"),
    "huge": ('print(\'{"lower": 0, "upper": 1\' + "0" * 9999 + "}")', "no answer"),
    "deep": ('print("[" * 100000)', "no answer"),
    "list": ("print('[0, 1]')", "no answer"),
    "no text": ('sys.stdout.buffer.write(b"\\xff\\xfe")', "no answer"),
    "device": (
        'print(\'{"lower": 0, "upper": 1, "certificate": "/dev/zero"}\')',
        "certificate '/dev/zero' cannot be read",
    ),
    "no path": (
        'print(\'{"lower": 0, "upper": 1, "certificate": "\\\\u0000"}\')',
        "cannot be read",
    ),
    "fails": ("raise SystemExit('out of luck')", "exit code 1: out of luck"),
    "no certificate": (
        'print(\'{"lower": 0, "upper": 1, "certificate": "nowhere"}\')',
        "certificate 'nowhere' cannot be read",
    ),
}


@pytest.mark.parametrize(("code", "message"), WRONG.values(), ids=WRONG)
def test_a_command_that_says_nothing_of_use(code: str, message: str, tmp_path: Path) -> None:
    (instance,) = suite(tmp_path, BY_NAME["linear"])
    run(tmp_path, [instance], [program(tmp_path, code)], workers=1)
    (answer,) = read_answers(tmp_path)
    assert (answer.status, answer.lower, answer.upper) == ("error", 0.0, 1.0)
    assert message in answer.reason


def test_a_script_that_names_no_interpreter_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "tool"
    script.write_text("print(1)\n")
    script.chmod(0o755)
    (instance,) = suite(tmp_path, BY_NAME["linear"])
    run(tmp_path, [instance], [command_line(shlex.quote(str(script)), None)], workers=1)
    (answer,) = read_answers(tmp_path)
    assert (answer.status, "it does not start" in answer.reason) == ("error", True)


def test_a_posterior_that_is_gone_is_one_line(tmp_path: Path) -> None:
    (instance,) = suite(tmp_path, BY_NAME["linear"])
    instance.posterior.unlink()
    with pytest.raises(InputError, match="lacks a file"):
        run(tmp_path, [instance], [Own("concentration-1")], workers=1)


def test_a_command_is_ended_when_its_seconds_are_over(tmp_path: Path) -> None:
    """And what it started."""
    code = "import subprocess; subprocess.run(['sleep', '60'])"
    (instance,) = suite(tmp_path, replace(BY_NAME["linear"], timeout=0.5))
    run(tmp_path, [instance], [program(tmp_path, code)], workers=1)
    (answer,) = read_answers(tmp_path)
    assert (answer.status, answer.lower, answer.upper) == ("timeout", 0.0, 1.0)


def test_a_certificate_must_be_of_the_instance(tmp_path: Path) -> None:
    """A command may hand in a certificate; one of another instance earns nothing."""
    instances = suite(tmp_path, *(BY_NAME[name] for name in ("linear", "two-tails", "box-width")))
    run(tmp_path, instances[1:2], [Own("concentration-1")], workers=1)
    theirs = tmp_path / "certificates" / "concentration-1" / "truth-two-tails.safetensors"
    code = f"print(json.dumps({{'lower': 0, 'upper': 1, 'certificate': {str(theirs)!r}}}))"
    run(tmp_path, instances, [program(tmp_path, code, "thief")], workers=1)
    verdicts = {answer.instance: answer.verdict for answer in read_answers(tmp_path)[1:]}
    accepted = {name: verdict and verdict.accepted for name, verdict in verdicts.items()}
    # The same posterior, region and rows, with other offsets.
    assert accepted == {"truth-linear": False, "truth-two-tails": True, "truth-box-width": False}
    other = verdicts["truth-box-width"]
    assert other is not None
    assert other.reason == "the certificate's output rows are others"


def test_a_worker_is_ended_when_its_seconds_are_over_and_starts_anew() -> None:
    """Also after a fault, and after its process died."""
    worker = Worker(threads=1)
    try:
        with pytest.raises(TooLongError):
            worker.call(sleep, 60, seconds=0.1)
        with pytest.raises(InputError, match="not this"):
            worker.call(fail, "input", seconds=10)
        with pytest.raises(DiedError, match="RuntimeError: a fault"):
            worker.call(fail, "fault", seconds=10)
        with pytest.raises(DiedError, match="the process died"):
            worker.call(fail, "death", seconds=10)
        assert worker.call(len, [1, 2], seconds=10) == 2
    finally:
        worker.close()


def test_entrants_that_are_not_there_are_one_line() -> None:
    with pytest.raises(InputError, match="tool 'nope' is not known; choose concentration-0"):
        Own("nope")
    with pytest.raises(InputError, match="'nope-program' is no program"):
        command_line("nope-program x", None)
    with pytest.raises(InputError, match="--command is empty"):
        command_line(" ", None)
    with pytest.raises(InputError, match="--name 'pie' is a tool of ours"):
        command_line("python tool.py", "pie")
    with pytest.raises(InputError, match="no plain word"):
        command_line("python tool.py", "../x")
    assert command_line("python tools/mine.py", None).name == "mine"


SOUND = {
    "tool": "x",
    "instance": "truth-linear",
    "digest": "0",
    "status": "answered",
    "seconds": 1.0,
    "lower": 0.5,
    "upper": 1,
    "reason": "",
    "certified": True,
    "certificate": "c",
    "verdict": {"accepted": True, "lower": 0.5, "upper": 1.0, "reason": ""},
}
TAMPERED: dict[str, dict[str, object]] = {
    "nothing": dict.fromkeys(SOUND),
    "nan": {"lower": math.nan},
    "infinite": {"seconds": math.inf},
    "backwards": {"seconds": -1.0},
    "text": {"upper": "1"},
    "truth value": {"upper": True},
    "empty": {"lower": 0.75, "upper": 0.5},
    "above 1": {"upper": 1.5},
    "below 0": {"lower": -0.5},
    "status": {"status": "perfect"},
    "list": {"instance": ["truth-linear"]},
    "late, and yet": {"status": "timeout"},
    "no file": {"certificate": None},
    "no path": {"certificate": 3},
    "certified": {"certified": "yes"},
    "another field": {"points": 25},
    "verdict's end": {"verdict": {"accepted": True, "lower": 0.5, "upper": math.nan}},
    "verdict's order": {"verdict": {"accepted": True, "lower": 0.75, "upper": 0.5}},
    "verdict's word": {"verdict": {"accepted": "yes"}},
    "no verdict": {"verdict": []},
}


def test_a_sound_line_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / ANSWERS).write_text(json.dumps(SOUND) + "\n")
    assert len(read_answers(tmp_path)) == 1


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_line_that_is_no_answer_is_named(change: dict[str, object], tmp_path: Path) -> None:
    lines = (json.dumps(SOUND), json.dumps({**SOUND, **change}))
    (tmp_path / ANSWERS).write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"line 2 of .* is no answer"):
        read_answers(tmp_path)


def test_bytes_that_are_no_answer_are_named(tmp_path: Path) -> None:
    for content in (b"\xff\n", b"\x00\n", b"[" * 100_000 + b"\n", b"{}\n"):
        (tmp_path / ANSWERS).write_bytes(content)
        with pytest.raises(InputError, match=r"line 1 of .* is no answer"):
            read_answers(tmp_path)


DECIMALS = {
    # what a float prints is that float
    (".1", ".1"): (0.1, 0.1),
    ("0.7602499389065233", "1.0"): (0.7602499389065233, 1.0),
    ("1e-1", "0.10"): (0.1, 0.1),
    ("0", "1"): (0.0, 1.0),
    # more digits are rounded outward
    ("0.99999999999999999999", "1"): (math.nextafter(1, 0), 1.0),
    ("0", "1e-400"): (0.0, 5e-324),
    ("1e-400", "1"): (0.0, 1.0),
    ("0.1000000000000000000001", "0.1000000000000000000001"): (math.nextafter(0.1, 0), 0.1),
    ("0.100000000000000006", "0.100000000000000006"): (0.1, math.nextafter(0.1, 1)),
    ("0.100000000000000005", "0.100000000000000005"): (math.nextafter(0.1, 0), 0.1),
    ("1e-999999999", "1"): (0.0, 1.0),
}


@pytest.mark.parametrize(("said", "read"), DECIMALS.items())
def test_digits_beyond_a_float_are_rounded_outward(
    said: tuple[str, str], read: tuple[float, float]
) -> None:
    """A bound that is true in its decimals must not become wrong by being read."""
    lower, upper = (f"0{end}" if end.startswith(".") else end for end in said)
    claim, _ = _read(f'{{"lower": {lower}, "upper": {upper}}}')
    assert (claim.lower, claim.upper) == read


def test_two_runs_in_one_folder_are_one_line(tmp_path: Path) -> None:
    """The second would take off what the first is writing."""
    instances = suite(tmp_path, BY_NAME["linear"])
    tool = program(tmp_path, 'print(\'{"lower": 0, "upper": 1}\')')
    with (
        _appending(tmp_path / ANSWERS),
        pytest.raises(InputError, match="another run is at work"),
    ):
        run(tmp_path, instances, [tool], workers=1)
    run(tmp_path, instances, [tool], workers=1)
    assert len(read_answers(tmp_path)) == 1


def test_what_a_program_leaves_behind_does_not_hold_the_run(tmp_path: Path) -> None:
    """A daemon in a session of its own that keeps what it was given open."""
    code = "import subprocess\n"
    code += "subprocess.Popen(['sleep', '20'], start_new_session=True)\n"
    code += 'print(\'{"lower": 0, "upper": 1}\')'
    (instance,) = suite(tmp_path, BY_NAME["linear"])
    run(tmp_path, [instance], [program(tmp_path, code)], workers=1)
    (answer,) = read_answers(tmp_path)
    assert answer.status == "answered"


def test_a_program_that_changes_the_question_earns_nothing(tmp_path: Path) -> None:
    """It writes an easier posterior into the suite, and hands in an honest certificate of that."""
    easy, hard = tmp_path / "easy", tmp_path / "hard"
    (instance,) = suite(hard, BY_NAME["box-width"])
    (other,) = suite(easy, replace(BY_NAME["box-width"], model=_narrow))
    run(easy, [other], [Own("concentration-1")], workers=1)
    certificate = easy / "certificates" / "concentration-1" / f"{other.name}.safetensors"
    code = f"shutil.copyfile({str(other.posterior)!r}, {str(instance.posterior)!r})\n"
    code += f"print(json.dumps(dict(lower=.99, upper=1, certificate={str(certificate)!r})))"
    run(hard, [instance], [program(tmp_path, code, "forger")], workers=1)
    (answer,) = read_answers(hard)
    assert answer.verdict == Verdict(False, reason=CHANGED)


def _narrow() -> Model:
    """y = w x, of a tenth of the noise."""
    return normal((1,), dense([[0.0]], 0.1))
