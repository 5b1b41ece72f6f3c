"""Steps of layers with Gaussian weights, and of activations where some neurons are split.

Write W = μ + Δ. A step pulls the rows through the mean and adds to the tally what the noise A (Δ h
+ Δb) can do, h in a box hc ± hr. With independent weights and s_j² = Σ_i A_i² σ_ij², the variance
of coefficient j of A Δ,

    E F = sqrt(2/π) Σ_j hr_j s_j            L² = Σ_j s_j² max(hl_j², hu_j²) + Σ_i A_i² σ_b,i².

A weight e that is shared, as in a kernel by all places of a convolution, counts with g_e(A, h), the
derivative of A·(W h) with respect to it: L² = Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))². Noise that
weights share, w = μ + Vη, counts by coordinate q of η: with a_q = A V_q and s_j² = Σ_q a_qj²,

    L  <=  |(|a_q·hc| + |a_q|·hr)_q|        and        L  <=  |(a_q·hc)_q| + Σ_j hr_j s_j.

Where what the layer reads is certain, h is also an affine function of the input, but for a small
error (`affine`): then A Δ h meets the input in the fold, as a coefficient τ on x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from bnncert.bounds.cropping import crop_linear, region_within, scale_within, weights_within
from bnncert.bounds.steps import ActivationStep
from bnncert.bounds.walk import Seen, Shared, Tally
from bnncert.bounds.windows import Window
from bnncert.concentration.affine import Affine, Spread
from bnncert.concentration.noise import SMALLEST, Noise
from bnncert.model.box import Box
from bnncert.model.layers import Conv2d, Dense, Linear, Scale, Shape
from bnncert.model.maps import (
    bias_rows,
    fan,
    pull,
    shares_weights,
    split_rows,
    spread_bias,
    weight_gradients,
)
from bnncert.model.moves import Move
from bnncert.model.specification import Region
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT, gamma

MEAN_OF_HALF_NORMAL = math.sqrt(2 / math.pi)


@dataclass(frozen=True, eq=False)
class Entrywise:
    """A layer between the input and the first weights that are random, where every entry goes its
    own way: a certain scale, by its size |W|, or a move."""

    layer: Scale | Move
    size: Tensor | None
    shape: Shape

    def pull(self, rows: Tensor) -> Tensor:
        """Sizes of coefficients after the layer as sizes before it."""
        if isinstance(self.layer, Scale) and self.size is not None:
            return pull(self.layer, self.size, rows, self.shape)
        (pulled,) = split_rows(self.layer, rows, [self.shape])  # type: ignore[arg-type]
        return pulled

    def crop(self, window: Window) -> Entrywise:
        if not isinstance(self.layer, Scale):
            raise TypeError("moves do not keep places")
        layer = scale_within(self.layer, window)
        size = weights_within(self.layer, self.size, window)
        return Entrywise(layer, size, (self.shape[0], *window.size))


@dataclass(frozen=True, eq=False)
class NoisyLinear:
    """A linear layer with Gaussian weights, and the box in which its input lies.

    `region` when that is the input, or `way`, entry by entry, from it: each entry of the input
    changed alone and read once at most. `form`: what it reads as a function of the input, where
    that is certain.
    """

    layer: Linear
    shape: Shape
    mean: Tensor
    bias: Tensor | None  # [outputs]
    noise: Noise
    h: Box  # [B, *shape]
    size: Tensor  # [B, outputs], scale of the rounding error
    region: Region | None
    way: tuple[Entrywise, ...] = ()
    form: Affine | None = None

    def __getitem__(self, index: Tensor | slice) -> NoisyLinear:
        region = None if self.region is None else self.region[index]
        form = None if self.form is None else self.form[index]
        return replace(self, h=self.h[index], size=self.size[index], region=region, form=form)

    def crop(self, before: Window, after: Window) -> NoisyLinear:
        cropped = crop_linear(self, before, after, ("mean",), (), ("bias", "size"))
        parts = vars(self.noise).values()
        noise = Noise(*(weights_within(self.layer, part, before) for part in parts))
        region = None if self.region is None else region_within(self.region, before)
        way = tuple(part.crop(before) for part in self.way)
        h = before.of_box(self.h)
        return replace(cropped, noise=noise, h=h, region=region, way=way)

    @property
    def terms(self) -> int:
        """Of any sum over the layer, with some to spare: at an output or input, or over outputs."""
        return 2 * fan(self.layer) + self.size.shape[-1] + 64

    @property
    def underflow(self) -> Tensor:
        """What underflow may hide of a standard deviation [B, 1], at most: where anything is
        random, L is not 0."""
        return SMALLEST * self._read

    @cached_property
    def _read(self) -> Tensor:
        """1 + Σ_j max|h_j| [B, 1], which numbers too small for a float meet."""
        return 1 + self.h.magnitude.flatten(1).sum(-1, keepdim=True)

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        """A (W h + b) = (A μ) h + A μ_b + noise: the rows before, and the tally with the noise."""
        flat = rows.flatten(2)
        value = tally.value - 4 * gamma(self.terms) * dot(flat.abs(), self.size)
        # underflow, which meets |h|
        value = value - TINY * self._read
        if self.bias is not None:
            value = value + flat @ self.bias
        tally = replace(tally, value=value)
        squared, tally = self._independent(rows, tally)
        shared = None
        if self.noise.factor is not None:
            shared = self._slopes(rows, self.noise.factor)
        spread = _spread(squared, shared)
        if spread is not None:
            # Squares below the smallest float are no more than that together.
            tau = None if self.form is None else spread.through(self.form) + SMALLEST
            if shared is not None:
                tally = tally.sharing(*self._reached(rows, shared, tau))
            tally = self._expect(spread.std, tau, tally)
        return (pull(self.layer, self.mean, rows, self.shape),), tally

    def least_variance(self, rows: Tensor) -> Tensor:
        """Of rows·z [B, R], of independent weights and shared noise together, at a single point of
        the box: from below."""
        h = self.h.reshape(len(self.h.lower), -1)
        closest = torch.maximum(h.lower, -h.upper).clamp_min(0)
        least = rows.new_zeros(len(h.lower), rows.shape[1])
        if self.noise.variance is not None:
            squares = pull(self.layer, self.noise.variance, rows**2, self.shape)
            least = dot(squares, closest**2)
        if self.noise.bias_variance is not None:
            least = least + rows**2 @ self.noise.bias_variance
        if self.noise.factor is not None:
            slopes = self._slopes(rows, self.noise.factor)
            shared = self._in_box(rows, slopes)
            length = (shared.center**2).sum(-1).sqrt() * (1 - gamma(self.terms))
            least = least + (length - shared.reach - self.underflow).clamp_min(0) ** 2
        return least * (1 - 4 * gamma(self.terms))

    def _independent(self, rows: Tensor, tally: Tally) -> tuple[Tensor | None, Tally]:
        """s_j² [B, R, inputs], and their reach added to L²."""
        variance = tally.variance
        squared = None
        if self.noise.variance is not None:
            squared = pull(self.layer, self.noise.variance, rows**2, self.shape).flatten(2)
            variance = variance + self._reach(rows, squared, self.noise.variance)
        if self.noise.bias_variance is not None:
            # A shared bias meets the sum of its places' rows; what cancels there is rounded.
            sums = bias_rows(self.layer, rows).abs()
            rounding = 2 * gamma(self.terms) * bias_rows(self.layer, rows.abs())
            squares = (sums + rounding) ** 2
            variance = variance + squares @ self.noise.bias_variance.flatten()
        return squared, replace(tally, variance=variance)

    def _reach(self, rows: Tensor, squared: Tensor, variance: Tensor) -> Tensor:
        """sup over h of Σ_j s_j² h_j²: by the box, for a ball also by |s∘x| <= |s∘c| + eps max_j
        s_j."""
        if shares_weights(self.layer):
            return self._shared_reach(rows, variance)
        reach = dot(squared, self.h.magnitude**2)
        if self.region is None or self.region.is_box or self.way:
            return reach
        at_center = dot(squared, self.region.center.flatten(1) ** 2).sqrt()
        ball = (at_center + self.region.eps.unsqueeze(-1) * squared.amax(-1).sqrt()) ** 2
        return torch.minimum(reach, ball)

    def _shared_reach(self, rows: Tensor, variance: Tensor) -> Tensor:
        """Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))².

        The first may cancel, and its rounding is charged to the second.
        """
        if not isinstance(self.layer, Conv2d | Scale):
            raise TypeError("only convolutions and scales share weights")
        center = (self.h.lower + self.h.upper) / 2
        radius = (self.h.upper - self.h.lower) / 2
        radius = radius + 4 * gamma(2 * self.terms) * self.h.magnitude
        slope = weight_gradients(self.layer, rows, center).abs()
        slope = slope + weight_gradients(self.layer, rows.abs(), radius)
        return dot(slope**2, variance.flatten())

    def _slopes(self, rows: Tensor, factor: Tensor) -> Slopes:
        """a_q = A V_q of every shared coordinate, and how far rounding takes them."""
        rounding = 2 * gamma(self.terms) * self._along(rows.abs(), factor.abs())
        return Slopes(self._along(rows, factor), rounding)

    def _reached(self, rows: Tensor, slopes: Slopes, tau: Tensor | None) -> tuple[Shared, ...]:
        """|a_q·h + b_q| of every coordinate, h anywhere in the box; and, where h is known as a
        function of the input, as that says."""
        found = self._in_box(rows, slopes)
        if self.form is None or tau is None:
            return (found,)
        return found, self._through(self.form, rows, slopes, tau)

    def _in_box(self, rows: Tensor, slopes: Slopes) -> Shared:
        """|a_q·hc + b_q| and |a_q|·hr, hc the middle of the box."""
        h = self.h.reshape(len(self.h.lower), -1)
        middle = (h.lower + h.upper) / 2
        return self._around(rows, slopes, middle, self._radius(middle))[0]

    def _radius(self, middle: Tensor) -> Tensor:
        """How far the box reaches from a point of it or near it [B, n]."""
        h = self.h.reshape(len(self.h.lower), -1)
        return torch.maximum(h.upper - middle, middle - h.lower).clamp_min(0) * (1 + 4 * UNIT)

    def _through(self, form: Affine, rows: Tensor, slopes: Slopes, tau: Tensor) -> Shared:
        """Around what the form is in the middle of the input region: |V (h - hc)| is at most
        Σ_p r_p τ_p + Σ_j e_j s_j, by J and e, and what the box says of it holds too."""
        radius = self._radius(form.middle)
        found, rounded = self._around(rows, slopes, form.middle, radius)
        relative = 2 * gamma(self.terms)
        own = slopes.std
        moved = dot(tau, form.radius) + dot(own, form.slack)
        reach = torch.minimum(found.reach, moved * (1 + relative) + rounded)
        # The gradient of |center|² / 2: Σ_q center_q a_q, and what rounding changes in it.
        length = (found.center**2).sum(-1, keepdim=True).sqrt()
        weights = (found.center.unsqueeze(-2) @ slopes.coefficients).squeeze(-2)
        changed = (4 * relative * own + (slopes.rounding**2).sum(2).sqrt()) * length
        by_box = dot(weights.abs() + changed, radius)
        along = torch.minimum(by_box, form.reach(weights) + form.most(changed))
        along = (along + length.squeeze(-1) * rounded) * (1 + relative)
        return replace(found, reach=reach, along=along)

    def _around(
        self, rows: Tensor, slopes: Slopes, middle: Tensor, radius: Tensor
    ) -> tuple[Shared, Tensor]:
        """What the box says, so far from this point, and how much of its reach is rounding
        [B, R]."""
        relative = 2 * gamma(self.terms)
        h = self.h.reshape(len(self.h.lower), -1)
        center = (slopes.coefficients @ middle[:, None, :, None]).squeeze(-1)
        # Signed sums may cancel: their rounding is charged to the radius, not to L as a whole.
        largest = torch.maximum(h.magnitude, middle.abs())[:, None, :, None]
        slack = ((relative * slopes.size + slopes.rounding) @ largest).squeeze(-1)
        if self.noise.bias_factor is not None:
            flat = rows.flatten(2)
            biases = spread_bias(self.layer, self.noise.bias_factor, self.shape).flatten(1)
            center = center + flat @ biases.mT
            slack = slack + relative * (flat.abs() @ biases.abs().mT)
        by_coordinate = (slopes.size @ radius[:, None, :, None]).squeeze(-1) + slack
        rounded = slack.sum(-1)
        return Shared(center, by_coordinate, dot(slopes.std, radius) + rounded), rounded

    def _along(self, rows: Tensor, factor: Tensor) -> Tensor:
        """The rows before the layer if its weights were each of the factors: [B, R, k, inputs]."""
        if isinstance(self.layer, Dense):
            return torch.einsum("brm,kim->brki", rows, factor)
        parts = [pull(self.layer, part, rows, self.shape).flatten(2) for part in factor]
        return torch.stack(parts, 2)

    def _expect(self, std: Tensor, tau: Tensor | None, tally: Tally) -> Tally:
        """E F of this layer, or at the input the standard deviations for the fold."""
        if self.region is not None:
            return replace(tally, input_std=joined(self._back(std), tally.input_std, tally))
        inflate = MEAN_OF_HALF_NORMAL * (1 + gamma(self.terms))
        radius = ((self.h.upper - self.h.lower) / 2).flatten(1)
        instead = inflate * dot(std, radius)
        if self.form is None or tau is None:
            return tally.gained(-instead)
        paid = inflate * dot(std, self.form.slack)
        before = tally.seen
        if before is not None:
            tau = joined(tau, before.std, tally)
            paid = paid + before.paid
            instead = instead + before.instead
        return replace(tally, seen=Seen(tau.clamp_min(SMALLEST), paid, instead))

    def _back(self, std: Tensor) -> Tensor:
        """Of coefficients on what the layer reads, those on the input itself."""
        if not self.way:
            return std
        rows = std.reshape(*std.shape[:2], *self.shape)
        for part in self.way:
            rows = part.pull(rows)
        # Entries that are not read have none; the fold divides by it.
        return (rows.flatten(2) * (1 + gamma(len(self.way) + 4))).clamp_min(SMALLEST)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Coefficients a_q [B, R, k, inputs] along each coordinate of shared noise, as computed, and
    how far rounding takes them."""

    coefficients: Tensor
    rounding: Tensor

    @cached_property
    def size(self) -> Tensor:
        return self.coefficients.abs() + self.rounding

    @cached_property
    def std(self) -> Tensor:
        """sqrt(Σ_q a_q²) of every entry [B, R, inputs], from above."""
        return (self.size**2).sum(2).sqrt()


def _spread(squared: Tensor | None, shared: Slopes | None) -> Spread | None:
    """Of independent noise with variances s_j², and of shared noise; None where there is none."""
    total = squared
    along = rounding = None
    if shared is not None:
        own = (shared.size**2).sum(2)
        total = own if squared is None else squared + own
        along = shared.coefficients
        rounding = (shared.rounding**2).sum(2).sqrt()
    if total is None:
        return None
    return Spread(total.clamp_min(SMALLEST**2).sqrt(), squared, along, rounding)


def joined(std: Tensor, other: Tensor | None, tally: Tally) -> Tensor:
    """The standard deviations of all coefficients on the input: where several layers read it, their
    noises add up, as independent ones do or, where anything is shared, at most as their sizes
    do."""
    if other is None:
        return std
    if tally.shared:
        return (std + other) * (1 + 4 * UNIT)
    return torch.hypot(std, other) * (1 + 8 * UNIT)


@dataclass(frozen=True, eq=False)
class SplitStep:
    """An activation where some neurons are split at kinks c: A f(z) >= (A' - β∘s) z + β∘s c +
    constant wherever s∘(z - c) >= 0.

    `lines` gives A' and the constant, for intervals that end at c where a neuron is split; β >= 0.
    """

    lines: ActivationStep
    multipliers: Tensor  # β∘s [B, R, kinks, n]
    kinks: tuple[float, ...]

    def __getitem__(self, index: Tensor | slice) -> SplitStep:
        return SplitStep(self.lines[index], self.multipliers[index], self.kinks)

    def crop(self, before: Window, after: Window) -> SplitStep:
        multipliers = after.of_flat(self.multipliers, self.lines.shape)
        return SplitStep(self.lines.crop(before, after), multipliers, self.kinks)

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        (pulled,), tally = self.lines.pull(rows, tally)
        flat = pulled.flatten(2)
        # What is subtracted is rounded at every kink, and the next step takes what comes out as
        # exact.
        size = flat.abs() + self.multipliers.abs().sum(-2)
        rounding = (1 + len(self.kinks)) * UNIT * dot(size, self.lines.z.magnitude)
        changed = (flat - self.multipliers.sum(-2)).reshape(pulled.shape)
        at = self.multipliers * flat.new_tensor(self.kinks).unsqueeze(-1)
        error = gamma(2 * at.shape[-1] + 64) * at.abs().sum((-2, -1))
        return (changed,), tally.gained(at.sum((-2, -1)) - error - rounding - TINY)
