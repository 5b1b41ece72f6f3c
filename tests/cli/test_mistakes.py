"""One clear line with exit code 2 for everything a user can get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from commands import Run

WRONG = {
    "no posterior": (
        ["certify", "nope.npz", "--inputs", "x", "--eps", 0],
        "'nope.npz' does not exist",
    ),
    "not an archive": (
        ["certify", "text", "--inputs", "x", "--eps", 0],
        "not an .npz of plain arrays",
    ),
    "no inputs": (["certify", "p", "--inputs", "nope", "--eps", 0], "neither a data set"),
    "unknown method": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "magic"],
        "'magic' is not known",
    ),
    "unknown bound": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--bound", "b"],
        "bound 'b' is not known",
    ),
    "unknown norm": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--norm", "l3"],
        "norm 'l3' is not known",
    ),
    "unknown device": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--device", "tpu"],
        "device 'tpu' is not known",
    ),
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
    "threshold above 1": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--at-least", 1.5],
        "(at least) '1.5' is not",
    ),
    "threshold nan": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--at-least", "nan"],
        "(at least) 'nan' is not",
    ),
    "threshold a word": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--at-least", "most"],
        "(at least) 'most'",
    ),
    "two questions": (
        ["certify", "p", "--inputs", "x", "--vnnlib", "robust"],
        "leave out --inputs, --eps",
    ),
    "vnnlib and eps": (
        ["certify", "p", "--eps", "0.1", "--vnnlib", "robust"],
        "leave out --inputs, --eps",
    ),
    "vnnlib and norm": (
        ["certify", "p", "--norm", "l2", "--vnnlib", "robust"],
        "leave out --inputs, --eps",
    ),
    "vnnlib and target": (
        ["certify", "p", "--target", 1, "--vnnlib", "robust"],
        "leave out --inputs, --eps",
    ),
    "vnnlib and no-clip": (
        ["certify", "p", "--no-clip", "--vnnlib", "robust"],
        "leave out --inputs, --eps",
    ),
    "no vnnlib file": (["certify", "p", "--vnnlib", "nope.vnnlib"], "cannot be read"),
    "vnnlib garbled": (["certify", "p", "--vnnlib", "garbled"], "line 1: 'Y_0' is neither"),
    "wrong shape": (["certify", "p", "--inputs", "wide", "--eps", 0], "inputs have shape (5,)"),
    "label out of range": (
        ["certify", "p", "--inputs", "bad_label", "--eps", 0],
        "label 7 is out of range",
    ),
    "no labels": (["certify", "p", "--inputs", "no_label", "--eps", 0], "no labels"),
    "targets as labels": (["certify", "p", "--inputs", "targets", "--eps", 0], "tolerance"),
    "an output of several": (
        ["certify", "p", "--inputs", "targets", "--eps", 0, "--tolerance", 1],
        "the network has 3 outputs; say by --output which of them, 0 to 2, the tolerance is about",
    ),
    "an output that is not there": (
        ["attack", "p", "--inputs", "targets", "--tolerance", 1, "--output", 3],
        "output 3 does not exist; the network has outputs 0 to 2",
    ),
    "an output of classes": (
        ["decide", "p", "--inputs", "x", "--eps", 0, "--output", 1],
        "output 1 is for a regression; give --tolerance, or leave --output out",
    ),
    "outside the clip range": (
        ["certify", "p", "--inputs", "outside", "--eps", 0, "--clip", 0, 1],
        "clip range",
    ),
    "two clips": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--no-clip", "--clip", 0, 1],
        "contradict",
    ),
    "select outside": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--select", "0:99"],
        "10 inputs",
    ),
    "select words": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--select", "all"],
        "select 'all'",
    ),
    "no budget": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--budget", 0],
        "budget is 0",
    ),
    "no domains": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 2, "--nodes", 0],
        "nodes are 0",
    ),
    "no time": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 2, "--time-limit", 0],
        "time limit is 0",
    ),
    "unknown effort": (["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 9], "effort is 9"),
    "effort of pie": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--effort", 3],
        "pie has no option 'effort'",
    ),
    "upper bound of pie": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--upper"],
        "pie has no option 'upper'",
    ),
    "bound of concentration": (
        [
            "certify",
            "p",
            "--inputs",
            "x",
            "--eps",
            0,
            "--method",
            "concentration",
            "--bound",
            "nonsense",
        ],
        "concentration has no option 'bound'; leave it out (it has effort, upper",
    ),
    "samples of concentration": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--samples", -4],
        "concentration has no option 'samples'",
    ),
    "growth of sampling": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "sampling", "--rho", 0.1],
        "has no option 'rho'",
    ),
    "gradients of pie": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--zero-gradient-only"],
        "pie has no option 'zero-gradient-only'",
    ),
    "negative samples": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--method", "pie", "--samples", -4],
        "samples is -4",
    ),
    "negative estimate": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--estimate", -4],
        "'--estimate'",
    ),
    "domains without branching": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--nodes", 9],
        "nodes is for branch and bound, and effort is 1",
    ),
    "time without branching": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 0, "--time-limit", 9],
        "time limit is for branch",
    ),
    "precision without branching": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--precision", 0.1],
        "precision is for branch and bound",
    ),
    "no precision": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--effort", 2, "--precision", 2],
        "precision is 2.0",
    ),
    "select twice": (
        ["certify", "p", "--inputs", "x", "--eps", 0, "--select", "3,3"],
        "names an input twice",
    ),
    "negative seed": (["certify", "p", "--inputs", "x", "--eps", 0, "--seed", -1], "'--seed'"),
    "unknown option": (["certify", "p", "--inputs", "x", "--eps", 0, "--speed", 9], "--speed"),
    "unknown command": (["certfy"], "certfy"),
    "attack on no posterior": (
        ["attack", "nope.npz", "--inputs", "x"],
        "'nope.npz' does not exist",
    ),
    "attack on no inputs": (["attack", "p", "--inputs", "nope"], "neither a data set"),
    "attack without inputs": (["attack", "p"], "--inputs"),
    "attack without labels": (["attack", "p", "--inputs", "no_label"], "no labels"),
    "attack on labels out of range": (
        ["attack", "p", "--inputs", "bad_label"],
        "label 7 is out of range",
    ),
    "attack on targets": (["attack", "p", "--inputs", "targets"], "labels are not whole numbers"),
    "attack on another shape": (["attack", "p", "--inputs", "wide"], "inputs have shape (5,)"),
    "attack of negative eps": (["attack", "p", "--inputs", "x", "--eps", -0.1], "at least 0"),
    "attack in no norm": (
        ["attack", "p", "--inputs", "x", "--norm", "l3"],
        "norm 'l3' is not known",
    ),
    "attack on no device": (
        ["attack", "p", "--inputs", "x", "--device", "tpu"],
        "device 'tpu' is not known",
    ),
    "attack with two clips": (
        ["attack", "p", "--inputs", "x", "--no-clip", "--clip", 0, 1],
        "contradict",
    ),
    "attack outside the clip range": (
        ["attack", "p", "--inputs", "outside", "--clip", 0, 1],
        "clip range",
    ),
    "attack on too many": (["attack", "p", "--inputs", "x", "--select", "0:99"], "10 inputs"),
    "attack on negative samples": (
        ["attack", "p", "--inputs", "x", "--samples", -1],
        "'--samples'",
    ),
    "unknown data": (["train", "--data", "nope"], "neither a data set"),
    "unknown network": (
        ["train", "--network", "rnn"],
        "network 'rnn' is not known; choose mlp, cnn or residual",
    ),
    "unknown random weights": (
        ["train", "--bayesian", "some"],
        "bayesian is 'some'; give all or dense or last or none",
    ),
    "unknown schedule": (
        ["train", "--schedule", "step"],
        "schedule is 'step'; give constant or cosine",
    ),
    "augmented vectors": (["train", "--augment"], "augment is for images"),
    "no epochs": (["train", "--epochs", 0], "epochs is 0; give a whole number of at least 1"),
    "no width": (["train", "--hidden", "8,0"], "both sizes must be whole numbers of at least 1"),
    "no output folder": (["train", "--out", "nowhere/p.safetensors"], "in a folder that exists"),
    "bad widths": (["train", "--data", "digits", "--hidden", "big"], "--hidden 'big'"),
    "bad output": (["train", "--data", "digits", "--out", "p.npz"], ".safetensors"),
    "targets as classes": (
        ["train", "--data", "targets"],
        "are no classes; give --task regression",
    ),
    "no noise": (["train", "--data", "targets", "--noise-std", 0], "noise_std is 0.0; give a"),
    "training beyond float32": (
        ["train", "--learning-rate", 1e300],
        "learning_rate is 1e+300; training is in float32, give 1e-15 to 1e+15",
    ),
    "training into a folder": (["train", "--out", "folder"], "must be a .safetensors file"),
    "identifiers as classes": (
        ["train", "--data", "identifiers"],
        "has a label 1000000000; number classes from 0 to at most 65535",
    ),
    "training for one class": (["train", "--data", "one_class"], "one class is always right"),
    "train without labels": (["train", "--data", "no_label"], "have no labels"),
    "score nothing": (["score", "nope.npz", "--data", "x"], "'nope.npz' does not exist"),
    "score on nothing": (["score", "p"], "does not say what it was trained on; give --data"),
    "score on no data": (["score", "p", "--data", "nope"], "neither a data set"),
    "score without labels": (["score", "p", "--data", "no_label"], "without labels"),
    "score another shape": (["score", "p", "--data", "wide"], "inputs have shape (5,)"),
    "score other labels": (["score", "p", "--data", "bad_label"], "from 0 to 2, one class for"),
    "score targets": (["score", "p", "--data", "targets"], "are no classes; give --noise-std"),
    "score classes as targets": (
        ["score", "p", "--data", "targets", "--noise-std", 1],
        "targets have shape (10,), and the network has 3 outputs; give a target for each",
    ),
    "score under no prior": (
        ["score", "p", "--data", "x", "--prior", "flat"],
        "prior is 'flat'; give fixed or fan-in",
    ),
    "score under a point": (
        ["score", "p", "--data", "x", "--prior-std", 0],
        "prior_std is 0.0; give a positive number",
    ),
    "score under a prior beyond float32": (
        ["score", "p", "--data", "x", "--prior-std", 1e300],
        "prior_std is 1e+300; training is in float32",
    ),
    "score under nearly a point": (
        ["score", "p", "--data", "x", "--prior-std", 1e-300],
        "prior_std is 1e-300; training is in float32",
    ),
    "score too many": (["score", "p", "--data", "x", "--select", "0:99"], "10 inputs"),
    "score elsewhere": (["score", "p", "--data", "x", "--device", "tpu"], "'tpu' is not known"),
}


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
