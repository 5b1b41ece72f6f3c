"""Forwards that are no chains: the network computes what the module computes, to the last digits,
and what would be something else for every batch is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bnncert import InputError, from_torch
from bnncert.importers.module import read
from modules import assert_same, shaken, values

WIDTH = 6


class Forward(nn.Module):
    """Some layers, constants, and a forward of one's own."""

    def __init__(self, forward: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.relu = nn.BatchNorm1d(WIDTH), nn.ReLU(inplace=True)
        self.register_buffer("mean", torch.rand(WIDTH))
        self.scale = nn.Parameter(torch.rand(WIDTH))
        self.alone = nn.BatchNorm1d(WIDTH, affine=False)
        self.run = forward
        shaken(self)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def rows(x: Tensor) -> Tensor:
    return x.view(-1, 2, 3)


def in_place(m: Any, x: Tensor) -> Tensor:
    """An activation changes what the shortcut reads."""
    y = m.a(x)
    return m.b(m.relu(y)) + y


def in_place_sum(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    z = y
    y += m.b(x)
    return y + z


def in_place_method(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    y.add_(1.0).relu_()
    return y - x


def parts(m: Any, x: Tensor) -> Tensor:
    p, q, r = m.a(x).split([1, 2, 3], dim=1)
    return torch.cat([r, torch.tanh(p), q], -1)


def by_shape(m: Any, x: Tensor) -> Tensor:
    if x.dim() > 2 or len(x.shape) > 3:
        x = x.flatten(1)
    batch, *sizes = x.size()
    y = m.a(x).reshape(batch, sizes[0] // 2, -1)
    return y.view(y.shape[0], -1)[:, : x.size(-1) - 1]


def by_a_flag(m: Any, x: Tensor) -> Tensor:
    return m.a(x) if m.mean.sum() > 0 else m.b(x)


def in_place_by_position(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    return torch.nn.functional.leaky_relu(y, 0.5, True) - 2 * y


VECTORS: dict[str, tuple[Callable[[Any, Tensor], Any], list[str]]] = {
    "sum": (lambda m, x: m.b(torch.relu(m.a(x))) + x, ["Dense", "ReLU", "Dense", "Add"]),
    "several": (
        lambda m, x: sum([x, m.a(x), m.b(x)]),
        ["Dense", "Dense", "Add", "Add"],
    ),
    "alpha": (lambda m, x: torch.add(m.a(x), m.b(x), alpha=2.0), ["Dense", "Dense", "Add"]),
    "difference": (lambda m, x: x - m.a(x), ["Dense", "Add"]),
    "sub": (lambda m, x: torch.sub(m.a(x), x, alpha=0.5), ["Dense", "Scale", "Add"]),
    "keywords": (lambda m, x: torch.mul(input=m.a(input=x), other=3.0), ["Dense"]),
    "twice": (lambda m, x: x + m.a(x) + m.a(x), ["Dense", "Add", "Dense", "Add"]),
    "in place": (in_place, ["Dense", "ReLU", "Dense", "Add"]),
    "in place, sum": (in_place_sum, ["Dense", "Dense", "Add", "Add"]),
    "in place, method": (in_place_method, ["Dense", "ReLU", "Scale", "Add"]),
    "in place, by position": (in_place_by_position, ["Dense", "LeakyReLU", "Scale", "Add"]),
    "standardised": (lambda m, x: m.a((x - 0.3) / 0.4), ["Scale", "Dense"]),
    "by buffers": (lambda m, x: m.a((x - m.mean) / m.mean.sqrt()), ["Scale", "Dense"]),
    "reversed": (lambda m, x: 1 - m.a(-x), ["Scale", "Dense"]),
    "normalisation first": (lambda m, x: m.a(m.norm(x)), ["Scale", "Dense"]),
    "normalisation alone": (lambda m, x: m.norm(torch.relu(m.a(x))), ["Dense", "ReLU", "Scale"]),
    "normalisation twice": (lambda m, x: m.alone(m.norm(m.a(x))), ["Dense"]),
    "normalisation beside": (
        lambda m, x: m.norm(m.a(x)) + m.a(x),
        ["Dense", "Dense", "Add"],
    ),
    "normalisation, read before": (
        lambda m, x: (lambda y: m.norm(y) + y)(m.a(x)),
        ["Dense", "Scale", "Add"],
    ),
    "functions": (
        lambda m, x: functional.batch_norm(
            functional.linear(x, m.a.weight, m.a.bias), m.norm.running_mean, m.norm.running_var
        ),
        ["Dense"],
    ),
    "parts": (parts, ["Dense", "Take", "Take", "Take", "Tanh", "Concat"]),
    "chunks": (
        lambda m, x: torch.cat(m.a(x).chunk(3, 1)[::-1], 1),
        ["Dense", "Take", "Take", "Take", "Concat"],
    ),
    "slices": (lambda m, x: m.a(x)[:, 1:-1:2], ["Dense", "Take"]),
    "list": (lambda m, x: m.a(x)[:, [4, 0, 2]], ["Dense", "Take"]),
    "mask": (lambda m, x: m.a(x)[..., m.mean > 0.4], ["Dense", "Take"]),
    "one column": (lambda m, x: m.a(x)[:, 2], ["Dense", "Take"]),
    "squeezed": (lambda m, x: m.a(x)[:, :1].squeeze(-1), ["Dense", "Take"]),
    "narrow": (lambda m, x: torch.narrow(m.a(x), 1, 2, 3), ["Dense", "Take"]),
    "flipped": (lambda m, x: m.a(x).flip(1), ["Dense", "Take"]),
    "rolled": (lambda m, x: torch.roll(m.a(x), 2, 1), ["Dense", "Take"]),
    "transposed": (
        lambda m, x: m.b(rows(m.a(x)).transpose(1, 2).flatten(1)),
        ["Dense", "Reshape", "Permute", "Flatten", "Dense"],
    ),
    "permuted": (
        lambda m, x: rows(m.a(x)).permute(0, -1, 1).reshape(x.shape[0], -1),
        ["Dense", "Reshape", "Permute", "Flatten"],
    ),
    "moved": (
        lambda m, x: torch.movedim(rows(m.a(x)), 2, 1).flatten(1),
        ["Dense", "Reshape", "Permute", "Flatten"],
    ),
    "mT": (lambda m, x: rows(m.a(x)).mT.flatten(1), ["Dense", "Reshape", "Permute", "Flatten"]),
    "reshaped and back": (lambda m, x: m.a(rows(x).unsqueeze(1).flatten(1)), ["Dense"]),
    "grid": (
        lambda m, x: rows(m.a(x))[:, :1, 1:].flatten(1),
        ["Dense", "Reshape", "Take", "Take", "Flatten"],
    ),
    "stacked": (
        lambda m, x: torch.stack([m.a(x), x], 2)[..., 1],
        ["Dense", "Reshape", "Reshape", "Concat", "Take", "Flatten"],
    ),
    "unbound": (
        lambda m, x: torch.cat(rows(m.a(x)).unbind(1), 1),
        ["Dense", "Reshape", "Take", "Flatten", "Take", "Flatten", "Concat"],
    ),
    "mean": (lambda m, x: rows(m.a(x)).mean(2), ["Dense", "Reshape", "AvgPool2d", "Flatten"]),
    "mean of all": (
        lambda m, x: m.a(x).mean(-1, keepdim=True),
        ["Dense", "Reshape", "AvgPool2d", "Flatten"],
    ),
    "total": (
        lambda m, x: rows(m.a(x)).sum((1, 2)),
        ["Dense", "Reshape", "AvgPool2d", "Reshape", "AvgPool2d", "Scale", "Flatten"],
    ),
    "padded": (lambda m, x: functional.pad(m.a(x), (1, 2)), ["Dense", "Pad"]),
    "by shape": (by_shape, ["Dense", "Take"]),
    "by a flag": (by_a_flag, ["Dense"]),
    "made on the way": (lambda m, x: nn.ReLU()(m.a(nn.Identity()(x))), ["Dense", "ReLU"]),
    "moved between types": (lambda m, x: m.a(x.to(x.dtype).contiguous().clone()), ["Dense"]),
}


@pytest.mark.filterwarnings("ignore:.*taken as certain:UserWarning")
@pytest.mark.parametrize("name", VECTORS)
def test_forwards_on_vectors(name: str) -> None:
    forward, kinds = VECTORS[name]
    module = Forward(forward)
    reading = read(module, (WIDTH,))
    assert [type(layer).__name__ for layer in reading.network.layers] == kinds
    x = torch.randn(5, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = reading.network.forward(reading.flat(values(module)), x)
    with torch.no_grad():
        expected = module.double().eval()(x.clone())
    torch.testing.assert_close(found, expected.reshape(found.shape), rtol=1e-12, atol=1e-12)
    from_torch(Forward(forward), (WIDTH,), std=0.0)  # agrees in the module's own float32, too


IMAGE = (2, 6, 6)
IMAGES: dict[str, tuple[nn.Module, list[str]]] = {
    "groups": (nn.Conv2d(2, 4, 3, groups=2, dilation=(2, 1)), ["Conv2d"]),
    "same, even": (nn.Conv2d(2, 3, (2, 4), padding="same", dilation=(1, 1)), ["Conv2d"]),
    "depthwise": (nn.Conv2d(2, 2, (3, 1), (1, 2), (1, 0), groups=2), ["Conv2d"]),
    "maximum with padding": (nn.MaxPool2d(3, 2, 1), ["MaxPool2d"]),
    "maximum over the end": (nn.MaxPool2d((3, 2), 3, ceil_mode=True), ["MaxPool2d"]),
    "maximum over the end, padded": (nn.MaxPool2d(4, 3, 1, ceil_mode=True), ["MaxPool2d"]),
    "mean with padding": (nn.AvgPool2d(3, 2, 1), ["AvgPool2d"]),
    "mean, ceil without effect": (nn.AvgPool2d(2, ceil_mode=True), ["AvgPool2d"]),
    "adaptive": (nn.AdaptiveAvgPool2d((3, None)), ["AvgPool2d"]),
    "adaptive maximum": (nn.AdaptiveMaxPool2d(2), ["MaxPool2d"]),
    "adaptive, no change": (nn.AdaptiveAvgPool2d(6), []),
    "zeros": (nn.ZeroPad2d((1, 0, 2, 1)), ["Pad"]),
    "normalised": (nn.BatchNorm2d(2), ["Scale"]),
    "shuffled": (nn.ChannelShuffle(2), []),
    "pixels": (nn.PixelUnshuffle(2), ["Flatten", "Take", "Reshape"]),
    "unflattened": (nn.Sequential(nn.Flatten(2), nn.Unflatten(2, (4, 9))), []),
}


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
@pytest.mark.parametrize("name", IMAGES)
def test_layers_on_images(name: str) -> None:
    layer, kinds = IMAGES[name]
    torch.manual_seed(0)
    module = shaken(nn.Sequential(nn.Conv2d(2, 2, 1), layer, nn.Tanh(), nn.Flatten())).eval()
    reading = read(module, IMAGE)
    assert_same(module, reading)
    found = [type(each).__name__ for each in reading.network.layers]
    assert found[0] == "Conv2d"
    if name != "normalised":  # folded
        assert [kind for kind in found[1:] if kind not in ("Tanh", "Flatten", "Reshape")] == [
            kind for kind in kinds if kind not in ("Flatten", "Reshape")
        ]


REFUSED: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "product": (lambda m, x: m.a(x) * m.b(x), r"\(test_graphs.py:\d+\): \* of two activations"),
    "quotient": (lambda m, x: m.a(x) / m.b(x), "/ by an activation"),
    "of nothing": (lambda m, x: m.a(x) / 0, "not finite, or by 0"),
    "across the batch, mean": (lambda m, x: m.a(x) - m.a(x).mean(0), "mean runs over the examples"),
    "across the batch, roll": (lambda m, x: m.a(x).roll(1, 0), "roll mixes the examples"),
    "across the batch, flip": (lambda m, x: m.a(x).flip(0), "flip mixes the examples"),
    "across the batch, T": (lambda m, x: m.a(x).T, "T mixes the examples"),
    "across the batch, transpose": (
        lambda m, x: m.a(x).transpose(0, 1).reshape(-1, WIDTH),
        "transpose mixes the examples",
    ),
    "across the batch, index": (
        lambda m, x: m.a(x)[torch.arange(len(x)).flip(0)],
        "indexing mixes the examples",
    ),
    "across the batch, cat": (lambda m, x: torch.cat([m.a(x), x]), "cat joins the examples"),
    "across the batch, stack": (lambda m, x: torch.stack([m.a(x), x]).mean(0), "stack joins the"),
    "across the batch, pad": (
        lambda m, x: functional.pad(m.a(x), (0, 0, 0, 1)),
        "pad adds examples",
    ),
    "across the batch, loop": (lambda m, x: torch.stack([m.a(row) for row in x]), "one by one"),
    "across the batch, softmax": (lambda m, x: m.a(x).softmax(0), "softmax is not the last"),
    "every example its own": (
        lambda m, x: m.a(x) + torch.arange(len(x)).unsqueeze(1),
        r"\+ with a constant that differs between the examples",
    ),
    "by the batch": (lambda m, x: m.a(x) / len(x), "computes something else"),
    "for one batch": (lambda m, x: m.a(x).view(7, -1), "does not take any number of inputs"),
    "broadcast": (lambda m, x: m.a(x)[:, :1] + m.b(x), r"\+ of shapes \(1,\) and \(6,\)"),
    "broadcast by a constant": (lambda m, x: m.a(x)[:, :1] + m.mean, r"\+ of shapes"),
    "one example": (lambda m, x: m.a(x[0]).expand(len(x), -1), "indexing mixes the examples"),
    "repeated": (lambda m, x: m.a(x)[:, [1, 1]], "indexing repeats entries"),
    "picked by the input": (lambda m, x: m.a(x)[:, x[0].long()], "indexing mixes|long"),
    "assigned": (lambda m, x: m.a(x).__setitem__(0, 1), "assignment to a part is not supported"),
    "random": (lambda m, x: m.a(x) + torch.randn_like(m.scale), "randn_like makes a weight"),
    "random constant": (lambda m, x: m.a(x) + torch.rand(WIDTH), "computes something else"),
    "half precision": (
        lambda m, x: m.a(x.to(torch.float16).to(x.dtype)),
        "computes in torch.float16",
    ),
    "decided": (lambda m, x: m.a(x) if x.max() > 0 else m.b(x), "decides by values of inputs"),
    "decided by weights": (lambda m, x: m.a(x) if m.scale.sum() > 0 else x, "decides by values"),
    "own layer": (lambda m, x: nn.Linear(WIDTH, 2)(m.a(x)), "Linear that is none of its submod"),
    "weights of others": (
        lambda m, x: functional.linear(x, m.a.weight * m.scale),
        "linear has a weight made of others",
    ),
    "weights by the input": (lambda m, x: functional.linear(x, m.a(x)), "depends on the input"),
    "dropout": (lambda m, x: functional.dropout(m.a(x), training=True), "stays on in evaluation"),
    "attention": (
        lambda m, x: functional.scaled_dot_product_attention(m.a(x), x, x),
        "attention multiplies activations",
    ),
    "trained": (lambda m, x: m.norm.train()(m.a(x)), "norm: BatchNorm1d .* is set to training"),
    "unknown": (lambda m, x: torch.fft.fft(m.a(x)).real, r"fft_fft is not supported; what can"),
}


@pytest.mark.filterwarnings("ignore:.*taken as certain:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_network_of_one_example_is_refused(name: str) -> None:
    forward, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as error:
        from_torch(Forward(forward), (WIDTH,), std=0.0)
    assert "\n" not in str(error.value)
    assert "getitem" not in str(error.value)


def test_what_leads_nowhere_is_not_looked_at() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        torch.fft.fft(m.b(x))
        return m.a(x)

    reading = read(Forward(forward), (WIDTH,))
    assert len(reading.network.layers) == 1


def test_changes_in_place_through_a_view_are_read_from_the_exported_graph() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        rows(y).relu_()
        return m.b(y)

    reading = read(Forward(forward), (WIDTH,))
    assert [type(layer).__name__ for layer in reading.network.layers] == ["Dense", "ReLU", "Dense"]
    from_torch(Forward(forward), (WIDTH,), std=0.0)


def test_parameters_in_sums_and_products_are_certain_and_said() -> None:
    module = Forward(lambda m, x: m.a(x) * m.scale + m.b.bias)
    with pytest.warns(UserWarning, match=r"^b\.bias, scale: in a sum or product, taken as certain"):
        network, posterior = from_torch(module, (WIDTH,), std=0.1)
    assert len(network.layers) == 1
    expected = 0.1 * module.scale.detach().double()
    torch.testing.assert_close(network.split(posterior.std)[0][1], expected)


def test_the_shape_is_asked_for_where_it_is_needed() -> None:
    module = Forward(by_shape)
    with pytest.raises(InputError, match=r"Forward \(.*\) depends on the shape .* input_shape="):
        read(module)
    assert read(module, (2, 3)).network.shapes[:2] == ((2, 3), (6,))
    # A standardisation, a normalisation, an activation leave the shape to the layer after them.
    for forward in (
        lambda m, x: m.a((x.view(x.size(0), -1) - 0.3) / 0.4),
        lambda m, x: m.a(torch.relu(x)),
        lambda m, x: m.a(m.norm(x)),
    ):
        assert read(Forward(forward)).network.input_shape == (WIDTH,)


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 2)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.net(x + y)


def test_a_module_of_two_inputs_is_refused() -> None:
    with pytest.raises(InputError, match="takes more than one input"):
        read(Several(), (2,))


def test_constants_are_what_they_are_in_python() -> None:
    """0.1 in a forward is the float64 of that name, a tensor the float32 that it holds."""
    number, tensor = (
        read(Forward(forward), (WIDTH,))
        for forward in (lambda m, x: m.a(x * 0.1), lambda m, x: m.a(x * torch.tensor(0.1)))
    )
    assert number.sources["W0"].shift.item() == 0.1
    assert tensor.sources["W0"].shift.item() == torch.tensor(0.1).double().item() != 0.1
