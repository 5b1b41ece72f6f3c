"""The question that options ask about a data set: which inputs, which region, which condition.

The command line and campaign files both make a `Question` from here, so that what one refuses, the
other does too. Each option is declared once, with what it means: `from_text` reads what a command
line gives, `kinds` are the types that a campaign file may give. Nothing here needs torch, so that
--help is instant.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bnncert.errors import InputError
from bnncert.model.norms import NORMS

WORDS: dict[type, str] = {
    dict: "a table",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def radii(text: str) -> tuple[float, ...]:
    """The numbers in a list 0.01,0.02."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"'--eps' is {text!r}; give a number, or several as 0.01,0.02") from error


def option(
    default: Any,
    about: str,
    *,
    kinds: tuple[type, ...],
    from_text: Callable[[str], Any] | None = None,
) -> Any:
    """A field of a question, with what the command line and campaign files need to know of it."""
    metadata = {"help": about, "kinds": kinds, "from_text": from_text}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Question:
    """What is asked of a data set's inputs.

    eps: radii, each for every input; none where the inputs bring their own. clip: a range, False
    for none, or True for [0, 1] where the inputs are images.
    """

    inputs: str
    select: str = option(
        ":", "Which inputs: START:STOP, one index, or a list 3,7,12.", kinds=(str,)
    )
    eps: tuple[float, ...] = option(
        (),
        "Radius of the input region, or several: 0.01,0.02; else eps of the .npz.",
        kinds=(list, int, float),
        from_text=radii,
    )
    eps_file: str | None = option(
        None,
        "A radius for every coordinate instead: eps in an .npz of an input's shape, or of the "
        "[[dimension]] tables or rows of a .toml or .csv.",
        kinds=(str,),
    )
    norm: str = option("linf", "linf, l2 or l1.", kinds=(str,))
    clip: tuple[float, float] | bool = option(
        True, "Intersect the region with [LO, HI]; images: 0 1 by default.", kinds=(list, bool)
    )
    target: int | None = option(None, "Only this rival class instead of all.", kinds=(int,))
    tolerance: float | None = option(
        None, "Regression: the output stays within this distance of y.", kinds=(int, float)
    )
    output: int | None = option(
        None, "Regression: which output that is, from 0, where there are several.", kinds=(int,)
    )

    def __post_init__(self) -> None:
        wrong = [eps for eps in self.eps if not (math.isfinite(eps) and eps >= 0)]
        if wrong:
            raise InputError(f"eps is {wrong[0]}; give a finite radius of at least 0")
        if len(set(self.eps)) < len(self.eps):
            raise InputError(f"eps {list(self.eps)} names a radius twice; give each once")
        if self.eps_file is not None and (self.eps or self.norm != "linf"):
            raise InputError(
                "--eps-file has a radius for every coordinate, and the region is a box; leave out "
                "--eps and --norm"
            )
        if self.norm not in NORMS:
            raise InputError(f"norm {self.norm!r} is not known; choose {', '.join(NORMS)}")
        if isinstance(self.clip, tuple) and not self.clip[0] <= self.clip[1]:
            raise InputError(f"clip range {self.clip} is empty; give the smaller end first")
        if self.tolerance is not None and (self.target is not None or not self.tolerance >= 0):
            raise InputError(
                f"tolerance is {self.tolerance}; give a distance of at least 0, and no target class"
            )
        if self.output is not None and self.tolerance is None:
            raise InputError(
                f"output {self.output} is for a regression; give --tolerance, or leave --output out"
            )

    def clip_of(self, image: bool) -> tuple[float, float] | None:
        """The range for inputs that are images, or not."""
        if isinstance(self.clip, tuple):
            return self.clip
        return (0.0, 1.0) if self.clip and image else None


def selection(text: str, count: int) -> list[int]:
    """Indices named by START:STOP, an index or a list of them."""
    if ":" in text:
        ends = text.split(":")
        if len(ends) != 2 or not all(end == "" or end.isdigit() for end in ends):
            raise InputError(f"select {text!r} is not START:STOP; give for example 0:50")
        start, stop = (int(end) if end else None for end in ends)
        beyond = stop is not None and stop > count
        indices = [] if beyond else list(range(count))[start:stop]
    else:
        indices = whole_numbers(text, "select")
    if len(set(indices)) < len(indices):
        raise InputError(f"select {text!r} names an input twice; give each once")
    if not indices or max(indices) >= count:
        raise InputError(
            f"select {text!r} leaves the {count} inputs; give indices from 0 to {count - 1}"
        )
    return indices


def whole_numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f"{name} {text!r} is not a list of whole numbers; give for example 50,50")
    return numbers


def require_kind(name: str, value: object, kinds: Sequence[type]) -> None:
    if type(value) not in kinds:  # not isinstance: true is no number
        words = " or ".join(WORDS[kind] for kind in kinds)
        raise InputError(f"{name!r} is {value!r}; give {words}")
