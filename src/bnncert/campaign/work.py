"""Work: what a worker computes for one chunk of inputs.

Everything it needs is in the task, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert._certify import certify
from bnncert.ask import repeated, specification
from bnncert.campaign.bundle import member_name, pack
from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.importers import load_posterior
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification
from bnncert.numerics.memory import keep_freed_memory
from bnncert.posteriors.base import Posterior
from bnncert.question import Question
from bnncert.results.answers import AT_LEAST, settled
from bnncert.results.rows import Answer, Result, Status

Bounds: TypeAlias = tuple[float, float]
NOTHING: Bounds = (0.0, 1.0)


@dataclass(frozen=True)
class Job:
    """What is asked of every input, by which methods in order, and which answer is good enough."""

    question: Question
    image: (
        bool  # whether the inputs are images, which are clipped unless the question says otherwise
    )
    methods: tuple[Method, ...]
    configs: tuple[str, ...]
    seed: int
    at_least: Decimal | None

    @property
    def eps(self) -> tuple[float, ...]:
        return self.question.eps

    def specification(self, network: Network, x: Tensor, y: Tensor) -> Specification:
        """Item i·E + e is input i with radius number e of E."""
        return specification(self.question, network, *repeated(self.question, x, y), self.image)

    def open(self, bounds: Bounds | None) -> bool:
        """Whether an item with these bounds so far (None: it is misclassified, and no method can
        help) goes on."""
        if self.at_least is None:
            return True
        return bounds is not None and settled(*bounds, self.at_least) == Status.UNDECIDED


@dataclass(frozen=True, eq=False)
class Task:
    """A chunk of inputs x [n, *shape], y [n] for one posterior.

    wanted: for each method the items of which there is no result. known: what stored results say of
    the items. digests: of architecture and posterior; a file that holds another is refused.
    """

    posterior: Path
    digests: tuple[str, str]
    x: Tensor
    y: Tensor
    indices: tuple[int, ...]
    job: Job
    wanted: tuple[tuple[int, ...], ...]
    known: Mapping[int, Bounds | None]
    device: str


@dataclass(frozen=True, eq=False)
class Row:
    """A method's answer for one item of a task.

    `member` is its certificate in the bundle, `reason` that of errors.
    """

    item: int
    method: int
    answer: Answer
    member: str | None = None
    reason: str | None = None


@dataclass(frozen=True, eq=False)
class Computed:
    """The rows of a task and the bundle of their certificates."""

    rows: tuple[Row, ...]
    bundle: bytes


def compute(task: Task) -> Computed:
    """Every wanted result of the chunk: each method on the items that those before it left open.

    An item's numbers depend on the posterior, the input, the region, the method, its options and
    the seed alone: draws are numbered, never taken in the order of the work.
    """
    network, posterior = _model(task.posterior, task.digests, task.device)
    job = task.job
    spec = job.specification(network, task.x, task.y)
    problem = Problem(network, posterior, spec.to(task.device))
    best = dict(task.known)
    rows: list[Row] = []
    members: list[tuple[str, bytes]] = []
    for number, wanted in enumerate(task.wanted):
        items = [item for item in wanted if job.open(best.get(item, NOTHING))]
        method = f"{job.methods[number].name}-{digest(job.configs[number])[:8]}"
        for item, result in zip(items, _certified(problem, items, task, number), strict=True):
            name = None
            if result.certificate is not None:
                name = member_name(result.index, result.eps, method)
                members.append((name, result.certificate.content()))
            rows.append(Row(item, number, _without_certificate(result), name))
            bounds = (result.lower, result.upper)
            best[item] = improved(best.get(item, NOTHING), result.status, bounds)
    return Computed(tuple(rows), pack(members) if members else b"")


def _without_certificate(result: Result) -> Answer:
    """What travels back to the runner beside the bundle."""
    return Answer(**{field.name: getattr(result, field.name) for field in fields(Answer)})


def improved(bounds: Bounds | None, status: str, found: Bounds) -> Bounds | None:
    """What is known of an item after another answer: both hold, so the tighter ends do."""
    if bounds is None or status == Status.MISCLASSIFIED:
        return None
    return max(bounds[0], found[0]), min(bounds[1], found[1])


def _certified(problem: Problem, items: Sequence[int], task: Task, number: int) -> Sequence[Result]:
    if not items:
        return ()
    job = task.job
    several = len(job.eps)
    part = problem if len(items) == len(problem) else problem[torch.tensor(items)]
    names = [task.indices[item // several] for item in items]
    results = certify(
        part,
        job.methods[number],
        seed=job.seed,
        indices=names,
        at_least=AT_LEAST if job.at_least is None else job.at_least,
    )
    if results.interrupted:
        raise KeyboardInterrupt
    return results


@lru_cache(maxsize=2)
def _model(path: Path, digests: tuple[str, str], device: str) -> tuple[Network, Posterior]:
    keep_freed_memory()  # in whatever process a chunk is computed
    network, posterior = load_posterior(path)
    if (network.digest, posterior.digest) != digests:
        raise InputError(
            f"posterior file {str(path)!r} is not the one that was planned; "
            "put it back or plan again"
        )
    return network, posterior.to(device)
