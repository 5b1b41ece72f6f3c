"""The checker on upper bounds of opposite rows at two points: what both fail counts once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import Problem, ball, mlp, output_interval, save_posterior
from bnncert.layers import GELU, Dense, Flatten, Hardtanh, PReLU, ReLU, Tanh
from bnncert.model.activations import Activation
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, read_model
from bnncert_check.laws.anchored import Fall, fall, finer
from bnncert_check.laws.rows import at_once
from bnncert_check.verdict import CannotCheck
from checking import Desk
from scenarios import gaussian, vector
from trunks import behind

UPPER = "evidence/components/0/upper"
BOTH = f"{UPPER}/opposite/both"
POINT, OTHER = "tensors/c0.point", "tensors/c0.opposite.point"
NUMBERS, SLOPES = "tensors/c0.both.numbers", "tensors/c0.both.slopes"


def asked(activation: Activation, neurons: int = 3) -> Problem:
    """An output that rises steeply, near its mean."""
    generator = torch.Generator().manual_seed(1)
    network = mlp(1, neurons, 1, activation=activation)
    mean = gaussian(network.size, generator=generator)
    for weights in (mean[:neurons], mean[2 * neurons : 3 * neurons]):
        weights.copy_(weights.abs() + 0.5)
    region = ball(vector(0.4).reshape(1, 1), 0.2)
    middle = float(network.forward(mean, region.center))
    spec = output_interval(region, middle - 1.2, middle + 1.2)
    return Problem(network, Normal(mean, torch.full_like(mean, 0.3)), spec)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("falls"), asked(Tanh()))


@pytest.mark.parametrize(
    "activation", [ReLU(), PReLU((-0.1, 0.25, 2.0), (3,)), Hardtanh(), Tanh(), GELU()], ids=str
)
def test_they_are_accepted(activation: Activation, tmp_path: Path) -> None:
    """And say a little less than the checker itself finds."""
    own = Desk(tmp_path, asked(activation))
    assert "both" in own.header["evidence"]["components"][0]["upper"]["opposite"]
    assert own.accepted()[1] < 0.95


def test_neurons_with_slopes_of_their_own_are_taken_in_parts(tmp_path: Path) -> None:
    slopes = (-0.1, 0.2, 0.5, 0.8, 1.1)
    own = Desk(tmp_path, asked(PReLU(slopes, (5,)), 5))
    both = own.header["evidence"]["components"][0]["upper"]["opposite"]["both"]
    assert at_once(finer(tuple(both["cells"]), both["along"]), both["size"]) < 5
    assert own.verdict().status == ACCEPT


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{BOTH}/along", 0, "malformed"),
        (f"{BOTH}/cells", [40, 2, 16], "malformed"),
        (f"{BOTH}/cells", [32, 2, 16, 4], "malformed"),  # slopes of others
        (f"{BOTH}/cells", [256, 16, 256, 16], "too-large"),
        (f"{BOTH}/size", 2**9 + 1, "malformed"),
        (f"{BOTH}/size", 2**9, "upper-too-low"),
        (f"{BOTH}/probability", 0.5, "malformed"),
        (BOTH, {}, "malformed"),
        (OTHER, np.array([9.0]), "point-outside-region"),
        (OTHER, np.zeros((1, 2)), "malformed"),
        (POINT, np.array([9.0]), "point-outside-region"),
        (NUMBERS, np.ones((2, 6)), "malformed"),
        (SLOPES, np.zeros((3, 40)), "malformed"),
        (SLOPES, np.full((3, 40, 2), 2.0**21), "malformed"),
        (SLOPES, np.zeros((3, 40, 2)), "upper-too-low"),
        (SLOPES, np.full((3, 40, 2), 2.0**19), "upper-too-low"),
    ],
)
def test_the_form_is_checked(desk: Desk, place: str, value: Any, code: str) -> None:
    assert desk.verdict((place, value)).code == code


def test_where_nothing_moves_there_is_no_fall(desk: Desk) -> None:
    assert desk.verdict((OTHER, desk.tensors["c0.point"])).code == "unsupported"


def test_rows_at_points_of_their_own_may_both_fail(desk: Desk) -> None:
    """A fall that is left out: its tensors and its point are read by nothing."""
    header = json.loads(json.dumps(desk.header))
    other = header["evidence"]["components"][0]["upper"]["opposite"]
    del other["both"]
    kept = {k: v for k, v in desk.tensors.items() if not k.startswith("c0.both")}
    again = Desk.__new__(Desk)
    again.path, again.model, again.header = desk.path, desk.model, header
    again.tensors = kept
    assert again.verdict().code == "malformed"
    del kept["c0.opposite.point"]
    assert again.verdict().code == "upper-too-low"


def test_falls_of_a_flattened_input_are_accepted(tmp_path: Path) -> None:
    given = asked(Tanh())
    flat = Network((1, 1), (Flatten(), Dense(1, 3), Tanh(), Dense(3, 1)))
    region = ball(vector(0.4).reshape(1, 1, 1), 0.2)
    own = Desk(
        tmp_path,
        replace(given, network=flat, specification=replace(given.specification, region=region)),
    )
    assert own.names[0] == "anchors"
    assert "both" in own.header["evidence"]["components"][0]["upper"]["opposite"]
    assert own.verdict().status == ACCEPT


def test_falls_behind_a_trunk_are_refused(tmp_path: Path) -> None:
    """Points of the input are none of what the hidden layer reads."""
    problem, _ = behind(16)
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    model = read_model(tmp_path / "p.safetensors")
    (component,) = model.all_of(frozenset({"normal"}), "falls")
    law = Fall((2, 1, 2, 1), 2**6, (), None, 1, np.zeros((1, 2, 2)))
    ends = np.zeros(2), np.ones(2)
    with pytest.raises(CannotCheck, match="reads the input"):
        fall(model, component.posterior, ends, np.ones((1, 1)), 1.0, law)
