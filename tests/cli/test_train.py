"""`bnncert train`: every option, and trainings that are interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bnncert import load_posterior, mlp
from bnncert.data import load_inputs
from bnncert.files.tensors import read_tensors
from bnncert.layers import Conv2d
from bnncert.model.network import cnn
from bnncert.posteriors import Normal
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
    assert not path.exists()
    code, _, error = run(*command, path, "--seed", 1)
    assert (code, error.count("\n")) == (2, 1)
    assert "is of another recipe; remove it to start anew" in error
    assert run(*command, path)[0] == 0
    assert begun == [1, 2, 2, 3]
    assert [found.name for found in tmp_path.iterdir()] == ["p.safetensors"]
    assert run(*command, tmp_path / "whole.safetensors")[0] == 0
    assert (tmp_path / "whole.safetensors").read_bytes() == path.read_bytes()
