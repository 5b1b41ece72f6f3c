"""What the independent checker says of a certificate, and whether it speaks of the instance."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from bnncert.bench.suite import read_instance
from bnncert.errors import InputError
from bnncert.evidence.certificate import LOWER, UPPER, read_certificate

ACCEPT = "ACCEPT"
NOT_INSTALLED = "the checker is not installed: pip install bnncert-check"


@dataclass(frozen=True)
class Verdict:
    """accepted: the checker accepts a certificate of this very instance.

    lower, upper: what that certifies. reason: why not, otherwise.
    """

    accepted: bool
    lower: float = 0.0
    upper: float = 1.0
    reason: str = ""


def verdict_on(certificate: Path, instance: Path) -> Verdict:
    """Check a certificate against an instance's posterior and question."""
    try:
        from bnncert_check.certificate import check_certificate
        from bnncert_check.model import read_model
    except ModuleNotFoundError:
        return Verdict(False, reason=NOT_INSTALLED)
    asked = read_instance(instance)
    found = check_certificate(certificate, read_model(asked.posterior))
    if found.status != ACCEPT or found.claimed is None:
        return Verdict(False, reason=f"{found.status} {found.code}: {found.message}")
    if found.quantity != asked.quantity:
        return Verdict(False, reason=f"the certificate is about {found.quantity}")
    try:
        other = _another_question(certificate, instance)
    except InputError as error:
        return Verdict(False, reason=str(error))
    return Verdict(False, reason=other) if other else Verdict(True, *found.claimed)


def _another_question(certificate: Path, instance: Path) -> str:
    """What tells the certificate's question from the instance's, if anything does."""
    stated = read_certificate(certificate)
    asked = read_instance(instance).specification(stated.x.shape)
    if stated.norm != "box":
        return "the certificate's region is no box"
    for name, end in ((LOWER, asked.region.box.lower), (UPPER, asked.region.box.upper)):
        if not torch.equal(stated.tensors[name], end[0]):
            return f"the certificate's box has another {name} end"
    ours = _conditions(asked.rows[0], asked.offsets[0])
    if _conditions(stated.rows, stated.offsets) != ours:
        return "the certificate's output rows are others"
    return ""


def _conditions(rows: Tensor, offsets: Tensor) -> set[tuple[Fraction, ...]]:
    """Rows with their offsets, each up to a positive factor, in no order."""
    found = set()
    for row, offset in zip(rows.tolist(), offsets.tolist(), strict=True):
        values = [Fraction(value) for value in (*row, offset)]
        largest = max(map(abs, values)) or Fraction(1)
        found.add(tuple(value / largest for value in values))
    return found
