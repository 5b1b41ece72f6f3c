"""What every imported posterior must satisfy: the library's moments, and a certificate that the
checker accepts."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from bnncert import Concentration, Problem, ball, certify, class_robust, save_posterior
from bnncert.model.network import Network
from bnncert.posteriors.base import Posterior, sample
from bnncert_check import ACCEPT, check_certificate, read_model
from scenarios import sample_region

DRAWS = 2000
ERRORS = 5.0  # standard errors that two estimates of one number may differ by
ROUNDING = 1e-6  # relative, of libraries that compute in float32


def assert_same_moments(theirs: Tensor, ours: Tensor) -> None:
    """Means and covariances of two sets of draws [S, n] agree within their standard errors."""
    theirs, ours = theirs.double(), ours.double()
    scale = ROUNDING * (1 + theirs.abs().amax())
    errors = [part.var(0) / len(part) for part in (theirs, ours)]
    apart = (theirs.mean(0) - ours.mean(0)).abs()
    assert bool((apart <= ERRORS * (errors[0] + errors[1]).sqrt() + scale).all()), apart.max()
    (first, first_error), (second, second_error) = _covariance(theirs), _covariance(ours)
    allowed = ERRORS * (first_error**2 + second_error**2).sqrt() + scale**2
    assert bool(((first - second).abs() <= allowed).all()), ((first - second).abs() / allowed).max()


def _covariance(draws: Tensor) -> tuple[Tensor, Tensor]:
    """The covariance matrix and the standard error of each entry, sqrt((E[a² b²] - E[ab]²) / S)."""
    apart = draws - draws.mean(0)
    covariance = apart.mT @ apart / len(draws)
    fourth = (apart**2).mT @ apart**2 / len(draws)
    return covariance, ((fourth - covariance**2).clamp_min(0) / len(draws)).sqrt()


def assert_certified(
    network: Network,
    posterior: Posterior,
    theirs: Tensor,
    x: Tensor,
    folder: Path,
    eps: float = 1e-3,
) -> None:
    """Some of the inputs x get bounds above 1/2; the checker accepts all bounds, and of the
    library's draws [S, n] no smaller share is safe."""
    x = x.double()
    labels = network.forward(posterior.center, x).argmax(-1)
    region = ball(x, eps)
    problem = Problem(network, posterior, class_robust(region, labels, network.outputs))
    save_posterior(folder / "posterior.safetensors", network, posterior)
    model = read_model(folder / "posterior.safetensors")
    points = sample_region(region, 8, torch.Generator().manual_seed(0))
    lowers = []
    for i, result in enumerate(certify(problem, Concentration())):
        if result.certificate is None:
            continue
        result.certificate.write(folder / "certificate.safetensors")
        verdict = check_certificate(folder / "certificate.safetensors", model)
        assert verdict.status == ACCEPT, verdict
        answers = network.forward(theirs.double(), points[:, i]).argmax(-1)  # [S, 8]
        safe = float((answers == labels[i]).all(-1).double().mean())
        assert result.lower <= safe + ERRORS * math.sqrt(0.25 / len(theirs))
        lowers.append(result.lower)
    assert max(lowers, default=0) > 0.5, lowers


def ours(posterior: Posterior, seed: int = 0) -> Tensor:
    return sample(posterior, DRAWS, seed)
