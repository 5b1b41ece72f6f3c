"""Certificates and results: what is claimed, with its evidence, and how both are written and read.

The file format is described in docs/certificate-format.md; a checker needs nothing but that page, the posterior and
the certificate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from torch import Tensor

from bnncert.errors import InputError
from bnncert.files import read_tensors, tensor_bytes, write_atomically
from bnncert.methods.statistical import Estimate

SCHEMA = "bnncert-certificate/1"


@dataclass(frozen=True, eq=False)
class Certificate:
    """A claim about one input: a JSON header, and the tensors it speaks of."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]

    def content(self) -> bytes:
        """What the certificate's file holds."""
        return tensor_bytes(self.header, self.tensors)

    def write(self, path: Path) -> None:
        write_atomically(path, self.content())


def read_certificate(path: str | Path) -> Certificate:
    return Certificate(*read_tensors(Path(path), SCHEMA))


@dataclass(frozen=True, eq=False)
class Answer:
    """One input's answer: lower <= P_safe <= upper, certified.

    target: the only rival class that was asked about, where there are others; else None.
    status: "certified" (lower > 0), "unverified" (nothing proved), "misclassified" (the mean network errs on the clean
    input; counted as nothing proved) or "error". lower and upper are 0 and 1 when nothing is known. `estimate` is
    not certified and enters neither.
    """

    index: int
    label: int | None
    target: int | None
    predicted: int | None
    status: str
    lower: float
    upper: float
    method: str
    eps: float
    bound_calls: int
    seconds: float
    seed: int
    estimate: Estimate | None


@dataclass(frozen=True, eq=False)
class Result(Answer):
    """An answer with its certificate, if anything is proved."""

    certificate: Certificate | None

    def line(self, certificate: str | None) -> str:
        """The result as one JSON line, the certificate by its path."""
        fields = {name: value for name, value in vars(self).items() if name not in ("certificate", "estimate")}
        if self.estimate:
            fields["estimate"] = asdict(self.estimate)
        return json.dumps(fields | {"certificate": certificate}, allow_nan=False)


def jointly(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Bounds of the probability that a network is safe on all of several regions at once, from those of each.

    max(0, 1 - Σ (1 - lower_i)) <= P(safe on all) <= min upper_i, however the events depend on each other.
    """
    if not bounds:
        return 1.0, 1.0
    exact = 1 - sum(1 - Fraction(lower) for lower, _ in bounds)
    lower = float(max(exact, Fraction(0)))
    return math.nextafter(lower, 0) if lower > exact else lower, min(upper for _, upper in bounds)


def answer(lower: float, upper: float, at_least: float | Decimal) -> str:
    """Whether P_safe >= at_least, in the words of verification competitions, which ask for a counterexample.

    "unsat" if lower >= at_least: it holds. "sat" if upper < at_least: it does not. Else "unknown".
    """
    # Decimals hold every float, so that a threshold typed as 0.95 is compared as 95/100.
    threshold = Decimal(at_least)
    if not (threshold.is_finite() and 0 <= threshold <= 1):
        raise InputError(f"threshold is {at_least}; give a probability from 0 to 1")
    return "unsat" if Decimal(lower) >= threshold else "sat" if Decimal(upper) < threshold else "unknown"
