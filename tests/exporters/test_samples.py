"""Exported networks compute what ours do, and exported questions ask what ours ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import (
    Box,
    InputError,
    Network,
    Problem,
    Specification,
    ball,
    certify,
    class_robust,
    explicit_box,
    half_space,
    layers,
    mlp,
    output_interval,
    save_samples,
)
from bnncert.exporters.networks import WRITERS, onnx_model
from bnncert.exporters.properties import vnnlib
from bnncert.importers.vnnlib import load_vnnlib
from bnncert.layers import Conv2d, Dense, Flatten, ReLU
from bnncert.posteriors import Normal
from bnncert.posteriors.base import sample
from graphs import random_graph
from onnx_files import agree, evaluate

CHAINS = {
    "grouped": (Conv2d(2, 4, (3, 2), (2, 1), (1, 0, 2, 1), dilation=(1, 2), groups=2), Flatten()),
    "pools": (layers.AvgPool2d(3, 2, 1), layers.MaxPool2d(2, 1, 1), Flatten()),
    "moves": (
        layers.Pad((0, 1, 2), (1, 0, 0)),
        layers.Permute((2, 0, 1)),
        layers.Take(1, (2, 0)),
        layers.Reshape((4, 4, 7)),
        layers.Scale((4, 1, 1)),
        Flatten(),
    ),
    "unbiased": (Flatten(), Dense(72, 3, bias=False), ReLU(), layers.Scale((3,), bias=False)),
}
KINDS = (
    layers.LeakyReLU(0.3),
    layers.PReLU((0.1, 0.4, -0.2), (3,)),
    layers.Hardtanh(-0.5, 2.0),
    layers.Tanh(),
    layers.Sigmoid(),
    layers.SiLU(),
    layers.Softplus(2.0),
    layers.ELU(0.7),
    layers.SELU(),
    layers.Softsign(),
)


def ended(network: Network) -> Network:
    """With a dense layer behind it, so that there are weights."""
    return Network(network.input_shape, (*network.layers, Dense(network.outputs, 2)), ())


def written(network: Network, path: Path, seed: int = 0) -> None:
    """The file computes what the network does, by the format's own implementation and by what reads
    it back."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(network.size, generator=generator).double()
    (path / "n.onnx").write_bytes(onnx_model(network, weights))
    x = torch.randn(3, *network.input_shape, generator=generator)
    ours = network.forward(weights, x.double()).numpy()
    theirs = np.stack([evaluate(path / "n.onnx", each.numpy()[None])[0] for each in x])
    np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5 * (1 + abs(ours).max()))
    if layers.SiLU() not in network.layers:  # two operators there, which are not read back as one
        agree(path / "n.onnx", np.float32)


@pytest.mark.parametrize("name", CHAINS)
def test_layers(name: str, tmp_path: Path) -> None:
    written(ended(Network((2, 6, 6), (Conv2d(2, 2, 1), *CHAINS[name]))), tmp_path)


@pytest.mark.parametrize("activation", KINDS, ids=lambda kind: type(kind).__name__)
def test_activations(activation: layers.Tanh, tmp_path: Path) -> None:
    written(Network((4,), (Dense(4, 3), activation, Dense(3, 2))), tmp_path)


@pytest.mark.parametrize("images", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_graphs(seed: int, images: bool, tmp_path: Path) -> None:
    written(random_graph(seed, images), tmp_path, seed)


def test_every_layer_is_written_or_refused_by_name() -> None:
    seen = {type(layer) for chain in CHAINS.values() for layer in chain} | {*map(type, KINDS)}
    assert {*WRITERS} - seen <= {ReLU, layers.Add, layers.Concat}  # these come in graphs
    network = Network((2,), (Dense(2, 2), layers.GELU(), Dense(2, 1)))
    with pytest.raises(InputError, match=r"layer GELU has no operator in ONNX opset 13"):
        onnx_model(network, torch.zeros(network.size))


X = torch.tensor([[0.3, -0.1, 3e-7]], dtype=torch.float64)


@pytest.mark.parametrize(
    "specification",
    [
        class_robust(ball(X, 0.25, clip=(-1, 1)), [1], 3),
        class_robust(ball(X, 0.0), [2], 3, target=0),
        half_space(ball(X, 1e-9), torch.tensor([0.1, -2.0, 1e-20]), -0.3),
        half_space(ball(X, 0.5), torch.tensor([0.0, -1.0, 0.0]), 0.75),
        output_interval(explicit_box(Box(X - 1, X + 2)), low=-0.1, high=1e3, output=1, outputs=3),
    ],
    ids=["class", "target", "half-space", "one-output", "interval"],
)
def test_questions(specification: Specification, tmp_path: Path) -> None:
    """What is read back asks the same of every network, and nothing was rounded."""
    network = mlp(3, 3)
    (tmp_path / "p.vnnlib").write_text(vnnlib(specification))
    query = load_vnnlib(tmp_path / "p.vnnlib", network, torch.zeros(network.size).double())
    assert (query.exact, query.notes) == (True, ())
    (found,) = query.specifications
    assert torch.equal(found.region.box.lower, specification.region.box.lower)
    assert torch.equal(found.region.box.upper, specification.region.box.upper)
    outputs = torch.randn(200, 1, 3, generator=torch.Generator().manual_seed(0)).double()
    ours, theirs = specification.margins(outputs), found.margins(outputs)
    assert torch.equal((ours > 0).all(-1), (theirs > 0).all(-1))


def test_ends_next_to_zero_are_rounded_away_from_it(tmp_path: Path) -> None:
    """-0.1 + 0.1 with an allowance for rounding is the smallest float, of 751 digits."""
    region = explicit_box(Box(X - 1, torch.tensor([[1.0, 5e-324, 1.0]], dtype=torch.float64)))
    asked = half_space(region, torch.ones(3), 0.0)
    (tmp_path / "p.vnnlib").write_text(vnnlib(asked))
    network = mlp(3, 3)
    query = load_vnnlib(tmp_path / "p.vnnlib", network, torch.zeros(network.size).double())
    upper = query.specifications[0].region.box.upper[0, 1]
    assert 5e-324 <= float(upper) <= 1.0000001e-150
    with pytest.raises(InputError, match="number 1e-300 is too small for a VNN-LIB file"):
        vnnlib(half_space(ball(X, 0.1), torch.tensor([1e-300, 1.0, 0.0], dtype=torch.float64), 0.0))


def test_balls_are_no_boxes() -> None:
    with pytest.raises(InputError, match=r"region is an l2 ball; VNN-LIB files know boxes"):
        vnnlib(half_space(ball(X, 0.1, norm="l2"), torch.ones(3), 0.0))


def problem(inputs: int = 2) -> Problem:
    network = mlp(3, 4, 2)
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(network.size, generator=generator).double()
    x = torch.rand(inputs, 3, generator=generator).double()
    labels = network.forward(mean, x).argmax(-1)
    posterior = Normal(mean, torch.full_like(mean, 0.1))
    return Problem(network, posterior, class_robust(ball(x, 0.01), labels, 2))


def test_a_folder_of_samples(tmp_path: Path) -> None:
    """Every network meets every question, and the networks are those of the posterior's draws."""
    asked = problem()
    path = save_samples(asked, tmp_path / "new", samples=3, seed=5, timeout=7)
    lines = path.read_text().splitlines()
    assert lines == [
        f"networks/{s:06d}.onnx,properties/{i:06d}.vnnlib,7" for i in range(2) for s in range(3)
    ]
    x = asked.specification.region.center[:1]
    drawn = sample(asked.posterior, 3, 5)
    for s, weights in enumerate(drawn):
        theirs = evaluate(path.parent / f"networks/{s:06d}.onnx", x.float().numpy())
        ours = asked.network.forward(weights, x).numpy()
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
    results = certify(asked)
    for i in range(2):
        file = path.parent / f"properties/{i:06d}.vnnlib"
        (spec,) = load_vnnlib(file, asked.network, asked.posterior.center).specifications
        again = certify(Problem(asked.network, asked.posterior, spec))[0]
        assert again.lower == pytest.approx(results[i].lower, abs=1e-9)


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(InputError, match="is not an empty folder; name a new one"):
        save_samples(problem(), tmp_path / "full")
    with pytest.raises(InputError, match="samples is 0; give at least 1"):
        save_samples(problem(), tmp_path / "new", samples=0)
    network = Network((2,), (Dense(2, 2), layers.GELU(), Dense(2, 1)))
    zeros = torch.zeros(network.size).double()
    asked = half_space(ball(torch.zeros(1, 2).double(), 0.1), torch.ones(1), 0.0)
    with pytest.raises(InputError, match="GELU"):
        save_samples(Problem(network, Normal(zeros, zeros + 1), asked), tmp_path / "new")
    assert not (tmp_path / "new").exists()
