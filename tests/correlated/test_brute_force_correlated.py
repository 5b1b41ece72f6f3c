"""Correlated weights at a point against sampled networks: no bound is beyond the truth, and what is
proved is accepted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import ctx

from bnncert import Concentration, Network, Problem, ball, certify, output_interval, save_posterior
from bnncert.concentration.method import SETTLED
from bnncert.correlated.moments import known
from bnncert.correlated.search import Directions, paired, prove, refute
from bnncert.correlated.setting import setting
from bnncert.layers import Dense, Tanh
from bnncert.model.specification import half_space
from bnncert.posteriors import LowRankNormal, Mixture
from bnncert_check import read_model
from bnncert_check.correlated.gaussian import at_point, joint, require_form
from bnncert_check.correlated.moments import hermite, moments
from correlated_networks import DRAWS, random_correlated
from scenarios import gaussian, vector
from truth import accepted_around


def assert_around(seeds: Iterable[int], folder: Path) -> tuple[int, int]:
    """How many lower and upper bounds are of this kind."""
    lower = upper = 0
    for seed in seeds:
        problem, _, share = random_correlated(seed)
        result = accepted_around(problem, share, DRAWS, folder)
        lower += result.lower_by == "correlated"
        upper += result.upper_by == "correlated"
    return lower, upper


def test_never_beyond_the_truth_and_accepted(tmp_path: Path) -> None:
    lower, upper = assert_around((*range(9), 1028, 1029, 1031, 1033), tmp_path)
    assert lower > 3
    assert upper > 3


@pytest.mark.slow
def test_never_beyond_the_truth_of_a_thousand(tmp_path: Path) -> None:
    assert_around(range(1000, 2000), tmp_path)


def correlated(eps: float = 0.0, half: float = 6.0) -> Problem:
    """1-3-1, of wide correlated weights."""
    network = Network((1,), (Dense(1, 3), Tanh(), Dense(3, 1)))
    generator = torch.Generator().manual_seed(0)
    mean = gaussian(network.size, generator=generator) / 2
    factor = (
        2 * torch.eye(network.size) + gaussian(network.size, network.size, generator=generator) / 3
    )
    posterior = LowRankNormal(mean, torch.zeros_like(mean), factor.double())
    region = ball(vector(1.0).reshape(1, 1), eps)
    return Problem(network, posterior, output_interval(region, low=-half, high=half))


def test_wide_posteriors_have_narrow_intervals() -> None:
    result = certify(correlated(), Concentration(upper=True))[0]
    assert (result.lower_by, result.upper_by) == ("correlated", "correlated")
    assert 0.3 < result.lower < result.upper < result.lower + 0.1


def test_balls_have_upper_bounds_alone() -> None:
    result = certify(correlated(eps=0.1), Concentration(upper=True))[0]
    assert result.lower_by != "correlated"
    assert result.upper_by == "correlated"
    assert certify(correlated(), Concentration(effort=0, upper=True))[0].upper_by != "correlated"


def test_components_of_mixtures_are_bounded_one_by_one() -> None:
    problem = correlated()
    assert isinstance(problem.posterior, LowRankNormal)
    mixture = Mixture((0.5, 0.5), (problem.posterior, problem.posterior))
    both = certify(Problem(problem.network, mixture, problem.specification))[0]
    assert both.lower == pytest.approx(certify(problem)[0].lower, abs=SETTLED)


def test_nothing_is_said_of_pre_activations_that_determine_each_other() -> None:
    problem = correlated()
    assert isinstance(problem.posterior, LowRankNormal)
    own = problem.posterior
    same = LowRankNormal(own.mean, own.std, own.factor[:, :1])
    near = Directions(Problem(problem.network, same, problem.specification), same)
    assert prove(problem, near) is None
    assert refute(problem, near) is None


def test_an_empty_interval_has_no_proof() -> None:
    problem = correlated(half=6.0)
    empty = output_interval(problem.specification.region, low=-1.0, high=1.0)
    offsets = torch.tensor([[-1.0, -1.0]]).double()
    asked = Problem(
        problem.network, problem.posterior, type(empty)(empty.region, empty.rows, offsets)
    )
    assert isinstance(problem.posterior, LowRankNormal)
    near = Directions(asked, problem.posterior)
    assert prove(asked, near) is None
    assert refute(asked, near) is None


def test_rows_are_paired_once() -> None:
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert paired(rows) == [(0, 1), (2,), (3,)]


@pytest.mark.parametrize("scale", [0.01, 0.3, 8.0])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_moments_are_as_vague_as_a_checker_finds_them(
    scale: float, shift: float, tmp_path: Path
) -> None:
    """Where weights are large and vary little a majorant is steep, and rounding counts."""
    problem = correlated()
    own = problem.posterior
    assert isinstance(own, LowRankNormal)
    posterior = LowRankNormal(own.mean + shift, own.std, own.factor * scale)
    save_posterior(tmp_path / "p.safetensors", problem.network, posterior)
    x, row = vector(1.0), vector(1.0)
    here = setting(problem.network, posterior, x, row)
    assert here is not None
    said = known(here, 0.3)
    assert said is not None
    model = read_model(tmp_path / "p.safetensors")
    form = require_form(model.network, model.components[0].posterior)
    with ctx.workprec(128), np.errstate(all="ignore"):
        hidden = at_point(form, x.numpy())
        neurons = hermite(hidden, said.terms + 2)
        found = moments(joint(hidden, row.numpy()), neurons, said.terms, 0.3)
        for ball_, value, vague in zip(
            (found.first, found.second, found.noise),
            (said.first, said.second, said.noise),
            said.vague,
            strict=True,
        ):
            assert abs(ball_ - value) <= vague, (ball_, value, vague)
            assert vague < 1e-7 * (1 + shift) ** 2


def test_half_spaces() -> None:
    """One row: above by the law of its own, below too."""
    problem = correlated()
    region = problem.specification.region
    generator = np.random.default_rng(0)
    own = problem.posterior
    assert isinstance(own, LowRankNormal)
    noise = torch.from_numpy(generator.normal(size=(DRAWS, own.rank))) @ own.factor.mT
    outputs = problem.network.forward(own.mean + noise, region.center)[:, 0, 0]
    asked = Problem(problem.network, own, half_space(region, vector(1.0), -3.0))
    share = float((asked.margins(own.mean + noise) > 0).double().mean())
    assert share == float((outputs > -3).double().mean())
    result = certify(asked, Concentration(upper=True))[0]
    assert share - 0.15 < result.lower < share < result.upper < share + 0.15
