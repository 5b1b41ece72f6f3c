"""Cross-sections: the plane of weights through the mean and the most dangerous direction."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import PIE, Box, Concentration, Network, Problem, ball, class_robust, half_space
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import LowRankNormal, Mixture, Normal, Uniform
from bnncert.posteriors.base import Posterior
from bnncert.report.cross_section import (
    BOXED,
    CODES,
    REACH,
    RIGHT,
    SIDE,
    STEP,
    CrossSection,
    cross_section,
    dangerous_plane,
)
from bnncert.results.folder import read_results
from report_pages import certified, written
from scenarios import gaussian, vector

# Cross-sections


def codes(section: CrossSection) -> np.ndarray[Any, Any]:
    """The grid [a, b] of codes."""
    """0 wrong, 1 wrong on the other point, 2 right by whatever margin; 3 more in a box."""
    found = bands(section)
    return np.minimum(found % BOXED, RIGHT) + 3 * (found >= BOXED)


def bands(section: CrossSection) -> np.ndarray[Any, Any]:
    text = "".join(letter * int(n) for letter, n in re.findall(r"([a-l])(\d+)", section.runs))
    return np.array([CODES.index(letter) for letter in text]).reshape(SIDE, SIDE)


def two_weights(mean: torch.Tensor, std: torch.Tensor) -> Problem:
    """y = w0 x + w1 at x = 1, safe iff y > 0."""
    network = Network((1,), (Dense(1, 1),))
    return Problem(
        network,
        Normal(mean, std),
        half_space(ball(torch.ones(1, 1).double(), 0), torch.ones(1), 0.0),
    )


def test_the_plane_of_a_linear_network() -> None:
    """The margin 5 + 3 ξ0 + 4 ξ1 falls by 5 a standard deviation along u = -(3, 4) / 5: wrong from
    a = 1 on, any b."""
    section = cross_section(two_weights(vector(2, 3), vector(3, 4)), None, [], 0)
    assert section is not None
    axis = np.linspace(-REACH, REACH, SIDE)
    assert np.array_equal(codes(section), np.where(axis < 1 - 1e-9, 2, 0)[:, None].repeat(SIDE, 1))
    assert section.wrong_at == (1.0,)
    assert not section.boxed
    assert section.margins == pytest.approx((5.0, -25.0))


def test_margins_are_told_where_nothing_is_wrong() -> None:
    """In bands of the margin at the centre; networks outside the picture are looked at too."""
    plane = two_weights(vector(2, 3), vector(0.02, 0.02))
    section = cross_section(plane, None, [], 0)
    assert section is not None
    assert section.wrong_at == (None,)
    least, last = section.margins
    assert 0 < last < least
    across = bands(section)[:, SIDE // 2]
    assert across[SIDE // 2] == RIGHT + 3
    assert (np.diff(across) <= 0).all()
    assert section.beyond is not None
    slope = (least - last) / 6
    assert section.beyond / 2**0.5 <= least / slope <= section.beyond


def test_the_other_point_has_its_own_colour() -> None:
    """At x = 0 the margin is w1 = 3 + 4 ξ1, at x = 1 the sum."""
    section = cross_section(two_weights(vector(2, 3), vector(3, 4)), vector(0.0), [], 0)
    assert section is not None
    plane = dangerous_plane(two_weights(vector(2, 3), vector(3, 4)), 0)
    assert plane is not None
    axis = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    a, b = torch.meshgrid(axis, axis, indexing="ij")
    w = plane.center + a[..., None] * plane.along + b[..., None] * plane.across
    clean, other = w.sum(-1), w[..., 1]
    clear = (clean.abs() > 1e-9) & (other.abs() > 1e-9)
    expected = torch.where(clean > 0, torch.where(other > 0, 2, 1), 0)
    assert np.array_equal(codes(section)[clear], expected[clear])
    assert section.wrong_at == (1.0, 1.0)


def test_boxes_are_marked() -> None:
    problem = two_weights(vector(2, 3), vector(3, 4))
    boxes = [Box(vector(-1, -1), vector(5, 7)), Box(vector(1, 2), vector(11, 30))]
    section, plane = cross_section(problem, None, boxes, 7), dangerous_plane(problem, 7)
    assert section is not None
    assert plane is not None
    assert section.boxed
    for i, j in np.random.default_rng(0).integers(0, SIDE, (300, 2)):
        a, b = -REACH + STEP * i, -REACH + STEP * j
        w = plane.center + a * plane.along + b * plane.across
        inside = any(bool((box.lower <= w).all() and (w <= box.upper).all()) for box in boxes)
        assert (codes(section)[i, j] >= 3) == inside


def test_a_box_with_a_fixed_weight_outside_holds_nothing() -> None:
    problem = two_weights(vector(2, 3), vector(3, 4))
    section = cross_section(problem, None, [Box(vector(50, -99), vector(99, 99))], 0)
    assert section is not None
    assert not section.boxed


@pytest.mark.parametrize("seed", range(3))
def test_the_plane_is_that_of_the_networks_in_it(trained: Any, seed: int) -> None:
    """Any network of the grid, taken by itself, gives what the picture says; axes are orthonormal
    in units of σ."""
    network, posterior, x, y = trained
    wide = Normal(posterior.mean, 0.2 * posterior.mean.abs())
    problem = Problem(
        network, wide, class_robust(ball(x[seed : seed + 1], 0), y[seed : seed + 1], 3)
    )
    point = (x[seed] + 0.3 * x[seed].flip(0)).clamp(0, 1)
    section, plane = cross_section(problem, point, [], seed), dangerous_plane(problem, seed)
    assert section is not None
    assert plane is not None
    u, v = plane.along / wide.std, plane.across / wide.std
    assert [float(u @ u), float(v @ v), float(u @ v)] == pytest.approx([1, 1, 0], abs=1e-9)
    seen = codes(section)
    for i, j in np.random.default_rng(seed).integers(0, SIDE, (200, 2)):
        w = plane.center + (-REACH + STEP * i) * plane.along + (-REACH + STEP * j) * plane.across
        right = [
            bool((problem.specification.margins(network.forward(w, p[None])) > 0).all())
            for p in (x[seed], point)
        ]
        assert seen[i, j] == (0 if not right[0] else 2 if right[1] else 1)
    assert len(set(seen.flatten().tolist())) > 1


def test_the_first_direction_is_the_most_dangerous(trained: Any) -> None:
    network, posterior, x, y = trained
    problem = Problem(network, posterior, class_robust(ball(x[:1], 0), y[:1], 3))
    plane = dangerous_plane(problem, 0)
    assert plane is not None
    row = problem.margins(posterior.mean)[0].argmin()

    def margin(direction: torch.Tensor) -> float:
        return float(problem.margins(posterior.mean + 1e-3 * direction)[0, row])

    others = posterior.std * torch.nn.functional.normalize(
        torch.randn(200, posterior.size).double(), dim=1
    )
    assert margin(plane.along) < min(margin(other) for other in others)


def test_correlated_weights_and_mixtures() -> None:
    """w = mean + factor η: the plane is spanned by η, and a mixture's is that of its heaviest
    component."""
    problem = two_weights(vector(2, 3), vector(3, 4))
    factor = torch.tensor([[3.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    low_rank = LowRankNormal(vector(2, 3), vector(0, 0), factor)
    mixture = Mixture((0.3, 0.7), (Normal(vector(9, 9), vector(1, 1)), low_rank))
    for posterior in (low_rank, mixture):
        section = cross_section(
            Problem(problem.network, posterior, problem.specification), None, [], 0
        )
        assert section is not None
        assert section.wrong_at == (1.0,)


def test_convolutions_are_walked_too() -> None:
    from bnncert.layers import Conv2d, Flatten, MaxPool2d

    network = Network((1, 8, 8), (Conv2d(1, 2, 3), ReLU(), MaxPool2d(2), Flatten(), Dense(18, 3)))
    generator = torch.Generator().manual_seed(1)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.3).double()
    )
    x = torch.rand(1, 1, 8, 8, generator=generator, dtype=torch.float64)
    y = network.forward(posterior.mean, x).argmax(-1)
    problem = Problem(network, posterior, class_robust(ball(x, 0), y, 3))
    section, plane = cross_section(problem, None, [], 0), dangerous_plane(problem, 0)
    assert section is not None
    assert plane is not None
    for i, j in np.random.default_rng(0).integers(0, SIDE, (50, 2)):
        w = plane.center + (-REACH + STEP * i) * plane.along + (-REACH + STEP * j) * plane.across
        assert codes(section)[i, j] == 2 * bool((problem.margins(w) > 0).all())


class Single(Posterior):
    """A law that is no scaled noise: one network, always."""

    family = "single"
    center = vector(2, 3)

    def draw(self, generator: np.random.Generator) -> torch.Tensor:  # noqa: ARG002 (nothing is random)
        return self.center


def test_no_plane_for_other_laws() -> None:
    problem = two_weights(vector(2, 3), vector(3, 4))
    assert (
        cross_section(Problem(problem.network, Single(), problem.specification), None, [], 0)
        is None
    )


@pytest.mark.parametrize("std", [(0.0, 0.0), (0.0, 1.0)])
def test_no_plane_without_two_random_weights(std: tuple[float, float]) -> None:
    assert cross_section(two_weights(vector(2, 3), vector(*std)), None, [], 0) is None


def test_cross_sections_in_the_page(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, PIE(samples=2))
    page = written(tmp_path / "run", posterior)
    captions = [page.data["texts"][i] for i in page.data["captions"]]
    for figure, caption, line in zip(
        page.data["figures"], captions, read_results(tmp_path / "run"), strict=True
    ):
        assert (figure is not None) == (line.certificate is not None)
        if figure:
            assert sum(int(n) for n in re.findall(r"\d+", figure["section"][0])) == SIDE * SIDE
            assert figure["section"][1] == 1
            assert "Marked: inside the proved boxes." in caption
    assert page.data["unit"] == "standard deviations"
    without = written(tmp_path / "run")
    assert "--posterior FILE" in " ".join(without.data["texts"])


def test_cross_sections_of_upper_bounds(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, Concentration(upper=True), eps=0.9)
    page = written(tmp_path / "run", posterior)
    assert {figure["section"][1] for figure in page.data["figures"]} == {2}
    assert all(len(figure["point"]) == 3 for figure in page.data["figures"])
    assert any(
        "on the counterexample the network at the centre is already wrong" in text
        for text in page.data["texts"]
    )
    assert any("no part of the plane is marked" in text for text in page.data["texts"])


def test_other_families_name_their_unit(tmp_path: Path, trained: Any) -> None:
    network, posterior, x, y = trained
    flat = Uniform(posterior.mean - 0.001, posterior.mean + 0.001)
    certified(tmp_path / "run", (network, flat, x, y), PIE(samples=1))
    assert written(tmp_path / "run", tmp_path / "run.safetensors").data["unit"] == "half-widths"
