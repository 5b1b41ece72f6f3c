"""Sums and differences of activations, and arithmetic of activations and constants."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.importers.drawing import Drawing
from bnncert.importers.values import BATCH, At, Held, UnreadableError
from bnncert.model.layers import Add

Constant: TypeAlias = Held | float
Operand: TypeAlias = At | Constant


def add(drawing: Drawing, a: Operand, b: Operand, alpha: float = 1) -> At:
    """a + alpha b"""
    if isinstance(b, At):
        b = _times(drawing, b, alpha)
    elif alpha != 1:
        raise UnreadableError("has alpha and a constant; multiply it yourself")
    if isinstance(a, At) and isinstance(b, At):
        return _sum(drawing, a, b)
    if isinstance(a, At):
        a, b = b, a
    return _affine(drawing, b, 1, _number(a))


def subtract(drawing: Drawing, a: Operand, b: Operand, alpha: float = 1) -> At:
    """a - alpha b"""
    if isinstance(b, At):
        return add(drawing, a, _times(drawing, b, -alpha))
    if alpha != 1:
        raise UnreadableError("has alpha and a constant; multiply it yourself")
    negative = Held(-drawing.constant(b), made_of=_made_of(b))
    return _affine(drawing, a, 1, 0.0 if _is(b, 0) else negative)


def subtract_from(drawing: Drawing, a: Operand, b: Operand, alpha: float = 1) -> At:
    """b - alpha a"""
    return subtract(drawing, b, a, alpha)


def multiply(drawing: Drawing, a: Operand, b: Operand) -> At:
    if isinstance(a, At) and isinstance(b, At):
        raise UnreadableError("of two activations is not supported")
    if isinstance(a, At):
        a, b = b, a
    return _affine(drawing, b, _number(a), 0)


def divide(drawing: Drawing, a: Operand, b: Operand, *, rounding_mode: None = None) -> At:
    if isinstance(b, At):
        raise UnreadableError("by an activation is not supported")
    if rounding_mode is not None:
        raise UnreadableError(f"has rounding_mode={rounding_mode!r}")
    inverse = Held(1 / drawing.constant(b), made_of=_made_of(b))
    return _affine(drawing, a, 1 if _is(b, 1) else inverse, 0)


def negate(drawing: Drawing, a: At) -> At:
    return _times(drawing, a, -1)


def _times(drawing: Drawing, x: At, factor: float) -> At:
    return _affine(drawing, x, factor, 0)


def _sum(drawing: Drawing, a: At, b: At) -> At:
    if a.shape != b.shape:
        raise UnreadableError(
            f"of shapes {a.shape} and {b.shape} is not supported; give them one shape"
        )
    if drawing.shapes[a.node] == drawing.shapes[b.node]:
        # Entries that lie alike are added where they lie.
        own = drawing.shapes[a.node]
        found = drawing.append(Add(), At(a.node, own), At(b.node, own))
        return At(found.node, a.shape)
    return drawing.append(Add(), a, b)


def _affine(drawing: Drawing, x: Operand, factor: Constant, shift: Constant) -> At:
    """factor x + shift, as a Scale of the least shape that says it."""
    if not isinstance(x, At):
        raise UnreadableError("of constants is not supported")
    if _is(factor, 1) and _is(shift, 0):
        return x
    parts = [_aligned(drawing.constant(each), x) for each in (factor, shift)]
    if not all(bool(part.isfinite().all()) for part in parts):
        raise UnreadableError("with a constant that is not finite, or by 0")
    scale, moved = torch.broadcast_tensors(*parts)  # type: ignore[no-untyped-call]
    used = _made_of(factor) | _made_of(shift)
    if scale.numel() == 1:
        rank = len(drawing.shapes[x.node])
        return drawing.scaled(x, scale.reshape((1,) * rank), moved.reshape((1,) * rank), used)
    return drawing.scaled(At(drawing.node(x), x.shape), scale, moved, used)


def _aligned(constant: Tensor, x: At) -> Tensor:
    """As broadcasting meets each example of x, which it must leave in its shape."""
    rank = len(x.shape)
    if constant.dim() == rank + 1:
        if len(constant) not in (1, BATCH) or not bool((constant == constant[:1]).all()):
            raise UnreadableError("with a constant that differs between the examples of a batch")
        constant = constant[0]
    if constant.dim() > rank or any(
        own not in (1, size)
        for own, size in zip(reversed(constant.shape), reversed(x.shape), strict=False)
    ):
        raise UnreadableError(f"of shapes {x.shape} and {tuple(constant.shape)} is not supported")
    return constant.reshape(*[1] * (rank - constant.dim()), *constant.shape)


def _number(value: Operand) -> Constant:
    if isinstance(value, At):
        raise UnreadableError("of activations alone is not supported")
    return value


def _is(value: Constant, number: int) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value == number


def _made_of(value: Constant) -> frozenset[str]:
    return frozenset() if not isinstance(value, Held) else value.made_of
