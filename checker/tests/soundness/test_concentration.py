"""Concentration against brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from bnncert import Problem, Specification
from bnncert.concentration.proof import prove
from bnncert.layers import Dense, Flatten, ReLU
from bnncert.model.network import Network
from bnncert.model.specification import ball, half_space
from bnncert.posteriors import Normal
from bnncert.posteriors.base import Posterior
from bnncert_check import ACCEPT
from scenarios import correlated, draw_many, random_problem, uniform, vector, wider
from soundness.forging import (
    Evidence,
    constant_slopes,
    forged,
    gaussian_problem,
    proof,
    verdict,
    with_margin,
)
from truth import DRAWS, assert_below_truth


def slopes_of(
    problem: Problem, part: Posterior, prefix: str, style: int, generator: torch.Generator
) -> Evidence:
    """Slopes at random, all 1 but the rows', or the prover's (optimised); the threshold is
    random."""
    t, anything = (
        float(0.1 + 5.9 * uniform(1, generator=generator)),
        partial(uniform, generator=generator),
    )
    ones = partial(torch.ones, dtype=torch.float64)
    if style < 2:
        return proof(
            problem,
            prefix,
            t,
            problem.specification.rows.shape[1],
            ones if style else anything,
            anything,
        )
    (found,) = prove(replace(problem, posterior=part), part, effort=1)
    names = ("lower_slopes", "upper_slopes", "row_slopes")
    tensors = {
        f"{prefix}{name}{k}": s.clone() for name in names for k, s in getattr(found, name).items()
    }
    return {
        "probability": (0.0).hex(),
        "t": t.hex(),
        "rows_optimised": bool(found.row_slopes),
        "layers_alone": True,
    }, tensors


def supported(folder: Path, problem: Problem, seed: int, row: int) -> tuple[float, float]:
    """What the checker supports with slopes of the seed's style, refuting `row` at the clean
    input."""
    spec, posterior, generator = (
        problem.specification,
        problem.posterior,
        torch.Generator().manual_seed(seed),
    )
    center, only = spec.region.center, slice(row, row + 1)
    negated = Specification(ball(center, 0), -spec.rows[:, only], -spec.offsets[:, only])
    entries, tensors = [], {}
    weights = getattr(posterior, "weights", (1.0,))
    for i, part in enumerate(getattr(posterior, "components", (posterior,))):
        lower, slopes = slopes_of(problem, part, f"c{i}.", seed // 3 % 3, generator)
        failure, others = slopes_of(
            replace(problem, specification=negated), part, f"c{i}.upper.", seed // 3 % 3, generator
        )
        entries.append(
            {"weight": weights[i].hex(), "lower": lower, "upper": {"row": row, "failure": failure}}
        )
        tensors |= slopes | others | {f"c{i}.point": center[0].clone()}
    found = verdict(folder, problem, forged(problem, ({"components": entries}, tensors)))
    assert found.status == ACCEPT, found
    return found.supported or (math.nan, math.nan)


@pytest.mark.parametrize("block", range(3))
def test_concentration_is_never_above_brute_force(block: int, tmp_path: Path) -> None:
    """Random thresholds and slopes, wrong ones for ReLUs that are off too: both bounds hold for
    sampled networks."""
    told = [0, 0]
    for seed in range(200 * block, 200 * block + 45):
        problem = gaussian_problem(seed)
        row = seed % problem.specification.rows.shape[1]
        lower, upper = supported(tmp_path, problem, seed, row)
        assert_below_truth(problem, vector(lower), seed)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        share = float((problem.margins(weights)[:, 0, row] > 0).double().mean())
        assert share <= upper + 4 * math.sqrt(0.25 / DRAWS), seed
        told = [told[0] + (lower > 0.05), told[1] + (upper < 0.95)]
    assert min(told) >= 5, told


@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1"])
def test_one_layer_against_the_exact_adversary(norm_name: str, tmp_path: Path) -> None:
    """Without hidden layers the adversary's minimum over a ball is a formula: A·c + b - eps
    |A|_dual."""
    told = 0
    for seed in range(45):
        problem = random_problem(seed, norm=norm_name, batch=1, dense=1)
        problem = correlated(problem, seed) if seed % 2 else wider(problem, seed)
        layers = tuple(
            layer for layer in problem.network.layers if isinstance(layer, Dense | Flatten)
        )
        network, spec = Network(problem.network.input_shape, layers), problem.specification
        spec = Specification(ball(spec.region.center, 0.1, norm_name), spec.rows, spec.offsets)
        problem = with_margin(Problem(network, problem.posterior, spec), 0.1 + seed % 5 / 2)
        lower, _ = supported(tmp_path, problem, seed, 0)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        pulled = torch.einsum("ro,sio->sri", spec.rows[0], network.split(weights)[-1][0])
        dual = torch.linalg.vector_norm(
            pulled, {"linf": 1, "l2": 2, "l1": math.inf}[norm_name], dim=-1
        )
        share = float((problem.margins(weights)[:, 0] - 0.1 * dual > 0).all(-1).double().mean())
        assert lower <= share + 4 * math.sqrt(share * (1 - share) / DRAWS) + 8 / DRAWS, seed
        told += lower > 0.3 * share > 0.03
    assert told > 15


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_relu_that_is_off_has_no_other_line_than_zero(noise: float, tmp_path: Path) -> None:
    """-relu(z) - 1 is -1 for z about -5; the line of slope 1 would make it 4."""
    posterior = Normal(vector(1.0, -5.0), vector(0.0, noise))
    specification = half_space(ball(vector(0.0).reshape(1, 1), 0.1), vector(-1.0), 1.0)
    problem = Problem(Network((1,), (Dense(1, 1), ReLU())), posterior, specification)
    assert verdict(tmp_path, problem, forged(problem, constant_slopes(problem, 1.0))).supported == (
        0.0,
        1.0,
    )
