"""Networks that are no chains, by every method: never above brute force, accepted by the checker,
same as unfolded."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bnncert import GIE, PIE, Concentration, Enumeration, Problem, certify, decide, save_posterior
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.model.specification import Specification, ball, class_robust, output_interval
from bnncert.posteriors import Empirical, LowRankNormal, Normal
from bnncert.posteriors.base import Posterior, sample
from bnncert_check import ACCEPT, check_certificate, read_model
from graphs import BENT, KINDS, random_graph
from scenarios import gaussian

DRAWS = {1: 1500, 3: 300}  # by dimensions of the input: kernels that differ are slow
METHODS: tuple[Method, ...] = (
    Concentration(effort=0, upper=True),
    Concentration(effort=1, upper=True),
    Concentration(effort=2, nodes=12, precision=0.0, upper=True),
    Concentration(effort=3, nodes=12, precision=0.0),
    PIE(samples=2, step=1.0),
    GIE(samples=2, step=0.5, rho=1.0, bound="ibp"),
)


def posterior(seed: int, network: Network) -> Posterior:
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    std = (0.003, 0.03, 0.2)[seed % 3] * torch.rand(
        network.size, generator=generator, dtype=torch.float64
    )
    std[torch.rand(network.size, generator=generator) < 0.2] = 0
    if seed % 5 == 4:
        last = sum(math.prod(shape) for shape in network.parameters_by_layer[-1].values())
        rows = network.size if seed % 2 else last
        return LowRankNormal(mean, std, 0.02 * gaussian(rows, 2, generator=generator))
    return Normal(mean, std)


def asked(seed: int, network: Network, center: Tensor) -> Specification:
    generator = torch.Generator().manual_seed(seed + 7)
    x = torch.rand(1, *network.input_shape, generator=generator, dtype=torch.float64)
    region = ball(x, (0.0, 0.02, 0.1)[seed // 3 % 3], ("linf", "l2", "l1")[seed % 3])
    y = network.forward(center, x)
    if network.outputs > 1 and seed % 4:
        return class_robust(region, y.argmax(-1), network.outputs)
    reach = (0.1, 0.5, 2.0)[seed % 3]
    return output_interval(
        region, float(y[0, 0]) - reach, float(y[0, 0]) + 2 * reach, network.outputs
    )


def surviving(problem: Problem) -> tuple[float, bool]:
    """The share of drawn networks whose rows are positive at some points of the region; whether
    those are all of it."""
    region = problem.specification.region
    draws = sample(problem.posterior, DRAWS[len(problem.network.input_shape)], 1)
    generator, x = torch.Generator().manual_seed(3), region.center
    inner = region.eps.reshape(-1, *[1] * (x.dim() - 1))
    noise = 2 * torch.rand(12, *x.shape[1:], generator=generator, dtype=torch.float64) - 1
    sizes = {
        "linf": noise.sign(),
        "l2": noise / noise.flatten(1).norm(dim=1).reshape(-1, *[1] * (x.dim() - 1)),
    }
    steps = sizes.get(
        region.norm, noise / noise.flatten(1).abs().sum(1).reshape(-1, *[1] * (x.dim() - 1))
    )
    points = torch.cat([x, x + inner * steps * 0.999])
    rows = (
        problem.network.forward(draws, points) @ problem.specification.rows[0].T
        + problem.specification.offsets[0]
    )
    return float((rows > 0).all(-1).all(-1).double().mean()), not bool(region.eps[0])


def problem_of(seed: int, images: bool) -> Problem:
    network = random_graph(seed, images, BENT if seed % 2 else KINDS)
    weights = posterior(seed, network)
    center = weights.mean if isinstance(weights, LowRankNormal) else weights.center
    return Problem(network, weights, asked(seed, network, center))


def examine(seed: int, images: bool, folder: Path) -> int:
    """How many certificates that say something were accepted and agree with brute force."""
    problem = problem_of(seed, images)
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    model = read_model(folder / "p.safetensors")
    share, whole = surviving(problem)
    draws, count = DRAWS[len(problem.network.input_shape)], 0
    spread = 5 * math.sqrt(max(share * (1 - share), 1 / draws) / draws)
    correlated = isinstance(problem.posterior, LowRankNormal)
    for method in METHODS[:4] if correlated else METHODS:
        (result,) = certify(problem, method)
        assert result.lower <= share + spread, (seed, method)
        assert not whole or result.upper >= share - spread, (seed, method)
        if result.certificate is not None:
            count += _accepted(result.certificate, folder, model, (seed, method))
    return count


def _accepted(certificate: object, folder: Path, model: object, what: object) -> int:
    path = folder / "c.safetensors"
    path.unlink(missing_ok=True)
    certificate.write(path)  # type: ignore[attr-defined]
    verdict = check_certificate(path, model)  # type: ignore[arg-type]
    assert verdict.status == ACCEPT, (what, verdict)
    return 1


@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
@pytest.mark.parametrize("part", range(4))
def test_no_bound_is_beyond_brute_force_and_the_checker_agrees(
    part: int, images: bool, tmp_path: Path
) -> None:
    assert sum(examine(seed, images, tmp_path) for seed in range(part, 40, 4)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
@pytest.mark.parametrize("part", range(20))
def test_nor_of_thousands(part: int, images: bool, tmp_path: Path) -> None:
    for seed in range(1000 + part, 3000, 20):
        examine(seed, images, tmp_path)


@pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])
def test_means_and_lists_of_networks(images: bool, tmp_path: Path) -> None:
    count = 0
    for seed in range(0, 60, 3):
        problem = problem_of(seed, images)
        drawn = Problem(
            problem.network, Empirical(sample(problem.posterior, 4, 0)), problem.specification
        )
        for each in (problem, drawn):
            save_posterior(tmp_path / "p.safetensors", each.network, each.posterior)
            model = read_model(tmp_path / "p.safetensors")
            (decision,) = decide(each)
            count += (
                _accepted(decision.certificate, tmp_path, model, seed)
                if decision.certificate
                else 0
            )
            if each is drawn:
                (result,) = certify(each, Enumeration())
                count += (
                    _accepted(result.certificate, tmp_path, model, seed)
                    if result.certificate
                    else 0
                )
    assert count > 30
