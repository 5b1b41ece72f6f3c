"""Convolutions and pooling: the same numbers as the network written as dense layers, and nothing
sampled escapes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bnncert import Concentration, Problem, certify
from bnncert.bounds import BOUNDS, linear
from bnncert.concentration import slopes
from bnncert.concentration import trace as tracing
from bnncert.concentration.proof import plain_bounds
from bnncert.errors import InputError
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, LeakyReLU, MaxPool2d, ReLU
from bnncert.model.box import Box
from bnncert.model.layers import Layer, Linear, output_shape
from bnncert.model.maps import pull, spread_bias, through, weight_gradients
from bnncert.model.network import Network
from bnncert.posteriors import LowRankNormal, Normal
from bnncert.posteriors.base import sample
from convolutions import SHAPE, network, problem
from scenarios import gaussian as normals
from scenarios import sample_box, uniform


def unrolled(net: Network) -> tuple[Network, Tensor]:
    """The network with every linear layer dense, and the map [dense weights, weights] between their
    weight vectors."""
    layers: list[Layer] = [Flatten()]
    parts, start = [], 0
    for layer, shape in zip(net.layers, net.shapes, strict=False):
        if not isinstance(layer, Linear):
            layers += [] if isinstance(layer, Flatten) else [layer]
            continue
        inputs, outputs = math.prod(shape), math.prod(output_shape(layer, shape))
        layers.append(Dense(inputs, outputs))
        basis = torch.eye(inputs, dtype=torch.float64).reshape(inputs, *shape)
        own = sum(math.prod(s) for s in ([] if isinstance(layer, AvgPool2d) else [(0,)]))
        size = math.prod(layer_weights(layer)) if not isinstance(layer, AvgPool2d) else own
        columns = torch.zeros(inputs * outputs + outputs, net.size, dtype=torch.float64)
        for k in range(size):
            unit = torch.zeros(size, dtype=torch.float64)
            unit[k] = 1
            columns[: inputs * outputs, start + k] = through(
                layer, unit.reshape(layer_weights(layer)), basis
            ).flatten()
        start += size
        if not isinstance(layer, AvgPool2d) and layer.bias:
            channels = layer.outputs if isinstance(layer, Dense) else layer.out_channels
            for k in range(channels):
                unit = torch.zeros(channels, dtype=torch.float64)
                unit[k] = 1
                columns[inputs * outputs :, start + k] = spread_bias(layer, unit, shape).flatten()
            start += channels
        parts.append(columns)
    return Network(net.input_shape, tuple(layers)), torch.cat(parts)


def layer_weights(layer: Linear) -> tuple[int, ...]:
    if isinstance(layer, Dense):
        return (layer.inputs, layer.outputs)
    if isinstance(layer, Conv2d):
        return (layer.out_channels, layer.in_channels, *layer.kernel)
    raise TypeError("a pool has no weights")


@pytest.mark.parametrize("seed", range(6))
def test_bounds_equal_those_of_the_dense_network(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IBP and LBP over weight boxes, where every neuron has its rows."""
    monkeypatch.setattr(
        linear,
        "worth_rows",
        lambda _network, _k, z, _random: torch.ones_like(z.lower.flatten(1)) > 0,
    )
    made = problem(seed, network(seed, (ReLU(), LeakyReLU(0.2))[seed % 2], pools=False))
    posterior, spec = made.posterior, made.specification
    assert isinstance(posterior, Normal)
    dense, matrix = unrolled(made.network)
    weights = torch.stack(
        [posterior.mean - posterior.std, posterior.mean, posterior.mean + posterior.std]
    )
    same = weights @ matrix.T
    x = spec.region.center
    torch.testing.assert_close(
        dense.forward(same[1], x), made.network.forward(weights[1], x), rtol=1e-12, atol=1e-12
    )
    for bound in ("ibp", "lbp"):
        ours = BOUNDS[bound](
            made.network, Box(weights[0], weights[2]), spec.region, spec.rows, spec.offsets
        )
        theirs = BOUNDS[bound](dense, Box(same[0], same[2]), spec.region, spec.rows, spec.offsets)
        signed = seed % 2 or (bound == "ibp" and not bool((spec.region.box.lower >= 0).all()))
        # interval arithmetic of a random kernel with signed inputs takes a radius instead of
        # corners
        if signed:
            assert bool((ours <= theirs + 1e-9).all())
        else:
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_concentration_equals_that_of_the_dense_network(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel shared by all places is a dense layer with one shared coordinate a kernel entry."""
    monkeypatch.setattr(
        tracing,
        "worth_rows",
        lambda _network, _k, z, _random: torch.ones_like(z.lower.flatten(1)) > 0,
    )
    monkeypatch.setattr(tracing, "_better", lambda _first, second, _t: second)
    monkeypatch.setattr(slopes, "stands_alone", lambda _step: False)  # shared noise does not
    made = problem(seed, network(seed, ReLU(), pools=False), std=0.05)
    posterior = made.posterior
    assert isinstance(posterior, Normal)
    dense, matrix = unrolled(made.network)
    mean, factor = posterior.mean @ matrix.T, matrix * posterior.std
    shared = LowRankNormal(mean, torch.zeros_like(mean), factor)
    ours, t = plain_bounds(made, posterior)
    theirs, same = plain_bounds(Problem(dense, shared, made.specification), shared)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert t.tolist() == same.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_certain_layers_need_be_walked_only_once(seed: int) -> None:
    """Bounds with a prefix are the bounds without it, for one box and for one box an input."""
    made = problem(seed, network(seed))
    net, spec = made.network, made.specification
    assert isinstance(made.posterior, Normal)
    last = net.split(torch.arange(net.size))[-1]
    spread = torch.zeros(net.size, dtype=torch.float64)
    spread[torch.cat([part.flatten() for part in last])] = 0.1
    known = linear.prefix(net, made.posterior.mean, spread, spec.region)
    assert len(known.steps) == len(net.layers) - 1
    some = torch.arange(len(spec) - 1, -1, -1)  # in another order
    part = spec[some]
    for growth in (torch.ones(1), torch.rand(len(spec), 1)):
        radius = (growth * spread).squeeze(0)
        box = Box(made.posterior.mean - radius, made.posterior.mean + radius)
        plain = linear.row_bounds(net, box, part.region, part.rows, part.offsets)
        found = linear.row_bounds(net, box, part.region, part.rows, part.offsets, known[some])
        torch.testing.assert_close(found, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(15))
def test_no_sampled_network_escapes(seed: int) -> None:
    """Corners of weight boxes and regions stay above the bounds, for all activations and pools."""
    made = problem(seed, network(seed))
    posterior, spec = made.posterior, made.specification
    assert isinstance(posterior, Normal)
    generator = torch.Generator().manual_seed(seed)
    box = Box(posterior.mean - posterior.std, posterior.mean + posterior.std)
    weights, x = sample_box(box, 100, generator), sample_box(spec.region.box, 100, generator)
    margins = torch.stack(
        [spec.margins(made.network.forward(w, p)) for w, p in zip(weights, x, strict=True)]
    )
    for bound in ("ibp", "lbp"):
        found = BOUNDS[bound](made.network, box, spec.region, spec.rows, spec.offsets)
        assert bool((margins >= found).all())


@pytest.mark.parametrize("seed", range(12))
def test_certified_below_the_truth(seed: int) -> None:
    """Of sampled networks at the clean input at least as many are right as certified on the
    region."""
    made = problem(seed, network(seed), std=0.1, norm=("linf", "l2", "l1")[seed % 3])
    drawn = sample(made.posterior, 2000, seed)
    right = (made.margins(drawn) > 0).all(-1).double().mean(0)
    for result, share in zip(certify(made, Concentration(upper=True)), right.tolist(), strict=True):
        assert result.lower <= share + 4 * math.sqrt(0.25 / 2000)
        assert result.upper >= result.lower


@pytest.mark.parametrize(
    "layer", [Conv2d(2, 3, (3, 2), (2, 1), (1, 0)), AvgPool2d((2, 3), (2, 2)), Conv2d(2, 1, (5, 6))]
)
def test_pull_is_the_transposed_map(layer: Linear) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = (
        normals(*layer_weights(layer), generator=generator)
        if isinstance(layer, Conv2d)
        else torch.zeros(())
    )
    h = normals(4, *SHAPE, generator=generator)
    rows = normals(1, 5, *output_shape(layer, SHAPE), generator=generator)
    ahead = torch.einsum("rn,bn->br", rows[0].flatten(1), through(layer, weights, h).flatten(1))
    back = torch.einsum("rn,bn->br", pull(layer, weights, rows, SHAPE)[0].flatten(1), h.flatten(1))
    torch.testing.assert_close(ahead, back, rtol=1e-12, atol=1e-12)
    if isinstance(layer, Conv2d):
        slopes = weight_gradients(layer, rows.expand(4, *rows.shape[1:]), h)
        torch.testing.assert_close(
            (slopes.flatten(2) @ weights.flatten()), ahead, rtol=1e-12, atol=1e-12
        )


def test_several_kernels_at_once() -> None:
    """As many networks as weight vectors, each on its own inputs or all on the same."""
    net = network(2)
    weights = normals(3, net.size, generator=torch.Generator().manual_seed(1))
    x = uniform(4, *SHAPE, generator=torch.Generator().manual_seed(2))
    each = torch.stack([net.forward(w, x) for w in weights])
    torch.testing.assert_close(net.forward(weights, x), each, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        net.forward(weights, x.expand(3, *x.shape)), each, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda: Conv2d(0, 1, (3, 3)), "whole numbers"),
        (lambda: Conv2d(1, 1, (3, 0)), "kernel"),
        (lambda: output_shape(Conv2d(1, 1, (3, 3)), SHAPE), "Conv2d follows shape"),
        (lambda: output_shape(MaxPool2d((9, 9)), SHAPE), "does not fit"),
        (lambda: output_shape(AvgPool2d((2, 2)), (4,)), "AvgPool2d follows shape"),
    ],
)
def test_bad_layers_are_refused(layer: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        layer()  # type: ignore[operator]
