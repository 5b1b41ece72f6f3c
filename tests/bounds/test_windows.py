"""Rows of a tile, cropped to what it depends on, say what rows over whole images say."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch

from bnncert import ball
from bnncert.bounds import neurons
from bnncert.bounds.linear import row_bounds
from bnncert.bounds.windows import Window, crop_of
from bnncert.concentration.forward import OneForward
from bnncert.concentration.trace import trace
from bnncert.layers import (
    Add,
    AvgPool2d,
    Concat,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    Permute,
    ReLU,
    Residual,
    Scale,
    Sigmoid,
)
from bnncert.model.box import Box
from bnncert.model.layers import Layer
from bnncert.model.network import Network
from bnncert.posteriors import LowRankNormal, Normal
from scenarios import gaussian, uniform

SHAPE = (2, 7, 6)
NETWORKS: dict[str, tuple[tuple[Layer | Residual, ...], tuple[tuple[int, ...], ...]]] = {
    "chain": (
        (
            Conv2d(2, 4, (3, 2), (2, 1), (1, 0, 2, 1)),
            ReLU(),
            Conv2d(4, 4, 3, 1, 2, dilation=(1, 2), groups=2),
            LeakyReLU(0.2),
            Conv2d(4, 3, 2),
            ReLU(),
        ),
        (),
    ),
    "residual": (
        (
            Conv2d(2, 3, 3, padding=1),
            ReLU(),
            Residual((Conv2d(3, 3, 3, padding=1), ReLU(), Conv2d(3, 3, 3, padding=1))),
            ReLU(),
            Residual((Conv2d(3, 4, 4, 2, 1), Sigmoid(), Conv2d(4, 4, 1)), (Conv2d(3, 4, 2, 2),)),
            ReLU(),
        ),
        (),
    ),
    "scales": (
        (
            Scale((2, 1, 1)),
            Conv2d(2, 3, 3, padding=1),
            Scale((1, 7, 1)),
            ReLU(),
            Scale((3, 7, 6)),
            Conv2d(3, 2, 2, 2),
            ReLU(),
        ),
        (),
    ),
    "pools": (
        (
            Conv2d(2, 3, 3, padding=1),
            MaxPool2d(3, 2, (1, 1, 0, 2)),
            ReLU(),
            Conv2d(3, 3, 2, padding=1),
            AvgPool2d((2, 1), 1, (1, 0, 0, 0)),
            ReLU(),
            Conv2d(3, 2, 2),
            ReLU(),
        ),
        (),
    ),
    "concatenation": (
        (
            Conv2d(2, 2, 3, padding=1),
            ReLU(),
            Conv2d(2, 3, 3, padding=1),
            Concat(0),
            Conv2d(5, 2, 3),
            ReLU(),
        ),
        ((0,), (1,), (2,), (2, 3), (4,), (5,)),
    ),
    "input read twice": (
        (
            Conv2d(2, 2, 3, padding=1),
            ReLU(),
            Conv2d(2, 2, 1),
            Add(),
            ReLU(),
            Conv2d(2, 2, 2),
            ReLU(),
        ),
        ((0,), (1,), (0,), (2, 3), (4,), (5,), (6,)),
    ),
}


def network(name: str) -> Network:
    layers, reads = NETWORKS[name]
    end = (*layers, Flatten())
    shape = Network(SHAPE, end, (*reads, (len(layers),)) if reads else ()).shapes[-1]
    head = (Dense(shape[0], 3), ReLU(), Dense(3, 2))
    more = tuple((len(layers) + i,) for i in range(4)) if reads else ()
    return Network(SHAPE, (*end, *head), (*reads, *more) if reads else ())


def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neurons, "OVERHEAD", {"cpu": math.inf})


def in_tiles(monkeypatch: pytest.MonkeyPatch, side: int) -> None:
    """Every image in tiles of that size, whatever it costs."""
    monkeypatch.setattr(neurons, "OVERHEAD", {"cpu": 0.0})
    monkeypatch.setattr(neurons, "_work", lambda *_: 0)
    monkeypatch.setattr(neurons, "SIDES", (side,))


def every_pair() -> list[Any]:
    """All of noise, norm, network and side; in every run a third, in which any two of them meet."""
    kinds = ("head", "all", "shared"), ("linf", "l2", "l1"), tuple(NETWORKS), (1, 2, 4)
    return [
        pytest.param(*values, marks=[pytest.mark.slow] * (sum(places) % 3 > 0))
        for values, places in zip(
            product(*kinds), product(*(range(len(kind)) for kind in kinds)), strict=True
        )
    ]


@pytest.mark.parametrize(("noise", "norm", "name", "side"), every_pair())
def test_functionals_are_the_same(
    noise: str, norm: str, name: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(name)
    generator = torch.Generator().manual_seed(side)
    mean = 0.5 * gaussian(net.size, generator=generator)
    std = 0.02 * uniform(net.size, generator=generator)
    if noise == "head":
        std[: -sum(math.prod(shape) for shape in net.parameters_by_layer[-1].values())] = 0
    factor = 0.01 * gaussian(net.size, 2, generator=generator)
    posterior = LowRankNormal(mean, std, factor) if noise == "shared" else Normal(mean, std)
    region = ball(uniform(2, *SHAPE, generator=generator), 0.02, norm)
    monkeypatch.setattr(OneForward, "is_worth", lambda *_: False)
    whole(monkeypatch)
    expected = trace(net, posterior, region, 4.0)
    in_tiles(monkeypatch, side)
    tiled = trace(net, posterior, region, 4.0)
    assert expected.refined.keys() == tiled.refined.keys()
    torch.testing.assert_close(tiled.charge, expected.charge)
    for ours, theirs in zip(tiled.boxes, expected.boxes, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            torch.testing.assert_close(ours.lower, theirs.lower, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(ours.upper, theirs.upper, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("width", [0.0, 0.01])
def test_linear_bounds_are_the_same(
    width: float, name: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = network(name)
    generator = torch.Generator().manual_seed(side)
    center = 0.5 * gaussian(net.size, generator=generator)
    region = ball(uniform(2, *SHAPE, generator=generator) - 0.3, 0.05)
    rows = gaussian(2, 3, net.outputs, generator=generator)
    asked = (net, Box(center - width, center + width), region, rows, torch.zeros(2, 3).double())
    whole(monkeypatch)
    expected = row_bounds(*asked)
    in_tiles(monkeypatch, side)
    torch.testing.assert_close(row_bounds(*asked), expected, rtol=1e-9, atol=1e-11)


def test_windows_of_a_chain() -> None:
    """A 3 x 3 window at (2, 1) of the second convolution, step by step."""
    layers = (Conv2d(1, 1, 3, padding=1), ReLU(), Conv2d(1, 1, 4, 2, 1), Flatten(), Dense(16, 1))
    net = Network((1, 8, 8), layers)
    found = crop_of(net, 3, Window(2, 3, 1, 2))
    assert found is not None
    assert found.nodes == {
        3: Window(2, 3, 1, 2),
        2: Window(3, 7, 1, 5),
        1: Window(3, 7, 1, 5),
        0: Window(2, 8, 0, 6),
    }
    # At the corner padding takes the place of the image.
    corner = crop_of(net, 3, Window(0, 1, 0, 1))
    assert corner is not None
    assert corner.nodes[2] == Window(0, 3, 0, 3)
    assert corner.nodes[0] == Window(0, 4, 0, 4)


def test_what_does_not_keep_places_is_not_cropped() -> None:
    net = Network((1, 4, 4), (Permute((0, 2, 1)), Conv2d(1, 1, 3), Flatten(), Dense(4, 1)))
    assert crop_of(net, 2, Window(0, 1, 0, 1)) is None
    lonely = Network((1, 2, 2), (Conv2d(1, 1, 1, padding=2), Flatten(), Dense(36, 1)))
    assert crop_of(lonely, 1, Window(0, 1, 0, 1)) is None  # padding alone
    assert crop_of(lonely, 1, Window(2, 3, 2, 3)) is not None
