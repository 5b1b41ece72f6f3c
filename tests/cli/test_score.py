"""`bnncert score`, and what trainings say of themselves."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import data, load_posterior, mlp, save_posterior
from bnncert.importers.native import load_notes
from bnncert.posteriors import Empirical, Normal
from bnncert.train import BayesByBackprop, score
from bnncert.zoo import recipes
from commands import Run
from published_data import save
from scenarios import gaussian


def line(run: Run, *arguments: object) -> dict[str, Any]:
    """What `score --json` says, in one line."""
    code, text, error = run("score", *arguments, "--json")
    assert (code, error, text.count("\n")) == (0, "", 1)
    return dict(json.loads(text))


@pytest.fixture
def regression(tmp_path: Path) -> Path:
    """y = x₀ - x₁ / 2 and noise of 0.1, inputs of about 1."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((80, 3))
    y = x @ [1, -0.5, 0] + 0.1 * generator.standard_normal(80)
    np.savez(tmp_path / "lines.npz", x=x, y=y)
    return tmp_path / "lines.npz"


def test_a_training_s_scores_are_those_of_its_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    options = ["--hidden", 8, "--epochs", 2, "--prior", "fan-in", "--prior-std", 2]
    code, text, error = run("train", "--data", "digits", *options, "--out", path)
    assert (code, error) == (0, "")
    first, *rest = text.splitlines()
    assert " on the test set, median std " in first
    assert rest[0] == "  297 examples, 30 networks drawn:"
    assert [row[2:20].strip() for row in rest[1:]] == [
        "accuracy",
        "NLL",
        "calibration error",
        "KL to the prior",
        "median σ by layer",
    ]
    assert rest[4].endswith(", s = 2 / √fan-in")
    assert run("score", path)[1].splitlines() == rest
    found = line(run, path)
    about = {"posterior": str(path), "data": "digits", "other": None}
    about |= {"prior": "fan-in", "prior_std": 2.0, "noise_std": None}
    assert {name: found[name] for name in about} == about
    notes = load_notes(path)
    assert {name: found[name] for name in found if name not in about} == notes["scores"]
    assert notes["accuracy"] == notes["scores"]["accuracy"]
    assert notes.keys() == {"accuracy", "log", "recipe", "scores", "std"}


def test_a_regression_end_to_end(run: Run, tmp_path: Path, regression: Path) -> None:
    path = tmp_path / "p.safetensors"
    options = ["--noise-std", 0.1, "--hidden", 8, "--learning-rate", 0.03, "--epochs", 60]
    command = ["train", "--data", regression, *options, "--robust", 0.05, "--out", path]
    code, text, error = run(*command)
    assert (code, error) == (0, "")
    assert "p.safetensors: RMSE at the mean " in text
    assert " on the tenth kept out, median std " in text
    found = line(run, path)
    assert (found["examples"], found["accuracy"], found["auroc"]) == (8, None, None)
    assert 0 < found["rmse"] < 0.5
    assert 0 <= found["coverage"] <= 1
    assert f"RMSE at the mean   {found['rmse']:.4g}" in text
    kept = line(run, path, "--data", regression, "--select", "72:")
    assert {**kept, "data": ""} == {**found, "data": ""}
    assert line(run, path, "--data", regression)["examples"] == 80
    asked = ["--inputs", regression, "--select", "72:", "--eps", 0.01, "--tolerance", 1]
    code, text, error = run("certify", path, *asked)
    assert (code, error) == (0, "")
    assert "certified" in text


def test_diabetes_is_a_regression(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bnncert[data]'")
    path = tmp_path / "p.safetensors"
    options = ["--noise-std", 0.7, "--hidden", 8, "--learning-rate", 0.01, "--epochs", 30]
    code, text, error = run("train", "--data", "diabetes", *options, "--out", path)
    assert (code, error) == (0, "")
    assert " on the test set, median std " in text
    assert line(run, path)["rmse"] < 0.9  # 1 is the mean of the targets


def test_a_posterior_from_elsewhere(run: Run, files: dict[str, Path]) -> None:
    """It says nothing of a training: the prior is N(0, 1) unless given."""
    network, posterior = load_posterior(files["p"])
    found = line(run, files["p"], "--data", files["x"])
    images = data.load_inputs(files["x"])
    assert images.y is not None
    expected = score(network, posterior, images.x.flatten(1), images.y, BayesByBackprop(1))
    assert found["accuracy"] == 1
    assert found | {"std": None} == found | asdict(expected) | {"std": None}
    assert (found["prior"], found["prior_std"]) == ("fixed", 1.0)
    narrow = line(run, files["p"], "--data", files["x"], "--prior-std", 0.1, "--prior", "fan-in")
    assert narrow["kl"] > found["kl"]
    assert {**narrow, "kl": 0, "prior": 0, "prior_std": 0} == {
        **found,
        "kl": 0,
        "prior": 0,
        "prior_std": 0,
    }


def test_notes_may_be_anybody_s(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    network, posterior = load_posterior(files["p"])
    for notes in ({"recipe": "mine"}, {"recipe": {"prior_std": "wide", "data": 3}}, {"recipe": []}):
        path = tmp_path / "own.safetensors"
        save_posterior(path, network, posterior, notes)
        assert line(run, path, "--data", files["x"])["prior_std"] == 1.0


def test_an_ensemble_has_no_divergence(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    network, posterior = load_posterior(files["p"])
    path = tmp_path / "own.safetensors"
    save_posterior(path, network, Empirical(posterior.center.unsqueeze(0)))
    code, text, _ = run("score", path, "--data", files["x"])
    assert code == 0
    assert "KL" not in text
    assert "σ" not in text


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A posterior for images of MNIST's size, and a folder with a few of them; no cache."""
    pytest.importorskip("pooch", reason="needs pooch: pip install 'bnncert[data]'")
    import pooch

    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setenv(data.FOLDER, str(folder))
    network = mlp(784, 10)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(0))
    save_posterior(tmp_path / "p.safetensors", network, Normal(mean, mean.abs() / 10))
    pixels = np.random.default_rng(0).integers(0, 256, (20, 28, 28), np.uint8)
    save(folder / "mnist_test.npz", x=pixels, y=np.arange(20) % 10)
    return folder


def test_images_are_told_apart_where_others_are_at_hand(
    run: Run, tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> list[Path]:
        raise AssertionError("nothing is downloaded for this")

    monkeypatch.setattr("bnncert.data.load.downloaded", never)
    path = tmp_path / "p.safetensors"
    found = line(run, path, "--data", "mnist")
    assert (found["other"], found["auroc"]) == ("fashion-mnist", None)
    text = run("score", path, "--data", "mnist")[1]
    assert "entropy AUROC      left out: fashion-mnist is not at hand" in text
    save(images / "fashion-mnist_test.npz", x=np.zeros((6, 28, 28), np.uint8), y=np.zeros(6, int))
    found = line(run, path, "--data", "mnist")
    assert found["auroc"] > 0.9  # all black, of which a network without large biases is unsure
    text = run("score", path, "--data", "mnist")[1]
    assert f"entropy AUROC      {found['auroc']:.4f} against fashion-mnist" in text
    back = line(run, path, "--data", "fashion-mnist")
    assert back["other"] == "mnist"
    assert back["auroc"] == pytest.approx(1 - found["auroc"])


def test_interrupted_scores_do_not_cost_the_training(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "p.safetensors"
    with monkeypatch.context() as patched:
        patched.setattr(recipes, "score", interrupted)
        code, _, _ = run("train", "--data", "digits", "--hidden", 8, "--epochs", 1, "--out", path)
    assert code == 130
    assert line(run, path)["examples"] == 297
