"""Bounds by hand, lines against intervals, and batches that do not matter."""

from __future__ import annotations

import pytest
import torch

from bnncert.bounds import BOUNDS
from bnncert.layers import Dense, ReLU
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball, explicit_box
from bnncert.numerics import batching
from bounding import ALL, NORM_AND_BOUND, allowance, bounded, single
from scenarios import random_problem, vector, weight_boxes

# ---------------------------------------------------------------------------------------- tightness


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("seed", range(25))
def test_points_give_the_forward_pass(bound: str, seed: int) -> None:
    """One weight vector and one input: the bound is the row itself."""
    problem = random_problem(seed, "linf")
    spec = problem.specification
    clean = Specification(ball(spec.region.center, 0.0), spec.rows, spec.offsets)
    network = Problem(problem.network, problem.posterior, clean)
    found = bounded(bound, network, Box.point(problem.posterior.center))
    torch.testing.assert_close(found, problem.margins(problem.posterior.center), rtol=0, atol=1e-9)


@pytest.mark.parametrize("bound", ALL)
def test_one_layer_by_hand(bound: str) -> None:
    """y = 2x0 - x1 + b, weights ± 1/2 and b in [-1, 1], x in [1, 2] × [1, 3]: at least 1.5 - 1.5 *
    3 - 1."""
    network = Network((2,), (Dense(2, 1),))
    weights = Box(vector(1.5, -1.5, -1.0), vector(2.5, -0.5, 1.0))
    region = explicit_box(Box(vector(1.0, 1.0).unsqueeze(0), vector(2.0, 3.0).unsqueeze(0)))
    assert single(bound, network, weights, region) == pytest.approx(-4.0, abs=1e-12)


def test_two_layers_by_hand() -> None:
    """2 - ReLU(x) - ReLU(-x) = 2 - |x| on [-1, 1]: intervals see 0, the two chords, which cancel,
    see 1."""
    network = Network((1,), (Dense(1, 2, bias=False), ReLU(), Dense(2, 1, bias=False)))
    region = ball(vector(0.0).reshape(1, 1), 1.0)
    found = {
        name: single(name, network, Box.point(vector(1, -1, -1, -1)), region, offset=2.0)
        for name in ALL
    }
    assert found == pytest.approx({"ibp": 0.0, "lbp": 1.0, "lbp-forward": 1.0}, abs=1e-12)


def test_rows_are_folded_into_the_last_layer() -> None:
    """y0 - y1 of two equal logits x in [-1, 1] is 0 for lbp; compared apart they differ by up to
    2."""
    network = Network((1,), (Dense(1, 2, bias=False),))
    region = ball(vector(0.0).reshape(1, 1), 1.0)
    rows, offsets = vector(1, -1).reshape(1, 1, 2), torch.zeros(1, 1, dtype=torch.float64)
    found = {
        name: float(BOUNDS[name](network, Box.point(vector(1, 1)), region, rows, offsets))
        for name in ALL
    }
    assert found == pytest.approx({"ibp": -2.0, "lbp": 0.0, "lbp-forward": -2.0}, abs=1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_lines_are_never_worse_than_intervals(seed: int) -> None:
    """lbp takes the better of both, row by row."""
    problem = random_problem(seed)
    boxes = weight_boxes(problem, seed)
    interval, linear = bounded("ibp", problem, boxes), bounded("lbp", problem, boxes)
    assert bool((linear >= interval - allowance(interval)).all())


def test_lines_are_often_better_than_intervals() -> None:
    """On deeper networks lbp gains on most problems, or it would not be worth its price."""
    gains = []
    for seed in range(20):
        problem = random_problem(seed, "linf", dense=3)
        boxes = weight_boxes(problem, seed)
        gains.append(
            bool((bounded("lbp", problem, boxes) > bounded("ibp", problem, boxes) + 1e-9).any())
        )
    assert sum(gains) >= 10


@pytest.mark.parametrize("seed", range(25))
def test_larger_boxes_never_help_intervals(seed: int) -> None:
    """A wider weight box or a larger radius gives a smaller interval bound."""
    problem = random_problem(seed, "linf")
    small = bounded("ibp", problem, weight_boxes(problem, seed))
    wide = bounded("ibp", problem, weight_boxes(problem, seed, radius=2.0))
    spec = problem.specification
    further = ball(spec.region.center, spec.region.eps + 0.1)
    far = BOUNDS["ibp"](
        problem.network, weight_boxes(problem, seed), further, spec.rows, spec.offsets
    )
    assert bool((wide <= small + allowance(small)).all())
    assert bool((far <= small + allowance(small)).all())


# ----------------------------------------------------------------------------------------- batching


@pytest.mark.parametrize(("norm", "bound"), NORM_AND_BOUND)
@pytest.mark.parametrize("seed", range(8))
def test_shared_and_paired_weights_agree(norm: str, bound: str, seed: int) -> None:
    """One box [n] for the batch is the same as a copy of it [B, n] an input."""
    problem = random_problem(seed, norm)
    shared = weight_boxes(problem, seed)[0]
    paired = Box(*(end.repeat(len(problem), 1) for end in (shared.lower, shared.upper)))
    torch.testing.assert_close(
        bounded(bound, problem, shared), bounded(bound, problem, paired), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize(("norm", "bound"), NORM_AND_BOUND)
@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_batches_and_chunks_do_not_matter(
    norm: str, bound: str, paired: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input alone, in a batch, or in a batch cut to pieces of one: the same bounds."""
    problem = random_problem(seed, norm, batch=5)
    boxes = weight_boxes(problem, seed) if paired else weight_boxes(problem, seed)[0]
    together = bounded(bound, problem, boxes)
    for i in range(len(problem)):
        alone = bounded(bound, problem[i : i + 1], boxes[i : i + 1] if paired else boxes)
        torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-12, atol=1e-12)
    for budget in (1, 4000):
        monkeypatch.setattr(batching, "CPU_BUDGET", budget)
        torch.testing.assert_close(bounded(bound, problem, boxes), together, rtol=1e-12, atol=1e-12)
