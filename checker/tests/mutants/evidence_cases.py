"""Cases by evidence: mixtures, boxes, forms, predictive means and networks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np

from mutants.certificates import (
    LINE,
    RELU,
    STEEP,
    Case,
    Evidence,
    Problem,
    averaged,
    boxes,
    case,
    cdf,
    fields,
    smooth,
)
from mutants.numbers import U


def mixture_cases() -> Iterator[Case]:
    """Components that are surely safe (1) or surely not (-1)."""
    p = Fraction(0.3) / (Fraction(0.3) + Fraction(0.7))
    low, high = sorted([float(p), math.nextafter(float(p), 2 * (p > float(p)))])
    for weights, outputs, truth, false, true in (
        ((0.75, 0.25), (-1, 1), (0.25, 0.25), [(0.5, 1), (0, 0.1)], (0.25, 0.25)),
        ((0.5 + 2.0**-32, 0.5 + 2.0**-32), (1, -1), (0.5, 0.5), [(0.5 + 2.0**-33, 1)], (0.5, 0.5)),
        ((1.5, -0.5), (1, -1), None, [(0.75, 1)], None),
        ((0.3, 0.7), (1, -1), (p, p), [(high, 1), (0, low)], (low, high)),
    ):
        problem = Problem(LINE, tuple(fields([0, y])[0] for y in outputs), weights=weights)
        yield Case(
            f"a mixture of {weights}",
            problem,
            smooth(point=[0], weights=weights),
            truth,
            false,
            true,
        )
    laws = ({"samples": [[0, 1]]}, fields([0, -1])[0])
    odd = Problem(LINE, laws, weights=(0.01, 0.99), families=("empirical", "normal"))
    safe = (
        "networks",
        {"networks": 1, "verified": [0], "refuted": []},
        {"points": np.zeros((1, 1))},
    )
    yield Case("a network and more", odd, safe, (0.01, 0.01), [(0.9, 1)])
    yield Case("its mean", odd, ("mean", {"networks": 1}, {}), (-0.98, -0.98), [(0.9, 1.1)])


def box_cases() -> Iterator[Case]:
    """y = w + b: with w ~ N(0, 1) and b = 0 safe iff w > 0, unless said otherwise."""
    right, left = ([1.55, 0], 1.45), ([-1.55, 0], 1.45)
    apart: dict[str, Any] = {
        "cells": [{"parent": i, "cuts": []} for i in range(2)],
        "separators": [[1, 0, 0]],
    }
    beyond: dict[str, Any] = {
        "cells": [{"parent": 0, "cuts": [[0, "-0x2p0", "0x2p0"]]}],
        "separators": [],
    }
    touching = boxes(right, right, **apart | {"separators": [[1, 0, 1]]})
    four = [([1.55, 0], steps) for steps in (1.45, 1.44, 1.43, 1.42)]
    for name, evidence, true, row in (
        ("one box", boxes(right), 0.45, 1),
        ("a box on the wrong side", boxes(right, left, **apart), 0, 1),
        ("a cell beyond its box", boxes(right, **beyond), 0, 1),
        ("a cell beyond its box", boxes(left, **beyond), 0, -1),
        ("cells that overlap", boxes(right, ([1.5, 0], 1.3), **apart), 0, 1),
        ("cells that nothing keeps apart", boxes(right, right), 0, 1),
        ("cells that meet in an atom", touching, 0, 1),
        ("Bonferroni", boxes(*four, rule="bonferroni"), 0, 1),
        ("inclusion and exclusion", boxes(*four, rule="inclusion-exclusion"), 0.45, 1),
        ("an atom elsewhere", boxes(([0, 5], 3)), 0, 1),
    ):
        yield case(name, LINE, [0, 0], [1, 0], evidence, 0.5, 0.6, true, x=[1], rows=[[row]])
    posterior = {"mean": [0, 0], "std": [1, 0], "low": [-9, 0], "high": [9, 0]}
    problem = Problem(LINE, (posterior,), [1], family="truncated-normal")
    yield Case("a truncated atom", problem, touching, (0, 0.5), [(0.6, 1)])
    rows = {"rows": [[1], [-1]], "offsets": [0, -5]}
    yield case("two rows, one negative", LINE, [0, 0], [1, 0], boxes(right), 0, 0.4, x=[1], **rows)
    for row, evidence in product(permutations((1e200, -2e200)), (boxes(), smooth())):
        yield case("overflow", ((1, 2),), [0, 0, 1e200, 1e200], 0, evidence, 0, 1, rows=[row])
    problem = Problem(
        LINE, ({"loc": [0, 0], "scale": [1, 0], "df": [1e99, 1]},), [1], family="student-t"
    )
    yield Case("a mass of NaN", problem, boxes(right), (0, 0.5), [(0.6, 1)])
    yield Case(
        "a negative σ", Problem(LINE, fields([0, 1], [-1, 0])), boxes(([0, 1], 0)), None, [(1, 1)]
    )
    yield case("a LeakyReLU of slope 2", ((1, 1), 2.0, (1, 1)), [0, 1, -1, 1.5], 0, boxes(), 0, 1)
    c, s, low = 2.0**-40 + 2.0**-55, 2.0**-38 + 2.0**-53, 2.0**-40 + 2.0**-55 + 2.0**-80
    parents = [
        ([(end + start) / 2, -c], (end - start) / 4)
        for start, end in ((low, 2.0**-37), (2.0**-39, 4.0))
    ]
    cells = [
        {"parent": i, "cuts": [[0, *ends]]}
        for i, ends in enumerate(pairwise((low.hex(), s.hex(), "0x4p0")))
    ]
    problem, p = (
        Problem(LINE, ({"low": [0, -c], "high": [4, -c]},), [1], family="uniform"),
        1 - Fraction(c) / 4,
    )
    false, evidence = 1 - 2.0**-42, boxes(*parents, cells=cells, separators=[[1, 0, 0]])
    yield Case("w > c to the last bit", problem, evidence, (p, p), [(false, 1)], (false - U, 1))


def form_cases() -> Iterator[Case]:
    """Points and rows that there are not, and certificates that say something else than what holds,
    or nothing."""
    far, safe = Problem(LINE, fields([-1, 50]), [1], 0.1), Problem(LINE, fields([0, 1]))
    for problem in (far, replace(far, eps=200, clip=(0.0, 2.0))):
        yield Case("a point far away", problem, smooth(point=[100]), (1, 1), [(0, 0.5)])
    yield Case("no such row", safe, smooth(point=[0], row=-1), (1, 1), [(0, 0.5)])
    problem = Problem(RELU, fields([0, 1, -1, 1.5], [0, 0.1, 0, 0]))
    yield Case("a true claim", problem, smooth(**STEEP), (0.9, 1), [], (0.9, 1))
    yield Case("no probabilities", problem, smooth(**STEEP), None, [(-1, 2)])
    yield Case(
        "a slope above 1", problem, smooth(**STEEP | {"lower_slopes1": [1.5]}), None, [(0.9, 1)]
    )
    yield Case("a negative radius", replace(far, x=[9.0], eps=-1.0), boxes(), None, [(1, 1)])
    yield Case("no points", replace(far, clip=(5.0, 4.0)), boxes(), None, [(1, 1)])
    # y ~ N(0, 1) is within 1 of 0 with probability p.
    normal, p = fields([1, 0, 0, 0], [0, 0, 0, 1]), cdf(1) - cdf(-1)
    inside = Problem(((1, 1), (1, 1)), normal, rows=[[1], [-1]], offsets=[1, 1])
    both = smooth(3.0, [0], opposite=1)
    yield Case("two ends", inside, both, (p, p), [(0, p - 1e-6)], (0, p + 1e-6))
    twice = replace(inside, rows=[[1], [1]])
    yield Case("a row and itself", twice, both, (cdf(1), cdf(1)), [(0, p + 1e-6)])
    nowhere = replace(inside, offsets=[-1, -1])
    yield Case("ends that cross", nowhere, both, (0, 0), [], (0, 0))
    for name in problem.digests:
        changes = {"digests": problem.digests | {name: "0" * 64}}
        yield Case(f"another {name}", problem, smooth(**STEEP), None, [(0.9, 1)], changes=changes)
    box = Problem(LINE, fields([0, 1]), eps=1.0, norm="box")
    yield Case("a box", box, smooth(), (1, 1), [], (0.9, 1))
    rival = Problem(((1, 3),), fields([0, 0, 0, 1, 0, 2]), rows=[[1, -1, 0]], eps=0.0)
    yield Case("one rival", rival, smooth(), (1, 1), [], (0.9, 1))
    problem, p, half = Problem(LINE, fields([0, 0.5], [0, 1])), cdf(0.5), "0x0.1p+3"
    yield Case(
        "0x0.7p+1 is 7/8", problem, smooth(), (p, p), [("0x0.7p+1", "0x1p0")], (half, "0x1p0")
    )


def predictive_cases() -> Iterator[Case]:
    """softmax of logits (3, 0) and (2, 1, 1): rivals that repeat or are left out would change
    it."""
    two, three = ((1, 2),), ((1, 3),)
    share, lead = math.exp(3) / (math.exp(3) + 1), math.tanh(1.5)
    near = share - 1e-3, share + 1e-3
    problem = Problem(two, fields([0, 0, 3, 0], [0, 0, 0.01, 0.01]), rows=[[1, -1]], offsets=[0])
    yield Case(
        "a softmax",
        problem,
        averaged(),
        near,
        [(0, 0.9, -1), (0.96, 1, -1)],
        (0.94, 0.96, lead - 0.01),
    )
    yield Case("a lead", problem, averaged(), None, [(0, 1, lead + 0.01)])
    many = replace(problem, rows=[[1, -1]] * 1000, offsets=[0] * 1000)
    yield Case("a rival a thousand times", many, averaged(), (share, share), [(0, 0.03, -1)])
    listed = replace(many, family="empirical", components=({"samples": [[0, 0, 3, 0]]},))
    yield Case(
        "the same of networks",
        listed,
        ("softmax", {"networks": 1}, {}),
        (share, share),
        [(0, 0.03, -1)],
    )
    share = math.exp(2) / (math.exp(2) + 2 * math.e)
    problem = Problem(three, fields([0, 0, 0, 2, 1, 1]), rows=[[1, -1, 0]], offsets=[0])
    yield Case("a rival left out", problem, averaged(), (share, share), [(0.7, 1, -1)])
    doubled = replace(problem, rows=[[2, -1, 0], [2, 0, -1]], offsets=[0, 0])
    yield Case("rows that are no duel", doubled, averaged(), (share, share), [(0.9, 1, -1)])
    _, evidence, _ = averaged()
    mean = Problem(LINE, fields([0, 0.5], [0, 0.01]))
    yield Case(
        "a mean", mean, ("mean", evidence, {}), (0.5, 0.5), [(0.6, 1), (0, 0.4)], (0.25, 0.75)
    )
    listed = Problem(
        two, ({"samples": [[0, 0, 3, 0], [0, 0, 0, 3]]},), rows=[[1, -1]], family="empirical"
    )
    yield Case(
        "two networks",
        listed,
        ("softmax", {"networks": 2}, {}),
        (0.5, 0.5),
        [(0.9, 1, -1)],
        (0.49, 0.51, -1),
    )


def network_cases() -> Iterator[Case]:
    """Four networks y = b: two are safe."""
    problem = Problem(LINE, ({"samples": [[0, 1], [0, 2], [0, -1], [0, -2]]},), family="empirical")

    def evidence(verified: Any, refuted: Any, point: float = 0.0) -> Evidence:
        return (
            "networks",
            {"networks": 4, "verified": verified, "refuted": refuted},
            {"points": [[point]]},
        )

    good = evidence([0, 1], [[2, 0, 0], [3, 0, 0]])
    yield Case("a list", problem, good, (0.5, 0.5), [(0.75, 1), (0, 0.25)], (0.5, 0.5))
    yield Case("an unsafe one", problem, evidence([0, 1, 2], []), (0.5, 0.5), [(0.75, 1)])
    yield Case(
        "a safe one",
        problem,
        evidence([], [[1, 0, 0], [2, 0, 0], [3, 0, 0]]),
        (0.5, 0.5),
        [(0, 0.25)],
    )
    yield Case("one twice", problem, evidence([0, 1, 1], []), (0.5, 0.5), [(0.75, 1)])
    steep = replace(problem, components=({"samples": [[1, 1]] * 4},))
    yield Case("at a point elsewhere", steep, evidence([], [[0, 0, 0]], -9.0), (1, 1), [(0, 0.75)])
