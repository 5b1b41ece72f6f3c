"""Domains: an output row of one input where the signs of some ReLUs are known, and its best Gaussian functional.

On the part of X where s_i z_i >= 0 for the split neurons i, their relaxation is exact, their intervals end at 0, and

    A z >= (A - β∘s) z      for every β >= 0,

so slopes α of the neurons that are still open and multipliers β of the split ones are searched together, by Adam, from
those of the parent. Both are rounded to float32 at every step: what is found is what a certificate stores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.bounds.gaussian import Functional, NoisyLinear, SplitStep, Step, Trace, conclude, walk
from bnncert.bounds.interval import pooled
from bnncert.bounds.linear import ActivationStep, FlattenStep, activation_step
from bnncert.bounds.pooling import MaxPoolStep, max_pool_step
from bnncert.bounds.relaxations import image
from bnncert.box import Box
from bnncert.layers import LeakyReLU, MaxPool2d, ReLU
from bnncert.network import apply
from bnncert.problem import Problem
from bnncert.rounding import UNIT
from bnncert.specification import Region

SLOPE_RATE, MULTIPLIER_RATE, DECAY = 0.1, 0.05, 0.95
LEAST, MOST = 0.5, 6.0  # range of τ
POSITIVE_SHARE = 0.3  # of a lower line's loss, in the rule by widths


@dataclass(frozen=True, eq=False)
class Roots:
    """What the domains of each input share: the steps at the root, and the neurons whose sign is open there.

    Neurons of all (leaky) ReLUs are numbered through, `starts` by layer position; `width` of them in all, which as a
    number stands for no neuron. `open` [B, U] lists those of each input: a domain's tensors have a column for each.
    """

    problem: Problem
    mean: Tensor
    traced: Trace
    starts: dict[int, int]
    width: int
    open: Tensor
    lowest: Tensor  # [width + 1] least slope of each neuron's lower line


@dataclass(frozen=True, eq=False)
class Domains:
    """Rows `row` of inputs `input`; splits [D, U]: 0 for none, k or -k where the k-th split says z >= 0 or z <= 0."""

    input: Tensor
    row: Tensor
    splits: Tensor  # int16
    slopes: Tensor  # float32, in [0, 1]
    multipliers: Tensor  # float32, at least 0

    def __len__(self) -> int:
        return len(self.input)

    def __getitem__(self, index: Tensor | slice) -> Domains:
        return Domains(*(value[index] for value in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Tightened:
    """Domains with the best slopes and multipliers found, their functional [D], the column to split next (-1: none)
    with the row's coefficient there if positive, and the point [D, *shape] where the relaxation is smallest, with the
    mean network's smallest row [D] there."""

    domains: Domains
    value: Tensor
    lipschitz: Tensor
    branch: Tensor
    weight: Tensor
    point: Tensor
    margin: Tensor


def roots(problem: Problem, mean: Tensor, traced: Trace) -> Roots:
    starts, lowest, unsettled, width = {}, [], [], 0
    for k, (layer, step) in enumerate(zip(problem.network.layers, traced.steps, strict=True)):
        if isinstance(layer, ReLU | LeakyReLU) and isinstance(step, ActivationStep):
            starts[k] = width
            width += step.size.shape[1]
            lowest.append(torch.full_like(step.size[0], _least_slope(layer)))
            unsettled.append((step.z.lower < 0) & (step.z.upper > 0))
    device = mean.device
    if not unsettled:
        none = torch.zeros(len(problem), 0, dtype=torch.int64, device=device)
        return Roots(problem, mean, traced, starts, 0, none, torch.zeros(1, dtype=torch.float64, device=device))
    mask = torch.cat(unsettled, 1)
    count = int(mask.sum(1).max())
    numbers = torch.arange(width, device=device).expand_as(mask)
    columns = torch.where(mask, numbers, width).sort(1).values[:, :count]
    return Roots(problem, mean, traced, starts, width, columns, torch.cat([*lowest, lowest[0][:1]]))


def _least_slope(layer: ReLU | LeakyReLU) -> float:
    """The least float32 that is no smaller than the activation's slope below 0: a line through 0 that is any flatter
    lies above the function there."""
    slope = torch.tensor(layer.slope if isinstance(layer, LeakyReLU) else 0.0, dtype=torch.float64)
    nearest = slope.float()
    return float(nearest if nearest.double() >= slope else nearest.nextafter(torch.tensor(1.0)))


def whole(base: Roots, input: Tensor, row: Tensor) -> Domains:  # noqa: A002 (the field's name)
    """The undivided domains of the given rows, with the slopes of the root's lines."""
    lines = [base.traced.steps[k] for k in base.starts]
    plain = torch.cat(
        [_lines(step).relaxation.lower_slope[input] for step in lines] + [torch.zeros_like(input)[:, None]], 1
    )
    slopes = plain.gather(1, base.open[input]).float()
    none = torch.zeros_like(slopes)
    return Domains(input, row, none.to(torch.int16), slopes, none)


def halves(domains: Domains, branch: Tensor, weight: Tensor, depth: Tensor) -> Domains:
    """Both children of every domain, split at column `branch` [D] as the (depth + 1)-th: first all z >= 0.

    With A > 0 the coefficient there, multipliers A (1 - α) and A α give the lower line of slope α again: so a child
    starts with a bound no worse than its parent's.
    """
    place, order = branch.unsqueeze(1), (depth + 1).unsqueeze(1).to(torch.int16)
    slope, weight = domains.slopes.gather(1, place), weight.unsqueeze(1).float()
    sides = [
        replace(
            domains,
            splits=domains.splits.scatter(1, place, sign * order),
            multipliers=domains.multipliers.scatter(1, place, weight * share),
        )
        for sign, share in ((1, 1 - slope), (-1, slope))
    ]
    return Domains(*(torch.cat(pair) for pair in zip(*(vars(side).values() for side in sides), strict=True)))


def steps_of(base: Roots, domains: Domains) -> list[Step]:
    """The root's steps for each domain: intervals end at 0 where a neuron is split, and boxes after them shrink."""
    signs = _dense(base, domains, domains.splits.sign().double(), 0.0)
    layers, h, steps = base.problem.network.layers, None, list[Step]()
    for k, step in enumerate(base.traced.steps):
        own, layer = step[domains.input], layers[k]
        if k in base.starts and isinstance(own, ActivationStep) and isinstance(layer, ReLU | LeakyReLU):
            z = _clamped(own.z, signs[k]).reshape(len(domains), *own.shape)
            own, h = activation_step(layer, z), image(layer, z)
        elif isinstance(own, ActivationStep):
            h = None
        elif isinstance(own, FlattenStep):
            h = None if h is None else h.reshape(len(domains), -1)
        elif isinstance(own, MaxPoolStep) and isinstance(layer, MaxPool2d):
            own, h = (own, None) if h is None else (max_pool_step(layer, h), pooled(layer, h))
        elif isinstance(own, NoisyLinear):
            own, h = (own if h is None else replace(own, h=h)), None
        steps.append(own)
    return steps


def evaluate(base: Roots, domains: Domains) -> Functional:
    """The functional of every domain's row [D, 1] with its own slopes and multipliers."""
    steps, region, rows, offsets = _question(base, domains)
    slopes, multipliers = domains.slopes.double(), domains.multipliers.double()
    return _functional(base, domains, steps, region, rows, offsets, slopes, multipliers)[0]


def walk_of(base: Roots, domains: Domains) -> tuple[list[Step], list[Tensor]]:
    """The steps of every domain, and its coefficients on the input and on every step's output."""
    steps, region, rows, offsets = _question(base, domains)
    slopes, multipliers = domains.slopes.double(), domains.multipliers.double()
    return steps, _functional(base, domains, steps, region, rows, offsets, slopes, multipliers)[1]


def tighten(base: Roots, domains: Domains, iterations: int, rule: str) -> Tightened:
    """Adam on m - τL over slopes and multipliers; of all iterates each domain keeps its best.

    The minimising points of the last half of the walks are averaged: they approach the relaxation's minimum.
    """
    steps, region, rows, offsets = _question(base, domains)
    slopes, multipliers = domains.slopes.double(), domains.multipliers.double()
    low, high = _slope_range(base, domains)
    slopes = slopes.clamp(low, high)
    split = (domains.splits != 0).double()
    best, kept = (
        Functional(torch.full_like(rows[:, :, 0], -torch.inf), torch.ones_like(rows[:, :, 0])),
        (slopes, multipliers),
    )
    optimiser = torch.optim.Adam(
        [{"params": [slopes], "lr": SLOPE_RATE}, {"params": [multipliers], "lr": MULTIPLIER_RATE}]
    )
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, DECAY)
    total = torch.zeros_like(region.center)
    for iteration in range(iterations):
        with torch.enable_grad():
            slopes.requires_grad_(), multipliers.requires_grad_()
            found, coefficients = _functional(base, domains, steps, region, rows, offsets, slopes, multipliers)
            tau = (found.value / found.lipschitz).detach().nan_to_num(LEAST).clamp(LEAST, MOST)
            optimiser.zero_grad()
            (tau * found.lipschitz - found.value).sum().backward()  # type: ignore[no-untyped-call]
        slopes.requires_grad_(False), multipliers.requires_grad_(False)
        best, kept = _keep_better(best, kept, _detached(found), (slopes, multipliers))
        if 2 * iteration >= iterations:
            total += region.minimiser(coefficients[0].detach()[:, 0])
        optimiser.step()
        schedule.step()
        slopes.copy_(slopes.clamp(low, high).float())
        multipliers.copy_((multipliers.clamp_min(0) * split).float())
    slopes, multipliers = kept
    _, coefficients = _functional(base, domains, steps, region, rows, offsets, slopes, multipliers)
    point = total / max(1, iterations - (iterations + 1) // 2)
    margin, values = _forward(base, domains, point)
    branch, weight = _branch(base, domains, steps, coefficients, slopes, values, rule)
    done = replace(domains, slopes=slopes.float(), multipliers=multipliers.float())
    return Tightened(done, best.value[:, 0], best.lipschitz[:, 0], branch, weight, point, margin)


def _question(base: Roots, domains: Domains) -> tuple[list[Step], Region, Tensor, Tensor]:
    spec, index = base.problem.specification, domains.input
    rows, offsets = spec.rows[index, domains.row], spec.offsets[index, domains.row]
    return steps_of(base, domains), spec.region[index], rows.unsqueeze(1), offsets.unsqueeze(1)


def _functional(
    base: Roots,
    domains: Domains,
    steps: list[Step],
    region: Region,
    rows: Tensor,
    offsets: Tensor,
    slopes: Tensor,
    multipliers: Tensor,
) -> tuple[Functional, list[Tensor]]:
    """The rows' functional, and their coefficients on the input and on every step's output.

    Lower lines pass through 0, which is sound for slopes within their range: whatever is given, those are taken.
    """
    slopes = slopes.clamp(*_slope_range(base, domains))
    signed = _dense(base, domains, multipliers * domains.splits.sign(), 0.0)
    taken = list(steps)
    values = _dense_over(base, domains, slopes, steps)
    for k in base.starts:
        lines = _lines(steps[k])
        relaxation = replace(lines.relaxation, lower_slope=values[k].unsqueeze(1))
        taken[k] = SplitStep(replace(lines, relaxation=relaxation), signed[k].unsqueeze(1))
    coefficients, tally = walk(taken, rows)
    found = conclude(taken, region, coefficients[0].flatten(2), tally)
    error = 4 * UNIT * (offsets.abs() + found.value.abs())
    return Functional(found.value + offsets - error, found.lipschitz), coefficients


def _dense(base: Roots, domains: Domains, values: Tensor, otherwise: float) -> dict[int, Tensor]:
    """values [D, U] as one tensor [D, n] a layer."""
    everywhere = values.new_full((len(domains), base.width + 1), otherwise)
    return _by_layer(base, everywhere.scatter(1, base.open[domains.input], values))


def _dense_over(base: Roots, domains: Domains, slopes: Tensor, steps: list[Step]) -> dict[int, Tensor]:
    """Lower slopes [D, n] a layer: the domain's own, and those of the lines where a neuron is settled."""
    if not base.starts:
        return {}
    plain = torch.cat(
        [_lines(steps[k]).relaxation.lower_slope for k in base.starts] + [slopes.new_zeros(len(slopes), 1)], 1
    )
    return _by_layer(base, plain.scatter(1, base.open[domains.input], slopes))


def _by_layer(base: Roots, everywhere: Tensor) -> dict[int, Tensor]:
    ends = [*base.starts.values(), base.width][1:]
    return {k: everywhere[:, start:end] for (k, start), end in zip(base.starts.items(), ends, strict=True)}


def _slope_range(base: Roots, domains: Domains) -> tuple[Tensor, Tensor]:
    lowest = base.lowest[base.open[domains.input]]
    return torch.where(domains.splits > 0, 1.0, lowest), torch.where(domains.splits < 0, lowest, 1.0)


def _clamped(z: Box, signs: Tensor) -> Box:
    return Box(
        torch.where(signs > 0, z.lower.clamp_min(0), z.lower), torch.where(signs < 0, z.upper.clamp_max(0), z.upper)
    )


def _lines(step: Step) -> ActivationStep:
    if not isinstance(step, ActivationStep):
        raise TypeError(f"step {type(step).__name__} has no lines")
    return step


def _detached(found: Functional) -> Functional:
    return Functional(found.value.detach(), found.lipschitz.detach())


def score(value: Tensor, lipschitz: Tensor) -> Tensor:
    """m / L where the row can be certified at all, m itself (negative) elsewhere."""
    return torch.where(value > 0, value / lipschitz, value)


def _keep_better(
    best: Functional, kept: tuple[Tensor, Tensor], found: Functional, tried: tuple[Tensor, Tensor]
) -> tuple[Functional, tuple[Tensor, Tensor]]:
    better = score(found.value, found.lipschitz) > score(best.value, best.lipschitz)  # [D, 1]
    value, lipschitz = (
        torch.where(better, found.value, best.value),
        torch.where(better, found.lipschitz, best.lipschitz),
    )
    return Functional(value, lipschitz), (
        torch.where(better, tried[0], kept[0]),
        torch.where(better, tried[1], kept[1]),
    )


def _forward(base: Roots, domains: Domains, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """The mean network at x [D, *shape]: its smallest row [D], and the inputs z [D, n] of every (leaky) ReLU."""
    network, values = base.problem.network, {}
    for k, (layer, parameters) in enumerate(zip(network.layers, network.split(base.mean), strict=True)):
        if k in base.starts:
            values[k] = x.flatten(1)
        x = apply(layer, parameters, x, network.shapes[k])
    spec = base.problem.specification
    margins = (spec.rows[domains.input] @ x.unsqueeze(-1)).squeeze(-1) + spec.offsets[domains.input]
    return margins.amin(1), values


def _branch(
    base: Roots,
    domains: Domains,
    steps: list[Step],
    coefficients: list[Tensor],
    slopes: Tensor,
    values: dict[int, Tensor],
    rule: str,
) -> tuple[Tensor, Tensor]:
    """The column [D] whose split promises most, -1 where no neuron is open, and its coefficient A⁺.

    "point": what the relaxation loses at the averaged minimiser z, -A⁻ (chord(z) - f(z)) + A⁺ (f(z) - αz).
    "width": (-A⁻ + 0.3 A⁺) u(-l) / (u - l), whatever the point; also where the point loses nothing.
    "both": their geometric mean.
    """
    if base.open.shape[1] == 0:
        return torch.full_like(domains.input, -1), torch.zeros_like(slopes[:, :0].sum(1))
    lost, wide, weights = [], [], []
    dense = _dense_over(base, domains, slopes, steps)
    for k in base.starts:
        lines, rows = _lines(steps[k]), coefficients[k + 1].flatten(2)[:, 0]
        weights.append(rows.clamp_min(0))
        layer = base.problem.network.layers[k]
        l, u = lines.z.lower, lines.z.upper
        z = torch.minimum(torch.maximum(values[k], l), u)
        f = layer(z)  # type: ignore[operator]
        above = lines.relaxation.upper_slope * z + lines.relaxation.upper_intercept - f
        below = f - dense[k] * z
        unsettled = (l < 0) & (u > 0)
        lost.append(torch.where(unsettled, -rows.clamp_max(0) * above + rows.clamp_min(0) * below, -1.0))
        gap = u * -l / (u - l).clamp_min(1e-300)
        wide.append(torch.where(unsettled, (-rows.clamp_max(0) + POSITIVE_SHARE * rows.clamp_min(0)) * gap, -1.0))
    none = torch.full_like(domains.input, -1, dtype=torch.float64).unsqueeze(1)
    columns = base.open[domains.input]
    by_point, by_width = (torch.cat([*parts, none], 1).gather(1, columns) for parts in (lost, wide))
    by_both = (by_point.clamp_min(0) * by_width.clamp_min(0)).sqrt()
    chosen = {"both": by_both, "point": by_point, "width": by_width}[rule]
    chosen = torch.where(chosen.amax(1, keepdim=True) > 0, torch.where(by_width < 0, -1.0, chosen), by_width)
    most, place = chosen.max(1)
    weight = torch.cat([*weights, none], 1).gather(1, columns).gather(1, place.unsqueeze(1)).squeeze(1)
    return torch.where(most >= 0, place, -1), weight.clamp_min(0)
