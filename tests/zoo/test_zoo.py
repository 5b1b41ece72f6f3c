"""The zoo: recipes that fit their data, shipped files that are what index and recipe say, and
training by name."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bnncert import load_posterior
from bnncert.cli.main import main
from bnncert.data import PUBLISHED, Dataset, inputs_for, load_inputs
from bnncert.data.advisory import ADVISORIES, ADVISORY
from bnncert.errors import InputError
from bnncert.files.tensors import read_tensors
from bnncert.layers import Conv2d, Dense
from bnncert.model.network import Network, mlp
from bnncert.model.standardisation import Standardisation
from bnncert.posteriors.gaussian import LowRankNormal
from bnncert.posteriors.independent import Normal
from bnncert.train import BayesByBackprop, Robust, accuracy
from bnncert.train import loop as training
from bnncert.train.loop import VALIDATION
from bnncert.zoo import recipes as zoo
from bnncert.zoo.recipes import ZOO, Recipe, fit_recipe, posterior_path, recipe, shipped_index
from scenarios import data_folder
from trainings import interrupted_once

Run = Callable[..., tuple[int, str, str]]
SHIPPED = Path(str(files("bnncert.zoo") / zoo.SHIPPED))
INDEX: dict[str, dict[str, Any]] = json.loads((SHIPPED / "index.json").read_text())
ON_MNIST = [name for name in INDEX if ZOO[name].data == "mnist"]
# The σ of the paper's posteriors.
STATED = {"1x128": 7e-5, "1x256": 7e-5, "1x512": 7e-5, "2x256": 2e-4, "2x512": 2e-4, "2x1024": 2e-4}
STATED |= {"2x50": 1e-2, "2x150": 1e-2}
LARGEST = 40 * 2**20  # bytes of all shipped files
TINY = Recipe(
    mlp(64, 8, 10), "digits", BayesByBackprop(2, 16, learning_rate=1e-2, schedule="cosine")
)


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, standard output and standard error of `bnncert zoo ARGUMENTS`."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["bnncert", "zoo", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return int(end.value.code or 0), output.out, output.err

    return call


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as BNNCERT_DATA, and a zoo with one more, tiny, network."""
    monkeypatch.setenv("BNNCERT_DATA", str(tmp_path))
    monkeypatch.setitem(ZOO, "tiny", TINY)
    return tmp_path


def notes_of(path: Path) -> dict[str, Any]:
    header, _ = read_tensors(path, "bnncert-posterior/1")
    return dict(header["notes"])


def shipped(name: str) -> tuple[Network, Normal | LowRankNormal]:
    """Networks with a head share the noise of its weights; the others' is independent."""
    network, posterior = load_posterior(posterior_path(name))
    assert isinstance(posterior, Normal if ZOO[name].head is None else LowRankNormal)
    return network, posterior


def normal(name: str) -> tuple[Network, Normal]:
    network, posterior = shipped(name)
    assert isinstance(posterior, Normal)
    return network, posterior


def mean_accuracy(path: Path, x: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Of the mean network, dense with ReLU, straight from the tensors of its file."""
    tensors = load_file(path)
    depth = sum(name.startswith("W") and name.endswith("_mean") for name in tensors)
    h = x.reshape(len(x), -1)
    for i in range(depth):
        h = np.maximum(h, 0) if i else h
        h = h @ tensors[f"W{i}_mean"].astype(np.float64) + tensors[f"b{i}_mean"].astype(np.float64)
    return float((h.argmax(-1) == y).mean())


# --- Recipes ---


@pytest.mark.parametrize("name", ZOO)
def test_recipes_fit_their_data(name: str) -> None:
    made = ZOO[name]
    outputs = 10 if made.training.noise_std is None else 1
    outputs = len(ADVISORIES) if made.data == ADVISORY else outputs
    if made.data in ("digits", "diabetes", ADVISORY):
        shape: tuple[int, ...] = tuple(load_inputs(made.data).x.shape[1:])
    elif made.data == "boston":
        shape = (13,)
    else:
        shape = PUBLISHED[made.data]["train"].shape
    images = (shape[-1], *shape[:-1]) if len(shape) == 3 else shape  # channels first
    network = made.network
    assert network.outputs == outputs
    if any(isinstance(layer, Conv2d) for layer in network.layers):
        assert network.input_shape == (images if len(images) == 3 else (1, *images))
    else:
        assert network.input_shape == (math.prod(images),)
    found = network.forward(
        torch.zeros(network.size), torch.zeros(2, *images).reshape(2, *network.input_shape)
    )
    assert found.shape == (2, outputs)


@pytest.mark.parametrize("name", [name for name in ZOO if re.match(r"\dx", name)])
def test_names_say_depth_and_width(name: str) -> None:
    depth, width = map(int, re.match(r"(\d)x(\d+)", name).groups())  # type: ignore[union-attr]
    dense = [layer for layer in ZOO[name].network.layers if isinstance(layer, Dense)]
    assert [layer.outputs for layer in dense] == [width] * depth + [10]
    weight = re.search(r"-kl([\d.]+)$", name)
    assert ZOO[name].training.kl_weight == (float(weight[1]) if weight else 1e-6)


def test_the_narrow_posteriors_start_where_the_paper_s_are() -> None:
    assert {name: ZOO[name].training.initial_std for name in STATED} == STATED
    assert all(ZOO[name].paper is not None for name in STATED)


def test_only_one_cnn_has_random_kernels() -> None:
    assert (ZOO["cnn"].training.bayesian, ZOO["cnn-bayesian"].training.bayesian) == ("dense", "all")


def test_recipes_are_found_by_name() -> None:
    assert recipe("2x50") is ZOO["2x50"]
    with pytest.raises(
        InputError, match=r"^the zoo has no network '3x50'; it has digits, 1x128, .*-laplace$"
    ):
        recipe("3x50")


# --- Shipped files ---


def test_the_index_names_every_shipped_file() -> None:
    assert shipped_index() == INDEX
    assert sorted(path.stem for path in SHIPPED.glob("*.safetensors")) == sorted(INDEX)
    assert {*INDEX} <= {*ZOO}
    assert {"digits", "1x128", "2x50", "cnn"} <= {*INDEX}
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < LARGEST


@pytest.mark.parametrize("name", INDEX)
def test_shipped_files_are_what_their_index_and_recipe_say(name: str) -> None:
    path, made, known = posterior_path(name), ZOO[name], INDEX[name]
    assert path == SHIPPED / f"{name}.safetensors"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == known["sha256"]
    network, posterior = shipped(name)
    notes = notes_of(path)
    said = dict(notes["recipe"])
    assert said.pop("head", None) == made.head
    if robust := said.get("robust"):
        said["robust"] = Robust(**robust | {"clip": robust["clip"] and tuple(robust["clip"])})
    assert said.pop("name", name) == name
    assert said.pop("data") == made.data
    assert BayesByBackprop(**said) == made.training  # settings that came later have their default
    assert network == made.network
    assert notes["accuracy"] == known["accuracy"]
    std = posterior.marginal_std
    assert notes["std"] == known["std"] == float(std[std > 0].median())
    assert posterior.mean.isfinite().all()


@pytest.mark.parametrize("name", INDEX)
def test_shipped_logs_are_of_a_whole_training(name: str) -> None:
    log, made = notes_of(posterior_path(name))["log"], ZOO[name]
    examples = {"digits": 1500, "mnist": 60_000, "fashion-mnist": 60_000, "cifar10": 50_000}
    examples |= {"boston": 455, "diabetes": 400, ADVISORY: 36_000}
    assert [epoch["number"] for epoch in log] == [*range(1, made.training.epochs + 1)]
    count = examples[made.data]
    if made.training.robust is not None:  # some are kept out
        count -= min(VALIDATION, count // 10)
    for epoch in log:
        assert epoch["elbo"] == pytest.approx(-(epoch["nll"] * count + epoch["kl"]))
        divergence = made.training.kl_weight * epoch["kl"] / count
        if made.training.robust is None:
            assert epoch["loss"] == pytest.approx(epoch["nll"] + divergence)
        else:  # the bound is worse than what it bounds
            assert epoch["loss"] > epoch["nll"] + divergence - 1e-3
            assert 0 <= epoch["certified"] <= 1
    if made.head is None:
        assert log[-1]["loss"] < log[0]["loss"]
    else:  # a trunk has no divergence to lose, and the bound comes into its loss on the way
        assert log[-1]["certified"] > log[0]["certified"]


@pytest.mark.parametrize("name", [name for name in STATED if name in INDEX])
def test_shipped_posteriors_are_as_narrow_as_stated(name: str) -> None:
    """Every weight, not only the median one."""
    std = normal(name)[1].std
    assert float(std.min()) > STATED[name] / 3
    assert float(std.max()) < STATED[name] * 3
    assert INDEX[name]["std"] == pytest.approx(STATED[name], rel=0.1)


@pytest.mark.parametrize("name", [name for name in INDEX if re.match(r"\dx.*-kl", name)])
def test_honest_posteriors_are_wide(name: str) -> None:
    """Weights of pixels that are always 0 keep the prior's σ of 1; with less weight on the
    divergence others do not."""
    network, posterior = normal(name)
    first = network.split(posterior.std)[0][0]
    assert first[0].tolist() == pytest.approx([1.0] * first.shape[1], abs=0.1)  # the corner
    assert INDEX[name]["std"] > (0.5 if name.endswith("kl1") else 0.05)
    assert INDEX[name]["std"] < (1.1 if name.endswith("kl1") else 0.5)


def test_which_weights_are_random() -> None:
    for name in INDEX:
        network, posterior = shipped(name)
        every = network.split(posterior.marginal_std)
        for layer, parts in zip(network.layers, every, strict=True):
            certain = ZOO[name].training.bayesian == "dense" and isinstance(layer, Conv2d)
            certain |= ZOO[name].head is not None and layer is not network.layers[-1]
            assert all(
                bool((part == 0).all() if certain else (part > 0).all()) for part in parts
            ), name


@pytest.mark.parametrize("name", [name for name in INDEX if ZOO[name].paper is not None])
def test_shipped_networks_are_as_good_as_the_paper_s(name: str) -> None:
    assert 100 * INDEX[name]["accuracy"] >= (ZOO[name].paper or math.inf)


def test_the_accuracy_of_the_digits_network() -> None:
    data = load_inputs("digits")
    assert data.y is not None
    known = INDEX["digits"]["accuracy"]
    assert mean_accuracy(posterior_path("digits"), data.x.numpy(), data.y.numpy()) == pytest.approx(
        known, abs=1e-12
    )


@pytest.mark.parametrize("name", ON_MNIST)
def test_the_accuracy_of_mnist_networks(name: str) -> None:
    data_folder()
    data = load_inputs("mnist")
    assert data.y is not None
    known = INDEX[name]["accuracy"]
    network, posterior = normal(name)
    if any(isinstance(layer, Conv2d) for layer in network.layers):
        x, y = data.x[:500].reshape(-1, *network.input_shape), data.y[:500]
        assert accuracy(network, posterior.mean, x, y) == pytest.approx(known, abs=0.05)
        return
    assert mean_accuracy(posterior_path(name), data.x.numpy(), data.y.numpy()) == pytest.approx(
        known, abs=1e-12
    )


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped digits network in the place of the package, all of whose other networks
    are missing."""
    monkeypatch.setattr(zoo, "files", lambda _package: tmp_path)
    (tmp_path / zoo.SHIPPED).mkdir()
    for name in ("index.json", "digits.safetensors"):
        shutil.copy(SHIPPED / name, tmp_path / zoo.SHIPPED / name)
    return tmp_path / zoo.SHIPPED


def test_a_changed_file_is_refused(package: Path, run: Run) -> None:
    path = package / "digits.safetensors"
    assert run("path", "digits") == (0, f"{path}\n", "")
    content = bytearray(path.read_bytes())
    for place in (len(content) - 1, len(content) // 2):
        content[place] ^= 1
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=r"digits\.safetensors' is not the file that was shipped; reinstall"
        ):
            posterior_path("digits")
    code, text, error = run("path", "digits")
    assert (code, text, error.count("\n")) == (2, "", 1)
    assert error.startswith("bnncert: ")


def test_what_is_not_shipped_is_looked_for_among_the_trained(
    package: Path, run: Run, folder: Path
) -> None:
    (package / "digits.safetensors").unlink()
    assert run("path", "digits")[0] == 2
    (folder / "zoo").mkdir()
    (folder / "zoo" / "digits.safetensors").write_bytes(b"trained")
    assert run("path", "digits") == (0, f"{folder / 'zoo' / 'digits.safetensors'}\n", "")


# --- Networks trained by a user ---


def test_training_writes_where_the_path_is(folder: Path, run: Run) -> None:
    code, text, error = run("train", "tiny")
    path = folder / "zoo" / "tiny.safetensors"
    assert (code, error) == (0, "")
    assert [found for found in folder.rglob("*") if found.is_file()] == [path]
    assert run("path", "tiny") == (0, f"{path}\n", "")
    network, posterior = load_posterior(path)
    assert network == TINY.network
    assert isinstance(posterior, Normal)
    notes, data = notes_of(path), load_inputs("digits")
    assert data.y is not None
    assert notes["recipe"] == {"data": "digits"} | asdict(TINY.training)
    assert notes["accuracy"] == pytest.approx(
        mean_accuracy(path, data.x.numpy(), data.y.numpy()), abs=1e-12
    )
    assert notes["accuracy"] > 0.3  # 0.1 is chance
    assert notes["std"] == float(posterior.std.median())
    assert [epoch["number"] for epoch in notes["log"]] == [1, 2]
    assert f"accuracy at the mean {100 * notes['accuracy']:.2f} %" in text
    assert f"ELBO {notes['log'][-1]['elbo']:.4g}" in text
    (row,) = [line for line in run("list")[1].splitlines() if line.split()[:1] == ["tiny"]]
    assert "trained" in row


def test_training_elsewhere(folder: Path, run: Run) -> None:
    assert run("train", "tiny", "--out", folder / "mine.safetensors")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["mine.safetensors"]
    assert run("path", "tiny")[0] == 2


def test_a_user_s_networks_are_in_the_cache_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BNNCERT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert zoo.trained_path("1x256") == tmp_path / "bnncert" / "zoo" / "1x256.safetensors"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        zoo.trained_path("1x256") == tmp_path / ".cache" / "bnncert" / "zoo" / "1x256.safetensors"
    )


def test_an_interrupted_training_goes_on(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same bytes as without the interruption, and without doing the first epoch again."""
    begun = interrupted_once(monkeypatch)
    code, text, error = run("train", "tiny")
    assert (code, text) == (130, "")
    assert "Traceback" not in error
    assert run("path", "tiny")[0] == 2
    assert run("train", "tiny")[0] == 0
    assert begun == [1, 2, 2]
    assert [path.name for path in (folder / "zoo").iterdir()] == ["tiny.safetensors"]
    fit_recipe(TINY, folder / "whole.safetensors")
    assert (folder / "whole.safetensors").read_bytes() == (
        folder / "zoo" / "tiny.safetensors"
    ).read_bytes()


def test_another_recipe_does_not_go_on(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(_epoch: training.Epoch) -> None:
        raise Killed

    (folder / "zoo").mkdir()
    with pytest.raises(Killed):
        fit_recipe(TINY, folder / "zoo" / "tiny.safetensors", on_epoch=kill)
    monkeypatch.setitem(ZOO, "tiny", replace(TINY, training=replace(TINY.training, seed=1)))
    code, _, error = run("train", "tiny")
    assert (code, error.count("\n")) == (2, 1)
    assert "tiny.partial' is of another recipe; remove it to start anew" in error


MISTAKES = {
    "unknown path": (["path", "3x50"], "the zoo has no network '3x50'; it has digits, 1x128, "),
    "unknown training": (
        ["train", "3x50"],
        "the zoo has no network '3x50'; it has digits, 1x128, ",
    ),
    "not trained": (
        ["path", "1x256"],
        "1x256 is not shipped and not trained yet; run: bnncert zoo train 1x256\n",
    ),
    "unknown device": (["train", "tiny", "--device", "tpu"], "device 'tpu' is not known"),
    "no such folder": (["train", "tiny", "--out", "no/where/p.safetensors"], "folder that exists"),
    "no name": (["path"], "Missing argument"),
    "unknown command": (["trian", "tiny"], "trian"),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_get_one_clear_line(name: str, run: Run) -> None:
    arguments, message = MISTAKES[name]
    code, text, error = run(*arguments)
    assert (code, text, error.count("\n")) == (2, "", 1)
    assert error.startswith("bnncert: ")
    assert message in error


def test_an_unknown_name_leaves_nothing_behind(folder: Path, run: Run) -> None:
    assert run("train", "3x50")[0] == 2
    assert not any(folder.iterdir())


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that were begun."""
    numbers, epoch = list[int](), training._epoch

    def counted(state: Any, *arguments: Any) -> training.Epoch:
        numbers.append(len(state.history) + 1)
        return epoch(state, *arguments)

    monkeypatch.setattr(training, "_epoch", counted)
    return numbers


def test_a_wrong_ending_is_noticed_before_training(
    folder: Path, run: Run, begun: list[int]
) -> None:
    code, _, error = run("train", "tiny", "--out", folder / "p.npz")
    assert (code, error.count("\n")) == (2, 1)
    assert ".safetensors" in error
    assert not begun


@pytest.mark.usefixtures("folder")
def test_no_training_is_lost_for_want_of_a_test_set(
    run: Run, begun: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is missing the first time, as after a failed download."""
    missing = {"test"}

    def load(own: Standardisation | None, name: str, split: str, targets: Sequence[str]) -> Dataset:
        if split in missing:
            raise InputError(f"the {split} set could not be downloaded")
        return inputs_for(own, name, split, targets)

    monkeypatch.setattr(zoo, "inputs_for", load)
    assert run("train", "tiny")[0] == 2
    missing.clear()
    assert run("train", "tiny")[0] == 0
    assert begun == [1, 2]


# --- The list ---


def listed(run: Run, columns: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], str]:
    """Rows of the table, by the names they start with, in a terminal of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    code, text, error = run("list")
    assert (code, error) == (0, "")
    return [
        line.strip() for line in text.splitlines() if line.split()[:1] and line.split()[0] in ZOO
    ], text


@pytest.mark.usefixtures("folder")
def test_the_list_names_every_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ZOO, "tiny")
    rows, _ = listed(run, 80, monkeypatch)
    assert [row.split()[0] for row in rows] == [*ZOO]
    for row, (name, made) in zip(rows, ZOO.items(), strict=True):
        assert made.data in row
        assert ("shipped" in row) == (name in INDEX)
        assert "trained" not in row
        if made.paper is not None:
            assert f" {made.paper:g} % " in row
        if name in INDEX and INDEX[name]["accuracy"] is not None:
            assert f"{100 * INDEX[name]['accuracy']:.2f} %" in row


@pytest.mark.usefixtures("folder")
def test_the_list_is_not_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ZOO, "tiny")
    rows, text = listed(run, 80, monkeypatch)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert all(made.about in row for row, made in zip(rows, ZOO.values(), strict=True))
