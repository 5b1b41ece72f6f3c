"""Branch and bound: leaves that cover a region by the signs of some ReLUs, and the steps of each
leaf.

In a leaf s_i z_i >= 0 for the split neurons i, so that A z >= (A - β∘s) z for every β >= 0, their
lines are exact, and their intervals end at 0. Leaves cover the region if they are the ends of a
binary tree: at every node one neuron, and both of its signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bnncert_check.activations import image, lines
from bnncert_check.arithmetic import ETA, UNIT, Array, dot_up, down, up
from bnncert_check.layers import Activation
from bnncert_check.linear import ActivationStep, Interval

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Common:
    """The reference of the common-noise bound: λ, and by position of the random layers rows and,
    but for the input, centres."""

    scale: float
    rows: dict[int, Array]
    centers: dict[int, Array]


@dataclass(frozen=True)
class Tree:
    """The leaves of one output row, on U open neurons: splits [leaves, depth], k or -k for z >= 0
    or z <= 0 of the k-th of them, 0 after the last; multipliers β [leaves, depth]; lower slopes
    [leaves, U]."""

    paths: Indices
    multipliers: Array
    slopes: Array
    common: Common | None = None


@dataclass(frozen=True)
class Leaf:
    """By position of a (leaky) ReLU: signs (0: not split), multipliers β∘s, lower slopes (NaN: the
    root's)."""

    signs: dict[int, Array]
    multipliers: dict[int, Array]
    slopes: dict[int, Array]


@dataclass(frozen=True)
class SplitStep:
    """rows·f(z) >= (A' - β∘s)·z + constant, A' and the constant as the activation's lines give
    them."""

    activation: ActivationStep
    multipliers: Array  # β∘s

    def pull(self, rows: Array) -> tuple[Array, Array]:
        pulled, constant = self.activation.pull(rows)
        changed = pulled - self.multipliers
        rounding = up(UNIT * np.abs(changed) + ETA)
        return changed, down(constant - dot_up(rounding, self.activation.h.magnitude))


def covers(paths: Indices) -> bool:
    """Whether the paths are all the ends of a binary tree: where several go on, one neuron divides
    them by its sign."""
    nodes = [(np.arange(len(paths)), 0)]
    while nodes:
        leaves, depth = nodes.pop()
        rest = paths[leaves, depth:]
        if len(leaves) == 1 and not rest.any():
            continue
        if rest.size == 0 or not rest[0, 0] or not (np.abs(rest[:, 0]) == abs(rest[0, 0])).all():
            return False
        nodes += [(leaves[rest[:, 0] > 0], depth + 1), (leaves[rest[:, 0] < 0], depth + 1)]
    return True


def leaf_of(tree: Tree, number: int, neurons: Indices, widths: dict[int, int]) -> Leaf:
    """One leaf, its splits on the numbered neurons; `widths` are the neurons of each (leaky) ReLU,
    by position."""
    total = sum(widths.values())
    signs, multipliers, slopes = np.zeros(total), np.zeros(total), np.full(total, np.nan)
    slopes[neurons] = tree.slopes[number]
    for k, beta in zip(tree.paths[number].tolist(), tree.multipliers[number].tolist(), strict=True):
        if k:
            place = neurons[abs(k) - 1]
            signs[place] = np.sign(k)
            multipliers[place] = np.sign(k) * beta
    return Leaf(*(_by_position(values, widths) for values in (signs, multipliers, slopes)))


def _by_position(values: Array, widths: dict[int, int]) -> dict[int, Array]:
    ends = np.cumsum(list(widths.values()))[:-1]
    return dict(zip(widths, np.split(values, ends), strict=True))


def split_step(
    layer: Activation, root: ActivationStep, leaf: Leaf, dead: NDArray[np.bool_]
) -> tuple[SplitStep, Interval]:
    """The activation in a leaf, and the range of what it gives; a ReLU that is off at the root
    stays as it is there."""
    k, flat = layer.position, layer.below
    assert flat is not None  # nothing else is split
    signs = np.where(dead, 0.0, leaf.signs[k])
    low, high = root.h.lower, root.h.upper
    # Whatever the root's interval is, that of the leaf holds every z of the right sign in it.
    low, high = (
        np.where(signs > 0, np.maximum(low, 0.0), low),
        np.where(signs > 0, np.maximum(high, 0.0), high),
    )
    low, high = (
        np.where(signs < 0, np.minimum(low, 0.0), low),
        np.where(signs < 0, np.minimum(high, 0.0), high),
    )
    below = np.where(np.isnan(leaf.slopes[k]) | dead, root.lines.lower_slope, leaf.slopes[k])
    slopes = [
        np.where(signs > 0, 1.0, np.where(signs < 0, flat, own))
        for own in (below, root.lines.upper_slope)
    ]
    step = ActivationStep(lines(layer, low, high, slopes[0], slopes[1]), Interval(low, high))
    return SplitStep(step, np.where(dead, 0.0, leaf.multipliers[k])), Interval(
        *image(layer, low, high)
    )
