"""All rows of an input: the form that laws are for, and the sum of the rows' failures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.arithmetic import UNIT, Array, up
from bnncert_check.laws.cells import base_edges, cells, outside, with_edge
from bnncert_check.laws.corners import (
    SQUARE,
    UNDERFLOW,
    Grid,
    Margins,
    blended,
    corners,
    grid,
    reference_values,
    references,
    slopes,
)
from bnncert_check.laws.lattice import Choice, Ends, Summed, Terms, failing, neurons
from bnncert_check.laws.lines import Lines, line_corners, lines
from bnncert_check.laws.remainder import joined, moments, remainders
from bnncert_check.layers import Activation, Layer
from bnncert_check.linear import Interval, certain_box
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region
from bnncert_check.tails import normal_tail
from bnncert_check.verdict import CannotCheck, Rejected
from bnncert_check.weighted import Dense, Linear

LEAST, MOST = 2.0**-120, 2.0**100  # of numbers: no product of a few is lost to underflow
# Of some neurons: corners and atoms of their cells, and entries of their lattices.
CORNERS, ATOMS, ENTRIES = 2**15, 2**18, 2**19


@dataclass(frozen=True)
class BaseLaw:
    """What a certificate chose: the numbers of cells of z, of their parts, of cells of v and of
    theirs; the lattice's size; by row the lattice's choice; and a box of what the hidden layer
    reads, if that is not the input."""

    cells: tuple[int, int, int, int]
    size: int
    choices: tuple[Choice, ...]
    trunk: Interval | None


@dataclass(frozen=True)
class SharedLaw(BaseLaw):
    """Of ReLUs, where neurons share the input's worst case: by row (h, λ, η) of the remainder
    [R, 3], references [R, inputs], and how much of its slopes is their mean over z."""

    remainders: Array
    theta: Array
    y: Array
    blends: tuple[float, ...]


@dataclass(frozen=True)
class LineLaw(BaseLaw):
    """Of any activation, each neuron at its own worst: a threshold, and slopes [n, K, 2] of lines
    below it and above it."""

    threshold: float
    slopes: Array


Law: TypeAlias = SharedLaw | LineLaw


@dataclass(frozen=True)
class Form:
    """The layers that laws are of, and the node that the hidden one reads."""

    hidden: Dense
    activation: Activation
    last: Dense
    node: int


def at_once(counts: tuple[int, int, int, int], size: int) -> int:
    """How many neurons are treated together."""
    number = counts[0] * counts[2]
    atoms = number * counts[1] * counts[3]
    return max(1, min(CORNERS // number, ATOMS // atoms, ENTRIES // size))


def parts(own: Margins, counts: tuple[int, int, int, int], size: int) -> Iterator[slice]:
    """Of one row some neurons at a time: corners of all would take much memory."""
    each = at_once(counts, size)
    return (slice(start, start + each) for start in range(0, len(own.mean), each))


def together(sums: Iterable[Summed]) -> Summed:
    return reduce(Summed.with_others, sums)


def require_form(model: Model, posterior: Posterior) -> Form:
    """The last layers: a hidden and an output layer of independent Gaussian weights, each of which
    reads the one before it, and nothing random before them."""
    network, node = model.network, len(model.layers)
    found: list[Layer] = []
    while posterior.family == "normal" and node > 0 and len(found) < 3:
        found.append(network.layers[node - 1])
        node = network.reads[node - 1][0]
    if len(found) == 3:
        last, between, hidden = found
        certain = (
            layer for layer in model.layers if isinstance(layer, Linear) and layer not in found
        )
        if (
            isinstance(hidden, Dense)
            and isinstance(between, Activation)
            and isinstance(last, Dense)
            and not any(posterior.is_random(layer) for layer in certain)
        ):
            return Form(hidden, between, last, node)
    raise CannotCheck(
        "unsupported",
        "laws are for one hidden dense layer with independent Gaussian weights, and certain ones "
        "before it",
    )


def read_box(
    model: Model, posterior: Posterior, region: Region, form: Form, law: BaseLaw
) -> Interval:
    """A box of what the hidden layer reads: the region's own, or one that was proposed, which must
    hold the bounds of the certain layers before it."""
    if law.trunk is None:
        return Interval(region.lower, region.upper)
    found, said = certain_box(model, posterior.fields["mean"], region, form.node), law.trunk
    if not ((said.lower <= found.lower) & (found.upper <= said.upper)).all():
        raise Rejected(
            "trunk-outside-box",
            "what the hidden layer reads leaves the box that is said to hold it",
        )
    return said


def require_relu(activation: Activation) -> None:
    """By name: others are flat below 0 too, and are no ReLU above it."""
    if activation.kind != "ReLU":
        raise CannotCheck("unsupported", "laws of neurons that share an input are for ReLUs")


def failure(
    model: Model,
    posterior: Posterior,
    region: Region,
    rows: Array,
    offsets: Array,
    law: Law,
    pairs: int = 0,
) -> arb:
    """P(some row <= 0 somewhere on the region's bounding box), from above, where the chances of so
    many pairs of rows are taken off: what all rows share is charged once more for each."""
    form = require_form(model, posterior)
    box = read_box(model, posterior, region, form, law)
    own = margins(form, posterior, box, rows, offsets)
    beyond = 2 * arb(outside()) * len(own.mean) * (1 + pairs + len(rows))
    center, width = (box.lower + box.upper) / 2, box.upper - box.lower
    require_scale(posterior, (center, width, rows), (offsets,))
    if isinstance(law, SharedLaw):
        return beyond + _by_references(own, form.activation, law, box.upper > box.lower)
    return beyond + _by_lines(own, form.activation, law, 1 + pairs)


def _by_references(
    own: Margins, activation: Activation, law: SharedLaw, moving: NDArray[np.bool_]
) -> arb:
    require_relu(activation)
    theta, y = law.theta[:, moving], law.y[:, moving]
    require_numbers((theta,), (y,))
    each = (
        _row(own.row(r), theta[r : r + 1], y[r : r + 1], law, r) for r in range(len(law.choices))
    )
    return sum(each, arb(0))


def _by_lines(own: Margins, activation: Activation, law: LineLaw, charged: int) -> arb:
    """No ζ_i is above R_i but for a chance of Q(t) each, which is charged so many times."""
    edges = activation.edges
    found = lines(activation, own, grid_of(own.row(0), law.cells, edges), law.slopes, law.threshold)
    total = normal_tail(arb(law.threshold)) * len(own.mean) if len(own.radius) else arb(0)
    total *= charged
    for r, choice in enumerate(law.choices):
        row = own.row(r)
        at = grid_of(row, law.cells, edges)
        sums = (
            neurons(_line_terms(row, at, found, part), choice, law.size)
            for part in parts(own, law.cells, law.size)
        )
        total += failing(together(sums), choice, law.size, ends_of(row, 0.0))
    return total


def _line_terms(row: Margins, at: Grid, found: Lines, part: slice) -> Terms:
    first, second = at.first.part(part), at.second.part((0, part))
    return Terms(*line_corners(row, at, found, part), first, second, floored=True)


def require_scale(
    posterior: Posterior, factors: tuple[Array, ...], others: tuple[Array, ...]
) -> None:
    """Squares of smaller factors would be 0 and count as certain. Means and what else is summed may
    be as small as they like: what they lose is below UNDERFLOW."""
    own = posterior.fields
    require_numbers((own["std"], *factors), (own["mean"], *others))


def require_numbers(factors: tuple[Array, ...], others: tuple[Array, ...]) -> None:
    small = any(((x != 0) & (np.abs(x) < LEAST)).any() for x in factors)
    every = (*factors, *others)
    if small or not all((np.abs(x) <= MOST).all() for x in every):
        raise CannotCheck("unsupported", "laws are for numbers from 2^-120 to 2^100, and for 0")


def _row(own: Margins, theta: Array, y: Array, law: SharedLaw, row: int) -> arb:
    """Of one row at a time."""
    chance, known, choice = arb(0), [], law.choices[row]
    sums: list[Summed] = []
    for part in (own.part(chosen) for chosen in parts(own, law.cells, law.size)):
        found, at = references(part, theta, y), grid_of(part, law.cells, (0.0,))
        alpha = blended(slopes(part, found, at), at, law.blends[row])
        a, b = reference_values(part, at, alpha)
        value, squared = corners(part, found, at, alpha, a, b)
        terms = Terms(value[0], squared[0], at.first, at.second.part(0))
        sums = [together([*sums, neurons(terms, choice, law.size)])]
        if len(own.radius):
            known.append(moments(at, a, b))
    least = _constants(own, theta, y)
    if known:
        chosen = law.remainders[row : row + 1]
        u = remainders(own, theta, y, joined(known), chosen)
        least, chance = least + u, arb(float(chosen[0, 2]))
    return failing(sums[0], choice, law.size, ends_of(own, float(up(least[0])))) + chance


def ends_of(own: Margins, least: float) -> Ends:
    beta = own.beta - (own.slack * own.beta_size + UNDERFLOW)
    return Ends(float(beta[0]), float(own.beta_std[0]), least)


def margins(
    form: Form, posterior: Posterior, region: Interval, rows: Array, offsets: Array
) -> Margins:
    center = (region.lower + region.upper) / 2
    radius = up(np.maximum(region.upper - center, center - region.lower) * (1 + 4 * UNIT))
    radius = np.where(region.upper > region.lower, radius, 0.0)
    return about(form, posterior, center, radius, (rows, offsets))


def about(
    form: Form, posterior: Posterior, center: Array, radius: Array, asked: tuple[Array, Array]
) -> Margins:
    """asked: rows and offsets."""
    hidden, last = form.hidden, form.last
    mean, std = posterior.fields["mean"], posterior.fields["std"]
    weight, spread = hidden.matrix(mean), hidden.matrix(std) ** 2
    out, out_spread = last.matrix(mean), last.matrix(std) ** 2
    moving, (rows, offsets) = radius > 0, asked
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
        terms=len(center) + rows.shape[1] + len(variance),
    )


def grid_of(own: Margins, counts: tuple[int, int, int, int], kinks: tuple[float, ...]) -> Grid:
    """With an edge at each kink of z, and at v = 0."""
    first = base_edges(counts[0])
    for kink in kinks:
        first = with_edge(first, standardised(kink - own.mean, own.std))
    second = with_edge(base_edges(counts[2]), standardised(-own.v, own.s))
    return grid(own, cells(first, counts[1]), cells(second, counts[3]))


def standardised(value: Array, std: Array) -> Array:
    return np.where(std > 0, value / np.where(std > 0, std, 1.0), np.inf)


def _constants(own: Margins, theta: Array, y: Array) -> Array:
    """K = ½ Σ_j r_j (θ_j - k (y⁰_j)²/θ_j), from above, [R]"""
    squares = SQUARE * y**2 / theta
    rounding = own.slack * ((theta + squares) @ own.radius) + UNDERFLOW
    return np.asarray(((theta - squares) @ own.radius) / 2 + rounding)
