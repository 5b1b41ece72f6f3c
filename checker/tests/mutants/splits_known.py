"""Steps of leaves at numbers of each neuron that are in them: exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from mutants.numbers import exact, random_floats
from mutants.outcomes import Checker, never_above

BELOW = (("ReLU", 0.0), ("LeakyReLU", 0.3))
ENDS = ((-2.0, 0.5), (1.0, 2.0), (0.0, 6.0), (-0.3, 0.1))  # of clips
HEAVY = 2.0**20  # far more than any coefficient: then roundings of β c are all that matters


def splits(checker: Checker) -> None:
    """What a leaf's step says is below rows·f(z) wherever z is in the leaf, and so are its
    intervals around z and f(z)."""
    kinds = checker.layers
    layers = [kinds.Activation(*kind, 1, 0) for kind in BELOW]
    layers += [kinds.Activation("", None, 1, 0, kinds.clip(*ends)) for ends in ENDS]
    for number, layer in enumerate(layers):
        sides = product((-1.0, 0.0, 1.0), repeat=len(layer.traits.kinks))
        for seed, signs in product(range(6), sides):
            l, u = np.sort(3 * random_floats(100 * number + seed, 2)).tolist()
            _leaf_holds(checker, layer, (l, u), signs, seed)
        _off(checker, layer)


def _leaf_holds(
    checker: Checker, layer: Any, ends: tuple[float, float], signs: tuple[float, ...], seed: int
) -> None:
    kinks = layer.traits.kinks
    inside = [z for z in (*ends, *kinks, *np.linspace(*ends, 7)) if ends[0] <= z <= ends[1]]
    inside = [z for z in inside if all(s * (z - c) >= 0 for s, c in zip(signs, kinks, strict=True))]
    slopes = np.abs(random_floats(seed + 7, 2)).clip(0, 1)
    for row, heavy, own in product((0.7, -1.3), (1.0, HEAVY), (np.nan, slopes[0])):
        betas = np.float32(np.abs(random_floats(seed + 11, len(kinks))) * heavy)
        multipliers = np.array([[s * float(b)] for s, b in zip(signs, betas, strict=True)])
        side = (np.array(signs)[:, None], multipliers, np.full((len(kinks), 1), own))
        leaf = checker.splits.Leaf(*({0: part} for part in side))
        pulled, constant, (h, image) = _pulled(checker, layer, ends, leaf, row)
        for z in inside:
            at, value = Fraction(z), _exactly(layer, z)
            never_above(exact(h.lower)[0], at, "a leaf's lower end")
            never_above(at, exact(h.upper)[0], "a leaf's upper end")
            never_above(float(image.lower[0]), value, "what a leaf gives at least")
            never_above(value, float(image.upper[0]), "what a leaf gives at most")
            never_above(pulled * at + constant, Fraction(row) * value, "a leaf's step")


def _pulled(
    checker: Checker,
    layer: Any,
    ends: tuple[float, float],
    leaf: Any,
    row: float,
    off: bool = False,
) -> tuple[Fraction, Fraction, tuple[Any, Any]]:
    """Coefficient and constant of a leaf's step, and its intervals before and after."""
    h = checker.linear.Interval(*(np.array([end]) for end in ends))
    flat = np.zeros(1) if off else np.full(1, 0.25)
    lines = checker.activations.lines(layer, h.lower, h.upper, flat, flat)
    root = checker.linear.ActivationStep(lines, h)
    step, image = checker.splits.split_step(layer, root, leaf, np.array([off]))
    pulled, constant = step.pull(np.array([[row]]))
    return exact(pulled[0])[0], exact(constant)[0], (step.activation.h, image)


def _off(checker: Checker, layer: Any) -> None:
    """What is off, by how far is not known: nothing depends on z."""
    if not layer.traits.flat_below:
        return
    kinks = layer.traits.kinks
    for row, sign in product((1.0, -1.0), (0.0, -1.0)):
        sides = (np.full((len(kinks), 1), number) for number in (sign, sign * 0.5, 0.5))
        leaf = checker.splits.Leaf(*({0: part} for part in sides))
        pulled, constant, _ = _pulled(checker, layer, (0.0, 0.0), leaf, row, off=True)
        never_above(abs(pulled), Fraction(0), "the coefficient of what is off")
        never_above(constant, Fraction(0), "the constant of what is off")


def _exactly(layer: Any, z: float) -> Fraction:
    ends = layer.traits.ends
    if ends is None:
        return Fraction(z) * (1 if z >= 0 else Fraction(layer.slope))
    return min(max(Fraction(z), Fraction(ends[0])), Fraction(ends[1]))
