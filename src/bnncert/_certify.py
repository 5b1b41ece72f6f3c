"""The front door: certify(problem, method) and decide(problem), one row per input.

Inputs are worked on in batches that fit the device's memory. After each, `progress` is called; an
interrupt (Ctrl-C) ends the work, and what is known so far is returned, marked as interrupted. Where
nothing is, it is raised as ever. In a notebook a line below the cell shows how far it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import torch

from bnncert.bounds.neurons import widest
from bnncert.concentration.functional import WORKING_TENSORS
from bnncert.concentration.predictive import Prediction, predict, quantity
from bnncert.errors import InputError
from bnncert.estimate import estimate
from bnncert.evidence import bound_names
from bnncert.evidence.certificate import Certificate, Found, certificate_for
from bnncert.evidence.predictive import MEAN, SOFTMAX
from bnncert.methods import Method, default_method, method_of
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, interval_of
from bnncert.model.standardisation import Column, Standardisation
from bnncert.numerics.batching import slices
from bnncert.numerics.rounding import ALLOWANCE, MEAN_ALLOWANCE, allow
from bnncert.outcome import Outcome
from bnncert.results.answers import AT_LEAST, Threshold, status, threshold
from bnncert.results.manifest import (
    Chosen,
    Manifest,
    Question,
    around,
    condition_of,
    subject,
    written_now,
)
from bnncert.results.notebook import notebook_progress
from bnncert.results.rows import P_SAFE, Decision, Result, Status
from bnncert.results.sequence import Decisions, Results

Progress: TypeAlias = Callable[[Sequence[Any]], None]  # called with the rows that have come
# Of predictive means what holds of all of them.
NOTHING = {
    MEAN: {"lower": -math.inf, "upper": math.inf},
    SOFTMAX: {"lower": 0.0, "upper": 1.0, "gap": -1.0},
}


def certify(
    problem: Problem,
    method: Method | str | None = None,
    *,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    samples: int = 0,
    at_least: Threshold | None = None,
    progress: Progress | None = None,
) -> Results:
    """Certified bounds of P_safe for every input of the problem, by `default_method` unless a
    method is given: an object with its options, or the name of one.

    at_least: the threshold that statuses speak of: that of the method if it has one, else 0.95.
    indices: what to call the inputs in the results (positions in a data set, say); 0, 1, ... unless
    given. samples: networks to draw for an uncertified estimate beside each result; 0 for none.

    >>> import torch
    >>> from bnncert import Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))
    index  label  predicted     status  lower  upper
        0      -          -  certified      1      1
    """
    chosen = default_method(problem.posterior) if method is None else method_of(method)
    names = _named(problem, indices)
    own = getattr(chosen, "at_least", None) if at_least is None else at_least
    asked = threshold(AT_LEAST if own is None else own)
    if not 0 <= seed < 2**31:
        raise InputError(f"seed is {seed}; give a whole number from 0 to {2**31 - 1}")

    def batch(part: slice) -> tuple[list[Result], bool]:
        return _certified(problem[part], chosen, seed, names[part], samples, asked)

    about = partial(_about, problem, str(asked), P_SAFE, _options(chosen), seed, samples)
    return Results(*_in_turn(problem, batch, progress), about)


def decide(
    problem: Problem,
    *,
    effort: int = 1,
    indices: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Decisions:
    """Certified bounds of the posterior-predictive mean for every input of the problem.

    P_safe asks how many networks are robust; this asks whether their average is. These are
    different quantities: the mean of many networks may keep its class where none of them does, and
    a few confident ones may sway it.

    effort: 0 for plain slopes, 1 to optimise them. indices: what to call the inputs; 0, 1, ...
    unless given.

    >>> from bnncert import ball, mlp, output_interval
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> near = output_interval(ball(torch.ones(1, 1).double(), 0.1), low=1.8, high=2.2)
    >>> found = decide(Problem(mlp(1, 1), Normal(ones, ones / 10), near))[0]  # E y = x + 1
    >>> round(found.lower, 2), round(found.upper, 2), found.status
    (1.9, 2.1, <Status.DECIDED: 'decided'>)
    """
    names = _named(problem, indices)
    if effort not in (0, 1):
        raise InputError(f"effort is {effort}; choose 0 or 1")
    kind = quantity(problem.specification)  # which says what is wrong with it, if anything is

    def batch(part: slice) -> tuple[list[Decision], bool]:
        return _decided(problem[part], effort, names[part]), False

    about = partial(_about, problem, None, kind, {"name": "predictive", "effort": effort})
    return Decisions(*_in_turn(problem, batch, progress), about)


def _options(method: Method) -> dict[str, Any]:
    """The name of a method and its options."""
    return {"name": method.name, **(asdict(method) if is_dataclass(method) else {})}


def _about(
    problem: Problem,
    at_least: str | None,
    quantity: str,
    options: dict[str, Any],
    seed: int = 0,
    estimate: int = 0,
) -> Manifest:
    """What a folder of these results says of them: posteriors and inputs of Python have no file."""
    spec = problem.specification
    asked = Question(
        (subject(problem.network, problem.posterior, None),),
        around(spec.region),
        condition_of(spec),
        quantity,
        at_least,
    )
    own = {name: value for name, value in options.items() if name != "name"}
    chosen = Chosen(options["name"], own)
    device = spec.rows.device.type
    columns = problem.network.standardisation or Standardisation()
    return written_now(
        asked,
        (chosen,),
        seed=seed,
        estimate=estimate,
        features=columns.inputs,
        outputs=columns.outputs,
        device=device,
        command=False,
    )


def _in_turn(
    problem: Problem, batch: Callable[[slice], tuple[list[Any], bool]], progress: Progress | None
) -> tuple[tuple[Any, ...], bool]:
    """The rows of all batches, and whether the work was interrupted."""
    rows: list[Any] = []
    show = progress or notebook_progress(len(problem)) or (lambda _: None)
    device = problem.specification.rows.device
    most = widest(problem.network, len(problem.network.layers))
    each = 8 * WORKING_TENSORS * problem.specification.rows.shape[1] * most
    # float64 keeps TF32 and the default dtype out; autocast must be switched off by hand.
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for part in slices(len(problem), each, device):
            try:
                found, interrupted = batch(part)
            except KeyboardInterrupt:
                if not rows:
                    raise
                return tuple(rows), True
            rows += found
            show(found)
            if interrupted:
                return tuple(rows), True
    return tuple(rows), False


def _named(problem: Problem, indices: Sequence[int] | None) -> list[int]:
    """What the inputs are called."""
    names = list(range(len(problem)) if indices is None else indices)
    if len(names) != len(problem):
        raise InputError(f"{len(names)} indices for {len(problem)} inputs; give one per input")
    return names


def _observed(problem: Problem) -> list[tuple[int | None, int | None]]:
    """Labels of the inputs, and the classes that the central network gives them.

    None for every input where there are no labels.
    """
    if problem.specification.labels is None:
        return [(None, None)] * len(problem)
    labels = problem.specification.labels.tolist()
    return list(zip(labels, problem.predictions().tolist(), strict=True))


def _asked_of_outputs(problem: Problem, spec: Specification) -> list[dict[str, float]]:
    """Of inputs asked about an interval: what the central network gives, and the interval's ends,
    both as the target was measured; nothing of the others. spec: the problem's, on the CPU."""
    if spec.labels is not None:
        return [{}] * len(problem)
    found = [interval_of(*pair) for pair in zip(spec.rows, spec.offsets, strict=True)]
    center = problem.network.forward(problem.posterior.center, problem.specification.region.center)
    own = problem.network.standardisation
    facts: list[dict[str, float]] = []
    for outputs, interval in zip(center.tolist(), found, strict=True):
        if interval is None:
            facts.append({})
            continue
        output, low, high = interval
        column = own.outputs[output] if own and own.outputs else Column("y")
        ends = {"output": outputs[output], "low": low, "high": high}
        facts.append({name: column.measured(value) for name, value in ends.items()})
    return facts


def _certified(
    problem: Problem, method: Method, seed: int, names: list[int], samples: int, at_least: Decimal
) -> tuple[list[Result], bool]:
    """The results of a batch, and whether its search was interrupted."""
    started = time.perf_counter()
    outcomes = method(problem, seed)
    drawn = estimate(problem, samples, seed) if samples else [None] * len(problem)
    observed = _observed(problem)
    seconds = (time.perf_counter() - started) / max(1, len(problem))
    # Everything that is stored comes from the device at once: thousands of small copies would
    # outlast the bounds.
    digests = problem.network.digest, problem.posterior.digest
    spec = problem.specification.to("cpu")
    targets = spec.targets()
    asked = _asked_of_outputs(problem, spec)
    options = _options(method)
    results = []
    for i, outcome in enumerate(outcomes):
        label, predicted = observed[i]
        lower, upper = allow(outcome.lower, outcome.upper)
        own = spec[i : i + 1]
        found, by = Found(options, outcome.bound_calls, seed), bound_names(outcome.evidence)
        results.append(
            Result(
                index=names[i],
                label=label,
                target=targets[i],
                predicted=predicted,
                status=status(label, predicted, lower, upper, at_least),
                lower=lower,
                upper=upper,
                at_least=str(at_least),
                method=method.name,
                eps=float(own.region.eps[0]),
                bound_calls=outcome.bound_calls,
                seconds=seconds,
                seed=seed,
                lower_by=by[0] if lower > 0 else None,
                upper_by=by[1] if upper < 1 else None,
                estimate=drawn[i],
                certificate=_proved(digests, own, lower, upper, outcome, found),
                **asked[i],
            )
        )
    return results, any(outcome.interrupted for outcome in outcomes)


def _proved(
    digests: tuple[str, str],
    spec: Specification,
    lower: float,
    upper: float,
    outcome: Outcome,
    found: Found,
) -> Certificate | None:
    if not (lower > 0 or upper < 1):
        return None
    claim = {"lower": lower, "upper": upper}
    return certificate_for(digests, spec, claim, outcome.evidence, found)


def _decided(problem: Problem, effort: int, names: list[int]) -> list[Decision]:
    started = time.perf_counter()
    kind = quantity(problem.specification)
    predictions = predict(problem, effort)
    observed = _observed(problem)
    seconds = (time.perf_counter() - started) / max(1, len(problem))
    digests = problem.network.digest, problem.posterior.digest
    spec = problem.specification.to("cpu")
    asked = _asked_of_outputs(problem, spec)
    found = Found({"name": "predictive", "effort": effort})
    decisions = []
    for i, prediction in enumerate(predictions):
        claim = _claim(prediction)
        own = spec[i : i + 1]
        certificate = (
            certificate_for(digests, own, claim, prediction.evidence, found)
            if claim != NOTHING[kind]
            else None
        )
        label, predicted = observed[i]
        decisions.append(
            Decision(
                index=names[i],
                label=label,
                predicted=predicted,
                status=Status.DECIDED if _is_decided(own, claim) else Status.UNDECIDED,
                quantity=kind,
                lower=claim["lower"],
                upper=claim["upper"],
                gap=claim.get("gap"),
                eps=float(own.region.eps[0]),
                seconds=seconds,
                certificate=certificate,
                **asked[i],
            )
        )
    return decisions


def _claim(found: Prediction) -> dict[str, float]:
    """The bounds, a little wider: a checker whose roundings differ must still support them.

    Of a mean they differ by a share of the numbers that were summed, which may be far larger than
    what is left of them. Those that overflow say nothing.
    """
    if found.gap is None:
        slack = ALLOWANCE * (found.upper - found.lower) + MEAN_ALLOWANCE * found.size
        lower, upper = found.lower - slack, found.upper + slack
        known = math.isfinite(upper - lower)
        return {"lower": lower, "upper": upper} if known else NOTHING[MEAN]
    lower, upper = allow(found.lower, found.upper)
    gap = max(found.gap - ALLOWANCE * (1 - found.gap**2), -1.0)
    return {"lower": lower, "upper": max(lower, upper), "gap": gap}


def _is_decided(spec: Specification, claim: dict[str, float]) -> bool:
    if "gap" in claim:
        return claim["gap"] > 0
    rows, offsets = spec.rows[0], spec.offsets[0]
    ends = [claim["lower"] if bool((row == rows[0]).all()) else -claim["upper"] for row in rows]
    return all(end > -float(offset) for end, offset in zip(ends, offsets, strict=True))
