"""Evidence of every kind: what is written is read again, field by field, and the same is written.

A file lies between writing and reading, so that numbers become JSON and tensors bytes.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pytest
import torch
from torch import Tensor

from bnncert import certify, decide
from bnncert.evidence import WRITERS, Evidence, boxes, concentration, networks, predictive, write
from bnncert.evidence.boxes import Boxes, Cell, Grown, Growth
from bnncert.evidence.certificate import LOWER, OFFSETS, ROWS, UPPER, X, read_certificate
from bnncert.evidence.concentration import (
    Common,
    Component,
    Concentration,
    Cut,
    Opposite,
    Proof,
    Refutation,
    Tree,
)
from bnncert.evidence.networks import Networks
from bnncert.evidence.predictive import MEAN, SOFTMAX, Predictive, Side
from bnncert.evidence.written import Written
from bnncert.files.tensors import read_tensors, write_tensors
from bnncert.layers import ReLU, Tanh
from bnncert.methods import GIE, PIE, Enumeration, Method, Sampling
from bnncert.methods import Concentration as ByConcentration
from bnncert.model.problem import Problem
from bnncert.posteriors import Empirical, Mixture, Normal
from bnncert.posteriors.base import sample
from box_methods import classifier
from open_problems import open_problem, regression, shared_noise
from scenarios import paper_example, with_posterior

SCHEMA = "round-trip"
CENTER = torch.linspace(-1, 1, 5, dtype=torch.float64)  # the posterior's, which no file holds
AWKWARD = (0.1, 1 / 3, 5e-324, 1e308, -0.0, math.nextafter(1.0, 0.0))
Choose: TypeAlias = random.Random


def differences(one: object, other: object, where: str = "") -> Iterator[str]:
    """The fields, entries and bits in which two values differ."""
    if type(one) is not type(other):
        yield f"{where}: {type(one).__name__} and {type(other).__name__}"
    elif isinstance(one, Tensor):
        assert isinstance(other, Tensor)
        same = one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
        if not same:
            yield f"{where}: {one} and {other}"
    elif is_dataclass(one):
        for field in fields(one):
            of_each = (getattr(value, field.name) for value in (one, other))
            yield from differences(*of_each, f"{where}.{field.name}")
    elif isinstance(one, dict):
        assert isinstance(other, dict)
        if one.keys() != other.keys():
            yield f"{where}: keys {sorted(one)} and {sorted(other)}"
        for key in one.keys() & other.keys():
            yield from differences(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, tuple | list):
        assert isinstance(other, tuple | list)
        if len(one) != len(other):
            yield f"{where}: {len(one)} and {len(other)} entries"
        for i, (a, b) in enumerate(zip(one, other, strict=False)):
            yield from differences(a, b, f"{where}[{i}]")
    elif repr(one) != repr(other):  # of numbers: the same bits, the sign of zero too
        yield f"{where}: {one!r} and {other!r}"


def through_a_file(written: Written, folder: Path) -> Written:
    path = folder / "evidence.safetensors"
    header = {"schema": SCHEMA, "kind": written.kind, "value": written.value}
    write_tensors(path, header, written.tensors)
    header, tensors = read_tensors(path, SCHEMA)
    return Written(header["kind"], header["value"], tensors)


def read(written: Written, center: Tensor = CENTER) -> Evidence:
    """Evidence of the kind that is written there."""
    readers: dict[str, Callable[[], Evidence]] = {
        boxes.KIND: lambda: boxes.read(written.value, written.tensors, center),
        concentration.KIND: lambda: concentration.read(written.value, written.tensors),
        networks.KIND: lambda: networks.read(written.value, written.tensors),
        SOFTMAX: lambda: predictive.read(SOFTMAX, written.value, written.tensors),
        MEAN: lambda: predictive.read(MEAN, written.value, written.tensors),
    }
    return readers[written.kind]()


# --------------------------------------------------------------------------------- made at random


def number(choose: Choose) -> float:
    return choose.choice([*AWKWARD, choose.random(), choose.gauss(0, 1)])


def numbers(choose: Choose, *shape: int) -> Tensor:
    values = [number(choose) for _ in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def by_position(choose: Choose, *shape: int) -> dict[int, Tensor]:
    """Positions of one digit and of two, of which one begins with another."""
    positions = sorted(choose.sample([0, 1, 2, 10, 12, 21], choose.randrange(1, 4)))
    return {k: numbers(choose, *shape) for k in positions}


def random_boxes(choose: Choose) -> Boxes:
    grown = []
    for draw in [None, *choose.sample(range(100), choose.randrange(4))]:
        signs = torch.tensor([choose.choice([-1, 0, 1]) for _ in range(5)], dtype=torch.int8)
        center = CENTER if draw is None else numbers(choose, 5)
        grown.append(Grown(draw, center, choose.randrange(9), choose.choice([None, signs])))
    growth = Growth(number(choose), choose.choice([0.0, 0.1]), choose.random() < 0.5)
    cells = [
        Cell(choose.randrange(len(grown)), tuple((d, number(choose), number(choose)) for d in cut))
        for cut in ((), (0,), (1, 4))[: choose.randrange(4)]
    ]
    separators = [(a, b, choose.randrange(5)) for a in range(len(cells)) for b in range(a)]
    rule = choose.choice(["cells", "inclusion-exclusion", "bonferroni"])
    return Boxes("lbp", growth, tuple(grown), rule, tuple(cells), tuple(separators))


def random_tree(choose: Choose, common: bool) -> Tree:
    paths = torch.tensor([[choose.randrange(-4, 5) for _ in range(3)] for _ in range(4)])
    tree = (paths.int(), numbers(choose, 4, 3), numbers(choose, 4, 6))
    if not common:
        return Tree(*tree)
    return Tree(*tree, Common(number(choose), by_position(choose, 2, 3), by_position(choose, 3)))


def random_proof(choose: Choose, depth: int = 0, bound: float | None = None) -> Proof:
    """With slopes and trees, or cut in two, and its halves perhaps again."""
    bound = number(choose) if bound is None else bound
    if choose.random() < 0.6 * (depth > 0):
        below, above = (random_proof(choose, depth - 1) for _ in range(2))
        return Proof(bound, below.t, cut=Cut(choose.randrange(9), number(choose), below, above))
    proof = random_slopes(choose, bound)
    if choose.random() < 0.5:
        return proof
    trees = {row: random_tree(choose, choose.random() < 0.5) for row in (0, 1, 10)}
    slopes = (proof.lower_slopes, proof.upper_slopes, proof.row_slopes, proof.refined)
    return Proof(bound, proof.t, *slopes, torch.arange(6, dtype=torch.int32), trees)


def random_slopes(choose: Choose, bound: float = 0.0) -> Proof:
    """Of predictive means no bound is written: their claim is that of all components together."""
    rows = by_position(choose, 2, 3) if choose.random() < 0.5 else {}
    refined = {k: slopes > 0 for k, slopes in by_position(choose, 3).items()}
    lower, upper = by_position(choose, 3), by_position(choose, 3)
    return Proof(bound, number(choose), lower, upper, rows, refined)


def random_concentration(choose: Choose) -> Concentration:
    components = []
    for _ in range(choose.choice([1, 2, 11])):
        upper = None
        if choose.random() < 0.5:
            failure = random_proof(choose, 2, bound=choose.random())
            point, row = numbers(choose, 2, 2), choose.randrange(3)
            upper = Refutation(1 - failure.bound, point, row, failure)
            if choose.random() < 0.5:
                against = random_proof(choose, 2, bound=choose.random() / 2)
                left = max(0.0, upper.upper - against.bound)
                upper = replace(upper, upper=left, opposite=Opposite(row + 1, against))
        components.append(Component(number(choose), random_proof(choose, 2), upper))
    return Concentration(tuple(components))


def random_networks(choose: Choose) -> Networks:
    count = choose.randrange(1, 9)
    verified = tuple(sorted(choose.sample(range(count), choose.randrange(count))))
    rest = [s for s in range(count) if s not in verified]
    points = choose.randrange(3)
    refuted = tuple((s, choose.randrange(points), choose.randrange(3)) for s in rest if points)
    return Networks(count, verified, refuted, numbers(choose, points, 2, 2))


def random_predictive(choose: Choose) -> Predictive:
    quantity = choose.choice([SOFTMAX, MEAN])
    if choose.random() < 0.3:
        return Predictive(quantity, networks=choose.randrange(1, 99))
    sides = (
        Side(number(choose), random_slopes(choose), random_slopes(choose))
        for _ in range(choose.choice([1, 2, 11]))
    )
    return Predictive(quantity, tuple(sides))


KINDS: dict[type, Callable[[Choose], Evidence]] = {
    Boxes: random_boxes,
    Concentration: random_concentration,
    Networks: random_networks,
    Predictive: random_predictive,
}


def test_no_kind_is_left_out() -> None:
    assert KINDS.keys() == WRITERS.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_what_is_written_is_read(kind: type, seed: int, tmp_path: Path) -> None:
    made = KINDS[kind](random.Random(seed))
    again = read(through_a_file(write(made), tmp_path))
    assert list(differences(made, again)) == []


def test_differences_are_seen() -> None:
    """The comparison itself: every field of a kind counts."""
    one, other = (random_slopes(random.Random(seed)) for seed in (0, 1))
    assert len(list(differences(one, other))) >= 4
    for a, b in ((0.0, -0.0), (1, 1.0), (CENTER, CENTER.float()), ((1,), (1, 2)), ({1: 2}, {})):
        assert list(differences(a, b))


# ------------------------------------------------------------------------------- of certificates


def listed(problem: Problem) -> Problem:
    return with_posterior(problem, Empirical(sample(problem.posterior, 5, seed=0)))


def mixed(problem: Problem) -> Problem:
    normal = problem.posterior
    assert isinstance(normal, Normal)
    other = Normal(normal.mean + 0.01, normal.std / 2)
    return with_posterior(problem, Mixture((0.25, 0.75), (normal, other)))


SEARCH = ByConcentration(effort=2, nodes=30, upper=True)
# What is certified, by which method (none: the predictive mean), and what the evidence must show.
CERTIFIED: dict[str, tuple[Problem, Method | None, str]] = {
    "sampling": (classifier(), Sampling(samples=6, step=1.0), "inclusion-exclusion"),
    "pie": (classifier(), PIE(samples=3, step=0.4), '"draw": null'),
    "gie": (classifier(), GIE(samples=3, step=0.4), '"rho"'),
    "cells": (paper_example(0.1), PIE(samples=12, step=0.1), '"cuts": [['),
    "plain slopes": (open_problem(0), ByConcentration(effort=0), '"rows_optimised": false'),
    "slopes": (
        open_problem(1, (3, 6, 6, 3), std=0.05),
        ByConcentration(effort=1),
        '"rows_optimised": true',
    ),
    "lines": (open_problem(2, std=0.05), ByConcentration(effort=1), '"threshold": "0x'),
    "a counterexample": (regression(1, Tanh(), 0.05), ByConcentration(upper=True), '"failure"'),
    "trees": (open_problem(2, std=0.05), SEARCH, '"scale": null'),
    "common noise": (shared_noise(0), SEARCH, '"scale": "0x'),
    "cuts": (open_problem(2, std=0.03), SEARCH, '"dimension"'),
    "mixture": (mixed(shared_noise(1)), SEARCH, '"trees"'),
    "networks": (listed(open_problem(2)), Enumeration(), '"verified"'),
    "softmax": (open_problem(3), None, '"components"'),
    "softmax of a mixture": (mixed(open_problem(3)), None, '"components"'),
    "softmax of networks": (listed(open_problem(3)), None, '"networks"'),
    "mean": (regression(2, ReLU(), 0.01), None, '"components"'),
}


@pytest.mark.parametrize("name", CERTIFIED)
def test_what_certificates_hold_is_written_again(name: str, tmp_path: Path) -> None:
    problem, method, shown = CERTIFIED[name]
    answers = decide(problem) if method is None else certify(problem, method)
    found = [answer.certificate for answer in answers if answer.certificate is not None]
    assert shown in json.dumps([certificate.evidence for certificate in found])
    for certificate in found:
        certificate.write(tmp_path / "c.safetensors")
        stored = read_certificate(tmp_path / "c.safetensors")
        assert list(differences(certificate.tensors, stored.tensors)) == []
        held = Written(stored.kind, stored.evidence, stored.tensors)
        again = through_a_file(write(read(held, problem.posterior.center)), tmp_path)
        own = {key: stored.tensors[key] for key in again.tensors}
        assert list(differences(again, Written(held.kind, held.value, own))) == []
        assert stored.tensors.keys() - own.keys() <= {X, ROWS, OFFSETS, LOWER, UPPER}
