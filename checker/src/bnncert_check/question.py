"""The question of a certificate: an input region and output rows, and what they say in words."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert_check.arithmetic import Array
from bnncert_check.files import digest
from bnncert_check.grammar import Tensors, members
from bnncert_check.model import Model
from bnncert_check.region import Region, read_region
from bnncert_check.verdict import CannotCheck, Rejected

DIGESTS = ("architecture", "posterior", "specification", "problem")


@dataclass(frozen=True)
class Question:
    """Safe iff rows·y + offsets > 0 for all rows and all x of the region."""

    region: Region
    rows: Array
    offsets: Array

    @property
    def duel(self) -> tuple[int, tuple[int, ...]] | None:
        """The class that every row puts before another one, and those others, row by row; None if
        the rows say something else."""
        label, rivals = int(self.rows[0].argmax()), self.rows.argmin(-1)
        each = np.arange(len(self.rows))
        two = (np.count_nonzero(self.rows, axis=-1) == 2) & (rivals != label)
        says = (
            two & (self.rows[:, label] == 1) & (self.rows[each, rivals] == -1) & (self.offsets == 0)
        )
        return (label, tuple(rivals.tolist())) if says.all() else None

    @property
    def label(self) -> int | None:
        """The class that comes before all others, or before the one that is asked about; lines
        have no words for some of several."""
        if self.duel is None or not (self.against_all or len(self.rows) == 1):
            return None
        return self.duel[0]

    @property
    def against_all(self) -> bool:
        """Whether the rows put one class before every other, each once."""
        return (
            self.duel is not None
            and len({*self.duel[1]}) == len(self.rows) == self.rows.shape[1] - 1
        )

    @property
    def target(self) -> int | None:
        """The rival, where there is but one row."""
        return self.duel[1][0] if self.duel is not None and len(self.rows) == 1 else None

    @property
    def interval(self) -> tuple[int, float, float] | None:
        """The output that two rows hold between two ends, and these; None if they say something
        else."""
        output = int(self.rows[0].argmax())
        unit = np.zeros(self.rows.shape[1])
        unit[output] = 1
        if self.rows.shape[0] != 2 or not (self.rows == [unit, -unit]).all():
            return None
        return output, -float(self.offsets[0]), float(self.offsets[1])

    @property
    def input(self) -> str:
        """Digest of x, or of a box's ends, of which x is any point."""
        region = self.region
        return digest("input", [region.lower, region.upper] if region.norm == "box" else [region.x])

    def describe(self) -> str:
        """In words, so that a reader sees what was certified."""
        return f"{self.condition} on {self.region.describe()}"

    @property
    def condition(self) -> str:
        if self.duel is None:
            return f"{len(self.rows)} output rows positive"
        label, rivals = self.duel
        every = len({*rivals}) == self.rows.shape[1] - 1
        others = "every other" if every else ", ".join(map(str, sorted({*rivals})))
        return f"class {label} before {others}"


def said(rows: Array, offsets: Array) -> set[tuple[Fraction, ...]]:
    """Rows with their offsets, each up to a positive factor, in no order: row·y + offset > 0."""
    found = set()
    for row, offset in zip(rows.tolist(), offsets.tolist(), strict=True):
        values = [Fraction(value) for value in (*row, offset)]
        largest = max(map(abs, values)) or Fraction(1)
        found.add(tuple(value / largest for value in values))
    return found


def read_question(header: dict[str, Any], tensors: Tensors, model: Model) -> Question:
    region = read_region(header["region"], tensors, model.input_shape)
    count, _ = tensors.shape("rows", 2)
    if not count:
        raise CannotCheck("malformed", "there are no output rows")
    return Question(
        region,
        tensors.numbers("rows", (count, model.outputs)),
        tensors.numbers("offsets", (count,)),
    )


def check_digests(described: Any, question: Question, model: Model) -> None:
    """The certificate must be about this posterior and this question."""
    claimed = members(described, "the digests", DIGESTS)
    region, shape = question.region, model.input_shape
    ends = [end.reshape(1, *shape) for end in (region.lower, region.upper)]
    extent = ends if region.norm == "box" else [np.array([region.eps])]
    arrays = [region.x.reshape(1, *shape), *extent, question.rows[None], question.offsets[None]]
    specification = digest({"norm": region.norm, "clip": region.clip}, arrays)
    parts = [model.architecture_digest, model.posterior_digest, specification]
    for name, value in zip(DIGESTS, [*parts, digest(parts)], strict=True):
        if claimed[name] != value:
            raise Rejected(
                "digest-mismatch",
                f"the digest of the {name} is another: is this the right posterior?",
            )
