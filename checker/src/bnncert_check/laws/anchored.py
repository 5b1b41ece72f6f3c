"""Where one input moves alone: rows at anchors and on the way from there, and a row's fall from one
point to another.

With M(a + t) >= A + t S from t⁻ to t⁺, for any q >= 0

    P(M <= 0 for some t)  <=  P(A <= q) + P(t⁺ S <= -q) + P(t⁻ S <= -q).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from flint import arb

from bnncert_check.arithmetic import Array
from bnncert_check.laws.anchors import (
    Factor,
    Field,
    LinesAbout,
    Way,
    at_anchor,
    beside,
    fallen,
    falling,
    lines_about,
    multiplied,
    way,
)
from bnncert_check.laws.cells import base_edges, cells, outside
from bnncert_check.laws.lattice import Choice, Ends, Summed, failing, products
from bnncert_check.laws.rows import (
    BaseLaw,
    Form,
    ends_of,
    grid_of,
    margins,
    parts,
    read_box,
    require_form,
    require_numbers,
    require_scale,
    together,
)
from bnncert_check.layers import Activation
from bnncert_check.linear import Interval
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region
from bnncert_check.verdict import CannotCheck


@dataclass(frozen=True)
class AnchorLaw(BaseLaw):
    """The number of cells of ξ; by row an anchor and q, [R]; slopes [R, n, K, 2] of lines. Of each
    row three choices: at the anchor, and to the upper and to the lower end."""

    along: int
    anchors: Array
    spared: Array
    slopes: Array


@dataclass(frozen=True)
class Fall(BaseLaw):
    """Of a row from one point to another: the number of cells of ξ, and slopes [n, K, 2]; one
    choice."""

    along: int
    slopes: Array


def finer(counts: tuple[int, int, int, int], along: int) -> tuple[int, int, int, int]:
    """Cells of z, cut by those of ξ."""
    return counts[0] * along, *counts[1:]


def failure(
    model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array, law: AnchorLaw
) -> arb:
    """P(some row <= 0 somewhere on the region's bounding box), from above. Every row has a z, a ξ
    and a v of its own that may be beyond the cells."""
    form = require_form(model, posterior)
    box = read_box(model, posterior, region, form, law)
    side = _only_side(box)
    center, width = (box.lower + box.upper) / 2, box.upper - box.lower
    require_scale(posterior, (center, width, rows), (offsets,))
    anchors = law.anchors
    require_numbers((anchors, box.upper[side] - anchors, anchors - box.lower[side]), (law.spared,))
    total = 6 * arb(outside()) * form.hidden.outputs * len(rows)
    for r in range(len(rows)):
        anchor = box.lower.copy()
        anchor[side] = law.anchors[r]
        row = slice(r, r + 1)
        track = _way(form, posterior, box, anchor, rows[row], offsets[row])
        total += _anchored(track, form.activation, law, r)
    return total


def fall(
    model: Model,
    posterior: Posterior,
    points: tuple[Array, Array],
    row: Array,
    least: float,
    law: Fall,
) -> arb:
    """P(row·y falls by `least` or more from the first point to the second), from above; row [1, O].

    β falls out of the difference.
    """
    form, (start, end) = require_form(model, posterior), points
    if form.node != 0:
        raise CannotCheck("unsupported", "falls are of networks whose hidden layer reads the input")
    box = Interval(np.minimum(start, end), np.maximum(start, end))
    require_scale(posterior, (start, box.upper - box.lower, row), (np.array([least]),))
    track = _way(form, posterior, box, start, row, np.zeros(1))
    at = _field(track, form.activation, law)
    about = lines_about(form.activation, track, at, law.slopes)
    found = falling(form.activation, track, at, about)
    (t,) = (t for t in track.ends if t)
    factor, ends = partial(fallen, t=t), Ends(0.0, 0.0, -least)
    chance = _chance(factor, track, at, found, (law, law.choices[0]), ends)
    return chance + 6 * arb(outside()) * form.hidden.outputs


def _only_side(box: Interval) -> int:
    sides = np.flatnonzero(box.upper > box.lower)
    if len(sides) != 1:
        raise CannotCheck("unsupported", "laws by anchors are for one input that moves")
    return int(sides[0])


def _way(
    form: Form, posterior: Posterior, box: Interval, anchor: Array, rows: Array, offsets: Array
) -> Way:
    """Of one row from the anchor to the ends of the box's only side."""
    own = margins(form, posterior, Interval(anchor, anchor), rows, offsets)
    mean, std = posterior.fields["mean"], posterior.fields["std"]
    weights, spreads = form.hidden.matrix(mean), form.hidden.matrix(std) ** 2
    side = _only_side(box)
    return way(own, weights, spreads, anchor, side, (box.lower[side], box.upper[side]))


def _field(track: Way, activation: Activation, law: AnchorLaw | Fall) -> Field:
    grids = grid_of(track.own, law.cells, activation.edges)
    return Field(grids.first, cells(base_edges(law.along), 1), grids.second.part(0))


def _anchored(track: Way, activation: Activation, law: AnchorLaw, row: int) -> arb:
    """P(A <= q), and for either end that is away from the anchor P(t S <= -q)."""
    choices, q = law.choices[3 * row : 3 * row + 3], float(law.spared[row])
    at = _field(track, activation, law)
    found = lines_about(activation, track, at, law.slopes[row])
    total = _chance(at_anchor, track, at, found, (law, choices[0]), ends_of(track.own, q))
    for choice, t in zip(choices[1:], track.ends, strict=True):
        if t:
            ends = Ends(0.0, 0.0, -q)
            total += _chance(partial(beside, t=t), track, at, found, (law, choice), ends)
    return total


def _chance(
    factor: Callable[[Way, Field, LinesAbout], Factor],
    track: Way,
    at: Field,
    found: LinesAbout,
    chosen: tuple[AnchorLaw | Fall, Choice],
    ends: Ends,
) -> arb:
    """Of a sum of factors times v."""
    law, choice = chosen
    sums: list[Summed] = []
    for part in parts(track.own, finer(law.cells, law.along), law.size):
        some, here = track.part(part), at.part(part)
        terms = multiplied(some, here, factor(some, here, found.part(part)))
        sums = [together([*sums, products(terms, choice, law.size)])]
    return failing(sums[0], choice, law.size, ends)
