"""Laws of several inputs at once are those of each of them, on any device."""

from __future__ import annotations

import pytest
import torch

from bnncert import Problem, class_robust, mlp
from bnncert.laws.head import read_box
from bnncert.laws.proof import prove_laws
from bnncert.laws.upper import worthwhile
from bnncert.layers import PReLU, ReLU, Tanh
from bnncert.model.activations import Activation
from bnncert.model.specification import box_around
from bnncert.numerics import batching
from bnncert.posteriors.independent import Normal
from scenarios import gaussian
from trunks import behind
from truth import refuted_by_laws

KINDS: dict[str, tuple[int, int, Activation]] = {  # inputs, neurons
    "few neurons": (12, 3, ReLU()),
    "many neurons": (10, 50, ReLU()),
    "few inputs": (3, 4, ReLU()),
    "lines": (3, 4, Tanh()),
    "lines by neuron": (2, 3, PReLU((0.1, 0.25, -0.5), (3,))),
}


def several(kind: str) -> tuple[Problem, Normal]:
    """Points and boxes, in some of which not all inputs move, of near and of far classes."""
    if kind == "a trunk":
        return behind(1)
    inputs, neurons, activation = KINDS[kind]
    generator = torch.Generator().manual_seed(7)
    network = mlp(inputs, neurons, 3, activation=activation)
    mean = gaussian(network.size, generator=generator)
    posterior = Normal(mean, torch.full_like(mean, 0.3))
    center = gaussian(6, inputs, generator=generator)
    moving = torch.tensor([0, 1, 1, 2, 2, 1]).unsqueeze(1) > torch.arange(inputs) % 2
    labels = network.forward(mean, center).argmax(-1)
    region = box_around(center, 0.02 * moving)
    return Problem(network, posterior, class_robust(region, labels, 3)), posterior


def said(problem: Problem, posterior: Normal) -> list[tuple[float, ...]]:
    """Of every input: both bounds, the first row's choice, the row refuted and where."""
    found = []
    laws, refuted = prove_laws(problem, posterior), refuted_by_laws(problem, posterior)
    for law, other in zip(laws, refuted, strict=True):
        point = () if other is None else (other.upper, other.row, *other.point.flatten().tolist())
        found.append((law.bound, *law.numbers[0].tolist(), *point))
    return found


@pytest.mark.parametrize("kind", [*KINDS, "a trunk"])
def test_together_as_one_by_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where memory is short."""
    problem, posterior = several(kind)
    together = said(problem, posterior)
    alone = [said(problem[i : i + 1], posterior)[0] for i in range(len(problem))]
    assert max(bound for bound, *_ in together) > 0
    for several_at_once, one in zip(together, alone, strict=True):
        assert several_at_once == pytest.approx(one, rel=1e-9, abs=1e-12)
    box = read_box(problem.network, posterior, problem.specification.region)
    noisy = worthwhile(problem, posterior, box)
    monkeypatch.setattr(batching, "CPU_BUDGET", 1)
    assert said(problem, posterior) == alone
    assert worthwhile(problem, posterior, box) == noisy


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", [*KINDS, "a trunk"])
def test_on_a_gpu(kind: str) -> None:
    problem, posterior = several(kind)
    there = problem.to("cuda")
    assert isinstance(there.posterior, Normal)
    for found, known in zip(said(there, there.posterior), said(problem, posterior), strict=True):
        assert found == pytest.approx(known, rel=1e-9, abs=1e-9)
