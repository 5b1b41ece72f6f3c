"""Architectures of torch modules: the network computes what the module computes, and what cannot be
read is named."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bnncert import InputError, from_torch
from bnncert.importers.module import read
from bnncert.layers import (
    ELU,
    GELU,
    SELU,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    HardSwish,
    Hardtanh,
    LeakyReLU,
    MaxPool2d,
    Mish,
    PReLU,
    ReLU,
    SiLU,
    Softplus,
    Softsign,
    Tanh,
)
from bnncert.model.layers import Layer
from modules import assert_same, shaken, values
from scenarios import uniform

IMAGE = (2, 9, 8)


class Functions(nn.Module):
    """Every way to flatten and every function, in a forward that also returns something else."""

    def __init__(self, flatten: Callable[[Tensor], Tensor] = lambda x: x.flatten(1)) -> None:
        super().__init__()
        self.body = nn.ModuleDict(
            {"conv": nn.Conv2d(2, 3, 3, stride=2, padding=1), "out": nn.Linear(12, 4)}
        )
        self.flatten = flatten

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = functional.relu(self.body["conv"](x), inplace=True)
        x = functional.max_pool2d(x, 2)
        x = functional.avg_pool2d(torch.tanh(x), (1, 1))
        x = functional.dropout(x, 0.0, training=self.training)
        x = functional.leaky_relu(self.flatten(x), 0.3).sigmoid()
        if scale != 1.0:
            x = scale * x
        return self.body["out"](x).relu()


FLATTENINGS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.flatten(1),
    lambda x: x.flatten(start_dim=1),
    lambda x: torch.flatten(x, 1),
    lambda x: x.view(x.size(0), -1),
    lambda x: x.view(x.size()[0], 12),
    lambda x: x.reshape(x.shape[0], -1),
    lambda x: torch.reshape(x, (-1, 12)),
    lambda x: x.view((-1, 12)),
    lambda x: x.view(-1, 3, 2, 2).flatten(1),
]


@pytest.mark.parametrize("flatten", FLATTENINGS)
def test_functions_and_flattenings(flatten: Callable[[Tensor], Tensor]) -> None:
    module = Functions(flatten)
    reading = read(module, IMAGE)
    assert_same(module, reading)
    kinds = [type(layer).__name__ for layer in reading.network.layers]
    expected = [
        "Conv2d",
        "ReLU",
        "MaxPool2d",
        "Tanh",
        "AvgPool2d",
        "Flatten",
        "LeakyReLU",
        "Sigmoid",
        "Dense",
        "ReLU",
    ]
    assert kinds == expected
    assert {name: source.name for name, source in reading.sources.items()} == {
        "W0": "body.conv.weight",
        "b0": "body.conv.bias",
        "W1": "body.out.weight",
        "b1": "body.out.bias",
    }


def convolutional(bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(
            nn.Conv2d(2, 3, 3, padding="same", bias=bias),
            nn.Identity(),
            nn.BatchNorm2d(3),
            nn.LeakyReLU(0.2),
        ),
        nn.AvgPool2d(2),
        nn.Conv2d(3, 4, (2, 3), stride=(1, 2), padding=(1, 0), bias=bias),
        nn.BatchNorm2d(4, affine=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.MaxPool2d((2, 1), stride=1),
        nn.Flatten(),
        nn.Linear(16, 5, bias=bias),
        nn.BatchNorm1d(5),
        nn.Sigmoid(),
        nn.Linear(5, 3, bias=bias),
    )


@pytest.mark.parametrize("bias", [True, False])
def test_nested_sequences_and_folded_normalisation(bias: bool) -> None:
    module = shaken(convolutional(bias))
    module.train()
    reading = read(module, IMAGE)
    assert module.training
    assert all(each.training for each in module.modules())
    assert_same(module, reading)
    assert reading.network.layers == (
        Conv2d(2, 3, (3, 3), (1, 1), (1, 1)),
        LeakyReLU(0.2),
        AvgPool2d((2, 2)),
        Conv2d(3, 4, (2, 3), (1, 2), (1, 0)),
        Tanh(),
        MaxPool2d((2, 1), (1, 1)),
        Flatten(),
        Dense(16, 5),
        *reading.network.layers[8:9],
        Dense(5, 3, bias),
    )
    assert reading.sources["b0"].name == ("0.0.bias" if bias else None)


def test_standard_deviations_take_the_scale_without_its_sign_and_no_shift() -> None:
    norm = nn.BatchNorm1d(2, eps=0.0)
    norm.running_mean.copy_(torch.tensor([3.0, 5.0]))  # type: ignore[operator, union-attr]
    norm.running_var.copy_(torch.tensor([4.0, 0.25]))  # type: ignore[operator, union-attr]
    norm.weight.data.copy_(torch.tensor([-1.0, 3.0]))
    norm.bias.data.copy_(torch.tensor([7.0, 11.0]))
    reading = read(nn.Sequential(nn.Linear(2, 2), norm))
    given = {"0.weight": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "0.bias": torch.tensor([1.0, 2.0])}
    # s = (-1/2, 6), shift = 7 + 3/2 and 11 - 30
    assert reading.flat(given).tolist() == [-0.5, 18.0, -1.0, 24.0, 8.0, -7.0]
    assert reading.flat(given, shift=False).tolist() == [0.5, 18.0, 1.0, 24.0, 0.5, 12.0]
    assert reading.directions(given).tolist() == [-0.5, 18.0, -1.0, 24.0, -0.5, 12.0]


def test_leading_dimensions_are_kept() -> None:
    module = shaken(
        nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    )
    reading = read(module)
    draws = {name: torch.randn(7, *value.shape) for name, value in values(module).items()}
    rows = [reading.flat({name: value[i] for name, value in draws.items()}) for i in range(7)]
    assert torch.equal(reading.flat(draws), torch.stack(rows))


def test_values_that_do_not_fit_are_refused() -> None:
    reading = read(nn.Linear(3, 2))
    weight, bias = torch.zeros(2, 3), torch.zeros(2)
    assert reading.flat({"weight": weight, "bias": bias}).shape == (8,)
    with pytest.raises(InputError, match="'bias'"):
        reading.flat({"weight": weight})
    with pytest.raises(InputError, match=r"shape \(2, 3\)"):
        reading.flat({"weight": weight.T, "bias": bias})
    with pytest.raises(InputError, match="int64"):
        reading.flat({"weight": weight.long(), "bias": bias})


def test_the_input_shape_is_that_of_the_first_linear_layer() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.ReLU(), nn.Linear(3, 2))
    assert read(module).network.input_shape == (12,)
    assert read(module).network.layers[0] == Dense(12, 3)
    image = read(module, (3, 2, 2)).network
    assert image.layers[0] == Flatten()
    assert image.input_shape == (3, 2, 2)


@pytest.mark.parametrize(
    "last", [nn.Softmax(dim=1), nn.LogSoftmax(-1), nn.Sequential(nn.Softmax(1), nn.Identity())]
)
def test_a_softmax_at_the_end_is_dropped(last: nn.Module) -> None:
    module = nn.Sequential(nn.Linear(4, 3), last)
    reading = read(module)
    assert reading.network.layers == (Dense(4, 3),)
    x = uniform(50, 4, generator=torch.Generator().manual_seed(0))
    found = reading.network.forward(reading.flat(values(module)), x).argmax(-1)
    assert torch.equal(found, module.double()(x).argmax(-1))


def test_dropout_is_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"^1: Dropout.*not Monte Carlo dropout"):
        reading = read(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.ReLU(), nn.Linear(3, 2)))
    assert reading.network.layers == (Dense(4, 3), ReLU(), Dense(3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)))


class Marking(nn.Module):
    """A forward that writes what it sees onto the module."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.seen = "nothing"

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.fc(x)
        return torch.relu(self.seen)


def test_the_module_is_left_as_it_was() -> None:
    module = Marking().train()
    module.fc.eval()
    read(module)
    assert module.seen == "nothing"
    assert (module.training, module.fc.training) == (True, False)


class Forward(nn.Module):
    """Two layers and a forward of one's own."""

    def __init__(self, forward: Callable[[Forward, Tensor], object]) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout(0.0)
        self.scale = nn.Parameter(torch.ones(4))
        self.run = forward

    def forward(self, x: Tensor) -> object:
        return self.run(self, x)


class Always(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.p, training=True)


def conv(**options: object) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 2, 3, **options), nn.Flatten())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.Tanhshrink()), r"^1: Tanhshrink is not supported; what"),
        (nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.LSTM(3, 3))), r"^1\.0: LSTM is not supp"),
        (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)), "^1: LayerNorm .* a BatchNorm can be"),
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False)),
            "no running statistics",
        ),
        (
            nn.Sequential(nn.Linear(4, 3), nn.BatchNorm2d(3)),
            r"1: BatchNorm2d does not take shape \(3,\)",
        ),
        (
            nn.Sequential(nn.Linear(4, 3), nn.Softmax(1), nn.Linear(3, 2)),
            r"1: Softmax is not the last",
        ),
        (nn.Sequential(nn.Linear(4, 3), nn.Softmax(0)), "is not the last"),
        (nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 2)), r"1: Linear does not fit: Dense\(4, 2\)"),
        (nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)), r"1: Flatten mixes the examples"),
        (nn.Sequential(nn.ReLU(), nn.Flatten()), "nothing to certify"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))), "weight of others"),
        (nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 3))), "0: Linear makes a weight of oth"),
        (
            nn.Sequential(nn.Linear(4, 3), Always(0.5)),
            r"1: Always \(test_module.py:\d+\): dropout stays on in evaluation",
        ),
        (
            Forward(lambda m, x: m.a(x)[0]),
            r"Forward \(test_module.py:\d+\): indexing mixes the examples of a batch or takes some",
        ),
        (
            Forward(lambda m, x: m.a(x) if x.sum() > 0 else m.b(x)),
            r"Forward \(test_module.py:\d+\) decides by values of inputs",
        ),
        (Forward(lambda m, x: {"logits": m.a(x)}), "returns outputs 'logits'; .*output='logits'"),
        (Forward(lambda m, x: m.a(x).view(4, -1)), "mixes the examples"),
        (Forward(lambda m, x: m.a(x).view(-1, 2)), "mixes the examples"),
        (Forward(lambda m, x: m.a(x).flatten()), "flatten mixes the examples"),
        (Forward(lambda m, x: m.a(functional.dropout(x))), "stays on in evaluation"),
        (nn.Sequential(nn.LazyLinear(2)), "'0.weight' has no shape yet"),
    ],
)
def test_what_cannot_be_read_is_named(module: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read(module)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (conv(padding_mode="reflect", padding=1), "0: Conv2d with mode='reflect'"),
        (
            nn.Sequential(nn.Conv2d(2, 2, 3), nn.MaxPool2d(2, dilation=2)),
            r"1: MaxPool2d has dilation",
        ),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.AvgPool2d(2, ceil_mode=True)), "ceil_mode"),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.AvgPool2d(2, divisor_override=3)), "divisor"),
        (
            nn.Sequential(nn.AvgPool2d(3, padding=1, count_include_pad=False)),
            "count_include_pad=False",
        ),
        (nn.Sequential(nn.AdaptiveAvgPool2d(4)), r"makes \(4, 4\) windows of \(9, 8\)"),
        (nn.Sequential(nn.Conv2d(3, 2, 3)), r"does not fit: Conv2d follows shape \(2, 9, 8\)"),
        (nn.Sequential(nn.Conv2d(2, 2, 3), nn.Linear(6, 2)), "1: Linear does not fit: Dense"),
        (nn.Sequential(nn.Conv2d(2, 2, 3)), "its output must be a vector"),
        (nn.Sequential(nn.ConvTranspose2d(2, 2, 3)), r"0: ConvTranspose2d is not supported"),
    ],
)
def test_convolutions_that_cannot_be_read_are_named(module: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(module, IMAGE)


def test_images_need_an_input_shape() -> None:
    for first in (nn.Conv2d(2, 2, 3), nn.AvgPool2d(2)):
        with pytest.raises(InputError, match="input_shape="):
            read(nn.Sequential(first, nn.Flatten(), nn.Linear(math.prod(IMAGE), 2)))


ACTIVATIONS: list[tuple[nn.Module, Layer]] = [
    (nn.GELU(), GELU()),
    (nn.GELU("tanh"), GELU("tanh")),
    (nn.SiLU(), SiLU()),
    (nn.Mish(), Mish()),
    (nn.Softplus(), Softplus()),
    (nn.Softplus(2.0, threshold=30), Softplus(2.0)),
    (nn.ELU(0.5), ELU(0.5)),
    (nn.SELU(), SELU()),
    (nn.Hardswish(), HardSwish()),
    (nn.Softsign(), Softsign()),
    (nn.ReLU6(), Hardtanh(0, 6)),
    (nn.Hardtanh(-0.5, 0.25), Hardtanh(-0.5, 0.25)),
    (nn.PReLU(init=0.125), PReLU(0.125)),
    (nn.PReLU(4, init=-0.5), PReLU((-0.5,) * 4, (4,))),
]


@pytest.mark.parametrize(("module", "layer"), ACTIVATIONS, ids=str)
def test_activations_are_read(module: nn.Module, layer: Layer) -> None:
    """And compared with the module on a random input, by `from_torch` itself."""
    network, _ = from_torch(nn.Sequential(nn.Linear(3, 4), module, nn.Linear(4, 2)), std=0.1)
    assert network.layers[1] == layer


def test_channels_have_slopes_of_their_own() -> None:
    module = nn.Sequential(nn.Conv2d(1, 3, 2), nn.PReLU(3), nn.Flatten(), nn.Linear(12, 2))
    nn.init.normal_(module[1].weight)
    network, _ = from_torch(module, std=0.1, input_shape=(1, 3, 3))
    slopes = tuple(module[1].weight.double().tolist())
    assert network.layers[1] == PReLU(slopes, (3, 1, 1))


class Curves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.gelu(self.a(x), approximate="tanh")
        x = functional.silu(functional.mish(functional.softplus(functional.elu(x, 0.5))))
        x = functional.hardswish(functional.softsign(functional.relu6(torch.selu(x))))
        return self.b(functional.hardtanh(functional.gelu(x), -0.5, 0.5))


def test_functions_are_read() -> None:
    network, _ = from_torch(Curves(), std=0.1)
    assert network.layers[1:-1] == (
        GELU("tanh"),
        ELU(0.5),
        Softplus(),
        Mish(),
        SiLU(),
        SELU(),
        Hardtanh(0, 6),
        Softsign(),
        HardSwish(),
        GELU(),
        Hardtanh(-0.5, 0.5),
    )


def test_a_softplus_that_is_cut_off_early_is_refused() -> None:
    with pytest.raises(InputError, match="threshold=5"):
        from_torch(nn.Sequential(nn.Linear(2, 2), nn.Softplus(threshold=5)), std=0.1)
