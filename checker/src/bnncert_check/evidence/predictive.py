"""Predictive means: weighted sums over the components of a Gaussian posterior, or means over the
networks of an empirical one, of lower bounds of the mean, of 1 minus it (or of its negative), and
of the gap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from bnncert_check.arithmetic import as_probability, lower_float, upper_float
from bnncert_check.evidence.concentration import require_weight
from bnncert_check.evidence.proof import Asked, read_slopes
from bnncert_check.grammar import Tensors, listed, members, whole
from bnncert_check.model import EMPIRICAL, GAUSSIAN, Model
from bnncert_check.predictive import Means, direction_means, network_means, softmax_means
from bnncert_check.proofs import Proof
from bnncert_check.question import Question
from bnncert_check.verdict import CannotCheck, Support

WHAT = "a predictive mean"


@dataclass(frozen=True)
class Predictive:
    """For every component proofs of the rows and of their negatives; None where the posterior lists
    its networks."""

    softmax: bool
    proofs: tuple[tuple[Proof, Proof], ...] | None

    def supported(self, question: Question, model: Model) -> Support:
        weights, found = self._means(question, model)
        total = sum(map(arb, weights), arb(0))
        low, high, lead = (
            sum(
                (arb(weight) * means[k] for weight, means in zip(weights, found, strict=True)),
                arb(0),
            )
            / total
            for k in range(3)
        )
        if not self.softmax:
            return Support(lower_float(low), upper_float(-high))
        return Support(
            as_probability(lower_float(low)),
            as_probability(upper_float(1 - high)),
            lower_float(lead),
        )

    def _means(self, question: Question, model: Model) -> tuple[list[float], list[Means]]:
        region, rows = question.region, question.rows if self.softmax else question.rows[:1]
        if self.proofs is None:
            samples = model.only(EMPIRICAL, WHAT).fields["samples"]
            return [1.0] * len(samples), [
                network_means(model, w, region, rows, self.softmax) for w in samples
            ]
        components, means = (
            model.all_of(GAUSSIAN, WHAT),
            softmax_means if self.softmax else direction_means,
        )
        pairs = zip(components, self.proofs, strict=True)
        found = [
            means(model, component.posterior, region, rows, proofs) for component, proofs in pairs
        ]
        return [component.weight for component in components], found


def read_softmax(value: Any, tensors: Tensors, question: Question, model: Model) -> Predictive:
    """Rows of one class against every other, each once: what repeats would count twice among the
    rivals."""
    if not question.against_all:
        raise CannotCheck(
            "unsupported", "a predictive probability needs one class against every other, each once"
        )
    return _read(value, tensors, len(question.rows), model, softmax=True)


def read_mean(value: Any, tensors: Tensors, question: Question, model: Model) -> Predictive:
    first = question.rows[0]
    if not all(np.array_equal(row, first) or np.array_equal(row, -first) for row in question.rows):
        raise CannotCheck("unsupported", "a predictive mean needs output rows of one direction")
    return _read(value, tensors, 1, model, softmax=False)


def _read(value: Any, tensors: Tensors, rows: int, model: Model, softmax: bool) -> Predictive:
    if all(component.posterior.family in EMPIRICAL for component in model.components):
        count = len(model.only(EMPIRICAL, WHAT).fields["samples"])
        whole(
            members(value, "the evidence", ("networks",))["networks"],
            "the number of networks",
            count,
            count,
        )
        return Predictive(softmax, None)
    components = model.all_of(GAUSSIAN, WHAT)
    entries = listed(
        members(value, "the evidence", ("components",))["components"],
        "the components",
        len(components),
    )
    proofs = []
    for i, (entry, component) in enumerate(zip(entries, components, strict=True)):
        part = members(entry, f"component {i}", ("weight", "lower", "upper"))
        asked = Asked(model, component.posterior, rows, tensors)
        require_weight(part["weight"], component, i)
        below = read_slopes(part["lower"], f"c{i}.", asked)
        proofs.append((below, read_slopes(part["upper"], f"c{i}.upper.", asked)))
    return Predictive(softmax, tuple(proofs))
