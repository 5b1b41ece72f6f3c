"""Trainings that were killed go on to the same bits, also on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnncert.errors import InputError
from bnncert.layers import Dense, Flatten
from bnncert.model.network import Network
from bnncert.train import BayesByBackprop, Epoch, train
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


@pytest.mark.parametrize("recipe", [FANCY, PLAIN], ids=["fancy", "plain"])
def test_a_killed_training_goes_on_to_the_same_bits(
    tmp_path: Path, recipe: BayesByBackprop
) -> None:
    """Killed twice between epochs, and once after the last, before the file is gone."""
    path, seen = tmp_path / "state.safetensors", list[int]()
    for number in (1, 3, 4):
        with pytest.raises(Killed):
            train(
                SMALL_CNN, *pictures(), recipe, on_epoch=kill_after(number, seen), checkpoint=path
            )
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
    resumed = train(SMALL_CNN, *pictures(), recipe, on_epoch=kill_after(0, seen), checkpoint=path)
    assert seen == [1, 2, 3, 4]
    assert same(resumed, train(SMALL_CNN, *pictures(), recipe))
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
