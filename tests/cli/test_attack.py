"""`bnncert attack`: exact on linear networks, and inside the region."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.progress import Progress

from bnncert import Problem, attack, ball, class_robust, console, mlp, save_posterior
from bnncert.model.network import Network
from bnncert.posteriors import Normal
from bnncert.posteriors.base import sample
from bnncert.zoo.recipes import posterior_path, shipped_index
from commands import Run
from scenarios import gaussian, uniform


def shares(text: str) -> dict[str, tuple[float, float]]:
    """Clean and attacked accuracy by network, from the table of `attack`."""
    found = re.findall(r"^(\S.*?) +(\d+\.\d\d) % +(\d+\.\d\d) %$", text, re.MULTILINE)
    assert len(found) == text.count("%") / 2
    return {name: (float(clean), float(attacked)) for name, clean, attacked in found}


def test_attack_the_shipped_digits_network(run: Run) -> None:
    command = ["attack", posterior_path("digits"), "--inputs", "digits"]
    code, text, error = run(*command)
    assert (code, error) == (0, "")
    assert text.splitlines()[0].endswith("297 inputs, eps 0.05 (linf)")
    assert [*shares(text)] == ["mean"]
    clean, attacked = shares(text)["mean"]
    assert clean == round(100 * shipped_index()["digits"]["accuracy"], 2)
    assert 0 < attacked < clean - 5
    assert shares(run(*command, "--eps", 0)[1]) == {"mean": (clean, clean)}


def robust_share(
    network: Network, weights: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **region: Any
) -> float:
    """The percentage of a linear network's inputs that are right on their whole region, which has a
    closed form."""
    norm, eps, clip = region["norm"], region["eps"], region["clip"]
    (matrix, bias) = network.split(weights)[0]
    rows = matrix.T[y].unsqueeze(1) - matrix.T  # [B, classes, inputs]
    margins = torch.einsum("brn,bn->br", rows, x) + bias[y].unsqueeze(1) - bias
    if norm == "linf":
        low, high = ((x - eps).clamp_min(0), (x + eps).clamp_max(1)) if clip else (x - eps, x + eps)
        worst = torch.where(rows > 0, (low - x).unsqueeze(1), (high - x).unsqueeze(1))
        margins = margins + (rows * worst).sum(-1)
    else:
        margins = margins - eps * (rows.norm(dim=-1) if norm == "l2" else rows.abs().amax(-1))
    margins[torch.arange(len(y)), y] = torch.inf
    return 100 * float((margins.amin(-1) > 0).double().mean())


@pytest.fixture
def linear(tmp_path: Path) -> tuple[Path, Path, Network, Normal]:
    """A wide posterior of linear networks, on which the attack finds the worst input, and 200
    images."""
    generator = torch.Generator().manual_seed(3)
    network = mlp(4, 3)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.3).double()
    )
    save_posterior(tmp_path / "linear.safetensors", network, posterior)
    x = np.random.default_rng(1).integers(0, 256, (200, 2, 2), np.uint8)
    y = (
        network.forward(posterior.mean, torch.from_numpy(x.reshape(200, 4) / 255.0))
        .argmax(-1)
        .numpy()
    )
    y[:9] = (y[:9] + 1) % 3  # misclassified
    np.savez(tmp_path / "images.npz", x=x, y=y)
    return tmp_path / "linear.safetensors", tmp_path / "images.npz", network, posterior


@pytest.mark.parametrize(
    ("norm", "clip"), [("linf", True), ("linf", False), ("l2", False), ("l1", False)]
)
def test_attacks_on_linear_networks_are_exact(
    norm: str, clip: bool, run: Run, linear: tuple[Path, Path, Network, Normal]
) -> None:
    path, images, network, posterior = linear
    arrays = np.load(images)
    x, y = torch.from_numpy(arrays["x"].reshape(200, 4) / 255.0), torch.from_numpy(arrays["y"])
    command = ["attack", path, "--inputs", images, "--norm", norm, "--samples", 4, "--seed", 5]
    code, text, error = run(*command, "--eps", 0.15, *([] if clip else ["--no-clip"]))
    assert (code, error) == (0, "")
    assert [*shares(text)] == ["mean", "4 samples"]
    for name, networks in (
        ("mean", posterior.mean.unsqueeze(0)),
        ("4 samples", sample(posterior, 4, 5)),
    ):
        region = {"norm": norm, "clip": clip}
        clean, attacked = (
            sum(robust_share(network, weights, x, y, eps=eps, **region) for weights in networks)
            / len(networks)
            for eps in (0.0, 0.15)
        )
        assert attacked < clean < 100
        assert shares(text)[name] == pytest.approx((clean, attacked), abs=0.0051)


def test_clipping_shields_from_attacks(
    run: Run, linear: tuple[Path, Path, Network, Normal]
) -> None:
    """The clipped region is the smaller one; on linear networks the attack finds the worst input of
    both."""
    command = ["attack", linear[0], "--inputs", linear[1], "--eps", 0.15]
    clipped, free = (shares(run(*command, *option)[1])["mean"][1] for option in ([], ["--no-clip"]))
    assert free < clipped
    assert shares(run(*command, "--clip", 0, 1)[1])["mean"][1] == clipped
    assert shares(run(*command, "--clip", -9, 9)[1])["mean"][1] == free


def test_attacks_on_some_inputs(run: Run, linear: tuple[Path, Path, Network, Normal]) -> None:
    """The first nine are misclassified."""
    command = ["attack", linear[0], "--inputs", linear[1], "--eps", 0]
    assert shares(run(*command, "--select", "0:9")[1]) == {"mean": (0.0, 0.0)}
    assert shares(run(*command, "--select", "8,9,10")[1]) == {"mean": (66.67, 66.67)}
    assert shares(run(*command, "--select", "9")[1]) == {"mean": (100.0, 100.0)}


def test_a_bar_shows_how_far_the_attack_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, for the mean and for the sampled networks; every input moves it once."""
    seen: dict[str, list[int]] = {}

    @contextmanager
    def recording(label: str) -> Iterator[Progress]:
        bar = Progress(disable=True)
        yield bar
        (task,) = bar.tasks
        seen[label] = [int(task.completed), int(task.total or 0)]

    monkeypatch.setattr(console, "progress", recording)
    code, _, _ = run(
        "attack", posterior_path("digits"), "--inputs", "digits", "--select", "0:20", "--samples", 2
    )
    assert code == 0
    assert seen == {"attacking mean": [20, 20], "attacking 2 samples": [20, 20]}


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_from_points_nothing_climbs(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    network = mlp(3, 4, 2)
    weights = gaussian(2, network.size, generator=generator)
    x, start = (uniform(5, 3, generator=generator) for _ in range(2))
    region = ball(x, 0, norm=norm, clip=(0, 1))
    posterior = Normal(weights[0], torch.ones_like(weights[0]))
    problem = Problem(network, posterior, class_robust(region, [0] * 5, 2))
    monkeypatch.delattr(attack, "_descend")
    found = attack.pgd(problem, weights, start)
    assert torch.equal(found.points, region.center.expand(2, -1, -1))
    assert torch.equal(found.margins, problem.margins(weights).amin(-1))
