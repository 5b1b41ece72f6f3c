"""Specifications as VNN-LIB 1.0 files, which state the counterexample.

Numbers are written in decimals that are the floats exactly. Ends of the box that need more digits
than readers take, which are next to 0, are rounded away from it.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.specification import Specification

DIGITS = 150  # behind the point
WIDE = Context(prec=1000)


def vnnlib(specification: Specification) -> str:
    """The file of a specification of one input: the box, and the rows that a counterexample breaks.

    >>> import torch
    >>> from bnncert import ball, half_space
    >>> region = ball(torch.zeros(1, 1).double(), eps=0.5)
    >>> print(vnnlib(half_space(region, torch.tensor([1.0, -1.0]), 0.0)))
    (declare-const X_0 Real)
    (declare-const Y_0 Real)
    (declare-const Y_1 Real)
    (assert (>= X_0 -0.5))
    (assert (<= X_0 0.5))
    (assert (<= Y_0 Y_1))
    <BLANKLINE>
    """
    region = specification.region
    if len(region) != 1:
        raise InputError(f"specification has {len(region)} inputs; a VNN-LIB file asks about one")
    if not region.is_box:
        raise InputError(
            f"region is an {region.norm} ball; VNN-LIB files know boxes: give norm 'linf'"
        )
    lower, upper = (end[0].flatten().tolist() for end in (region.box.lower, region.box.upper))
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(specification.rows.shape[-1])]
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        ends = _end(low, ROUND_FLOOR), _end(high, ROUND_CEILING)
        lines += [f"(assert (>= X_{i} {ends[0]}))", f"(assert (<= X_{i} {ends[1]}))"]
    broken = [
        _broken(row, float(offset))
        for row, offset in zip(specification.rows[0], specification.offsets[0], strict=True)
    ]
    any_of = broken[0] if len(broken) == 1 else f"(or {' '.join(f'(and {b})' for b in broken)})"
    return "\n".join([*lines, f"(assert {any_of})"]) + "\n"


def _broken(row: Tensor, offset: float) -> str:
    """row·y + offset <= 0, where it can be in the words that every reader knows."""
    terms = [(float(c), j) for j, c in enumerate(row) if c]
    if offset == 0 and sorted(c for c, _ in terms) == [-1, 1]:
        (smaller,) = (j for c, j in terms if c == 1)
        (larger,) = (j for c, j in terms if c == -1)
        return f"(<= Y_{smaller} Y_{larger})"
    if len(terms) == 1 and abs(terms[0][0]) == 1:
        ((sign, j),) = terms
        return f"(<= Y_{j} {_decimal(-offset)})" if sign > 0 else f"(>= Y_{j} {_decimal(offset)})"
    products = [f"(* {_decimal(c)} Y_{j})" for c, j in terms]
    total = products[0] if len(products) == 1 else f"(+ {' '.join(products)})"
    return f"(<= {total} {_decimal(-offset)})"


def _end(value: float, direction: str) -> str:
    exact = Decimal(value)
    if -int(exact.as_tuple().exponent) <= DIGITS:
        return _decimal(value)
    return format(exact.quantize(Decimal(1).scaleb(-DIGITS), direction, WIDE), "f")


def _decimal(value: float) -> str:
    written = format(Decimal(value + 0.0), "f")  # no negative zero
    if len(written) > 2 * DIGITS:
        raise InputError(f"number {value} is too small for a VNN-LIB file; scale the condition")
    return written
