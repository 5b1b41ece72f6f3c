"""All rows of an input: the form that laws are for, and the sum of the rows' failures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb

from bnncert_check.arithmetic import UNIT, Array, up
from bnncert_check.laws.cells import base_edges, cells, outside, with_edge
from bnncert_check.laws.corners import (
    SQUARE,
    UNDERFLOW,
    Grid,
    Margins,
    corners,
    grid,
    reference_values,
    references,
    slopes,
)
from bnncert_check.laws.lattice import Choice, Ends, Summed, failing, neurons
from bnncert_check.laws.remainder import joined, moments, remainders
from bnncert_check.layers import Activation
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Dense

LEAST, MOST = 2.0**-120, 2.0**100  # of numbers: no product of a few is lost to underflow
# Of some neurons: corners and atoms of their cells, and entries of their lattices.
CORNERS, ATOMS, ENTRIES = 2**15, 2**18, 2**19


@dataclass(frozen=True)
class Law:
    """What a certificate chose: the numbers of cells of z, of their parts, of cells of v and of
    theirs; the lattice's size; and by row the lattice's choice, (h, λ, η) of the remainder [R, 3],
    and references [R, inputs]."""

    cells: tuple[int, int, int, int]
    size: int
    choices: tuple[Choice, ...]
    remainders: Array
    theta: Array
    y: Array


def at_once(counts: tuple[int, int, int, int], size: int) -> int:
    """How many neurons are treated together."""
    number = counts[0] * counts[2]
    atoms = number * counts[1] * counts[3]
    return max(1, min(CORNERS // number, ATOMS // atoms, ENTRIES // size))


def require_form(model: Model, posterior: Posterior) -> tuple[Dense, Dense]:
    """The hidden layer and the output, of a chain of independent Gaussian weights."""
    layers, chain = model.layers, tuple((k,) for k in range(len(model.layers)))
    if posterior.family == "normal" and len(layers) == 3 and model.network.reads == chain:
        hidden, between, last = layers
        # By name: others are flat below 0 too, and are no ReLU above it.
        relu = isinstance(between, Activation) and between.kind == "ReLU"
        if isinstance(hidden, Dense) and relu and isinstance(last, Dense):
            return hidden, last
    raise CannotCheck(
        "unsupported",
        "laws are for one hidden dense layer of ReLUs with independent Gaussian weights",
    )


def failure(
    model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array, law: Law
) -> arb:
    """P(some row <= 0 somewhere on the region's bounding box), from above."""
    own = _margins(model, posterior, region, rows, offsets)
    beyond = 2 * arb(outside()) * len(own.mean) * (1 + len(rows))
    moving = region.upper > region.lower
    theta, y = law.theta[:, moving], law.y[:, moving]
    center, width = (region.lower + region.upper) / 2, region.upper - region.lower
    _require_scale(posterior, (center, width, rows, theta), (offsets, y))
    parts = (_row(own.row(r), theta[r : r + 1], y[r : r + 1], law, r) for r in range(len(rows)))
    return sum(parts, beyond)


def _require_scale(
    posterior: Posterior, factors: tuple[Array, ...], others: tuple[Array, ...]
) -> None:
    """Squares of smaller factors would be 0 and count as certain. Means and what else is summed may
    be as small as they like: what they lose is below UNDERFLOW."""
    factors = (posterior.fields["std"], *factors)
    small = any(((x != 0) & (np.abs(x) < LEAST)).any() for x in factors)
    every = (posterior.fields["mean"], *factors, *others)
    if small or not all((np.abs(x) <= MOST).all() for x in every):
        raise CannotCheck("unsupported", "laws are for numbers from 2^-120 to 2^100, and for 0")


def _row(own: Margins, theta: Array, y: Array, law: Law, row: int) -> arb:
    """Of one row at a time, and of it some neurons: corners of all would take much memory."""
    chance, known, choice = arb(0), [], law.choices[row]
    sums: list[Summed] = []
    each = at_once(law.cells, law.size)
    for start in range(0, len(own.mean), each):
        part = own.part(slice(start, start + each))
        found, at = references(part, theta, y), _grid(part, law.cells)
        alpha = slopes(part, found, at)
        a, b = reference_values(part, at, alpha)
        value, squared = corners(part, found, at, alpha, a, b)
        own_sum = neurons(value[0], squared[0], at, choice, law.size)
        sums = [sums[0].with_others(own_sum) if sums else own_sum]
        if len(own.radius):
            known.append(moments(at, a, b))
    least = _constants(own, theta, y)
    if known:
        chosen = law.remainders[row : row + 1]
        u = remainders(own, theta, y, joined(known), chosen)
        least, chance = least + u, arb(float(chosen[0, 2]))
    beta = own.beta - (own.slack * own.beta_size + UNDERFLOW)
    ends = Ends(float(beta[0]), float(own.beta_std[0]), float(up(least[0])))
    return failing(sums[0], choice, law.size, ends) + chance


def _margins(
    model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array
) -> Margins:
    hidden, last = require_form(model, posterior)
    mean, std = posterior.fields["mean"], posterior.fields["std"]
    weight, spread = hidden.matrix(mean), hidden.matrix(std) ** 2
    out, out_spread = last.matrix(mean), last.matrix(std) ** 2
    center = (region.lower + region.upper) / 2
    radius = up(np.maximum(region.upper - center, center - region.lower) * (1 + 4 * UNIT))
    moving = region.upper > region.lower
    with_one = np.append(center, 1.0)
    variance = with_one**2 @ spread
    kappa = spread[:-1][moving] * center[moving][:, None] / np.where(variance > 0, variance, 1.0)
    sizes = np.abs(rows) @ np.abs(out).T  # [R, n + 1], the bias last
    squares = rows**2 @ out_spread.T
    v = rows @ out.T
    return Margins(
        mean=with_one @ weight,
        std=np.sqrt(variance),
        size=np.abs(with_one) @ np.abs(weight),
        v=v[:, :-1],
        s=np.sqrt(squares[:, :-1]),
        v_size=sizes[:, :-1],
        beta=v[:, -1] + offsets,
        beta_std=np.sqrt(squares[:, -1]),
        beta_size=sizes[:, -1] + np.abs(offsets) + 12 * np.sqrt(squares[:, -1]),
        radius=radius[moving],
        weight=weight[:-1][moving],
        variance=spread[:-1][moving],
        kappa=np.where(variance > 0, kappa, 0.0),
        inputs=len(center) + rows.shape[1],
    )


def _grid(own: Margins, counts: tuple[int, int, int, int]) -> Grid:
    """With an edge at z = 0, and at v = 0."""
    edges = []
    for center, std, count in ((own.mean, own.std, counts[0]), (own.v, own.s, counts[2])):
        at = np.where(std > 0, -center / np.where(std > 0, std, 1.0), np.inf)
        edges.append(with_edge(base_edges(count), at))
    return grid(own, cells(edges[0], counts[1]), cells(edges[1], counts[3]))


def _constants(own: Margins, theta: Array, y: Array) -> Array:
    """K = ½ Σ_j r_j (θ_j - k (y⁰_j)²/θ_j), from above, [R]"""
    squares = SQUARE * y**2 / theta
    rounding = own.slack * ((theta + squares) @ own.radius) + UNDERFLOW
    return np.asarray(((theta - squares) @ own.radius) / 2 + rounding)
