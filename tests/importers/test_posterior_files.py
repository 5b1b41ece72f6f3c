"""Posterior files: round trips of every family, the .npz form, and refusals."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bnncert import InputError, Network, load_posterior, mlp, save_posterior
from bnncert.files.tensors import read_tensors, write_tensors
from bnncert.layers import Tanh
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors import (
    Laplace,
    LowRankNormal,
    Mixture,
    Normal,
    StudentT,
    TruncatedNormal,
    Uniform,
)
from bnncert.posteriors.base import Posterior
from hostile import Bomb
from scenarios import gaussian, uniform

NETWORK = mlp(3, 4, 2, activation=Tanh())


def families() -> list[Posterior]:
    generator = torch.Generator().manual_seed(0)
    n = NETWORK.size
    mean, std = gaussian(n, generator=generator), uniform(n, generator=generator)
    low_rank = LowRankNormal(mean, std, gaussian(n, 2, generator=generator))
    return [
        Normal(mean, std),
        Laplace(mean, std),
        StudentT(mean, std, 1 + uniform(n, generator=generator)),
        Uniform(mean - std, mean + std),
        TruncatedNormal(mean, std, mean - 1, mean + 2),
        low_rank,
        Mixture((0.25, 0.75), (Normal(mean, std), low_rank)),
    ]


@pytest.mark.parametrize("posterior", families(), ids=lambda posterior: posterior.family)
def test_every_family_survives_its_file_bit_for_bit(posterior: Posterior, tmp_path: Path) -> None:
    path = tmp_path / "posterior.safetensors"
    save_posterior(path, NETWORK, posterior, {"made": "here"})
    network, found = load_posterior(path)
    assert network == NETWORK
    assert found.digest == posterior.digest
    assert all(
        torch.equal(value, posterior.tensors()[name]) for name, value in found.tensors().items()
    )


def test_a_standardisation_is_kept_and_moves_no_digest(tmp_path: Path) -> None:
    own = Standardisation(
        tuple(Column(f"x{i}", 0.1 + i, 1 / 3) for i in range(3)),
        (Column("a"), Column("b", -1.0, 7.0)),
    )
    posterior = families()[0]
    path = tmp_path / "posterior.safetensors"
    save_posterior(path, replace(NETWORK, standardisation=own), posterior)
    network, found = load_posterior(path)
    assert network.standardisation == own
    assert (network.digest, found.digest) == (NETWORK.digest, posterior.digest)
    with pytest.raises(InputError, match="has 1 columns of outputs, the network 2; give one"):
        replace(NETWORK, standardisation=Standardisation((), own.outputs[:1]))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (7, "the standardisation is malformed"),
        ({"inputs": []}, "the standardisation is malformed"),
        ({"inputs": [], "outputs": [{"name": "a", "mean": 0}]}, "the standardisation is malformed"),
        ({"inputs": [], "outputs": [{"name": "a", "mean": "x", "std": 1}]}, "is malformed"),
        ({"inputs": [], "outputs": [{"name": "a", "mean": 0, "std": 0}] * 2}, "the second above 0"),
    ],
)
def test_a_bad_standardisation_is_one_line(tmp_path: Path, own: object, message: str) -> None:
    path = tmp_path / "posterior.safetensors"
    save_posterior(path, NETWORK, families()[0])
    header, tensors = read_tensors(path, "bnncert-posterior/1")
    write_tensors(path, header | {"standardisation": own}, tensors)
    with pytest.raises(InputError, match=message) as caught:
        load_posterior(path)
    assert "\n" not in str(caught.value)


def test_the_same_posterior_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        save_posterior(tmp_path / f"{name}.safetensors", NETWORK, families()[0])
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def arrays(**changes: object) -> dict[str, object]:
    plain: dict[str, object] = {
        "W0_mean": np.ones((3, 2), np.float32),
        "b0_mean": np.zeros(2),
        "W0_std": np.full((3, 2), 0.5),
        "b0_std": np.zeros(2),
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def save_npz(tmp_path: Path, **changes: object) -> Path:
    np.savez(tmp_path / "p.npz", **arrays(**changes))
    return tmp_path / "p.npz"


def test_npz_with_and_without_meta(tmp_path: Path) -> None:
    two = {
        "W1_mean": np.ones((2, 1)),
        "W1_std": np.ones((2, 1)),
        "b1_mean": np.ones(1),
        "b1_std": np.ones(1),
    }
    network, posterior = load_posterior(save_npz(tmp_path, **two))
    assert network == mlp(3, 2, 1)
    assert isinstance(posterior, Normal)
    assert posterior.mean.tolist() == [1.0] * 6 + [0.0] * 2 + [1.0] * 3
    meta = json.dumps({"activations": ["tanh", "softmax"]})
    assert load_posterior(save_npz(tmp_path, **two, meta=np.array(meta)))[0] == mlp(
        3, 2, 1, activation=Tanh()
    )


def test_npz_without_bias(tmp_path: Path) -> None:
    network, _ = load_posterior(save_npz(tmp_path, b0_mean=None, b0_std=None))
    assert network.parameters == {"W0": (3, 2)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"W0_mean": None}, "W0_mean"),
        ({"W0_std": None}, "lacks the array 'W0_std'"),
        ({"W0_std": np.full((3, 2), -0.1)}, "negative"),
        ({"W0_mean": np.full((3, 2), np.nan)}, "NaN"),
        ({"W0_mean": np.ones((3, 2), int)}, "floating-point"),
        ({"W0_mean": np.ones(3)}, r"\[inputs, outputs\]"),
        ({"W0_std": np.ones((2, 3))}, "must have shape"),
        ({"meta": np.array("{}{")}, "meta"),
        ({"meta": np.array(json.dumps({"activations": ["swish"]}))}, "activations"),
        ({"meta": np.array(json.dumps({"activations": ["relu", "relu"]}))}, "activations"),
    ],
)
def test_malformed_npz_is_refused_by_name(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        load_posterior(save_npz(tmp_path, **changes))


@pytest.mark.parametrize("name", ["p.npz", "p.safetensors", "p.h5", "p.pkl"])
def test_a_pickle_in_disguise_is_refused_and_never_run(name: str, tmp_path: Path) -> None:
    target = tmp_path / "executed"
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(InputError):
        load_posterior(tmp_path / name)
    assert not target.exists()


def test_object_arrays_and_broken_archives_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "o.npz", W0_mean=np.array([object()]))
    whole = save_npz(tmp_path).read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("o.npz", "half.npz", "missing.npz"):
        with pytest.raises(InputError):
            load_posterior(tmp_path / name)


def tampered(tmp_path: Path, header: dict[str, object], tensors: dict[str, Tensor]) -> Path:
    from safetensors.torch import save_file

    save_file(tensors, tmp_path / "t.safetensors", {"bnncert": json.dumps(header)})
    return tmp_path / "t.safetensors"


def test_malformed_native_files_are_refused(tmp_path: Path) -> None:
    good = {
        "schema": "bnncert-posterior/1",
        "family": "normal",
        "network": Network.describe(mlp(1, 1)),
    }
    tensors = {
        f"{name}_{part}": torch.ones(shape)
        for name, shape in mlp(1, 1).parameters.items()
        for part in ("mean", "std")
    }
    assert load_posterior(tampered(tmp_path, good, tensors))[0] == mlp(1, 1)
    cases = [
        (good | {"schema": "other"}, tensors),
        (good | {"family": "cauchy"}, tensors),
        (good | {"network": {"input_shape": [1], "layers": [{"type": "Magic"}]}}, tensors),
        (
            good
            | {
                "network": {
                    "input_shape": [1],
                    "layers": [{"type": "Dense", "inputs": 1, "outputs": 1, "x": 1}],
                }
            },
            tensors,
        ),
        (good, {name: value for name, value in tensors.items() if name != "W0_std"}),
        (good, tensors | {"W0_std": torch.ones(2, 1)}),
        (good | {"family": "mixture"}, tensors),
    ]
    for header, values in cases:
        with pytest.raises(InputError):
            load_posterior(tampered(tmp_path, header, values))


def test_only_native_files_are_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.safetensors"):
        save_posterior(tmp_path / "p.npz", NETWORK, families()[0])
