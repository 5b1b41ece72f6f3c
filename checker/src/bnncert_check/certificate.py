"""One certificate against one posterior: everything it claims is computed again."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flint import ctx

from bnncert_check.arithmetic import BITS, require_ieee_arithmetic
from bnncert_check.evidence import QUANTITIES, READERS
from bnncert_check.files import read_safetensors
from bnncert_check.grammar import Tensors, exact, members
from bnncert_check.model import Model
from bnncert_check.question import Question, check_digests, read_question
from bnncert_check.verdict import (
    ACCEPT,
    ERROR,
    MEAN,
    P_SAFE,
    SOFTMAX,
    Bounds,
    CannotCheck,
    Reason,
    Rejected,
    Support,
    Verdict,
)

SCHEMA = "bnncert-certificate/1"
READ = ("schema", "kind", "claim", "digests", "region", "evidence")
NOT_READ = (
    "method",
    "bound_calls",
    "seed",
    "versions",
)  # how the claim was found; nothing rests on it


def check_certificate(path: Path, model: Model) -> Verdict:
    """ACCEPT only if the evidence supports the whole claim; whatever is wrong becomes a verdict,
    not an exception."""
    return examine(path, model)[0]


def examine(path: Path, model: Model) -> tuple[Verdict, Question | None]:
    """The verdict, and the question that it is about, where it came that far."""
    started = time.perf_counter()
    verdict, question = Verdict(str(path), ACCEPT), None
    try:
        with ctx.workprec(BITS), np.errstate(all="ignore"):
            require_ieee_arithmetic()
            file = read_safetensors(path, SCHEMA)
            header, tensors = (
                members(file.header, "the header", READ, NOT_READ),
                Tensors(file.arrays, file.size),
            )
            kind = _kind(header["kind"])
            quantity = QUANTITIES[kind]
            claimed, gap = _claim(header["claim"], quantity)
            verdict = replace(verdict, claimed=claimed, gap=gap, quantity=quantity)
            question = read_question(header, tensors, model)
            label, eps = question.label, question.region.eps
            verdict = replace(verdict, question=question.describe(), label=label, eps=eps)
            verdict = replace(verdict, input=question.input)
            check_digests(header["digests"], question, model)
            model.require_room(file.size)
            evidence = READERS[kind](header["evidence"], tensors, question, model)
            tensors.nothing_left()
            support = _finite(evidence.supported(question, model))
            verdict = replace(verdict, supported=(support.lower, support.upper))
            _compare(claimed, gap, support, quantity)
            verdict = replace(verdict, decided=_decided(question, claimed, gap, quantity))
    except Reason as reason:
        verdict = replace(verdict, status=reason.status, code=reason.code, message=reason.message)
    except Exception as error:  # nothing that was not foreseen may pass for a verdict
        message = f"the certificate cannot be checked ({type(error).__name__}: {error})"
        verdict = replace(verdict, status=ERROR, code="malformed", message=message)
    return replace(verdict, seconds=time.perf_counter() - started), question


def _kind(value: Any) -> str:
    if type(value) is not str or value not in READERS:
        raise CannotCheck("unsupported", f"evidence of kind {str(value)[:40]!r} is not known")
    return value


def _claim(value: Any, quantity: str) -> tuple[Bounds, float | None]:
    """Lower and upper bound, and for softmax the gap."""
    names = ("lower", "upper", "gap") if quantity == SOFTMAX else ("lower", "upper")
    found = {
        name: exact(end, f"the claimed {name}")
        for name, end in members(value, "the claim", names).items()
    }
    lower, upper, gap = found["lower"], found["upper"], found.get("gap")
    within = quantity == MEAN or (lower >= 0 and upper <= 1)
    if not (within and lower <= upper and -1 <= (gap or 0) <= 1):
        raise Rejected("claim-not-a-probability", f"the claim is {lower} to {upper}, gap {gap}")
    return (lower, upper), gap


def _finite(support: Support) -> Support:
    if any(map(math.isnan, (support.lower, support.upper, support.lead))):
        raise CannotCheck("not-finite", "a probability could not be computed")
    return support


def _compare(claimed: Bounds, gap: float | None, support: Support, quantity: str) -> None:
    if not claimed[0] <= support.lower:
        message = f"claimed {quantity} >= {claimed[0]!r}, supported is {support.lower!r}"
        raise Rejected("probability-too-high", message)
    if not claimed[1] >= support.upper:
        raise Rejected(
            "upper-too-low", f"claimed {quantity} <= {claimed[1]!r}, supported is {support.upper!r}"
        )
    if gap is not None and not gap <= support.lead:
        raise Rejected("gap-too-high", f"claimed a lead of {gap!r}, supported is {support.lead!r}")


def _decided(question: Question, claimed: Bounds, gap: float | None, quantity: str) -> bool | None:
    """Whether bounds of a predictive mean, of the label or of the first row's direction, answer the
    question."""
    if quantity == P_SAFE:
        return None
    if gap is not None:
        return gap > 0
    first = question.rows[0]
    ends = [claimed[0] if np.array_equal(row, first) else -claimed[1] for row in question.rows]
    return all(end > -offset for end, offset in zip(ends, question.offsets.tolist(), strict=True))
