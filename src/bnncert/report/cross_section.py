"""Cross-sections: which networks of a plane through the posterior's centre are right on given
points.

The plane is spanned in the space of the standardised noise ξ, w = centre + Aξ (A = diag(σ) for
independent weights):

    w(a, b) = centre + a Au + b Av,   u = -Aᵀg / |Aᵀg|,   v ⟂ u random,   |u| = |v| = 1,

with g the gradient of the smallest margin at the centre. a and b count standard deviations, and u
is the direction in which that margin falls fastest. A picture, in plain floating point; nothing
certified rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from bnncert.model.box import Box
from bnncert.model.layers import Conv2d
from bnncert.model.maps import apply
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.numerics.batching import in_batches, slices
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.gaussian import LowRankNormal, Mixture
from bnncert.posteriors.independent import Independent

# Of the axes, in standard deviations; both exact in binary.
REACH = 6.0
STEP = 0.25
SIDE = 2 * int(REACH / STEP) + 1  # grid points per axis
# Multiples of REACH at which networks farther along the first axis are looked at too.
FARTHER = tuple(2.0 ** (k / 2) for k in range(1, 17))
# Wrong on the clean input, wrong on the other point, right with a smallest margin below each of
# SHARES of that at the centre or above all of them; then the same inside a proved box.
CODES = "abcdefghijkl"
SHARES = (1 / 3, 2 / 3, 1.0)
RIGHT, BOXED = 2, len(SHARES) + 3
# By family; standard deviations elsewhere.
UNITS = {"laplace": "scales", "student-t": "scales", "uniform": "half-widths"}


@dataclass(frozen=True, eq=False)
class Plane:
    """The networks center + a along + b across."""

    center: Tensor
    along: Tensor
    across: Tensor


@dataclass(frozen=True)
class CrossSection:
    """What becomes of the points on a grid of the plane.

    runs: the grid as letters of CODES, each with how often it repeats; a is the slow coordinate, b
    the fast one, both ascending. wrong_at: where on the positive half of the first axis the clean
    input, and the other point if there is one, are first wrong; None if not within REACH. margins:
    the smallest on the clean input at the centre and at REACH on that axis. beyond: where the first
    network outside the picture was met there that is wrong on the clean input, if one was.
    """

    runs: str
    wrong_at: tuple[float | None, ...]
    margins: tuple[float, float] = (0.0, 0.0)
    beyond: float | None = None

    @property
    def boxed(self) -> bool:
        """Whether the plane meets a proved box."""
        return any(code in self.runs for code in CODES[BOXED:])


def cross_section(
    problem: Problem, point: Tensor | None, boxes: Sequence[Box], seed: int
) -> CrossSection | None:
    """The plane of the problem's one input.

    None where the posterior is no law of standardised noise, or the smallest margin does not move
    with two or more weights.
    """
    plane = dangerous_plane(problem, seed)
    if plane is None:
        return None
    axis = torch.linspace(-REACH, REACH, SIDE, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)  # b is the fast coordinate
    clean = problem.specification.region.center
    points = clean if point is None else torch.cat([clean, point.unsqueeze(0)])
    margins = _margins(problem, plane, grid, points)
    right = margins > 0
    bands = _bands(margins.amin(1))
    codes = torch.where(right[:, 0], torch.where(right[:, -1], RIGHT + bands, 1), 0)
    inside = torch.zeros(len(grid), dtype=torch.bool)
    for box in boxes:
        inside |= _inside(plane, grid, box)
    ahead = slice(SIDE // 2, None)
    first_axis = margins.reshape(SIDE, SIDE, -1)[ahead, SIDE // 2]  # a >= 0, b = 0
    wrong_at = tuple(_first_wrong(axis[ahead], own > 0) for own in first_axis.T)
    farther = REACH * torch.tensor(FARTHER, dtype=torch.float64)
    outside = torch.stack([farther, torch.zeros_like(farther)], 1)
    return CrossSection(
        _runs((codes + BOXED * inside).tolist()),
        wrong_at,
        (float(first_axis[0, 0]), float(first_axis[-1, 0])),
        _first_wrong(farther, _margins(problem, plane, outside, clean)[:, 0] > 0),
    )


def _bands(margins: Tensor) -> Tensor:
    """Which of SHARES of the margin at the centre each reaches, [P]; all where that is wrong."""
    center = margins[len(margins) // 2]
    reached = torch.stack([margins >= share * center for share in SHARES])
    return torch.where(center > 0, reached.sum(0), len(SHARES))


def dangerous_plane(problem: Problem, seed: int) -> Plane | None:
    posterior = _component(problem.posterior)
    if posterior is None:
        return None
    row = int(problem.margins(posterior.center)[0].argmin())

    def margin(weights: Tensor) -> Tensor:
        return problem.margins(weights)[0, row]

    gradient = _to_noise(posterior, torch.func.grad(margin)(posterior.center))
    if not 0 < float(gradient.norm()) < math.inf:
        return None
    along = -gradient / gradient.norm()
    noise = torch.from_numpy(np.random.default_rng(seed).standard_normal(len(gradient))) * _alive(
        posterior
    )
    across = noise - (noise @ along) * along
    # One weight alone is random: rounding is left over.
    if not float(across.norm()) > 1e-9 * float(noise.norm()):
        return None
    return Plane(
        posterior.center,
        _to_weights(posterior, along),
        _to_weights(posterior, across / across.norm()),
    )


def unit(posterior: Posterior) -> str:
    """What the axes count."""
    return UNITS.get(posterior.family, "standard deviations")


def _component(posterior: Posterior) -> Independent | LowRankNormal | None:
    """The law around the centre: of a mixture the component whose centre it is."""
    if isinstance(posterior, Mixture):
        return posterior.components[posterior.weights.index(max(posterior.weights))]
    return posterior if isinstance(posterior, Independent | LowRankNormal) else None


def _to_noise(posterior: Independent | LowRankNormal, gradient: Tensor) -> Tensor:
    """Aᵀg"""
    if isinstance(posterior, LowRankNormal):
        along = posterior.factor.mT @ gradient[-len(posterior.factor) :]
        return torch.cat([posterior.std * gradient, along])
    return posterior.spread * gradient


def _to_weights(posterior: Independent | LowRankNormal, noise: Tensor) -> Tensor:
    """Aξ"""
    if isinstance(posterior, LowRankNormal):
        own, shared = noise[: posterior.size], noise[posterior.size :]
        return posterior.std * own + posterior.on_all(posterior.factor @ shared)
    return posterior.spread * noise


def _alive(posterior: Independent | LowRankNormal) -> Tensor:
    """Which coordinates of the noise move anything."""
    if isinstance(posterior, LowRankNormal):
        return torch.cat([posterior.std > 0, (posterior.factor != 0).any(0)])
    return posterior.spread > 0


def _margins(problem: Problem, plane: Plane, grid: Tensor, points: Tensor) -> Tensor:
    """The smallest row of the networks of the grid [P, 2] at points [K, *shape]: [P, K]."""
    network = problem.network
    spec = problem.specification
    widest = max(math.prod(shape) for shape in network.shapes)
    # In single precision convolutions are six times as fast; outputs are off by some 1e-6, which no
    # picture shows.
    convolved = any(isinstance(layer, Conv2d) for layer in network.layers)
    kind = torch.float32 if convolved else torch.float64
    near = Plane(plane.center.to(kind), plane.along.to(kind), plane.across.to(kind))

    def part(chosen: slice) -> Tensor:
        outputs = _forward(network, near, grid[chosen].to(kind), points.to(kind)).double()
        return (outputs @ spec.rows[0].mT + spec.offsets[0]).amin(-1)

    return torch.cat(in_batches(part, len(grid), 8 * 8 * len(points) * widest, points.device))


def _forward(network: Network, plane: Plane, grid: Tensor, points: Tensor) -> Tensor:
    """Outputs [P, K, outputs]. Layers are linear in their parameters, so that three networks serve
    all of the plane."""
    held = [points.unsqueeze(0)]  # [1, K, *shape] until a layer moves
    own, *moves = (network.split(weights) for weights in (plane.center, plane.along, plane.across))
    for k, layer in enumerate(network.layers):
        inputs = [held[node] for node in network.reads[k]]
        shape = network.shape_before(k)
        outputs = apply(layer, own[k], inputs, shape)
        for coordinate, move in zip(grid.T, moves, strict=True):
            if any(bool(part.any()) for part in move[k]):
                moved = apply(layer, move[k], inputs, shape)
                outputs = outputs + coordinate.reshape(-1, *[1] * (moved.dim() - 1)) * moved
        held.append(outputs)
    return held[-1].expand(len(grid), *held[-1].shape[1:])


def _inside(plane: Plane, grid: Tensor, box: Box) -> Tensor:
    """Which networks of the grid lie in the box, [P].

    Only the weights that can leave it there are looked at.
    """
    lower, upper = box.lower - plane.center, box.upper - plane.center
    farthest = REACH * (plane.along.abs() + plane.across.abs())
    able = ((farthest > upper) | (-farthest < lower)).nonzero().squeeze(1)
    inside = torch.ones(len(grid), dtype=torch.bool)
    for part in slices(len(able), 3 * 8 * len(grid), grid.device):
        chosen = able[part]
        moved = grid @ torch.stack([plane.along[chosen], plane.across[chosen]])  # [P, k]
        inside &= ((lower[chosen] <= moved) & (moved <= upper[chosen])).all(1)
    return inside


def _first_wrong(axis: Tensor, right: Tensor) -> float | None:
    wrong = (~right).nonzero()
    return float(axis[wrong[0, 0]]) if len(wrong) else None


def _runs(codes: list[int]) -> str:
    return "".join(f"{CODES[code]}{len(list(same))}" for code, same in groupby(codes))
