"""Zonotopes hold every value of a network without noise, in real arithmetic, and are nearly as
tight as rows where few neurons are open."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bnncert import Concentration, Problem, ball, certify, class_robust, save_posterior
from bnncert.bounds import zonotopes
from bnncert.bounds.interval import range_of
from bnncert.bounds.zonotopes import (
    Reading,
    Zonotope,
    image_zonotope,
    input_zonotope,
    numbers_held,
)
from bnncert.concentration import trace as tracing
from bnncert.concentration.forward import OneForward
from bnncert.concentration.functional import functional
from bnncert.concentration.trace import prefix, trace
from bnncert.layers import Conv2d, Dense, Flatten, ReLU
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import LINEAR, SUMS
from bnncert.model.network import Network, residual
from bnncert.model.specification import Region, Specification
from bnncert.posteriors import Normal
from bnncert_check import ACCEPT, REJECT, check_certificate, read_model
from bnncert_check import zonotopes as checked_zonotopes
from graphs import random_graph
from scenarios import gaussian, uniform


def walked(network: Network, weights: Tensor, region: Region) -> list[tuple[Zonotope, Box]]:
    """Every node's zonotope, on boxes that are zonotopes' own where they are sums."""
    parts = network.split(weights)
    found = [(input_zonotope(region), region.box)]
    symbols = found[0][0].directions.shape[1]
    for k, layer in enumerate(network.layers):
        nodes = network.reads[k]
        reading = Reading([found[node][0] for node in nodes], found[nodes[0]][1], symbols)
        zonotope = image_zonotope(layer, parts[k], reading)
        symbols = max(symbols, zonotope.directions.shape[1])
        own = isinstance(layer, (*LINEAR, *SUMS))
        box = zonotope.box if own else range_of(layer, [found[node][1] for node in nodes])
        found.append((zonotope, box))
    return found


@pytest.mark.parametrize("most", [0, 2, 512])
@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
def test_every_value_is_inside(images: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At corners, inside and along random lines, whatever the number of symbols."""
    monkeypatch.setattr(zonotopes, "MOST_OPEN", most)
    for seed in range(60):
        network = random_graph(seed, images)
        generator = torch.Generator().manual_seed(seed)
        weights = gaussian(network.size, generator=generator)
        x = 2 * uniform(1, *network.input_shape, generator=generator) - 1
        region = ball(x, (0.0, 0.05, 1.0)[seed % 3])
        inside = 2 * uniform(200, *network.input_shape, generator=generator) - 1
        share = torch.where(inside.abs() > 0.7, inside.sign(), inside)
        points = x + region.eps[0] * share
        nodes = walked(network, weights, region)
        for (zonotope, _), held in zip(nodes, network.values(weights, points), strict=True):
            box = zonotope.box
            slack = 1e-12 * (1 + held.abs())
            assert bool((held >= box.lower - slack).all()), seed
            assert bool((held <= box.upper + slack).all()), seed


def test_a_linear_network_is_exact() -> None:
    network = Network((2, 4, 4), (Conv2d(2, 3, 3, padding=1), Flatten(), Dense(48, 5)))
    generator = torch.Generator().manual_seed(0)
    weights = gaussian(network.size, generator=generator)
    region = ball(gaussian(2, 2, 4, 4, generator=generator), 0.1)
    box = walked(network, weights, region)[-1][0].box
    inputs = region.center.clone().requires_grad_()
    for i in range(5):
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(network.forward(weights, inputs)[:, i].sum(), inputs)
        reach = 0.1 * slope.flatten(1).abs().sum(1)
        center = network.forward(weights, region.center)[:, i]
        torch.testing.assert_close(box.lower[:, i], center - reach, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(box.upper[:, i], center + reach, rtol=1e-9, atol=1e-9)


def trunk(seed: int) -> tuple[Network, Normal, Problem]:
    """A residual network, its last layer random."""
    network = residual((3, 8, 8), 3, ((6, 1), (6, 1), (8, 2), (8, 1)), (6,))
    generator = torch.Generator().manual_seed(seed)
    mean = torch.cat(
        [
            gaussian(*shape, generator=generator).flatten() * math.prod(shape[1:]) ** -0.5
            for shape in network.parameters.values()
        ]
    )
    std = torch.zeros_like(mean)
    last = sum(math.prod(shape) for shape in network.parameters_by_layer[-1].values())
    std[-last:] = 0.02
    posterior = Normal(mean, std)
    x = uniform(2, 3, 8, 8, generator=generator)
    labels = network.forward(mean, x).argmax(-1)
    asked = class_robust(ball(x, 0.002), labels, 3)
    return network, posterior, Problem(network, posterior, asked)


def always(monkeypatch: pytest.MonkeyPatch, worth: bool) -> None:
    monkeypatch.setattr(OneForward, "is_worth", lambda *_: worth)


@pytest.mark.parametrize("seed", range(3))
def test_they_leave_few_neurons_to_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    network, posterior, problem = trunk(seed)
    region = problem.specification.region
    always(monkeypatch, False)
    by_rows = prefix(network, posterior, region).traced
    always(monkeypatch, True)
    with_both = prefix(network, posterior, region).traced
    assert bool(with_both.forward.all())
    assert not bool(by_rows.forward.any())
    counts = [sum(int(part.sum()) for part in t.refined.values()) for t in (by_rows, with_both)]
    assert counts[1] < 0.7 * counts[0], counts
    for k, layer in enumerate(network.layers[: len(by_rows.steps)]):
        ours, theirs = with_both.boxes[k + 1], by_rows.boxes[k + 1]
        if isinstance(layer, ACTIVATIONS) and ours is not None and theirs is not None:
            # The signs that rows settle are settled.
            settled = theirs.upper == 0
            assert bool((ours.upper[settled] == 0).all())


def test_certificates_with_them_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And without the word in them, what they claim is no longer supported."""
    always(monkeypatch, True)
    chosen = tracing._chosen
    # Nothing but zonotopes: no neuron of an image has rows.
    monkeypatch.setattr(
        tracing, "_chosen", lambda *args: torch.zeros_like(chosen(*args), dtype=torch.bool)
    )
    accepted = rejected = 0
    for seed in range(4):
        network, posterior, problem = trunk(seed)
        save_posterior(tmp_path / "p.safetensors", network, posterior)
        model = read_model(tmp_path / "p.safetensors")
        for result in certify(problem, Concentration(effort=0)):
            if result.certificate is None:
                continue
            result.certificate.write(tmp_path / "c.safetensors")
            assert check_certificate(tmp_path / "c.safetensors", model).status == ACCEPT
            accepted += 1
            del result.certificate.header["evidence"]["components"][0]["lower"]["forward"]
            result.certificate.write(tmp_path / "c.safetensors")
            rejected += check_certificate(tmp_path / "c.safetensors", model).status == REJECT
    assert accepted >= rejected >= 3


@pytest.mark.parametrize("most", [7, 40])
def test_of_neurons_that_are_alike_the_checker_takes_the_same(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of images of one colour many are off by the same, but for rounding: a certificate supports
    what it claims to the last digits, whichever of them have a symbol."""
    always(monkeypatch, True)
    for module in (zonotopes, checked_zonotopes):
        monkeypatch.setattr(module, "MOST_OPEN", most)
    convolutions = (Conv2d(1, 6, 3, 1, 1), Conv2d(6, 6, 3, 2, 1), Conv2d(6, 4, 3, 2, 1))
    layers = [layer for each in convolutions for layer in (each, ReLU())]
    network = Network((1, 8, 8), (*layers, Flatten(), Dense(16, 2)))
    for seed in (0, 1, 4):
        generator = torch.Generator().manual_seed(seed)
        mean = 0.3 * gaussian(network.size, generator=generator)
        std = torch.zeros_like(mean)
        std[-34:] = 0.02
        region = ball(torch.full((1, 1, 8, 8), 0.1 * (seed % 3)).double(), 0.03)
        row = torch.tensor([[[1.0, -1.0]]]).double()
        posterior = Normal(mean, std)
        found = functional(trace(network, posterior, region, 4.0), row)
        offset = 1.5 * found.lipschitz - found.value
        problem = Problem(network, posterior, Specification(region, row, offset))
        save_posterior(tmp_path / "p.safetensors", network, problem.posterior)
        (result,) = certify(problem, Concentration(effort=0))
        assert result.certificate is not None
        result.certificate.write(tmp_path / "c.safetensors")
        verdict = check_certificate(
            tmp_path / "c.safetensors", read_model(tmp_path / "p.safetensors")
        )
        assert verdict.status == ACCEPT
        assert verdict.supported is not None
        assert verdict.supported[0] - result.lower < 1e-7, (seed, verdict, result.lower)


def test_what_is_too_large_to_be_checked_is_bounded_by_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, posterior, problem = trunk(0)
    region = problem.specification.region
    always(monkeypatch, True)
    assert bool(prefix(network, posterior, region).traced.forward.all())
    monkeypatch.setattr(tracing, "MOST_HELD", numbers_held(network, len(network.layers) - 1) - 1)
    assert not bool(prefix(network, posterior, region).traced.forward.any())


def test_a_neuron_that_is_off_is_nothing() -> None:
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 1)))
    region = ball(torch.zeros(1, 1).double(), 1.0)
    weights = torch.tensor([1.0, -3.0, 5.0, 0.25]).double()
    nodes = walked(network, weights, region)
    assert float(nodes[-1][0].box.lower) == pytest.approx(0.25)
    assert float(nodes[-1][0].box.upper) == pytest.approx(0.25)
