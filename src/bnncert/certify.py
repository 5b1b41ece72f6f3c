"""The front door: certify(problem, method) -> one Result an input."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import Tensor

from bnncert.certificate import SCHEMA, Certificate, Result
from bnncert.errors import InputError
from bnncert.methods import PIE, Method, Outcome
from bnncert.problem import Problem
from bnncert.version import __version__


def certify(
    problem: Problem, method: Method | None = None, *, seed: int = 0, indices: Sequence[int] | None = None
) -> tuple[Result, ...]:
    """Certified bounds of P_safe for every input of the problem, by PIE unless a method is given.

    indices: what to call the inputs in the results (positions in a data set, say); 0, 1, ... unless given.
    """
    method = method or PIE()
    names = list(range(len(problem)) if indices is None else indices)
    if len(names) != len(problem):
        raise InputError(f"{len(names)} indices for {len(problem)} inputs; give one an input")
    if not 0 <= seed < 2**31:
        raise InputError(f"seed is {seed}; give a whole number from 0 to {2**31 - 1}")
    started = time.perf_counter()
    # float64 keeps TF32 and the default dtype out; autocast must be switched off by hand.
    with torch.no_grad(), torch.autocast(problem.posterior.center.device.type, enabled=False):
        predicted = _predictions(problem)
        outcomes = _outcomes(problem, method, seed, predicted)
    seconds = (time.perf_counter() - started) / max(1, len(problem))
    results = []
    for i, outcome in enumerate(outcomes):
        certificate = _certificate(problem[i : i + 1], outcome, method, seed) if outcome and outcome.lower > 0 else None
        results.append(
            Result(
                index=names[i],
                label=_entry(problem.specification.labels, i),
                predicted=_entry(predicted, i),
                status="misclassified" if outcome is None else "certified" if outcome.lower > 0 else "unverified",
                lower=outcome.lower if outcome else 0.0,
                upper=outcome.upper if outcome else 1.0,
                method=method.name,
                eps=float(problem.specification.region.eps[i]),
                bound_calls=outcome.bound_calls if outcome else 0,
                seconds=seconds,
                seed=seed,
                certificate=certificate,
            )
        )
    return tuple(results)


def _predictions(problem: Problem) -> Tensor | None:
    """The mean network's classes at the clean inputs; none without labels."""
    if problem.specification.labels is None:
        return None
    return problem.network.forward(problem.posterior.center, problem.specification.region.center).argmax(-1)


def _outcomes(problem: Problem, method: Method, seed: int, predicted: Tensor | None) -> list[Outcome | None]:
    """The method's answers; None for an input that the mean network already gets wrong."""
    outcomes: list[Outcome | None] = [None] * len(problem)
    labels = problem.specification.labels
    everything = torch.arange(len(problem))
    asked = everything if predicted is None or labels is None else everything[predicted.eq(labels).cpu()]
    if len(asked):
        for i, outcome in zip(asked.tolist(), method(problem[asked], seed), strict=True):
            outcomes[i] = outcome
    return outcomes


def _certificate(problem: Problem, outcome: Outcome, method: Method, seed: int) -> Certificate:
    """The claim about one input with everything a checker needs beside the posterior."""
    spec = problem.specification
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": outcome.kind,
        "digests": {
            "architecture": problem.network.digest,
            "posterior": problem.posterior.digest,
            "specification": spec.digest,
            "problem": problem.digest,
        },
        "region": {"norm": spec.region.norm, "clip": spec.region.clip, "eps": float(spec.region.eps[0]).hex()},
        "claim": {"lower": outcome.lower.hex(), "upper": outcome.upper.hex()},
        "evidence": outcome.evidence,
        "method": {"name": method.name, **(asdict(method) if is_dataclass(method) else {})},
        "bound_calls": outcome.bound_calls,
        "seed": seed,
        "versions": {"bnncert": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    region = spec.region
    question = {"x": region.center, "lower": region.box.lower, "upper": region.box.upper}
    question |= {"rows": spec.rows, "offsets": spec.offsets}
    return Certificate(header, {name: value[0].clone() for name, value in question.items()} | outcome.tensors)


def _entry(values: Tensor | None, index: int) -> int | None:
    return None if values is None else int(values[index])
