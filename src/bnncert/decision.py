"""Decision robustness: what the posterior-predictive mean does on a whole region, certified.

P_safe asks how many networks are robust; this asks whether their average is. These are different quantities: the mean
of many networks may keep its class where none of them does, and a few confident ones may sway it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bnncert.certificate import Certificate
from bnncert.certification import certificate_for, named, observed
from bnncert.errors import InputError
from bnncert.methods.predictive import Prediction, predict, quantity
from bnncert.problem import Problem
from bnncert.rounding import ALLOWANCE, MEAN_ALLOWANCE, allow
from bnncert.specification import Specification


@dataclass(frozen=True, eq=False)
class Decision:
    """lower <= predictive mean <= upper for every x of one input's region, certified.

    quantity: "softmax", the probability of the label under the averaged softmax, or "mean", of a regression output.
    gap: the label's predictive probability exceeds every rival's by at least this on the whole region (softmax only).
    status: "decided" if the averaged network keeps the label, or its mean the interval asked for, on the whole region;
    else "undecided".
    """

    index: int
    label: int | None
    predicted: int | None
    status: str
    quantity: str
    lower: float
    upper: float
    gap: float | None
    eps: float
    seconds: float
    certificate: Certificate | None

    def line(self, certificate: str | None) -> str:
        """The decision as one JSON line, the certificate by its path."""
        fields = {name: value for name, value in vars(self).items() if name != "certificate"}
        return json.dumps(fields | {"certificate": certificate}, allow_nan=False)


def decide(problem: Problem, *, effort: int = 1, indices: Sequence[int] | None = None) -> tuple[Decision, ...]:
    """Certified bounds of the posterior-predictive mean for every input of the problem.

    effort: 0 for plain slopes, 1 to optimise them. indices: what to call the inputs; 0, 1, ... unless given.
    """
    names, spec = named(problem, indices), problem.specification
    if effort not in (0, 1):
        raise InputError(f"effort is {effort}; choose 0 or 1")
    kind, started = quantity(spec), time.perf_counter()
    with torch.no_grad(), torch.autocast(problem.posterior.center.device.type, enabled=False):
        found = predict(problem, effort)
    labels, predicted = observed(problem)
    seconds = (time.perf_counter() - started) / max(1, len(problem))
    digests, spec = (problem.network.digest, problem.posterior.digest), spec.to("cpu")
    method, radii = {"name": "predictive", "effort": effort}, spec.region.eps.tolist()
    decisions = []
    for i, prediction in enumerate(found):
        claim, own = _claim(prediction), spec[i : i + 1]
        known = kind == "mean" or claim["lower"] > 0 or claim["upper"] < 1 or claim["gap"] > -1
        certificate = certificate_for(digests, own, kind, claim, prediction.evidence, prediction.tensors, method)
        decisions.append(
            Decision(
                index=names[i],
                label=labels[i],
                predicted=predicted[i],
                status="decided" if _decided(own, claim) else "undecided",
                quantity=kind,
                lower=claim["lower"],
                upper=claim["upper"],
                gap=claim.get("gap"),
                eps=radii[i],
                seconds=seconds,
                certificate=certificate if known else None,
            )
        )
    return tuple(decisions)


def _claim(found: Prediction) -> dict[str, float]:
    """The bounds, a little wider: a checker whose roundings differ must still support them.

    Of a mean they differ by a share of the numbers that were summed, which may be far larger than what is left of them.
    """
    if found.gap is None:
        slack = ALLOWANCE * (found.upper - found.lower) + MEAN_ALLOWANCE * found.size
        return {"lower": found.lower - slack, "upper": found.upper + slack}
    lower, upper = allow(found.lower, found.upper)
    return {"lower": lower, "upper": max(lower, upper), "gap": max(found.gap - ALLOWANCE * (1 - found.gap**2), -1.0)}


def _decided(spec: Specification, claim: dict[str, float]) -> bool:
    if "gap" in claim:
        return claim["gap"] > 0
    rows, offsets = spec.rows[0], spec.offsets[0]
    ends = [claim["lower"] if bool((row == rows[0]).all()) else -claim["upper"] for row in rows]
    return all(end > -float(offset) for end, offset in zip(ends, offsets, strict=True))
