"""What the independent checker says of a certificate, and whether it speaks of the instance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bnncert.bench.suite import Instance, read_instance
from bnncert.evidence.predictive import MEAN

if TYPE_CHECKING:
    from bnncert_check.question import Question

ACCEPT = "ACCEPT"
NOT_INSTALLED = "the checker is not installed: pip install bnncert-check"
CHANGED = "the instance's files have changed since the run began"


@dataclass(frozen=True)
class Verdict:
    """accepted: the checker accepts a certificate of this very instance.

    lower, upper: what that certifies. reason: why not, otherwise.
    """

    accepted: bool
    lower: float = 0.0
    upper: float = 1.0
    reason: str = ""


def verdict_on(certificate: Path, instance: Path, digest: str) -> Verdict:
    """Check a certificate against an instance's posterior and question, those of the digest."""
    try:
        from bnncert_check.certificate import examine
        from bnncert_check.model import read_model
    except ModuleNotFoundError:
        return Verdict(False, reason=NOT_INSTALLED)
    asked = read_instance(instance)
    if asked.digest != digest:
        return Verdict(False, reason=CHANGED)
    found, stated = examine(certificate, read_model(asked.posterior))
    if found.status != ACCEPT or found.claimed is None or stated is None:
        return Verdict(False, reason=f"{found.status} {found.code}: {found.message}")
    if found.quantity != asked.quantity:
        return Verdict(False, reason=f"the certificate is about {found.quantity}")
    other = _another_question(stated, asked)
    return Verdict(False, reason=other) if other else Verdict(True, *found.claimed)


def _another_question(stated: Question, asked: Instance) -> str:
    """What tells the question that was checked from the instance's, if anything does."""
    from bnncert_check.question import said

    if stated.region.norm != "box":
        return "the certificate's region is no box"
    for name in ("lower", "upper"):
        end = getattr(stated.region, name)
        if not np.array_equal(end.reshape(-1), np.array(asked.fields[name], dtype=np.float64)):
            return f"the certificate's box has another {name} end"
    rows, offsets = (np.array(asked.fields[name], dtype=np.float64) for name in ("rows", "offsets"))
    # A condition has no scale; a mean is that of the first row itself.
    first = asked.quantity != MEAN or np.array_equal(stated.rows[0], rows[0])
    if not first or said(stated.rows, stated.offsets) != said(rows, offsets):
        return "the certificate's output rows are others"
    return ""
