"""Bounds of P_safe at a point where weights are correlated: rows one by one, or in opposite pairs.

P(a row of the group fails) <= E G(a, q),   and for an upper bound   P(none fails) <= E G(a, q).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bnncert.correlated.majorants import Interval, Majorant, majorant
from bnncert.correlated.moments import known
from bnncert.correlated.setting import Array, Setting, applies, setting
from bnncert.correlated.tails import Frame, Tail, frame, tail
from bnncert.evidence.concentration import Refutation
from bnncert.evidence.correlated import Correlated, Group
from bnncert.model.problem import Problem
from bnncert.posteriors.gaussian import LowRankNormal

RATES = (0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.4, 3.2, 4.8)  # λ, in units of 1/E q
ROUNDING = 1e-7  # of a chance: what a checker may find more
MOST_ROWS = 16


class Directions:
    """What is known of directions of the output at the region's centre, each looked at once."""

    def __init__(self, problem: Problem, posterior: LowRankNormal) -> None:
        self._problem, self._posterior = problem, posterior
        self.point = problem.specification.region.center[0]
        self._found: dict[int, tuple[Setting, Frame, list[Tail]] | None] = {}

    def of(self, row: int) -> tuple[Setting, Frame, list[Tail]] | None:
        if row not in self._found:
            self._found[row] = self._look(self._problem.specification.rows[0, row])
        return self._found[row]

    def _look(self, row: Tensor) -> tuple[Setting, Frame, list[Tail]] | None:
        x = self.point.flatten().double()
        own = setting(self._problem.network, self._posterior, x, row)
        first = None if own is None else known(own, 0.0)
        if own is None or first is None or not first.noise > 0:
            return None
        at = frame(own)
        found = (tail(own, at, rate / first.noise) for rate in RATES)
        return own, at, [one for one in found if one is not None]


def looks_at(problem: Problem) -> bool:
    """Whether this is a network that the bound speaks of."""
    return applies(problem.network) and problem.specification.rows.shape[1] <= MOST_ROWS


def prove(problem: Problem, near: Directions) -> Correlated | None:
    """For one input whose region is a point; None where nothing above 0 is found."""
    spec = problem.specification
    groups, failing = [], 0.0
    for rows in paired(spec.rows[0]):
        found = _group(problem, near, rows, inside=False)
        if found is None:
            return None
        group, chance = found
        groups.append(group)
        failing += min(chance, 1.0) + ROUNDING
    return Correlated(1 - failing, tuple(groups)) if failing < 1 else None


def refute(problem: Problem, near: Directions) -> Refutation | None:
    """For one input at the centre of its region, by the group that fails there most often."""
    spec = problem.specification
    best: Refutation | None = None
    for rows in paired(spec.rows[0]):
        found = _group(problem, near, rows, inside=True)
        if found is None:
            continue
        upper = found[1] + ROUNDING
        if upper < (best.upper if best else 1.0):
            proof = Correlated(1 - upper, (found[0],))
            best = Refutation(max(upper, 0.0), near.point.cpu(), rows[0], proof)
    return best


def paired(rows: Tensor) -> list[tuple[int, ...]]:
    """Every row once: with the first one after it that is opposite to it, or alone."""
    left, found = list(range(len(rows))), list[tuple[int, ...]]()
    while left:
        row = left.pop(0)
        other = next((k for k in left if bool((rows[k] == -rows[row]).all())), None)
        found.append((row,) if other is None else (row, other))
        left = [k for k in left if k != other]
    return found


def _group(
    problem: Problem, near: Directions, rows: tuple[int, ...], *, inside: bool
) -> tuple[Group, float] | None:
    looked = near.of(rows[0])
    if looked is None:
        return None
    own, at, tails = looked
    offsets = problem.specification.offsets[0].tolist()
    high = offsets[rows[1]] if len(rows) > 1 else np.inf
    low = -offsets[rows[0]]
    if low >= high:
        return None
    asked = Interval(low, high, inside)
    moments = known(own, asked.center)
    found = None if moments is None else majorant(asked, moments, tails, most(own, at.bound))
    if found is None or moments is None:
        return None
    return _evidence(rows, moments.terms, at, found), found.chance


def most(own: Setting, bound: Array) -> float:
    """q⁺, as no |t| is above 1."""
    return float(bound.sum() + own.given[0, 0] + 2 * np.abs(own.given[0, 1:]).sum())


def _evidence(rows: tuple[int, ...], terms: int, at: Frame, found: Majorant) -> Group:
    shape = len(found.tails), len(at.center)
    slopes, curvatures = (
        np.array([getattr(one, name) for one in found.tails]).reshape(shape)
        for name in ("slope", "curvature")
    )
    rates = np.array([one.rate for one in found.tails], dtype=np.float64)
    choices = (
        np.array(found.numbers),
        at.center,
        at.bound,
        at.power,
        rates,
        found.weights,
        slopes,
        curvatures,
    )
    return Group(rows, terms, *(torch.from_numpy(np.array(part)) for part in choices))
