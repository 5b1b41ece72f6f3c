"""`bnncert train`: every option, and trainings that are interrupted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import load_posterior, mlp, save_posterior
from bnncert.data import load_inputs
from bnncert.files.tensors import read_tensors
from bnncert.layers import Conv2d, Dense, ReLU
from bnncert.model.network import Network, cnn, residual
from bnncert.posteriors import LowRankNormal, Normal
from bnncert.train import accuracy
from commands import Run
from trainings import interrupted_once


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
    unset = {"prior": "fixed", "normalise": False, "noise_std": None, "robust": None}
    assert notes["recipe"] == options | unset | {"data": "digits", "augment": True}
    (epoch,) = notes["log"]
    assert epoch["elbo"] == pytest.approx(-(1500 * epoch["nll"] + epoch["kl"]))
    assert notes["accuracy"] == pytest.approx(
        accuracy(network, posterior.mean, data.x.unsqueeze(1), data.y)
    )
    assert f"accuracy at the mean {100 * notes['accuracy']:.2f} % on the test set" in text
    assert f"median std {notes['std']:.2g}, ELBO {epoch['elbo']:.4g}" in text
    assert notes["std"] == float(posterior.std[posterior.std > 0].median())


def test_train_for_a_certificate_with_every_option(run: Run, tmp_path: Path) -> None:
    """None of the values is the default of its option; then go on from there."""
    path, then = tmp_path / "p.safetensors", tmp_path / "q.safetensors"
    options = {"kappa": 0.4, "t": 3.2, "tau": 2.5, "attack": 2}
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    image = ("--network", "residual", "--convolutions", "4/2, 4,6/2", "--hidden", "12")
    code, text, error = run(
        "train", *image, "--epochs", 2, "--robust", 0.05, *given, "--normalise",
        "--prior", "fan-in", "--out", path,
    )  # fmt: skip
    assert (code, error) == (0, "")
    network, posterior = load_posterior(path)
    assert network == residual((1, 8, 8), 10, [(4, 2), (4, 1), (6, 2)], [12])
    notes = notes_of(path)
    assert notes["recipe"]["robust"] == options | {"eps": 0.05, "clip": [0.0, 1.0]}
    assert notes["recipe"]["normalise"] is True
    assert notes["recipe"]["prior"] == "fan-in"
    assert all(0 <= epoch["certified"] <= 1 for epoch in notes["log"])
    command = ("train", "--from", path, "--normalise", "--robust", 0.05, "--epochs", 1)
    assert run(*command, "--learning-rate", 1e-9, "--out", then)[0] == 0
    again, near = load_posterior(then)
    assert again == network
    assert isinstance(posterior, Normal)
    assert isinstance(near, Normal)
    assert near.mean.tolist() == pytest.approx(posterior.mean.tolist(), rel=1e-3, abs=1e-4)
    assert near.std.tolist() == pytest.approx(posterior.std.tolist(), rel=1e-3)
    assert "accuracy at the mean" in text


def test_train_a_regression(run: Run, tmp_path: Path) -> None:
    """Numbers as targets, inputs that are no pixels and not clipped."""
    x = np.linspace(-2, 2, 120).reshape(-1, 1)
    np.savez(tmp_path / "line.npz", x=x, y=0.5 * x[:, 0])
    path = tmp_path / "p.safetensors"
    code, text, error = run(
        "train", "--data", tmp_path / "line.npz", "--hidden", "8", "--epochs", 60,
        "--batch-size", 20, "--learning-rate", 0.02, "--noise-std", 0.3, "--robust", 0.01,
        "--out", path,
    )  # fmt: skip
    assert (code, error) == (0, "")
    assert "RMSE at the mean" in text
    notes = notes_of(path)
    network = load_posterior(path)[0]
    assert replace(network, standardisation=None) == mlp(1, 8, 1)
    assert notes["recipe"]["robust"]["clip"] is None
    assert notes["scores"]["rmse"] < 0.3
    assert notes["log"][-1]["certified"] > 0.5


def other_posteriors(folder: Path) -> dict[str, Path]:
    small, bare = mlp(4, 6, 3), Network((64,), (Dense(64, 8, bias=False), ReLU(), Dense(8, 10)))
    several = mlp(64, 8, 10)
    ones = {n.size: torch.ones(n.size, dtype=torch.float64) for n in (small, bare, several)}
    save_posterior(folder / "small.safetensors", small, Normal(*[ones[small.size]] * 2))
    save_posterior(folder / "bare.safetensors", bare, Normal(*[ones[bare.size]] * 2))
    whole = ones[several.size]
    save_posterior(folder / "good.safetensors", several, Normal(whole, whole))
    save_posterior(
        folder / "correlated.safetensors", several, LowRankNormal(whole, whole, whole.unsqueeze(1))
    )
    convolution = cnn((1, 8, 8), 10, [(2, 2)], [4])
    weights = torch.ones(convolution.size, dtype=torch.float64)
    std = weights.clone()
    for part in convolution.split(std)[0]:
        part.zero_()
    save_posterior(folder / "certain.safetensors", convolution, Normal(weights, std))
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--robust 0", "robust is 0.0; give a positive radius"),
        ("--robust nan", "robust is nan"),
        ("--robust .1 --kappa 2", "kappa is 2.0"),
        ("--robust .1 --t 0", "t is 0.0"),
        ("--robust .1 --tau -1", "tau is -1.0"),
        ("--robust .1 --attack -1", "attack is -1"),
        ("--kappa .5", "--kappa: for --robust alone"),
        ("--attack 3 --tau 2", "--tau, --attack: for --robust alone"),
        ("--t 3", "--t: for --robust alone"),
        ("--prior wide", "prior is 'wide'; give fixed or fan-in"),
        ("--noise-std 0", "noise_std is 0.0"),
        ("--targets price", "--targets name columns of a .csv; leave it out"),
        ("--task sorting", "task 'sorting' is not known; choose classification or regression"),
        ("--task classification --noise-std 1", "--noise-std is for a regression; leave it out"),
        ("--normalise --batch-size 1", "give a batch_size above 1"),
        ("--network lstm", "network 'lstm' is not known; choose mlp, cnn or residual"),
        ("--convolutions 8", "--convolutions are for --network cnn or residual"),
        ("--network cnn --convolutions 8/3", "--convolutions '8/3' must be channels"),
        ("--network cnn --convolutions 8,,8", "--convolutions '8,,8' must be channels"),
        ("--network cnn --convolutions 0", "--convolutions '0' must be channels"),
        ("--network cnn --convolutions -8", "must be channels"),
        ("--network residual --convolutions 8/2,8/2,8/2,8/2", "does not fit"),
        ("--from good --network mlp", "--from brings its architecture"),
        ("--from good --hidden 8", "--from brings its architecture"),
        ("--from good --convolutions 8", "--from brings its architecture"),
        ("--from none", "none"),
        ("--from certain", "has convolutions without noise; give --bayesian dense"),
        ("--from small", "have shape (8, 8), the network takes (4,)"),
        ("--from correlated", "training starts from independent normal weights"),
        ("--from bare --normalise", "normalise folds into biases, and layer 0 has none"),
        (
            "--from good --noise-std .1",
            "targets have shape (1500,), and the network has 10 outputs; give a target for each",
        ),
    ],
)
def test_mistakes_are_one_line(run: Run, tmp_path: Path, words: str, message: str) -> None:
    known = other_posteriors(tmp_path)
    given = [known.get(word, word) for word in words.split()]
    out = tmp_path / "out.safetensors"
    code, text, error = run("train", "--epochs", 1, *given, "--out", out)
    assert (code, text) == (2, "")
    assert error.count("\n") == 1
    assert message in error
    assert not out.exists()


def test_the_widths_of_an_mlp(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    assert run("train", "--data", "digits", "--hidden", "7,5", "--epochs", 1, "--out", path)[0] == 0
    assert load_posterior(path)[0] == mlp(64, 7, 5, 10)


def test_an_interrupted_training_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same bytes as without the interruption, and without doing whole epochs again."""
    begun = interrupted_once(monkeypatch)
    command = ["train", "--data", "digits", "--hidden", "8", "--epochs", 3, "--out"]
    path = tmp_path / "p.safetensors"
    code, text, error = run(*command, path)
    assert (code, text) == (130, "")
    assert "Traceback" not in error
    assert "the same command goes on" in error
    assert not path.exists()
    code, _, error = run(*command, path, "--seed", 1)
    assert (code, error.count("\n")) == (2, 1)
    assert "is of another recipe; remove it to start anew" in error
    assert run(*command, path)[0] == 0
    assert begun == [1, 2, 2, 3]
    assert [found.name for found in tmp_path.iterdir()] == ["p.safetensors"]
    assert run(*command, tmp_path / "whole.safetensors")[0] == 0
    assert (tmp_path / "whole.safetensors").read_bytes() == path.read_bytes()
