"""Functionals of Gaussian weights, each with its mean m and Lipschitz constant L.

With W = μ + Δ and rows A on z = Wh, h in hc ± hr, and s_j² = Σ_i A_i² σ_ij² (+ Σ_q (A V_q)_j² where
noise is shared),

    m:  the walk over the mean network less sqrt(2/π) Σ_j hr_j s_j a layer,
        at the input A·c - Σ_j r_j E|A_j + g_j|
    L² = Σ_layers Σ_j s_j² max|h_j|² + the smaller of Σ_q (|a_q·hc| + |a_q|·hr)²
         and (|(a_q·hc)_q| + Σ_j hr_j s_j)², where q runs over the coordinates of shared noise.

Where h is certain and known as a function of the input (`affine`), its noise may meet the input
instead of the box, and L² of shared noise is also at most |C|² + 2 along + reach², C the slopes in
the middle, which change by `along` / |C| in their direction. L is a supremum over pairs (x, h), all
of which lie in both sets: what either says holds, and the smaller counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, reduce

import numpy as np
from flint import arb

from bnncert_check.affine import LARGEST, Affine, Met, affine_form, meet_input
from bnncert_check.arithmetic import (
    ETA,
    UNIT,
    Array,
    dot_down,
    dot_up,
    down,
    sqrt_up,
    sum_error,
    up,
    upper_float,
)
from bnncert_check.linear import (
    ActivationStep,
    Interval,
    MaxStep,
    WiringStep,
    center_radius,
    merged,
    terms,
    unit_rows,
    with_one,
)
from bnncert_check.model import Posterior
from bnncert_check.network import Network
from bnncert_check.region import Region
from bnncert_check.splits import SplitStep
from bnncert_check.tails import expected_magnitude
from bnncert_check.weighted import (
    Dense,
    Linear,
    Scale,
    Sharing,
    fixed_or,
    meet_error,
    meet_up,
    pull_error,
    pull_up,
)
from bnncert_check.wiring import SUMS, Move

NO_NOISE = 2.0**-300  # of a standard deviation


@dataclass(frozen=True)
class NoisyStep:
    """A linear layer with mean matrix, variances and shared factors, all with the bias as last
    input."""

    layer: Linear
    mean: Array  # [entries + 1, channels]
    variance: Array | None  # from above; None where nothing is independent noise
    factors: Array | None  # [k, entries + 1, channels]
    h: Interval
    region: Region | None  # where the layer reads the input
    way: tuple[
        Way, ...
    ] = ()  # or what comes from it entry by entry: the layers between, last first
    form: Affine | None = None  # what a dense layer reads as a function of the input

    @property
    def spread(self) -> Array | None:
        """The variance of each weight, of all its noise, from above."""
        if self.factors is None:
            return self.variance
        shared = dot_up(np.moveaxis(self.factors, 0, -1), np.moveaxis(self.factors, 0, -1))
        return shared if self.variance is None else up(self.variance + shared)


@dataclass(frozen=True)
class Way:
    """A layer that changes every entry alone: a certain scale, with its matrix, or a move."""

    layer: Scale | Move
    matrix: Array | None

    def back(self, std: Array) -> Array:
        """Standard deviations of coefficients after it as those before it, from above."""
        if self.matrix is None:
            return self.layer.split(std, 1)[0]  # type: ignore[union-attr]
        return up(self.layer.pull(np.abs(self.matrix), std)[:, :-1])  # type: ignore[union-attr]


@dataclass(frozen=True)
class Seen:
    """Noise that meets the input through affine forms: standard deviations there, what is paid
    beside them, and what is paid where boxes meet it instead."""

    std: Array
    paid: Array
    instead: Array


@dataclass(frozen=True)
class Slopes:
    """Along noise that weights share: of every coordinate the slope C at the boxes' centres, with
    the most that boxes and roundings add to its size, and the most that they add to the vector of
    all; of one layer perhaps also the most that what they add has along C, times |C|."""

    center: Array
    radius: Array
    reach: Array
    along: Array | None = None

    def rounded(self, gap: Array) -> Slopes:
        """With what rounding changes in each."""
        total = dot_up(gap, np.ones_like(gap))
        along = self.along
        if along is not None:
            along = up(along + up(sqrt_up(dot_up(self.center, self.center)) * total))
        return Slopes(self.center, up(self.radius + gap), up(self.reach + total), along)

    def plus(self, other: Slopes) -> Slopes:
        """Of several layers together, how far along is not known."""
        center = self.center + other.center
        radius, reach = up(self.radius + other.radius), up(self.reach + other.reach)
        return Slopes(center, radius, reach).rounded(up(UNIT * np.abs(center) + ETA))

    @property
    def squared(self) -> Array:
        """|c|² for all slopes c, from above."""
        found = _shared_squares(self.center, self.radius, self.reach)
        if self.along is None:
            return found
        moved = up(up(2 * self.along) + up(self.reach * self.reach))
        return np.minimum(found, up(dot_up(self.center, self.center) + moved))


@dataclass(frozen=True)
class Tally:
    """What a walk has gathered: the value from below, L² of independent noise from above, and the
    slopes along shared noise, in each way that they are known: first by boxes alone."""

    value: Array
    squared: Array
    shared: tuple[Slopes, ...] = ()
    input_std: Array | None = None
    random: bool = False  # whether a layer on the way has noise
    seen: Seen | None = None


Step = NoisyStep | ActivationStep | SplitStep | MaxStep | WiringStep
Functional = tuple[Array, Array]  # m from below and L from above


@dataclass(frozen=True)
class Trace:
    """The first layers of a network as steps, and the intervals of its nodes, but for terms whose
    sum has one."""

    network: Network
    region: Region
    steps: list[Step]
    intervals: dict[int, Interval]
    forms: dict[int, Affine] = field(default_factory=dict)  # certain vectors, by node

    @property
    def noisy(self) -> list[NoisyStep]:
        return [step for step in self.steps if isinstance(step, NoisyStep)]


def noisy(layer: Linear, posterior: Posterior, traced: Trace, h: Interval) -> NoisyStep:
    """The next step, a linear layer that reads what lies in h."""
    mean = fixed_or(layer, posterior.fields["mean"])
    (node,) = traced.network.reads[len(traced.steps)]
    way = way_of(traced.network, posterior, node)
    region = None if way is None else traced.region
    if not layer.parameters:
        return NoisyStep(layer, mean, None, None, h, region, way or ())
    std = layer.matrix(posterior.fields["std"])
    variance = up(std * std) if std.any() else None
    form = traced.forms.get(node) if isinstance(layer, Dense) else None
    factors = posterior.factors(layer)
    return NoisyStep(layer, mean, variance, factors, h, region, way or (), form)


def way_of(network: Network, posterior: Posterior, node: int) -> tuple[Way, ...] | None:
    """The layers between a node and the input, last first, if every entry goes its own way."""
    way: list[Way] = []
    while node:
        layer, reads = network.layers[node - 1], network.reads[node - 1]
        if isinstance(layer, Scale) and not posterior.is_random(layer):
            way.append(Way(layer, layer.matrix(posterior.fields["mean"])))
        elif isinstance(layer, Move) and len(reads) == 1:
            way.append(Way(layer, None))
        else:
            return None
        node = reads[0]
    return tuple(way)


def functional(traced: Trace, rows: Array) -> Functional:
    """m from below and L from above of rows·(last step's output), [R]; L is 0 where nothing on the
    way is random."""
    found, tally = walk(traced, rows)
    return conclude(traced, found[0], tally)


def walk(traced: Trace, rows: Array, keep: bool = False) -> tuple[dict[int, Array], Tally]:
    """The rows on the input, or on every node that they come by, and what was gathered on the
    way."""
    zero = np.zeros(len(rows))
    tally, waiting = Tally(zero, zero), {len(traced.steps): rows}
    for k in reversed(range(len(traced.steps))):
        if k + 1 not in waiting:
            continue  # a node that only layers beyond the walk's start read
        step, rows = traced.steps[k], waiting[k + 1] if keep else waiting.pop(k + 1)
        if isinstance(step, NoisyStep):
            rows, tally = _pull(step, rows, tally)
        else:
            rows, gained = step.pull(rows)
            tally = replace(tally, value=down(tally.value + gained))
        for node, part in terms(step, traced.network.reads[k], rows):
            if node in waiting:
                waiting[node], paid = merged(waiting[node], part, traced.intervals[node])
                tally = replace(tally, value=down(tally.value - paid))
            else:
                waiting[node] = part
    return waiting, tally


def conclude(traced: Trace, rows: Array, tally: Tally) -> Functional:
    value = down(tally.value + _at_input(traced.region, rows, tally))
    if not tally.random:
        return value, np.zeros(len(rows))
    squared = tally.squared
    if tally.shared:
        squared = up(squared + reduce(np.minimum, [known.squared for known in tally.shared]))
    return value, sqrt_up(squared)


def has_form(traced: Trace, layer: Linear, posterior: Posterior) -> bool:
    """Whether the next layer, a dense one with random weights, reads something certain that is
    taken as a function of the input, and no entry by itself."""
    network, k = traced.network, len(traced.steps)
    (node,) = network.reads[k]
    if not isinstance(layer, Dense) or layer.inputs * network.inputs > LARGEST:
        return False
    random = [one for one in network.layers[:node] if isinstance(one, Linear)]
    if not posterior.is_random(layer) or any(map(posterior.is_random, random)):
        return False
    return way_of(network, posterior, node) is None


def form_of(traced: Trace) -> Affine:
    """What the last step gives, a certain vector, as a function of the input: by the rows of all
    its entries and of their negatives."""
    network = traced.network
    width = network.widths[len(traced.steps)]
    lines = np.zeros((2, width, network.inputs)), np.zeros((2, width))
    for rows, places in unit_rows(np.arange(width), width, network):
        for side, sign in enumerate((1.0, -1.0)):
            found, tally = walk(traced, sign * rows)
            lines[0][side, places], lines[1][side, places] = found[0], tally.value
    return affine_form(traced.region, *zip(*lines, strict=True))


def _at_input(region: Region, rows: Array, tally: Tally) -> Array:
    """The minimum at the input; noise that is seen there either meets the input with the rows, or
    it has met boxes: the larger counts."""
    seen = tally.seen
    if seen is None:
        return _minimum(region, rows, tally.input_std)
    together = _minimum(region, rows, _joined(seen.std, tally.input_std, tally))
    by_boxes = _minimum(region, rows, tally.input_std)
    return np.maximum(down(together - seen.paid), down(by_boxes - seen.instead))


def _shared_squares(center: Array, radius: Array, reach: Array) -> Array:
    """The smaller of Σ_q (|center_q| + radius_q)² and (|center| + reach)²."""
    size = np.abs(center)
    by_coordinate = up(size + radius)
    together = up(sqrt_up(dot_up(size, size)) + reach)
    return np.minimum(dot_up(by_coordinate, by_coordinate), up(together * together))


def stands_alone(traced: Trace) -> bool:
    """Whether the last layer has a bound of its own, from the box of what it reads, and not from
    the input region itself."""
    step = traced.steps[-1]
    return isinstance(step, NoisyStep) and step.region is None


def last_layer(traced: Trace, rows: Array) -> Functional:
    """m from below and L from above of rows·(last step's output) for every input of the layer in
    its box: the layer alone, with that box as its region."""
    step = traced.steps[-1]
    assert isinstance(step, NoisyStep)
    h = step.h
    box = Region("box", h.lower, 0.0, h.lower, h.upper)
    none = np.zeros(len(rows))
    alone = replace(step, region=box, way=(), form=None)
    pulled, tally = _pull(alone, rows, Tally(none, none))
    return conclude(replace(traced, region=box), pulled, tally)


def least_std(traced: Trace, rows: Array) -> Array:
    """A standard deviation that the noise of each row has at least, and then it is Gaussian: at a
    single point, where the last layer, a dense one, is the only one with noise; 0 elsewhere."""
    *before, step = traced.steps
    others = [one for one in before if isinstance(one, NoisyStep)]
    certain = not any(one.variance is not None or one.factors is not None for one in others)
    head = isinstance(step, NoisyStep) and isinstance(step.layer, Dense) and step.region is None
    if not (certain and head and (traced.region.lower == traced.region.upper).all()):
        return np.zeros(len(rows))
    assert isinstance(step, NoisyStep)
    h, total = with_one(step.h), np.zeros(len(rows))
    if step.variance is not None:
        closest = np.maximum(np.maximum(h.lower, -h.upper), 0.0)
        variance = np.maximum(down(down(step.variance)), 0.0)
        squares = np.maximum(down(rows * rows), 0.0)
        pulled = step.layer.pull(variance, squares)
        least = np.maximum(down(pulled - pull_error(step.layer, variance, squares)), 0.0)
        total = dot_down(least, np.maximum(down(closest * closest), 0.0))
    middle, spread = center_radius(h)
    for factor in () if step.factors is None else step.factors:
        slopes = step.layer.pull(factor, rows)
        error = pull_error(step.layer, np.abs(factor), np.abs(rows))
        low, high = dot_down(slopes, middle), dot_up(slopes, middle)
        off = up(dot_up(up(np.abs(slopes) + error), spread) + dot_up(error, np.abs(middle)))
        length = np.maximum(down(np.maximum(low, -high) - off), 0.0)
        total = down(total + np.maximum(down(length * length), 0.0))
    return np.maximum(down(np.sqrt(np.maximum(total, 0.0))), 0.0)


def local(traced: Trace, k: int) -> tuple[Functional, Functional]:
    """Of the neurons of an image that layer k gives, and of their negatives, from the nearest
    intervals alone.

    A term with an interval counts by its ends, another by its own functional. Noises of different
    layers are independent, so that the squares of L add up, unless weights share them: then L does.
    """
    step = traced.steps[k]
    if isinstance(step, NoisyStep):
        return one_layer(step)
    layer = traced.network.layers[k]
    assert isinstance(layer, SUMS)  # nothing else has no interval of its own
    together = _shares_noise(traced, k)
    lows, highs, squares, noisy = list[Array](), list[Array](), list[Array](), list[Array]()
    for node in traced.network.reads[k]:
        if node in traced.intervals:
            h = traced.intervals[node]
            below, above, noise = h.lower, -h.upper, np.zeros_like(h.lower)
        else:
            (below, noise), (above, _) = local(traced, node - 1)
        lows.append(below)
        highs.append(above)
        squares.append(np.where(noise > 0, noise if together else up(noise**2), 0.0))
        noisy.append((noise > 0).astype(np.float64))
    random = layer.join(noisy, lambda count: count) > 0
    total = layer.join(squares, up)
    lipschitz = np.where(random, total if together else sqrt_up(total), 0.0)
    return (layer.join(lows, down), lipschitz), (layer.join(highs, down), lipschitz.copy())


def _shares_noise(traced: Trace, k: int) -> bool:
    """Whether weights of the linear layers that layer k sums up share noise."""
    step = traced.steps[k]
    if isinstance(step, NoisyStep):
        return step.factors is not None
    terms = [node for node in traced.network.reads[k] if node not in traced.intervals]
    return any(_shares_noise(traced, node - 1) for node in terms)


def one_layer(step: NoisyStep) -> tuple[Functional, Functional]:
    """±(μ·hc) - Σ_e hr_e E|μ_e + g_e| and L² = Σ_e σ_e² max|h_e|² over what each neuron meets, and
    what shared noise adds to it: the fold on the box."""
    layer, size, spread = step.layer, step.h.magnitude, step.spread
    center, radius = center_radius(step.h)
    expected, squared = np.abs(step.mean), np.zeros(layer.outputs)
    if spread is not None:
        expected = expected_magnitude(step.mean, sqrt_up(spread))
    if step.variance is not None:
        squared = meet_up(layer, step.variance, up(size**2))
    if step.factors is not None:
        squared = up(squared + _one_layer_shared(step, step.factors))
    paid = layer.meet(expected, radius, 0.0)
    loss = up(paid + sum_error(2 * len(expected), layer.meet(expected, size) + paid))
    value, lipschitz = (
        layer.meet(step.mean, center),
        sqrt_up(squared) if spread is not None else squared,
    )
    below, above = (down(sign * value - loss) for sign in (1.0, -1.0))
    return (below, lipschitz), (above, lipschitz.copy())


def _one_layer_shared(step: NoisyStep, factors: Array) -> Array:
    """What shared noise adds to L² of every neuron."""
    layer, size = step.layer, step.h.magnitude
    center, radius = center_radius(step.h)
    centers = np.stack([layer.meet(factor, center) for factor in factors], -1)
    gaps = np.stack([meet_error(layer, np.abs(factor), size) for factor in factors], -1)
    radii = np.stack([meet_up(layer, np.abs(factor), radius, 0.0) for factor in factors], -1)
    variance = dot_up(np.moveaxis(factors, 0, -1), np.moveaxis(factors, 0, -1))
    reach = up(meet_up(layer, sqrt_up(variance), radius, 0.0) + dot_up(gaps, np.ones_like(gaps)))
    return _shared_squares(centers, up(radii + gaps), reach)


def _pull(step: NoisyStep, rows: Array, tally: Tally) -> tuple[Array, Tally]:
    """The rows before the layer, and the tally with its mean, its rounding and its noise."""
    h, magnitude = with_one(step.h), np.abs(rows)
    pulled = step.layer.pull(step.mean, rows)
    error = dot_up(pull_error(step.layer, np.abs(step.mean), magnitude), h.magnitude)
    tally = replace(tally, value=down(tally.value + down(pulled[:, -1] - error)))
    std = None
    if step.variance is not None:
        variances = pull_up(step.layer, step.variance, up(rows * rows))  # s_j²
        layer = step.layer
        reach = (
            _reach(step, variances)
            if isinstance(layer, Dense)
            else _shared_reach(layer, step, step.variance, rows)
        )
        tally = replace(tally, squared=up(tally.squared + reach))
        std = variances
    if step.form is not None and isinstance(step.layer, Dense):
        own = np.zeros((len(rows), len(step.mean))) if std is None else std
        found = meet_input(step.layer, step.factors, step.form, step.h, rows, own)
        if step.factors is not None:
            by_box, _ = _pull_shared(step.layer, step.factors, h, rows)
            tally = _sharing(tally, by_box, _met(found))
        return pulled[:, :-1], _seen(step, step.form, found, tally)
    if step.factors is not None:
        by_box, shared = _pull_shared(step.layer, step.factors, h, rows)
        tally = _sharing(tally, by_box)
        std = shared if std is None else up(std + shared)
    if std is not None:
        std, tally = sqrt_up(std), replace(tally, random=True)
        if step.region is not None:
            own = std[:, :-1]
            for part in step.way:
                own = part.back(own)
            own = np.maximum(own, ETA)  # also of entries that are not read: it divides
            tally = replace(tally, input_std=_joined(own, tally.input_std, tally))
        else:
            tally = replace(tally, value=down(tally.value - _expected(step, std)))
    return pulled[:, :-1], tally


def _expected(step: NoisyStep, std: Array) -> Array:
    """E F of a layer whose noise meets a box."""
    return up(_half_normal_mean() * dot_up(std, center_radius(with_one(step.h))[1]))


def _seen(step: NoisyStep, form: Affine, found: Met, tally: Tally) -> Tally:
    """With what the noise of a layer makes of the input through what it reads."""
    paid = up(_half_normal_mean() * dot_up(found.std[:, :-1], form.slack))
    instead, tau, before = _expected(step, found.std), found.tau, tally.seen
    if before is not None:
        tau = _joined(tau, before.std, tally)
        paid, instead = up(paid + before.paid), up(instead + before.instead)
    return replace(tally, random=True, seen=Seen(np.maximum(tau, ETA), paid, instead))


def _met(found: Met) -> Slopes:
    return Slopes(found.center, found.radius, found.reach, found.along).rounded(found.gap)


def _sharing(tally: Tally, *ways: Slopes) -> Tally:
    """With the slopes of one more layer, known in one way or in two: the first of one layer goes
    with the first of another."""
    if not tally.shared:
        return replace(tally, shared=ways)
    count = max(len(tally.shared), len(ways))
    before, more = (known * (count // len(known)) for known in (tally.shared, ways))
    joined = (one.plus(other) for one, other in zip(before, more, strict=True))
    return replace(tally, shared=tuple(joined))


def _joined(std: Array, other: Array | None, tally: Tally) -> Array:
    """Of all coefficients on the input, where several layers read it: their noises add up as
    independent ones do or, where anything is shared, at most as their sizes do."""
    if other is None:
        return std
    if tally.shared:
        return up(std + other)
    return sqrt_up(up(up(std * std) + up(other * other)))


def _reach(step: NoisyStep, variances: Array) -> Array:
    """sup over h of Σ_j s_j² h_j², the bias with h = 1; in a ball also |s∘x| <= |s∘c| + eps max_j
    s_j."""
    own, bias = variances[:, :-1], variances[:, -1]
    reach = dot_up(own, up(step.h.magnitude**2))
    if step.region is not None and not step.region.is_box and not step.way:
        center = sqrt_up(dot_up(own, up(step.region.x**2)))
        ball = up(center + up(step.region.eps * sqrt_up(own.max(-1))))
        reach = np.minimum(reach, up(ball * ball))
    return up(reach + bias)


def _shared_reach(layer: Sharing, step: NoisyStep, variance: Array, rows: Array) -> Array:
    """Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))², g_e(A, h) the derivative of A·(W h) with respect to
    a weight that meets several entries."""
    middle, spread = center_radius(step.h)
    at_center, size = layer.slopes(rows, middle), layer.slopes(np.abs(rows), np.abs(middle))
    reach = layer.slopes(np.abs(rows), spread, 0.0)
    slope = up(np.abs(at_center) + up(reach + sum_error(2 * layer.outputs, size + reach)))
    flat = up(slope * slope).reshape(len(rows), -1)
    return dot_up(flat, variance.reshape(-1))


def _pull_shared(layer: Linear, factors: Array, h: Interval, rows: Array) -> tuple[Slopes, Array]:
    """For every shared coordinate q with coefficients a_q = A V_q: |a_q·hc|, |a_q|·hr; and Σ_q
    a_q², [R, in + 1]."""
    middle, spread = center_radius(h)
    centers, gaps, radii, squares = [], [], [], np.zeros((len(rows), len(middle)))
    for factor in factors:
        coefficients = layer.pull(factor, rows)
        error = pull_error(layer, np.abs(factor), np.abs(rows))
        size = up(np.abs(coefficients) + error)
        low, high = dot_down(coefficients, middle), dot_up(coefficients, middle)
        centers.append(low)
        gaps.append(up(up(high - low) + dot_up(error, h.magnitude)))
        radii.append(dot_up(size, spread))
        squares = up(squares + up(size * size))
    reach = dot_up(sqrt_up(squares), spread)
    found = Slopes(np.stack(centers, -1), np.stack(radii, -1), reach)
    return found.rounded(np.stack(gaps, -1)), squares


def _minimum(region: Region, rows: Array, std: Array | None) -> Array:
    """E min over the region of Σ_j (A_j + g_j) x_j from below, g_j ~ N(0, std_j²): the adversary
    sees the noise."""
    if std is None:
        return region.minimum(rows)
    center, radius = center_radius(Interval(region.lower, region.upper))
    best = down(dot_down(rows, center) - dot_up(expected_magnitude(rows, std), radius))
    if region.is_box:
        return best
    size = np.abs(rows)
    if region.norm == "l2":
        dual = sqrt_up(up(dot_up(size, size) + dot_up(std, std)))
    else:
        dual = up(size.max(-1) + _maximal_noise(std))
    return np.maximum(best, down(dot_down(rows, region.x) - up(region.eps * dual)))


@cache
def _half_normal_mean() -> float:
    """sqrt(2/π) = E|N(0, 1)|"""
    return upper_float((2 / arb.pi()).sqrt())


def _maximal_noise(std: Array) -> Array:
    """E max_j |g_j| <= sqrt(2 ln 2n) max_j s_j, for the n entries that have noise worth the name;
    the others add at most their E|g_j| <= s_j."""
    noisy = std > NO_NOISE
    gains = np.array([_maximal_gain(max(n, 1)) for n in noisy.sum(-1).tolist()])
    others = np.where(noisy, 0.0, std)
    return up(up(gains * std.max(-1)) + dot_up(others, np.ones_like(others)))


@cache
def _maximal_gain(n: int) -> float:
    """sqrt(2 ln 2n) bounds E max_j |g_j| / max_j s_j"""
    return upper_float((2 * arb(2 * n).log()).sqrt())
