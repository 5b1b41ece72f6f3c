"""Network: the forward pass against torch.nn, the flat weight vector, descriptions, refusals."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.layers import Add, Conv2d, Dense, Flatten, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.model.activations import Activation
from bnncert.model.layers import Layer
from bnncert.model.network import Network, cnn, from_description, mlp, residual
from scenarios import ACTIVATIONS, gaussian, random_network, vector

TORCH: dict[type[Layer], type[nn.Module]] = {
    ReLU: nn.ReLU,
    Tanh: nn.Tanh,
    Sigmoid: nn.Sigmoid,
    Flatten: nn.Flatten,
}


def torch_module(layer: Layer, parameters: tuple[Tensor, ...]) -> nn.Module:
    """The layer as torch has it; its Linear stores W transposed."""
    if isinstance(layer, LeakyReLU):
        return nn.LeakyReLU(layer.slope)
    if not isinstance(layer, Dense):
        return TORCH[type(layer)]()
    module = nn.Linear(layer.inputs, layer.outputs, layer.bias, dtype=torch.float64)
    module.weight.data = parameters[0].mT.clone()
    if layer.bias:
        module.bias.data = parameters[1].clone()
    return module


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return gaussian(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(40))
def test_forward_is_torch(seed: int) -> None:
    """Every layer does what torch.nn's does, for signed inputs and any mix of layers."""
    network = random_network(seed)
    weights, x = (
        numbers(network.size, seed=seed),
        2 * numbers(4, *network.input_shape, seed=seed + 1),
    )
    layers = zip(network.layers, network.split(weights), strict=True)
    plain = nn.Sequential(*(torch_module(layer, parameters) for layer, parameters in layers))
    torch.testing.assert_close(
        network.forward(weights, x), plain(x).detach(), rtol=1e-13, atol=1e-14
    )


def test_forward_by_hand() -> None:
    """W is [inputs, outputs], stands row by row in the vector, and its bias follows it."""
    network = Network((2,), (Dense(2, 2), ReLU(), Dense(2, 1)))
    weights = vector(1, -2, 3, -4, 10, 1, 5, 7, 100)
    # [1, 2] W0 + b0 = [1 + 6 + 10, -2 - 8 + 1]; ReLU leaves [17, 0]; 17 * 5 + 100
    assert network.forward(weights, vector(1, 2).unsqueeze(0)).tolist() == [[185.0]]


def test_flatten_is_row_by_row() -> None:
    network = Network((2, 2), (Flatten(), Dense(4, 1, bias=False)))
    x = vector(1, 2, 3, 4).reshape(1, 2, 2)
    assert network.forward(vector(1, 10, 100, 1000), x).tolist() == [[4321.0]]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_by_hand(activation: Activation) -> None:
    """The activation as a callable, at either side of 0 and at 0."""
    known = {
        ReLU: (0.0, 0.0, 2.0),
        Tanh: (math.tanh(-2), 0.0, math.tanh(2)),
        Sigmoid: (1 / (1 + math.exp(2)), 0.5, 1 / (1 + math.exp(-2))),
    }
    expected = known.get(type(activation)) or (-2 * activation.slope, 0.0, 2.0)  # type: ignore[union-attr]
    assert activation(vector(-2, 0, 2)).tolist() == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("seed", range(12))
def test_weights_may_be_a_batch(seed: int) -> None:
    """Weights [2, 3, size] at x [4, ...] give [2, 3, 4, outputs], each as if alone."""
    network = random_network(seed)
    weights, x = numbers(2, 3, network.size, seed=seed), numbers(4, *network.input_shape, seed=seed)
    together = network.forward(weights, x)
    assert together.shape == (2, 3, 4, network.outputs)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(
                together[i, j], network.forward(weights[i, j], x), rtol=1e-13, atol=1e-14
            )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_split_loses_nothing(seed: int, leading: tuple[int, ...]) -> None:
    """The parts have the named shapes, in order, and put together are the vector again."""
    network = random_network(seed)
    weights = numbers(*leading, network.size, seed=seed)
    parts = [part for layer in network.split(weights) for part in layer]
    assert [tuple(part.shape) for part in parts] == [
        (*leading, *shape) for shape in network.parameters.values()
    ]
    assert torch.equal(torch.cat([part.flatten(len(leading)) for part in parts], -1), weights)


def test_parameters_are_named_by_dense_layer() -> None:
    network = Network((1, 2), (Flatten(), Dense(2, 3, bias=False), ReLU(), Dense(3, 1)))
    assert network.parameters == {"W0": (2, 3), "W1": (3, 1), "b1": (1,)}
    assert network.size == 10
    assert network.shapes == ((1, 2), (2,), (3,), (3,), (1,))
    assert network.outputs == 1


def test_mlp_has_activations_between_its_layers() -> None:
    assert mlp(3, 4, 2) == Network((3,), (Dense(3, 4), ReLU(), Dense(4, 2)))
    assert mlp(3, 4, 2, activation=Tanh()).layers[1] == Tanh()


@pytest.mark.parametrize("seed", range(40))
def test_description_round_trip(seed: int) -> None:
    """Through JSON and back the network, its weights' order and its digest are the same."""
    network = random_network(seed)
    again = from_description(json.loads(json.dumps(network.describe())))
    assert again == network
    assert again.digest == network.digest


def test_every_change_of_architecture_changes_the_digest() -> None:
    networks = [
        mlp(4, 3, 2),
        mlp(4, 3, 2, activation=LeakyReLU()),
        mlp(4, 3, 2, activation=LeakyReLU(0.02)),
        mlp(4, 2, 2),
        Network((4,), (Dense(4, 3, bias=False), ReLU(), Dense(3, 2))),
        Network((4,), (Dense(4, 3), ReLU(), Dense(3, 2), ReLU())),
        Network((2, 2), (Flatten(), Dense(4, 3), ReLU(), Dense(3, 2))),
        Network((4, 1), (Flatten(), Dense(4, 3), ReLU(), Dense(3, 2))),
    ]
    assert len({network.digest for network in networks}) == len(networks)


@pytest.mark.parametrize(
    ("shape", "layers", "message"),
    [
        ((2,), (), "no weights"),
        ((2,), (ReLU(),), "no weights"),
        ((2,), (Dense(3, 1),), r"Dense\(3, 1\) follows shape \(2,\)"),
        ((2,), (Dense(2, 3), ReLU(), Dense(2, 1)), r"Dense\(2, 1\) follows shape \(3,\)"),
        ((2, 2), (Dense(2, 1),), r"follows shape \(2, 2\); flatten"),
        ((2, 2), (Dense(4, 1),), r"follows shape \(2, 2\); flatten"),
        ((-2, -2), (Flatten(), Dense(4, 1)), "-2"),
    ],
)
def test_layers_that_do_not_fit_are_refused(
    shape: tuple[int, ...], layers: tuple[Layer, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Network(shape, layers)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 2), (2, -1)])
def test_empty_dense_layers_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        Dense(*sizes)


@pytest.mark.parametrize("slope", [1.0, 1.5, -0.1, math.nan, math.inf])
def test_a_slope_outside_the_unit_interval_is_refused(slope: float) -> None:
    with pytest.raises(InputError, match="slope"):
        LeakyReLU(slope)


DENSE = {"type": "Dense", "inputs": 2, "outputs": 1}


@pytest.mark.parametrize(
    "description",
    [
        {},
        [],
        {"layers": [DENSE]},
        {"input_shape": [2]},
        {"input_shape": 2, "layers": [DENSE]},
        {"input_shape": ["two"], "layers": [DENSE]},
        {"input_shape": [2], "layers": 7},
        {"input_shape": [2], "layers": ["Dense"]},
        {"input_shape": [2], "layers": [{"inputs": 2, "outputs": 1}]},
        {"input_shape": [2], "layers": [{"type": "LSTM"}]},
        {"input_shape": [2], "layers": [{"type": "Network"}]},
        {"input_shape": [2], "layers": [{"type": []}]},
        {"input_shape": [2], "layers": [{"type": {"name": "Dense"}}]},
        {"input_shape": [2], "layers": [DENSE | {"stride": 1}]},
        {"input_shape": [2], "layers": [{"type": "Dense", "inputs": 2}]},
        {"input_shape": [2], "layers": [DENSE | {"inputs": "2"}]},
        {"input_shape": [2], "layers": [DENSE | {"inputs": 2.0}]},
        {"input_shape": [2], "layers": [DENSE | {"inputs": None}]},
        {"input_shape": [2], "layers": [DENSE, {"type": "LeakyReLU", "slope": 2}]},
        {"input_shape": [2], "layers": [DENSE, {"type": "LeakyReLU", "slope": "steep"}]},
        {"input_shape": [3], "layers": [DENSE]},
    ],
)
def test_a_malformed_description_is_an_input_error(description: Any) -> None:
    """Whatever a file holds in place of an architecture: one typed error of one line, never another
    exception."""
    with pytest.raises(InputError) as caught:
        from_description(description)
    assert "\n" not in str(caught.value)


# Networks of images


def test_the_convolutional_network_is_the_one_that_was_shipped() -> None:
    """Its digest is part of every certificate: 4 x 4 halve, 3 x 3 keep, two dense layers."""
    network = cnn((3, 32, 32), 10)
    assert network.digest == "ef526d4bb369ff70ae7fb9c65b670746960eeaaf7d15a911511b7f28c39cc3ba"
    assert [shape for shape in network.shapes if len(shape) == 3][1::2] == [
        (24, 16, 16),
        (24, 16, 16),
        (48, 8, 8),
        (48, 8, 8),
        (16, 4, 4),
    ]
    assert network.layers[-4:] == (Flatten(), Dense(256, 64), ReLU(), Dense(64, 10))


def test_convolutions_and_hidden_widths_are_as_given() -> None:
    network = cnn((1, 9, 8), 3, [(2, 2), (5, 1)], [7, 6])
    assert network.layers == (
        Conv2d(1, 2, 4, 2, 1),
        ReLU(),
        Conv2d(2, 5, 3, 1, 1),
        ReLU(),
        Flatten(),
        Dense(5 * 4 * 4, 7),
        ReLU(),
        Dense(7, 6),
        ReLU(),
        Dense(6, 3),
    )
    assert cnn((1, 4, 4), 3, [], []).layers == (Flatten(), Dense(16, 3))
    assert cnn((1, 4, 4), 3, [(2, 2)], ()).layers[-1] == Dense(8, 3)


@pytest.mark.parametrize("size", [(8, 8), (9, 7), (28, 28), (5, 6)])
@pytest.mark.parametrize("strides", [(1, 1, 1), (2, 1, 2), (1, 2, 1)])
def test_residual_blocks(size: tuple[int, int], strides: tuple[int, ...]) -> None:
    """One Add a convolution after the first; its shortcut is the input itself where that fits, and
    both terms have one shape for odd sizes too."""
    convolutions = [*zip((3, 3, 4), strides, strict=True)]
    network = residual((2, *size), 5, convolutions, [6])
    sums = [k for k, layer in enumerate(network.layers) if isinstance(layer, Add)]
    assert len(sums) == 2
    height, width = size
    for stride in strides:
        height, width = height // stride, width // stride
    assert network.shapes[-6:-4] == ((4, height, width), (4, height, width))
    assert network.layers[-4:] == (
        Flatten(),
        Dense(4 * height * width, 6),
        ReLU(),
        Dense(6, 5),
    )
    first, second = (network.reads[k] for k in sums)
    assert isinstance(network.layers[first[1] - 1], ReLU) == (strides[1] == 1)
    assert isinstance(network.layers[second[1] - 1], Conv2d)  # more channels
    for k in sums:
        own = network.layers[network.reads[k][0] - 1]
        assert isinstance(own, Conv2d)
        assert own.stride == (1, 1)
        assert isinstance(network.layers[k + 1], ReLU)
    x = numbers(2, 2, *size)
    assert network.forward(numbers(network.size), x).shape == (2, 5)


def test_a_residual_block_by_hand() -> None:
    """1 x 1 images, one channel: the middle of each kernel, w2 relu(w1 h) + h."""
    network = residual((1, 1, 1), 1, [(1, 1), (1, 1)], [])
    weights = torch.zeros(network.size, dtype=torch.float64)
    for (kernel, *_), value in zip(
        (part for part in network.split(weights) if part), (2.0, 3.0, -0.5, 1.0), strict=True
    ):
        kernel[(0, 0, 1, 1) if kernel.dim() == 4 else (0, 0)] = value
    x = vector(1.0, -1.0).reshape(2, 1, 1, 1)
    assert network.forward(weights, x).flatten().tolist() == [0.0, 0.0]  # 2 - 0.5 · 6 = -1
    network.split(weights)[4][0][0, 0, 1, 1] = 0.5
    assert network.forward(weights, x).flatten().tolist() == [5.0, 0.0]


@pytest.mark.parametrize("build", [cnn, residual])
@pytest.mark.parametrize(
    ("shape", "convolutions", "hidden", "message"),
    [
        ((64,), [(2, 1)], [3], r"convolutions take images .*, not \(64,\); use an mlp"),
        ((8, 8), [(2, 1)], [3], "convolutions take images"),
        ((1, 8, 8), [(2, 3)], [3], "stride 3; give at least one channel, and stride 1 or 2"),
        ((1, 8, 8), [(2, 0)], [3], "stride 0"),
        ((1, 8, 8), [(0, 1)], [3], "convolution of 0 channels"),
        ((1, 8, 8), [(2, 1), (-1, 2)], [3], "convolution of -1 channels"),
        ((1, 2, 2), [(2, 2), (2, 2)], [3], "does not fit"),
        ((1, 8, 8), [(2, 1)], [0], "at least 1"),
    ],
)
def test_image_networks_that_cannot_be_are_refused(
    build: Any, shape: Any, convolutions: Any, hidden: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(shape, 3, convolutions, hidden)
