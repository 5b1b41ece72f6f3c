"""Replies where numbers are tiny or nearly constant: what the prover claims, the checker finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import Network, Problem, ball, mlp, save_posterior
from bnncert.evidence.laws import ReplyLaw
from bnncert.laws.remainder import SHIFT, proxy
from bnncert.laws.replies import refute_by_reply
from bnncert.model.specification import class_robust
from bnncert.posteriors.independent import Normal
from bnncert_check import read_model
from bnncert_check.arithmetic import UNIT
from bnncert_check.laws import replies as checked
from bnncert_check.laws.cells import cells
from bnncert_check.laws.corners import Grid
from bnncert_check.laws.lattice import Choice
from bnncert_check.laws.remainder import moments
from bnncert_check.laws.reply import Replied, corners
from bnncert_check.laws.rows import CORNERS, about, require_form
from bnncert_check.model import Model
from bnncert_check.region import Region
from scenarios import gaussian, vector

INPUTS, EPS = 20, 0.1
X = np.zeros(INPUTS)
BOX = Region("linf", X, EPS, X - EPS, X + EPS)


def asked(seed: int, std: tuple[float, float, float], bias: float, out: list[float]) -> Problem:
    """Of four neurons about 0: deviations of weights, of biases and of the output, a mean that is
    added to all biases, and what multiplies the means of each neuron's outgoing weights."""
    network, first, count = mlp(INPUTS, len(out), 2), INPUTS * len(out), len(out)
    mean = 0.3 * gaussian(network.size, generator=torch.Generator().manual_seed(seed))
    spread = torch.full_like(mean, std[2])
    spread[:first], spread[first : first + count] = std[:2]
    mean[:first] *= 0.1
    mean[first : first + count] = mean[first : first + count].abs() + bias
    mean[first + count : -2].view(count, 2).mul_(vector(*out).unsqueeze(1))
    region = ball(torch.zeros(1, INPUTS).double(), EPS)
    labels = network.forward(mean, region.center).argmax(-1)
    return Problem(network, Normal(mean, spread), class_robust(region, labels, 2))


HARD = {
    "x is constant but for roundings": ((1.0, 0.0, 0.0), 0.0, [1.0] * 4),
    "nearly constant": ((1.0, 0.01, 0.0), 0.3, [1.0] * 4),
    "decayed weights": ((0.2, 0.8, 0.0), 0.0, [1.0, 1.0, 1e-40, 1e-44]),
    "weights that are no squares": ((0.2, 0.8, 0.0), 0.0, [1.0, 1.0, 1e-200, 1e-310]),
    "dead neurons": ((0.02, 0.05, 0.03), -2.0, [1e-60]),
}


@pytest.mark.parametrize("kind", HARD)
def test_what_is_claimed_is_found(kind: str, tmp_path: Path) -> None:
    claims = [claimed_and_found(asked(seed, *HARD[kind]), tmp_path) for seed in range(12)]
    assert all(found <= claimed <= found + 1e-3 for claimed, found in claims), claims
    assert any(claimed < 0.99 for claimed, _ in claims)


def claimed_and_found(given: Problem, folder: Path) -> tuple[float, float]:
    """Bounds from above; a claim of 1 is found."""
    posterior, spec = given.posterior, given.specification
    assert isinstance(posterior, Normal)
    claim = refute_by_reply(given.network, posterior, spec, 1)
    if claim is None:
        return 1.0, 1.0
    assert isinstance(claim.proof, ReplyLaw)
    path = folder / "p.safetensors"
    path.unlink(missing_ok=True)
    save_posterior(path, given.network, posterior)
    model = read_model(path)
    row = slice(claim.row, claim.row + 1)
    rows, offsets = -spec.rows[0][row].numpy(), -spec.offsets[0][row].numpy()
    own = model.components[0].posterior
    found = checked.reply_failure(model, own, BOX, (rows, offsets), as_checked(claim.proof))
    return claim.upper, min(1.0, float(found))


def as_checked(law: ReplyLaw) -> checked.ReplyLaw:
    step, low, *rest = law.numbers[0].tolist()
    tables = (one.numpy() for one in (law.remainders, law.weights, law.center))
    choice = Choice(step, int(low), *rest)
    return checked.ReplyLaw(law.cells, law.size, choice, *law.reply, *tables)


def written(folder: Path, network: Network) -> Model:
    """Every weight has a mean and a deviation of 1."""
    one = torch.ones(network.size).double()
    save_posterior(folder / "p.safetensors", network, Normal(one, one))
    return read_model(folder / "p.safetensors")


def test_sums_over_many_neurons_round_too(tmp_path: Path) -> None:
    model = written(tmp_path, mlp(1, 2000, 1))
    own = model.components[0].posterior
    row = np.ones((1, 1)), np.zeros(1)
    found = about(require_form(model, own), own, np.zeros(1), np.ones(1), row)
    assert found.slack >= 64 * 2000 * UNIT
    assert found.part(slice(0, 10)).slack == found.slack


def test_no_more_corners_are_held_than_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the edges that are added to those that a certificate names."""
    held: list[int] = []

    def counted(*given: Any) -> Replied:
        found = corners(*given)
        held.append(found.value.size // 4)
        return found

    monkeypatch.setattr(checked, "corners", counted)
    model = written(tmp_path, mlp(1, 64, 1))
    choice = Choice(2.0**-3, -128, 1.0, 0.0, 0.1, 1.0)
    chosen = (np.array([[0.1, 1e-9, 0.1]]), np.ones(64), np.zeros(1))
    law = checked.ReplyLaw((64, 1, 8, 1), 2**8, choice, 3.0, 1.0, *chosen)
    region = Region("linf", X[:1], EPS, X[:1] - EPS, X[:1] + EPS)
    row = np.ones((1, 1)), np.zeros(1)
    checked.reply_failure(model, model.components[0].posterior, region, row, law)
    assert sum(held) == 64 * (64 + 7) * 8
    assert max(held) <= CORNERS


@pytest.mark.parametrize("width", [1e-2, 1e-3])
def test_a_constant_has_a_proxy_that_the_checker_is_within(width: float) -> None:
    """Where cells are narrow, masses are not so well known."""
    edges = np.concatenate([np.linspace(-6.5, 0, 24), width * np.arange(1, 7), [6.5]])[None]
    first = cells(edges, 4)
    z, v = np.zeros((1, edges.shape[1])), np.ones((1, 1, 2))
    second = cells(np.array([[[-6.5, 6.5]]]), 4)
    at = Grid(first, second, z, v, z, v[..., 1:] > 0)
    x = np.full((1, 1, edges.shape[1] - 1, 1, 2, 2), 0.7)
    known = moments(at, x, 0 * x)
    zero, shift = vector(0.0), SHIFT * vector(0.7)
    mine = proxy(zero, vector(1.0), shift.squeeze(0))
    assert 0 < float(known.proxy[0, 0]) <= float(mine)
