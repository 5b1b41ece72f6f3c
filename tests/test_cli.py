"""The command line: what it writes, and one clear line with exit code 2 for everything a user can
get wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import _certify as front_door
from bnncert import load_posterior, mlp, read_certificate, save_posterior
from bnncert.concentration import refine as refine_module
from bnncert.data import load_inputs
from bnncert.files.tensors import read_tensors
from bnncert.layers import Conv2d
from bnncert.model.network import Network, cnn
from bnncert.posteriors import Empirical, Normal
from bnncert.posteriors.base import sample
from bnncert.train import accuracy
from bnncert.train import loop as training
from bnncert.zoo.recipes import posterior_path, shipped_index
from commands import Run
from scenarios import gaussian, vector

FIELDS = ["index", "label", "target", "predicted", "status", "lower", "upper", "method", "eps"]
FIELDS += ["bound_calls", "seconds", "seed", "certificate"]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A small posterior, images with labels (its own predictions, so that they are right),
    regression inputs."""
    generator = torch.Generator().manual_seed(0)
    network = mlp(4, 6, 3)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.01).double()
    )
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    x = np.random.default_rng(0).integers(0, 256, (10, 2, 2), np.uint8)
    y = (
        network.forward(posterior.mean, torch.from_numpy(x.reshape(10, 4) / 255.0))
        .argmax(-1)
        .numpy()
    )
    np.savez(tmp_path / "x.npz", x=x, y=y)
    np.savez(tmp_path / "bad_label.npz", x=x, y=np.full(10, 7))
    np.savez(tmp_path / "no_label.npz", x=x)
    np.savez(tmp_path / "targets.npz", x=x / 255.0, y=y / 3.0)
    np.savez(tmp_path / "outside.npz", x=x / 100.0, y=y)
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 5)), y=np.zeros(2, int))
    np.savez(tmp_path / "own_eps.npz", x=x, y=y, eps=np.linspace(0, 0.009, 10))
    np.savez(tmp_path / "bad_eps.npz", x=x, y=y, eps=np.full(10, -0.5))
    np.savez(tmp_path / "short_eps.npz", x=x, y=y, eps=np.full(9, 0.1))
    (tmp_path / "text.npz").write_text("not an archive")
    property_file(tmp_path / "robust.vnnlib", x[0].flatten() / 255, 0.01, int(y[0]))
    property_file(tmp_path / "broken.vnnlib", x[0].flatten() / 255, 0.01, (int(y[0]) + 1) % 3)
    (tmp_path / "garbled.vnnlib").write_text("(assert (<= Y_0 0))")
    return {path.stem: path for path in tmp_path.iterdir()}


def property_file(path: Path, x: np.ndarray, eps: float, label: int, rest: str = "") -> None:
    """Class `label` on a box around x, the way competitions write it: a counterexample is any other
    class."""
    names = [f"X_{i}" for i in range(len(x))] + [f"Y_{j}" for j in range(3)]
    text = "".join(f"(declare-const {name} Real)\n" for name in names)
    text += "".join(
        f"(assert (>= X_{i} {v - eps:.8f}))\n(assert (<= X_{i} {v + eps:.8f}))\n"
        for i, v in enumerate(x)
    )
    rivals = " ".join(f"(and (>= Y_{j} Y_{label}))" for j in range(3) if j != label)
    path.write_text(text + f"(assert (or {rivals}))\n" + rest)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def wide_steps(method: str) -> list[object]:
    return [] if method == "concentration" else ["--step", 1.0]


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
    assert any(row["status"] == "certified" for row in rows)
    for row in rows:
        assert 0 <= row["lower"] <= row["upper"] <= 1
        if row["lower"] > 0:
            header = read_certificate(out / row["certificate"]).header
            assert float.fromhex(header["claim"]["lower"]) == row["lower"]
    assert sorted(path.name for path in out.iterdir()) == ["certificates", "results.jsonl"]
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
    assert run(*base, "--inputs", files["targets"], "--tolerance", 5)[0] == 0
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


WRONG = {
    "no posterior": (["certify", "nope.npz", "--inputs", "x", "--eps", 0], ("'nope.npz' does not " "exist")),
    "not an archive": (["certify", "text", "--inputs", "x", "--eps", 0], ("not an .npz of plain " "arrays")),
    "no inputs": (["certify", "p", "--inputs", "nope", "--eps", 0], "neither a data set"),
    "unknown method": (["certify", "p", "--inputs", "x", "--eps", 0, "--method", "magic"], ("'magic' is not " "known")),
    "unknown bound": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--bound", "b"], ("bound 'b' is not " "known"),
    ),
    "unknown norm": (["certify", "p", "--inputs", "x", "--eps", 0, "--norm", "l3"], ("norm 'l3' is not " "known")),
    "unknown device": (["certify", "p", "--inputs", "x", "--eps", 0, "--device", "tpu"], ("device 'tpu' is not " "known")),
    "negative eps": (["certify", "p", "--inputs", "x", "--eps", -0.1], "at least 0"),
    "eps not a number": (["certify", "p", "--inputs", "x", "--eps", "tiny"], "'--eps'"),
    "eps nan": (["certify", "p", "--inputs", "x", "--eps", "nan"], "eps is nan"),
    "eps half a list": (["certify", "p", "--inputs", "x", "--eps", "0.1,"], "'--eps'"),
    "eps twice": (["certify", "p", "--inputs", "x", "--eps", "0.1,0.10"], "names a radius twice"),
    "eps in part negative": (["certify", "p", "--inputs", "x", "--eps", "0.1,-1"], "eps is -1.0"),
    "no eps": (["certify", "p", "--inputs", "x"], "--eps"),
    "own eps negative": (["certify", "p", "--inputs", "bad_eps"], "eps is -0.5"),
    "own eps too few": (["certify", "p", "--inputs", "short_eps"], "eps is float64 of shape (9,)"),
    "no question": (["certify", "p"], "give --inputs and --eps, or --vnnlib"),
    "threshold above 1": (["certify", "p", "--inputs", "x", "--eps", 0, "--at-least", 1.5], ("--at-least '1.5' is " "not")),
    "threshold nan": (["certify", "p", "--inputs", "x", "--eps", 0, "--at-least", "nan"], ("--at-least 'nan' is " "not")),
    "threshold a word": (["certify", "p", "--inputs", "x", "--eps", 0, "--at-least", "most"], "--at-least 'most'"),
    "two questions": (["certify", "p", "--inputs", "x", "--vnnlib", "robust"], ("leave out --inputs, " "--eps")),
    "vnnlib and eps": (["certify", "p", "--eps", "0.1", "--vnnlib", "robust"], ("leave out --inputs, " "--eps")),
    "vnnlib and norm": (["certify", "p", "--norm", "l2", "--vnnlib", "robust"], ("leave out --inputs, " "--eps")),
    "vnnlib and target": (["certify", "p", "--target", 1, "--vnnlib", "robust"], ("leave out --inputs, " "--eps")),
    "vnnlib and no-clip": (["certify", "p", "--no-clip", "--vnnlib", "robust"], ("leave out --inputs, " "--eps")),
    "no vnnlib file": (["certify", "p", "--vnnlib", "nope.vnnlib"], "cannot be read"),
    "vnnlib garbled": (["certify", "p", "--vnnlib", "garbled"], "line 1: 'Y_0' is neither"),
    "wrong shape": (["certify", "p", "--inputs", "wide", "--eps", 0], "inputs have shape (5,)"),
    "label out of range": (["certify", "p", "--inputs", "bad_label", "--eps", 0], ("label 7 is out of " "range")),
    "no labels": (["certify", "p", "--inputs", "no_label", "--eps", 0], "no labels"),
    "targets as labels": (["certify", "p", "--inputs", "targets", "--eps", 0], "tolerance"),
    "outside the clip range": (["certify", "p", "--inputs", "outside", "--eps", 0, "--clip", 0, 1], "clip range"),
    "two clips": (["certify", "p", "--inputs", "x", "--eps", 0, "--no-clip", "--clip", 0, 1], "contradict"),
    "select outside": (["certify", "p", "--inputs", "x", "--eps", 0, "--select", "0:99"], "10 inputs"),
    "select words": (["certify", "p", "--inputs", "x", "--eps", 0, "--select", "all"], "select 'all'"),
    "no budget": (["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--budget", 0], "budget is 0"),
    "no domains": (["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 2, "--nodes", 0], "nodes are 0"),
    "no time": (["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 2, "--time-limit", 0], "time limit is 0"),
    "unknown effort": (["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 9], "effort is 9"),
    "effort of pie": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--effort", 3], ("pie has no option " "'effort'"),
    ),
    "upper bound of pie": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--upper"], ("pie has no option " "'upper'"),
    ),
    "bound of concentration": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "concentration", "--bound", "nonsense"],
        "concentration has no option 'bound'; leave it out (it has effort, upper",
    ),
    "samples of concentration": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--samples", -4], ("concentration has no option " "'samples'"),
    ),
    "growth of sampling": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "sampling", "--rho", 0.1], ("has no option " "'rho'"),
    ),
    "gradients of pie": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--zero-gradient-only"],
        "pie has no option 'zero-gradient-only'",
    ),
    "negative samples": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--samples", -4], "samples is -4",
    ),
    "negative estimate": (["certify", "p", "--inputs", "x", "--eps", 0, "--estimate", -4], "'--estimate'"),
    "domains without branching": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--nodes", 9], "nodes is for branch and bound, and effort is 1",
    ),
    "time without branching": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 0, "--time-limit", 9], ("time limit is for " "branch"),
    ),
    "precision without branching": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--precision", 0.1], ("precision is for branch and " "bound"),
    ),
    "no precision": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 2, "--precision", 2], ("precision is " "2.0"),
    ),
    "select twice": (["certify", "p", "--inputs", "x", "--eps", 0, "--select", "3,3"], ("names an input " "twice")),
    "negative seed": (["certify", "p", "--inputs", "x", "--eps", 0, "--seed", -1], "'--seed'"),
    "unknown option": (["certify", "p", "--inputs", "x", "--eps", 0, "--speed", 9], "--speed"),
    "unknown command": (["certfy"], "certfy"),
    "attack on no posterior": (["attack", "nope.npz", "--inputs", "x"], ("'nope.npz' does not " "exist")),
    "attack on no inputs": (["attack", "p", "--inputs", "nope"], "neither a data set"),
    "attack without inputs": (["attack", "p"], "--inputs"),
    "attack without labels": (["attack", "p", "--inputs", "no_label"], "no labels"),
    "attack on labels out of range": (["attack", "p", "--inputs", "bad_label"], ("label 7 is out of " "range")),
    "attack on targets": (["attack", "p", "--inputs", "targets"], "labels are not whole numbers"),
    "attack on another shape": (["attack", "p", "--inputs", "wide"], "inputs have shape (5,)"),
    "attack of negative eps": (["attack", "p", "--inputs", "x", "--eps", -0.1], "at least 0"),
    "attack in no norm": (["attack", "p", "--inputs", "x", "--norm", "l3"], ("norm 'l3' is not " "known")),
    "attack on no device": (["attack", "p", "--inputs", "x", "--device", "tpu"], ("device 'tpu' is not " "known")),
    "attack with two clips": (["attack", "p", "--inputs", "x", "--no-clip", "--clip", 0, 1], "contradict"),
    "attack outside the clip range": (["attack", "p", "--inputs", "outside", "--clip", 0, 1], "clip range"),
    "attack on too many": (["attack", "p", "--inputs", "x", "--select", "0:99"], "10 inputs"),
    "attack on negative samples": (["attack", "p", "--inputs", "x", "--samples", -1], "'--samples'"),
    "unknown data": (["train", "--data", "nope"], "neither a data set"),
    "unknown network": (["train", "--network", "rnn"], ("network 'rnn' is not known; choose mlp " "or cnn")),
    "unknown random weights": (["train", "--bayesian", "some"], ("bayesian is 'some'; give all or " "dense")),
    "unknown schedule": (["train", "--schedule", "step"], ("schedule is 'step'; give constant or " "cosine")),
    "augmented vectors": (["train", "--augment"], "augment is for images"),
    "no epochs": (["train", "--epochs", 0], "epochs is 0; give a whole number of at least 1"),
    "no width": (["train", "--hidden", "8,0"], "both sizes must be whole numbers of at least 1"),
    "no output folder": (["train", "--out", "nowhere/p.safetensors"], "in a folder that exists"),
    "bad widths": (["train", "--data", "digits", "--hidden", "big"], "--hidden 'big'"),
    "bad output": (["train", "--data", "digits", "--out", "p.npz"], ".safetensors"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_get_one_clear_line(
    name: str, run: Run, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, message = WRONG[name]
    given = [files.get(str(word), word) for word in arguments]
    if arguments[0] == "certify":
        given += ["--out", tmp_path / "out"]
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, _, error = run(*given)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert error.startswith("bnncert: ")
    assert "Traceback" not in error
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_no_cuda(run: Run, files: dict[str, Path]) -> None:
    code, _, error = run(
        "certify", files["p"], "--inputs", files["x"], "--eps", 0, "--device", "cuda"
    )
    assert (code, "'cuda' is not available" in error) == (2, True)


def test_a_folder_with_other_things_is_not_touched(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    arguments = ["certify", files["p"], "--inputs", files["x"], "--eps", 0, "--out"]
    assert run(*arguments, tmp_path / "mine")[0] == 2
    assert run(*arguments, tmp_path / "mine" / "thesis.tex")[0] == 2
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years"


def test_train_then_certify(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "digits.safetensors"
    code, text, _ = run("train", "--data", "digits", "--hidden", "8", "--epochs", 2, "--out", path)
    assert code == 0
    assert "accuracy at the mean" in text
    assert run("certify", path, "--inputs", "digits", "--select", "0:4", "--eps", 0.001)[0] == 0


def notes_of(path: Path) -> dict[str, Any]:
    return dict(read_tensors(path, "bnncert-posterior/1")[0]["notes"])


def test_train_a_cnn_with_every_option(run: Run, tmp_path: Path) -> None:
    """None of the values is the default of its option."""
    options = {
        "epochs": 1,
        "batch_size": 64,
        "learning_rate": 2e-3,
        "schedule": "cosine",
        "kl_weight": 0.5,
    }
    options |= {
        "prior_std": 2.0,
        "initial_std": 0.02,
        "weight_decay": 1e-3,
        "seed": 3,
        "bayesian": "dense",
    }
    given = [
        word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)
    ]
    path = tmp_path / "cnn.safetensors"
    code, text, error = run(
        "train", "--network", "cnn", "--data", "digits", "--augment", *given, "--out", path
    )
    assert (code, error) == (0, "")
    network, posterior = load_posterior(path)
    assert network == cnn((1, 8, 8), 10)
    assert isinstance(posterior, Normal)
    for layer, parts in zip(network.layers, network.split(posterior.std), strict=True):
        for part in parts:
            expected = 0.0 if isinstance(layer, Conv2d) else 0.02
            assert part.flatten().tolist() == pytest.approx([expected] * part.numel(), rel=0.5)
    notes, data = notes_of(path), load_inputs("digits")
    assert data.y is not None
    assert notes["recipe"] == options | {"data": "digits", "augment": True}
    (epoch,) = notes["log"]
    assert epoch["elbo"] == pytest.approx(-(1500 * epoch["nll"] + epoch["kl"]))
    assert notes["accuracy"] == pytest.approx(
        accuracy(network, posterior.mean, data.x.unsqueeze(1), data.y)
    )
    assert f"accuracy at the mean {100 * notes['accuracy']:.2f} % on the test set" in text
    assert f"median std {notes['std']:.2g}, ELBO {epoch['elbo']:.4g}" in text
    assert notes["std"] == float(posterior.std[posterior.std > 0].median())


def test_the_widths_of_an_mlp(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    assert run("train", "--data", "digits", "--hidden", "7,5", "--epochs", 1, "--out", path)[0] == 0
    assert load_posterior(path)[0] == mlp(64, 7, 5, 10)


def test_an_interrupted_training_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same bytes as without the interruption, and without doing whole epochs again."""
    epoch, begun = training._epoch, list[int]()

    def interrupted(state: Any, *arguments: Any) -> training.Epoch:
        begun.append(len(state.history) + 1)
        if begun == [1, 2]:
            raise KeyboardInterrupt
        return epoch(state, *arguments)

    monkeypatch.setattr(training, "_epoch", interrupted)
    command = ["train", "--data", "digits", "--hidden", "8", "--epochs", 3, "--out"]
    path = tmp_path / "p.safetensors"
    code, text, error = run(*command, path)
    assert (code, text) == (130, "")
    assert "Traceback" not in error
    assert not path.exists()
    code, _, error = run(*command, path, "--seed", 1)
    assert (code, error.count("\n")) == (2, 1)
    assert "is of another recipe; remove it to start anew" in error
    assert run(*command, path)[0] == 0
    assert begun == [1, 2, 2, 3]
    assert [found.name for found in tmp_path.iterdir()] == ["p.safetensors"]
    assert run(*command, tmp_path / "whole.safetensors")[0] == 0
    assert (tmp_path / "whole.safetensors").read_bytes() == path.read_bytes()


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


def shares(text: str) -> dict[str, tuple[float, float]]:
    """Clean and attacked accuracy by network, from the table of `attack`."""
    found = re.findall(r"^(\S.*?) +(\d+\.\d\d) % +(\d+\.\d\d) %$", text, re.MULTILINE)
    assert len(found) == text.count("%") / 2
    return {name: (float(clean), float(attacked)) for name, clean, attacked in found}


def test_attack_the_shipped_digits_network(run: Run) -> None:
    command = ["attack", posterior_path("digits"), "--inputs", "digits"]
    code, text, error = run(*command)
    assert (code, error) == (0, "")
    assert text.splitlines()[0].endswith("297 inputs, eps 0.05 (linf)")
    assert [*shares(text)] == ["mean"]
    clean, attacked = shares(text)["mean"]
    assert clean == round(100 * shipped_index()["digits"]["accuracy"], 2)
    assert 0 < attacked < clean - 5
    assert shares(run(*command, "--eps", 0)[1]) == {"mean": (clean, clean)}


def robust_share(
    network: Network, weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **region: Any
) -> float:
    """The percentage of a linear network's inputs that are right on their whole region, which has a
    closed form."""
    norm, eps, clip = region["norm"], region["eps"], region["clip"]
    (matrix, bias) = network.split(weights)[0]
    rows = matrix.T[y].unsqueeze(1) - matrix.T  # [B, classes, inputs]
    margins = torch.einsum("brn,bn->br", rows, x) + bias[y].unsqueeze(1) - bias
    if norm == "linf":
        low, high = ((x - eps).clamp_min(0), (x + eps).clamp_max(1)) if clip else (x - eps, x + eps)
        worst = torch.where(rows > 0, (low - x).unsqueeze(1), (high - x).unsqueeze(1))
        margins = margins + (rows * worst).sum(-1)
    else:
        margins = margins - eps * (rows.norm(dim=-1) if norm == "l2" else rows.abs().amax(-1))
    margins[torch.arange(len(y)), y] = torch.inf
    return 100 * float((margins.amin(-1) > 0).double().mean())


@pytest.fixture
def linear(tmp_path: Path) -> tuple[Path, Path, Network, Normal]:
    """A wide posterior of linear networks, on which the attack finds the worst input, and 200
    images."""
    generator = torch.Generator().manual_seed(3)
    network = mlp(4, 3)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.3).double()
    )
    save_posterior(tmp_path / "linear.safetensors", network, posterior)
    x = np.random.default_rng(1).integers(0, 256, (200, 2, 2), np.uint8)
    y = (
        network.forward(posterior.mean, torch.from_numpy(x.reshape(200, 4) / 255.0))
        .argmax(-1)
        .numpy()
    )
    y[:9] = (y[:9] + 1) % 3  # misclassified
    np.savez(tmp_path / "images.npz", x=x, y=y)
    return tmp_path / "linear.safetensors", tmp_path / "images.npz", network, posterior


@pytest.mark.parametrize(
    ("norm", "clip"), [("linf", True), ("linf", False), ("l2", False), ("l1", False)]
)
def test_attacks_on_linear_networks_are_exact(
    norm: str, clip: bool, run: Run, linear: tuple[Path, Path, Network, Normal]
) -> None:
    path, images, network, posterior = linear
    arrays = np.load(images)
    x, y = torch.from_numpy(arrays["x"].reshape(200, 4) / 255.0), torch.from_numpy(arrays["y"])
    command = ["attack", path, "--inputs", images, "--norm", norm, "--samples", 4, "--seed", 5]
    code, text, error = run(*command, "--eps", 0.15, *([] if clip else ["--no-clip"]))
    assert (code, error) == (0, "")
    assert [*shares(text)] == ["mean", "4 samples"]
    for name, networks in (
        ("mean", posterior.mean.unsqueeze(0)),
        ("4 samples", sample(posterior, 4, 5)),
    ):
        region = {"norm": norm, "clip": clip}
        clean, attacked = (
            sum(robust_share(network, weights, x, y, eps=eps, **region) for weights in networks)
            / len(networks)
            for eps in (0.0, 0.15)
        )
        assert attacked < clean < 100
        assert shares(text)[name] == pytest.approx((clean, attacked), abs=0.0051)


def test_clipping_shields_from_attacks(
    run: Run, linear: tuple[Path, Path, Network, Normal]
) -> None:
    """The clipped region is the smaller one; on linear networks the attack finds the worst input of
    both."""
    command = ["attack", linear[0], "--inputs", linear[1], "--eps", 0.15]
    clipped, free = (shares(run(*command, *option)[1])["mean"][1] for option in ([], ["--no-clip"]))
    assert free < clipped
    assert shares(run(*command, "--clip", 0, 1)[1])["mean"][1] == clipped
    assert shares(run(*command, "--clip", -9, 9)[1])["mean"][1] == free


def test_attacks_on_some_inputs(run: Run, linear: tuple[Path, Path, Network, Normal]) -> None:
    """The first nine are misclassified."""
    command = ["attack", linear[0], "--inputs", linear[1], "--eps", 0]
    assert shares(run(*command, "--select", "0:9")[1]) == {"mean": (0.0, 0.0)}
    assert shares(run(*command, "--select", "8,9,10")[1]) == {"mean": (66.67, 66.67)}
    assert shares(run(*command, "--select", "9")[1]) == {"mean": (100.0, 100.0)}


def test_doctor_and_version(run: Run) -> None:
    code, text, _ = run("doctor")
    assert code == 0
    assert "float64        ok" in text
    assert run("--version")[1].startswith("bnncert 0.")


def test_help_does_not_load_torch() -> None:
    program = "import sys; from bnncert.cli.main import app; app(['certify', '--help'], standalone_mode=False); "
    found = subprocess.run(
        [sys.executable, "-c", program + "print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.rstrip().endswith("False")


def test_decide_writes_decisions_that_the_checker_accepts(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    asked = (files["p"], "--inputs", files["x"], "--eps", "0.001,0.01", "--select", "0:3")
    code, out, _ = run("decide", *asked, "--out", tmp_path / "d")
    assert code == 0
    assert "not of P_safe" in out
    lines = [
        json.loads(line) for line in (tmp_path / "d" / "decisions.jsonl").read_text().splitlines()
    ]
    assert [(line["index"], line["eps"]) for line in lines] == [
        (i, e) for i in range(3) for e in (0.001, 0.01)
    ]
    assert {line["quantity"] for line in lines} == {"softmax"}
    assert all((tmp_path / "d" / line["certificate"]).is_file() for line in lines)
    code, out, _ = run("check", tmp_path / "d", "--posterior", files["p"])
    assert code == 0
    assert "6 ACCEPT" in out
    for command in (("report", tmp_path / "d"), ("certify", *asked, "--out", tmp_path / "d")):
        code, _, error = run(*command)
        assert code == 2
        assert "holds no results.jsonl" in error


def test_decide_on_a_regression(run: Run, tmp_path: Path) -> None:
    network = mlp(2, 1)
    save_posterior(
        tmp_path / "r.safetensors", network, Normal(vector(1.0, 1.0, 0.0), vector(0.1, 0.1, 0.1))
    )
    np.savez(tmp_path / "r.npz", x=np.array([[1.0, 2.0], [0.0, 0.0]]), y=np.array([3.0, 1.0]))
    asked = (tmp_path / "r.safetensors", "--inputs", tmp_path / "r.npz", "--eps", 0.1)
    code, out, _ = run("decide", *asked, "--tolerance", 0.5)
    assert code == 0
    assert "mean of the output" in out
    assert "1 of 2 inputs decided" in out
    code, _, error = run("decide", *asked)
    assert code == 2
    assert "with a tolerance" in error
