"""Bounds of a network with every layer, whose nodes are known entry by entry."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

import written_out
from mutants.numbers import random_floats
from mutants.outcomes import Checker, never_above
from written_out import Array

SLACK = 1e-9  # sums in another order


def every_layer(checker: Checker) -> None:
    """At a point with weights that are points, bounds of rows and of their negatives both hold;
    over a box no node leaves its interval."""
    description = written_out.every_layer()
    network = checker.network.read_network(description)
    count = sum(layer.size for layer in network.layers if hasattr(layer, "matrix"))
    model = checker.model.Model(network, (), "", "")
    for seed in range(2):
        flat, x = random_floats(seed, count) / 2, random_floats(seed + 9, 40)
        _at_a_point(checker, model, flat, x)
        for eps in (0.02, 0.5):
            _over_a_box(checker, model, flat, x, eps)
    _way_to_the_input(checker)


def _at_a_point(checker: Checker, model: object, flat: Array, x: Array) -> None:
    y = written_out.nodes(written_out.every_layer(), flat, x)[-1]
    box, point = checker.mass.WeightBox(flat, flat), checker.region.point_region(x)
    for sign in (1.0, -1.0):
        bound = checker.linear.row_bounds(model, box, point, sign * np.eye(2), np.zeros(2))
        for value, least in zip(sign * y, bound, strict=True):
            never_above(float(least), float(value) + SLACK, "rows through every layer")


def _over_a_box(checker: Checker, model: object, flat: Array, x: Array, eps: float) -> None:
    """With the last layer's bias random and everything before it bounded by zonotopes too, in which
    few neurons have a symbol and whose directions are made in parts."""
    checker.zonotopes.MOST_OPEN, checker.zonotopes.AT_ONCE = 2, 200
    std = np.zeros_like(flat)
    std[-2:] = 1.0
    law = checker.model.Posterior("normal", {"mean": flat, "std": std})
    region = checker.region.Region("box", x, eps, x - eps, x + eps)
    slopes = {
        layer.position: np.full(layer.width, 0.5)
        for layer in model.network.layers  # type: ignore[attr-defined]
        if isinstance(layer, checker.layers.Activation)
    }
    proof = checker.proofs.Proof(4.0, slopes, slopes, {}, {}, forward=True)
    traced, _ = checker.proofs._trace(model, law, region, proof)
    random = np.random.default_rng(0)
    for point in (x, *(x + eps * random.choice([-1.0, 1.0], (40, len(x))))):
        _within(traced, written_out.nodes(written_out.every_layer(), flat, point))


def _within(traced: object, nodes: list[Array]) -> None:
    """Described nodes that are reshaped alone are none here; the others come in the same order."""
    described = written_out.every_layer()["layers"]
    own = [0, *(k + 1 for k, d in enumerate(described) if d["type"] not in ("Flatten", "Reshape"))]
    for k, interval in traced.intervals.items():  # type: ignore[attr-defined]
        value = nodes[own[k]].reshape(-1)
        readers = list(traced.network.reading(k))  # type: ignore[attr-defined]
        off = (interval.upper == 0) & (interval.lower == 0) & bool(readers)
        for low, high, v, is_off in zip(interval.lower, interval.upper, value, off, strict=True):
            never_above(float(v), float(high) + SLACK, "above an interval")
            if not is_off:  # of a ReLU that is off 0 stands for both ends
                never_above(float(low), float(v) + SLACK, "below an interval")


def _way_to_the_input(checker: Checker) -> None:
    """y = w (3 x) + v, w ~ N(0, 1) on [-1, 1]: E min = -3 sqrt(2/π), by the scale before it."""
    layers = [
        {"type": "Scale", "shape": [1], "bias": False},
        {"type": "Dense", "inputs": 1, "outputs": 1, "bias": False},
    ]
    network = checker.network.read_network({"input_shape": [1], "layers": layers})
    law = checker.model.Posterior(
        "normal", {"mean": np.array([3.0, 0.0]), "std": np.array([0.0, 1.0])}
    )
    model = checker.model.Model(network, (), "", "")
    region = checker.region.Region("linf", np.zeros(1), 1.0, -np.ones(1), np.ones(1))
    proof = checker.proofs.Proof(4.0, {}, {}, {}, {})
    for sign, norm in product((1.0, -1.0), ("linf", "l1")):
        ball = checker.region.Region(norm, region.x, 1.0, region.lower, region.upper)
        (value, noise), _ = checker.proofs.functionals(
            model, law, ball, np.full((1, 1), sign), np.zeros(1), proof
        )
        never_above(float(value[0]), -3 * math.sqrt(2 / math.pi) + SLACK, "E min w (3 x)")
        never_above(3 - SLACK, float(noise[0]), "the noise of w (3 x)")
