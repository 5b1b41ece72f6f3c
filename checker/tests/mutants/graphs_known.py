"""Bounds of graphs whose exact value is known."""

from __future__ import annotations

import math

import numpy as np

from mutants.numbers import exact, random_floats
from mutants.outcomes import Checker, never_above


def graphs(checker: Checker) -> None:
    """Layers that read the input both, rows that meet, terms that others read too."""
    layers, network = checker.layers, checker.network
    first, second = layers.Dense(1, 1, False, 0, 0), layers.Dense(1, 1, False, 1, 1)
    both = network.Network((1,), (first, second, layers.Add((1,), 2)), ((0,), (0,), (1, 2)))
    fields = {"mean": np.zeros(2), "std": np.ones(2)}
    shared = {"mean": np.zeros(2), "std": np.zeros(2), "factor": np.ones((2, 1))}
    laws = {
        2**0.5: ("normal", fields),
        2.0: ("low-rank-normal", shared),
    }  # by the σ of y = (w + v) x at x = 1
    proof = checker.proofs.Proof(2.0, {}, {}, {}, {})
    for sigma, law in laws.items():
        model, posterior = checker.model.Model(both, (), "", ""), checker.model.Posterior(*law)
        for low in (-1.0, 0.5):
            region = checker.region.Region("box", np.ones(1), 1.0, np.array([low]), np.ones(1))
            found, _ = checker.proofs.functionals(
                model, posterior, region, np.ones((1, 1)), np.zeros(1), proof
            )
            mean = -sigma * (2 / math.pi) ** 0.5 * (1 if low < 0 else 0.25)
            never_above(float(found[0][0]), mean + 1e-12, "E min (w + v) x")
            never_above(sigma - 1e-12, float(found[1][0]), "L of (w + v) x")
        size = checker.predictive.output_norms(
            model, posterior, checker.region.point_region(np.ones(1))
        )
        never_above(sigma - 1e-12, float(size[0]), "sqrt(E (w + v)²)")
    terms = random_floats(5, 3, 50) / 3
    add = layers.Add((50,), 0)
    for below, above, *parts in zip(
        add.join([*terms], checker.arithmetic.down),
        add.join([*terms], checker.arithmetic.up),
        *map(exact, terms),
        strict=True,
    ):
        never_above(float(below), sum(parts), "a sum from below")
        never_above(sum(parts), float(above), "a sum from above")
    _images(checker)
    _alone(checker)
    _forks(checker)
    _off(checker)


def _images(checker: Checker) -> None:
    """Of an image a + w·x + v·x, x in [1, 2] and a in [3, 4]: at least 3 - E|..|, with both
    noises."""
    layers, shape = checker.layers, (1, 1, 1)
    convolutions = [layers.Conv(shape, 1, (1, 1), (1, 1), (0,) * 4, False, k, k) for k in range(2)]
    relu, add = layers.Activation("ReLU", 0.0, 1, 2), layers.Add(shape, 3)
    network = checker.network.Network(
        shape, (*convolutions, relu, add), ((0,), (0,), (0,), (1, 2, 3))
    )
    h = checker.linear.Interval(np.ones(1), np.full(1, 2.0))
    law = checker.model.Posterior("normal", {"mean": np.zeros(2), "std": np.ones(2)})
    steps: list[object] = []
    for layer in convolutions:
        so_far = checker.functionals.Trace(network, None, steps, {0: h})
        steps.append(checker.functionals.noisy(layer, law, so_far, h))
    intervals = {0: h, 3: checker.linear.Interval(np.full(1, 3.0), np.full(1, 4.0))}
    traced = checker.functionals.Trace(network, None, [*steps, None, None], intervals)
    (below, noise), (above, _) = checker.functionals.local(traced, 3)
    each = (2 / math.pi) ** 0.5 / 2  # E of (w - its mean) times half the width of x
    never_above(float(below[0]), 3 - 2 * each + 1e-12, "an image from below")
    never_above(float(above[0]), -4 - 2 * each + 1e-12, "an image from above")
    never_above(8**0.5 - 1e-12, float(noise[0]), "the noise of an image")


def _alone(checker: Checker) -> None:
    """A dense layer by itself: w h + b with w ~ N(2, 1/4), b ~ N(1, 1/16) and h in [-1, 3] is on
    average at least 2 - 4 E|w| / 2 + 1, and changes by at most sqrt(9/4 + 1/16) a unit of noise."""
    layer = checker.layers.Dense(1, 1, True, 0, 0)
    network = checker.network.Network((1,), (layer,), ((0,),))
    fields = {"mean": np.array([2.0, 1.0]), "std": np.array([0.5, 0.25])}
    law = checker.model.Posterior("normal", fields)
    h = checker.linear.Interval(np.array([-1.0]), np.array([3.0]))
    empty = checker.functionals.Trace(network, None, [], {0: h})
    step = checker.functionals.noisy(layer, law, empty, h)
    traced = checker.functionals.Trace(network, None, [step], {0: h})
    magnitude = 0.5 * math.sqrt(2 / math.pi) * math.exp(-8) + 2 * math.erf(4 / math.sqrt(2))
    value, noise = checker.functionals.last_layer(traced, np.ones((1, 1)))
    never_above(float(value[0]), 3 - 2 * magnitude + 1e-12, "a layer alone")
    never_above(math.sqrt(9 / 4 + 1 / 16) - 1e-12, float(noise[0]), "the noise of a layer alone")


def _forks(checker: Checker) -> None:
    """y = a h + b h + c x with h = x: rows a and b meet, and their sum is rounded."""
    layers = checker.layers
    dense = [layers.Dense(1, 1, False, k, k) for k in range(4)]
    network = checker.network.Network(
        (1,), (*dense, layers.Add((1,), 4)), ((0,), (1,), (1,), (0,), (2, 3, 4))
    )
    model = checker.model.Model(network, (), "", "")
    region = checker.region.Region("box", np.ones(1), math.inf, np.full(1, 0.9), np.ones(1))
    for seed in range(60):
        weights = np.array([1.0, *random_floats(seed, 3) / 3])
        box = checker.mass.WeightBox(weights, weights)
        _, a, b, c = exact(weights)
        ends = [(a + b + c) * x for x in exact(region.lower) + exact(region.upper)]
        bound = checker.linear.row_bounds(model, box, region, np.ones((1, 1)), np.zeros(1))
        never_above(float(bound[0]), min(ends), "a walk where rows meet")
        three = checker.linear.Interval(np.full(1, 3.0), np.full(1, 3.0))
        total, paid = checker.linear.merged(weights[None, 1:2], weights[None, 2:3], three)
        never_above(3 * abs(exact(total[0])[0] - a - b), float(paid[0]), "rows that meet")


def _off(checker: Checker) -> None:
    """y = relu(z) + v z + 1, z about -5 and v ~ N(0, 1): fails with probability Q(1/5), although
    the ReLU is off."""
    layers = checker.layers
    first, second = layers.Dense(1, 1, False, 0, 0), layers.Dense(1, 1, False, 1, 2)
    nodes = (first, layers.Activation("ReLU", 0.0, 1, 1), second, layers.Add((1,), 3))
    network = checker.network.Network((1,), nodes, ((0,), (1,), (1,), (2, 3)))
    law = checker.model.Posterior(
        "normal", {"mean": np.array([-5.0, 0.0]), "std": np.array([0.01, 1.0])}
    )
    slopes = {1: np.zeros(1)}
    proof, point = (
        checker.proofs.Proof(6.0, slopes, slopes, {}, {}),
        checker.region.point_region(np.ones(1)),
    )
    model = checker.model.Model(network, (), "", "")
    failure = checker.proofs.failure(model, law, point, np.ones((1, 1)), np.ones(1), proof)
    never_above(0.42, float(failure), "a failure where others read what is off")
