"""Gradient ascent on functionals: better slopes (α-CROWN) and multipliers (β-CROWN).

The best of all iterates is kept.

Adam climbs m - τL with τ = clip(m / L, 0.5, 6) held fixed, unless a τ is asked for: maximising
m / L itself would reward a large L while m < 0. Xu et al., Fast and Complete (ICLR 2021); Wang et
al., Beta-CROWN (NeurIPS 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.concentration.functional import Functional
from bnncert.concentration.tails import score

DECAY = 0.95  # of the rates, after every step
LEAST, MOST = 0.5, 6.0  # range of τ
FORGET, FORGET_SQUARES, TINY = 0.9, 0.999, 1e-8  # β₁, β₂ and ε of Adam (Kingma & Ba, ICLR 2015)


@dataclass(frozen=True, eq=False)
class Climbing:
    """A tensor to be improved, its rate, and what brings it back into its range."""

    value: Tensor
    rate: float
    project: Callable[[Tensor], Tensor]


def climb(
    found: Callable[[], Functional],
    climbing: Sequence[Climbing],
    iterates: int,
    observe: Callable[[int], None] | None = None,
    tau: Tensor | None = None,
) -> tuple[Functional, list[Tensor]]:
    """The best functional per row over so many iterates, and the tensors that gave it.

    found: the functional of the tensors as they are; they are changed in place. observe: called
    with the number of every iterate, after its functional was found. tau: where m - τL counts, and
    not how far m is above 0 in parts of L.
    """
    if not climbing:
        return found(), []
    moments = [_Moments(*(torch.zeros_like(part.value) for _ in range(2))) for part in climbing]
    slopes: Sequence[Tensor | None] = ()
    best: Functional | None = None
    kept = [part.value.clone() for part in climbing]
    for iterate in range(iterates):
        for part, own, slope in zip(climbing, moments, slopes, strict=False):
            if slope is not None:
                _step(part, own, slope, iterate)
            part.value.copy_(part.project(part.value))
        now, slopes = _with_gradient(found, climbing, last=iterate + 1 == iterates, tau=tau)
        best = _nothing(now) if best is None else best
        better = _worth(now, tau) > _worth(best, tau)
        best = _where(better, now, best)
        for k, part in enumerate(climbing):
            wide = better if better.dim() == part.value.dim() else better.unsqueeze(-1)
            kept[k] = torch.where(wide, part.value, kept[k])
        if observe is not None:
            observe(iterate)
    if best is None:
        raise ValueError("there must be an iterate")
    return best, kept


@dataclass(frozen=True, eq=False)
class _Moments:
    """Running means of the gradient and of its square, changed in place."""

    first: Tensor
    second: Tensor


def _step(part: Climbing, moments: _Moments, slope: Tensor, count: int) -> None:
    """Adam's step number `count` down the slope, written out: torch.optim takes seconds to import
    what it compiles with, longer than most searches."""
    moments.first.lerp_(slope, 1 - FORGET)
    moments.second.mul_(FORGET_SQUARES).addcmul_(slope, slope, value=1 - FORGET_SQUARES)
    rate = part.rate * DECAY ** (count - 1) / (1 - FORGET**count)
    width = moments.second.sqrt().div_(math.sqrt(1 - FORGET_SQUARES**count)).add_(TINY)
    part.value.addcdiv_(moments.first, width, value=-rate)


def _with_gradient(
    found: Callable[[], Functional], climbing: Sequence[Climbing], last: bool, tau: Tensor | None
) -> tuple[Functional, Sequence[Tensor | None]]:
    """The functional of the tensors as they are, with slopes if there is a step to come; None of
    what does not matter."""
    if last:
        return found(), ()
    with torch.enable_grad():
        for part in climbing:
            part.value.requires_grad_()
        now = found()
        if tau is None:
            tau = (now.value / now.lipschitz).detach().nan_to_num(LEAST).clamp(LEAST, MOST)
        loss = (tau * now.lipschitz - now.value).sum()
        slopes = torch.autograd.grad(loss, [part.value for part in climbing], allow_unused=True)
    for part in climbing:
        part.value.requires_grad_(False)
    return Functional(now.value.detach(), now.lipschitz.detach()), slopes


def _worth(rows: Functional, tau: Tensor | None) -> Tensor:
    return score(rows) if tau is None else rows.value - tau * rows.lipschitz


def _nothing(like: Functional) -> Functional:
    return Functional(torch.full_like(like.value, -torch.inf), torch.ones_like(like.lipschitz))


def _where(better: Tensor, new: Functional, old: Functional) -> Functional:
    value = torch.where(better, new.value, old.value)
    return Functional(value, torch.where(better, new.lipschitz, old.lipschitz))
