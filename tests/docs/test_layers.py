"""The table of layers on the page of networks: its rows are the public layers, and what each cell
says is what happens."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bnncert import Concentration, InputError, Problem, certify, decide, layers, save_posterior
from bnncert.attack import pgd
from bnncert.bounds import BOUNDS
from bnncert.layers import (
    Add,
    AvgPool2d,
    Concat,
    Conv2d,
    Dense,
    Flatten,
    MaxPool2d,
    Pad,
    Permute,
    Reshape,
    Residual,
    Scale,
    Take,
)
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import JOINS, LAYERS, Layer, output_shape
from bnncert.model.network import Network
from bnncert.model.specification import ball, class_robust
from bnncert.posteriors import Normal
from bnncert_check import ACCEPT, check_certificate, read_model
from bnncert_check.verdict import CannotCheck
from pages import text
from scenarios import gaussian

VECTOR, IMAGE = (4,), (2, 3, 3)
# One of each layer, and the shape it reads; activations as they are without options.
EXAMPLES: dict[str, tuple[tuple[int, ...], Layer | Residual]] = {
    "Dense": (VECTOR, Dense(4, 4)),
    "Conv2d": (IMAGE, Conv2d(2, 4, 2, padding=(0, 1, 1, 0), dilation=2, groups=2)),
    "Scale": (VECTOR, Scale((4,))),
    "AvgPool2d": (IMAGE, AvgPool2d(2, 1, 1)),
    "MaxPool2d": (IMAGE, MaxPool2d(2, 1, 1)),
    "Flatten": (VECTOR, Flatten()),
    "Reshape": (VECTOR, Reshape((2, 2))),
    "Permute": (VECTOR, Permute((0,))),
    "Take": (VECTOR, Take(0, (2, 0, 1))),
    "Pad": (VECTOR, Pad((1,), (2,))),
    "Concat": (VECTOR, Concat(0)),
    "Add": (VECTOR, Add()),
    "Residual": (VECTOR, Residual((Dense(4, 4),))),
    **{kind.__name__: (VECTOR, kind()) for kind in ACTIVATIONS},
}


def network_of(name: str) -> Network:
    """The layer behind a dense one, if it reads a vector, and before a dense one; one that reads
    several nodes reads one twice."""
    shape, layer = EXAMPLES[name]
    first = (Dense(4, 4),) if shape == VECTOR else ()
    if isinstance(layer, Residual):
        return Network(shape, (*first, layer, Dense(4, 2)))  # type: ignore[arg-type]
    read = (len(first),) * (1 + isinstance(layer, JOINS))
    size = math.prod(output_shape(layer, *[shape] * len(read)))
    whole = (*first, layer, Flatten(), Dense(size, 2))
    reads = [read if k == len(first) else (k,) for k in range(len(whole))]
    return Network(shape, whole, tuple(reads))


def problem_of(name: str) -> Problem:
    """A narrow posterior over all weights, and a region that most of its networks are robust on."""
    network = network_of(name)
    generator = torch.Generator().manual_seed(3)
    mean = gaussian(network.size, generator=generator)
    posterior = Normal(mean, torch.full_like(mean, 1e-3))
    x = torch.rand(1, *network.input_shape, generator=generator, dtype=torch.float64)
    label = network.forward(mean, x).argmax(-1)
    return Problem(network, posterior, class_robust(ball(x, 1e-4), label, 2))


def forward(problem: Problem, _: Path) -> str:
    found = pgd(problem, problem.posterior.center.unsqueeze(0), steps=2)
    return "yes" if bool((found.margins > 0).all()) else "lost"


def bounded(*names: str) -> Callable[[Problem, Path], str]:
    def cell(problem: Problem, _: Path) -> str:
        spec = problem.specification
        weights = Box(problem.posterior.center, problem.posterior.center)
        found = [
            BOUNDS[name](problem.network, weights, spec.region, spec.rows, spec.offsets)
            for name in names
        ]
        return "yes" if bool((torch.cat(found) > 0).all()) else "lost"

    return cell


def concentration(problem: Problem, _: Path) -> str:
    (result,) = certify(problem)
    (decision,) = decide(problem)
    return "yes" if result.lower > 0.99 and decision.lower > 0.3 else "lost"


def branched(problem: Problem, _: Path) -> str:
    (result,) = certify(problem, Concentration(effort=2, nodes=4, precision=0.0))
    if result.lower < 0.99:
        return "lost"
    return "splits" if any(map(splits, problem.network.layers)) else "yes"


def splits(layer: Layer) -> bool:
    return isinstance(layer, ACTIVATIONS) and bool(layer.traits.splits)


def checked(problem: Problem, folder: Path) -> str:
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    (result,) = certify(problem)
    assert result.certificate is not None
    result.certificate.write(folder / "c.safetensors")
    try:
        verdict = check_certificate(folder / "c.safetensors", read_model(folder / "p.safetensors"))
    except CannotCheck as refused:
        return "no" if refused.code in ("unsupported", "malformed") else refused.code
    return "yes" if verdict.status == ACCEPT else verdict.status


COLUMNS = {
    "forward, attacks": forward,
    "lbp, ibp": bounded("lbp", "ibp"),
    "lbp-forward": bounded("lbp-forward"),
    "concentration, decide": concentration,
    "branch and bound": branched,
    "checker": checked,
}


def cells() -> dict[str, dict[str, str]]:
    """By layer and column, as the page says it."""
    found = re.search(r"^\| layer \|.*?(?=\n\n)", text("networks.md"), re.M | re.S)
    assert found is not None
    (_, *columns), _, *rows = (
        [cell.replace("`", "").strip() for cell in line[1:-1].split("|")]
        for line in found[0].splitlines()
    )
    return {layer: dict(zip(columns, own, strict=True)) for layer, *own in rows}


def test_its_rows_are_the_public_layers() -> None:
    assert set(cells()) == set(layers.__all__) == {*LAYERS, "Residual"} == set(EXAMPLES)


@pytest.mark.parametrize("name", layers.__all__)
def test_its_cells_are_what_happens(name: str, tmp_path: Path) -> None:
    problem = problem_of(name)
    found = {column: happens(column, problem, tmp_path) for column in cells()[name]}
    assert found == cells()[name]


def happens(column: str, problem: Problem, folder: Path) -> str:
    """What is refused must be refused by name."""
    named = {type(layer).__name__ for layer in problem.network.layers}
    try:
        return COLUMNS[column](problem, folder)
    except InputError as refusal:
        return "no" if any(kind in str(refusal) for kind in named) else str(refusal)
