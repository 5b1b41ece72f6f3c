"""Both sides of a mean from one trace: rows and their negatives on the same hidden intervals.

Thresholds are tried from the largest down as long as narrower intervals may give one side more than
their charge takes. Then the rows that promise a noticeable gain climb, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.concentration.functional import Functional, Trace
from bnncert.concentration.proof import bytes_each, merged_slopes, proofs_of
from bnncert.concentration.slopes import Chosen, evaluate, settle
from bnncert.concentration.trace import Prefix, joined_traces, trace
from bnncert.evidence.concentration import Proof
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification
from bnncert.numerics.batching import in_batches
from bnncert.numerics.tails import normal_tail
from bnncert.posteriors.gaussian import Gaussian

# From the charge, the rows' functionals and the inputs' numbers: lower bounds [B, q], of which the
# first decides.
Score: TypeAlias = Callable[[Tensor, Functional, Tensor], Tensor]
HOPE = 2.0  # times what a step between thresholds gave, that the next one is trusted with
MOST = 0.1  # by which slopes raise a margin, if that is worth trying: nearly always less
Proved: TypeAlias = tuple[list[Proof], Tensor]  # of every input the best, and its bounds [B, q]


@dataclass(frozen=True, eq=False)
class Aim:
    """Rows, and how bounds follow from their functionals."""

    spec: Specification
    score: Score

    def __getitem__(self, index: Tensor | slice) -> Aim:
        return Aim(self.spec[index], self.score)


@dataclass(frozen=True, eq=False)
class Asked:
    """What both sides are proved with.

    They bound a number and `total` minus it from below; of no row a gain of `noticed` or less is
    looked for.
    """

    posterior: Gaussian
    thresholds: tuple[float, ...]
    effort: int
    known: Prefix
    total: float
    noticed: float


def prove_both(problem: Problem, aims: tuple[Aim, Aim], asked: Asked) -> list[Proved]:
    """The best proofs of each side, for every input."""
    names = torch.arange(len(problem), device=problem.specification.rows.device)
    parts = in_batches(
        lambda part: _prove(
            problem[part],
            [aim[part] for aim in aims],
            replace(asked, known=asked.known[part]),
            names[part],
        ),
        len(problem),
        bytes_each(problem, asked.posterior),
        names.device,
    )
    return [
        (list(chain.from_iterable(proofs for proofs, _ in own)), torch.cat([v for _, v in own]))
        for own in zip(*parts, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Walked:
    """A threshold, and the trace of the inputs, in their order, that were walked with it."""

    threshold: float
    inputs: Tensor
    traced: Trace

    def of(self, inputs: Tensor) -> Trace:
        return self.traced[torch.searchsorted(self.inputs, inputs)]


@dataclass(frozen=True, eq=False)
class _Best:
    """Of one side: each input's place among what was walked [B], the rows there [B, R], and its
    bounds [B, q]."""

    place: Tensor
    rows: Functional
    values: Tensor

    def better(self, inputs: Tensor, place: int, rows: Functional, values: Tensor) -> _Best:
        """With what was found of some of the inputs, where it is better."""
        gained = values[:, 0] > self.values[inputs, 0]
        chosen = inputs[gained]
        return _Best(
            self.place.index_fill(0, chosen, place),
            self.rows.put(chosen, rows[gained]),
            self.values.index_copy(0, chosen, values[gained]),
        )


def _prove(problem: Problem, aims: Sequence[Aim], asked: Asked, names: Tensor) -> list[Proved]:
    walked, best = _thresholds(problem, aims, asked, names)
    is_open = _is_open(best, asked).repeat(len(aims))
    # From here on all sides of all inputs, one side after the other, are one batch.
    inputs = torch.arange(len(problem), device=names.device).repeat(len(aims))
    place = torch.cat([own.place for own in best])
    order = place.argsort(stable=True)
    traced = joined_traces(
        [walked[k].of(inputs[order][place[order] == k]) for k in sorted(set(place.tolist()))],
        asked.known.parts,
        problem.specification.region[inputs[order]],
    )[order.argsort()]
    spec = Specification(
        traced.region,
        torch.cat([aim.spec.rows for aim in aims]),
        torch.cat([aim.spec.offsets for aim in aims]),
    )
    rows = _stacked([own.rows for own in best])
    values = [own.values for own in best]
    thresholds = [walked[k].threshold for k in place.tolist()]
    proofs = proofs_of(traced, _firsts(values).tolist(), thresholds)

    if asked.effort:
        chosen = _chosen(aims, traced.charge, rows, names, is_open, asked.noticed)
        slopes, better = settle(traced, spec, chosen, asked.noticed)
        places = chosen.input, chosen.row
        rows = Functional(
            rows.value.index_put(places, better.value),
            rows.lipschitz.index_put(places, better.lipschitz),
        )
        found = _scores(aims, traced.charge, rows, names)
        gained = _firsts(found) > _firsts(values)
        bounds = _firsts(found).tolist()
        for i in gained.nonzero().squeeze(1).tolist():
            own = (chosen.input == i).nonzero().squeeze(1)
            lines = merged_slopes(proofs[i], slopes, chosen.row[own], own, spec.rows.shape[1])
            proofs[i] = replace(proofs[i], bound=bounds[i], row_slopes=lines)
        values = [
            torch.where(own.unsqueeze(1), after, before)
            for own, after, before in zip(gained.chunk(len(aims)), found, values, strict=True)
        ]
    size = len(problem)
    return [(proofs[k * size : (k + 1) * size], own) for k, own in enumerate(values)]


def _stacked(found: Sequence[Functional]) -> Functional:
    """Of one side after the other."""
    return Functional(
        torch.cat([own.value for own in found]), torch.cat([own.lipschitz for own in found])
    )


def _firsts(values: Sequence[Tensor]) -> Tensor:
    """What decides."""
    return torch.cat([own[:, 0] for own in values])


def _scores(aims: Sequence[Aim], charge: Tensor, rows: Functional, names: Tensor) -> list[Tensor]:
    """The bounds of each side."""
    parts = (part.chunk(len(aims)) for part in (charge, rows.value, rows.lipschitz))
    return [
        aim.score(own, Functional(value, lipschitz), names)
        for aim, own, value, lipschitz in zip(aims, *parts, strict=True)
    ]


def _chosen(
    aims: Sequence[Aim],
    charge: Tensor,
    rows: Functional,
    names: Tensor,
    is_open: Tensor,
    noticed: float,
) -> Chosen:
    """Rows that matter, weighed by the gradient of the bounds in m and L."""
    value, lipschitz = (part.detach().requires_grad_() for part in (rows.value, rows.lipschitz))
    with torch.enable_grad():
        found = _scores(aims, charge, Functional(value, lipschitz), names)
        total = torch.stack([own.sum() for own in found]).sum()
    weight, loss = torch.autograd.grad(total, (value, lipschitz), materialize_grads=True)
    tau = (-loss / weight).nan_to_num(0.0, 0.0, 0.0).clamp_min(0.0)
    index, row = ((MOST * weight > noticed) & is_open.unsqueeze(1)).nonzero().unbind(1)
    return Chosen(index, row, weight[index, row], tau[index, row])


def _thresholds(
    problem: Problem, aims: Sequence[Aim], asked: Asked, names: Tensor
) -> tuple[list[_Walked], list[_Best]]:
    """What was walked, and what is best of it for every side: intervals become narrower from one
    threshold to the next, and their charge grows."""
    spec = problem.specification
    going = torch.arange(len(problem), device=names.device)
    walked: list[_Walked] = []
    best: list[_Best] = []
    before: list[Functional] = []
    for place, t in enumerate(asked.thresholds):
        region = spec.region[going]
        traced = trace(problem.network, asked.posterior, region, t, asked.known[going])
        walked.append(_Walked(t, going, traced))
        rows = [evaluate(traced, aim.spec[going], {}) for aim in aims]
        values = [
            aim.score(traced.charge, own, names[going]) for aim, own in zip(aims, rows, strict=True)
        ]
        found = list(zip(rows, values, strict=True))
        if place == 0:
            best = [_Best(torch.zeros_like(going), *own) for own in found]
        else:
            best = [own.better(going, place, *now) for own, now in zip(best, found, strict=True)]
        staying = _is_open(best, asked)[going]
        after = asked.thresholds[place + 1 : place + 2]
        if before and after:
            charges = traced.charge, traced.charge * _growth(t, *after)
            staying &= _is_hopeful(aims, charges, before, rows, names[going])
        going = going[staying]
        if len(going) == 0:
            break
        before = [own[staying] for own in rows]
    return walked, best


def _growth(t: float, after: float) -> float:
    """Of the charge, from one threshold to the next."""
    now, then = normal_tail(torch.tensor([t, after], dtype=torch.float64)).tolist()
    return float(then / now)


def _is_hopeful(
    aims: Sequence[Aim],
    charges: tuple[Tensor, Tensor],
    before: Sequence[Functional],
    rows: Sequence[Functional],
    names: Tensor,
) -> Tensor:
    """Whether the next threshold may give more to a side than its charge takes [B]: by what
    narrower intervals gave to the rows in this step, at one charge."""
    now, then = charges
    found = []
    for aim, old, new in zip(aims, before, rows, strict=True):
        narrower, wider, charged = (
            aim.score(charge, own, names)[:, 0]
            for charge, own in ((now, new), (now, old), (then, new))
        )
        found.append(HOPE * (narrower - wider) >= narrower - charged)
    return torch.stack(found).any(0)


def _is_open(best: Sequence[_Best], asked: Asked) -> Tensor:
    """Whether the interval between both sides leaves room for a gain [B]."""
    below, above = (own.values[:, 0] for own in best)
    return asked.total - below - above > asked.noticed * best[0].rows.value.shape[1]
