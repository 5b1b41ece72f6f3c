"""Certified radii: for each input the largest ε that is certified, and the smallest that is
falsified, at a threshold τ.

P_safe(ε) falls as ε grows, so that there is one radius up to which P_safe >= τ. Certificates
bracket it: where lower(ε) >= τ it is at least ε, and where upper(ε) < τ it is below ε. Both ends
are found by doubling and bisection, all inputs at once; whatever the search does, each end that is
reported has a certificate.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from pathlib import Path

import torch

from bnncert._certify import certify
from bnncert.errors import InputError
from bnncert.files.tensors import write_atomically
from bnncert.methods import Method
from bnncert.model.problem import Problem
from bnncert.model.specification import ball
from bnncert.results.answers import Threshold, settled, threshold
from bnncert.results.folder import RADII, result_folder
from bnncert.results.manifest import Manifest
from bnncert.results.rows import Result, Status

HALVINGS = 20  # of the first radius, after which none above 0 is looked for
PRECISION = 0.01  # of a radius, to which an end is found
FIRST = 0.01


@dataclass(frozen=True)
class Search:
    """Where radii are looked for: from `first` on, none above `largest`, until the ends of a
    bracket differ by no more than this share of the upper one."""

    first: float = FIRST
    largest: float = 1.0
    precision: float = PRECISION

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.largest < math.inf):
            raise InputError(
                f"radii are asked for from {self.first:g} to {self.largest:g}; give two finite "
                "numbers above 0, the smaller one first"
            )
        if not 0 < self.precision < 1:
            raise InputError(f"precision is {self.precision}; give a share between 0 and 1")

    def between(self, low: float, high: float | None) -> float | None:
        """The radius to ask about next: something holds at `low`, and not at `high` (None: not
        known where). None if they are near enough."""
        if high is None:
            return None if low >= self.largest else min(self.largest, max(self.first, 2 * low))
        if low == 0:
            return None if high <= self.first * 2.0**-HALVINGS else high / 2
        middle = low + (high - low) / 2
        near = high - low <= self.precision * high or not low < middle < high
        return None if near else middle


@dataclass(frozen=True)
class Radius:
    """P_safe >= at_least up to `certified`, and not from `falsified` on; None: not known of any.

    The label is that of the input, if it has one.
    """

    index: int
    label: int | None
    at_least: str
    certified: float | None
    falsified: float | None


@dataclass(eq=False)
class _Bracket:
    """What is known of one input: the row of its largest certified and smallest falsified radius,
    and the smallest radius that is not certified and the largest that is not falsified."""

    certified: Result | None = None
    falsified: Result | None = None
    not_certified: float | None = None
    not_falsified: float = 0.0
    clean: Result | None = field(default=None, repr=False)  # at radius 0

    def learn(self, row: Result, at_least: Decimal) -> None:
        said = settled(row.lower, row.upper, at_least)
        eps = row.eps
        if eps == 0:
            self.clean = row
        if said is Status.CERTIFIED:
            if self.certified is None or eps > self.certified.eps:
                self.certified = row
        elif self.not_certified is None or eps < self.not_certified:
            self.not_certified = eps
        if said is Status.FALSIFIED:
            if self.falsified is None or eps < self.falsified.eps:
                self.falsified = row
        else:
            self.not_falsified = max(self.not_falsified, eps)

    def wanted(self, search: Search) -> set[float]:
        """The radii to ask about next: none where a radius 0 leaves nothing to find."""
        found = set()
        if self.certified is not None:
            found.add(search.between(self.certified.eps, self.not_certified))
        if self.falsified is None or self.falsified.eps > 0:
            high = None if self.falsified is None else self.falsified.eps
            found.add(search.between(min(self.not_falsified, high or math.inf), high))
        return {eps for eps in found if eps is not None}

    def rows(self) -> list[Result]:
        """What is kept: a row for each end, or the one that says that neither is known."""
        ends = [row for row in (self.certified, self.falsified) if row is not None]
        return ends or [row for row in (self.clean,) if row is not None]


@dataclass(frozen=True, eq=False)
class Radii:
    """The radii of inputs, and the rows with the certificates that prove them."""

    radii: tuple[Radius, ...]
    rows: tuple[Result, ...]
    interrupted: bool = False

    def save(self, folder: Path, manifest: Manifest | None = None) -> None:
        """Write radii.jsonl beside the results and certificates of a result folder."""
        with result_folder(folder, several_radii=True, manifest=manifest) as store:
            store(self.rows)
        lines = [json.dumps(asdict(radius), allow_nan=False) + "\n" for radius in self.radii]
        write_atomically(folder / RADII, "".join(lines).encode())


def certified_radii(
    problem: Problem,
    method: Method,
    at_least: Threshold,
    *,
    search: Search | None = None,
    seed: int = 0,
    indices: Sequence[int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Radii:
    """The radii of every input of the problem, whose own are not looked at.

    progress: called after every round with the number of inputs that are done, and of bounds so
    far. An interrupt ends the search, and what is known then is returned.
    """
    search = search or Search()
    asked_for = threshold(at_least)
    names = list(range(len(problem)) if indices is None else indices)
    if problem.specification.region.norm == "box":
        raise InputError("radii are those of balls; give a ball, not a box")
    brackets = [_Bracket() for _ in names]
    asked = [(i, 0.0) for i in range(len(names))]
    calls = 0
    interrupted = False
    while asked and not interrupted:
        try:
            found = certify(
                _at(problem, asked),
                method,
                seed=seed,
                indices=range(len(asked)),
                at_least=asked_for,
            )
        except KeyboardInterrupt:
            interrupted = True
            break
        interrupted = found.interrupted
        for row in found:
            i = asked[row.index][0]
            brackets[i].learn(replace(row, index=names[i]), asked_for)
        calls += len(found)
        asked = [(i, eps) for i, one in enumerate(brackets) for eps in sorted(one.wanted(search))]
        if progress is not None:
            progress(len(names) - len({i for i, _ in asked}), calls)
    if interrupted and not any(one.rows() for one in brackets):
        raise KeyboardInterrupt
    return _radii(names, brackets, asked_for, interrupted)


def _at(problem: Problem, asked: Iterable[tuple[int, float]]) -> Problem:
    """The inputs with these radii."""
    index, radii = zip(*asked, strict=True)
    device = problem.specification.rows.device
    spec = problem.specification[torch.tensor(index, device=device)]
    eps = torch.tensor(radii, dtype=torch.float64, device=device)
    region = ball(spec.region.center, eps, spec.region.norm, spec.region.clip)
    return Problem(problem.network, problem.posterior, replace(spec, region=region))


def _radii(
    names: Sequence[int], brackets: Sequence[_Bracket], at_least: Decimal, interrupted: bool
) -> Radii:
    radii, rows = [], []
    for name, one in zip(names, brackets, strict=True):
        if not one.rows():
            continue  # it was not reached
        rows += one.rows()
        ends = [None if row is None else row.eps for row in (one.certified, one.falsified)]
        radii.append(Radius(name, one.rows()[0].label, str(at_least), *ends))
    return Radii(tuple(radii), tuple(rows), interrupted)
