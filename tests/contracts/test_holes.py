"""What the prover once claimed and is false, what it once took in, and what its own checker once
refused."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bnncert import (
    GIE,
    Box,
    Concentration,
    InputError,
    Network,
    Problem,
    ball,
    certify,
    class_robust,
    decide,
    explicit_box,
    half_space,
    load_posterior,
    mlp,
    output_interval,
    save_posterior,
)
from bnncert.bounds.relaxations import image, relax
from bnncert.concentration.domains import Domains, roots, walk_of, whole
from bnncert.concentration.moments import output_norms
from bnncert.concentration.proof import prove
from bnncert.concentration.trace import trace
from bnncert.layers import Conv2d, Dense, Flatten, LeakyReLU, ReLU, Tanh
from bnncert.model.specification import Specification
from bnncert.posteriors import Empirical, Mixture, Normal
from bnncert_check import ACCEPT, check_certificate, read_model
from scenarios import gaussian, random_network, vector

# ---- slopes of leaky ReLUs in float32 ------------------------------------------------------------


def flat_below_zero(slope: float) -> Problem:
    """y = f(x) + b on [-2, 1], b about 2·slope: the least value is about 0, so that P_safe is one
    half."""
    network = Network((1,), (Dense(1, 1, bias=False), LeakyReLU(slope), Dense(1, 1)))
    posterior = Normal(vector(1.0, 1.0, 2 * slope), vector(0.0, 0.0, 1e-10))
    region = explicit_box(Box(vector(-2.0).reshape(1, 1), vector(1.0).reshape(1, 1)))
    return Problem(network, posterior, half_space(region, vector(1.0), 0.0))


@pytest.mark.parametrize("effort", [0, 1, 2, 3])
@pytest.mark.parametrize("slope", [0.01, 0.1, 0.3, 1 / 3, 0.7])
def test_lines_below_a_leaky_relu_stay_below(slope: float, effort: int) -> None:
    """The nearest float32 to 0.01 is smaller: a line of that slope lies above the function for z <
    0."""
    method = Concentration(effort=effort, nodes={2: 60, 3: 200}.get(effort))
    assert certify(flat_below_zero(slope), method)[0].lower <= 0.5 + 1e-6


def test_whatever_slopes_a_domain_has_those_within_their_range_are_taken() -> None:
    problem = flat_below_zero(0.25)
    (proof,) = prove(problem, problem.posterior, 0)
    traced = trace(problem.network, problem.posterior, problem.specification.region, proof.t)
    base = roots(problem, problem.posterior.mean, traced)
    domain = whole(base, torch.tensor([0]), torch.tensor([0]))
    for slopes in (-3.0, 0.0, 0.2):
        wrong = Domains(
            domain.input, domain.row, domain.splits, domain.slopes * 0 + slopes, domain.multipliers
        )
        coefficients = walk_of(base, wrong)[1]
        assert float(coefficients[1]) == 0.25  # on what the first layer gives


# ---- layers that nobody knows --------------------------------------------------------------------


@dataclass(frozen=True)
class GELU:
    """Not monotone, and not one of ours."""

    def __call__(self, z: Tensor) -> Tensor:
        return torch.nn.functional.gelu(z)


class Steeper(ReLU):
    """Looks like one of ours and is not."""

    def __call__(self, z: Tensor) -> Tensor:
        return 2 * super().__call__(z)


@pytest.mark.parametrize("layer", [GELU(), Steeper(), "ReLU", None, ReLU, torch.nn.ReLU()], ids=str)
def test_a_network_takes_no_other_layers(layer: Any) -> None:
    with pytest.raises(InputError, match="is not known; known layers: Dense, Conv2d"):
        Network((1,), (Dense(1, 1), layer, Dense(1, 1)))


def test_no_bound_guesses_what_an_activation_is() -> None:
    interval = Box(vector(-1.0), vector(1.0))
    for bound in (image, relax):
        with pytest.raises(TypeError):
            bound(GELU(), interval)  # type: ignore[operator]
    network = mlp(1, 1, 1)
    object.__setattr__(network, "layers", (network.layers[0], GELU(), network.layers[2]))
    one = torch.ones(network.size, dtype=torch.float64)
    with pytest.raises(TypeError):
        output_norms(network, Normal(one, one), ball(vector(1.0).reshape(1, 1), 0.1))


def test_a_mixture_is_of_gaussians() -> None:
    own = Normal(vector(1.0), vector(1.0))
    for other in (Empirical(vector(1.0).reshape(1, 1)), Mixture((1.0,), (own,))):
        with pytest.raises(InputError, match="its components must be Gaussian"):
            Mixture((0.5, 0.5), (own, other))  # type: ignore[arg-type]


@pytest.mark.parametrize("slope", ["", [], {}, None, True, "0.1", float("nan"), 1.0, -0.1])
def test_the_slope_of_a_leaky_relu_is_a_number(slope: Any) -> None:
    with pytest.raises(InputError, match="give a number in"):
        LeakyReLU(slope)


def test_a_softmax_is_at_the_end_or_nowhere(tmp_path: Path) -> None:
    """Of one number it is 1, so the network outputs -1; without it, it would output -x."""
    arrays = {"W0_mean": np.ones((1, 1)), "W1_mean": -np.ones((1, 1))}
    stds = {name.replace("mean", "std"): 0 * value for name, value in arrays.items()}
    np.savez(tmp_path / "p.npz", **arrays, **stds, meta='{"activations": ["softmax", "linear"]}')
    with pytest.raises(InputError, match="softmax before the end"):
        load_posterior(tmp_path / "p.npz")


# ---- honest certificates that were refused -------------------------------------------------------


def checked(problem: Problem, certificate: Any, folder: Path) -> str:
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    certificate.write(folder / "c.safetensors")
    verdict = check_certificate(folder / "c.safetensors", read_model(folder / "p.safetensors"))
    return verdict.status if verdict.status == ACCEPT else verdict.message


def test_means_of_networks_at_a_point_are_accepted(tmp_path: Path) -> None:
    """Where lower and upper bound are the same but for rounding, which is a share of what was
    summed."""
    for seed in range(120):
        generator = torch.Generator().manual_seed(seed)
        network = random_network(seed)
        samples = gaussian(1 + seed % 4, network.size, generator=generator)
        x = gaussian(1, *network.input_shape, generator=generator)
        region = explicit_box(Box(x, x)) if seed % 2 else ball(x, 0)
        asked = output_interval(region, -1e9, 1e9, network.outputs, seed % network.outputs)
        problem = Problem(network, Empirical(samples), asked)
        assert checked(problem, decide(problem)[0].certificate, tmp_path) == ACCEPT, seed


@pytest.mark.parametrize("first", [ReLU(), LeakyReLU(0.2), Tanh()], ids=str)
@pytest.mark.parametrize("inputs", [1, 2, 9])
def test_networks_that_begin_with_an_activation_are_accepted(
    first: Any, inputs: int, tmp_path: Path
) -> None:
    network = Network((inputs,), (first, Dense(inputs, 6), ReLU(), Dense(6, 1)))
    trees = 0
    for seed in range(16):
        generator = torch.Generator().manual_seed(seed)
        mean = gaussian(network.size, generator=generator)
        x = gaussian(1, inputs, generator=generator)
        bound = float(network.forward(mean, x)) - (0.5, 1.0, 2.0, 4.0)[seed % 4]
        problem = Problem(
            network, Normal(mean, 0.02 + 0 * mean), half_space(ball(x, 0.2), vector(1.0), bound)
        )
        (result,) = certify(problem, Concentration(effort=2, nodes=30, precision=0.0))
        if result.certificate is not None:
            assert checked(problem, result.certificate, tmp_path) == ACCEPT
            lower = result.certificate.header["evidence"]["components"][0]["lower"]
            trees += "trees" in lower or "at" in lower
    assert trees


@pytest.mark.parametrize(("norm", "eps"), [("l2", 0.6), ("l1", 0.1)])
def test_parts_of_a_box_that_miss_the_ball_are_accepted(
    norm: str, eps: float, tmp_path: Path
) -> None:
    """Once the ends of a neuron crossed there, which nothing was prepared for."""
    network, cut = mlp(2, 6, 6, 2), 0
    for seed in (11, 22, 25, 36, 37):
        generator = torch.Generator().manual_seed(seed)
        mean = gaussian(network.size, generator=generator)
        x = torch.rand(1, 2, generator=generator, dtype=torch.float64)
        asked = class_robust(ball(x, eps, norm), network.forward(mean, x).argmax(-1), 2)
        problem = Problem(network, Normal(mean, 1e-3 + 0 * mean), asked)
        (result,) = certify(problem, Concentration(effort=3, precision=0.0, nodes=400))
        if result.certificate is not None:
            assert checked(problem, result.certificate, tmp_path) == ACCEPT
            cut += "at" in result.certificate.header["evidence"]["components"][0]["lower"]
    assert cut


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_attacks_stay_in_balls_that_are_small_beside_their_centres(
    norm: str, tmp_path: Path
) -> None:
    network = mlp(3, 4, 2)
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        mean = gaussian(network.size, generator=generator)
        x = 255 * torch.rand(1, 3, generator=generator, dtype=torch.float64)
        wrong = network.forward(mean, x).argmin(-1)
        problem = Problem(
            network, Normal(mean, 1e-8 + 0 * mean), class_robust(ball(x, 1e-4, norm), wrong, 2)
        )
        (result,) = certify(problem, Concentration(upper=True))
        assert result.upper < 1
        assert result.certificate is not None
        assert checked(problem, result.certificate, tmp_path) == ACCEPT


# ---- rows of two directions, and boxes of kernels ------------------------------------------------


def test_a_mean_is_of_one_direction() -> None:
    """Once each entry was compared for itself, and y0 + y1 and y0 - y1 were taken for one
    direction."""
    posterior = Normal(vector(0, 0, -3, 1), vector(0.001, 0.001, 0.001, 0.001))
    rows = vector(1, 1, 1, -1).reshape(1, 2, 2)
    asked = Specification(ball(vector(0).reshape(1, 1), 0.1), rows, vector(3, 1).reshape(1, 2))
    with pytest.raises(InputError, match="one direction"):
        decide(Problem(mlp(1, 2), posterior, asked))


def test_every_input_has_its_own_kernels_in_a_batch() -> None:
    """Behind a layer whose output may be negative."""
    network = Network(
        (1, 4, 4), (Conv2d(1, 2, (2, 1)), Conv2d(2, 1, (1, 1), (2, 1)), Flatten(), Dense(8, 2))
    )
    generator = torch.Generator().manual_seed(0)
    mean = gaussian(network.size, generator=generator)
    x = torch.rand(3, 1, 4, 4, generator=generator, dtype=torch.float64)
    problem = Problem(
        network, Normal(mean, 0.01 + 0 * mean), half_space(ball(x, 0.01), vector(1, 0), -5.0)
    )
    method = GIE(samples=2, step=0.5, rho=1.0, bound="ibp")
    together = [result.lower for result in certify(problem, method)]
    assert together == [certify(problem[i : i + 1], method)[0].lower for i in range(3)]
    assert min(together) > 0


# ---- programs ------------------------------------------------------------------------------------


def test_threads_that_wait_soon_sleep() -> None:
    """OpenMP says so itself when it is loaded; what the user says goes before."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    shown = plain | {"OMP_DISPLAY_ENV": "verbose"}
    for own, policy in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")):
        program = [sys.executable, "-m", "bnncert", "doctor"]
        said = subprocess.run(
            program, env=shown | own, capture_output=True, text=True, check=True
        ).stderr
        if "OMP_WAIT_POLICY" not in said:
            pytest.skip("this OpenMP does not say how it waits")
        assert f"OMP_WAIT_POLICY = '{policy}'" in said
