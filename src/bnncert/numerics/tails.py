"""Tails and central parts of the standard normal and Laplace laws, and their float64 errors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from bnncert.numerics.rounding import TINY, UNIT

ARGUMENT = 8 * UNIT  # (bound - centre) / scale / sqrt(2): four roundings, taken twice over
# Of erf, erfc and exp of any vendor: at most 5 ulp documented, taken six times over.
SPECIAL = 64 * UNIT


def normal_tail(z: Tensor) -> Tensor:
    """Q(z) = P(Z > z)"""
    tail: Tensor = torch.special.erfc(z / math.sqrt(2)) / 2
    return tail


def normal_core(z: Tensor) -> Tensor:
    """P(0 < Z < z)"""
    core: Tensor = torch.special.erf(z / math.sqrt(2)) / 2
    return core


def normal_tail_up(z: Tensor) -> Tensor:
    """Q(z) for z >= 0, rounded up."""
    return normal_tail(z * (1 - ARGUMENT)) * (1 + SPECIAL) + TINY


def normal_tail_down(z: Tensor) -> Tensor:
    """Q(z) for z >= 0, rounded down."""
    return (normal_tail(z * (1 + ARGUMENT)) * (1 - SPECIAL) - TINY).clamp_min(0)


def laplace_tail(z: Tensor) -> Tensor:
    return (-z).exp() / 2


def laplace_core(z: Tensor) -> Tensor:
    return -torch.expm1(-z) / 2


def expected_magnitude(a: Tensor, s: Tensor) -> Tensor:
    """E|N(a, s²)| = s sqrt(2/π) exp(-a²/2s²) + a erf(a / s√2) for s > 0, within a relative error of
    2 SPECIAL.

    Written in few passes, its slopes too: on whole test sets this is where the time goes.
    """
    found: Tensor = _ExpectedMagnitude.apply(a, s)  # type: ignore[no-untyped-call]
    return found


class _ExpectedMagnitude(torch.autograd.Function):
    """With z = a / s√2 the slopes are erf(z) in a and sqrt(2/π) exp(-z²) in s: everything else
    cancels, and both are at hand."""

    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor, s: Tensor) -> Tensor:
        # Beyond 26 both terms are at their limits, and exp is slow where it underflows.
        z = (a / s).mul_(math.sqrt(0.5)).clamp_(-26, 26)
        sign = torch.erf(z)
        bell = z.square_().neg_().exp_()
        ctx.save_for_backward(sign, bell)
        return (a * sign).addcmul_(s, bell, value=math.sqrt(2 / math.pi))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        sign, bell = ctx.saved_tensors
        return gradient * sign, gradient * bell * math.sqrt(2 / math.pi)
