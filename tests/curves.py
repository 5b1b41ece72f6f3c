"""Curves by their formulas, to the working precision of mpmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mpmath import erfc, exp, expm1, log1p, mpf, pi, sqrt, tanh

from bnncert.layers import ELU, GELU, SELU, HardSwish, Mish, SiLU, Softplus, Softsign
from bnncert.model.activations import Activation

Function: TypeAlias = Callable[[mpf], mpf]
FAR = 1e5  # beyond which what is left of an exponential is below every float
NEXT_TO_NOTHING = mpf(2) ** -20000


def curve(activation: Activation) -> Function:
    match activation:
        case GELU(approximate="none"):
            return _tailed(lambda z: z * erfc(-z / sqrt(2)) / 2)
        case GELU():
            cube = mpf(44715) / 10**6
            return _tailed(lambda z: z / (1 + exp(-2 * sqrt(2 / pi) * (z + cube * z**3))))
        case SiLU():
            return _tailed(lambda z: z / (1 + exp(-z)))
        case Mish():
            return _tailed(lambda z: z * tanh(log1p(exp(z))))
        case Softplus(beta=beta):
            return _tailed(lambda z: log1p(exp(beta * z)) / mpf(beta), least=1)
        case ELU(alpha=alpha):
            return lambda z: z if z > 0 else mpf(alpha) * expm1(z)
        case SELU(scale=scale, alpha=alpha):
            return lambda z: mpf(scale) * (z if z > 0 else mpf(alpha) * expm1(z))
        case HardSwish():
            return lambda z: z * min(max(z + 3, 0), 6) / 6
        case Softsign():
            return lambda z: z / (1 + abs(z))
        case _:
            raise TypeError(activation)


def _tailed(function: Function, least: int = -1) -> Function:
    """Far out 0 or z, but for next to nothing, of the sign of `least` on the left."""

    def found(z: mpf) -> mpf:
        if z < -FAR:
            return least * NEXT_TO_NOTHING
        return z if z > FAR else function(z)

    return found
