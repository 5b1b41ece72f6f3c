"""Plans: a campaign with its files read and checked, cut into chunks.

A plan says what each chunk lacks, and what all will cost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from bnncert.ask import as_the_network_sees, labels_of
from bnncert.campaign.schema import Campaign
from bnncert.campaign.work import NOTHING, Bounds, Job, Row, Task, compute, improved
from bnncert.data import Dataset
from bnncert.errors import InputError
from bnncert.files.digest import canonical_json, digest
from bnncert.importers import load_posterior
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.posteriors.base import Posterior
from bnncert.question import Question, selection
from bnncert.results.answers import AT_LEAST
from bnncert.results.rows import Answer, Status
from bnncert.version import __version__

TIMED = 16  # inputs a posterior from which the cost of all is told


class Key(NamedTuple):
    """What a result depends on; equal keys have equal results, up to another machine's rounding."""

    posterior: str  # digest of architecture and posterior
    input: str  # digest of the clean input
    spec: str  # region and condition, canonical JSON
    method: str
    config: str  # options and seed, canonical JSON
    version: str


class Stored(NamedTuple):
    """What the store says of a key."""

    status: str
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Subject:
    """A posterior of the campaign: its name, its file and what is in it."""

    name: str
    path: Path
    network: Network
    posterior: str  # digest
    family: str
    size: int

    @cached_property
    def digest(self) -> str:
        return digest([self.network.digest, self.posterior])


@dataclass(frozen=True, eq=False)
class Chunk:
    """Inputs of the plan, by position, for one posterior.

    `deaths` counts the workers that died over it.
    """

    subject: Subject
    positions: tuple[int, ...]
    deaths: int = 0


@dataclass(frozen=True, eq=False)
class Missing:
    """What a chunk lacks, and what is known of its items.

    It lacks for each method the items without a result.
    """

    wanted: tuple[tuple[int, ...], ...]
    known: Mapping[int, Bounds | None]

    @property
    def nothing(self) -> bool:
        return not any(self.wanted)


@dataclass(frozen=True, eq=False)
class Plan:
    """Subjects x inputs x eps, and the question asked of each.

    Inputs are x [N, *shape], y [N] of `data`, called `indices`.
    """

    subjects: tuple[Subject, ...]
    data: Dataset
    indices: tuple[int, ...]
    x: Tensor
    y: Tensor
    job: Job
    chunk: int
    repeated: int = 0  # inputs that are asked about already

    @cached_property
    def input_digests(self) -> tuple[str, ...]:
        return tuple(digest("input", [x.flatten()]) for x in self.x)

    @cached_property
    def description(self) -> str:
        """Canonical JSON of what is asked: equal for campaigns whose results belong together."""
        job = self.job
        question = self.job.question
        pairs = zip(job.methods, job.configs, strict=True)
        fields: dict[str, Any] = {
            "norm": question.norm,
            "clip": question.clip_of(job.image),
            "target": question.target,
            "tolerance": question.tolerance,
            **({"output": question.output} if question.output else {}),
            "eps": [eps.hex() for eps in question.eps],
            "methods": [[method.name, config] for method, config in pairs],
            "at_least": None if job.at_least is None else str(job.at_least),
            "version": __version__,
        }
        fields |= {"inputs": digest([list(self.indices), list(self.input_digests)], [self.y])}
        return canonical_json(
            fields | {"posteriors": {subject.name: subject.digest for subject in self.subjects}}
        )

    @property
    def items(self) -> int:
        return len(self.subjects) * len(self.indices) * len(self.job.eps)

    def chunks(self, part: int = 1, parts: int = 1) -> list[Chunk]:
        """All chunks, or every parts-th from the part-th on: shards cut no chunk in two."""
        cuts = [
            range(len(self.indices))[start : start + self.chunk]
            for start in range(0, len(self.indices), self.chunk)
        ]
        return [Chunk(subject, tuple(cut)) for subject in self.subjects for cut in cuts][
            part - 1 :: parts
        ]

    def items_of(self, chunk: Chunk) -> int:
        return len(chunk.positions) * len(self.job.eps)

    @cached_property
    def specs(self) -> tuple[tuple[str, ...], ...]:
        """Region and condition of every input and radius, as canonical JSON.

        Exact numbers are hexadecimal.
        """
        question = self.job.question
        clip = question.clip_of(self.job.image)
        regions = [{"norm": question.norm, "eps": eps.hex(), "clip": clip} for eps in question.eps]
        conditions: list[dict[str, Any]] = [
            {"label": value, "target": question.target} for value in self.y.tolist()
        ]
        if question.tolerance is not None:
            distance = float(question.tolerance).hex()
            output = {"output": question.output} if question.output else {}
            conditions = [
                {"y": float(value).hex(), "tolerance": distance} | output
                for value in self.y.tolist()
            ]
        return tuple(
            tuple(canonical_json(region | asked) for region in regions) for asked in conditions
        )

    def key(self, chunk: Chunk, item: int, method: int) -> Key:
        several = len(self.job.eps)
        position = chunk.positions[item // several]
        name = self.job.methods[method].name
        config = self.job.configs[method]
        digests = (chunk.subject.digest, self.input_digests[position])
        return Key(*digests, self.specs[position][item % several], name, config, __version__)

    def missing(self, chunk: Chunk, stored: Mapping[Key, Stored]) -> Missing:
        """Errors are tried again; an item that stored results decide wants nothing more."""
        wanted: list[list[int]] = [[] for _ in self.job.methods]
        known: dict[int, Bounds | None] = {}
        for item in range(self.items_of(chunk)):
            found = [stored.get(self.key(chunk, item, method)) for method in range(len(wanted))]
            for result in found:
                if result is not None and result.status != Status.ERROR:
                    known[item] = improved(
                        known.get(item, NOTHING), result.status, (result.lower, result.upper)
                    )
            if self.job.open(known.get(item, NOTHING)):
                for method, result in enumerate(found):
                    if result is None or result.status == Status.ERROR:
                        wanted[method].append(item)
        return Missing(tuple(map(tuple, wanted)), known)

    def task(self, chunk: Chunk, missing: Missing, device: str) -> Task:
        positions = list(chunk.positions)
        subject = chunk.subject
        return Task(
            subject.path,
            (subject.network.digest, subject.posterior),
            self.x[positions],
            self.y[positions],
            tuple(self.indices[position] for position in positions),
            self.job,
            missing.wanted,
            missing.known,
            device,
        )

    def halves(self, chunk: Chunk) -> list[Chunk]:
        """Two smaller chunks; none if there is but one input."""
        middle = len(chunk.positions) // 2
        parts = (chunk.positions[:middle], chunk.positions[middle:])
        return [Chunk(chunk.subject, part) for part in parts] if middle else []

    def failed(self, chunk: Chunk, missing: Missing, reason: str) -> tuple[Row, ...]:
        """Rows that say that nothing is known, and why."""
        said = " ".join(reason.split()) or "no reason was given"
        pairs = [(item, method) for method, items in enumerate(missing.wanted) for item in items]
        return tuple(Row(item, m, self._unknown(chunk, item, m), reason=said) for item, m in pairs)

    def _unknown(self, chunk: Chunk, item: int, method: int) -> Answer:
        several = len(self.job.eps)
        position = chunk.positions[item // several]
        return Answer(
            index=self.indices[position],
            label=None,
            target=self.job.question.target,
            predicted=None,
            status=Status.ERROR,
            lower=NOTHING[0],
            upper=NOTHING[1],
            at_least=str(AT_LEAST if self.job.at_least is None else self.job.at_least),
            method=self.job.methods[method].name,
            eps=self.job.eps[item % several],
            bound_calls=0,
            seconds=0.0,
            seed=self.job.seed,
        )


def make_plan(campaign: Campaign) -> Plan:
    """Read and check everything the campaign names; what could only fail later fails here."""
    loaded = [(name, path, *load_posterior(path)) for name, path in campaign.posteriors.items()]
    question, data = _seen(campaign.question, [network for _, _, network, _ in loaded])
    indices = selection(question.select, len(data.x))
    x, y = data.x[indices], labels_of(data, indices)
    kept = _different(x, y)
    repeated = len(indices) - len(kept)
    indices = [indices[i] for i in kept]
    x, y = x[kept], y[kept]
    configs = tuple(_config(method, campaign.seed) for method in campaign.methods)
    job = Job(question, data.image, campaign.methods, configs, campaign.seed, campaign.at_least)
    for name, _, network, posterior in loaded:
        try:
            _check(network, posterior, job, x, y, campaign.chunk)
        except InputError as error:
            raise InputError(f"posterior {name!r}: {error}") from error
    subjects = [
        Subject(name, path.resolve(), network, posterior.digest, posterior.family, posterior.size)
        for name, path, network, posterior in loaded
    ]
    if len({subject.digest for subject in subjects}) < len(subjects):
        raise InputError("two posteriors of the campaign are the same; name each once")
    return Plan(tuple(subjects), data, tuple(indices), x, y, job, campaign.chunk, repeated)


def _seen(question: Question, networks: Sequence[Network]) -> tuple[Question, Dataset]:
    """The question and its data as all of the networks see them."""
    first = networks[0]
    if any(network.standardisation != first.standardisation for network in networks):
        raise InputError(
            "the posteriors are standardised differently, and their radii mean different things; "
            "give each a campaign of its own"
        )
    return as_the_network_sees(question, first)


def _different(x: Tensor, y: Tensor) -> list[int]:
    """Positions without repeated inputs: one question has one result, and is counted once."""
    first: dict[tuple[str, float], int] = {}
    for i, (image, value) in enumerate(zip(x, y.tolist(), strict=True)):
        first.setdefault((digest("input", [image.flatten()]), value), i)
    return list(first.values())


def _config(method: Method, seed: int) -> str:
    options: dict[str, Any] = asdict(method) if is_dataclass(method) else {}
    return canonical_json(options | {"seed": seed})


def _check(
    network: Network, posterior: Posterior, job: Job, x: Tensor, y: Tensor, chunk: int
) -> None:
    """Regions, labels and shapes of all inputs; every method must do with such a posterior."""
    for start in range(0, len(x), chunk):
        part = slice(start, start + chunk)
        Problem(network, posterior, job.specification(network, x[part], y[part]))
    for method in job.methods:
        if not isinstance(posterior, method.posteriors):
            raise InputError(
                f"family {posterior.family!r} is not for method {method.name}; "
                "give it a campaign of its own"
            )


@dataclass(frozen=True)
class Cost:
    """What a subject would take on one worker, told from a few of its inputs."""

    subject: Subject
    seconds: float
    bytes: float


def estimate_cost(plan: Plan, device: str) -> list[Cost]:
    """Each subject's seconds and bytes of certificates, scaled up from a few inputs."""
    count = min(TIMED, len(plan.indices))
    spread = tuple(sorted({k * len(plan.indices) // count for k in range(count)}))
    costs = []
    for subject in plan.subjects:
        first = Chunk(subject, spread[:1])
        chunk = Chunk(subject, spread)
        # Reads the file, warms the device up.
        compute(plan.task(first, plan.missing(first, {}), device))
        task = plan.task(chunk, plan.missing(chunk, {}), device)
        started = time.perf_counter()
        size = len(compute(task).bundle)
        seconds = time.perf_counter() - started
        scale = len(plan.indices) / len(spread)
        costs.append(Cost(subject, seconds * scale, size * scale))
    return costs


def read_shard(text: str) -> tuple[int, int]:
    """i/n, with i from 1 to n."""
    ends = text.split("/")
    if (
        len(ends) != 2
        or not all(end.isdecimal() for end in ends)
        or not 1 <= int(ends[0]) <= int(ends[1])
    ):
        raise InputError(f"shard {text!r} is not I/N; give for example 1/8, ..., 8/8")
    return int(ends[0]), int(ends[1])


def bundle_name(plan: Plan, chunk: Chunk, missing: Missing) -> str:
    """By what is computed: the same work overwrites its own file, and other work never does."""
    keys: Sequence[object] = [
        plan.key(chunk, item, method)
        for method, items in enumerate(missing.wanted)
        for item in items
    ]
    return (
        f"{chunk.subject.digest[:8]}-{plan.indices[chunk.positions[0]]:06d}-{digest(keys)[:16]}.zip"
    )
