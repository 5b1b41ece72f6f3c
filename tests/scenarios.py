"""Problems shared by the tests: random ones by seed, the paper's two-weight example, the data
folder."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm as normal
from torch import Tensor

from bnncert.layers import (
    ELU,
    GELU,
    SELU,
    Dense,
    Flatten,
    HardSwish,
    Hardtanh,
    LeakyReLU,
    Mish,
    PReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softplus,
    Softsign,
    Tanh,
)
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from bnncert.model.layers import Layer
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import (
    NORMS,
    Clip,
    Region,
    Specification,
    ball,
    class_robust,
    half_space,
    output_interval,
)
from bnncert.numerics.rounding import allow
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.gaussian import LowRankNormal, Mixture, full_covariance
from bnncert.posteriors.independent import Normal

ACTIVATIONS: tuple[Activation, ...] = (ReLU(), LeakyReLU(), LeakyReLU(0.3), Tanh(), Sigmoid())
PIECEWISE_LINEAR = ACTIVATIONS[:3]
EACH: tuple[Activation, ...] = (
    ReLU(),
    LeakyReLU(0.1),
    PReLU((-0.5,)),
    Hardtanh(),
    Tanh(),
    Sigmoid(),
    GELU(),
    SiLU(),
    Mish(),
    Softplus(10.0),
    ELU(2.0),
    SELU(),
    HardSwish(),
    Softsign(),
)  # one of every class
# What random problems by seed do not hold: they stay as they are.
CURVES: tuple[Activation, ...] = (
    GELU(),
    GELU("tanh"),
    SiLU(),
    Mish(),
    Softplus(),
    Softplus(5.0),
    ELU(),
    ELU(0.4),
    ELU(2.5),
    SELU(),
    HardSwish(),
    Softsign(),
)
KINKED: tuple[Activation, ...] = (
    Hardtanh(),
    Hardtanh(0, 6),
    Hardtanh(0.5, 2.0),
    PReLU(),
    PReLU(-0.5),
    PReLU(1.7),
)
EVERY = (*ACTIVATIONS, *CURVES, *KINKED)
RADII = (0.0, 0.01, 0.1, 0.5)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def gaussian(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_network(
    seed: int, activations: tuple[Activation, ...] = ACTIVATIONS, dense: int | None = None
) -> Network:
    """1 to 3 dense layers of widths 1 to 5; some flatten a 2-D input, lack a bias or end in an
    activation."""
    choose = random.Random(seed)
    first: list[Layer] = [Flatten()] if choose.random() < 0.3 else []
    shape = (choose.randint(1, 2), choose.randint(1, 3)) if first else (choose.randint(1, 5),)
    width, layers = int(np.prod(shape)), first
    for _ in range(dense or choose.randint(1, 3)):
        outputs = choose.randint(1, 5)
        layers += [Dense(width, outputs, bias=choose.random() < 0.8), choose.choice(activations)]
        width = outputs
    return Network(shape, tuple(layers if choose.random() < 0.25 else layers[:-1]))


def random_region(
    seed: int, shape: tuple[int, ...], norm: str | None = None, batch: int = 3
) -> Region:
    """Balls around signed or non-negative inputs, clipped or not; linf, l2 or l1 by the seed unless
    given."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    signed, clipped = choose.random() < 0.5, choose.random() < 0.5
    center = (
        2 * uniform(batch, *shape, generator=generator) - 1
        if signed
        else uniform(batch, *shape, generator=generator)
    )
    clip: Clip = ((-1.0, 1.0) if signed else (0.0, 1.0)) if clipped else None
    return ball(center, choose.choice(RADII), norm or choose.choice(NORMS), clip)


def random_posterior(seed: int, network: Network) -> Normal:
    """Means of either sign; about a third of the weights are deterministic."""
    generator = torch.Generator().manual_seed(seed + 1000)
    std = 0.1 * uniform(network.size, generator=generator)
    fixed = uniform(network.size, generator=generator) < 1 / 3
    return Normal(
        gaussian(network.size, generator=generator), torch.where(fixed, torch.zeros_like(std), std)
    )


def random_specification(seed: int, network: Network, region: Region) -> Specification:
    """Class robustness, a half-space, an interval or two rows of any sign."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed + 2000)
    kind = choose.choice(["classes", "half-space", "interval", "rows"])
    if kind == "classes" and network.outputs > 1:
        labels = torch.randint(network.outputs, (len(region),), generator=generator)
        return class_robust(region, labels, network.outputs)
    if kind == "half-space":
        return half_space(
            region, gaussian(network.outputs, generator=generator), choose.uniform(-1, 1)
        )
    if kind == "interval":
        return output_interval(
            region, -2.0, 3.0, network.outputs, choose.randrange(network.outputs)
        )
    rows = gaussian(len(region), 2, network.outputs, generator=generator)
    return Specification(region, rows, gaussian(len(region), 2, generator=generator))


def random_problem(
    seed: int,
    norm: str | None = None,
    activations: tuple[Activation, ...] = ACTIVATIONS,
    batch: int = 3,
    dense: int | None = None,
) -> Problem:
    network = random_network(seed, activations, dense)
    region = random_region(seed, network.input_shape, norm, batch)
    return Problem(
        network, random_posterior(seed, network), random_specification(seed, network, region)
    )


def with_posterior(problem: Problem, posterior: Posterior) -> Problem:
    return Problem(problem.network, posterior, problem.specification)


def wider(problem: Problem, seed: int) -> Problem:
    """The problem with standard deviations of 0.001 to 3, some of them 0."""
    generator = torch.Generator().manual_seed(seed)
    scale = 10 ** (3.5 * uniform(1, generator=generator) - 3)
    std = problem.posterior.std * 10 * scale.clamp_max(3)
    return with_posterior(problem, Normal(problem.posterior.mean, std))


def correlated(problem: Problem, seed: int) -> Problem:
    """Full covariance for odd seeds, low rank plus diagonal for even ones."""
    generator = torch.Generator().manual_seed(seed)
    mean, n = problem.posterior.mean, problem.posterior.size
    scale = float(10 ** (1.5 * uniform(1, generator=generator) - 1.5))
    if seed % 2:
        root = gaussian(n, n, generator=generator) * scale / math.sqrt(n)
        return with_posterior(
            problem,
            full_covariance(mean, root @ root.mT + 1e-9 * torch.eye(n, dtype=torch.float64)),
        )
    factor = gaussian(n, 2, generator=generator) * scale
    return with_posterior(problem, LowRankNormal(mean, problem.posterior.std * scale, factor))


def draw_many(posterior: Posterior, count: int, generator: torch.Generator) -> Tensor:
    """Networks [count, n] all at once, by the definition of each family."""
    if isinstance(posterior, Mixture):
        parts = torch.stack([draw_many(part, count, generator) for part in posterior.components])
        first = uniform(count, generator=generator) < posterior.weights[0]
        return torch.where(first.unsqueeze(1), parts[0], parts[1])
    weights = posterior.mean + posterior.std * gaussian(count, posterior.size, generator=generator)
    if isinstance(posterior, LowRankNormal):
        shared = gaussian(count, posterior.factor.shape[1], generator=generator)
        weights[:, posterior.size - len(posterior.factor) :] += shared @ posterior.factor.mT
    return weights


def wide_biases(region: Region) -> Problem:
    """Of 30 inputs and 4 hidden neurons: wide weights and above all biases, before an output
    that is nearly certain."""
    generator, network, first = torch.Generator().manual_seed(0), mlp(30, 4, 2), 30 * 4
    mean = 0.05 * gaussian(network.size, generator=generator)
    std = torch.full((network.size,), 0.5).double()
    std[first : first + 4], std[first + 4 :] = 3.0, 0.1
    mean[first + 4 : -2] += 0.15 * (-1.0) ** torch.arange(8)
    labels = network.forward(mean, region.center).argmax(-1)
    return Problem(network, Normal(mean, std), class_robust(region, labels, 2))


def weight_boxes(problem: Problem, seed: int, radius: float = 1.0) -> Box:
    """One box an input [B, n]: mean ± radius times up to 2σ to each side, no width where σ = 0."""
    generator = torch.Generator().manual_seed(seed + 3000)
    posterior = problem.posterior
    sides = [
        2 * radius * posterior.spread * uniform(len(problem), posterior.size, generator=generator)
        for _ in range(2)
    ]
    return Box(posterior.center - sides[0], posterior.center + sides[1])


def sample_box(box: Box, count: int, generator: torch.Generator) -> Tensor:
    """Points [count, *shape] of the box: half of them vertices, the rest inside."""
    corners = uniform(count, *box.shape, generator=generator).round()
    share = torch.where(
        uniform(count, *[1] * len(box.shape), generator=generator) < 0.5,
        corners,
        uniform(count, *box.shape, generator=generator),
    )
    return torch.lerp(box.lower, box.upper, share).clamp(box.lower, box.upper)


def sample_region(region: Region, count: int, generator: torch.Generator) -> Tensor:
    """Points [count, B, *shape] of the region, many on its boundary; a hair inside where a ball's
    norm is rounded."""
    if region.is_box:
        return sample_box(region.box, count, generator)
    direction = gaussian(count, *region.center.flatten(1).shape, generator=generator)
    if region.norm == "l1":  # half of the directions along an axis: the vertices
        axis = torch.nn.functional.one_hot(direction.abs().argmax(-1), direction.shape[-1])
        direction = torch.where(
            uniform(count, 1, 1, generator=generator) < 0.5, direction * axis, direction
        )
    direction = direction / direction.norm(2 if region.norm == "l2" else 1, dim=-1, keepdim=True)
    length = uniform(count, len(region), 1, generator=generator).mul(2).clamp_max(1) * (1 - 1e-12)
    x = region.center + (region.eps.unsqueeze(-1) * length * direction).reshape(
        count, *region.center.shape
    )
    return x if region.clip is None else x.clamp(*region.clip)


def paired_margins(problem: Problem, weights: Tensor, x: Tensor) -> Tensor:
    """The rows [..., B, R] of weights [..., B, n] at x [..., B, *shape], one input a weight
    vector."""
    outputs = problem.network.forward(weights, x.unsqueeze(weights.dim() - 1)).squeeze(-2)
    return problem.specification.margins(outputs)


def claimed(probability: float) -> float:
    """What is claimed of a lower bound: a little less, for a checker's roundings."""
    return allow(probability, 1.0)[0]


def paper_example(eps: float = 0.0) -> Problem:
    """The paper's Figure 1: f(x) = ReLU(w2 ReLU(w1 x)), w ~ N(0, 1)², X = {1}, safe iff y <= 1."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False), ReLU()))
    posterior = Normal(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    return Problem(
        network, posterior, half_space(ball(vector(1.0).reshape(1, 1), eps), vector(-1.0), -1.0)
    )


def paper_probability(eps: float = 0.0) -> float:
    """P(w1⁺ w2 (1 + eps) <= 1) = 1/2 + ∫_0^∞ φ(w) Φ(1 / (w (1 + eps))) dw."""

    def density(w: float) -> float:
        return float(normal.pdf(w) * normal.cdf(1 / (w * (1 + eps))))

    return 0.5 + float(quad(density, 0, np.inf, epsabs=1e-13)[0])


def data_folder() -> Path:
    """BNNCERT_DATA, or the test is skipped."""
    folder = os.environ.get("BNNCERT_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("BNNCERT_DATA does not name a folder with MNIST and the posteriors")
    return Path(folder)


def mnist(count: int) -> tuple[Tensor, Tensor]:
    """The first test images, flattened, in [0, 1], and their labels."""
    with np.load(data_folder() / "mnist_test.npz", allow_pickle=False) as file:
        x, y = file["x"][:count], file["y"][:count]
    return torch.from_numpy(x.reshape(count, -1) / 255.0), torch.from_numpy(y.astype(np.int64))


def noisy(
    choose: random.Random,
    generator: torch.Generator,
    size: int,
    stds: Sequence[float],
    means: Sequence[float],
) -> Normal:
    """Weights of which some are certain, the others as wide as these standard deviations."""
    std = choose.choice(stds) * uniform(size, generator=generator)
    std = torch.where(uniform(size, generator=generator) < 0.15, 0.0, std)
    return Normal(choose.choice(means) * gaussian(size, generator=generator), std)
