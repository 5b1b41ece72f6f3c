"""The grammar of headers, evidence and lines: each value is demanded with its type and range, and
nothing else may be there.

A reader names what it takes; whatever is missing, of another type, out of range, repeated or not
asked for is `malformed`. Booleans are no numbers, and numbers that must be exact are hexadecimal.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.verdict import CannotCheck

HEXADECIMAL = re.compile(r"(-?)0x([0-9a-f]{1,20})(?:\.([0-9a-f]{0,20}))?p([+-]?[0-9]{1,4})")
DECIMAL = re.compile(
    r"[0-9]{0,9}(\.[0-9]{0,1100})?([eE][+-]?[0-9]{1,3})?"
)  # no power that takes for ever
LARGEST = sys.float_info.max
DTYPES = {"float64": np.float64, "float32": np.float32, "int32": np.int32, "int8": np.int8}


def members(
    value: Any, where: str, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """An object with all of the required keys, and of others the optional ones only."""
    if type(value) is not dict:
        raise CannotCheck("malformed", f"{where} is not an object")
    for name in required:
        if name not in value:
            raise CannotCheck("malformed", f"{where} lacks {name!r}")
    for name in value:
        if name not in required and name not in optional:
            raise CannotCheck("malformed", f"{where} has {name!r}, which is not part of the format")
    return value


def listed(value: Any, where: str, count: int | None = None) -> list[Any]:
    """A list, of so many entries where that is known."""
    if type(value) is not list or (count is not None and len(value) != count):
        raise CannotCheck(
            "malformed", f"{where} is not a list" + ("" if count is None else f" of {count}")
        )
    return value


def whole(value: Any, where: str, least: int, most: float = math.inf) -> int:
    if type(value) is not int or not least <= value <= most:
        raise CannotCheck(
            "malformed", f"{where} is {_shown(value)}, not a whole number from {least} to {most}"
        )
    return value


def index(value: Any, where: str, count: int) -> int:
    """A position among `count` things."""
    return whole(value, where, 0, count - 1)


def number(value: Any, where: str, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite number within the limits."""
    if type(value) not in (int, float) or not (abs(value) <= LARGEST and least <= value <= most):
        raise CannotCheck(
            "malformed", f"{where} is {_shown(value)}, not a number from {least} to {most}"
        )
    return float(value)


def exact(value: Any, where: str) -> float:
    """A number in hexadecimal that is a float: nothing of what is written is rounded away."""
    written = HEXADECIMAL.fullmatch(value) if type(value) is str else None
    with suppress(OverflowError):
        if written is not None and Fraction(found := float.fromhex(value)) == _written(
            *written.groups()
        ):
            return found
    raise CannotCheck("malformed", f"{where} is {_shown(value)}, not a float in hexadecimal")


def _written(sign: str, whole: str, part: str | None, exponent: str) -> Fraction:
    digits = part or ""
    return Fraction(int(f"{sign}{whole}{digits}", 16)) * Fraction(2) ** (
        int(exponent) - 4 * len(digits)
    )


def threshold(value: Any, where: str) -> Fraction:
    """A probability in decimals, as it was typed."""
    if DECIMAL.fullmatch(word(value, where)):
        with suppress(ValueError):  # of no digits at all
            if 0 <= (found := Fraction(value)) <= 1:
                return found
    raise CannotCheck("malformed", f"{where} is {_shown(value)}, not a probability in decimals")


def written(value: Fraction) -> str:
    """The number itself: in decimals, or as a fraction where no float is printed that way."""
    with suppress(OverflowError):
        short = repr(float(value))
        if Fraction(short) == value:
            return short.removesuffix(".0")
    return str(value)


def flag(value: Any, where: str) -> bool:
    if type(value) is not bool:
        raise CannotCheck("malformed", f"{where} is {_shown(value)}, neither true nor false")
    return value


def word(value: Any, where: str, choices: Collection[str] | None = None) -> str:
    """Text, one of the choices where there are any."""
    if type(value) is not str or (choices is not None and value not in choices):
        raise CannotCheck("malformed", f"{where} is {_shown(value)}, not {_words(choices)}")
    return value


def _words(choices: Collection[str] | None) -> str:
    return "text" if choices is None else f"one of {', '.join(choices)}"


def _shown(value: Any) -> str:
    """A hostile value may be long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


class Tensors:
    """The tensors of a file, each of which is taken once, with the type and shape that it must
    have."""

    def __init__(self, found: dict[str, NDArray[Any]], size: int = 0) -> None:
        self._left = dict(found)
        self.size = size  # of the file, in bytes
        self.steps = 0  # that laws would take in all, which the file pays for by its size

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """Where the format leaves a size open."""
        if name not in self._left or self._left[name].ndim != dimensions:
            raise CannotCheck(
                "malformed", f"tensor {name!r} is missing or has not {dimensions} dimensions"
            )
        return self._left[name].shape

    def take(self, name: str, shape: tuple[int, ...], dtype: str = "float64") -> NDArray[Any]:
        found = self._left.pop(name, None)
        if found is None or found.dtype != DTYPES[dtype] or found.shape != shape:
            raise CannotCheck(
                "malformed",
                f"tensor {name!r} is missing, taken twice, or not {dtype} of shape {shape}",
            )
        if not np.isfinite(found).all():
            raise CannotCheck("malformed", f"tensor {name!r} holds NaN or infinity")
        return found

    def numbers(self, name: str, shape: tuple[int, ...], dtype: str = "float64") -> Array:
        """As float64, which holds every value of the stored type."""
        return self.take(name, shape, dtype).astype(np.float64)

    def nothing_left(self) -> None:
        for name in self._left:
            raise CannotCheck("malformed", f"tensor {name!r} is not part of the format")
