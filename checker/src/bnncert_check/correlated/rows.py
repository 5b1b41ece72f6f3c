"""How often rows fail at a point where weights are correlated: by groups, each of a row or of two
that are opposite.

    P(a row of the group fails) <= E G(a, q),   or   P(none of it fails) <= E G(a, q).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from flint import arb

from bnncert_check.arithmetic import Array, upper_float
from bnncert_check.correlated.gaussian import Form, Joint, at_point, joint
from bnncert_check.correlated.majorants import Majorant, centered, is_above
from bnncert_check.correlated.moments import Hermite, hermite, moments
from bnncert_check.correlated.tails import Choice, Frame, cells, is_framed, log_tail, most


@dataclass(frozen=True)
class Group:
    """One or two rows; terms of Mehler's series; G's numbers; what bounds q."""

    rows: tuple[int, ...]
    terms: int
    numbers: tuple[float, float, float, float]
    weights: Array
    frame: Frame
    tails: tuple[Choice, ...]


@dataclass(frozen=True)
class Correlated:
    """Groups that have every row once, or for an upper bound one group."""

    groups: tuple[Group, ...]


def correlated_failure(
    form: Form, x: Array, rows: Array, offsets: Array, found: Correlated, inside: bool
) -> arb:
    """Of all groups together, or inside the chance that no row of them fails; from above."""
    hidden, total = at_point(form, x), arb(0)
    neurons = hermite(hidden, max(group.terms for group in found.groups) + 2)
    for group in found.groups:
        own = joint(hidden, rows[group.rows[0]])
        chance = _chance(own, neurons, offsets[list(group.rows)], group, inside)
        total += chance if chance < 1 else arb(1)
    return total


def _chance(own: Joint, neurons: Hermite, offsets: Array, group: Group, inside: bool) -> arb:
    """E G, or 1 where the choices show nothing. Inside of ends that are none nothing is."""
    low, high = -float(offsets[0]), float(offsets[1]) if len(offsets) > 1 else math.inf
    if not low < high or not is_framed(own, group.frame):
        return arb(1)
    center, asked = centered(low, high, inside)
    rates = np.array([choice.rate for choice in group.tails])
    above = Majorant(group.numbers, group.weights, rates)
    if not is_above(asked, above, upper_float(most(own, group.frame))):
        return arb(1)
    found, of = moments(own, neurons, group.terms, center), cells(own, group.frame)
    level, slope, bend, noise = group.numbers
    total = level + slope * found.first + bend * found.second + noise * found.noise
    for weight, choice in zip(group.weights.tolist(), group.tails, strict=True):
        total += weight * log_tail(own, group.frame, of, choice).exp()
    return total
