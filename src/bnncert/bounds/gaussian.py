"""Concentration bounds: linear functionals of Gaussian weights, bounded as the Gaussians they are.

Write W_k = μ_k + Δ_k. The backward walk on the mean network gives coefficient rows A_k on every layer's z_k and the
minimum m of what is left at the input. What it left out is the noise Σ_k A_k (Δ_k h_{k-1} + Δb_k), with h_{k-1} in a
box H = hc ± hr that holds with known probability. Its worst case over those boxes and the input region,

    F(ξ) = Σ_k sup_h -A_k (Δ_k h + Δb_k),

is a convex, L-Lipschitz function of a standard Gaussian ξ, so P(F >= E F + tL) <= Q(t) for t >= 0. With independent
weights and s_kj² = Σ_i A_ki² σ_kij², the variance of coefficient j of A_k Δ_k,

    E F = sqrt(2/π) Σ_k Σ_j hr_kj s_kj            L² = Σ_k [ Σ_j s_kj² max(hl_kj², hu_kj²) + Σ_i A_ki² σ_b,ki² ].

At the input the adversary picks one x for mean and noise together: there, m and E F are folded into
const + A·c - Σ_j r_j E|A_j + g_j|, g_j ~ N(0, s_j²). A kernel entry e is shared by all places of a convolution: with
g_e(A, h) the derivative of A·(W h) with respect to it, L² = Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))². The proof is in
docs/concentration.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.bounds.interval import pooled
from bnncert.bounds.linear import ActivationStep, FlattenStep, activation_step, signed_rows, widest, worth_rows
from bnncert.bounds.pooling import MaxPoolStep, max_pool_step
from bnncert.bounds.relaxations import image
from bnncert.box import Box
from bnncert.correlated import Gaussian, LowRankNormal
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, Layer, Linear, MaxPool2d, ReLU, Shape, output_shape
from bnncert.network import Network
from bnncert.products import dot, fan, pull, spread_bias, through, weight_gradients
from bnncert.rounding import TINY, UNIT, gamma
from bnncert.specification import Region
from bnncert.tails import SPECIAL, expected_magnitude, normal_tail_up

MEAN_OF_HALF_NORMAL = math.sqrt(2 / math.pi)
SMALLEST = 1e-150  # stands for a standard deviation of 0 where it divides
WORKING_TENSORS = 12  # of the rows' size, alive at once in a pull and the fold after it


@dataclass(frozen=True, eq=False)
class Functional:
    """rows·z >= value - (F - E F) for all x of the region, where P(F - E F >= t·lipschitz) <= Q(t); both [B, R]."""

    value: Tensor
    lipschitz: Tensor


@dataclass(frozen=True, eq=False)
class Noise:
    """One layer's Gaussian deviations: independent ones by variance, shared ones by their factor (rank k)."""

    variance: Tensor | None  # of the weights' shape
    bias_variance: Tensor | None  # [out]
    factor: Tensor | None  # [k, *weights' shape]
    bias_factor: Tensor | None  # [k, out]

    @property
    def random(self) -> bool:
        return any(part is not None for part in (self.variance, self.bias_variance, self.factor, self.bias_factor))

    @property
    def rank(self) -> int:
        return 0 if self.factor is None else len(self.factor)


@dataclass(frozen=True, eq=False)
class Tally:
    """What a backward walk has gathered: the value, L² of independent noise and the slopes along shared noise.

    For coordinate q of the shared noise: its slope at the boxes' centres and the most that the boxes can add, so that
    its part of L² is at most (|center_q| + radius_q)². `input_std` waits for the fold at the input.
    """

    value: Tensor  # [B, R]
    variance: Tensor  # [B, R]
    center: Tensor | None = None  # [B, R, k]
    radius: Tensor | None = None  # [B, R, k]
    input_std: Tensor | None = None  # [B, R, n]


@dataclass(frozen=True, eq=False)
class NoisyLinear:
    """A linear layer with Gaussian weights, and the box in which its input lies; `region` when that is the input."""

    layer: Linear
    shape: Shape
    mean: Tensor
    bias: Tensor | None  # [outputs]
    noise: Noise
    h: Box  # [B, *shape]
    size: Tensor  # [B, outputs], scale of the rounding error
    region: Region | None

    def __getitem__(self, index: Tensor) -> NoisyLinear:
        region = None if self.region is None else self.region[index]
        return replace(self, h=self.h[index], size=self.size[index], region=region)

    @property
    def terms(self) -> int:
        """Of any sum over the layer, with some to spare: at an output, at an input, or over all outputs."""
        return 2 * fan(self.layer) + self.size.shape[-1] + 64

    def pull(self, rows: Tensor, tally: Tally) -> tuple[Tensor, Tally]:
        """A (W h + b) = (A μ) h + A μ_b + noise: the rows before the layer, and the tally with its noise added."""
        flat = rows.flatten(2)
        value = tally.value - 4 * gamma(self.terms) * dot(flat.abs(), self.size)
        value = value - TINY * (1 + self.h.magnitude.flatten(1).sum(-1, keepdim=True))  # underflow, which meets |h|
        if self.bias is not None:
            value = value + flat @ self.bias
        tally = replace(tally, value=value)
        squared, tally = self._independent(rows, tally)
        if self.noise.factor is not None:
            squared, tally = self._shared(rows, self.noise.factor, squared, tally)
        if squared is not None:
            tally = self._expect(squared.clamp_min(SMALLEST**2).sqrt(), tally)
        return pull(self.layer, self.mean, rows, self.shape), tally

    def _independent(self, rows: Tensor, tally: Tally) -> tuple[Tensor | None, Tally]:
        """s_j² [B, R, inputs], and their reach added to L²."""
        variance, squared = tally.variance, None
        if self.noise.variance is not None:
            squared = pull(self.layer, self.noise.variance, rows**2, self.shape).flatten(2)
            reach = self._kernel_reach(rows) if isinstance(self.layer, Conv2d) else self._reach(squared)
            variance = variance + reach
        if self.noise.bias_variance is not None:
            # A convolution's bias meets the sum of its channel's rows; what cancels there is rounded.
            sums = rows.abs() if rows.dim() == 3 else rows.flatten(3).sum(-1).abs()
            rounding = 0.0 if rows.dim() == 3 else 2 * gamma(self.terms) * rows.flatten(3).abs().sum(-1)
            variance = variance + (sums + rounding) ** 2 @ self.noise.bias_variance
        return squared, replace(tally, variance=variance)

    def _reach(self, squared: Tensor) -> Tensor:
        """sup over h of Σ_j s_j² h_j²: by the box, for a ball also by |s∘x| <= |s∘c| + eps max_j s_j."""
        reach = dot(squared, self.h.magnitude**2)
        if self.region is None or self.region.is_box:
            return reach
        at_center = dot(squared, self.region.center.flatten(1) ** 2).sqrt()
        ball = (at_center + self.region.eps.unsqueeze(-1) * squared.amax(-1).sqrt()) ** 2
        return torch.minimum(reach, ball)

    def _kernel_reach(self, rows: Tensor) -> Tensor:
        """Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))²; the first may cancel, and its rounding is charged to the second."""
        if not isinstance(self.layer, Conv2d) or self.noise.variance is None:
            raise TypeError("only convolutions have kernels")
        center, radius = (self.h.lower + self.h.upper) / 2, (self.h.upper - self.h.lower) / 2
        radius = radius + 4 * gamma(self.terms + rows[0, 0, 0].numel()) * self.h.magnitude
        slope = weight_gradients(self.layer, rows, center).abs() + weight_gradients(self.layer, rows.abs(), radius)
        return dot((slope**2).flatten(2), self.noise.variance.flatten())

    def _shared(self, rows: Tensor, factor: Tensor, squared: Tensor | None, tally: Tally) -> tuple[Tensor, Tally]:
        """Coefficients a_q = A V_q of every shared coordinate: |a_q·hc + b_q| and |a_q|·hr, summed over the layers."""
        relative = 2 * gamma(self.terms)
        coefficients = self._along(rows, factor)
        # Signed sums may cancel: their rounding is charged to the radius, not to L as a whole.
        rounding = relative * self._along(rows.abs(), factor.abs())
        h = self.h.reshape(len(self.h.lower), -1)
        middle, spread = (h.lower + h.upper) / 2, (h.upper - h.lower) / 2
        center = (coefficients @ middle[:, None, :, None]).squeeze(-1)
        reach = coefficients.abs() @ (spread + relative * h.magnitude)[:, None, :, None]
        radius = (reach + rounding @ h.magnitude[:, None, :, None]).squeeze(-1)
        if self.noise.bias_factor is not None:
            flat = rows.flatten(2)
            biases = spread_bias(self.layer, self.noise.bias_factor, self.shape).flatten(1)
            center = center + flat @ biases.mT
            radius = radius + relative * (flat.abs() @ biases.abs().mT)
        if tally.center is not None and tally.radius is not None:
            radius = radius + tally.radius + relative * (center.abs() + tally.center.abs())
            center = center + tally.center
        own = ((coefficients.abs() + rounding) ** 2).sum(2)
        return own if squared is None else squared + own, replace(tally, center=center, radius=radius)

    def _along(self, rows: Tensor, factor: Tensor) -> Tensor:
        """The rows before the layer if its weights were each of the factors: [B, R, k, inputs]."""
        if isinstance(self.layer, Dense):
            return torch.einsum("brm,kim->brki", rows, factor)
        return torch.stack([pull(self.layer, part, rows, self.shape).flatten(2) for part in factor], 2)

    def _expect(self, std: Tensor, tally: Tally) -> Tally:
        """E F of this layer, or at the input the standard deviations for the fold."""
        if self.region is not None:
            return replace(tally, input_std=std)
        inflate = 1 + gamma(self.terms)
        radius = ((self.h.upper - self.h.lower) / 2).flatten(1)
        return replace(tally, value=tally.value - MEAN_OF_HALF_NORMAL * inflate * dot(std, radius))


@dataclass(frozen=True, eq=False)
class SplitStep:
    """An activation where some neurons have a known sign: A f(z) >= (A' - β∘s) z + constant wherever s∘z >= 0.

    `lines` gives A' and the constant, for intervals that end at 0 where a neuron is split; β >= 0.
    """

    lines: ActivationStep
    multipliers: Tensor  # β∘s [B, R, n]

    @property
    def shape(self) -> Shape:
        return self.lines.shape

    def __getitem__(self, index: Tensor) -> SplitStep:
        return SplitStep(self.lines[index], self.multipliers[index])

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        pulled, constant = self.lines.pull(rows)
        flat = pulled.flatten(2)
        # The difference is rounded once, and the next step takes what comes out as exact.
        rounding = 2 * UNIT * dot(flat.abs() + self.multipliers.abs(), self.lines.z.magnitude)
        return (flat - self.multipliers).reshape(pulled.shape), constant - rounding - TINY


Step: TypeAlias = NoisyLinear | ActivationStep | SplitStep | FlattenStep | MaxPoolStep


@dataclass(frozen=True, eq=False)
class Trace:
    """The network as steps on intervals that hold together with probability at least 1 - charge [B].

    `refined` says by position of the layer which of its neurons [B, n] had rows of their own, where not all had.
    """

    steps: list[Step]
    charge: Tensor
    refined: dict[int, Tensor]


def layer_noises(network: Network, posterior: Gaussian) -> list[Noise]:
    """The posterior's deviations, layer by layer; None where nothing is random."""
    # No square of a positive standard deviation may underflow to certainty.
    std = torch.where(posterior.std > 0, posterior.std.clamp_min(SMALLEST), 0.0)
    variances = network.split(std**2)
    factor = posterior.factor.mT if isinstance(posterior, LowRankNormal) else posterior.std.new_zeros(0, posterior.size)
    noises = []
    for own, shared in zip(variances, network.split(factor), strict=True):
        independent = [value if bool((value != 0).any()) else None for value in own]
        correlated = list(shared) if any(bool((value != 0).any()) for value in shared) else []
        noises.append(Noise(*_pair(independent), *_pair(correlated)))
    return noises


def _pair(values: Sequence[Tensor | None]) -> tuple[Tensor | None, Tensor | None]:
    """Weights' and bias's entry, None where there is none."""
    weights, bias, *_ = [*values, None, None]
    return weights, bias


Parts: TypeAlias = list[tuple[tuple[Tensor, ...], Noise]]


@dataclass(frozen=True, eq=False)
class Prefix:
    """What no threshold enters: each layer's means and noise, the steps before the first random layer, and that layer's
    functionals of z, then of -z, if it is dense."""

    parts: Parts
    steps: list[Step]
    h: Box  # the first random layer's input
    refined: dict[int, Tensor]
    first: Functional | None

    def __getitem__(self, index: Tensor) -> Prefix:
        """For some of the inputs."""
        steps, refined = [step[index] for step in self.steps], {k: value[index] for k, value in self.refined.items()}
        first = self.first and Functional(self.first.value[index], self.first.lipschitz[index])
        return Prefix(self.parts, steps, self.h[index], refined, first)


def prefix(network: Network, posterior: Gaussian, region: Region) -> Prefix:
    parts = list(zip(network.split(posterior.mean), layer_noises(network, posterior), strict=True))
    random = next((i for i, (_, noise) in enumerate(parts) if noise.random), len(parts) - 1)
    start = Trace([], _no_charge(region), {})
    traced, h = _extend(network, parts, region, start, region.box, range(random), _no_charge(region), None)
    first = None
    if isinstance(network.layers[random], Dense) and random + 1 < len(network.layers):
        first = dense_functional([*traced.steps, _noisy_linear(network, parts, random, h, region)], region)
    return Prefix(parts, traced.steps, h, traced.refined, first)


def trace(
    network: Network, posterior: Gaussian, region: Region, t: float | Tensor, known: Prefix | None = None
) -> Trace:
    """Hidden intervals at threshold t (or one an input, [B]), each side of each neuron charged Q(t)."""
    known = known or prefix(network, posterior, region)
    t = torch.as_tensor(t, dtype=torch.float64, device=region.center.device).expand(len(region))
    start = Trace(known.steps, _no_charge(region), known.refined)
    layers = range(len(known.steps), len(network.layers))
    traced, _ = _extend(network, known.parts, region, start, known.h, layers, t, known.first)
    return replace(traced, charge=traced.charge * (1 + 64 * UNIT))


def _no_charge(region: Region) -> Tensor:
    return torch.zeros(len(region), dtype=torch.float64, device=region.center.device)


def _extend(
    network: Network,
    parts: Parts,
    region: Region,
    traced: Trace,
    h: Box,
    layers: range,
    t: Tensor,
    first: Functional | None,
) -> tuple[Trace, Box]:
    """The trace with more layers, and the box of what they give; `first`: functionals of the first one, if known."""
    steps, charge, refined = list(traced.steps), traced.charge, dict(traced.refined)
    q = normal_tail_up(t)
    for i in layers:
        layer = network.layers[i]
        if isinstance(layer, Linear):
            steps.append(_noisy_linear(network, parts, i, h, region))
            if i + 1 < len(network.layers):
                found, chosen = _neurons(steps, region, t, network.layers[i + 1], first if i == layers[0] else None)
                h, sides = _interval(found, t, network.layers[i + 1])
                h = h.reshape(len(region), *network.shapes[i + 1])
                charge = charge + q * sides
                refined |= {} if chosen is None else {i: chosen}
        elif isinstance(layer, Flatten):
            steps.append(FlattenStep(network.shapes[i]))
            h = h.reshape(len(region), -1)
        elif isinstance(layer, MaxPool2d):
            steps.append(max_pool_step(layer, h))
            h = pooled(layer, h)
        else:
            steps.append(activation_step(layer, h))
            h = image(layer, h)
    return Trace(steps, charge, refined), h


def _neurons(
    steps: list[Step], region: Region, t: Tensor, following: Layer, known: Functional | None
) -> tuple[Functional, Tensor | None]:
    """The functionals of z_i, then of -z_i, of the last step's neurons [B, 2n], and which had rows, if not all had.

    Where a neuron's end has two functionals the better one is used, and it alone is charged: which one that is depends
    on nothing random.
    """
    step = _last(steps)
    if isinstance(step.layer, Dense):
        return known or dense_functional(steps, region), None
    if step.noise.factor is not None:
        everyone = torch.ones_like(step.size.expand(len(region), -1), dtype=torch.bool)
        return _with_rows(steps, region, everyone), everyone
    found = one_layer(step)
    if isinstance(step.layer, AvgPool2d) or (step.region is not None and region.is_box):
        return found, None  # rows would find the same
    chosen = worth_rows(step.layer, Box(*_ends(found, t)), following)
    if chosen is None or not bool(chosen.any()):
        return found, None
    return _better(found, _with_rows(steps, region, chosen), t), chosen


def dense_functional(steps: list[Step], region: Region) -> Functional:
    """All neurons of a dense layer, the last step, by their rows; without rows where that is the same."""
    step = _last(steps)
    if step.region is not None and region.is_box and step.noise.factor is None:
        return one_layer(step)
    return _with_rows(steps, region, None)


def _with_rows(steps: list[Step], region: Region, chosen: Tensor | None) -> Functional:
    """The functionals of the chosen neurons, of all for None; of the others it is said that nothing is known."""
    step = _last(steps)
    width = step.size.shape[-1]
    shape = (len(region), 2 * width)
    value, lipschitz = torch.full(shape, -math.inf).to(step.size), torch.zeros(shape).to(step.size)
    outputs = output_shape(step.layer, step.shape)
    for side, sign in enumerate((1.0, -1.0)):
        for index, rows in signed_rows(chosen, width, len(region), sign, bytes_a_row(steps, len(region)), value.device):
            found = functional(steps, region, rows.reshape(*rows.shape[:2], *outputs))
            places = (index + side * width).expand(len(region), -1)
            value = value.scatter(1, places, found.value.expand_as(places))
            lipschitz = lipschitz.scatter(1, places, found.lipschitz.expand_as(places))
    if chosen is not None:  # rows are filled up with other neurons
        value = torch.where(chosen.repeat(1, 2), value, -math.inf)
    return Functional(value, lipschitz)


def _last(steps: list[Step]) -> NoisyLinear:
    step = steps[-1]
    if not isinstance(step, NoisyLinear):
        raise TypeError("the last step must be a linear layer")
    return step


def one_layer(step: NoisyLinear) -> Functional:
    """The functionals of z_i, then of -z_i, for all neurons of a layer whose input is known to lie in its box, no more.

    The fold on that box, without rows: ±μ·hc - Σ_j hr_j E|μ_j + g_j| and L² = Σ_j σ_j² max|h_j|² + σ_b².
    """
    layer, h, noise = step.layer, step.h, step.noise
    center, radius = (h.lower + h.upper) / 2, (h.upper - h.lower) / 2
    middle = through(layer, step.mean, center).flatten(1)
    middle = middle if step.bias is None else middle + step.bias
    error = (4 * gamma(step.terms) + 4 * SPECIAL) * step.size + TINY * (
        1 + h.magnitude.flatten(1).sum(-1, keepdim=True)
    )
    magnitude = step.mean.abs()
    squared = torch.zeros_like(middle)
    if noise.variance is not None:
        std = noise.variance.clamp_min(SMALLEST**2).sqrt()
        magnitude = expected_magnitude(step.mean, std)
        error = error + (4 * gamma(step.terms) + 4 * SPECIAL) * through(layer, magnitude, h.magnitude).flatten(1)
        squared = through(layer, noise.variance, h.magnitude**2).flatten(1)
    if noise.bias_variance is not None:
        squared = squared + spread_bias(layer, noise.bias_variance, step.shape).flatten()
    loss = through(layer, magnitude, radius).flatten(1) + error
    lipschitz = (squared + SMALLEST**2 * noise.random).sqrt() * (1 + gamma(step.terms))
    return Functional(torch.cat([middle - loss, -middle - loss], 1), lipschitz.repeat(1, 2))


def bytes_a_row(steps: Sequence[Step], batch: int) -> int:
    """Working memory of one row for the whole batch: its entries, for noisy convolutions those of their kernels too."""
    linear = [step for step in steps if isinstance(step, NoisyLinear)]
    entries = [step.mean.numel() for step in linear if isinstance(step.layer, Conv2d) and step.noise.random]
    rank = max(step.noise.rank for step in linear)
    return 8 * WORKING_TENSORS * batch * max(widest(steps, linear[-1].size.shape[-1]), *entries, 1) * max(1, rank)


def functional(steps: list[Step], region: Region, rows: Tensor) -> Functional:
    """The functionals of rows·(last step's output); rows [B or 1, R, m]."""
    coefficients, tally = walk(steps, rows)
    return conclude(steps, region, coefficients[0], tally)


def walk(steps: list[Step], rows: Tensor) -> tuple[list[Tensor], Tally]:
    """The rows pulled back, on the input and then on each step's output, and what was gathered on the way."""
    zero = torch.zeros(1, rows.shape[1], dtype=torch.float64, device=rows.device)
    tally, coefficients = Tally(zero, zero), [rows]
    for step in reversed(steps):
        if isinstance(step, NoisyLinear):
            rows, tally = step.pull(rows, tally)
        else:
            rows, constant = step.pull(rows)
            tally = replace(tally, value=tally.value + constant)
        coefficients.append(rows)
    return coefficients[::-1], tally


def conclude(steps: list[Step], region: Region, rows: Tensor, tally: Tally) -> Functional:
    """The functional of a walk that arrived at the input with `rows`."""
    terms = sum(step.terms + step.noise.rank for step in steps if isinstance(step, NoisyLinear))
    value = tally.value + _minimum(region, rows.flatten(2), tally.input_std, terms)
    squared = tally.variance
    if tally.center is not None and tally.radius is not None:
        squared = squared + ((tally.center.abs() + tally.radius) ** 2).sum(-1)
    # Where anything is random, L is not 0: what looks like 0 may have underflowed.
    least = SMALLEST**2 if any(isinstance(step, NoisyLinear) and step.noise.random for step in steps) else 0.0
    lipschitz = (squared + least).sqrt() * (1 + gamma(2 * terms + 64))
    return Functional(value, lipschitz.expand_as(value))


def _minimum(region: Region, rows: Tensor, std: Tensor | None, terms: int) -> Tensor:
    """The fold: a lower bound of E min over x of Σ_j (A_j + g_j) x_j, with g_j ~ N(0, std_j²) from sums of `terms`."""
    if std is None:
        return region.minimum(rows)
    lower, upper = region.box.lower.flatten(1), region.box.upper.flatten(1)
    center, radius = (lower + upper) / 2, (upper - lower) / 2
    # The rounding of all these sums is below 2 gamma |A| max|x|, and |A_j| <= E|A_j + g_j|; a relative error of s_j
    # (sums over at most as many rows as a layer has neurons) changes E|A_j + g_j| by no larger one.
    relative = 4 * gamma(2 * rows.shape[-1] + terms + 64) + 4 * SPECIAL
    magnitude, size = expected_magnitude(rows, std), relative * torch.maximum(-lower, upper)
    best = dot(rows, center) - dot(magnitude, radius * (1 + relative) + size) - TINY
    if region.is_box:
        return best
    reach = (1 + relative) * region.eps.unsqueeze(-1) * _expected_dual(region.norm, rows, std)
    return torch.maximum(best, dot(rows, region.center.flatten(1)) - reach - dot(magnitude, size) - TINY)


def _expected_dual(norm: str, rows: Tensor, std: Tensor) -> Tensor:
    """E of the dual norm of A + g: sqrt(Σ A² + Σ s²) by Jensen, or max|A| + sqrt(2 ln 2n) max s for the l1 ball."""
    if norm == "l2":
        return (rows**2 + std**2).sum(-1).sqrt()
    return rows.abs().amax(-1) + math.sqrt(2 * math.log(2 * rows.shape[-1])) * std.amax(-1)


def _noisy_linear(network: Network, parts: Parts, position: int, h: Box, region: Region) -> NoisyLinear:
    layer, shape = network.layers[position], network.shapes[position]
    if not isinstance(layer, Linear):
        raise TypeError(f"{type(layer).__name__} is not linear")
    means, noise = parts[position]
    mean, bias = _pair(means)
    if mean is None:  # pooling has no weights
        mean = torch.zeros_like(h.lower[0])
    size = through(layer, mean.abs(), h.magnitude).flatten(1)
    if bias is not None:
        bias = spread_bias(layer, bias, shape).flatten()
        size = size + bias.abs()
    first = all(isinstance(earlier, Flatten) for earlier in network.layers[:position])
    return NoisyLinear(layer, shape, mean, bias, noise, h, size, region if first else None)


def _interval(found: Functional, t: Tensor, following: Layer) -> tuple[Box, Tensor]:
    """[value - tL] on both sides, and the number of sides [B] that may fail.

    A side without noise cannot fail, and the lower side of a neuron that is off under ReLU is never used.
    """
    lower, upper = _ends(found, t)
    noisy, width = found.lipschitz > 0, lower.shape[1]
    used = noisy[:, :width] & ~((upper <= 0) if isinstance(following, ReLU) else torch.zeros_like(noisy[:, :width]))
    # As float64: a whole number times a Python float would be rounded to the default dtype, float32.
    return Box(lower, upper), (used.sum(1) + noisy[:, width:].sum(1)).double()


def _ends(found: Functional, t: Tensor) -> tuple[Tensor, Tensor]:
    """They would cross only on a region without points, a part of a box that misses its ball, where anything holds."""
    width = found.value.shape[1] // 2
    ends = found.value - t.unsqueeze(-1) * found.lipschitz * (1 + 4 * UNIT) - TINY
    lower, upper = ends[:, :width] - UNIT * ends[:, :width].abs(), -ends[:, width:]
    upper = upper + UNIT * upper.abs()
    return torch.minimum(lower, upper), torch.maximum(lower, upper)


def _better(first: Functional, second: Functional, t: Tensor) -> Functional:
    """Per neuron and side, the one with the better end."""
    t = t.unsqueeze(-1)
    better = second.value - t * second.lipschitz > first.value - t * first.lipschitz
    value = torch.where(better, second.value, first.value)
    return Functional(value, torch.where(better, second.lipschitz, first.lipschitz))
