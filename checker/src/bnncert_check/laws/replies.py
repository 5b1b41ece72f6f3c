"""P(row <= 0) from above, for a row and an adversary's reply about a point of a box.

P(β + Σ T - λ s₂ s <= E) + P(½ Σ_j r_j² (Σ_i x_iω_ij)² > s) + 2n exp(-t²/2)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb

from bnncert_check.arithmetic import Array, upper_float
from bnncert_check.laws.cells import base_edges, cells, outside, with_edge, with_edges
from bnncert_check.laws.corners import SQUARE, Grid, Margins, grid
from bnncert_check.laws.lattice import Choice, Summed, Terms, failing, neurons
from bnncert_check.laws.remainder import Moments, joined, moments, remainders
from bnncert_check.laws.reply import (
    ADDED,
    FAINT,
    NEAR,
    answer,
    corners,
    in_signs,
    shares,
    slopes,
)
from bnncert_check.laws.rows import (
    about,
    ends_of,
    parts,
    require_form,
    require_numbers,
    require_relu,
    standardised,
    together,
)
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region
from bnncert_check.verdict import CannotCheck


@dataclass(frozen=True)
class ReplyLaw:
    """What a certificate chose: cells and a lattice as other laws have, the threshold t, the share
    h with s₁ and s₂ as 1 + h and 1 + 1/h, (share, scale, chance) of the remainder [1, 3], and the
    adversary's weights [n] and centre [J]."""

    cells: tuple[int, int, int, int]
    size: int
    choice: Choice
    threshold: float
    share: float
    remainder: Array
    weights: Array
    center: Array


def reply_failure(
    model: Model,
    posterior: Posterior,
    region: Region,
    asked: tuple[Array, Array],
    law: ReplyLaw,
) -> arb:
    """asked: one row and its offset."""
    form = require_form(model, posterior)
    require_relu(form.activation)
    if form.node or not region.is_box:
        raise CannotCheck("unsupported", "replies are for boxes of what the hidden layer reads")
    radius = region.room(law.center)
    own = about(form, posterior, law.center, radius, asked)
    factors = (posterior.fields["std"], law.center, radius, asked[0], law.weights)
    require_numbers(factors, (posterior.fields["mean"], asked[1]))
    farther = 2 * (-(arb(law.threshold) ** 2) / 2).exp()
    beyond = 4 * arb(outside()) + farther
    return _failing(own, law) + beyond * len(own.mean) + arb(float(law.remainder[0, 2]))


def _failing(own: Margins, law: ReplyLaw) -> arb:
    found = answer(own, law.weights)
    known: list[Moments] = []
    sums: list[Summed] = []
    first, second = shares(law.share)
    rate = law.choice.rate
    for part in parts(own, (law.cells[0] + ADDED, *law.cells[1:]), law.size):
        rows, replied = own.part(part), found.part(part)
        at = _grid(rows, law)
        ends = corners(rows, at, replied, slopes(rows, at, replied, law.threshold))
        x = ends.x[None]
        known.append(moments(at, x, np.zeros_like(x)))
        noise = (first * ends.squared + FAINT * ends.faint) * (rate / 2) * (1 + 2.0**-40)
        value = ends.value - noise
        terms = Terms(value, np.zeros_like(value), at.first, at.second.part(0))
        sums = [together([*sums, neurons(terms, law.choice, law.size)])]
    least = arb(0)
    if len(own.radius):
        signs, theta = in_signs(own, found), (SQUARE / own.radius)[None]
        (most,) = remainders(signs, theta, 0 * theta, joined(known), law.remainder)
        least = arb(rate) * arb(second) * (1 + arb(2) ** -40) * arb(float(most))
    return failing(sums[0], law.choice, law.size, ends_of(own, upper_float(least)))


def _grid(rows: Margins, law: ReplyLaw) -> Grid:
    """With edges at 0 and near it, and at v = 0."""
    steps = np.array([sign * n for n in NEAR for sign in (1, -1)][1:])
    near = law.threshold * np.sqrt(rows.squared)[:, None] * steps - rows.mean[:, None]
    first = with_edges(base_edges(law.cells[0]), standardised(near, rows.std[:, None]))
    second = with_edge(base_edges(law.cells[2]), standardised(-rows.v, rows.s))
    return grid(rows, cells(first, law.cells[1]), cells(second, law.cells[3]))
