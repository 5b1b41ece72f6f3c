"""The parts of a law: cells, spreading, sums, proxies, each against what it should be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bnncert.laws.cells import OUTSIDE, base_edges, cells, with_edge
from bnncert.laws.lattice import Choice, below, convolved, others, spread
from bnncert.laws.remainder import proxy
from bnncert.laws.spectra import log_determinants, norms
from scenarios import gaussian, normal, vector


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_cells_leave_nothing_out() -> None:
    """No sliver is dropped: masses and what is beyond sum to 1, and the means to 0."""
    found = cells(with_edge(base_edges(12), vector(-7.0, -0.3, 0.0, 6.49)), 5)
    assert torch.allclose(
        found.mass.sum((-1, -2)) + 2 * OUTSIDE, torch.ones(4).double(), atol=1e-12
    )
    width = found.edges[:, 1:] - found.edges[:, :-1]
    means = found.edges[:, :-1, None] + width[..., None] * found.place
    assert torch.allclose((found.mass * means).sum((-1, -2)), torch.zeros(4).double(), atol=1e-9)
    assert bool((found.edges[1:3] == vector(-0.3, 0.0)[:, None]).any(-1).all())
    assert bool(torch.isclose(found.corners.sum((-1, -2)), torch.ones(4).double()).all())


def test_spreading_keeps_means_from_below() -> None:
    place, mass = vector(-0.3, 0.1, 2.7, 1e9).reshape(1, -1), vector(0.2, 0.3, 0.4, 0.1)
    laws, lost = spread(place, mass.reshape(1, -1), number(0.5), 16)
    at = torch.arange(16).double()
    at = torch.where(at < 8, at, at - 16) * 0.5
    assert lost == 0
    assert math.isclose(float(laws.sum()), 1)
    capped = (place.clamp_max(3.0) * mass).sum()
    assert 0 <= float(capped - (laws * at).sum()) < 1e-9


def test_what_is_too_low_is_lost() -> None:
    laws, lost = spread(
        vector(-100.0, 0.0).reshape(1, 2), vector(0.25, 0.75).reshape(1, 2), number(1.0), 16
    )
    assert (lost, float(laws.sum())) == (0.25, 0.75)


def test_wrapped_mass_counts_as_failed() -> None:
    """Two atoms whose sum leaves the window above return in it from below."""
    laws, _ = spread(vector(6.0, 6.0).reshape(2, 1), torch.ones(2, 1).double(), number(1.0), 16)
    total = convolved(laws)
    assert float(total.law[12]) == pytest.approx(1)  # 12 is -4 too: at most 0 in [-8, 8)
    assert float(total.reached(number(-8.0))[8]) == pytest.approx(1)
    assert float(below(laws, number(-8.0), number(1.0), vector(1.0))) < 1e-7


def test_what_leaves_the_window_below_is_charged() -> None:
    laws, _ = spread(vector(-6.0, -6.0).reshape(2, 1), torch.ones(2, 1).double(), number(1.0), 16)
    found = below(laws, number(-8.0), number(1.0), vector(1.0, 0.5))
    assert found.tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize("step", [0.01, 0.5, 4.0])
def test_other_laws_are_rounded_down(step: float) -> None:
    """On lattices of any step: P(X <= x) is never below the truth."""
    choice = Choice(*vector(step, 0, 2.0, 0.25, 0.01, 1.0))
    laws, missing = others(number(0.3), number(1.0), choice, 4096)
    assert bool((laws.sum(-1) + missing >= 1).all())
    for x in (-2.0, -0.5, 0.0, 0.4):
        index = math.floor(x / step)
        sums = laws.roll(2048, -1)[:, : index + 2049].sum(-1).tolist()
        truth = [
            float(normal.cdf(x - 0.3)),
            math.exp(2.0 * min(x, 0)),
            1.0 if x >= 0 else float(normal.sf(math.sqrt(-x))),
        ]
        assert all(
            found >= true - 1e-3 * (step < 0.1) - 1e-12
            for found, true in zip(sums, truth, strict=True)
        )


def test_proxies_hold_for_all_t() -> None:
    """Also for rare values, whose E exp(tX) is largest far from 0."""
    p = vector(0.5, 1e-2, 1e-6)
    x = torch.stack([-p, 1 - p], -1)  # centred Bernoulli
    mass = torch.stack([1 - p, p], -1)
    found = proxy(x, mass, vector(0, 0, 0))
    t = torch.linspace(-60, 60, 4001).double()
    t = t[t != 0]
    logs = torch.log((mass[:, None] * (t[:, None] * x[:, None]).exp()).sum(-1))
    assert bool((2 * logs / t**2 <= found[:, None]).all())
    exact = (1 - 2 * p[1:]) / (2 * torch.log((1 - p[1:]) / p[1:]))  # Kearns and Saul
    assert bool((found[1:] <= 1.3 * exact).all())
    assert float(found[0]) <= 0.27


def test_proxies_pay_for_a_mean_that_is_not_quite_known() -> None:
    x, mass = vector(0.0, 0.0).reshape(1, 2), vector(0.5, 0.5).reshape(1, 2)
    assert float(proxy(x, mass, vector(0.0))) == 0
    assert float(proxy(x, mass, vector(1e-3))) > 1e-6


def test_what_is_beyond_the_lattice_is_charged_below_and_kept_above() -> None:
    """Inflated masses do not stand for what is missing: P(Z < -4) = 3.2e-5."""
    choice = Choice(*vector(2.0**-9, 0, 0.0, 0.0, 0.01, 1.0))
    laws, missing = others(number(0.0), number(1.0), choice, 4096)
    assert math.isclose(float(missing), float(normal.sf(4.0)), rel_tol=1e-6)
    assert math.isclose(float(laws[0, 2047]), float(normal.sf(4 - 2.0**-9)), rel_tol=1e-4)
    coarser = replace(choice, step=number(3 * 2.0**-10))
    _, missing = others(number(0.0), number(1.0), coarser, 4096)
    assert float(missing) > float(normal.sf(6.0))


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_norms_and_determinants_are_those_of_eigenvalues(size: int) -> None:
    vectors = gaussian(3, 2, size, size + 5, generator=torch.Generator().manual_seed(size))
    matrices = vectors @ vectors.mT
    values = torch.linalg.eigvalsh(matrices)
    assert torch.allclose(norms(matrices), values[..., -1], rtol=1e-6)
    scales = vector(0.3, 0.95) / values[..., -1]
    found = torch.log1p(-scales.unsqueeze(-1) * values).sum(-1)
    assert torch.allclose(log_determinants(matrices, scales), found, rtol=1e-9)


def test_matrices_without_a_determinant_have_none_and_zeros_have_no_norm() -> None:
    """An even number of negative eigenvalues leaves the determinant positive."""
    assert log_determinants(torch.eye(2).double(), number(2.0)) == -math.inf
    assert norms(torch.zeros(3, 3).double()) == 0
