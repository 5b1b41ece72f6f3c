"""From functionals to probabilities.

    P_safe >= 1 - (sides of hidden neurons that may fail)·Q(t) - Σ_rows q_r,

    q_r = Q(m_r / L_r)  if m_r >= 0 < L_r < ∞,
          1[m_r <= 0]   if L_r = 0,
          1             otherwise,

with m (E F already taken off) and L of the rows. Q of a negative number would be no bound: hence
the last case. But where the noise is known to be Gaussian, with a standard deviation of at least s,
it is Q(m_r / s) there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert.concentration.functional import Functional
from bnncert.numerics.rounding import UNIT
from bnncert.numerics.tails import normal_tail_down, normal_tail_up


def probability(charge: Tensor, rows: Functional) -> Tensor:
    """1 - charge - Σ_r q_r, rounded down into [0, 1]."""
    total = charge + row_failures(rows).sum(1)
    certain = total == 0  # nothing random decides: no rounding to allow for
    return torch.where(certain, 1.0, (1 - total - 16 * UNIT * (1 + total)).clamp(0, 1))


def row_failures(rows: Functional, least: Tensor | None = None) -> Tensor:
    """q_r [B, R] of the theorem, rounded up; least: standard deviations s of noise that is
    Gaussian, 0 where that is not known.

    Comparisons are written so that NaN counts as failure.
    """
    noisy = normal_tail_up(rows.value / rows.lipschitz)
    below = torch.ones_like(noisy)
    if least is not None:
        survives = normal_tail_down(-rows.value / least)
        below = torch.where(least > 0, 1 - survives * (1 - 4 * UNIT), 1.0)
    kept = torch.where(rows.value >= 0, noisy, below)
    known = (rows.lipschitz > 0) & rows.lipschitz.isfinite()
    certified = torch.where(known, kept, 1.0)
    deterministic = (rows.lipschitz == 0) & (rows.value > 0)
    return torch.where(deterministic, 0.0, certified.nan_to_num(1.0))


def score(rows: Functional) -> Tensor:
    """m / L where the row can be certified at all, m itself (negative) elsewhere."""
    return torch.where(rows.value > 0, rows.value / rows.lipschitz, rows.value)
