"""Evidence: for each kind a strict reader of what a certificate holds, and what follows from it.

A reader takes the JSON value `evidence` and the tensors, demands every field, shape, type, count
and range, and gives a frozen value; only then `supported` runs any mathematics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bnncert_check.evidence import boxes, concentration, networks, predictive
from bnncert_check.grammar import Tensors
from bnncert_check.model import Model
from bnncert_check.question import Question
from bnncert_check.verdict import MEAN, P_SAFE, SOFTMAX, Support


class Evidence(Protocol):
    """Evidence of some kind, as it was read."""

    def supported(self, question: Question, model: Model) -> Support:
        """What follows from it about the question."""
        ...


READERS: dict[str, Callable[[Any, Tensors, Question, Model], Evidence]] = {
    "boxes": boxes.read,
    "concentration": concentration.read,
    "networks": networks.read,
    SOFTMAX: predictive.read_softmax,
    MEAN: predictive.read_mean,
}
QUANTITIES = {
    "boxes": P_SAFE,
    "concentration": P_SAFE,
    "networks": P_SAFE,
    SOFTMAX: SOFTMAX,
    MEAN: MEAN,
}
