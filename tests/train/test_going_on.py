"""Trainings that were killed go on to the same bits, also on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnncert.errors import InputError
from bnncert.layers import Dense, Flatten
from bnncert.model.network import Network, residual
from bnncert.posteriors.independent import Normal
from bnncert.train import BayesByBackprop, Epoch, Robust, train
from trainings import CNN, SMALL_CNN, digits, pictures, same


class Killed(BaseException):
    pass


def kill_after(number: int, seen: list[int]) -> Callable[[Epoch], None]:
    def on_epoch(epoch: Epoch) -> None:
        seen.append(epoch.number)
        if epoch.number == number:
            raise Killed

    return on_epoch


FANCY = BayesByBackprop(
    4, 16, learning_rate=0.02, bayesian="dense", schedule="cosine", augment=True, seed=9
)
PLAIN = BayesByBackprop(4, 16, learning_rate=0.02)
ROBUST = replace(
    FANCY, bayesian="all", normalise=True, prior="fan-in", robust=Robust(0.1, attack=2)
)
RESIDUAL = residual((1, 6, 6), 3, [(2, 1), (3, 2)], [5])


@pytest.mark.parametrize(
    ("network", "recipe"),
    [
        (SMALL_CNN, FANCY),
        (SMALL_CNN, PLAIN),
        (RESIDUAL, ROBUST),
        (RESIDUAL, replace(ROBUST, bayesian="dense")),
    ],
    ids=["fancy", "plain", "robust", "robust and dense"],
)
def test_a_killed_training_goes_on_to_the_same_bits(
    tmp_path: Path, network: Network, recipe: BayesByBackprop
) -> None:
    """Killed twice between epochs, and once after the last, before the file is gone."""
    path, seen = tmp_path / "state.safetensors", list[int]()
    for number in (1, 3, 4):
        with pytest.raises(Killed):
            train(network, *pictures(), recipe, on_epoch=kill_after(number, seen), checkpoint=path)
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
    resumed = train(network, *pictures(), recipe, on_epoch=kill_after(0, seen), checkpoint=path)
    assert seen == [1, 2, 3, 4]
    assert same(resumed, train(network, *pictures(), recipe))
    assert not any(tmp_path.iterdir())


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train(SMALL_CNN, *pictures(), PLAIN, on_epoch=kill_after(1, []), checkpoint=path)
    return path


def test_a_foreign_checkpoint_is_refused(unfinished: Path) -> None:
    x, y = pictures()
    wider = Network((1, 6, 6), (Flatten(), Dense(36, 3)))
    before = unfinished.read_bytes()
    for network, inputs, labels, recipe, what in [
        (SMALL_CNN, x, y, replace(PLAIN, seed=1), "recipe"),
        (wider, x, y, PLAIN, "network"),
        (SMALL_CNN, 1 - x, y, PLAIN, "data"),
        (SMALL_CNN, x, 2 - y, PLAIN, "data"),
        (wider, x[1:], y[1:], FANCY, "recipe and network and data"),
    ]:
        message = (
            rf"^checkpoint '.*state\.safetensors' is of another {what}; remove it to start anew$"
        )
        with pytest.raises(InputError, match=message):
            train(network, inputs, labels, recipe, checkpoint=unfinished)
    assert unfinished.read_bytes() == before


def test_another_start_is_refused(unfinished: Path) -> None:
    x, y = pictures()
    size = SMALL_CNN.size
    begin = Normal(torch.zeros(size).double(), torch.ones(size).double())
    with pytest.raises(InputError, match="is of another start; remove it"):
        train(SMALL_CNN, x, y, PLAIN, checkpoint=unfinished, begin=begin)


def test_another_bound_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train(RESIDUAL, *pictures(), ROBUST, on_epoch=kill_after(1, []), checkpoint=path)
    with pytest.raises(InputError, match="is of another recipe; remove it"):
        train(RESIDUAL, *pictures(), replace(ROBUST, robust=Robust(0.2, attack=2)), checkpoint=path)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(InputError, match="not a safetensors file"):
        train(SMALL_CNN, *pictures(), PLAIN, checkpoint=path)
    assert path.read_text() == "mine"
    with pytest.raises(
        InputError, match=r"would be in a folder that does not exist; make it first"
    ):
        train(SMALL_CNN, *pictures(), PLAIN, checkpoint=tmp_path / "none" / "state.safetensors")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_killed_training_goes_on_on_a_gpu(tmp_path: Path) -> None:
    path, seen = tmp_path / "state.safetensors", list[int]()
    with pytest.raises(Killed):
        train(CNN, *digits("train"), FANCY, "cuda", kill_after(2, seen), path)
    resumed = train(CNN, *digits("train"), FANCY, "cuda", checkpoint=path)
    assert same(resumed, train(CNN, *digits("train"), FANCY, "cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", [ROBUST, replace(ROBUST, normalise=False, bayesian="dense")])
def test_recorded_steps_go_on_on_a_gpu(tmp_path: Path, recipe: BayesByBackprop) -> None:
    """Steps are recorded anew after an interruption; the noise goes on as if they were not."""
    data = digits("train")
    network = residual((1, 8, 8), 10, [(4, 2), (4, 1)], [16])
    path, seen = tmp_path / "state.safetensors", list[int]()
    with pytest.raises(Killed):
        train(network, *data, recipe, "cuda", kill_after(2, seen), path)
    resumed = train(network, *data, recipe, "cuda", checkpoint=path)
    assert same(resumed, train(network, *data, recipe, "cuda"))
