"""The exact mass of a union of boxes, and random unions.

The oracle decomposes space into slabs between the boxes' faces and is evaluated with 60 digits, so
"never above" is checked without tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

from bnncert.boxes import union as unions
from bnncert.boxes.union import Union
from bnncert.model.box import Box
from bnncert.posteriors.independent import Independent, Laplace, Normal, Uniform
from masses import exact_interval_log, exact_log

RULES = ["cells", "inclusion-exclusion", "bonferroni"]
FACES = np.linspace(-2.0, 2.0, 7)


# ---- the oracle ----------------------------------------------------------------------------------


def exact_union(posterior: Independent, boxes: Sequence[Box]) -> mpf:
    """P(w in some box): the total mass of the slabs' products that some box covers."""
    if not boxes:
        return mpf(0)
    with mpmath.workdps(60):
        masses, covers = zip(
            *(_slabs(posterior, boxes, weight) for weight in range(posterior.size)), strict=True
        )
        covered = np.any(
            [reduce(np.multiply.outer, cover) for cover in zip(*covers, strict=True)], axis=0
        )
        return reduce(lambda rest, mass: rest @ mass, reversed(masses), covered.astype(object))


def exact_mass(posterior: Independent, *boxes: Box) -> mpf:
    """The sum of the boxes' masses."""
    with mpmath.workdps(60):
        return mpmath.fsum(mpmath.exp(exact_log(posterior, box)) for box in boxes)


def _slabs(
    posterior: Independent, boxes: Sequence[Box], weight: int
) -> tuple[np.ndarray, np.ndarray]:
    """Masses [slabs] of the slabs of one weight, and which boxes cover them, [boxes, slabs]."""
    lower, upper = (
        np.array([float(end[weight]) for end in ends])
        for ends in zip(*map(_ends, boxes), strict=True)
    )
    if float(posterior.spread[weight]) == 0:  # an atom: one slab, the weight's only value
        value = float(posterior.center[weight])
        return np.array([mpf(1)]), ((lower <= value) & (value <= upper))[:, None]
    slabs = list(pairwise(sorted({*lower, *upper}))) or [(lower[0], lower[0])]
    masses = np.array([mpmath.exp(exact_interval_log(posterior, weight, l, u)) for l, u in slabs])
    return masses, np.array(
        [[box[0] <= l and u <= box[1] for l, u in slabs] for box in zip(lower, upper, strict=True)]
    )


def _ends(box: Box) -> tuple[torch.Tensor, torch.Tensor]:
    return box.lower, box.upper


# ---- random cases --------------------------------------------------------------------------------


def random_posterior(rng: np.random.Generator, size: int) -> Independent:
    """Normal, Uniform or Laplace weights; some are deterministic, often exactly on a face of the
    boxes' grid."""
    center = torch.from_numpy(
        np.where(rng.random(size) < 0.5, rng.choice(FACES, size), rng.normal(size=size))
    )
    spread = torch.from_numpy(rng.uniform(0.3, 1.5, size) * (rng.random(size) > 0.2))
    kind = rng.choice(["normal", "uniform", "laplace"])
    if kind == "uniform":
        return Uniform(center - 2 * spread, center + 2 * spread)
    return (Normal if kind == "normal" else Laplace)(center, spread)


def random_boxes(rng: np.random.Generator, count: int, size: int) -> list[Box]:
    """Boxes anywhere, or with faces on a coarse grid, so that faces touch, coincide and nest."""
    shape = (2, count, size)
    ends = np.sort(
        rng.choice(FACES, shape) if rng.random() < 0.6 else rng.normal(size=shape), axis=0
    )
    return [Box(torch.from_numpy(l), torch.from_numpy(u)) for l, u in zip(*ends, strict=True)]


def random_case(seed: int) -> tuple[Independent, list[Box]]:
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    return random_posterior(rng, size), random_boxes(rng, count, size)


def assert_lower_bound(union: Union, exact: mpf, gap: float) -> None:
    """In [0, 1], never above the exact mass, and within `gap` of it."""
    assert 0 <= union.probability <= 1
    assert mpf(union.probability) <= exact, (
        f"{union.rule}: above by {mpmath.nstr(union.probability - exact, 3)}"
    )
    assert exact - union.probability <= gap, (
        f"{union.rule}: below by {mpmath.nstr(exact - union.probability, 3)}"
    )


seeds = pytest.mark.parametrize("block", range(5))


def cases(block: int, count: int = 60) -> list[tuple[Independent, list[Box]]]:
    return [random_case(1000 * block + i) for i in range(count)]


def force(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Make one rule win wherever there are two boxes or more."""
    if rule != "cells":
        monkeypatch.setattr(unions, "MOST_CELLS", 0)
    if rule != "inclusion-exclusion":
        monkeypatch.setattr(unions, "EXACT_WORK", 0)
    if rule == "cells":  # with every piece kept the cells are exact, so pairs alone cannot win
        monkeypatch.setattr(unions, "MOST_CELLS", 10**6)
        monkeypatch.setattr(unions, "PIECES", 10**6)
