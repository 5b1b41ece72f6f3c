"""Posteriors and networks that were once read and are not what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from bnncert_check import CannotCheck, read_model
from bnncert_check.network import read_network
from forger.forgery import write
from forger.laws import Posterior
from forger.nets import Net
from holes.asking import ONE, networks, normal


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_mixture_is_of_gaussians(order: tuple[int, int], tmp_path: Path) -> None:
    """Of weight 0.01 a network that is safe, of 0.99 one that is not: P_safe is 0.01, the mean
    -0.98."""
    laws = (networks((0.0, 1.0)), normal((0.0, -1.0), (0.0, 0.0)).laws[0])
    posterior = Posterior((0.01, 0.99), tuple(laws[i] for i in order), True)
    with pytest.raises(CannotCheck, match="mixtures are of Gaussians") as reason:
        read_model(write(tmp_path / "p.safetensors", posterior.content(ONE)))
    assert reason.value.code == "unsupported"


def archive(path: Path, activations: list[str]) -> Path:
    text = str(activations).replace("'", '"')
    arrays = {
        "W0_mean": np.ones((1, 1)),
        "W1_mean": -np.ones((1, 1)),
        "meta": f'{{"activations": {text}}}',
    }
    np.savez(path, **arrays, W0_std=np.zeros((1, 1)), W1_std=np.zeros((1, 1)))
    return path


def test_a_softmax_is_at_the_end_or_nowhere(tmp_path: Path) -> None:
    """Of one number it is 1, so the network outputs -1: without it, it outputs -x."""
    with pytest.raises(CannotCheck, match="activation 0 is 'softmax'") as reason:
        read_model(archive(tmp_path / "p.npz", ["softmax", "linear"]))
    assert reason.value.code == "malformed"
    assert read_model(archive(tmp_path / "q.npz", ["linear", "softmax"])).outputs == 1


@pytest.mark.parametrize("slope", ["", [], {}, None, False, True, "0.1", -0.1, 1.0, 1])
def test_the_slope_of_a_leaky_relu_is_a_number(slope: Any, tmp_path: Path) -> None:
    net = Net((1,), ({"type": "LeakyReLU", "slope": slope}, *ONE.layers))
    with pytest.raises(CannotCheck) as reason:
        read_model(write(tmp_path / "p.safetensors", normal((1.0, 1.0), (0.0, 0.0)).content(net)))
    assert reason.value.code == "malformed"


@pytest.mark.parametrize(
    "entry", [{"type": "CELU"}, {"type": ["ReLU"]}, {"type": None}, {}, 7, None, ["ReLU"]]
)
def test_a_layer_that_nobody_knows_is_refused(entry: Any) -> None:
    with pytest.raises(CannotCheck) as reason:
        read_network({"input_shape": [1], "layers": [entry, *ONE.layers]})
    assert reason.value.code == "unsupported"


def stored(tensors: dict[str, Any], folder: Path, family: str = "normal") -> str | None:
    """The code with which a posterior of one layer is refused."""
    header = {"schema": "bnncert-posterior/1", "network": ONE.description, "family": family}
    write(folder / "p.safetensors", bytes(save(tensors, {"bnncert": json.dumps(header)})))
    try:
        read_model(folder / "p.safetensors")
    except CannotCheck as reason:
        return reason.code
    return None


def test_a_posterior_holds_what_it_must_and_nothing_else(tmp_path: Path) -> None:
    one, names = np.ones((1, 1)), ("W0_mean", "W0_std")
    whole = dict.fromkeys(names, one) | {name.replace("W", "b"): one[0] for name in names}
    assert stored(whole, tmp_path) is None
    assert stored(whole | {"W1_mean": one}, tmp_path) == "malformed"
    assert stored(whole | {"remark": one}, tmp_path) == "malformed"
    assert stored(whole | {"W0_mean": one * np.nan}, tmp_path) == "malformed"
    assert stored(whole | {"W0_mean": one.astype(np.int32)}, tmp_path) == "malformed"
    drawn = {"W0_samples": np.ones((2, 1, 1)), "b0_samples": np.ones((2, 1))}
    assert stored(drawn, tmp_path, "empirical") is None
    assert stored(drawn | {"b0_samples": np.ones((3, 1))}, tmp_path, "empirical") == "malformed"
    none = {"W0_samples": np.zeros((0, 1, 1)), "b0_samples": np.ones((2, 1))}
    assert stored(none, tmp_path, "empirical") == "malformed"
    assert stored({"b0_samples": np.ones((2, 1))}, tmp_path, "empirical") == "malformed"


NETWORK = ({"type": "Dense", "inputs": 1, "outputs": 2, "bias": True}, {"type": "ReLU"})
READS: dict[str, Any] = {
    "nothing": [],
    "itself": [3],
    "a later node": [4],
    "a negative node": [-1, 1],
    "one node": [2],
    "no list": 1,
    "no numbers": [1, "2"],
    "true": [1, True],
    "other shapes": [0, 2],
    "none": None,
}


@pytest.mark.parametrize("name", READS)
def test_a_sum_reads_several_nodes_of_one_shape_before_it(name: str) -> None:
    good = {"input_shape": [1], "layers": [*NETWORK, {"type": "Add", "reads": [1, 2]}]}
    assert read_network(good).reads == ((0,), (1,), (1, 2))
    with pytest.raises(CannotCheck):
        read_network(
            {"input_shape": [1], "layers": [*NETWORK, {"type": "Add", "reads": READS[name]}]}
        )


def test_every_node_is_read() -> None:
    last = {"type": "Dense", "inputs": 1, "outputs": 2, "bias": True, "reads": [0]}
    with pytest.raises(CannotCheck, match="nothing reads"):
        read_network({"input_shape": [1], "layers": [*NETWORK, last]})
    with pytest.raises(CannotCheck, match="one node"):
        read_network(
            {"input_shape": [1], "layers": [NETWORK[0], {"type": "ReLU", "reads": [1, 1]}]}
        )
