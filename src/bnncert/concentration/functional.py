"""Functionals: linear functionals of Gaussian weights, bounded as the Gaussians they are.

The backward walk on the mean network gives coefficient rows A_k on every node and the minimum m of
what is left at the input. What it left out is the noise Σ_k A_k (Δ_k h + Δb_k), with every h in a
box that holds with known probability. Its worst case over those boxes and the input region,

    F(ξ) = Σ_k sup_h -A_k (Δ_k h + Δb_k),

is a convex, L-Lipschitz function of a standard Gaussian ξ, so P(F >= E F + tL) <= Q(t) for t >= 0
(Sudakov and Tsirelson 1974, Borell 1975; for convex F by Ehrhard's inequality). At the input the
adversary picks one x for mean and noise together: there m and E F are folded into const + A·c - Σ_j
r_j E|A_j + g_j|, g_j ~ N(0, s_j²). The proof is in docs/concentration.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.bounds.cropping import PlacedStep, cropped
from bnncert.bounds.neurons import Tile, entries, signed_rows, tiles
from bnncert.bounds.steps import ActivationStep
from bnncert.bounds.walk import Shared, Step, Tally, walk
from bnncert.concentration.affine import Affine, affine_form
from bnncert.concentration.noise import SMALLEST
from bnncert.concentration.steps import NoisyLinear, joined
from bnncert.model.activations import Bent, PReLU
from bnncert.model.box import Box
from bnncert.model.layers import Conv2d, Dense
from bnncert.model.maps import apply, spread_bias, through
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT, gamma
from bnncert.numerics.tails import SPECIAL, expected_magnitude

LEAST_STD = 1e-100  # far above what stands for a standard deviation of 0
NO_NOISE = 2.0**-400  # above what stands for a standard deviation of 0 where it divides
Forms: TypeAlias = dict[int, Affine]  # by node

WORKING_TENSORS = 12  # of the rows' size, alive at once in a pull and the fold after it


@dataclass(frozen=True, eq=False)
class Functional:
    """rows·z >= value - (F - E F) for all x of the region, where P(F - E F >= t·lipschitz) <= Q(t).

    Value and Lipschitz constant are [B, R].
    """

    value: Tensor
    lipschitz: Tensor

    def __getitem__(self, index: Tensor | slice) -> Functional:
        """For some of the inputs."""
        return Functional(self.value[index], self.lipschitz[index])

    def put(self, places: Tensor, others: Functional) -> Functional:
        """With others at these places."""
        return Functional(
            self.value.index_copy(0, places, others.value),
            self.lipschitz.index_copy(0, places, others.lipschitz),
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """The network, or its first layers, as steps on the boxes of its nodes, which hold together
    with probability at least 1 - charge [B]; None for a node whose box nothing needs.

    `refined` says by position of a layer which of its neurons [B, n] had rows of their own, where
    not all had; `forward` for which inputs [B] zonotopes bounded what is certain, too; `forms` are
    certain nodes as functions of the input.
    """

    network: Network
    region: Region
    steps: list[Step]
    boxes: list[Box | None]
    charge: Tensor
    refined: dict[int, Tensor]
    forward: Tensor
    forms: Forms = field(default_factory=dict)

    def __getitem__(self, index: Tensor | slice) -> Trace:
        """For some of the inputs."""
        return Trace(
            self.network,
            self.region[index],
            [step[index] for step in self.steps],
            [None if box is None else box[index] for box in self.boxes],
            self.charge[index],
            {k: chosen[index] for k, chosen in self.refined.items()},
            self.forward[index],
            {node: form[index] for node, form in self.forms.items()},
        )

    @property
    def linear(self) -> list[NoisyLinear]:
        steps = (step.step if isinstance(step, PlacedStep) else step for step in self.steps)
        return [step for step in steps if isinstance(step, NoisyLinear)]


def bent_steps(traced: Trace) -> Iterator[tuple[int, Bent | PReLU, ActivationStep]]:
    """The steps of ReLUs of any slope below 0 with their positions: slopes to choose."""
    for k, (layer, step) in enumerate(zip(traced.network.layers, traced.steps, strict=True)):
        if (
            isinstance(layer, Bent | PReLU)
            and layer.traits.bent
            and isinstance(step, ActivationStep)
        ):
            yield k, layer, step


def functional(traced: Trace, rows: Tensor) -> Functional:
    """The functionals of rows·(last step's output); rows [B or 1, R, m]."""
    coefficients, tally = walk(traced.network, traced.steps, traced.boxes, rows)
    return conclude(traced, coefficients[0], tally)


def conclude(traced: Trace, rows: Tensor, tally: Tally) -> Functional:
    """The functional of a walk that arrived at the input with `rows`."""
    terms = sum(step.terms + step.noise.rank for step in traced.linear)
    value = tally.value + _at_input(traced.region, rows.flatten(2), tally, terms)
    squared = tally.variance
    if tally.shared:
        squared = squared + reduce(torch.minimum, (known.squared for known in tally.shared))
    for step in traced.linear:
        if step.noise.random:
            squared = squared + step.underflow**2
    lipschitz = squared.sqrt() * (1 + gamma(2 * terms + 64))
    return Functional(value, lipschitz.expand_as(value))


def by_rows(traced: Trace, chosen: Tensor | None) -> Functional:
    """The functionals of z_i, then of -z_i [B, 2n], z what the last step gives, by rows of the
    chosen neurons (None: all); of the others it is said that nothing is known."""
    network = traced.network
    batch = len(traced.region)
    node = len(traced.steps)
    width = math.prod(network.shapes[node])
    value = torch.full((batch, 2 * width), -math.inf).to(traced.region.center)
    lipschitz = torch.zeros_like(value)
    count = batch * width if chosen is None else int(chosen.sum())
    for tile in tiles(network, node, count, value.device):
        part = within(traced, tile)
        each = bytes_a_row(part, entries(network, tile, node))
        for index, rows in signed_rows(chosen, tile, width, each):
            found = functional(part, rows)
            places = index.expand(batch, -1)
            value = value.scatter(1, places, found.value.expand_as(places))
            lipschitz = lipschitz.scatter(1, places, found.lipschitz.expand_as(places))
    if chosen is not None:  # rows are filled up with other neurons
        value = torch.where(chosen.repeat(1, 2), value, -math.inf)
    return Functional(value, lipschitz)


def form_of(traced: Trace) -> Affine:
    """What the last step gives, certain and flat, as a function of the input: by rows of all its
    entries, and by their negatives."""
    network = traced.network
    node = len(traced.steps)
    width = math.prod(network.shapes[node])
    region = traced.region
    tile = Tile(torch.arange(width, device=region.center.device), network.shapes[node], None)
    shape = (len(region), 2 * width, math.prod(network.input_shape))
    lines = region.center.new_zeros(shape)
    constants = region.center.new_zeros(shape[:2])
    each = bytes_a_row(traced, entries(network, tile, node))
    for index, rows in signed_rows(None, tile, width, each):
        coefficients, tally = walk(network, traced.steps, traced.boxes, rows)
        lines[:, index[0]] = coefficients[0].flatten(2)
        constants[:, index[0]] = tally.value
    below, above = zip(lines.chunk(2, 1), constants.chunk(2, 1), strict=True)
    return affine_form(region, below, above)


def within(traced: Trace, tile: Tile) -> Trace:
    """The trace as far as a tile of the last step's neurons depends on it."""
    part = cropped(traced.network, traced.steps, traced.boxes, traced.region, tile.crop)
    return replace(traced, steps=part.steps, boxes=part.boxes, region=part.region)


def bytes_a_row(traced: Trace, entries: int) -> int:
    """Working memory of one row for the whole batch: its entries, for noisy convolutions those of
    their kernels too."""
    noisy = [step for step in traced.linear if isinstance(step.layer, Conv2d) and step.noise.random]
    kernels = [step.mean.numel() for step in noisy]
    rank = max((step.noise.rank for step in traced.linear), default=0)
    return 8 * WORKING_TENSORS * len(traced.region) * max(entries, *kernels, 0) * max(1, rank)


def stands_alone(step: Step) -> bool:
    """Whether a layer has a bound of its own, from the box of what it reads, and not from the input
    region itself."""
    return isinstance(step, NoisyLinear) and step.region is None


def last_layer(traced: Trace, rows: Tensor) -> Functional:
    """The functionals of rows·(last step's output), for what it reads anywhere in its box: the
    layer alone, with that box as its region.

    Where radii are large, boxes can say more than relaxations through all layers do.
    """
    step = traced.steps[-1]
    if not isinstance(step, NoisyLinear):
        raise TypeError("only a linear layer stands alone")
    h = step.h.reshape(len(traced.region), -1)
    region = Region((h.lower + h.upper) / 2, h, "box", traced.region.eps)
    none = torch.zeros(1, rows.shape[1], dtype=rows.dtype, device=rows.device)
    (pulled,), tally = replace(step, region=region, form=None).pull(rows, Tally(none, none))
    return conclude(replace(traced, region=region, steps=[step]), pulled, tally)


def least_std(traced: Trace, rows: Tensor) -> Tensor:
    """A standard deviation [B, R] that the noise of rows has at least, and then it is Gaussian: at
    single points, where the last layer alone is random; 0 elsewhere.

    There the functional is linear, and its tail is known for negative margins too.
    """
    step = traced.steps[-1]
    box = traced.region.box
    none = torch.zeros(len(traced.region), rows.shape[1]).to(rows)
    random = [before for before in traced.linear if before.noise.random]
    if random != [step] or not isinstance(step, NoisyLinear) or step.region is not None:
        return none
    if not isinstance(step.layer, Dense) or not torch.equal(box.lower, box.upper):
        return none
    least = step.least_variance(rows)
    std = least.sqrt() * (1 - gamma(step.terms + 64))
    return torch.where((std > LEAST_STD) & std.isfinite(), std, none)


def local(traced: Trace, k: int) -> Functional:
    """The functionals of z_i, then of -z_i, z what layer k gives, from the nearest boxes alone.

    A sum is as its terms: a term with a box counts by its ends, another by its own functional.
    Noises of different layers are independent, and add up as such, unless weights share them.
    """
    step = traced.steps[k]
    if isinstance(step, NoisyLinear):
        return one_layer(step)
    network = traced.network
    layer = network.layers[k]
    terms = [_term(traced, node) for node in network.reads[k]]
    shape = network.shape_before(k)
    batch = len(traced.region)

    def joined(parts: list[Tensor]) -> Tensor:
        """Of z and of -z, each as the layer joins it."""
        halves = zip(*(part.chunk(2, 1) for part in parts), strict=True)
        shaped = ([half.reshape(batch, *shape) for half in pair] for pair in halves)
        return torch.cat([apply(layer, (), pair, shape).flatten(1) for pair in shaped], 1)

    value = joined([term.value for term in terms])
    slack = gamma(2 * len(terms) + 16) * joined([term.value.abs() for term in terms]) + TINY
    if shares_noise(traced, k):
        together = joined([term.lipschitz for term in terms])
    else:
        together = joined([term.lipschitz**2 for term in terms]).sqrt()
    return Functional(value - slack, together * (1 + gamma(2 * len(terms) + 64)))


def shares_noise(traced: Trace, k: int) -> bool:
    """Whether weights of the linear layers that layer k sums up share noise."""
    step = traced.steps[k]
    if isinstance(step, NoisyLinear):
        return step.noise.factor is not None
    nodes = [node for node in traced.network.reads[k] if traced.boxes[node] is None]
    return any(shares_noise(traced, node - 1) for node in nodes)


def _term(traced: Trace, node: int) -> Functional:
    """Of a join's term: its box's ends, which have no noise, or its own functional."""
    box = traced.boxes[node]
    if box is None:
        return local(traced, node - 1)
    ends = torch.cat([box.lower.flatten(1), -box.upper.flatten(1)], 1)
    return Functional(ends, torch.zeros_like(ends))


def one_layer(step: NoisyLinear) -> Functional:
    """The functionals of z_i, then of -z_i, for all neurons of a layer whose input is known to lie
    in its box, no more.

    The fold on that box, without rows: ±μ·hc - Σ_j hr_j E|μ_j + g_j| and L² = Σ_j σ_j² max|h_j|² +
    σ_b².
    """
    layer = step.layer
    h = step.h
    noise = step.noise
    center = (h.lower + h.upper) / 2
    radius = (h.upper - h.lower) / 2

    middle = through(layer, step.mean, center).flatten(1)
    middle = middle if step.bias is None else middle + step.bias

    relative = 4 * gamma(step.terms) + 4 * SPECIAL
    underflow = TINY * (1 + h.magnitude.flatten(1).sum(-1, keepdim=True))
    error = relative * step.size + underflow

    magnitude = step.mean.abs()
    squared = torch.zeros_like(middle)
    if noise.variance is not None:
        squared = through(layer, noise.variance, h.magnitude**2).flatten(1)
    if noise.bias_variance is not None:
        squared = squared + spread_bias(layer, noise.bias_variance, step.shape).flatten()
    spread = noise.spread
    if spread is not None:
        magnitude = expected_magnitude(step.mean, spread.clamp_min(SMALLEST**2).sqrt())
        error = error + relative * through(layer, magnitude, h.magnitude).flatten(1)
    if noise.factor is not None:
        squared = squared + _along_factors(step, noise.factor, center, radius).squared
    loss = through(layer, magnitude, radius).flatten(1) + error
    if noise.random:
        squared = squared + step.underflow**2
    lipschitz = squared.sqrt() * (1 + gamma(step.terms + noise.rank))
    return Functional(torch.cat([middle - loss, -middle - loss], 1), lipschitz.repeat(1, 2))


def _along_factors(step: NoisyLinear, factor: Tensor, center: Tensor, radius: Tensor) -> Shared:
    """The slopes of every neuron [B, n] along the noise that the layer's weights share."""
    layer = step.layer
    relative = 4 * gamma(step.terms)
    slope = through(layer, factor, center).flatten(2)  # [k, B, n]
    size = through(layer, factor.abs(), radius).flatten(2)
    slack = relative * through(layer, factor.abs(), step.h.magnitude).flatten(2)
    if step.noise.bias_factor is not None:
        bias = spread_bias(layer, step.noise.bias_factor, step.shape).flatten(1).unsqueeze(1)
        slope = slope + bias
        slack = slack + relative * bias.abs()
    std = (factor**2).sum(0).sqrt()
    reach = through(layer, std, radius).flatten(1) + slack.sum(0)
    return Shared(slope.permute(1, 2, 0), (size + slack).permute(1, 2, 0), reach)


def _at_input(region: Region, rows: Tensor, tally: Tally, terms: int) -> Tensor:
    """What the rows have at least at the input; noise that is seen there either meets the input
    with them, or it has met boxes: both hold, and the larger counts."""
    seen = tally.seen
    if seen is None:
        return _fold(region, rows, tally.input_std, terms)
    std = joined(seen.std, tally.input_std, tally)
    together = _fold(region, rows, std, terms) - seen.paid
    return torch.maximum(together, _fold(region, rows, tally.input_std, terms) - seen.instead)


def _fold(region: Region, rows: Tensor, std: Tensor | None, terms: int) -> Tensor:
    """A lower bound of E min_x Σ_j (A_j + g_j) x_j, with g_j ~ N(0, std_j²) from `terms` terms."""
    if std is None:
        return region.minimum(rows)
    lower = region.box.lower.flatten(1)
    upper = region.box.upper.flatten(1)
    center = (lower + upper) / 2
    radius = (upper - lower) / 2
    # The rounding of all these sums is below 2 gamma |A| max|x|, and |A_j| <= E|A_j + g_j|; a
    # relative error of s_j (sums over at most as many rows as a layer has neurons) changes E|A_j +
    # g_j| by no larger one.
    relative = 4 * gamma(2 * rows.shape[-1] + terms + 64) + 4 * SPECIAL
    magnitude = expected_magnitude(rows, std)
    size = relative * torch.maximum(-lower, upper)
    best = dot(rows, center) - dot(magnitude, radius * (1 + relative) + size) - TINY
    if region.is_box:
        return best
    reach = (1 + relative) * region.eps.unsqueeze(-1) * _expected_dual(region.norm, rows, std)
    by_ball = dot(rows, region.center.flatten(1)) - reach - dot(magnitude, size) - TINY
    return torch.maximum(best, by_ball)


def _expected_dual(norm: str, rows: Tensor, std: Tensor) -> Tensor:
    """E of the dual norm of A + g: sqrt(ΣA² + Σs²) by Jensen; l1: max|A| + sqrt(2 ln 2n) max s, n
    the number of entries that have noise; that of others is only not quite 0."""
    if norm == "l2":
        return (rows**2 + std**2).sum(-1).sqrt()
    noisy = (std > NO_NOISE).sum(-1).clamp_min(1).double()
    gain = (2 * (2 * noisy).log()).sqrt() * (1 + SPECIAL)
    return rows.abs().amax(-1) + gain * std.amax(-1) + rows.shape[-1] * NO_NOISE


def with_offsets(found: Functional, offsets: Tensor) -> Functional:
    """The functional of rows·y + offsets."""
    error = 4 * UNIT * (offsets.abs() + found.value.abs())
    return replace(found, value=found.value + offsets - error)
