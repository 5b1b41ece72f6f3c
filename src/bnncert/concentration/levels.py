"""Means from functionals, level by level, and second moments where the hidden event fails.

On the hidden event, which fails with probability at most p, row r is at least m_r - T_r everywhere
on X, with P(T_r >= s L_r) <= Q(s) and E T_r = 0, E T_r² <= L_r² (Poincaré).

Softmax. With probability P_s >= 1 - p - R Q(s), softmax_c >= v_s = 1 / (1 + Σ_r exp(s L_r - m_r))
on all of X. Over the levels s_k = k/8 this gives min_x π(x) >= Σ_k (v_k - v_k+1) P_k. The same with
the rows' negatives bounds 1 - softmax_c, and with softmax_c - softmax_j the gap to the nearest
rival.

Mean. Where the event fails, f is bounded by its second moment S² only (Cauchy-Schwarz):

    min_x μ(x)  >=  m - |m| p - (L + S) sqrt(p).
"""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert.concentration.functional import Functional
from bnncert.numerics.rounding import UNIT
from bnncert.numerics.tails import normal_tail_up

LEVELS = 65  # of s
STEP = 1 / 8  # between two of them
SLACK = 2.0**-40  # pays for exp, log and the sums around them


def label_and_gap(charge: Tensor, rows: Functional) -> Tensor:
    """Lower bounds of E softmax_c and of E (softmax_c - softmax_j), j the nearest rival: [B, 2]."""
    margins, held = _at_levels(charge, rows)
    label = _layered(softmax(margins), held, 0.0)
    return torch.stack([label, _layered(lead(margins), held, -1.0)], 1)


def rivals(charge: Tensor, rows: Functional) -> Tensor:
    """A lower bound of E (1 - softmax_c), from the rivals' lead over c: [B, 1]."""
    leads, held = _at_levels(charge, rows)
    return _layered(others(leads), held, 0.0).unsqueeze(1)


def mean(charge: Tensor, rows: Functional, norms: Tensor) -> Tensor:
    """m - |m| p - (L + S) sqrt(p), [B, 1], with S = norms [B]."""
    value = rows.value[:, 0]
    p = charge.clamp(max=1.0)
    loss = value.abs() * p + (rows.lipschitz[:, 0] + norms) * p.sqrt()
    return (value - loss * (1 + 16 * UNIT) - 4 * UNIT * value.abs()).unsqueeze(1)


def _at_levels(charge: Tensor, rows: Functional) -> tuple[Tensor, Tensor]:
    """What the rows [K, B, R] exceed at each level s_k, and the probability [K, B] that all do."""
    s = STEP * torch.arange(LEVELS, dtype=torch.float64, device=charge.device)
    noisy = (rows.lipschitz > 0).sum(1).double()
    held = (1 - charge - normal_tail_up(s).unsqueeze(1) * noisy - SLACK).clamp_min(0)
    return slackened(rows.value - s[:, None, None] * rows.lipschitz), held


def slackened(margins: Tensor) -> Tensor:
    """A little less, so that functions of them may be rounded; NaN says nothing."""
    less = margins - SLACK * (1 + margins.abs())
    return less.nan_to_num(-torch.inf, torch.inf, -torch.inf)


def softmax(margins: Tensor) -> Tensor:
    """1 / (1 + Σ_r exp(-margin_r))"""
    return torch.sigmoid(-(-margins).logsumexp(-1)) * (1 - SLACK)


def others(leads: Tensor) -> Tensor:
    """1 - softmax_c = Σ_r exp(lead_r) / (1 + Σ_r exp(lead_r))"""
    return torch.sigmoid(leads.logsumexp(-1)) * (1 - SLACK)


def lead(margins: Tensor) -> Tensor:
    """softmax_c - softmax_j from below, for every j: with v the smallest margin, softmax_c (1 -
    exp(-v)) if v >= 0, and tanh(v / 2), the lead in a race of two, if not."""
    smallest = margins.amin(-1)
    ahead = softmax(margins) * -torch.expm1(-smallest.clamp_min(0))
    return torch.where(smallest >= 0, ahead, torch.tanh(smallest / 2)) - SLACK


def _layered(values: Tensor, held: Tensor, floor: float) -> Tensor:
    """E Y >= floor + Σ_k (v_k - v_k+1) P_k, where Y >= floor always and Y >= v_k with probability
    at least P_k, [B]."""
    falling = values.flip(0).cummax(0).values.flip(0).clamp_min(floor)
    after = torch.cat([falling[1:], torch.full_like(falling[:1], floor)])
    return floor + ((falling - after) * held).sum(0) - SLACK
