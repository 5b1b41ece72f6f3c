"""The checker on laws by anchors: of every activation they are accepted, and tampering is
noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import Problem, mlp, output_interval, save_posterior
from bnncert.evidence.laws import AnchorLaw, write_law
from bnncert.laws.anchored import _along, _counts, _size
from bnncert.layers import ELU, GELU, Hardtanh, PReLU, ReLU, Tanh
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from bnncert.model.specification import explicit_box
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, read_model
from bnncert_check.evidence.laws import read_law
from bnncert_check.evidence.proof import Asked
from bnncert_check.grammar import Tensors
from bnncert_check.verdict import CannotCheck
from checking import Desk
from scenarios import gaussian, vector

LOWER = "evidence/components/0/lower"
LAW = f"{LOWER}/law"
NUMBERS, ANCHORS = "tensors/c0.law.numbers", "tensors/c0.law.anchors"
SPARED, SLOPES = "tensors/c0.law.spared", "tensors/c0.law.slopes"
KINDS: tuple[Activation, ...] = (
    ReLU(),
    PReLU((-0.5, 0.25, 2.0), (3,)),
    Hardtanh(),
    Tanh(),
    GELU(),
    ELU(2.0),
)


def asked(activation: Activation, inputs: int = 1, reach: float = 0.5) -> Problem:
    """An output near its mean where the first of some inputs moves far."""
    generator = torch.Generator().manual_seed(1)
    network = mlp(inputs, 3, 1, activation=activation)
    mean = gaussian(network.size, generator=generator)
    center = torch.full((1, inputs), 0.4).double()
    sides = torch.zeros(1, inputs).double()
    sides[0, 0] = reach
    region = explicit_box(Box(center - sides, center + sides), center)
    middle = float(network.forward(mean, center))
    spec = output_interval(region, middle - 1, middle + 1)
    return Problem(network, Normal(mean, torch.full_like(mean, 0.2)), spec)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("anchors"), asked(Tanh()), upper=False)


@pytest.mark.parametrize(
    ("activation", "inputs"), [*((kind, 1) for kind in KINDS), (Tanh(), 3), (GELU(), 3)]
)
def test_they_are_accepted(activation: Activation, inputs: int, tmp_path: Path) -> None:
    """And say a little less than the checker itself finds."""
    own = Desk(tmp_path, asked(activation, inputs), upper=True)
    assert own.names[0] == "anchors"
    assert own.accepted()[0] > 0.2


@pytest.mark.parametrize("std", [0.0, 2.0**-40, 30.0])
def test_anchors_of_any_noise_are_accepted(std: float, tmp_path: Path) -> None:
    """Also where the weights of the input that moves are certain, or nothing else is, about 0."""
    problem = asked(Tanh())
    assert isinstance(problem.posterior, Normal)
    posterior = problem.posterior
    for chosen in (slice(0, 3), slice(3, 10)):
        spread = torch.full_like(posterior.std, 0.2)
        spread[chosen] = std
        own = Desk(tmp_path, replace(problem, posterior=Normal(posterior.mean, spread)))
        verdict = own.verdict()
        assert verdict.status == ACCEPT, verdict


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{LAW}/along", 0, "malformed"),
        (f"{LAW}/along", 65, "malformed"),
        (f"{LAW}/along", 1, "probability-too-high"),  # wide cells
        (f"{LAW}/threshold", (5.0).hex(), "malformed"),  # of two forms
        (f"{LAW}/cells", [32, 2, 16, 4], "malformed"),  # slopes of others
        (f"{LAW}/cells", [56, 1, 4, 1], "probability-too-high"),
        (f"{LAW}/cells", [256, 16, 256, 16], "too-large"),
        (f"{LAW}/size", 2**10, "probability-too-high"),
        (ANCHORS, np.full(2, np.nan), "malformed"),
        (ANCHORS, np.full(2, 2.0**-130), "unsupported"),
        (ANCHORS, np.full(2, 2.0**101), "unsupported"),
        (ANCHORS, np.full(2, 0.4), "probability-too-high"),  # another place
        (ANCHORS, np.full(2, 20.0), "probability-too-high"),
        (ANCHORS, np.zeros(1), "malformed"),
        (SPARED, np.full(2, -0.1), "malformed"),
        (SPARED, np.full(2, np.inf), "malformed"),
        (SPARED, np.full(2, 1.0), "probability-too-high"),
        (SPARED, np.full(2, 1.7e308), "unsupported"),
        (SLOPES, np.zeros((3, 56, 2)), "malformed"),
        (SLOPES, np.full((2, 3, 56, 2), 2.0**21), "malformed"),
        (SLOPES, np.zeros((2, 3, 56, 2)), "probability-too-high"),
        (SLOPES, np.full((2, 3, 56, 2), 2.0**20), "probability-too-high"),
        (NUMBERS, np.ones((2, 6)), "malformed"),
    ],
)
def test_the_form_is_checked(desk: Desk, place: str, value: Any, code: str) -> None:
    assert desk.verdict((place, value)).code == code


@pytest.mark.parametrize(
    ("column", "value"), [(0, 5e-324), (0, 1e-300), (2, 1.7e308), (3, 1.7e308), (4, 5e-324)]
)
def test_lattices_of_extreme_numbers_prove_nothing(desk: Desk, column: int, value: float) -> None:
    """And are no reason to fail."""
    table = desk.tensors["c0.law.numbers"].copy()
    table[..., column] = value
    assert desk.verdict((NUMBERS, table)).code == "probability-too-high"


def anchored(tmp_path: Path, neurons: int, rows: int) -> tuple[AnchorLaw, Path]:
    """A law as provers give it, of numbers that prove nothing; and a posterior."""
    network = mlp(1, neurons, rows + 1, activation=Tanh())
    spread = torch.ones(network.size).double()
    save_posterior(tmp_path / "p.safetensors", network, Normal(0 * spread, spread))
    counts = _counts(neurons, rows)
    numbers = torch.tensor([1.0, 0, 0, 0, 0.5, 1]).double().expand(rows, 3, 6)
    slopes, ends = torch.zeros(rows, neurons, counts[0], 2).double(), torch.zeros(2, rows).double()
    return AnchorLaw(
        0.5, counts, _size(neurons), numbers, _along(neurons), *ends, slopes
    ), tmp_path / "p.safetensors"


def reader(law: AnchorLaw, posterior: Path, parts: int, paid: bool) -> tuple[Asked, dict[str, Any]]:
    """Of a file with the law in some parts, that is as large as they are or nothing."""
    model, tensors, said = read_model(posterior), dict[str, torch.Tensor](), dict[str, Any]()
    for k in range(parts):
        said[f"c{k}."] = write_law(law, f"c{k}.", tensors)
    size = sum(tensor.nbytes for tensor in tensors.values()) if paid else 0
    found = Tensors({name: own.numpy() for name, own in tensors.items()}, size)
    (component,) = model.all_of(frozenset({"normal"}), "laws")
    return Asked(model, component.posterior, len(law.anchors), found), said


@pytest.mark.parametrize("rows", [1, 2, 9, 60])
@pytest.mark.parametrize("neurons", [1, 20, 47, 48, 128, 640, 2000])
def test_what_provers_choose_is_paid_for(neurons: int, rows: int, tmp_path: Path) -> None:
    """By the numbers that it takes: no law is refused for its size, be there ever so many."""
    asking, said = reader(*anchored(tmp_path, neurons, rows), parts=3, paid=True)
    for prefix, value in said.items():
        read_law(value, prefix, asking)
    assert asking.tensors.steps > 3 * neurons * rows


def test_parts_of_a_file_take_time_together(tmp_path: Path) -> None:
    """What any file may take is granted once."""
    asking, said = reader(*anchored(tmp_path, 20, 1), parts=2, paid=False)
    read_law(said["c0."], "c0.", asking)
    with pytest.raises(CannotCheck, match="would take"):
        read_law(said["c1."], "c1.", asking)


def test_lines_take_time(desk: Desk) -> None:
    """Each is found in more digits than a float has."""
    coarse = (f"{LAW}/cells", [256, 1, 2, 1])
    assert desk.verdict(coarse, (f"{LAW}/along", 64)).code == "too-large"
    assert desk.verdict(coarse).code == "malformed"


@pytest.mark.parametrize("law", [0, 1, 2])
@pytest.mark.parametrize(
    ("column", "value", "code"),
    [(0, 0.0, "malformed"), (1, 0.5, "malformed"), (2, -1.0, "malformed"), (4, 1.0, "malformed")],
)
def test_every_lattice_is_checked(
    desk: Desk, law: int, column: int, value: float, code: str
) -> None:
    table = desk.tensors["c0.law.numbers"].copy()
    table[0, law, column] = value
    assert desk.verdict((NUMBERS, table)).code == code


def test_only_one_input_may_move(tmp_path: Path) -> None:
    own = Desk(tmp_path, asked(Tanh(), 3), upper=False)
    assert own.names[0] == "anchors"
    for reach in (np.array([[0.5, 0.1, 0.0]]), np.zeros((1, 3))):
        center = vector(0.4, 0.4, 0.4).reshape(1, 3)
        sides = torch.from_numpy(reach)
        region = explicit_box(Box(center - sides, center + sides), center)
        spec = replace(asked(Tanh(), 3).specification, region=region)
        other = Desk(tmp_path, replace(asked(Tanh(), 3), specification=spec), upper=False)
        other.header["evidence"] = own.header["evidence"]
        asking = {k: v for k, v in other.tensors.items() if not k.startswith("c0.")}
        other.tensors = asking | {k: v for k, v in own.tensors.items() if k.startswith("c0.")}
        assert other.verdict().code == "unsupported"


def test_anchors_of_one_activation_prove_nothing_of_another(desk: Desk, tmp_path: Path) -> None:
    """Steeper than tanh, the network fails more often; what is claimed is too much."""
    other = Desk(tmp_path, asked(ELU(2.0)), upper=False)
    other.header["evidence"] = desk.header["evidence"]
    other.tensors |= {k: v for k, v in desk.tensors.items() if k.startswith("c0.law")}
    assert other.verdict(("claim/lower", desk.header["claim"]["lower"])).status != ACCEPT
