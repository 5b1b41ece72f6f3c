"""Joint laws of one row or two, whose truth is known by quadrature or at sight, from choices that
make one rule after another count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from joint_known import Shape, Weights
from mutants.fresh import chain
from mutants.outcomes import Checker, Wrong, never, never_above

RELU, FALLING, TANH = Shape(below=0.0), Shape(below=-2.0), Shape()
SIGNED = Shape(ends=(-1.0, 1.0))
ROUNDED = 1e-9
POINT = np.array([0.7])


def given(shape: Shape, offsets: tuple[float, ...] = (0.1, -0.2), **changes: Any) -> Weights:
    """Two neurons of one input, two outputs, of which rows are nearly the same."""
    w, v = np.array([[0.8, -0.5], [0.2, 0.4]]), np.array([[0.9, 0.5], [-0.6, -0.4], [0.1, 0.2]])
    stds = 0.5 * np.ones((2, 2)), 0.3 * np.ones((3, 2))
    rows = np.array([[1.0, 0.2], [0.9, 0.5]])[: len(offsets)]
    own = Weights(shape, w, stds[0], v, stds[1], POINT, rows, np.array(offsets))
    return replace(own, **changes)


def one(shape: Shape, count: int = 1, **changes: Any) -> Weights:
    """The first neuron alone."""
    own = given(shape, (0.1, -0.2)[:count])
    alone = {"w": own.w[:, :1], "w_std": own.w_std[:, :1]}
    outer = {"v": own.v[[0, 2]], "v_std": own.v_std[[0, 2]]}
    return replace(own, **alone | outer | changes)


@cache
def truth(name: str) -> float:
    return KNOWN[name].weights.chance()


@dataclass(frozen=True)
class Known:
    """Windows are (low, high, η, tilt, tilt) for both rows; far: how far a point may be from its
    box's middle, at whose upper end the weights are."""

    weights: Weights
    window: tuple[float, float, float, float, float]
    terms: int
    far: float = 0.0


USUAL, SMOOTH = (-9.0, 9.0, 0.0, 2.0, 2.0), (-9.0, 9.0, 1.0, 2.0, 2.0)
BIAS = np.array([[0.0], [0.5]])
NARROW = (-0.4, 0.4, 0.0, 2.0, 2.0)
KNOWN = {
    "ReLU": Known(one(RELU), USUAL, 40),
    "what falls": Known(one(FALLING), USUAL, 60),
    "tanh": Known(one(TANH), USUAL, 40),
    "two rows": Known(one(RELU, 2), USUAL, 40),
    "two neurons": Known(given(RELU, (0.1,)), USUAL, 40),
    "few terms": Known(one(RELU), USUAL, 1),
    "a narrow window": Known(one(RELU), NARROW, 20),
    "smooth": Known(one(RELU), SMOOTH, 20),
    "two smooth rows": Known(one(RELU, 2), SMOOTH, 20),
    "a box": Known(one(RELU, x=POINT + 0.05), USUAL, 40, far=0.05),
    "a box for means": Known(one(RELU, x=POINT + 0.05, w_std=BIAS), USUAL, 40, far=0.05),
    "a box for deviations": Known(
        one(RELU, x=POINT + 0.3, w=0.8 * BIAS, w_std=np.array([[1.5], [0.1]])), USUAL, 40, far=0.3
    ),
    "a wide curve": Known(one(TANH, w_std=np.full((2, 1), 60.0)), USUAL, 30),
}


def parts(checker: Checker, weights: Weights, far: float = 0.0) -> tuple[Any, Any]:
    """The rows' sums, and the neurons."""
    form, posterior = form_of(checker, weights)
    middle = weights.x - far
    box = checker.linear.Interval(middle - far, middle + far)
    at = checker.joint.neurons.at_point(form, posterior, box)
    return checker.joint.sums.sums(form, posterior, weights.rows, weights.offsets), at


def form_of(checker: Checker, weights: Weights) -> tuple[Any, Any]:
    layers, weighted = checker.layers, checker.weighted
    inputs, width = weights.w.shape
    hidden = weighted.Dense(inputs - 1, width, True, 0, 0)
    last = weighted.Dense(width, weights.v.shape[1], True, hidden.size, 2)
    shape = weights.shape
    own = None
    if shape.ends is not None:
        own = layers.clip(*shape.ends)
    elif shape.below is not None:
        own = layers.parametric(np.full(width, shape.below))
    between = layers.Activation("Tanh" if own is None else "PReLU", None, width, 1, own)
    fields = {
        "mean": np.concatenate([weights.w.ravel(), weights.v.ravel()]),
        "std": np.concatenate([weights.w_std.ravel(), weights.v_std.ravel()]),
    }
    posterior = checker.model.Posterior("normal", fields)
    return checker.laws.rows.Form(hidden, between, last, 0), posterior


def law(checker: Checker, rows: tuple[int, ...], window: tuple[float, ...], terms: int) -> Any:
    one_row = checker.joint.rests.Window(*window[:3], tuple(window[3:]))
    count = len(rows)
    return checker.joint.series.Joint(rows, (terms,) * count, (one_row,) * count)


def joint_laws(checker: Checker) -> None:
    for check in (_bounds, _neurons, _waves, _left_out, _falls, _tails, _dead, _together, _read):
        check(checker)


def _bounds(checker: Checker) -> None:
    for name, known in KNOWN.items():
        own, at = parts(checker, known.weights, known.far)
        count = len(known.weights.rows)
        said = law(checker, tuple(range(count)), known.window, known.terms)
        series = checker.joint.series
        never_above(float(series.below(own, at, said)), truth(name) + ROUNDED, name)
        never_above(truth(name) - ROUNDED, float(series.above(own, at, said)), name)


def _neurons(checker: Checker) -> None:
    """What is beyond the cells, and the ends of f; of a box of points, at its ends."""
    for shape in (RELU, FALLING, TANH, SIGNED):
        weights = given(shape)
        _, at = parts(checker, weights, far=0.3)
        never(bool((at.beyond < 8e-11).any()), "P(|g| > T)")
        mean, std = replace(weights, x=weights.x).hidden()
        edges = np.linspace(-6.5, 6.5, 2000)
        f = shape.at(mean + std * edges[:, None]).T
        never_above(at.low.min(-1).max(), f.min(-1).max(), "f from below")
        never_above(f.max(-1).min(), at.high.max(-1).min(), "f from above")
        never(bool((at.least[(at.low < 0) & (at.high > 0)] > 0).any()), "f² that may be 0")
    tiny = replace(given(RELU), w_std=np.array([[0.5, 0.5], [0.0, 0.0]]))
    neurons, (form, posterior) = checker.joint.neurons, form_of(checker, tiny)
    for end in (1e-30, 1e-300):
        box = checker.linear.Interval(np.zeros(1), np.full(1, end))
        never((neurons.at_point(form, posterior, box).beyond == 0).any(), "a box of a point")


def _waves(checker: Checker) -> None:
    """χ at one frequency."""
    zero = np.zeros((2, 2))
    for weights, places in (
        (one(RELU, 2), ((0, 0), (3, -2), (9, 6))),
        (one(SIGNED, 2), ((2, 1), (8, -7))),
        (one(TANH, 2), ((1, 1), (4, -3))),
        (one(FALLING, 2, v_std=np.full((2, 2), 4.0)), ((2, 0), (5, -1))),
        (one(TANH, 2, w_std=np.full((2, 1), 60.0)), ((1, 0), (2, 1))),
        (one(RELU, 2, w=np.array([[60.0], [10.0]])), ((40, -30),)),
        (one(RELU, v=np.full((2, 2), 2.0), v_std=np.full((2, 2), 0.01)), ((30, 0),)),
        (one(TANH, v=np.zeros((2, 2)), v_std=np.array([[40.0], [0.01]]) + zero), ((3, 0),)),
    ):
        own, at = parts(checker, weights)
        points, masses = weights.grid()
        mean, covariance = weights.moments(weights.shape.at(points))
        for k, j in places:
            alone = _alone(checker, k, j)
            s = 2 * np.pi * np.array([k, j])[: len(weights.rows)] / 8
            bend = np.einsum("i,pij,j->p", s, covariance, s)
            exact = float((masses @ np.exp(1j * mean @ s - bend / 2)).real)
            value, off = checker.joint.sums.summed(own, at, alone)
            never_above(abs(value - exact), off + 1e-13, f"χ at {k}, {j}")


def _alone(checker: Checker, k: int, j: int) -> Any:
    first, second = np.arange(k + 1.0), np.arange(-abs(j) - 0.0, abs(j) + 1.0)
    weight = np.zeros((len(first), len(second)))
    weight[k, second == j] = 1.0
    places = first, second, np.full(2, 8.0)
    return checker.joint.sums.Series(*places, weight + 0j, 0 * weight, weight)


def _left_out(checker: Checker) -> None:
    """Frequencies that are cropped are charged, with what they may be off by."""
    value, wrong = np.array([[1.0, 0.5], [0.25, 0.125]]), np.full((2, 2), 0.01)
    places = np.arange(2.0), np.arange(2.0), np.ones(2)
    series = checker.joint.sums.Series(*places, value + 0j, wrong, np.ones((2, 2)))
    left = series.cropped(0.3)
    never_above(0.25 + 0.125 + 0.02, left.lost, "what is left out")
    never(left.value.shape != (1, 2), "what is kept")


def _falls(checker: Checker) -> None:
    """D and its sums, of a Gaussian and of neurons."""
    rests, nothing = checker.joint.rests, np.zeros((3, 2))
    plain = one(RELU, v=nothing[:2], v_std=np.array([[0.0, 0.0], [0.3, 0.3]]))
    window, deviation = law(checker, (0,), USUAL, 1).windows, 0.3 * np.hypot(1, 0.2)
    own, at = parts(checker, plain)
    k = np.arange(1, 400)
    d = np.exp(-((2 * np.pi * k / 18 * deviation) ** 2) / 2)
    for terms in (1, 4, 9, 20):
        rest = 2 / np.pi * (d[terms:] / k[terms:]).sum()
        never_above(rest, rests.truncation(own, at, window, (terms,)) + 1e-16, "a Gaussian's rest")
        fall = rests._fall(own, at, 0, 18.0)
        for power, root in ((rests._few, 1 / 8), (rests._most, 7 / 8)):
            left = (d[terms:] ** root / k[terms:]).sum()
            never_above(left, rests._rest(fall, terms, root, power), "a power's rest")
        first = (d[:terms] ** (1 / 8) / k[:terms]).sum()
        never_above(first, rests._first(fall, terms), "the first terms")
    for shape in (RELU, FALLING, TANH, SIGNED):
        weights = one(shape, 2)
        own, at = parts(checker, weights)
        points, masses = weights.grid()
        _, covariance = weights.moments(shape.at(points))
        for i, k in ((0, 3.0), (1, 6.0)):
            for other in np.linspace(-8, 8, 17):
                s = 2 * np.pi / 18 * np.array([k, other] if i == 0 else [other, k])
                size = masses @ np.exp(-np.einsum("i,pij,j->p", s, covariance, s) / 2)
                never_above(size, rests._fall(own, at, i, 18.0).at(k) + 1e-12, "D")
    own, at = parts(checker, one(RELU))
    fall = rests._fall(own, at, 0, 18.0)
    first = sum(fall.at(k) ** (1 / 8) / k for k in range(1, 16))
    never_above(first, rests._first(fall, 15) + ROUNDED, "the first terms of neurons")
    own, at = parts(checker, one(RELU, v_std=0.3 * np.array([[1.0, 1.0], [0.0, 0.0]])))
    never(rests.truncation(own, at, window, (9,)) < np.inf, "a rest without end")


def _tails(checker: Checker) -> None:
    """At their best tilts, against what is beyond either end."""
    rests = checker.joint.rests
    for shape in (RELU, FALLING, TANH):
        weights = one(shape)
        own, at = parts(checker, weights)
        for end in (-1.5, -3.0, 1.5, 3.0):
            moved = replace(weights, offsets=weights.offsets - end).chance()
            beyond = moved if end < 0 else 1 - moved
            far = 60.0
            for tilt in (0.5, 1.0, 2.0, 4.0):
                low, high = (end, far) if end < 0 else (-far, end)
                window = rests.Window(low, high, 0.0, (tilt, tilt))
                never_above(beyond, rests.beyond(own, at, (window,)) + ROUNDED, "a tail")
    window = rests.Window(-1e6, 1e6, 0.0, (1.0, 1.0))
    never_above(at.beyond.sum(), rests.beyond(own, at, (window,)), "neurons beyond")
    one_row = one(RELU, v=np.zeros((2, 2)), v_std=np.array([[0.0, 0.0], [2.0, 0.0]]))
    own, at = parts(checker, one_row)
    window = rests.Window(-4.0, 40.0, 0.0, (1.0, 1.0))
    never_above(0.0227, rests.beyond(own, at, (window,)), "a Gaussian's tail")
    sure = {"w": np.array([[0.0], [1.0]]), "w_std": np.full((2, 1), 1e-3)}
    noise = np.array([[2.0, 0.0], [0.1, 0.0]])
    own, at = parts(
        checker, one(RELU, v=np.zeros((2, 2)), v_std=noise, offsets=np.zeros(1), **sure)
    )
    never_above(0.0227, rests.beyond(own, at, (window,)), "a tail of noise")


def _dead(checker: Checker) -> None:
    """A row that is 0 for sure: by how much noise may lift it counts."""
    zero = one(RELU, v=np.zeros((2, 2)), v_std=np.zeros((2, 2)), offsets=np.zeros(1))
    own, at = parts(checker, zero)
    said = law(checker, (0,), (-0.5, 0.5, 0.03, 300.0, 300.0), 60)
    never(checker.joint.series.above(own, at, said) < 1, "what noise lifts")


LOOSE = (-0.3, 0.3, 0.0, 1.0, 1.0)  # of which nothing follows


def _model(checker: Checker, weights: Weights) -> tuple[Any, Any]:
    form, posterior = form_of(checker, weights)
    network = chain(checker, (1,), (form.hidden, form.activation, form.last))
    component = checker.model.Component(1.0, posterior)
    return checker.model.Model(network, (component,), "", ""), posterior


def _together(checker: Checker) -> None:
    """Hunter's bound and Bonferroni's of two rows; laws that say nothing take nothing away."""
    rows, weights = checker.joint.rows, one(RELU, 2)
    model, posterior = _model(checker, weights)
    asked = rows.Rows(model, posterior, weights.rows, weights.offsets)
    point = checker.region.point_region(weights.x)
    each = [
        replace(weights, rows=weights.rows[i : i + 1], offsets=weights.offsets[i : i + 1])
        for i in (0, 1)
    ]
    some = sum(own.chance() for own in each) - weights.chance()
    for windows in ((USUAL, USUAL), (LOOSE, USUAL), (USUAL, LOOSE)):
        singles = tuple(law(checker, (i,), windows[0], 40) for i in (0, 1))
        pairs = (law(checker, (0, 1), windows[1], 40),)
        found = rows.Together(singles, pairs)
        never_above(some, float(rows.failure(asked, point, found)) + ROUNDED, "Hunter's bound")
        none = float(rows.none_fails(asked, point, found))
        never_above(1 - some, none + ROUNDED, "Bonferroni's bound")
    both = float(rows.both_fail(asked, law(checker, (0, 1), USUAL, 40), point))
    never_above(both, weights.chance() + ROUNDED, "both rows")


def _read(checker: Checker) -> None:
    """Sets of rows and pairs from which nothing follows, and windows that are none."""
    weights = replace(one(RELU, 2), rows=np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]))
    model, posterior = _model(checker, weights)
    x = weights.x
    box = checker.region.Region("linf", x, 0.1, x - 0.1, x + 0.1)
    question = checker.question.Question(box, weights.rows, np.array([0.3, -0.5, 0.1]))
    for said, inside in _forged():
        tensors = {f"j{k}.windows": np.array([USUAL] * len(rows)) for k, rows in enumerate(said)}
        laws = [{"rows": [*rows], "terms": [3] * len(rows)} for rows in said]
        held = checker.grammar.Tensors(tensors, 10**6)
        asked = checker.evidence.proof.Asked(model, posterior, 3, held)
        value = {"probability": "0x0p0", "joint": laws}
        try:
            checker.evidence.joint.read_joint(value, "", asked, question, inside=inside)
        except checker.verdict.Reason:
            continue
        raise Wrong(f"laws of {said}")
    for window in (
        (1.0, 2.0, 0.0, 1.0, 1.0),
        (-1.0, -2.0, 0.0, 1.0, 1.0),
        (-1.0, 1.0, -1.0, 1.0, 1.0),
    ):
        try:
            checker.evidence.joint._window(np.array(window), "")
        except checker.verdict.Reason:
            continue
        raise Wrong(f"window {window}")


def _forged() -> Iterator[tuple[tuple[tuple[int, ...], ...], bool]]:
    every = (0,), (1,), (2,)
    yield (*every, (0, 1), (1, 2), (2, 0)), False
    yield (*every, (0, 1), (1, 0)), False
    yield (*every, (1, 1)), False
    yield every[:2], False
    yield every[1:2], False
    yield (*every, (0, 1), (1, 2)), True
    yield ((0,), (1,)), True  # opposite, and 0.3 - 0.5 < 0
    yield ((0,), (0,), (1,), (0, 1)), True
    yield ((0,), (1,), (1, 0), (0, 2)), True


def _lines(checker: Checker) -> Any:
    choice = checker.laws.lattice.Choice(2.0**-6, -500, 0.0, 100.0, 1e-4, 1.0)
    law_of = checker.laws.rows.LineLaw
    return law_of((4, 1, 4, 1), 2**10, (choice,) * 3, None, 2.0, np.zeros((1, 4, 2)))


def shared_events(checker: Checker) -> None:
    """What rows share in laws is charged once more for every pair, and pairs are of the region."""
    weights = one(RELU, 2)
    model, posterior = _model(checker, weights)
    x = weights.x
    box = checker.region.Region("linf", x, 0.1, x - 0.1, x + 0.1)
    about = model, posterior, box, np.eye(2)[:1], np.ones(1)
    lines = replace(_lines(checker), choices=_lines(checker).choices[:1])
    failure = checker.laws.rows.failure
    none, some = (failure(*about, lines, pairs) for pairs in (0, 3))
    never_above(3 * (0.02275 + 8e-11), float(some - none), "shared noise")
    point = model, posterior, checker.region.point_region(x), *about[3:]
    none, some = (failure(*point, lines, pairs) for pairs in (0, 3))
    never_above(3 * 8e-11, float(some - none), "shared neurons")
    question = checker.question.Question(box, about[3], about[4])
    pair = law(checker, (0, 0), LOOSE, 3), x
    beside = checker.evidence.concentration.Beside(lines, checker.joint.rows.Pairs((pair,)))
    found = checker.evidence.concentration._less_pairs(beside, question, model, posterior)
    alone = failure(*about, lines)
    never_above(0.02275, float(found - alone), "a pair of which nothing is known")
    away = replace(beside, together=checker.joint.rows.Pairs(((pair[0], x + 0.2),)))
    try:
        checker.evidence.concentration._less_pairs(away, question, model, posterior)
    except checker.verdict.Reason:
        return
    raise Wrong("a pair elsewhere")
