"""Work: what a worker computes for one chunk of inputs; everything it needs is in the task, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.campaign.bundle import member_name, pack
from bnncert.certificate import Result, answer
from bnncert.certification import certify
from bnncert.digest import digest
from bnncert.errors import InputError
from bnncert.importers import load_posterior
from bnncert.memory import keep_freed_memory
from bnncert.methods import Method
from bnncert.network import Network
from bnncert.posterior import Posterior
from bnncert.problem import Problem
from bnncert.question import condition_on, region_of
from bnncert.specification import Clip, Specification

Bounds: TypeAlias = tuple[float, float]
NOTHING: Bounds = (0.0, 1.0)


@dataclass(frozen=True)
class Question:
    """What is asked of every input: regions, condition, methods in order and when an answer is good enough."""

    eps: tuple[float, ...]
    norm: str
    clip: Clip
    target: int | None
    tolerance: float | None
    methods: tuple[Method, ...]
    configs: tuple[str, ...]
    seed: int
    at_least: Decimal | None

    def specification(self, network: Network, x: Tensor, y: Tensor) -> Specification:
        """Item i·E + e is input i with radius number e of E."""
        radii = torch.tensor(self.eps, dtype=torch.float64).repeat(len(x))
        inputs, labels = x.repeat_interleave(len(self.eps), 0), y.repeat_interleave(len(self.eps), 0)
        region = region_of(network, inputs, radii, self.norm, self.clip)
        return condition_on(network, region, labels, self.target, self.tolerance)

    def open(self, bounds: Bounds | None) -> bool:
        """Whether an item with these bounds so far (None: it is misclassified, and no method can help) goes on."""
        if self.at_least is None:
            return True
        return bounds is not None and answer(*bounds, self.at_least) == "unknown"


@dataclass(frozen=True, eq=False)
class Task:
    """A chunk of inputs x [n, *shape], y [n] for one posterior.

    wanted: for each method the items of which there is no result. known: what stored results say of the items.
    digests: of architecture and posterior; a file that holds another is refused.
    """

    posterior: Path
    digests: tuple[str, str]
    x: Tensor
    y: Tensor
    indices: tuple[int, ...]
    question: Question
    wanted: tuple[tuple[int, ...], ...]
    known: Mapping[int, Bounds | None]
    device: str


@dataclass(frozen=True)
class Row:
    """A method's answer for one item of a task; `member` is its certificate in the bundle, `reason` that of errors."""

    item: int
    method: int
    status: str
    predicted: int | None
    lower: float
    upper: float
    bound_calls: int = 0
    seconds: float = 0.0
    member: str | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Computed:
    """The rows of a task and the bundle of their certificates."""

    rows: tuple[Row, ...]
    bundle: bytes


def compute(task: Task) -> Computed:
    """Every wanted result of the chunk: each method on the items that those before it left open.

    An item's numbers depend on the posterior, the input, the region, the method, its options and the seed alone: draws
    are numbered, never taken in the order of the work.
    """
    network, posterior = _model(task.posterior, task.digests, task.device)
    question = task.question
    spec = question.specification(network, task.x, task.y)
    problem = Problem(network, posterior, spec.to(task.device))
    best = dict(task.known)
    rows: list[Row] = []
    members: list[tuple[str, bytes]] = []
    for number, wanted in enumerate(task.wanted):
        items = [item for item in wanted if question.open(best.get(item, NOTHING))]
        method = f"{question.methods[number].name}-{digest(question.configs[number])[:8]}"
        for item, result in zip(items, _certified(problem, items, task, number), strict=True):
            name = None
            if result.certificate is not None:
                name = member_name(result.index, result.eps, method)
                members.append((name, result.certificate.content()))
            rows.append(_row(item, number, result, name))
            best[item] = improved(best.get(item, NOTHING), result.status, (result.lower, result.upper))
    return Computed(tuple(rows), pack(members) if members else b"")


def improved(bounds: Bounds | None, status: str, found: Bounds) -> Bounds | None:
    """What is known of an item after another answer: both hold, so the tighter ends do."""
    if bounds is None or status == "misclassified":
        return None
    return max(bounds[0], found[0]), min(bounds[1], found[1])


def _certified(problem: Problem, items: Sequence[int], task: Task, number: int) -> tuple[Result, ...]:
    if not items:
        return ()
    question, several = task.question, len(task.question.eps)
    part = problem if len(items) == len(problem) else problem[torch.tensor(items)]
    names = [task.indices[item // several] for item in items]
    return certify(part, question.methods[number], seed=question.seed, indices=names)


def _row(item: int, number: int, result: Result, member: str | None) -> Row:
    bounds = (result.lower, result.upper)
    return Row(item, number, result.status, result.predicted, *bounds, result.bound_calls, result.seconds, member)


@lru_cache(maxsize=2)
def _model(path: Path, digests: tuple[str, str], device: str) -> tuple[Network, Posterior]:
    keep_freed_memory()  # in whatever process a chunk is computed
    network, posterior = load_posterior(path)
    if (network.digest, posterior.digest) != digests:
        raise InputError(f"posterior file {str(path)!r} is not the one that was planned; put it back or plan again")
    return network, posterior.to(device)
