"""Heads behind certain layers, whose noise is known exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from flint import arb

from mutants.fresh import chain
from mutants.outcomes import Checker, never_above

HALF = (2 / math.pi) ** 0.5  # E|N(0, 1)|
SLACK = 1e-12


def heads(checker: Checker) -> None:
    """E min over x and the Lipschitz constant of y, and its probabilities at a point."""
    _one_head(checker)
    _two_heads(checker)
    _behind_noise(checker)
    _at_points(checker)


def _found(
    checker: Checker, network: Any, law: Any, ends: tuple[float, float], slope: float = 0.0
) -> tuple[float, float]:
    """m and L of y on x in [low, high]; lower lines of ReLUs have this slope."""
    middle = (ends[0] + ends[1]) / 2
    region = checker.region.Region(
        "box", np.full(1, middle), ends[1] - middle, np.full(1, ends[0]), np.full(1, ends[1])
    )
    bent = [one for one in network.layers if isinstance(one, checker.layers.Activation)]
    lower = {one.position: np.full(one.width, slope) for one in bent}
    upper = {one.position: np.full(one.width, 0.5) for one in bent}
    proof = checker.proofs.Proof(2.0, lower, upper, {}, {}, affine=True)
    model = checker.model.Model(network, (), "", "")
    (value, noise), _ = checker.proofs.functionals(
        model, law, region, np.ones((1, 1)), np.zeros(1), proof
    )
    return float(value[0]), float(noise[0])


def _shared(checker: Checker, mean: list[float], factor: list[list[float]]) -> Any:
    """Weights that share noise, those of the last layers."""
    fields = {"mean": np.array(mean), "std": np.zeros(len(mean)), "factor": np.array(factor)}
    return checker.model.Posterior("low-rank-normal", fields)


def _normal(checker: Checker, mean: list[float], std: list[float]) -> Any:
    return checker.model.Posterior("normal", {"mean": np.array(mean), "std": np.array(std)})


def _one_head(checker: Checker) -> None:
    layers = checker.layers
    relu = layers.Activation("ReLU", 0.0, 1, 1)
    first, last = layers.Dense(1, 1, True, 0, 0), layers.Dense(1, 1, False, 2, 2)
    bent = chain(checker, (1,), (first, relu, last))
    laws = (_normal(checker, [1, 0, 0], [0, 0, 1]), _shared(checker, [1, 0, 0], [[1.0]]))
    for law in laws:  # y = w relu(x), w ~ N(0, 1)
        value, noise = _found(checker, bent, law, (-1.0, 1.0))
        never_above(value, -HALF / 2 + SLACK, "E min w relu(x)")
        never_above(1 - SLACK, noise, "L of w relu(x)")
    # y = w (x + 1)
    straight = chain(checker, (1,), (first, layers.Dense(1, 1, False, 2, 1)))
    for law in (_normal(checker, [1, 1, 0], [0, 0, 1]), _shared(checker, [1, 1, 0], [[1.0]])):
        value, noise = _found(checker, straight, law, (-1.0, 1.0))
        never_above(value, -HALF + SLACK, "E min w (x + 1)")
        never_above(2 - SLACK, noise, "L of w (x + 1)")
    # y = w x + v x: one noise, or one each
    wide, pair = layers.Dense(1, 2, False, 0, 0), layers.Dense(2, 1, False, 2, 1)
    both = chain(checker, (1,), (wide, pair))
    for sigma, law in (
        (2.0, _shared(checker, [1, 1, 0, 0], [[1.0], [1.0]])),
        (2**0.5, _shared(checker, [1, 1, 0, 0], [[1.0, 0.0], [0.0, 1.0]])),
        (2**0.5, _normal(checker, [1, 1, 0, 0], [0, 0, 1, 1])),
    ):
        for low, width in ((-1.0, 1.0), (0.5, 0.25)):
            value, noise = _found(checker, both, law, (low, 1.0))
            never_above(value, -sigma * HALF * width + SLACK, "E min (w + v) x")
            never_above(sigma - SLACK, noise, "L of (w + v) x")


def _two_heads(checker: Checker) -> None:
    """y = w x + v x, each read from a node of its own."""
    layers, network = checker.layers, checker.network
    dense = [layers.Dense(1, 1, False, k, k) for k in range(4)]
    reads = ((0,), (0,), (1,), (2,), (3, 4))
    fork = network.Network((1,), (*dense, layers.Add((1,), 4)), reads)
    for sigma, law in (
        (2.0, _shared(checker, [1, 1, 0, 0], [[1.0], [1.0]])),
        (2**0.5, _normal(checker, [1, 1, 0, 0], [0, 0, 1, 1])),
    ):
        for low, width in ((-1.0, 1.0), (0.5, 0.25)):
            value, noise = _found(checker, fork, law, (low, 1.0))
            never_above(value, -sigma * HALF * width + SLACK, "E min of two heads")
            never_above(sigma - SLACK, noise, "L of two heads")


def _behind_noise(checker: Checker) -> None:
    """y = w v x with w ~ N(1, 1) and v ~ N(0, 1): E min over [-1, 1] is -E|w| E|v|; the last
    layer's input is no function of x."""
    layers = checker.layers
    both = chain(checker, (1,), (layers.Dense(1, 1, False, 0, 0), layers.Dense(1, 1, False, 1, 1)))
    magnitude = HALF * math.exp(-0.5) + math.erf(1 / math.sqrt(2))
    value, _ = _found(checker, both, _normal(checker, [0, 1], [1, 1]), (-1.0, 1.0))
    never_above(value, -HALF * magnitude, "E min w v x")


def _at_points(checker: Checker) -> None:
    """y ~ N(1, 4) at a point: -y fails with probability Φ(1/2), and so does -2y with a factor."""
    layers = checker.layers
    network = chain(
        checker, (1,), (layers.Dense(1, 1, False, 0, 0), layers.Dense(1, 1, False, 1, 1))
    )
    model, point = checker.model.Model(network, (), "", ""), checker.region.point_region(np.ones(1))
    proof = checker.proofs.Proof(2.0, {}, {}, {}, {})
    true = 1 - (arb(1) / 2 / arb(2).sqrt()).erfc() / 2
    for law in (_normal(checker, [1, 1], [0, 2]), _shared(checker, [1, 1], [[2.0]])):
        for scale in (1.0, 2.0):
            fails = checker.proofs.failure(
                model, law, point, np.array([[-scale]]), np.zeros(1), proof
            )
            never_above(true - arb(2) ** -40, fails, "the tail of a head at a point")
