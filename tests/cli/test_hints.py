"""Hints: where results say nothing one line says why, and what to try."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import (
    Concentration,
    Network,
    Problem,
    ball,
    certify,
    class_robust,
    mlp,
    save_posterior,
)
from bnncert.hints import hints
from bnncert.layers import Tanh
from bnncert.methods import method_of
from bnncert.posteriors import Empirical, Laplace, LowRankNormal, Mixture, Normal
from commands import Run
from scenarios import gaussian

INPUTS = 12  # more than regions are cut in


def setting(folder: Path, std: float, network: Network | None = None, scale: float = 1.0) -> Path:
    """A posterior of that spread around a network, and inputs with its classes."""
    network = network or mlp(INPUTS, 20, 20, 3)
    generator = torch.Generator().manual_seed(0)
    mean = scale * gaussian(network.size, generator=generator)
    posterior = Normal(mean, torch.full_like(mean, std))
    save_posterior(folder / "p.safetensors", network, posterior)
    x = gaussian(4, INPUTS, generator=generator)
    outputs = network.forward(mean, x)
    np.savez(folder / "x.npz", x=x.numpy(), y=outputs.argmax(-1).numpy())
    np.savez(folder / "wrong.npz", x=x.numpy(), y=outputs.argmin(-1).numpy())
    np.savez(folder / "y.npz", x=x.numpy(), y=outputs[:, :1].numpy())
    np.savez(folder / "far.npz", x=x.numpy(), y=1000 + outputs[:, :1].numpy())
    return folder / "p.safetensors"


def hinted(run: Run, folder: Path, *options: object, inputs: str = "x") -> list[str]:
    asked = ("certify", folder / "p.safetensors", "--inputs", folder / f"{inputs}.npz", *options)
    code, text, error = run(*asked)
    assert (code, error) == (0, "")
    return [line.removeprefix("hint: ") for line in text.splitlines() if line.startswith("hint: ")]


def test_results_that_say_something_need_none(run: Run, tmp_path: Path) -> None:
    setting(tmp_path, 1e-4)
    assert hinted(run, tmp_path, "--eps", 0) == []
    assert hinted(run, tmp_path, "--eps", 5, "--upper") == []
    assert hinted(run, tmp_path, "--eps", 0, "--method", "pie", "--samples", 2, "--step", 4) == []


def test_a_region_too_large(run: Run, tmp_path: Path) -> None:
    setting(tmp_path, 1e-4)
    (hint,) = hinted(run, tmp_path, "--eps", 5)
    assert hint.startswith(
        "nothing is known of any input: at eps 0 the first inputs have P_safe of"
    )
    assert "so that the region is what the bound cannot follow; try --effort 3, --upper, " in hint
    assert hint.endswith(
        "a smaller --eps, a posterior that is trained for certificates (train --robust)"
    )
    (hint,) = hinted(run, tmp_path, "--eps", 5, "--effort", 3, "--nodes", 1)
    assert "try --upper, a smaller --eps" in hint


def test_a_posterior_too_wide(run: Run, tmp_path: Path) -> None:
    """Three hidden layers, whose networks mostly agree: nothing is proved even at the inputs."""
    network = mlp(INPUTS, 30, 30, 30, 3)
    setting(tmp_path, 0.2, network)
    (hint,) = hinted(run, tmp_path, "--eps", 0)
    assert "% are right at the first inputs, but with a median σ of 0.2 the bound proves " in hint
    assert "nothing of them even at eps 0; try --effort 3, --upper, a posterior" in hint


def test_networks_that_are_wrong(run: Run, tmp_path: Path) -> None:
    setting(tmp_path, 3.0)
    (hint,) = hinted(run, tmp_path, "--eps", 0.1, "--effort", 0)
    assert "of 20 networks drawn " in hint
    assert "% are right at the first inputs, so that P_safe itself is small; try" in hint
    (hint,) = hinted(run, tmp_path, "--eps", 0.1, inputs="wrong")
    assert hint.startswith("the mean network is wrong at every input: are inputs and labels those")


def test_boxes_that_are_too_small(run: Run, tmp_path: Path) -> None:
    """732 random weights: Φ(3.3) - Φ(-3.3) to that power is a half."""
    setting(tmp_path, 1.0)
    (hint,) = hinted(run, tmp_path, "--eps", 0.1, "--method", "sampling", "--samples", 2)
    assert "a box that holds half of the posterior reaches 3.3 σ to both sides of all 743 " in hint
    assert "random weights, and none near that size is proved safe; try --method conc" in hint


def test_targets_far_from_predictions(run: Run, tmp_path: Path) -> None:
    setting(tmp_path, 1e-4)
    asked = ("--eps", 0, "--tolerance", 1, "--output", 0)
    assert hinted(run, tmp_path, *asked, inputs="y") == []
    (hint,) = hinted(run, tmp_path, *asked, inputs="far")
    assert hint.startswith("every target is far from what the mean network predicts, by 1000 at")
    assert "see that inputs and targets are in the units of the training" in hint


def test_activations_that_cannot_be_split(run: Run, tmp_path: Path) -> None:
    setting(tmp_path, 1e-4, mlp(INPUTS, 8, 3, activation=Tanh()))
    assert hinted(run, tmp_path, "--eps", 0.01, "--effort", 1) == []
    (hint,) = hinted(run, tmp_path, "--eps", 0.01, "--effort", 3)
    assert hint == (
        "effort 3 branches on the signs of neurons, and Tanh cannot be split: the bounds are those "
        "of effort 1"
    )
    setting(tmp_path, 1e-4, mlp(INPUTS, 3))
    (hint,) = hinted(run, tmp_path, "--eps", 0.01, "--effort", 2)
    assert "effort 2 branches on the signs of neurons, and there is no activation to split" in hint


@pytest.mark.parametrize("family", ["low-rank", "mixture", "laplace", "samples", "certain"])
def test_every_family_gets_its_hint(family: str) -> None:
    network = mlp(INPUTS, 10, 10, 3)
    generator = torch.Generator().manual_seed(0)
    mean = gaussian(network.size, generator=generator)
    ones = torch.ones_like(mean)
    normal = Normal(mean, 0.3 * ones)
    posterior = {
        "low-rank": LowRankNormal(mean, 0 * ones, 0.1 * ones.unsqueeze(1)),
        "mixture": Mixture((0.5, 0.5), (normal, Normal(-mean, 0.3 * ones))),
        "laplace": Laplace(mean, 0.3 * ones),
        "samples": Empirical(mean.unsqueeze(0)),
        "certain": Normal(mean, 0 * ones),
    }[family]
    x = gaussian(2, INPUTS, generator=generator)[1:]
    labels = network.forward(posterior.center, x).argmax(-1)
    problem = Problem(network, posterior, class_robust(ball(x, 0.25), labels, 3))
    method = {"laplace": "sampling", "samples": "enumeration"}.get(family, "concentration")
    results = certify(problem, method)
    (hint,) = hints(problem, method_of(method), results)
    assert hint.startswith("nothing is known of any input: ")
    assert hints(problem, Concentration(), []) == []
