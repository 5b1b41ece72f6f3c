"""`bnncert certify`: what it writes, its radii, thresholds and questions from files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bnncert import load_posterior, read_certificate, save_posterior
from bnncert.posteriors import Empirical
from bnncert.posteriors.base import sample
from commands import Run
from question_files import FIELDS, lines, property_file, wide_steps


@pytest.mark.parametrize("method", ["concentration", "sampling", "pie", "gie"])
def test_certify_writes_results_and_certificates(
    method: str, run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    arguments = [
        "certify",
        files["p"],
        "--inputs",
        files["x"],
        "--select",
        "2:8",
        "--eps",
        0.01,
        "--method",
        method,
    ]
    code, text, _ = run(*arguments, *wide_steps(method), "--out", out)
    assert code == 0
    assert "mean P_safe" in text
    rows = lines(out)
    assert [row["index"] for row in rows] == list(range(2, 8))
    assert all(list(row) == FIELDS for row in rows)
    assert {row["at_least"] for row in rows} == {"0.95"}
    assert any(row["lower"] > 0 for row in rows)
    for row in rows:
        assert 0 <= row["lower"] <= row["upper"] <= 1
        if row["lower"] > 0:
            header = read_certificate(out / row["certificate"]).header
            assert float.fromhex(header["claim"]["lower"]) == row["lower"]
    assert sorted(path.name for path in out.iterdir()) == [
        "certificates",
        "manifest.json",
        "results.jsonl",
    ]
    assert not list(tmp_path.glob("new/.*"))


def test_certifying_again_replaces_earlier_results_only(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    arguments = [
        "certify",
        files["p"],
        "--inputs",
        files["x"],
        "--eps",
        0.01,
        "--out",
        tmp_path / "out",
    ]
    assert run(*arguments)[0] == 0
    (tmp_path / "out" / "mine.txt").write_text("keep")
    assert run(*arguments, "--select", "0:2")[0] == 0
    assert len(lines(tmp_path / "out")) == 2
    assert len(list((tmp_path / "out" / "certificates").iterdir())) <= 2
    assert (tmp_path / "out" / "mine.txt").read_text() == "keep"


def test_images_are_clipped_by_default(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    for name, option in (("a", []), ("b", ["--no-clip"]), ("c", ["--clip", "0", "1"])):
        arguments = [
            "certify",
            files["p"],
            "--inputs",
            files["x"],
            "--select",
            "0",
            "--eps",
            0.01,
            *option,
        ]
        assert run(*arguments, "--out", tmp_path / name)[0] == 0
    clips = [
        read_certificate(tmp_path / n / lines(tmp_path / n)[0]["certificate"]).header["region"][
            "clip"
        ]
        for n in "abc"
    ]
    assert clips == [[0.0, 1.0], None, [0.0, 1.0]]


def test_upper_bounds_and_estimates_have_their_own_fields(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    options = ["--eps", 0.9, "--upper", "--estimate", 5, "--out", tmp_path / "out"]
    code, text, _ = run("certify", files["p"], "--inputs", files["x"], *options)
    assert code == 0
    assert "not certified" in text
    rows = lines(tmp_path / "out")
    assert min(row["upper"] for row in rows) < 0.01
    assert all(row["estimate"]["samples"] == 5 for row in rows)


def test_regression_and_targets(run: Run, files: dict[str, Path]) -> None:
    base = ["certify", files["p"], "--eps", 0.001, "--select", "0,3"]
    assert run(*base, "--inputs", files["targets"], "--tolerance", 5, "--output", 1)[0] == 0
    label = int(np.load(files["x"])["y"][0])
    assert run(*base[:-1], "0", "--inputs", files["x"], "--target", (label + 1) % 3)[0] == 0


def accepted(run: Run, folder: Path, posterior: Path) -> bool:
    return run("check", folder, "--posterior", posterior)[0] == 0


def test_several_radii(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """A row for each input and radius, the same as with each radius alone; certificates do not
    overwrite each other."""
    base = ["certify", files["p"], "--inputs", files["x"], "--select", "1:4", "--upper", "--eps"]
    code, text, _ = run(*base, "0.001,0.01,0.1", "--out", tmp_path / "out")
    assert code == 0
    assert all(f"eps {eps}: mean P_safe" in text for eps in ("0.001", "0.01", "0.1"))
    rows = lines(tmp_path / "out")
    assert [(row["index"], row["eps"]) for row in rows] == [
        (i, e) for i in (1, 2, 3) for e in (0.001, 0.01, 0.1)
    ]
    names = [row["certificate"] for row in rows if row["certificate"]]
    assert (
        len(set(names))
        == len(names)
        == len(list((tmp_path / "out" / "certificates").iterdir()))
        > 3
    )
    assert "certificates/000001_0.001.safetensors" in names
    assert accepted(run, tmp_path / "out", files["p"])
    assert run(*base, "0.01", "--out", tmp_path / "one")[0] == 0
    alone = lines(tmp_path / "one")
    assert [row["certificate"] for row in alone] == [
        f"certificates/{i:06d}.safetensors" for i in (1, 2, 3)
    ]
    changing = {"certificate": None, "seconds": None}
    assert [row | changing for row in rows if row["eps"] == 0.01] == [
        row | changing for row in alone
    ]


def test_every_input_may_bring_its_radius(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """From an array `eps`; --eps comes first."""
    base = [
        "certify",
        files["p"],
        "--inputs",
        files["own_eps"],
        "--select",
        "0,5",
        "--out",
        tmp_path / "out",
    ]
    code, text, _ = run(*base)
    assert (code, "eps of each input" in text) == (0, True)
    assert [row["eps"] for row in lines(tmp_path / "out")] == [0.0, 0.005]
    assert lines(tmp_path / "out")[1]["certificate"] == "certificates/000005.safetensors"
    assert accepted(run, tmp_path / "out", files["p"])
    assert run(*base, "--eps", "0.002")[0] == 0
    assert [row["eps"] for row in lines(tmp_path / "out")] == [0.002, 0.002]


def test_thresholds(run: Run, files: dict[str, Path]) -> None:
    """One word a query and exit code 1 unless all hold; sat needs a certified upper bound."""
    base = ["certify", files["p"], "--inputs", files["x"], "--select", "0:3"]
    code, text, _ = run(*base, "--eps", 0.001, "--at-least", 0.5)
    assert code == 0
    assert text.splitlines()[-3:] == ["input 0: unsat", "input 1: unsat", "input 2: unsat"]
    assert "unsat: it holds, no counterexample; sat: it does not" in text
    code, text, _ = run(*base, "--eps", 0.9, "--at-least", 0.5)
    assert (code, text.count(": unknown")) == (1, 3)
    code, text, _ = run(*base, "--eps", "0.001,0.9", "--at-least", 0.5, "--upper")
    assert code == 1
    assert text.splitlines()[-2:] == ["input 2, eps 0.001: unsat", "input 2, eps 0.9: sat"]
    assert run(*base, "--eps", 0.9, "--at-least", 0)[0] == 0
    assert run(*base, "--eps", 0.9)[0] == 0


def test_questions_from_files(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """The file states the counterexample: unsat if the class stands, sat if another one is
    claimed."""
    base = [
        "certify",
        files["p"],
        "--upper",
        "--at-least",
        0.9,
        "--out",
        tmp_path / "out",
        "--vnnlib",
    ]
    code, text, _ = run(*base, files["robust"])
    assert code == 0
    assert "states the counterexample: unsat says that there is none" in text
    assert text.splitlines()[-1] == "robust.vnnlib: unsat"
    (row,) = lines(tmp_path / "out")
    assert list(row) == FIELDS
    assert (row["index"], row["label"], row["status"]) == (0, row["predicted"], "certified")
    assert accepted(run, tmp_path / "out", files["p"])
    code, text, _ = run(*base, files["broken"])
    assert (code, text.splitlines()[-1]) == (1, "broken.vnnlib: sat")
    assert accepted(run, tmp_path / "out", files["p"])


@pytest.mark.parametrize("method", ["concentration", "sampling", "pie", "gie"])
def test_files_of_several_boxes(
    method: str, run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    """One row and certificate a box, and bounds for all together."""
    with np.load(files["x"]) as data:
        x, label = data["x"][0].flatten() / 255, int(data["y"][0])
    halves = f"(assert (or (<= X_0 {x[0]:.6f}) (>= X_0 {x[0]:.6f})))"
    property_file(tmp_path / "two.vnnlib", x, 0.001, label, halves)
    arguments = [
        "--method",
        method,
        *wide_steps(method),
        "--at-least",
        0.2,
        "--out",
        tmp_path / "out",
    ]
    code, text, _ = run("certify", files["p"], "--vnnlib", tmp_path / "two.vnnlib", *arguments)
    rows = lines(tmp_path / "out")
    together = 1 - sum(1 - row["lower"] for row in rows)
    assert code == (together < 0.2)
    assert "over 2 input boxes together" in text
    assert [row["index"] for row in rows] == [0, 1]
    assert accepted(run, tmp_path / "out", files["p"])


@pytest.mark.parametrize("family", ["normal", "empirical"])
def test_of_a_conjunction_only_a_lower_bound_is_shown(
    family: str, run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    """Unsafe only if class 0 falls behind both others: an upper bound of the chosen row would be
    wrong."""
    posterior, file = files["p"], tmp_path / "both.vnnlib"
    if family == "empirical":
        network, normal = load_posterior(posterior)
        posterior = tmp_path / "samples.safetensors"
        save_posterior(posterior, network, Empirical(sample(normal, 5, 0)))
    property_file(file, np.full(4, 0.5), 0.4, 0, "(assert (>= Y_1 Y_0))(assert (>= Y_2 Y_0))")
    upper = ["--upper"] if family == "normal" else []  # enumeration has one always
    code, text, _ = run(
        "certify", posterior, "--vnnlib", file, *upper, "--at-least", 1, "--out", tmp_path / "out"
    )
    assert (code, text.splitlines()[-1]) == (1, "both.vnnlib: unknown")
    assert "an upper bound would not" in text
    assert "P(no counterexample) at least 0.00 %, at most 100.00 %" in text
    assert accepted(run, tmp_path / "out", posterior)


def test_branch_and_bound_from_the_command_line(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    """Higher effort never widens an interval, and its certificates are accepted."""
    bounds = []
    for effort in (1, 2):
        out = tmp_path / f"effort{effort}"
        command = [
            "certify",
            files["p"],
            "--inputs",
            files["x"],
            "--eps",
            0.3,
            "--upper",
            "--out",
            out,
        ]
        assert (
            run(
                *command,
                "--effort",
                effort,
                *(["--nodes", 50, "--time-limit", 60] if effort > 1 else []),
            )[0]
            == 0
        )
        bounds.append(
            [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
        )
        assert run("check", out, "--posterior", files["p"])[0] == 0
    for one, two in zip(*bounds, strict=True):
        assert one["lower"] - 1e-9 <= two["lower"] <= two["upper"] <= one["upper"] + 1e-9
    assert sum(two["lower"] - one["lower"] for one, two in zip(*bounds, strict=True)) > 0


def test_a_radius_for_every_coordinate(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """The box x ± r, clipped, which the checker accepts with its manifest."""
    radii = tmp_path / "radii.csv"
    radii.write_text("name,eps,scale\na,0.01,\nb,1,100\nc,0,\nd,0.5,\n")
    out = tmp_path / "boxes"
    asked = ("certify", files["p"], "--inputs", files["x"], "--select", "0:3")
    code, said, _ = run(*asked, "--eps-file", radii, "--out", out)
    assert code == 0
    assert "a box with the radii of radii.csv" in " ".join(said.split())
    data = np.load(files["x"])
    for i in range(3):
        found = read_certificate(out / "certificates" / f"{i:06d}.safetensors")
        x = data["x"][i].reshape(-1) / 255
        low, high = found.tensors["lower"].numpy(), found.tensors["upper"].numpy()
        reach = np.array([0.01, 0.01, 0, 0.5])
        ends = np.clip(x - reach, 0, 1), np.clip(x + reach, 0, 1)
        assert (low <= ends[0]).all()
        assert (high >= ends[1]).all()
        assert low[2] == high[2] == x[2]
        assert np.allclose((low, high), ends, rtol=0, atol=1e-12)
    code, _, _ = run("check", out, "--posterior", files["p"])
    assert code == 0
    code, _, _ = run("report", out)
    assert code == 0
    radii.write_text("eps\n1\n")
    for options, message in (
        ((), "there are 1 radii, the network takes (4,)"),
        (("--eps", "0.1"), "leave out --eps and --norm"),
        (("--norm", "l2"), "leave out --eps and --norm"),
    ):
        code, _, error = run(*asked, "--eps-file", radii, *options)
        assert code == 2
        assert message in error
