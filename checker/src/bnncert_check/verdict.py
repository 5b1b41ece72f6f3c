"""Verdicts: what the checker says of a certificate, and the reasons it can give, with codes that
never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

Bounds: TypeAlias = tuple[float, float]  # lower, upper

ACCEPT, REJECT, ERROR = "ACCEPT", "REJECT", "ERROR"
P_SAFE, SOFTMAX, MEAN = (
    "P_safe",
    "softmax",
    "mean",
)  # what is bounded; the last two are predictive means
EXIT_CODES = {ACCEPT: 0, REJECT: 1, ERROR: 2}


class Reason(Exception):  # noqa: N818 (a verdict, not a fault)
    """Why a certificate is not accepted."""

    status: ClassVar[str]

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Rejected(Reason):
    """The claim does not follow from the evidence."""

    status = REJECT


class CannotCheck(Reason):
    """Nothing can be said: the files cannot be read, or ask for something that this checker does
    not know."""

    status = ERROR


@dataclass(frozen=True)
class Support:
    """The bounds that evidence supports, and of softmax the lead."""

    lower: float
    upper: float
    lead: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """ACCEPT, REJECT or ERROR; `supported` are the bounds that rigorous arithmetic gives, where it
    came that far."""

    path: str
    status: str
    code: str | None = None
    message: str = ""
    claimed: Bounds | None = None
    supported: Bounds | None = None
    question: str = ""  # in words
    quantity: str = P_SAFE
    gap: float | None = None  # of softmax: claimed lead over every rival
    decided: bool | None = (
        None  # of predictive means: whether they settle the question on the whole region
    )
    eps: float | None = None
    label: int | None = None
    input: str | None = None  # digest of x, or of a box's ends
    seconds: float = 0.0


REJECTIONS = {
    "digest-mismatch": (
        "the certificate speaks of another posterior or network, or was changed "
        "after it was "
        "written"
    ),
    "claim-not-a-probability": (
        "not 0 <= lower <= upper <= 1, a gap outside [-1, 1], or a mean that is no interval"
    ),
    "region-empty": "the input region holds no point",
    "box-empty": "a weight box or cell has its ends in the wrong order",
    "row-not-positive": "an output row could not be proved positive on a box, or for a network",
    "cell-outside-parent": "a cell of the union leaves the box it was cut from",
    "cells-overlap": "two cells of the union share mass, or nothing shows that they do not",
    "threshold-not-positive": "the threshold t is not a positive number",
    "slope-out-of-range": "a slope is not in [0, 1]",
    "choice-out-of-range": "a choice of a bound for two layers is none that the theorem speaks of",
    "multiplier-negative": "a multiplier of a split is below 0",
    "leaves-do-not-cover": "the leaves of branch and bound leave out a part of the region",
    "point-outside-region": "the point of the upper bound is not in the input region",
    "rows-not-opposite": "two rows whose failures are added up may fail together",
    "trunk-outside-box": "what certain layers give leaves the box that is said to hold it",
    "network-counted-twice": "a network of an empirical posterior is listed more than once",
    "network-not-refuted": "a network that counts as unsafe was not proved to fail at its point",
    "probability-too-high": "the claimed lower bound is above what rigorous arithmetic supports",
    "upper-too-low": "the claimed upper bound is below what rigorous arithmetic supports",
    "gap-too-high": (
        "the claimed lead of the label's predictive probability is above what is supported"
    ),
    "certificate-missing": "a result claims something and has no certificate",
    "result-mismatch": "a line of results contradicts its certificate or itself",
    "result-repeated": "two lines of results are about one thing, or name one certificate",
    "manifest-mismatch": (
        "a line of results or its certificate answers another question than the manifest states"
    ),
    "cells-do-not-cover": "the cells of a map leave out a part of its region, or are not its parts",
    "cell-mismatch": "a certificate of a map is about another cell, or another condition",
    "radius-not-proved": (
        "no accepted certificate settles the threshold at a radius that is named, or the two of an "
        "input ask different questions"
    ),
}
ERRORS = {
    "unreadable": "a file does not exist or is not what its name says",
    "malformed": (
        "a file lacks something it must hold, holds it in the wrong shape, or holds something else"
    ),
    "unsupported": "a layer, posterior family, norm or rule that this checker does not know",
    "too-large": "a file asks for more memory or time than its own size and the posterior's allow",
    "not-finite": "a number overflowed on the way: nothing follows",
    "arithmetic": "this machine's floating-point arithmetic is not what the checker relies on",
}
