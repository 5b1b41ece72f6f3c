"""Layers as torch computes them, backward what they are forward, and refused where they do not
fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError
from bnncert.layers import (
    Add,
    AvgPool2d,
    Concat,
    Conv2d,
    Dense,
    Flatten,
    MaxPool2d,
    Pad,
    Permute,
    ReLU,
    Reshape,
    Scale,
    Take,
)
from bnncert.model import kernels
from bnncert.model.layers import Layer, Linear, Shape, output_shape, parameter_shapes
from bnncert.model.maps import (
    apply,
    bias_rows,
    pull,
    shares_weights,
    split_rows,
    spread_bias,
    through,
    weight_gradients,
)
from bnncert.model.network import Network, from_description
from scenarios import gaussian

CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {"kernel": 3},
    "rectangular": {"kernel": (2, 3), "stride": (1, 2), "padding": (0, 2)},
    "dilated": {"kernel": 3, "padding": 2, "dilation": (2, 1)},
    "grouped": {"kernel": 3, "stride": 2, "padding": 1, "groups": 4},
    "depthwise": {"kernel": 2, "groups": 8, "dilation": 2},
}
SIDED = Conv2d(8, 4, (3, 2), (2, 1), (1, 0, 2, 1), dilation=(1, 2), groups=2)
LINEAR: dict[str, tuple[Linear, Shape]] = {
    **{
        name: (Conv2d(8, 12, **own), (8, 9, 7))
        for name, own in CONVOLUTIONS.items()
        if name != "depthwise"
    },
    "depthwise": (Conv2d(8, 8, **CONVOLUTIONS["depthwise"]), (8, 9, 7)),
    "four sides": (SIDED, (8, 7, 6)),
    "few channels": (Conv2d(2, 3, 3, 2, 1), (2, 6, 5)),
    "dense": (Dense(4, 3), (4,)),
    "scale of channels": (Scale((3, 1, 1)), (3, 4, 5)),
    "scale of columns": (Scale((1, 1, 5), bias=False), (3, 4, 5)),
    "scale of entries": (Scale((3, 4, 5)), (3, 4, 5)),
    "one scale": (Scale((1,)), (6,)),
    "average": (AvgPool2d(3, 2, 1), (4, 7, 6)),
    "average, four sides": (AvgPool2d((2, 3), (2, 1), (1, 2, 0, 0)), (4, 7, 6)),
}
MOVES: dict[str, tuple[Layer, tuple[Shape, ...], Callable[..., Tensor]]] = {
    "flatten": (Flatten(), ((2, 3),), lambda x: x.flatten(1)),
    "reshape": (Reshape((2, 6)), ((3, 4),), lambda x: x.reshape(-1, 2, 6)),
    "permute": (Permute((2, 0, 1)), ((2, 3, 4),), lambda x: x.permute(0, 3, 1, 2)),
    "take": (Take(1, (2, 0)), ((2, 3, 4),), lambda x: x[:, :, [2, 0]]),
    "pad": (Pad((1, 0), (0, 2)), ((2, 3),), lambda x: nn.functional.pad(x, (0, 2, 1, 0))),
    "concat": (Concat(1), ((2, 3), (2, 1), (2, 4)), lambda *x: torch.cat(x, 2)),
    "add": (Add(), ((2, 3), (2, 3), (2, 3)), lambda *x: x[0] + x[1] + x[2]),
}


def weights_of(layer: Linear, seed: int = 0, *lead: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = parameter_shapes(layer).values()
    return [gaussian(*lead, *shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_torchs(name: str) -> None:
    layer, shape = LINEAR[name]
    assert isinstance(layer, Conv2d)
    options = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    module = nn.Conv2d(8, layer.out_channels, layer.kernel, groups=layer.groups, **options).double()
    x = gaussian(2, *shape, generator=torch.Generator().manual_seed(1))
    own = [module.weight.detach(), module.bias.detach()]  # type: ignore[union-attr]
    torch.testing.assert_close(apply(layer, own, [x], shape), module(x).detach())


def test_padding_on_four_sides() -> None:
    x = gaussian(2, 8, 7, 6, generator=torch.Generator().manual_seed(1))
    weights, bias = weights_of(SIDED)
    padded = nn.functional.pad(x, (0, 1, 1, 2))
    expected = nn.functional.conv2d(padded, weights, bias, (2, 1), 0, (1, 2), 2)
    torch.testing.assert_close(apply(SIDED, [weights, bias], [x], (8, 7, 6)), expected)


@pytest.mark.parametrize(
    ("layer", "module"), [(AvgPool2d, nn.AvgPool2d), (MaxPool2d, nn.MaxPool2d)]
)
def test_a_padded_pool_is_torchs(layer: Any, module: Any) -> None:
    x = gaussian(2, 3, 7, 6, generator=torch.Generator().manual_seed(2)) - 3
    found = apply(layer((3, 2), (2, 1), (1, 1)), (), [x], (3, 7, 6))
    torch.testing.assert_close(found, module((3, 2), (2, 1), (1, 1))(x))


def test_a_scale_is_batch_normalisation() -> None:
    norm = nn.BatchNorm2d(3).double().eval()
    norm.running_mean.copy_(torch.tensor([1.0, -2.0, 0.5]))  # type: ignore[union-attr]
    norm.running_var.copy_(torch.tensor([4.0, 0.25, 1.0]))  # type: ignore[union-attr]
    x = gaussian(2, 3, 4, 4, generator=torch.Generator().manual_seed(3))
    scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()  # type: ignore[operator]
    shift = norm.bias.detach() - norm.running_mean * scale  # type: ignore[operator]
    own = [scale.reshape(3, 1, 1), shift.reshape(3, 1, 1)]
    torch.testing.assert_close(apply(Scale((3, 1, 1)), own, [x], (3, 4, 4)), norm(x).detach())


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("positions", [True, False], ids=["by position", "by torch"])
def test_backward_is_the_transpose(
    positions: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rows·(W h) = pull(rows)·h, and both are linear in the weights."""
    monkeypatch.setattr(kernels, "FEW", 1 if positions else 10**9)
    layer, shape = LINEAR[name]
    generator = torch.Generator().manual_seed(4)
    h = gaussian(2, *shape, generator=generator)
    rows = gaussian(2, 3, *output_shape(layer, shape), generator=generator)
    weights, *bias = weights_of(layer) or [h]
    forward = (rows * through(layer, weights, h).unsqueeze(1)).flatten(2).sum(-1)
    pulled = pull(layer, weights, rows, shape)
    torch.testing.assert_close((pulled * h.unsqueeze(1)).flatten(2).sum(-1), forward)
    if isinstance(layer, Conv2d | Scale):
        assert shares_weights(layer)
        slopes = weight_gradients(layer, rows, h)
        torch.testing.assert_close(slopes @ weights.flatten(), forward)
    for part in bias:
        spread = (rows * spread_bias(layer, part, shape)).flatten(2).sum(-1)
        torch.testing.assert_close(bias_rows(layer, rows) @ part.flatten(), spread)


@pytest.mark.parametrize("name", ["plain", "dilated", "four sides"])
def test_gradients_of_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "FEW", 1)
    layer, shape = LINEAR[name]
    layer = Conv2d(8, 4, layer.kernel, layer.stride, layer.padding, dilation=layer.dilation)  # type: ignore[union-attr]
    (weights, _) = weights_of(layer)
    rows = gaussian(1, 2, *output_shape(layer, shape), generator=torch.Generator().manual_seed(5))
    assert torch.autograd.gradcheck(
        lambda values: pull(layer, weights, values, shape), rows.requires_grad_()
    )


@pytest.mark.parametrize("name", LINEAR)
def test_several_networks_at_once(name: str) -> None:
    layer, shape = LINEAR[name]
    x = gaussian(2, *shape, generator=torch.Generator().manual_seed(6))
    many = weights_of(layer, 0, 5)
    together = apply(layer, many, [x], shape)
    for k, found in enumerate(together) if many else ():
        one = apply(layer, [part[k] for part in many], [x], shape)
        torch.testing.assert_close(found, one)


@pytest.mark.parametrize("name", MOVES)
def test_moves_and_sums(name: str) -> None:
    layer, shapes, torchs = MOVES[name]
    generator = torch.Generator().manual_seed(7)
    inputs = [gaussian(2, *shape, generator=generator) for shape in shapes]
    found = apply(layer, (), inputs, shapes[0])
    torch.testing.assert_close(found, torchs(*inputs), rtol=0, atol=0)
    assert tuple(found.shape[1:]) == output_shape(layer, *shapes)
    many = [torch.stack([x, -x]) for x in inputs]
    torch.testing.assert_close(apply(layer, (), many, shapes[0]), torch.stack([found, -found]))
    rows = gaussian(2, 3, *found.shape[1:], generator=generator)
    parts = split_rows(layer, rows, shapes)  # type: ignore[arg-type]
    terms = [(p * x.unsqueeze(1)).flatten(2).sum(-1) for p, x in zip(parts, inputs, strict=True)]
    torch.testing.assert_close(sum(terms), (rows * found.unsqueeze(1)).flatten(2).sum(-1))


REFUSED: dict[str, Callable[[], object]] = {
    "groups that do not divide": lambda: Conv2d(3, 4, 1, groups=2),
    "groups of nothing": lambda: Conv2d(2, 2, 1, groups=0),
    "no dilation": lambda: Conv2d(2, 2, 1, dilation=0),
    "padding of three": lambda: Conv2d(2, 2, 1, padding=(1, 1, 1)),
    "padding below 0": lambda: Conv2d(2, 2, 1, padding=(0, 0, -1, 0)),
    "a pool of padding alone": lambda: MaxPool2d(2, 1, 2),
    "scale of nothing": lambda: Scale(()),
    "scale of a number": lambda: Scale(3),  # type: ignore[arg-type]
    "scale that does not fit": lambda: output_shape(Scale((2, 1)), (3, 4)),
    "scale of another rank": lambda: output_shape(Scale((3,)), (3, 4)),
    "reshape to nothing": lambda: Reshape(()),
    "reshape to a guess": lambda: Reshape((-1, 2)),
    "reshape of other entries": lambda: output_shape(Reshape((5,)), (2, 3)),
    "permute twice": lambda: output_shape(Permute((0, 0)), (2, 3)),
    "permute of another rank": lambda: output_shape(Permute((0,)), (2, 3)),
    "take nothing": lambda: Take(0, ()),
    "take twice": lambda: Take(0, (1, 1)),
    "take beyond": lambda: output_shape(Take(0, (2,)), (2,)),
    "take along nothing": lambda: output_shape(Take(1, (0,)), (2,)),
    "take of a truth": lambda: Take(True, (0,)),
    "pad of another rank": lambda: output_shape(Pad((1,), (1, 1)), (2, 3)),
    "pad below 0": lambda: Pad((-1,), (0,)),
    "one after nothing": lambda: output_shape(Concat(0), (2,)),
    "side by side": lambda: output_shape(Concat(0), (2, 3), (2, 4)),
    "of two ranks": lambda: output_shape(Concat(0), (2,), (2, 1)),
    "along nothing": lambda: output_shape(Concat(1), (2,), (2,)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        REFUSED[name]()


def test_descriptions_come_back_and_say_no_more_than_before() -> None:
    layers: tuple[Layer, ...] = (
        Conv2d(2, 4, 3, 1, (1, 0, 1, 2), dilation=(1, 2), groups=2),
        Scale((4, 1, 1)),
        MaxPool2d(2, 1, (1, 0)),
        Permute((2, 0, 1)),
        Take(1, (3, 0)),
        Pad((0, 1, 0), (0, 0, 0)),
        Concat(1),
        ReLU(),
        Flatten(),
    )
    reads = (*((k,) for k in range(6)), (6, 6), (7,), (8,))
    size = Network((2, 4, 4), layers, reads).shapes[-1][0]
    network = Network((2, 4, 4), (*layers, Reshape((1, size)), Flatten()), (*reads, (9,), (10,)))
    assert from_description(network.describe()) == network
    plain = Network((1, 4, 4), (Conv2d(1, 1, 3), AvgPool2d(2), Flatten()))
    assert [sorted(entry) for entry in plain.describe()["layers"]] == [
        ["bias", "in_channels", "kernel", "out_channels", "padding", "stride", "type"],
        ["kernel", "stride", "type"],
        ["type"],
    ]
