"""Mutants of the checker: each breaks one rule of `bnncert_check`, and each is caught accepting
something false.

A mutant is the whole package, imported afresh with one piece of its text replaced. A fixed suite
runs against it: forged certificates of tiny networks whose P_safe is known, and bounds whose exact
value is known. It is killed if it accepts a claim that is false or that the format forbids, or if a
bound lies on the wrong side; an exception kills nothing. The checker itself passes the suite, and
accepts true claims on the same evidence.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx
from mpmath import mpf
from numpy.typing import NDArray
from safetensors.numpy import save_file

import bnncert_check
from bnncert_check.files import digest

Checker: TypeAlias = Any  # the package, as it is or mutated
Claim: TypeAlias = tuple[
    float | str, ...
]  # lower, upper, of softmax the gap; a string as it stands in the file
Evidence: TypeAlias = tuple[str, dict[str, Any], dict[str, Any]]  # kind, evidence, tensors

ROOT = Path(bnncert_check.__file__).parent
# By dotted name; a package's own text has the package's name, that of the whole none.
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    .removesuffix("__init__")
    .strip("."): path.read_text()
    for path in ROOT.rglob("*.py")
}
U, ETA = 2.0**-53, 2.0**-1074

# A line names a module; below it: name ¦ text that occurs once in the module ¦ what takes its
# place.
TABLE = """
arithmetic
up goes down ¦ np.nextafter(x, math.inf) ¦ np.nextafter(x, -math.inf)
down goes up ¦ np.nextafter(x, -math.inf) ¦ np.nextafter(x, math.inf)
the unit roundoff is half ¦ UNIT, ETA = 2.0**-53 ¦ UNIT, ETA = 2.0**-54
γ without n ¦ return (n + SPARE) * UNIT ¦ return SPARE * UNIT
no spare roundings ¦ SPARE = 16 ¦ SPARE = 0
no floor under errors ¦ return 4 * (n + SPARE) * ETA ¦ return 0.0
sum_error without γ ¦ up(gamma(terms) * total + floor_of_errors(terms)) ¦ up(floor_of_errors(terms) + 0 * total)
dot_down adds its error ¦ down(terms.sum(-1) - up(error)) ¦ down(terms.sum(-1) + up(error))
error of what is left after cancelling ¦ gamma(n) * np.abs(terms).sum(-1) ¦ gamma(n) * abs(terms.sum(-1))
dot_up is dot_down ¦ return -dot_down(-a, b) ¦ return dot_down(a, b)
sqrt_up goes down ¦ up(np.sqrt(x)) ¦ down(np.sqrt(x))
lower_float takes the nearest ¦ return value if arb(value) <= end else math.nextafter(value, -math.inf) ¦ return value
lower_float of the midpoint ¦ end = x.lower() ¦ end = x.mid()
upper_float is lower_float ¦ return -lower_float(-x) ¦ return lower_float(x)
tails
Q of z, not z/√2 ¦ (z / arb(2).sqrt()).erfc() / 2 ¦ z.erfc() / 2
tails without their error ¦ RELATIVE_ERROR = 2.0**-48 ¦ RELATIVE_ERROR = 0.0
upper tails go down ¦ * (1 + RELATIVE_ERROR) ¦ * (1 - RELATIVE_ERROR)
E|N| without its error ¦ ABSOLUTE_ERROR = 2.0**-48 ¦ ABSOLUTE_ERROR = 0.0
E|N| without its noise ¦ return up(np.abs(a) + up(s * (value + ABSOLUTE_ERROR))) ¦ return up(np.abs(a))
grammar
exponents of claims ignored ¦ Fraction(found := float.fromhex(value)) == _written(*written.groups())
    ¦ (found := float.fromhex(value.split("p")[0])) is not None
digits that are rounded away ¦ Fraction(found := float.fromhex(value)) == _written(*written.groups())
    ¦ (found := float.fromhex(value)) is not None
shapes may broadcast ¦ or found.shape != shape: ¦ or found.ndim != len(shape):
negative indices ¦ or not least <= value <= most: ¦ or not value <= most:
region
ends rounded inward ¦ (down(x - eps), up(x + eps)) ¦ (up(x - eps), down(x + eps))
the region is its centre ¦ (down(x - eps), up(x + eps)) ¦ (x, x)
A⁺ and A⁻ swapped ¦ np.where(rows > 0, self.lower, self.upper) ¦ np.where(rows > 0, self.upper, self.lower)
every part misses its ball ¦ not self._within(np.clip(self.x, self.lower, self.upper))
    ¦ not self._within(np.where(self.x - self.lower > 0, self.lower, self.upper))
dual norms swapped ¦ if self.norm == "l2" else ¦ if self.norm == "l1" else
radius forgotten ¦ up(self.eps * dual) ¦ up(dual)
one end of the box ¦ bool(((self.lower <= point) & (point <= self.upper)).all()) ¦ bool((self.lower <= point).all())
l2 without a square ¦ <= eps**2 ¦ <= eps
points outside the clip range ¦ if self.clip is not None and not ((self.clip[0] <=
    ¦ if False and not ((self.clip[0] <=
negative radii ¦ if not eps >= 0: ¦ if False:
empty regions ¦ if not (lower <= upper).all(): ¦ if False:
activations
no kink ¦ np.where((l < 0) & (u > 0), 0.0, np.inf) ¦ np.inf
the better end ¦ np.minimum(*ends) ¦ np.maximum(*ends)
intercept rounded up ¦ down(bent(activation.slope, z) - up(slope * z))
    ¦ up(bent(activation.slope, z) - down(slope * z))
upper line of f, not of its mirror image ¦ -u, -l, mirror=True) ¦ -u, -l)
slopes swapped ¦ Lines(lower_slope, below, upper_slope, above) ¦ Lines(upper_slope, below, lower_slope, above)
image rounded inward ¦ np.where(z >= 0, z, down(alpha * z) ¦ np.where(z >= 0, z, up(alpha * z)
no tangent point ¦ elif not (-c < l or -c > u): ¦ elif False:
no flat tangent ¦ if rate * l < -40: ¦ if False:
linear
A⁺ and A⁻ swapped ¦ np.where(rows > 0, self.lower, self.upper) ¦ np.where(rows > 0, self.upper, self.lower)
the radius helps ¦ layer.pull(center, rows) - spread * slope ¦ layer.pull(center, rows) + spread * slope
errors unpaid ¦ up(dot_up(error, h.magnitude) + dot_up( ¦ up(dot_up(
δ unpaid ¦ + dot_up(pull_up(layer, radius, magnitude), lift)) ¦ )
κ is 1 below 0 ¦ np.where(h.lower >= 0, 1.0, -1.0) ¦ 1.0
δ at the better end ¦ np.where(mixed, np.maximum(*ends), 0.0) ¦ np.where(mixed, np.minimum(*ends), 0.0)
δ rounded down ¦ up(np.abs(end) - down(slope * end)) ¦ down(np.abs(end) - up(slope * end))
intercepts swapped ¦ positive, self.lines.lower, self.lines.upper ¦ positive, self.lines.upper, self.lines.lower
the product of slopes unpaid ¦ down(constant - dot_up(rounding, self.h.magnitude)) ¦ constant
radius rounded down ¦ np.maximum(up(h.upper - center), up( ¦ np.maximum(down(h.upper - center), down(
constants forgotten at a stop ¦ self._stop(waiting, constant)) ¦ self._stop(waiting, 0 * constant))
a stop at some nodes ¦ for node, rows in waiting.items(): ¦ for node, rows in list(waiting.items())[:1]:
a stop at 0 ¦ np.full(len(rows), -np.inf) ¦ np.zeros(len(rows))
upper end not negated ¦ np.minimum(upper[places], -bounded.walk( ¦ np.minimum(upper[places], bounded.walk(
rows that meet pass each other ¦ total = waiting + rows ¦ total = rows
the rounding of rows that meet ¦ dot_up(up(UNIT * np.abs(total) + ETA), h.magnitude) ¦ np.zeros(len(rows))
sums without a term ¦ for term in terms[1:]: ¦ for term in terms[2:]:
offsets subtracted ¦ return down(found + offsets) ¦ return down(found - offsets)
functionals
σ for σ² ¦ up(std * std) if std.any() ¦ up(std) if std.any()
L² for L ¦ return value, sqrt_up(up(tally.squared + dot_up(shared, shared))) ¦ return value, up(tally.squared)
errors of means unpaid ¦ down(pulled[:, -1] - error) ¦ pulled[:, -1]
rows for their squares ¦ step.variance, up(rows * rows)) ¦ step.variance, magnitude)
only the first layer's noise ¦ squared=up(tally.squared + reach)) ¦ squared=reach)
s² for s ¦ std, tally = sqrt_up(std), ¦ std, tally = up(std),
L is 0 where there is noise ¦ if not tally.random: ¦ if True:
E F forgotten ¦ down(tally.value - expected) ¦ tally.value
no input fold ¦ tally = replace(tally, input_std=_joined(std[:, :-1], tally)) ¦ pass
the input's noise of one layer ¦ return sqrt_up(up(up(std * std) + up(tally.input_std * tally.input_std))) ¦ return std
shared noises at the input as if independent ¦ if tally.center.shape[1]: ¦ if False:
a term's noise forgotten ¦ up(squared + up(noise**2)), random | (noise > 0) ¦ squared, random
a term's interval forgotten ¦ traced.intervals[node].lower, -traced.intervals[node].upper
    ¦ 0 * traced.intervals[node].lower, 0 * traced.intervals[node].upper
bias noise forgotten ¦ return up(reach + bias) ¦ return reach
radius forgotten in the reach ¦ up(step.region.eps * sqrt_up(own.max(-1))) ¦ sqrt_up(own.max(-1))
shared noise of the centre ¦ up(dot_up(size, spread) + dot_up(error, h.magnitude)) ¦ dot_up(error, h.magnitude)
errors of factors unpaid ¦ up(dot_up(size, spread) + dot_up(error, h.magnitude)) ¦ dot_up(size, spread)
the centre's error unpaid ¦ up(up(high - low) + up(dot_up(size, spread) ¦ up(up(dot_up(size, spread)
shared noise of one layer ¦ total = tally.center + np.stack(centers, -1) ¦ total = np.stack(centers, -1)
radius of one layer ¦ up(up(tally.radius + np.stack(radii, -1)) + up( ¦ up(np.stack(radii, -1) + up(
fold without noise ¦ dot_up(expected_magnitude(rows, std), radius) ¦ dot_up(np.abs(rows), radius)
fold with half the radius ¦ (expected_magnitude(rows, std), radius) ¦ (expected_magnitude(rows, std), radius / 2)
dual norms swapped ¦ if region.norm == "l2": ¦ if region.norm == "l1":
l1 noise of one input ¦ up(_maximal_gain(rows.shape[-1]) * std.max(-1)) ¦ std.max(-1)
sqrt(1/π) for sqrt(2/π) ¦ upper_float((2 / arb.pi()).sqrt()) ¦ upper_float((1 / arb.pi()).sqrt())
sqrt(2 ln n) for sqrt(2 ln 2n) ¦ arb(2 * n).log() ¦ arb(n).log()
proofs
offsets subtracted ¦ return down(value + offsets), lipschitz ¦ return down(value - offsets), lipschitz
Q(t) without its factor ¦ return ends * normal_tail ¦ return normal_tail
ends at half price ¦ ends * normal_tail(arb(proof.t)) ¦ ends * normal_tail(arb(proof.t)) / 2
only the first row ¦ zip(value.tolist(), lipschitz.tolist(), strict=True)
    ¦ zip(value.tolist()[:1], lipschitz.tolist())
the worst row instead of all ¦ total += _row_failure(m, L) ¦ total = max(total, _row_failure(m, L))
no noise, no failure ¦ return arb(0) if m > 0 else arb(1) ¦ return arb(0)
NaN is safe ¦ return arb(0) if m > 0 else arb(1) ¦ return arb(1) if m <= 0 else arb(0)
Q of a negative m ¦ normal_tail(arb(m) / arb(lipschitz)) if m >= 0 else arb(1) ¦ normal_tail(arb(m) / arb(lipschitz))
steep lines on dead ReLUs ¦ np.where(dead, 0.0, below), np.where(dead, 0.0, above) ¦ np.where(dead, 0.0, below), above
lower ends without noise ¦ down(low - up(proof.t * low_noise)) ¦ low
upper ends without noise ¦ -down(high - up(proof.t * high_noise)) ¦ -high
upper end not negated ¦ , -down(high - ¦ , down(high -
off if it may be off ¦ off = (upper <= 0) & ¦ off = (lower <= 0) &
upper ends free ¦ int((high_noise > 0).sum() + ((low_noise ¦ int(((low_noise
lower ends free ¦ int((high_noise > 0).sum() + ((low_noise > 0) & ~off).sum()) ¦ int((high_noise > 0).sum())
the last layer charged ¦ ends += count ¦ ends = count
off although others read it ¦ & all(map(_flat_below ¦ & any(map(_flat_below
rows' slopes with old intercepts
    ¦ ActivationStep(lines(layer, step.h.lower, step.h.upper, own, step.lines.upper_slope),
    ¦ ActivationStep(replace(step.lines, lower_slope=own),
only the first leaf ¦ for number in range(len(tree.paths)): ¦ for number in range(1):
splits
leaves need not cover ¦ return False ¦ return True
multipliers of the other sign ¦ changed = pulled - self.multipliers ¦ changed = pulled + self.multipliers
predictive
margins for their negatives ¦ ((-margin).exp() for margin in margins) ¦ (margin.exp() for margin in margins)
a softmax without itself ¦ return 1 / (1 + sum(((-margin) ¦ return 1 / (sum(((-margin)
rivals' share of the label ¦ return 1 - 1 / (1 + sum((lead.exp() ¦ return 1 / (1 + sum((lead.exp()
the largest margin ¦ arb(min(lower_float(margin) ¦ arb(max(lower_float(margin)
a lead without the label's share ¦ return label(margins) * (1 - (-least).exp()) ¦ return (1 - (-least).exp())
tanh(v) for tanh(v / 2) ¦ (least / 2).tanh() ¦ (least / 4).tanh()
levels of half the noise ¦ arb(m) - s * arb(slope) ¦ arb(m) - s / 2 * arb(slope)
one row charged for all ¦ 1 - fails - noisy * normal_tail(s) ¦ 1 - fails - normal_tail(s)
hidden failures free ¦ 1 - fails - noisy * normal_tail(s) ¦ 1 - noisy * normal_tail(s)
levels that always hold ¦ total + (value - above) * held, value ¦ total + (value - above), value
a mean without its failures ¦ m - abs(m) * p - (arb(float(lipschitz[0])) + arb(size)) * p.sqrt() ¦ m
moments of means ¦ up(factor * layer.matrix(std)) ¦ 0.0 * layer.matrix(std)
shared noise as if independent ¦ if shared else 1.0 ¦ if False else 1.0
a maximum's size is its mean ¦ return dot_up(gathered, np.ones_like(gathered)) ¦ return gathered.mean(-1)
activations have no size ¦ np.full_like(sizes[0], largest) ¦ np.zeros_like(sizes[0])
a sum's size is its largest term's ¦ dot_up(np.stack(sizes, -1), np.ones(len(sizes))) ¦ np.stack(sizes, -1).max(-1)
mass
empty made non-empty ¦ return WeightBox(lower, upper) if (lower <= upper).all() else None
    ¦ return WeightBox(np.minimum(lower, upper), np.maximum(lower, upper))
atoms anywhere ¦ if not (inside | random).all(): ¦ if False:
product without its error ¦ math.nextafter(product * (1 - slack), 0.0) ¦ product
upper product underflows ¦ product * (1 + 2 * slack) + SMALLEST ¦ product * (1 + 2 * slack)
lower product underflows ¦ if product > SMALLEST else 0.0 ¦ if product > 0 else 0.0
failures joined the other way ¦ up if side == DOWN else down) ¦ down if side == DOWN else up)
mass rounded up ¦ max(math.nextafter(1 - failure, 0.0), product) ¦ max(math.nextafter(1 - failure, 2.0), product)
an odd one out ¦ failures = np.append(failures, 0.0) ¦ failures = failures[:-1]
z without scale ¦ (bound(bound(end) / scale) for end ¦ (bound(bound(end)) for end
±2λσ for ±λσ ¦ (bound(bound(end) / scale) for end ¦ (bound(bound(end) / (scale / 2)) for end
z rounded to the wrong side ¦ (bound(bound(end) / scale) for end ¦ (other(other(end) / scale) for end
one tail in the table ¦ other(tails(left[quick]) + tails(right[quick])) ¦ other(tails(left[quick]))
table for one side ¦ (left >= 1) & (right >= 1) ¦ ((left >= 1) | (right >= 1))
failure rounded down ¦ min(upper_float(1 - probability), 1.0) ¦ min(lower_float(1 - probability), 1.0)
right tail forgotten ¦ return 1 - tail(-a) - tail(b) ¦ return 1 - tail(-a)
far tail forgotten ¦ return tail(a) - tail(b) if ¦ return tail(a) if
Laplace without its half ¦ (-z).exp() / 2 ¦ (-z).exp()
Student's far tail with df for df/2 ¦ beta_lower(n / 2, half, 1) / 2 ¦ beta_lower(n, half, 1) / 2
uniform beyond its support ¦ arb(min(u, high)) - arb(max(l, low)) ¦ arb(u) - arb(l)
truncation forgotten ¦ for end in (max(l, low), min(u, high), low, high) ¦ for end in (l, u, low, high)
truncated without normaliser ¦ / _between(normal_tail, ends[2], ends[3]) ¦ / 1
cells beyond lower ends ¦ (parent.lower[weight] <= low and high <= parent.upper[weight])
    ¦ high <= parent.upper[weight]
cells beyond upper ends ¦ (parent.lower[weight] <= low and high <= parent.upper[weight]) ¦ parent.lower[weight] <= low
only the pairs that are named ¦ for j, i in combinations(range(len(cells)), 2): ¦ for i, j in separators:
separators by lower ends ¦ if not (first[1] < second[0] or ¦ if not (first[0] < second[0] or
atoms counted twice ¦ first[1] == second[0] and posterior.random[weight] ¦ first[1] == second[0]
cells rounded up ¦ sum((arb(mass(posterior, cell, DOWN)) ¦ sum((arb(mass(posterior, cell, UP))
pairs rounded down ¦ -arb(mass(posterior, joint, UP)) ¦ -arb(mass(posterior, joint, DOWN))
depth one less ¦ if size < depth: ¦ if size + 1 < depth:
model
narrow intervals are atoms ¦ return wide if self.family == "uniform" else ¦ return
negative weights of mixtures ¦ or not min(weights) >= 0 or ¦ or
negative scales ¦ or not all((scale >= 0).all() for scale in scales) ¦
layers
weights transposed ¦ reshape(*flat.shape[:-1], self.inputs, self.outputs)
    ¦ reshape(*flat.shape[:-1], self.outputs, self.inputs).swapaxes(-1, -2)
LeakyReLUs of any slope ¦ 0.0, LARGEST_SLOPE) ¦ 0.0)
LeakyReLUs off ¦ return self.slope == 0 ¦ return self.slope is not None
activations have no width ¦ Activation(kind, slope, math.prod(shape), position) ¦ Activation(kind, slope, 0, position)
question
digests unchecked ¦ if claimed[name] != value: ¦ if False:
posterior's digest unchecked ¦ if claimed[name] != value: ¦ if name != "posterior" and claimed[name] != value:
rivals counted as a set ¦ len({*self.duel[1]}) == len(self.rows) == self.rows.shape[1] - 1
    ¦ len({*self.duel[1]}) == self.rows.shape[1] - 1
rivals left out ¦ len({*self.duel[1]}) == len(self.rows) == self.rows.shape[1] - 1
    ¦ len({*self.duel[1]}) == len(self.rows)
rows of any sign ¦ & (self.rows[:, label] == 1) ¦
evidence.boxes
only the first box proved ¦ for i, box in enumerate(boxes): ¦ for i, box in enumerate(boxes[:1]):
all rows but the last ¦ np.flatnonzero(~(bounds > 0)) ¦ np.flatnonzero(~(bounds[:-1] > 0))
NaN is positive ¦ np.flatnonzero(~(bounds > 0)) ¦ np.flatnonzero(bounds <= 0)
union rounded up ¦ lower_float(self._union(boxes, posterior)) ¦ -lower_float(-self._union(boxes, posterior))
Bonferroni of depth 3 ¦ "bonferroni": 2} ¦ "bonferroni": 3}
inclusion-exclusion of odd depth ¦ "inclusion-exclusion": len(boxes) ¦ "inclusion-exclusion": 3
evidence.proof
any slope ¦ if not ((slopes >= 0) & (slopes <= 1)).all(): ¦ if False:
leaves unchecked ¦ if not covers(paths): ¦ if False:
any multiplier ¦ if not (multipliers >= 0).all(): ¦ if False:
any threshold ¦ if not t > 0: ¦ if False:
evidence.concentration
upper bound rounded down ¦ min(upper_float(upper / total), 1.0) ¦ min(lower_float(upper / total), 1.0)
row not negated ¦ rows, offsets = -question.rows[row ¦ rows, offsets = question.rows[row
weights ignored ¦ lower += weight * arb(max( ¦ lower += arb(max(
only the first component ¦ zip(components, self.parts, strict=True) ¦ zip(components[:1], self.parts)
lower bound rounded up ¦ Support(lower_float(lower / total) ¦ Support(upper_float(lower / total)
offset not negated ¦ -question.offsets[row] ¦ question.offsets[row]
only the part above a cut ¦ return first + _failure(found.above ¦ return _failure(found.above
evidence.networks
points anywhere ¦ if not question.region.contains(point): ¦ if False:
networks counted twice ¦ if len(set(named)) < len(named): ¦ if False:
networks unverified ¦ if not (bounds > 0).all(): ¦ if False:
networks unrefuted ¦ if not (bound >= 0).all(): ¦ if False:
evidence.predictive
only the first network ¦ for w in samples] ¦ for w in samples[:1]] * len(samples)
certificate
claims need not be probabilities ¦ if not (within and lower <= upper and -1 <= (gap or 0) <= 1): ¦ if False:
lower claim against the upper bound ¦ if not claimed[0] <= support.lower: ¦ if not claimed[0] <= support.upper:
upper claim against the lower bound ¦ if not claimed[1] >= support.upper: ¦ if not claimed[1] >= support.lower:
any lower end is supported ¦ if not claimed[0] <= support.lower: ¦ if False:
any gap is supported ¦ if gap is not None and not gap <= support.lead: ¦ if False:
folder
claims without certificates ¦ if not line.claims_nothing: ¦ if False:
lower ends need not be repeated ¦ _require_equal("lower", line.lower, lower) ¦ pass
upper ends need not be repeated ¦ _require_equal("upper", line.upper, upper) ¦ pass
a mean between 0 and 1 is nothing ¦ trivial and self.quantity != MEAN and ¦ trivial and
one rival is all rivals ¦ elif not question.against_all: ¦ elif False:
inputs may differ ¦ _require_equal("input", line.input, flat) ¦ pass
any radius ¦ _require_equal("eps", line.eps, question.region.eps) ¦ pass
words need not follow ¦ _require_equal("status", line.status, status if line.status != "error" else "error") ¦ pass
a certificate for many lines ¦ _require_new(_identity(certificate), seen, "another line names the same certificate")
    ¦ pass
many lines for an input ¦ _require_new(line.identity(model), seen, "another line is about the same input") ¦ pass
quantities may differ ¦ _require_equal("quantity", line.quantity, verdict.quantity) ¦ pass
answers may differ ¦ _require_equal("answer", line.answer, "unsat" if holds else "sat" if fails else "unknown") ¦ pass
"""


def mutants() -> Iterator[tuple[str, str, str, str]]:
    """Name, module, original and mutated text; a line that starts with a space goes on with the one
    above."""
    module = ""
    for line in re.sub(r"\n +", " ", TABLE.strip()).splitlines():
        name, *texts = re.split(r" ¦ ?", line)
        module = module if texts else name
        if texts:
            yield f"{module}: {name}", module, *texts


class Wrong(Exception):  # noqa: N818 (an outcome, not a fault)
    """Something false was accepted, or a bound is on the wrong side."""


def never(outcome: bool, what: str) -> None:
    if outcome:
        raise Wrong(what)


def never_above(value: Any, bound: Any, what: str) -> None:
    """NaN is no bound at all, so it is not a wrong one."""
    never(bool(value > bound), what)


# ---- import of a mutant --------------------------------------------------------------------------


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the package in texts instead of files."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def find_spec(self, name: str, *_: object) -> Any:
        root, _, stem = name.partition(".")
        package = any(
            other.startswith(f"{stem}." if stem else "") for other in self.texts if other != stem
        )
        return (
            importlib.util.spec_from_loader(name, self, is_package=package)
            if root == "bnncert_check"
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        exec(_compiled(self.texts[module.__name__.partition(".")[2]]), module.__dict__)


@cache
def _compiled(text: str) -> Any:
    return compile(text, "<bnncert_check>", "exec")


@contextmanager
def imported(texts: dict[str, str]) -> Iterator[Checker]:
    """The package made of these texts; other tests get their modules back."""

    def modules() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] == "bnncert_check"]

    saved, finder = {name: sys.modules.pop(name) for name in modules()}, Sources(texts)
    sys.meta_path.insert(0, finder)
    try:
        checker: Checker = importlib.import_module("bnncert_check")
        if texts["tails"] == SOURCES["tails"]:
            checker.tails._table = bnncert_check.tails._table  # made once
        yield checker
    finally:
        sys.meta_path.remove(finder)
        for name in modules():
            del sys.modules[name]
        sys.modules.update(saved)


# ---- certificates --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Layers: (inputs, outputs) with a bias, the name of an activation, or the slope of a
    LeakyReLU. The posterior's fields are flat: W0, b0, W1, b1, ...; several components make a
    mixture."""

    layers: tuple[Any, ...]
    components: tuple[dict[str, Any], ...]
    x: Any = (0.0,)
    eps: float = 0.0
    rows: Any = ((1.0,),)
    offsets: Any = (0.0,)
    norm: str = "linf"
    clip: tuple[float, float] | None = None
    family: str = "normal"
    weights: tuple[float, ...] = (1.0,)
    families: tuple[str, ...] = ()  # of a mixture's components, where they differ

    @property
    def network(self) -> dict[str, Any]:
        def entry(layer: Any) -> dict[str, Any]:
            if isinstance(layer, tuple):
                return {"type": "Dense", "inputs": layer[0], "outputs": layer[1], "bias": True}
            return (
                {"type": layer} if isinstance(layer, str) else {"type": "LeakyReLU", "slope": layer}
            )

        return {"input_shape": [len(self.x)], "layers": [entry(layer) for layer in self.layers]}

    def write(self, path: Path) -> None:
        """The posterior."""
        shapes = [
            shape
            for layer in self.layers
            if isinstance(layer, tuple)
            for shape in (layer, layer[1:])
        ]
        header: dict[str, Any] = {
            "schema": "bnncert-posterior/1",
            "network": self.network,
            "family": self.family,
        }
        tensors, mixture = {}, len(self.components) > 1
        for i, (name, values) in (
            (i, item) for i, part in enumerate(self.components) for item in part.items()
        ):
            flat = np.array(values, float).T if name == "samples" else np.array(values, float)
            parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
            for k, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
                key = f"{f'{i}.' if mixture else ''}{'Wb'[k % 2]}{k // 2}_{name}"
                tensors[key] = np.ascontiguousarray(part.T.reshape(*part.shape[1:], *shape))
        if mixture:
            header |= {"family": "mixture", "weights": [weight.hex() for weight in self.weights]}
            header["components"] = [{"family": family} for family in self._families]
        save_file(tensors, path, {"bnncert": json.dumps(header)})

    @property
    def _families(self) -> tuple[str, ...]:
        return self.families or (self.family,) * len(self.components)

    @property
    def digests(self) -> dict[str, str]:
        def arrays(*values: Any) -> list[Any]:
            return [np.array(value, float) for value in values]

        parts = zip(self._families, self.components, strict=True)
        own = [
            digest({"family": family, "tensors": list(p)}, arrays(*p.values()))
            for family, p in parts
        ]
        mixture = {
            "family": "mixture",
            "weights": [weight.hex() for weight in self.weights],
            "components": own,
        }
        ends = (
            [[np.array(self.x) - self.eps], [np.array(self.x) + self.eps]]
            if self.norm == "box"
            else [[self.eps]]
        )
        question = arrays([self.x], *ends, [self.rows], [self.offsets])
        found = {
            "architecture": digest(self.network),
            "posterior": digest(mixture) if own[1:] else own[0],
        }
        found["specification"] = digest({"norm": self.norm, "clip": self.clip}, question)
        return found | {"problem": digest(list(found.values()))}


@dataclass(frozen=True)
class Case:
    """P_safe (at least, at most; None where the format forbids the certificate), false claims, and
    one that holds."""

    name: str
    problem: Problem
    evidence: Evidence
    truth: tuple[Any, Any] | None
    false: list[Claim]
    true: Claim | None = None
    changes: dict[str, Any] = field(default_factory=dict)  # of the header

    @property
    def claims(self) -> dict[str, Claim]:
        return {f"false{i}": claim for i, claim in enumerate(self.false)} | (
            {"true": self.true} if self.true else {}
        )

    def write(self, folder: Path, number: int) -> None:
        problem, (kind, evidence, tensors) = self.problem, self.evidence
        problem.write(folder / f"{number}.posterior")
        question = {"x": problem.x, "rows": problem.rows, "offsets": problem.offsets}
        arrays = {
            name: np.array(values, stored_as(name)) for name, values in (question | tensors).items()
        }
        region = {"norm": problem.norm, "clip": problem.clip, "eps": float(problem.eps).hex()}
        if problem.norm == "box":
            region["eps"] = None
            arrays |= {"lower": arrays["x"] - problem.eps, "upper": arrays["x"] + problem.eps}
        for name, claim in self.claims.items():
            ends = [end if isinstance(end, str) else float(end).hex() for end in claim]
            header = {
                "schema": "bnncert-certificate/1",
                "kind": kind,
                "evidence": evidence,
                "region": region,
            }
            said = dict(zip(("lower", "upper", "gap"), ends, strict=False))
            header |= {"digests": problem.digests, "claim": said} | self.changes
            save_file(arrays, folder / f"{number}.{name}", {"bnncert": json.dumps(header)})


def stored_as(name: str) -> Any:
    """The type that a tensor has in files."""
    if name.endswith(("open", "paths")):
        return np.int32
    return np.float32 if "tree" in name and name.endswith(("multipliers", "slopes")) else float


def accepted(checker: Checker, folder: Path, number: int, name: str) -> bool:
    try:
        model = checker.read_model(folder / f"{number}.posterior")
    except checker.CannotCheck:
        return False
    return bool(
        checker.check_certificate(folder / f"{number}.{name}", model).status == checker.ACCEPT
    )


def proof(t: float, own: bool = False) -> dict[str, Any]:
    return {"probability": (0.5).hex(), "t": t.hex(), "rows_optimised": own}


def smooth(
    t: float = 3.0, point: Any = None, row: int = 0, weights: Any = (1.0,), **slopes: Any
) -> Evidence:
    """Concentration; with a point also for the upper bound of every component. Slopes by the
    tensor's name."""
    upper = None if point is None else {"row": row, "failure": proof(t)}
    tensors: dict[str, Any] = {f"c0.{name}": values for name, values in slopes.items()}
    tensors |= {} if point is None else {f"c{i}.point": point for i in range(len(weights))}
    lower = proof(t, any(name.startswith("row_slopes") for name in slopes))
    parts = [{"weight": weight.hex(), "lower": lower, "upper": upper} for weight in weights]
    return "concentration", {"components": parts}, tensors


def averaged(*weights: float, t: float = 5.0) -> Evidence:
    """Of a softmax or a mean of a network without activations."""
    side = {"t": t.hex(), "rows_optimised": False}
    parts = [{"weight": weight.hex(), "lower": side, "upper": side} for weight in weights or (1.0,)]
    return "softmax", {"components": parts}, {}


def boxes(*chosen: tuple[Any, float], rule: str = "cells", **union: Any) -> Evidence:
    """Boxes of so many spreads about a centre; without any the posterior's own."""
    entries = [{"draw": i, "steps": steps} for i, (_, steps) in enumerate(chosen)] or [
        {"draw": None, "steps": 1}
    ]
    growth = {"step": 1.0, "rho": 0.0, "zero_gradient_only": False}
    evidence = {"bound": "lbp", "boxes": entries, "growth": growth, "union": {"rule": rule} | union}
    return "boxes", evidence, {f"center{i}": center for i, (center, _) in enumerate(chosen)}


def fields(mean: Any, std: Any = 0.0, **others: Any) -> tuple[dict[str, Any]]:
    return ({"mean": mean, "std": np.zeros(len(mean)) + std} | others,)


def cdf(z: float) -> float:
    return float(mpmath.ncdf(z))


def case(
    name: str,
    layers: Any,
    mean: Any,
    std: Any,
    proof: Evidence,
    most: Any,
    false: float,
    true: float = 0,
    **more: Any,
) -> Case:
    """P_safe is at most `most`, so `false` is too high; `true` is not."""
    claim = (true, 1) if true else None
    return Case(
        name, Problem(layers, fields(mean, std), **more), proof, (true, most), [(false, 1)], claim
    )


LINE, RELU, LEAKY = ((1, 1),), ((1, 1), "ReLU", (1, 1)), ((1, 1), 0.5, (1, 1))
FLAT, STEEP = ({"lower_slopes1": [slope], "upper_slopes1": [slope]} for slope in (0.0, 1.0))
TRAPS = list(permutations((2.0**54, -1.0, -(2.0**54))))  # the sum is -1; in some order 0 in float64
MEAN, VARIANCE = 64 * math.sqrt(2 / math.pi), 64 * (1 - 2 / math.pi)  # of Σ|w_j| over 64 weights
CANTELLI = VARIANCE / (VARIANCE + (MEAN - 41) ** 2)  # P(Σ|w_j| < 41) is below


def line_cases() -> Iterator[Case]:
    """One layer: P_safe in closed form, or below Cantelli's bound."""
    settings = [
        (4, 0, 10, 50, 1, 0),
        (0.1, 0, 0.1, 0.0125, 1, 0),
        (0, 1, 1, 1.25, 1, 0),
        (1, 0, 1, -5, -4, -15),
    ]
    for (w, b, x, bias, row, offset), sign in product(
        settings, (1, -1)
    ):  # one of the two bounds is sharp
        problem = Problem(
            LINE, fields([0, sign * bias], [w, b]), [x], rows=[[row]], offsets=[sign * offset]
        )
        p = cdf(1.25 * sign)
        true = (p - 1e-9, 1) if sign > 0 else (0, p + 1e-9)
        yield Case(
            "a Gaussian sum",
            problem,
            smooth(point=[x]),
            (p, p),
            [(p + 1e-9, 1), (0, p - 1e-9)],
            true,
        )
    p, two = 2 * cdf(1) - 1, {"rows": [[1], [-1]], "offsets": [1, 1]}
    yield case("|b| < 1", LINE, [0, 0], [0, 1], smooth(), p, p + 1e-9, p - 1e-9, **two)
    yield case("nine σ", LINE, [0, 9], [0, 1], smooth(), 1 - Fraction(1, 10**19), 1, 1 - 2 * U)
    for norm in ("linf", "l2", "l1"):
        p, problem = 2 * cdf(1.5) - 1, Problem(LINE, fields([0, 0.3], [0.1, 0]), eps=2, norm=norm)
        yield Case(
            f"|w| < 3/2 σ, {norm}", problem, smooth(), (p, p), [(0.9, 1), (0, 0.8)], (0.75, 1)
        )
    yield case("m is negative", LINE, [0, 0.05], [1, 0], smooth(), 2 * cdf(0.05) - 1, 0.2, eps=1)
    for n, bias, eps, norm, p in (
        (64, 41, 1, "linf", CANTELLI),
        (
            100,
            14,
            2,
            "l2",
            200 / (200 + 51**2),
        ),  # Cantelli again: |w|² < 49, of mean 100 and variance 200
        (100, 5, 2, "l1", (2 * cdf(2.5) - 1) ** 100),
    ):
        mean, std = [0] * n + [bias], [1] * n + [0]
        yield case(
            f"eps |w| < b, {norm}",
            ((n, 1),),
            mean,
            std,
            smooth(),
            p,
            0.5,
            x=[0] * n,
            eps=eps,
            norm=norm,
        )
    for (norm, bias), evidence in product((("l2", 2.4), ("l1", 1.5)), (smooth(), boxes())):
        yield case(
            "2|(1, 1)| > b",
            ((2, 1),),
            [1, 1, bias],
            0,
            evidence,
            0,
            0.5,
            x=[0, 0],
            eps=2,
            norm=norm,
        )
    for trap, evidence in product(TRAPS, (smooth(), boxes())):
        yield case(
            "cancels",
            ((1, 3),),
            [0] * 3 + [*trap],
            0,
            evidence,
            0,
            0.5,
            rows=[[1] * 3],
            offsets=[0.5],
        )


def hidden_cases() -> Iterator[Case]:
    """Hidden layers: what is charged for their intervals, and lines on them."""
    mean, std, p = [0] * 10 + [-2 - 1e-6] * 10, [0] * 10 + [1] * 10 + [0] * 11, cdf(2 + 3e-6) ** 10
    flat = {"lower_slopes1": [0] * 10, "upper_slopes1": [0] * 10}
    layers: Any = ((1, 10), "ReLU", (10, 1))
    yield case(
        "ReLUs off", layers, [*mean, *[-1e6] * 10, 1], std, smooth(2.0, **flat), p, 0.8, 0.77
    )
    flat |= {"lower_slopes3": [0], "upper_slopes3": [0]}
    layers, mean, std = (*layers, "ReLU", (1, 1)), [*mean, *[1e6] * 10, 0, -1, 1], [*std, 0, 0]
    yield case("ReLUs off and another layer", layers, mean, std, smooth(2.0, **flat), p, 0.8, 0.7)
    mean, std, p, flat = [0, 0, 1, 0], [0, 1, 0, 0], 2 * cdf(1 + 1e-6) - 1, smooth(1.0, **FLAT)
    for rows, offsets, most, false, true in (
        ([[-1], [1]], [1 + 1e-6, 0.5 + 1e-6], p, p + 0.01, p - 0.01),
        ([[-1]], [0.1], cdf(0.1), 0.6, 0),
        ([[1]], [0.05], cdf(0.1), 0.6, 0),
    ):
        yield case(
            "z of one neuron", LEAKY, mean, std, flat, most, false, true, rows=rows, offsets=offsets
        )
    yield case(
        "steep lines on a ReLU that is off", RELU, [0, -5, -1, -1], std, smooth(**STEEP), 0, 0.5
    )
    yield case(
        "a LeakyReLU is never off", LEAKY, [0, -5, 1, 1], [0, 0.1, 0, 0], smooth(**FLAT), 1e-99, 0.5
    )
    yield case(
        "a ReLU that may be on", RELU, [0, 1, -1, 1.5], std, smooth(2.0, **FLAT), cdf(0.5), 0.9
    )
    yield case(
        "noise of two layers",
        LEAKY,
        [0, 10, 0, 1],
        [0, 1e-6, 0, 1],
        smooth(5.0, **FLAT),
        cdf(1),
        0.9,
        0.841,
    )
    noisy, t = [1, 0, 0, 0], smooth(-0.7, **FLAT)
    yield case("t is negative", RELU, [0, -0.1, -1000, 1], noisy, t, 2 * cdf(0.101) - 1, 0.2, eps=1)
    own = smooth(lower_slopes1=[0], upper_slopes1=[1], row_slopes1=[[1]])
    yield case(
        "rows with slopes of their own", RELU, [1, 0, 1, -1.5], 0, own, 0, 0.5, x=[1.5], eps=0.5
    )
    mean, std = [*np.eye(64).ravel(), *[0] * 128, 41], [0] * 64 * 65 + [1] * 64 + [0]
    half, layers = (
        smooth(lower_slopes1=[0.5] * 64, upper_slopes1=[0.5] * 64),
        ((64, 64), 0.5, (64, 1)),
    )
    yield case("Σ|w| < b, hidden", layers, mean, std, half, CANTELLI, 0.5, x=[-0.5] * 64, eps=1.5)


def shared_cases() -> Iterator[Case]:
    """Low-rank noise η, shared between weights."""
    p, half = 2 * cdf(1.5) - 1 + 1e-6, smooth(5.0, lower_slopes1=[0.5], upper_slopes1=[0.5])
    cancelling = [
        [2.0**42],
        [2.0**43 * 1017 * U],
        [-(2.0**42)],
        *[[0]] * 998,
    ]  # dot_down gives about 0
    sums = [[[0]] * 3 + [[value] for value in trap] for trap in TRAPS]
    for layers, mean, std, factor, evidence, most, question in (
        (LINE, [0, 1.5], [1e-9, 0], [[1, 1e-9], [0, 0]], smooth(), p, {"eps": 1}),
        (LEAKY, [1, 0, 0, 1.5], 0, [[0], [1e-9], [1], [0]], half, p, {"x": [-0.5], "eps": 1.5}),
        (LEAKY, [0, 100, 1, -98], 0, [[0], [1], [0], [1]], smooth(5.0, **STEEP), cdf(1), {}),
        *(
            (((1, 3),), [0] * 6, 0, v, smooth(), cdf(0.5), {"rows": [[1] * 3], "offsets": [0.5]})
            for v in sums
        ),
        (((1000, 1),), [0] * 1000 + [0.5], 0, cancelling, smooth(), 0.7, {"x": [1] * 1000}),
    ):
        problem = Problem(
            layers, fields(mean, std, factor=factor), family="low-rank-normal", **question
        )
        yield Case("shared noise", problem, evidence, (0, most), [(0.9, 1)])


def leaves(neuron: int, paths: Any, multipliers: Any) -> Evidence:
    """Branch and bound with splits of one neuron of two."""
    kind, evidence, tensors = smooth(lower_slopes1=[0, 0], upper_slopes1=[0.5, 0.5])
    evidence["components"][0]["lower"] |= {"trees": [{"row": 0, "scale": None}]}
    tensors |= {"c0.open": [neuron], "c0.tree0.paths": paths, "c0.tree0.multipliers": multipliers}
    return kind, evidence, tensors | {"c0.tree0.slopes": [[0.0]] * len(paths)}


def in_two(at: float) -> Evidence:
    """The region cut at a point, with the same slopes on both sides."""
    kind, _, tensors = smooth(
        **{f"{side}{name}_slopes1": [0, 0] for side in (0, 1) for name in ("lower", "upper")}
    )
    cut = {
        "probability": (0.5).hex(),
        "dimension": 0,
        "at": at.hex(),
        "below": proof(3.0),
        "above": proof(3.0),
    }
    return kind, {"components": [{"weight": (1.0).hex(), "lower": cut, "upper": None}]}, tensors


def tree_cases() -> Iterator[Case]:
    """y = 1.1 - 2 relu(-x) on |x| <= 1, with neurons x and -x: not safe at x = -1, but safe
    wherever x >= 0."""
    proofs = {
        "only where x >= 0": leaves(0, [[1]], [[1.0]]),
        "where x >= 0, twice": leaves(0, [[1], [1]], [[1.0], [1.0]]),
        "a negative multiplier": leaves(0, [[1], [-1]], [[1.0], [-1.0]]),
        "a multiplier that would help with the other sign": leaves(1, [[-1], [1]], [[0.0], [2.0]]),
        "two parts": in_two(0.0),
        "two parts, one of them beyond the region": in_two(9.0),
    }
    for name, proof in proofs.items():
        mean = [1, -1, 0, 0, 0, -2, 1.1]
        yield case(name, ((1, 2), "ReLU", (2, 1)), mean, 0.0, proof, 0, 0.5, eps=1)


def mixture_cases() -> Iterator[Case]:
    """Components that are surely safe (1) or surely not (-1)."""
    p = Fraction(0.3) / (Fraction(0.3) + Fraction(0.7))
    low, high = sorted([float(p), math.nextafter(float(p), 2 * (p > float(p)))])
    for weights, outputs, truth, false, true in (
        ((0.75, 0.25), (-1, 1), (0.25, 0.25), [(0.5, 1), (0, 0.1)], (0.25, 0.25)),
        ((0.5 + 2.0**-32, 0.5 + 2.0**-32), (1, -1), (0.5, 0.5), [(0.5 + 2.0**-33, 1)], (0.5, 0.5)),
        ((1.5, -0.5), (1, -1), None, [(0.75, 1)], None),
        ((0.3, 0.7), (1, -1), (p, p), [(high, 1), (0, low)], (low, high)),
    ):
        problem = Problem(LINE, tuple(fields([0, y])[0] for y in outputs), weights=weights)
        yield Case(
            f"a mixture of {weights}",
            problem,
            smooth(point=[0], weights=weights),
            truth,
            false,
            true,
        )
    laws = ({"samples": [[0, 1]]}, fields([0, -1])[0])
    odd = Problem(LINE, laws, weights=(0.01, 0.99), families=("empirical", "normal"))
    safe = (
        "networks",
        {"networks": 1, "verified": [0], "refuted": []},
        {"points": np.zeros((1, 1))},
    )
    yield Case("a network and more", odd, safe, (0.01, 0.01), [(0.9, 1)])
    yield Case("its mean", odd, ("mean", {"networks": 1}, {}), (-0.98, -0.98), [(0.9, 1.1)])


def box_cases() -> Iterator[Case]:
    """y = w + b: with w ~ N(0, 1) and b = 0 safe iff w > 0, unless said otherwise."""
    right, left = ([1.55, 0], 1.45), ([-1.55, 0], 1.45)
    apart: dict[str, Any] = {
        "cells": [{"parent": i, "cuts": []} for i in range(2)],
        "separators": [[1, 0, 0]],
    }
    beyond: dict[str, Any] = {
        "cells": [{"parent": 0, "cuts": [[0, "-0x2p0", "0x2p0"]]}],
        "separators": [],
    }
    touching = boxes(right, right, **apart | {"separators": [[1, 0, 1]]})
    four = [([1.55, 0], steps) for steps in (1.45, 1.44, 1.43, 1.42)]
    for name, evidence, true, row in (
        ("one box", boxes(right), 0.45, 1),
        ("a box on the wrong side", boxes(right, left, **apart), 0, 1),
        ("a cell beyond its box", boxes(right, **beyond), 0, 1),
        ("a cell beyond its box", boxes(left, **beyond), 0, -1),
        ("cells that overlap", boxes(right, ([1.5, 0], 1.3), **apart), 0, 1),
        ("cells that nothing keeps apart", boxes(right, right), 0, 1),
        ("cells that meet in an atom", touching, 0, 1),
        ("Bonferroni", boxes(*four, rule="bonferroni"), 0, 1),
        ("inclusion and exclusion", boxes(*four, rule="inclusion-exclusion"), 0.45, 1),
        ("an atom elsewhere", boxes(([0, 5], 3)), 0, 1),
    ):
        yield case(name, LINE, [0, 0], [1, 0], evidence, 0.5, 0.6, true, x=[1], rows=[[row]])
    posterior = {"mean": [0, 0], "std": [1, 0], "low": [-9, 0], "high": [9, 0]}
    problem = Problem(LINE, (posterior,), [1], family="truncated-normal")
    yield Case("a truncated atom", problem, touching, (0, 0.5), [(0.6, 1)])
    rows = {"rows": [[1], [-1]], "offsets": [0, -5]}
    yield case("two rows, one negative", LINE, [0, 0], [1, 0], boxes(right), 0, 0.4, x=[1], **rows)
    for row, evidence in product(permutations((1e200, -2e200)), (boxes(), smooth())):
        yield case("overflow", ((1, 2),), [0, 0, 1e200, 1e200], 0, evidence, 0, 1, rows=[row])
    problem = Problem(
        LINE, ({"loc": [0, 0], "scale": [1, 0], "df": [1e99, 1]},), [1], family="student-t"
    )
    yield Case("a mass of NaN", problem, boxes(right), (0, 0.5), [(0.6, 1)])
    yield Case(
        "a negative σ", Problem(LINE, fields([0, 1], [-1, 0])), boxes(([0, 1], 0)), None, [(1, 1)]
    )
    yield case("a LeakyReLU of slope 2", ((1, 1), 2.0, (1, 1)), [0, 1, -1, 1.5], 0, boxes(), 0, 1)
    c, s, low = 2.0**-40 + 2.0**-55, 2.0**-38 + 2.0**-53, 2.0**-40 + 2.0**-55 + 2.0**-80
    parents = [
        ([(end + start) / 2, -c], (end - start) / 4)
        for start, end in ((low, 2.0**-37), (2.0**-39, 4.0))
    ]
    cells = [
        {"parent": i, "cuts": [[0, *ends]]}
        for i, ends in enumerate(pairwise((low.hex(), s.hex(), "0x4p0")))
    ]
    problem, p = (
        Problem(LINE, ({"low": [0, -c], "high": [4, -c]},), [1], family="uniform"),
        1 - Fraction(c) / 4,
    )
    false, evidence = 1 - 2.0**-42, boxes(*parents, cells=cells, separators=[[1, 0, 0]])
    yield Case("w > c to the last bit", problem, evidence, (p, p), [(false, 1)], (false - U, 1))


def form_cases() -> Iterator[Case]:
    """Points and rows that there are not, and certificates that say something else than what holds,
    or nothing."""
    far, safe = Problem(LINE, fields([-1, 50]), [1], 0.1), Problem(LINE, fields([0, 1]))
    for problem in (far, replace(far, eps=200, clip=(0.0, 2.0))):
        yield Case("a point far away", problem, smooth(point=[100]), (1, 1), [(0, 0.5)])
    yield Case("no such row", safe, smooth(point=[0], row=-1), (1, 1), [(0, 0.5)])
    problem = Problem(RELU, fields([0, 1, -1, 1.5], [0, 0.1, 0, 0]))
    yield Case("a true claim", problem, smooth(**STEEP), (0.9, 1), [], (0.9, 1))
    yield Case("no probabilities", problem, smooth(**STEEP), None, [(-1, 2)])
    yield Case(
        "a slope above 1", problem, smooth(**STEEP | {"lower_slopes1": [1.5]}), None, [(0.9, 1)]
    )
    yield Case("a negative radius", replace(far, x=[9.0], eps=-1.0), boxes(), None, [(1, 1)])
    yield Case("no points", replace(far, clip=(5.0, 4.0)), boxes(), None, [(1, 1)])
    for name in problem.digests:
        changes = {"digests": problem.digests | {name: "0" * 64}}
        yield Case(f"another {name}", problem, smooth(**STEEP), None, [(0.9, 1)], changes=changes)
    box = Problem(LINE, fields([0, 1]), eps=1.0, norm="box")
    yield Case("a box", box, smooth(), (1, 1), [], (0.9, 1))
    rival = Problem(((1, 3),), fields([0, 0, 0, 1, 0, 2]), rows=[[1, -1, 0]], eps=0.0)
    yield Case("one rival", rival, smooth(), (1, 1), [], (0.9, 1))
    problem, p, half = Problem(LINE, fields([0, 0.5], [0, 1])), cdf(0.5), "0x0.1p+3"
    yield Case(
        "0x0.7p+1 is 7/8", problem, smooth(), (p, p), [("0x0.7p+1", "0x1p0")], (half, "0x1p0")
    )


def predictive_cases() -> Iterator[Case]:
    """softmax of logits (3, 0) and (2, 1, 1): rivals that repeat or are left out would change
    it."""
    two, three = ((1, 2),), ((1, 3),)
    share, lead = math.exp(3) / (math.exp(3) + 1), math.tanh(1.5)
    near = share - 1e-3, share + 1e-3
    problem = Problem(two, fields([0, 0, 3, 0], [0, 0, 0.01, 0.01]), rows=[[1, -1]], offsets=[0])
    yield Case(
        "a softmax",
        problem,
        averaged(),
        near,
        [(0, 0.9, -1), (0.96, 1, -1)],
        (0.94, 0.96, lead - 0.01),
    )
    yield Case("a lead", problem, averaged(), None, [(0, 1, lead + 0.01)])
    many = replace(problem, rows=[[1, -1]] * 1000, offsets=[0] * 1000)
    yield Case("a rival a thousand times", many, averaged(), (share, share), [(0, 0.03, -1)])
    listed = replace(many, family="empirical", components=({"samples": [[0, 0, 3, 0]]},))
    yield Case(
        "the same of networks",
        listed,
        ("softmax", {"networks": 1}, {}),
        (share, share),
        [(0, 0.03, -1)],
    )
    share = math.exp(2) / (math.exp(2) + 2 * math.e)
    problem = Problem(three, fields([0, 0, 0, 2, 1, 1]), rows=[[1, -1, 0]], offsets=[0])
    yield Case("a rival left out", problem, averaged(), (share, share), [(0.7, 1, -1)])
    doubled = replace(problem, rows=[[2, -1, 0], [2, 0, -1]], offsets=[0, 0])
    yield Case("rows that are no duel", doubled, averaged(), (share, share), [(0.9, 1, -1)])
    _, evidence, _ = averaged()
    mean = Problem(LINE, fields([0, 0.5], [0, 0.01]))
    yield Case(
        "a mean", mean, ("mean", evidence, {}), (0.5, 0.5), [(0.6, 1), (0, 0.4)], (0.25, 0.75)
    )
    listed = Problem(
        two, ({"samples": [[0, 0, 3, 0], [0, 0, 0, 3]]},), rows=[[1, -1]], family="empirical"
    )
    yield Case(
        "two networks",
        listed,
        ("softmax", {"networks": 2}, {}),
        (0.5, 0.5),
        [(0.9, 1, -1)],
        (0.49, 0.51, -1),
    )


def network_cases() -> Iterator[Case]:
    """Four networks y = b: two are safe."""
    problem = Problem(LINE, ({"samples": [[0, 1], [0, 2], [0, -1], [0, -2]]},), family="empirical")

    def evidence(verified: Any, refuted: Any, point: float = 0.0) -> Evidence:
        return (
            "networks",
            {"networks": 4, "verified": verified, "refuted": refuted},
            {"points": [[point]]},
        )

    good = evidence([0, 1], [[2, 0, 0], [3, 0, 0]])
    yield Case("a list", problem, good, (0.5, 0.5), [(0.75, 1), (0, 0.25)], (0.5, 0.5))
    yield Case("an unsafe one", problem, evidence([0, 1, 2], []), (0.5, 0.5), [(0.75, 1)])
    yield Case(
        "a safe one",
        problem,
        evidence([], [[1, 0, 0], [2, 0, 0], [3, 0, 0]]),
        (0.5, 0.5),
        [(0, 0.25)],
    )
    yield Case("one twice", problem, evidence([0, 1, 1], []), (0.5, 0.5), [(0.75, 1)])
    steep = replace(problem, components=({"samples": [[1, 1]] * 4},))
    yield Case("at a point elsewhere", steep, evidence([], [[0, 0, 0]], -9.0), (1, 1), [(0, 0.75)])


def width_cases() -> Iterator[Case]:
    """y = -100 relu(x) + 1 about x = 1: surely negative, unless slopes of no width make the weights
    vanish."""
    for layers, shape in ((("ReLU", (1, 1)), (0,)), ((0.25, (1, 1)), (0,))):
        flat = np.zeros(shape)
        evidence = smooth(lower_slopes0=flat, upper_slopes0=flat)
        yield case("slopes of nothing", layers, [-100, 1], 0.01, evidence, 0, 0.999, x=[1], eps=0.1)
        kind, found, tensors = smooth(lower_slopes0=[1.0], upper_slopes0=[1.0])
        found["components"][0]["lower"] |= {"trees": [{"row": 0, "scale": None}]}
        none = {
            "c0.open": np.zeros(0),
            "c0.tree0.paths": np.zeros((1, 0)),
            "c0.tree0.slopes": np.zeros((1, 0)),
        }
        tensors |= none | {"c0.tree0.multipliers": np.zeros((1, 0))}
        yield case(
            "a tree about nothing",
            layers,
            [-100, 1],
            0.01,
            (kind, found, tensors),
            0,
            0.999,
            x=[1],
            eps=0.1,
        )


@cache
def cases() -> list[Case]:
    groups = (
        line_cases,
        hidden_cases,
        shared_cases,
        tree_cases,
        mixture_cases,
        box_cases,
        form_cases,
    )
    groups += (predictive_cases, network_cases, width_cases)
    return [one for group in groups for one in group()]


# ---- the suite -----------------------------------------------------------------------------------


def exact(values: Any) -> list[Fraction]:
    return [Fraction(value) for value in np.asarray(values, float).ravel().tolist()]


def inner(a: Any, b: Any) -> Fraction:
    return sum((p * q for p, q in zip(exact(a), exact(b), strict=True)), Fraction(0))


def random_floats(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(-2, 2, shape)


def sums(checker: Checker) -> None:
    """Dot products in the order that loses most, at the bottom of the range, and where everything
    cancels."""
    ar, tiny, lost = checker.arithmetic, np.full((2, 100), -(2.0**-538)), np.full((2, 4096), -U)
    lost[:, 0] = -1
    pairs = [(np.asfortranarray(lost), np.ones(4096)), (tiny, np.full(100, 2.0**-537))]
    for a, b in pairs + [(np.array([trap, trap]), np.ones(3)) for trap in TRAPS]:
        true, size = inner(a[0], b), (np.abs(a[:1]), b[:, None])
        never_above(ar.dot_down(a, b)[0], true, "dot_down")
        never_above(-true, ar.dot_up(-a, b)[0], "dot_up")
        layer = checker.layers.Dense(0, len(b), True, 0)
        error = checker.layers.pull_error(layer, size[1].T, size[0])
        never_above(
            abs(Fraction(layer.pull(b[None], a[:1])[0, 0]) - true), error[0, 0], "pull_error"
        )
        never_above(
            inner(size[0], b), checker.layers.pull_up(layer, size[1].T, size[0])[0, 0], "pull_up"
        )
    for k in range(1, 20):
        never_above(Fraction(k), Fraction(float(ar.sqrt_up(np.array(float(k))))) ** 2, "sqrt_up")
        for ball, low, high in (
            (arb(k) / 3, Fraction(k, 3), Fraction(k, 3)),
            (arb(k, 0.25), k - 0.25, k + 0.25),
        ):
            never_above(ar.lower_float(ball), low, "lower_float")
            never_above(high, ar.upper_float(ball), "upper_float")


def regions(checker: Checker) -> None:
    """Ends are rounded outward, minima below those of the box, and points are inside or not."""
    with suppress(checker.CannotCheck):
        never(checker.grammar.exact("0x1p-1075", "") == 0, "a number that is not 0")
    rows, x = random_floats(1, 9, 4), random_floats(2, 4)
    for eps in (0.1, 0.3, 2.5):
        stored = checker.grammar.Tensors({"x": x})
        region = checker.region.read_region(
            {"norm": "linf", "clip": None, "eps": eps.hex()}, stored, (4,)
        )
        for low, high, c in zip(*map(exact, (region.lower, region.upper, x)), strict=True):
            never_above(max(low - c + Fraction(eps), c + Fraction(eps) - high), 0, "ends")
        for row, bound in zip(rows, region.minimum(rows), strict=True):
            never_above(bound, inner(row, x) - Fraction(eps) * sum(map(abs, exact(row))), "minimum")
    for norm, point in {
        "linf": (1.25, 2.0),
        "l2": (1.5, 1.5),
        "l1": (1.5, 1.25),
        "box": (0.5, 9.0),
    }.items():
        region = checker.region.Region(norm, np.ones(2), 0.5, np.zeros(2), np.full(2, 3.0))
        never(region.contains(np.array(point)), f"a point outside, {norm}")
        touching = checker.region.Region(
            norm, np.ones(2), 0.5, np.array([1.5, -9.0]), np.full(2, 9.0)
        )
        never(touching.is_empty, f"a part that meets the region, {norm}")


def activation_lines(checker: Checker) -> None:
    """Neither lines nor ends cross what they bound; 60 digits are exact for what is bent."""
    curves: dict[tuple[str, float | None], Callable[[mpf], mpf]] = {
        ("ReLU", 0.0): lambda z: max(z, mpf(0)),
        ("LeakyReLU", 0.3): lambda z: max(z, mpf(0.3) * z),
        ("Tanh", None): mpmath.tanh,
        ("Sigmoid", None): lambda z: 1 / (1 + mpmath.exp(-z)),
    }
    ends = [*np.sort(random_floats(3, 30, 2)).tolist(), (-1e70, 0.0), (0.0, 1e70)]
    slopes = [*(np.abs(random_floats(4, 30, 2)) / 2).tolist(), (1e-60, 1e-60), (1e-60, 1e-60)]
    for (kind, f), ((l, u), pair) in product(curves.items(), list(zip(ends, slopes, strict=True))):
        activation, arrays = (
            checker.layers.Activation(*kind, 1, 1),
            np.array([l, u, *pair])[:, None],
        )
        found, image = (
            checker.activations.lines(activation, *arrays),
            checker.activations.image(activation, *arrays[:2]),
        )
        numbers = (found.lower_slope, found.lower, found.upper_slope, found.upper, *image)
        a, b, c, d, low, high = (mpf(float(value[0])) for value in numbers)
        for z in map(
            mpf, {l, u, min(max(l, 0.0), u), *np.linspace(max(l, -50), min(u, 50), 6).tolist()}
        ):
            never_above(max(a * z + b, low), f(z), f"lower line or end of {kind}")
            never_above(f(z), min(c * z + d, high), f"upper line or end of {kind}")


def steps(checker: Checker) -> None:
    """One step back: rows·z is at least new rows·h + constant at every corner, with the worst
    weights there."""
    li = checker.linear
    for seed, shift in product(range(4), (0.0, 4.0, -4.0)):
        h = np.sort(random_floats(seed, 2, 2) + shift, 0) * (
            1 if shift else np.array([[0.001], [1]])
        )
        rows, slopes = random_floats(seed + 90, 2, 3), np.abs(random_floats(seed + 200, 2, 2)) / 2
        _step_holds(li, h, np.sort(random_floats(seed + 50, 2, 3, 3), 0), rows)
        middles = (
            *li._chord_of_magnitude(li.Interval(*h)),
            *checker.linear.center_radius(li.Interval(*h)),
        )
        for low, high, kappa, delta, center, radius in zip(
            *map(exact, (*h, *middles)), strict=True
        ):
            never_above(max(abs(end) - kappa * end for end in (low, high)), delta, "chord")
            never_above(max(high - center, center - low), radius, "radius")
        lines = checker.activations.Lines(slopes[0], np.zeros(2), slopes[1], np.zeros(2))
        found = li.ActivationStep(lines, li.Interval(*h)).pull(rows[:, :2])
        for (row, new, constant), z in product(
            zip(rows[:, :2], *found, strict=True), product(*h.T.tolist())
        ):
            chosen = [low if a > 0 else high for a, low, high in zip(row, *slopes, strict=True)]
            value = sum(a * s * p for a, s, p in zip(*map(exact, (row, chosen, z)), strict=True))
            never_above(inner(new, z) + Fraction(constant), value, "a step over activations")
    for seed in (357, 370, 3897):  # where γ without spare roundings is too small
        random = np.random.default_rng(seed)
        h, weights = (
            np.sort(random.uniform(0.5, 2, (2, 1)), 0),
            np.sort(random.uniform(-2, 2, (2, 2, 1)), 0),
        )
        weights[:, 1] = 0
        _step_holds(li, h, weights, random.uniform(-2, 2, (1, 1)))


def _step_holds(linear: Any, h: Any, weights: Any, rows: Any) -> None:
    layer = linear.Dense(h.shape[1], rows.shape[1], True, 0)
    found = linear.BoxStep(layer, *weights, linear.Interval(*h)).pull(rows)
    for (row, new, constant), corner in product(
        zip(rows, *found, strict=True), product(*h.T.tolist())
    ):
        terms = [p * a for p, a in product(exact([*corner, 1]), exact(row))]
        worst = sum(min(t * w, t * v) for t, w, v in zip(terms, *map(exact, weights), strict=True))
        never_above(inner(new, corner) + Fraction(constant), worst, "a step over weights")


def walks(checker: Checker) -> None:
    """Bounds of whole networks with point weights, at corners of the region."""
    model = checker.model
    for seed, alpha in product(range(8), (0.0, 0.3)):
        flat, x = random_floats(seed, 17), np.sort(random_floats(seed + 20, 2, 2), 0)
        rows, offsets = random_floats(seed + 40, 3, 2), random_floats(seed + 60, 3)
        kinds = checker.layers
        first, last = kinds.Dense(2, 3, True, 0), kinds.Dense(3, 2, True, 9)
        layers = (first, kinds.Activation("LeakyReLU", alpha, 3, 1), last)
        region, box = (
            checker.region.Region("box", x[0], math.inf, *x),
            checker.mass.WeightBox(flat, flat),
        )
        network = model.Model(checker.network.chain((2,), layers), (), "", "")
        bounds = checker.linear.row_bounds(network, box, region, rows, offsets)
        w = exact(flat)
        for p, q in product(*map(exact, x.T)):
            h = [
                max(z, Fraction(alpha) * z)
                for z in (p * w[o] + q * w[3 + o] + w[6 + o] for o in range(3))
            ]
            y = [sum(h[i] * w[9 + 2 * i + o] for i in range(3)) + w[15 + o] for o in range(2)]
            for (a, b), offset, bound in zip(map(exact, rows), exact(offsets), bounds, strict=True):
                never_above(bound, a * y[0] + b * y[1] + offset, "a walk")


def graphs(checker: Checker) -> None:
    """Layers that read the input both, rows that meet, terms that others read too."""
    layers, network = checker.layers, checker.network
    first, second = layers.Dense(1, 1, False, 0, 0), layers.Dense(1, 1, False, 1, 1)
    both = network.Network((1,), (first, second, layers.Add((1,), 2)), ((0,), (0,), (1, 2)))
    fields = {"mean": np.zeros(2), "std": np.ones(2)}
    shared = {"mean": np.zeros(2), "std": np.zeros(2), "factor": np.ones((2, 1))}
    laws = {
        2**0.5: ("normal", fields),
        2.0: ("low-rank-normal", shared),
    }  # by the σ of y = (w + v) x at x = 1
    proof = checker.proofs.Proof(2.0, {}, {}, {}, {})
    for sigma, law in laws.items():
        model, posterior = checker.model.Model(both, (), "", ""), checker.model.Posterior(*law)
        for low in (-1.0, 0.5):
            region = checker.region.Region("box", np.ones(1), 1.0, np.array([low]), np.ones(1))
            found, _ = checker.proofs.functionals(
                model, posterior, region, np.ones((1, 1)), np.zeros(1), proof
            )
            mean = -sigma * (2 / math.pi) ** 0.5 * (1 if low < 0 else 0.25)
            never_above(float(found[0][0]), mean + 1e-12, "E min (w + v) x")
            never_above(sigma - 1e-12, float(found[1][0]), "L of (w + v) x")
        size = checker.predictive.output_norms(
            model, posterior, checker.region.point_region(np.ones(1))
        )
        never_above(sigma - 1e-12, float(size[0]), "sqrt(E (w + v)²)")
    _images(checker)
    _forks(checker)
    _off(checker)


def _images(checker: Checker) -> None:
    """Of an image a + w·x + v·x, x in [1, 2] and a in [3, 4]: at least 3 - E|..|, with both
    noises."""
    layers, shape = checker.layers, (1, 1, 1)
    convolutions = [layers.Conv(shape, 1, (1, 1), (1, 1), (0, 0), False, k, k) for k in range(2)]
    relu, add = layers.Activation("ReLU", 0.0, 1, 2), layers.Add(shape, 3)
    network = checker.network.Network(
        shape, (*convolutions, relu, add), ((0,), (0,), (0,), (1, 2, 3))
    )
    h = checker.linear.Interval(np.ones(1), np.full(1, 2.0))
    law = checker.model.Posterior("normal", {"mean": np.zeros(2), "std": np.ones(2)})
    steps = [checker.functionals.noisy(layer, law, h, None) for layer in convolutions]
    intervals = {0: h, 3: checker.linear.Interval(np.full(1, 3.0), np.full(1, 4.0))}
    traced = checker.functionals.Trace(network, None, [*steps, None, None], intervals)
    (below, noise), (above, _) = checker.functionals.local(traced, 3)
    each = (2 / math.pi) ** 0.5 / 2  # E of (w - its mean) times half the width of x
    never_above(float(below[0]), 3 - 2 * each + 1e-12, "an image from below")
    never_above(float(above[0]), -4 - 2 * each + 1e-12, "an image from above")
    never_above(8**0.5 - 1e-12, float(noise[0]), "the noise of an image")


def _forks(checker: Checker) -> None:
    """y = a h + b h + c x with h = x: rows a and b meet, and their sum is rounded."""
    layers = checker.layers
    dense = [layers.Dense(1, 1, False, k, k) for k in range(4)]
    network = checker.network.Network(
        (1,), (*dense, layers.Add((1,), 4)), ((0,), (1,), (1,), (0,), (2, 3, 4))
    )
    model = checker.model.Model(network, (), "", "")
    region = checker.region.Region("box", np.ones(1), math.inf, np.full(1, 0.9), np.ones(1))
    for seed in range(60):
        weights = np.array([1.0, *random_floats(seed, 3) / 3])
        box = checker.mass.WeightBox(weights, weights)
        _, a, b, c = exact(weights)
        ends = [(a + b + c) * x for x in exact(region.lower) + exact(region.upper)]
        bound = checker.linear.row_bounds(model, box, region, np.ones((1, 1)), np.zeros(1))
        never_above(float(bound[0]), min(ends), "a walk where rows meet")
        three = checker.linear.Interval(np.full(1, 3.0), np.full(1, 3.0))
        total, paid = checker.linear.merged(weights[None, 1:2], weights[None, 2:3], three)
        never_above(3 * abs(exact(total[0])[0] - a - b), float(paid[0]), "rows that meet")


def _off(checker: Checker) -> None:
    """y = relu(z) + v z + 1, z about -5 and v ~ N(0, 1): fails with probability Q(1/5), although
    the ReLU is off."""
    layers = checker.layers
    first, second = layers.Dense(1, 1, False, 0, 0), layers.Dense(1, 1, False, 1, 2)
    nodes = (first, layers.Activation("ReLU", 0.0, 1, 1), second, layers.Add((1,), 3))
    network = checker.network.Network((1,), nodes, ((0,), (1,), (1,), (2, 3)))
    law = checker.model.Posterior(
        "normal", {"mean": np.array([-5.0, 0.0]), "std": np.array([0.01, 1.0])}
    )
    slopes = {1: np.zeros(1)}
    proof, point = (
        checker.proofs.Proof(6.0, slopes, slopes, {}, {}),
        checker.region.point_region(np.ones(1)),
    )
    model = checker.model.Model(network, (), "", "")
    failure = checker.proofs.failure(model, law, point, np.ones((1, 1)), np.ones(1), proof)
    never_above(0.42, float(failure), "a failure where others read what is off")


@cache
def upper_tail(z: Any) -> mpf:
    """Q(z) with 60 digits."""
    return mpmath.erfc(mpf(z) / mpmath.sqrt(2)) / 2


def tails(checker: Checker) -> None:
    """Half-way between the nodes, and where the table is least exact."""
    worst = np.array([8575.499, 9976.499, 10550.499, 10749.499, 13000.0]) / 1024
    z = np.concatenate([worst, (np.arange(1, 12000, 97) + 0.5) / 1024])
    bounds = checker.tails.normal_tails_up(z), checker.tails.normal_tails_down(z)
    for value, above, below, mean in zip(
        z.tolist(),
        *bounds,
        checker.tails.expected_magnitude(2 * z, np.full(len(z), 2.0)),
        strict=True,
    ):
        q = upper_tail(value)
        never_above(max(q - above, below - q), 0, "tail")
        never_above(2 * (value + 2 * (mpmath.npdf(mpf(value)) - value * q)), mean, "E|N(2z, 4)|")


MARGINS, SLOPES, FAILS = (2.0, 3.0), (1.0, 0.5), 0.125  # of two rows, and what fails besides
MEANINGS = {"label": 0, "rivals": 0, "lead": -1}  # with the least that each can be


@cache
def true_means() -> dict[str, mpf]:
    """∫ v(s) dP(s) from above, by steps of 1/200: rows at least m - sL with probability P(s) = 1 -
    fails - 2 Q(s)."""
    grid = [mpf(k) / 200 for k in range(1601)]
    held = [max(mpf(0), 1 - mpf(FAILS) - 2 * upper_tail(float(s))) for s in grid]
    found = [
        _shares([mpf(m) - s * mpf(slope) for m, slope in zip(MARGINS, SLOPES, strict=True)])
        for s in grid
    ]
    means = {}
    for name, floor in MEANINGS.items():
        values = [shares[name] for shares in found]
        steps = [
            (value - after) * p
            for value, after, p in zip(values, values[1:], held[1:], strict=False)
        ]
        means[name] = floor + sum(steps) + (values[-1] - floor) * held[-1]
    return means


def _shares(margins: list[mpf]) -> dict[str, mpf]:
    label = 1 / (1 + sum(mpmath.exp(-margin) for margin in margins))
    rivals = 1 - 1 / (1 + sum(map(mpmath.exp, margins)))
    least = min(margins)
    lead = label * (1 - mpmath.exp(-least)) if least > 0 else mpmath.tanh(least / 2)
    return {"label": label, "rivals": rivals, "lead": lead}


def means(checker: Checker) -> None:
    """Predictive means where the truth is known: levels by quadrature, moments and a mean by
    hand."""
    found = np.array(MARGINS), np.array(SLOPES)
    for name, floor in MEANINGS.items():
        bound = checker.predictive.layered(
            found, arb(FAILS), getattr(checker.predictive, name), floor
        )
        never_above(
            bound, arb(mpmath.nstr(true_means()[name], 40)) + arb(2) ** -30, f"levels of {name}"
        )
    for margins in ([0.5, 2.0], [-1.0, 3.0], [-2.0, -0.25]):
        for name, true in _shares([mpf(m) for m in margins]).items():
            bound = getattr(checker.predictive, name)([*map(arb, margins)])
            never_above(bound, arb(mpmath.nstr(true, 40)) + arb(2) ** -40, name)
    _moments(checker)


def _moments(checker: Checker) -> None:
    """y = -relu(w), w ~ N(0, 1): E y = -1/sqrt(2π) with thresholds so small that the hidden event
    mostly fails."""
    layers = checker.layers
    dense, relu = layers.Dense(1, 1, False, 0), layers.Activation("ReLU", 0.0, 1, 1)
    last = layers.Dense(1, 1, False, 1)
    law = checker.model.Posterior(
        "normal", {"mean": np.array([0.0, -1.0]), "std": np.array([1.0, 0.0])}
    )
    model = checker.model.Model(checker.network.chain((1,), (dense, relu, last)), (), "", "")
    point = checker.region.point_region(np.ones(1))
    for t in (0.25, 0.5, 2.0):
        slopes = {1: np.array([0.5])}
        proof = checker.proofs.Proof(t, {1: np.zeros(1)}, slopes, {}, {})
        bound = checker.predictive.direction_means(
            model, law, point, np.ones((1, 1)), (proof, proof)
        )[0]
        never_above(bound, arb(-1) / (2 * arb.pi()).sqrt(), "a mean")
    norms = checker.predictive.output_norms
    wide = checker.model.Posterior(
        "normal", {"mean": np.array([0.0, 0.0]), "std": np.array([1.0, 3.0])}
    )
    never_above(4.5**0.5, norms(model, wide, point)[0], "E (relu(w) v)²")
    shared = {"mean": np.zeros(2), "std": np.zeros(2), "factor": np.ones((2, 1))}
    never_above(
        1.5**0.5,
        norms(model, checker.model.Posterior("low-rank-normal", shared), point)[0],
        "E ξ⁴ / 2",
    )
    sigmoid = layers.Activation("Sigmoid", None, 1, 1)
    curved = checker.model.Model(checker.network.chain((1,), (dense, sigmoid, last)), (), "", "")
    never_above(0.5, norms(curved, law, point)[0], "E sigmoid²")
    pool = layers.MaxPool((1, 2, 1), (2, 1), (2, 1))
    pooled = checker.model.Model(checker.network.chain((1, 2, 1), (pool, dense)), (), "", "")
    ends = checker.region.point_region(np.array([0.0, 2.0]))
    never_above(2.0, norms(pooled, law, ends)[0], "a maximum")


@cache
def probability(family: str, l: Any, u: Any, *law: Any) -> mpf:
    """P(l <= w <= u) with 60 digits."""
    first, second, *others = map(mpf, law)
    if family == "uniform":
        return max(min(mpf(u), second) - max(mpf(l), first), mpf(0)) / (second - first)
    if family == "truncated-normal":
        low, high = max(mpf(l), others[0]), min(mpf(u), others[1])
        part, whole = (
            probability("normal", *ends, first, second) for ends in ((low, high), others)
        )
        return part / whole if low < high else mpf(0)
    tail: dict[str, Callable[[mpf], mpf]] = {
        "normal": upper_tail,
        "laplace": lambda z: mpmath.exp(-z) / 2,
        "student-t": lambda z: (
            mpmath.betainc(others[0] / 2, 0.5, 0, others[0] / (others[0] + z * z), True) / 2
        ),
    }
    near, far = sorted([(mpf(l) - first) / second, (mpf(u) - first) / second], key=abs)
    a, b = tail[family](abs(near)), tail[family](abs(far))
    return a - b if near * far > 0 else 1 - a - b


def masses(checker: Checker) -> None:
    """Intervals under every law, and many weights at once."""
    ends = (
        (-0.5, 0.75),
        (-1.9, 2.5),
        (1.5, 1.75),
        (-3.5, -1.5),
        (-20.0, 17.0),
        (2.5, 30.0),
        (-20.0, 0.5),
        (0.5, 9.0),
    )
    laws = [
        ("normal", 0.25, 1.5),
        ("normal", 0.25, 0.7),
        ("laplace", 0.25, 0.7),
        ("uniform", -1.0, 2.0),
    ]
    laws += [
        ("student-t", 0.25, 0.7, 1.0),
        ("student-t", 0.25, 1.5, 7.5),
        ("truncated-normal", 0.25, 0.7, -1.0, 2.0),
    ]
    for (family, *law), (l, u) in product(laws, ends):
        _mass_holds(checker, family, [[value] for value in law], [l], [u])
    mean, std = random_floats(8, 100), np.abs(random_floats(9, 100)) + 0.1
    _mass_holds(checker, "normal", [mean, std], mean - (11 + mean / 5) * std, mean + 11 * std)
    drawn = [
        (p + (1 - p) * np.abs(random_floats(i, n)) / 2)
        for i in range(3)
        for n, p in ((501, 0.999), (51, 0.1))
    ]
    floats = [(np.round(p * 2**30) / 2**30).tolist() for p in drawn]
    floats += [
        [2.0**-600] * 2,
        [2.0**-537, 2.0**-536, *[0.75] * 60],
    ]  # the second product sticks at 2η
    for p in floats:
        _mass_holds(checker, "uniform", [[0.0] * len(p), [1.0] * len(p)], [0.0] * len(p), p, p)
    _mass_holds(checker, "uniform", [[0], [ETA]], [0], [0], [0])


def _mass_holds(
    checker: Checker, family: str, law: list[Any], lower: Any, upper: Any, known: Any = ()
) -> None:
    """Of the box and of each weight; `known` are the weights' probabilities where they are
    floats."""
    l, u, *arrays = (np.array(values, float) for values in (lower, upper, *law))
    names, box = checker.model.FIELDS[family], checker.mass.WeightBox(l, u)
    posterior = checker.model.Posterior(family, dict(zip(names, arrays, strict=True)))
    each = zip(*(values.tolist() for values in (l, u, *arrays)), strict=True)
    true = list(map(Fraction, known)) or [probability(family, *values) for values in each]
    (most_failing, least), (least_failing, most) = (
        checker.mass._weights(posterior, box, side) for side in (0, 1)
    )
    for p, *bounds in zip(
        true, *map(np.ndarray.tolist, (least, most, least_failing, most_failing)), strict=True
    ):
        never_above(max(bounds[0] - p, p - bounds[1]), 0, f"probability of a weight, {family}")
        never_above(
            max(bounds[2] - (1 - p), 1 - p - bounds[3]), 0, f"failure of a weight, {family}"
        )
    never_above(checker.mass.mass(posterior, box, 0), math.prod(true), f"mass, {family}")
    never_above(math.prod(true), checker.mass.mass(posterior, box, 1), f"mass from above, {family}")


def unions(checker: Checker) -> None:
    """Alternating sums and sums of cells against the exact area of rectangles."""
    posterior = checker.model.Posterior("uniform", {"low": np.zeros(2), "high": np.full(2, 3.0)})
    apart = [((0.5, 1.5), (1.0, 2.0)), ((2.0, 1.0), (2.5, 1.525)), ((0.975, 0.0), (2.025, 0.5))]
    strips = [((start, 0.1), (end, 2.9)) for start, end in pairwise((0.1, 1.0, 2.1, 2.9))]
    drawn = [
        [(0.1 * a + 0.25, 0.1 * b + 2.75) for a, b in random_floats(seed, 5, 2, 2)]
        for seed in range(15)
    ]
    for rectangles in [apart, strips, *drawn]:
        chosen = [checker.mass.WeightBox(np.array(low), np.array(high)) for low, high in rectangles]
        cuts = [
            sorted({Fraction(float(end[axis])) for ends in rectangles for end in ends})
            for axis in (0, 1)
        ]
        area = Fraction(0)
        for (a, b), (c, d) in product(*(list(pairwise(line)) for line in cuts)):
            inside = any(
                low[0] <= a and b <= high[0] and low[1] <= c and d <= high[1]
                for low, high in rectangles
            )
            area += (b - a) * (d - c) * inside
        true = arb(area.numerator) / area.denominator / 9
        never_above(
            checker.mass.alternating_mass(posterior, chosen, len(chosen)), true, "alternating sum"
        )
        if rectangles is strips:
            separators = {(1, 0): 0, (2, 0): 0, (2, 1): 0}
            never_above(
                checker.mass.cells_mass(posterior, chosen, separators), true, "sum of cells"
            )


NOTHING = {"certificate": None, "lower": 0, "upper": 1, "status": "unverified"}
RIVAL = {"label": 0, "predicted": 0, "target": 1}
# By the case whose true claim they repeat: what a line says besides, and changes that must not be
# accepted.
LINES: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "a true claim": (
        {"lower": 0.9, "upper": 1.0, "status": "certified"},
        (
            {"certificate": None}, {"lower": 0.95}, {"upper": 0.95}, {"eps": 50.0}, {"status": "unverified"},
            {"answer": "unsat", "at_least": "0.95"}, NOTHING | {"status": "certified"}, {"input": 64 * "0"},
            NOTHING | {"answer": "unsat", "at_least": "0.5"},
        ),
    ),
    "a box": ({"lower": 0.9, "upper": 1.0, "status": "certified", "eps": 1.0}, ({"eps": 50.0}, {"eps": 0.5})),
    "one rival": (
        {"lower": 0.9, "upper": 1.0, "status": "certified", **RIVAL}, ({"target": None}, {"target": 2}, {"label": 1}),
    ),
    "a mean": ({"lower": 0.25, "upper": 0.75, "status": "certified"}, ({},)),  # which is no P_safe
    "a softmax": (
        {"lower": 0.94, "upper": 0.96, "gap": math.tanh(1.5) - 0.01, "quantity": "softmax", "status": "decided",
         "label": 0, "predicted": 0},
        ({"quantity": "mean", "gap": None}, {"gap": 0.99}, {"status": "undecided"}),
    ),
}  # fmt: skip


def _lines(checker: Checker, folder: Path, number: int, name: str) -> None:
    model, (said, changes) = checker.read_model(folder / f"{number}.posterior"), LINES[name]
    line: dict[str, Any] = {
        "index": 0,
        "label": None,
        "predicted": None,
        "eps": 0.0,
        "seconds": 0.0,
    } | said
    line |= {"certificate": f"{number}.true"}
    decisions = "quantity" in said
    line |= {} if decisions else {"method": "concentration", "bound_calls": 1, "seed": 0}
    (folder / "results.jsonl").unlink(missing_ok=True)
    (folder / "decisions.jsonl").unlink(missing_ok=True)
    (folder / ("decisions.jsonl" if decisions else "results.jsonl")).touch()
    for change in changes:
        (verdict,) = checker.check_results(folder, [line | change], model)
        never(verdict.status == checker.ACCEPT, f"a line with {change}")
    if decisions:
        nothing = NOTHING | {"status": "undecided", "quantity": "mean", "gap": None}
        (verdict,) = checker.check_results(folder, [line | nothing], model)
        never(verdict.status == checker.ACCEPT, "nothing of a mean")
        return
    for other in ({"index": 1}, NOTHING):
        *_, verdict = checker.check_results(folder, [line, line | other], model)
        never(verdict.status == checker.ACCEPT, f"a second line with {other}")


def run_suite(checker: Checker, folder: Path) -> None:
    """The first wrong outcome raises."""
    with ctx.workprec(128), np.errstate(all="ignore"), mpmath.workdps(60):
        for number, case in enumerate(cases()):
            for name in case.claims.keys() - {"true"}:
                never(accepted(checker, folder, number, name), f"{case.name}: {case.claims[name]}")
            if case.name in LINES:  # of results, that repeat it or do not
                _lines(checker, folder, number, case.name)
        for check in (
            sums,
            regions,
            activation_lines,
            steps,
            walks,
            graphs,
            unions,
            tails,
            masses,
            means,
        ):
            check(checker)


# ---- tests ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All certificates, as files."""
    where = tmp_path_factory.mktemp("certificates")
    for number, case in enumerate(cases()):
        case.write(where, number)
    return where


def test_the_suite_knows_the_truth() -> None:
    """Claims that must be refused are false or forbidden, and the others are true."""
    for case in cases():
        least, most = case.truth or (math.inf, -math.inf)
        for name, claim in case.claims.items():
            lower, upper, *_ = (
                float.fromhex(end) if isinstance(end, str) else end for end in claim
            )
            assert (
                lower <= least <= most <= upper if name == "true" else lower > most or upper < least
            ), case.name


def test_the_checker_passes(folder: Path) -> None:
    """And it accepts what is true, on evidence on which it refuses what is false."""
    with imported(SOURCES) as checker:
        run_suite(checker, folder)
        for number, case in enumerate(cases()):
            assert case.true is None or accepted(checker, folder, number, "true"), case.name


@pytest.mark.parametrize(
    ("module", "original", "mutated"), [m[1:] for m in mutants()], ids=[m[0] for m in mutants()]
)
def test_the_mutant_is_killed(module: str, original: str, mutated: str, folder: Path) -> None:
    assert SOURCES[module].count(original) == 1
    with (
        imported(SOURCES | {module: SOURCES[module].replace(original, mutated)}) as checker,
        pytest.raises(Wrong),
    ):
        run_suite(checker, folder)


# Defects that were once there and that more than one line now keeps out: by name the module, its
# text and what it was.
DEFECTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "widths that start at 0": (
        (
            "proofs",
            "layer.position: layer.width for",
            "layer.position: layer.width * (layer.position > 0) for",
        ),
        ("evidence.proof", ".all() and count > 0", ".all()"),
    ),
    "mixtures by their first component": (
        ("model", "if family not in GAUSSIAN:", "if False:"),
        ("model", "for component in self.components:", "for component in self.components[:1]:"),
        ("model", "        if others:", "        if False:"),
        (
            "evidence.predictive",
            "for component in model.components)",
            "for component in model.components[:1])",
        ),
    ),
    "status without a certificate": (
        ("folder", 'and self.status not in ("certified", DECIDED)', ""),
        ("folder", 'status if line.status != "error" else "error")', "line.status)"),
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_the_defect_is_caught(name: str, folder: Path) -> None:
    texts = dict(SOURCES)
    for module, original, mutated in DEFECTS[name]:
        assert texts[module].count(original) == 1, original
        texts[module] = texts[module].replace(original, mutated)
    with imported(texts) as checker, pytest.raises(Wrong):
        run_suite(checker, folder)


def refuses(case: Case, folder: Path) -> None:
    case.write(folder, 0)
    never(accepted(bnncert_check, folder, 0, "false0"), case.name)


def test_flushed_subnormals_are_noticed(tmp_path: Path) -> None:
    """Their sum is what makes this output negative."""
    tiny = Problem(
        ((1000, 1),), fields([-(2.0**-512)] * 1000 + [3 * 2.0**-1022]), [2.0**-511] * 1000
    )
    torch.set_flush_denormal(True)
    try:
        refuses(Case("subnormals", tiny, boxes(), (0, 0), [(1, 1)]), tmp_path)
    finally:
        torch.set_flush_denormal(False)


def test_a_weight_truncated_to_a_point_is_an_atom(tmp_path: Path) -> None:
    """y = 10 w + b is positive iff w > 0, since b = 0; two cells meet there."""
    posterior = ({"mean": [0, 0], "std": [1, 1], "low": [-9, 0], "high": [9, 0]},)
    cells = [{"parent": i, "cuts": []} for i in range(2)]
    evidence = boxes(
        ([1.85, -1.45], 1.45), ([1.85, 1.45], 1.45), cells=cells, separators=[[1, 0, 1]]
    )
    problem = Problem(LINE, posterior, [10], family="truncated-normal")
    refuses(Case("an atom counted twice", problem, evidence, (0.5, 0.5), [(0.6, 1)]), tmp_path)
