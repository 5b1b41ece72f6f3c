"""Slopes blended with their mean over z, and finer lattices: any choice holds, and the best is
kept."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bnncert import Problem, ball, class_robust, mlp
from bnncert.evidence.laws import SharedLaw, read_law, write_law
from bnncert.laws import proof, shared
from bnncert.laws.corners import Grid, blended, grid_of
from bnncert.laws.head import Margins, head, margins
from bnncert.laws.proof import prove_laws
from bnncert.laws.shared import Lattice, Shared, Wanted, by_blend
from bnncert.posteriors.independent import Normal
from scenarios import gaussian
from truth import assert_below_truth, tiny


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """ReLUs of few inputs too, without lines, and whatever a checker is paid."""
    monkeypatch.setattr(proof, "FEW", 0)
    monkeypatch.setattr(proof, "PAID", 0)


def narrow(eps: float = 0.3, std: float = 0.05) -> tuple[Problem, Normal]:
    """Two inputs; noise is a small share of what the region moves."""
    generator = torch.Generator().manual_seed(3)
    network = mlp(6, 8, 3)
    mean = gaussian(network.size, generator=generator)
    posterior = Normal(mean, torch.full_like(mean, std))
    center = gaussian(2, 6, generator=generator)
    labels = network.forward(mean, center).argmax(-1)
    return Problem(network, posterior, class_robust(ball(center, eps), labels, 3)), posterior


def gridded(problem: Problem, posterior: Normal) -> tuple[Margins, Grid]:
    box, spec = problem.specification.region.box, problem.specification
    own = margins(head(problem.network, posterior), box.lower, box.upper, spec.rows, spec.offsets)
    return own, grid_of(own, (6, 1, 4, 1), (0.0,))


@pytest.mark.parametrize("blend", [0.3, 0.5, 1.0])
def test_blends_are_never_above_the_truth(blend: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every law with this blend alone, and not by giving nothing."""

    def always(rows: Margins, lattice: Lattice, found: Tensor) -> Shared:
        return by_blend(rows, lattice, torch.full_like(found, blend))

    monkeypatch.setattr(shared, "by_blend", always)
    total = 0.0
    for seed in range(3000, 3060):
        problem = tiny(seed)
        assert isinstance(problem.posterior, Normal)
        laws = prove_laws(problem, problem.posterior)
        lower = torch.tensor([law.bound for law in laws]).double()
        assert_below_truth(problem, lower, seed)
        total += float(lower.clamp_min(0).sum())
    assert total > 15


def test_slopes_move_to_their_mean() -> None:
    problem, posterior = narrow()
    own, at = gridded(problem, posterior)
    generator = torch.Generator().manual_seed(0)
    alpha = torch.rand(*own.v.shape, 6, 4, generator=generator, dtype=torch.float64)
    none, half, whole = (
        blended(alpha, at, torch.full_like(own.beta, blend)) for blend in (0, 0.5, 1)
    )
    assert torch.equal(none, alpha)
    assert float((whole[..., 1:, :] - whole[..., :-1, :]).abs().max()) == 0
    torch.testing.assert_close(half, (alpha + whole) / 2)
    mass = at.first.mass.sum(-1)[:, None, :, :, None]
    torch.testing.assert_close((mass * (alpha - whole)).sum(-2), 0 * alpha[..., 0, :])
    assert 0 <= float(whole.min()) <= float(whole.max()) <= 1


def test_each_row_has_the_blend_that_does_best(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, posterior = narrow()
    found = prove_laws(problem, posterior)
    monkeypatch.setattr(shared, "BLENDS", ())
    before = prove_laws(problem, posterior)
    gained = [law.bound - other.bound for law, other in zip(found, before, strict=True)]
    assert min(gained) >= 0
    assert max(gained) > 0.05
    for law, gain in zip(found, gained, strict=True):
        assert isinstance(law, SharedLaw)
        assert bool(law.blends.any()) == (gain > 0)


def test_what_is_proved_is_not_proved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, posterior = narrow(eps=1e-3)
    calls = []

    def counted(rows: Margins, lattice: Lattice, blend: Tensor) -> Shared:
        calls.append(lattice)
        return by_blend(rows, lattice, blend)

    monkeypatch.setattr(shared, "by_blend", counted)
    laws = prove_laws(problem, posterior, Wanted(0.5, finer=True))
    assert min(law.bound for law in laws) > 0.5
    assert len(calls) == 1  # both inputs together
    assert not any(bool(law.blends.any()) for law in laws if isinstance(law, SharedLaw))


def test_finer_lattices_are_taken_where_they_prove_more() -> None:
    problem, posterior = narrow()
    coarse, fine = (prove_laws(problem, posterior, Wanted(finer=finer)) for finer in (False, True))
    taken = 0
    for law, other in zip(coarse, fine, strict=True):
        assert other.bound >= law.bound
        taken += other.size > law.size
        if other.size > law.size:
            assert other.size == 4 * law.size
            assert other.cells == (2 * law.cells[0], law.cells[1], 2 * law.cells[2], law.cells[3])
    assert taken
    assert sum(law.bound for law in fine) > sum(law.bound for law in coarse) + 1e-4


def test_finer_lattices_are_for_files_that_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six inputs and two rows."""
    problem, posterior = narrow()
    monkeypatch.setattr(proof, "PAID", 3)
    assert any(law.size > 2**12 for law in prove_laws(problem, posterior, Wanted(finer=True)))
    monkeypatch.setattr(proof, "PAID", 4)
    assert all(law.size == 2**12 for law in prove_laws(problem, posterior, Wanted(finer=True)))


def test_blends_are_written_where_there_are_some() -> None:
    """Laws without any are as they were before there were blends."""
    problem, posterior = narrow()
    law = prove_laws(problem, posterior)[0]
    assert isinstance(law, SharedLaw)
    for blends in (torch.zeros(2).double(), torch.tensor([0.25, 1.0]).double()):
        tensors: dict[str, Tensor] = {}
        written = write_law(replace(law, blends=blends), "c0.", tensors)
        assert ("blends" in written["law"]) == bool(blends.any())
        again = read_law(written, "c0.", tensors)
        assert isinstance(again, SharedLaw)
        assert torch.equal(again.blends, blends)
