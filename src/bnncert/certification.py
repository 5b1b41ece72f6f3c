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
from bnncert.digest import digest
from bnncert.errors import InputError
from bnncert.methods import Method, default_method
from bnncert.methods.statistical import estimate
from bnncert.problem import Problem
from bnncert.rounding import allow
from bnncert.specification import Specification
from bnncert.version import __version__


def certify(
    problem: Problem,
    method: Method | None = None,
    *,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    samples: int = 0,
) -> tuple[Result, ...]:
    """Certified bounds of P_safe for every input of the problem, by `default_method` unless a method is given.

    indices: what to call the inputs in the results (positions in a data set, say); 0, 1, ... unless given.
    samples: networks to draw for an uncertified estimate beside each result; 0 for none.
    """
    method = method or default_method(problem.posterior)
    names = named(problem, indices)
    if not 0 <= seed < 2**31:
        raise InputError(f"seed is {seed}; give a whole number from 0 to {2**31 - 1}")
    started = time.perf_counter()
    # float64 keeps TF32 and the default dtype out; autocast must be switched off by hand.
    with torch.no_grad(), torch.autocast(problem.posterior.center.device.type, enabled=False):
        outcomes = method(problem, seed)
        (labels, predicted), targets = observed(problem), problem.specification.targets()
        estimates = estimate(problem, samples, seed) if samples else [None] * len(problem)
    seconds = (time.perf_counter() - started) / max(1, len(problem))
    # Everything that is stored comes from the device at once: thousands of small copies would outlast the bounds.
    digests = problem.network.digest, problem.posterior.digest
    spec = problem.specification.to("cpu")
    radii = spec.region.eps.tolist()
    results = []
    described = {"name": method.name, **(asdict(method) if is_dataclass(method) else {})}
    for i, outcome in enumerate(outcomes):
        label, prediction = labels[i], predicted[i]
        lower, upper = allow(outcome.lower, outcome.upper)
        certificate = None
        if lower > 0 or upper < 1:
            claim, own, found = {"lower": lower, "upper": upper}, spec[i : i + 1], (outcome.evidence, outcome.tensors)
            certificate = certificate_for(
                digests, own, outcome.kind, claim, *found, described, outcome.bound_calls, seed
            )
        results.append(
            Result(
                index=names[i],
                label=label,
                target=targets[i],
                predicted=prediction,
                status="misclassified" if label != prediction else "certified" if lower > 0 else "unverified",
                lower=lower,
                upper=upper,
                method=method.name,
                eps=radii[i],
                bound_calls=outcome.bound_calls,
                seconds=seconds,
                seed=seed,
                estimate=estimates[i],
                certificate=certificate,
            )
        )
    return tuple(results)


def named(problem: Problem, indices: Sequence[int] | None) -> list[int]:
    """What the inputs are called."""
    names = list(range(len(problem)) if indices is None else indices)
    if len(names) != len(problem):
        raise InputError(f"{len(names)} indices for {len(problem)} inputs; give one an input")
    return names


def observed(problem: Problem) -> tuple[list[int] | list[None], list[int] | list[None]]:
    """Labels of the inputs, and the classes that the central network gives them; Nones where there are no labels."""
    if problem.specification.labels is None:
        return [None] * len(problem), [None] * len(problem)
    return problem.specification.labels.tolist(), problem.predictions().tolist()


def certificate_for(
    digests: tuple[str, str],
    spec: Specification,
    kind: str,
    claim: dict[str, float],
    evidence: dict[str, Any],
    tensors: dict[str, Tensor],
    method: dict[str, Any],
    bound_calls: int = 0,
    seed: int = 0,
) -> Certificate:
    """The claim about one input with everything a checker needs beside the posterior; digests: of the architecture and
    of the posterior."""
    region = spec.region
    explicit = region.norm == "box"
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": kind,
        "digests": {
            "architecture": digests[0],
            "posterior": digests[1],
            "specification": spec.digest,
            "problem": digest([*digests, spec.digest]),
        },
        "region": {"norm": region.norm, "clip": region.clip, "eps": None if explicit else float(region.eps[0]).hex()},
        "claim": {name: value.hex() for name, value in claim.items()},
        "evidence": evidence,
        "method": method,
        "bound_calls": bound_calls,
        "seed": seed,
        "versions": {"bnncert": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    question = {"x": region.center, "rows": spec.rows, "offsets": spec.offsets}
    question |= {"lower": region.box.lower, "upper": region.box.upper} if explicit else {}
    return Certificate(header, {name: value[0].clone() for name, value in question.items()} | tensors)
