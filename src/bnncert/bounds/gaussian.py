"""Concentration bounds: linear functionals of Gaussian weights, bounded as the Gaussians they are.

Write W_k = μ_k + Δ_k. The backward walk on the mean network gives coefficient rows A_k on every layer's z_k and the
minimum m of what is left at the input. What it left out is the noise Σ_k A_k (Δ_k h_{k-1} + Δb_k), with h_{k-1} in a
box H = hc ± hr that holds with known probability. Its worst case over those boxes and the input region,

    F(ξ) = Σ_k sup_h -A_k (Δ_k h + Δb_k),

is a convex, L-Lipschitz function of a standard Gaussian ξ, so P(F >= E F + tL) <= Q(t) for t >= 0. With independent
weights and s_kj² = Σ_i A_ki² σ_kij², the variance of coefficient j of A_k Δ_k,

    E F = sqrt(2/π) Σ_k Σ_j hr_kj s_kj            L² = Σ_k [ Σ_j s_kj² max(hl_kj², hu_kj²) + Σ_i A_ki² σ_b,ki² ].

At the input the adversary picks one x for mean and noise together: there, m and E F are folded into
const + A·c - Σ_j r_j E|A_j + g_j|, g_j ~ N(0, s_j²). The proof is in docs/concentration.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.bounds.batching import slices
from bnncert.bounds.linear import ActivationStep, FlattenStep, activation_step
from bnncert.bounds.relaxations import image
from bnncert.box import Box
from bnncert.correlated import Gaussian, LowRankNormal
from bnncert.network import Dense, Flatten, Layer, Network, ReLU
from bnncert.products import dot, through
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
    """One dense layer's Gaussian deviations: independent ones by variance, shared ones by their factor (rank k)."""

    variance: Tensor | None  # [in, out]
    bias_variance: Tensor | None  # [out]
    factor: Tensor | None  # [k, in, out]
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
class NoisyDense:
    """A dense layer with Gaussian weights, and the box in which its input lies; `region` when that is the input."""

    mean: Tensor  # [in, out]
    bias: Tensor | None
    noise: Noise
    h: Box  # [B, in]
    size: Tensor  # [B, out], scale of the rounding error
    region: Region | None

    def pull(self, rows: Tensor, tally: Tally) -> tuple[Tensor, Tally]:
        """A (W h + b) = (A μ) h + A μ_b + noise: the rows before the layer, and the tally with its noise added."""
        value = tally.value - 4 * gamma(sum(self.mean.shape) + 64) * dot(rows.abs(), self.size)
        value = value - TINY * (1 + self.h.magnitude.sum(-1, keepdim=True))  # underflow, which meets |h|
        if self.bias is not None:
            value = value + rows @ self.bias
        tally = replace(tally, value=value)
        squared, tally = self._independent(rows, tally)
        if self.noise.factor is not None:
            squared, tally = self._shared(rows, self.noise.factor, squared, tally)
        if squared is not None:
            tally = self._expect(squared.clamp_min(SMALLEST**2).sqrt(), tally)
        return rows @ self.mean.mT, tally

    def _independent(self, rows: Tensor, tally: Tally) -> tuple[Tensor | None, Tally]:
        """s_j² [B, R, in], and their reach added to L²."""
        variance, squared = tally.variance, None
        if self.noise.variance is not None:
            squared = rows**2 @ self.noise.variance.mT
            variance = variance + self._reach(squared)
        if self.noise.bias_variance is not None:
            variance = variance + rows**2 @ self.noise.bias_variance
        return squared, replace(tally, variance=variance)

    def _reach(self, squared: Tensor) -> Tensor:
        """sup over h of Σ_j s_j² h_j²: by the box, for a ball also by |s∘x| <= |s∘c| + eps max_j s_j."""
        reach = dot(squared, self.h.magnitude**2)
        if self.region is None or self.region.is_box:
            return reach
        at_center = dot(squared, self.region.center.flatten(1) ** 2).sqrt()
        ball = (at_center + self.region.eps.unsqueeze(-1) * squared.amax(-1).sqrt()) ** 2
        return torch.minimum(reach, ball)

    def _shared(self, rows: Tensor, factor: Tensor, squared: Tensor | None, tally: Tally) -> tuple[Tensor, Tally]:
        """Coefficients a_q = A V_q of every shared coordinate: |a_q·hc + b_q| and |a_q|·hr, summed over the layers."""
        relative = 2 * gamma(sum(self.mean.shape) + 64)
        coefficients = torch.einsum("brm,kim->brki", rows, factor)
        # Signed sums may cancel: their rounding is charged to the radius, not to L as a whole.
        rounding = relative * torch.einsum("brm,kim->brki", rows.abs(), factor.abs())
        middle, spread = (self.h.lower + self.h.upper) / 2, (self.h.upper - self.h.lower) / 2
        center = (coefficients @ middle[:, None, :, None]).squeeze(-1)
        reach = coefficients.abs() @ (spread + relative * self.h.magnitude)[:, None, :, None]
        radius = (reach + rounding @ self.h.magnitude[:, None, :, None]).squeeze(-1)
        if self.noise.bias_factor is not None:
            center = center + rows @ self.noise.bias_factor.mT
            radius = radius + relative * (rows.abs() @ self.noise.bias_factor.abs().mT)
        if tally.center is not None and tally.radius is not None:
            radius = radius + tally.radius + relative * (center.abs() + tally.center.abs())
            center = center + tally.center
        own = ((coefficients.abs() + rounding) ** 2).sum(2)
        return own if squared is None else squared + own, replace(tally, center=center, radius=radius)

    def _expect(self, std: Tensor, tally: Tally) -> Tally:
        """E F of this layer, or at the input the standard deviations for the fold."""
        if self.region is not None:
            return replace(tally, input_std=std)
        inflate = 1 + gamma(sum(self.mean.shape) + 64)
        radius = (self.h.upper - self.h.lower) / 2
        return replace(tally, value=tally.value - MEAN_OF_HALF_NORMAL * inflate * dot(std, radius))


Step: TypeAlias = NoisyDense | ActivationStep | FlattenStep


@dataclass(frozen=True, eq=False)
class Trace:
    """The network as steps on intervals that hold together with probability at least 1 - charge [B]."""

    steps: list[Step]
    charge: Tensor


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


def trace(network: Network, posterior: Gaussian, region: Region, t: float, first: Functional | None = None) -> Trace:
    """Hidden intervals at threshold t, each side of each neuron charged Q(t); `first`: see `first_layer`."""
    steps: list[Step] = []
    charge = torch.zeros(len(region), dtype=torch.float64, device=region.center.device)
    q = float(normal_tail_up(torch.tensor(t, dtype=torch.float64)))
    h, at_input = region.box, True
    layers = zip(network.layers, network.split(posterior.mean), layer_noises(network, posterior), strict=True)
    for i, (layer, mean, noise) in enumerate(layers):
        if isinstance(layer, Dense):
            steps.append(_noisy_dense(mean, noise, h, region if at_input else None))
            if i + 1 < len(network.layers):
                known = first if at_input else None
                functional = known or neurons(steps, region, layer.outputs)
                h, sides = _interval(functional, t, layer.outputs, network.layers[i + 1])
                charge = charge + q * sides
            at_input = False
        elif isinstance(layer, Flatten):
            steps.append(FlattenStep(network.shapes[i]))
            h = h.reshape(len(region), -1)
        else:
            steps.append(activation_step(layer, h))
            h, at_input = image(layer, h), False
    return Trace(steps, charge * (1 + 64 * UNIT))


def first_layer(network: Network, posterior: Gaussian, region: Region) -> Functional | None:
    """The functionals of the first layer's neurons, which no threshold enters; None where a layer comes before it."""
    steps: list[Step] = []
    h = region.box
    layers = zip(network.layers, network.split(posterior.mean), layer_noises(network, posterior), strict=True)
    for i, (layer, mean, noise) in enumerate(layers):
        if isinstance(layer, Flatten):
            steps.append(FlattenStep(network.shapes[i]))
            h = h.reshape(len(region), -1)
        elif isinstance(layer, Dense):
            steps.append(_noisy_dense(mean, noise, h, region))
            return neurons(steps, region, layer.outputs)
        else:
            return None
    return None


def neurons(steps: list[Step], region: Region, width: int) -> Functional:
    """The functionals of z_i, then of -z_i, for the `width` neurons after the last step: [B, 2 width]."""
    identity = torch.eye(width, dtype=torch.float64, device=region.center.device)
    signed = torch.cat([identity, -identity]).unsqueeze(0)
    rank = max(step.noise.rank for step in steps if isinstance(step, NoisyDense))
    each = 8 * WORKING_TENSORS * len(region) * max(width, region.center[0].numel()) * max(1, rank)
    parts = [functional(steps, region, signed[:, part]) for part in slices(2 * width, each, signed.device)]
    return Functional(torch.cat([p.value for p in parts], 1), torch.cat([p.lipschitz for p in parts], 1))


def functional(steps: list[Step], region: Region, rows: Tensor) -> Functional:
    """The functionals of rows·(last step's output); rows [B or 1, R, m]."""
    zero = torch.zeros(1, rows.shape[1], dtype=torch.float64, device=rows.device)
    tally = Tally(zero, zero)
    for step in reversed(steps):
        if isinstance(step, NoisyDense):
            rows, tally = step.pull(rows, tally)
        else:
            rows, constant = step.pull(rows)
            tally = replace(tally, value=tally.value + constant)
    terms = sum(sum(step.mean.shape) + step.noise.rank for step in steps if isinstance(step, NoisyDense))
    value = tally.value + _minimum(region, rows.flatten(2), tally.input_std, terms)
    squared = tally.variance
    if tally.center is not None and tally.radius is not None:
        squared = squared + ((tally.center.abs() + tally.radius) ** 2).sum(-1)
    # Where anything is random, L is not 0: what looks like 0 may have underflowed.
    least = SMALLEST**2 if any(isinstance(step, NoisyDense) and step.noise.random for step in steps) else 0.0
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


def _noisy_dense(mean: tuple[Tensor, ...], noise: Noise, h: Box, region: Region | None) -> NoisyDense:
    size = through(h.magnitude, mean[0].abs())
    bias = mean[1] if len(mean) > 1 else None
    return NoisyDense(mean[0], bias, noise, h, size if bias is None else size + bias.abs(), region)


def _interval(functional: Functional, t: float, width: int, following: Layer) -> tuple[Box, Tensor]:
    """[value - tL] on both sides, and the number of sides [B] that may fail.

    A side without noise cannot fail, and the lower side of a neuron that is off under ReLU is never used.
    """
    ends = functional.value - t * functional.lipschitz * (1 + 4 * UNIT) - TINY
    lower, upper = ends[:, :width] - UNIT * ends[:, :width].abs(), -ends[:, width:]
    upper = upper + UNIT * upper.abs()
    noisy = functional.lipschitz > 0
    used = noisy[:, :width] & ~((upper <= 0) if isinstance(following, ReLU) else torch.zeros_like(noisy[:, :width]))
    # As float64: a whole number times a Python float would be rounded to the default dtype, float32.
    return Box(lower, upper), (used.sum(1) + noisy[:, width:].sum(1)).double()
