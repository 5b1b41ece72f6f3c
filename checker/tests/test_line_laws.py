"""The checker on laws by lines: of every activation they are accepted, tampering is noticed, and
each line is on its side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from bnncert import Problem, ball, half_space, mlp, output_interval, save_posterior
from bnncert.layers import (
    ELU,
    GELU,
    Dense,
    PReLU,
    ReLU,
    Tanh,
)
from bnncert.model.activations import Activation
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, check_certificate, read_model
from bnncert_check.laws.lattice import Choice
from bnncert_check.laws.rows import LineLaw, failure
from bnncert_check.region import Region
from checking import Desk
from scenarios import EACH, gaussian, vector

LOWER = "evidence/components/0/lower"
NUMBERS, SLOPES = "tensors/c0.law.numbers", "tensors/c0.law.slopes"
KINDS = (*EACH, PReLU((-0.5, 0.25, 2.0), (3,)), GELU("tanh"))


def asked(activation: Activation, eps: float, hidden: int = 3) -> Problem:
    """An output between -1 and 1 about its mean."""
    generator = torch.Generator().manual_seed(1)
    network = mlp(1, hidden, 1, activation=activation)
    mean = gaussian(network.size, generator=generator)
    region = ball(vector(0.4).reshape(1, 1), eps)
    middle = float(network.forward(mean, region.center))
    spec = output_interval(region, middle - 1, middle + 1)
    return Problem(network, Normal(mean, torch.full_like(mean, 0.3)), spec)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("lines"), asked(Tanh(), 0.05), joint=False)


@pytest.mark.parametrize("activation", KINDS, ids=map(str, KINDS))
@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_lines_are_accepted(activation: Activation, eps: float, tmp_path: Path) -> None:
    """And say a little less than the checker itself finds, above and below."""
    own = Desk(tmp_path, asked(activation, eps), joint=False)
    entry = own.header["evidence"]["components"][0]
    assert isinstance(activation, ReLU) or "threshold" in entry["lower"]["law"]
    assert entry["upper"] is None or "law" in entry["upper"]["failure"]
    assert own.accepted()[0] > 0.3


def test_a_hundred_neurons_have_room(tmp_path: Path) -> None:
    assert Desk(tmp_path, asked(Tanh(), 0.01, hidden=100)).verdict().status == ACCEPT


def threshold(value: float) -> tuple[str, Any]:
    return f"{LOWER}/law/threshold", value.hex()


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (*threshold(-1.0), "malformed"),
        (*threshold(65.0), "malformed"),
        (*threshold(0.0), "probability-too-high"),  # every neuron may move farther
        (*threshold(2.0), "probability-too-high"),
        (*threshold(60.0), "probability-too-high"),  # lines that hold far off
        (f"{LOWER}/law/threshold", 5.0, "malformed"),
        (f"{LOWER}/law/threshold", "nan", "malformed"),
        (f"{LOWER}/law/shifted", True, "malformed"),
        (f"{LOWER}/law/cells", [32, 6, 24, 6], "malformed"),  # slopes of others
        (f"{LOWER}/law/cells", [64, 1, 24, 1], "probability-too-high"),
        (f"{LOWER}/law/size", 2**10, "probability-too-high"),
        (SLOPES, np.zeros((3, 64)), "malformed"),
        (SLOPES, np.full((3, 64, 2), np.nan), "malformed"),
        (SLOPES, np.full((3, 64, 2), 2.0**21), "malformed"),
        (SLOPES, np.zeros((3, 64, 2), np.float32), "malformed"),
        (SLOPES, np.zeros((3, 64, 2)), "probability-too-high"),
        (SLOPES, np.full((3, 64, 2), -1.0), "probability-too-high"),
        (SLOPES, np.full((3, 64, 2), 2.0**20), "probability-too-high"),
        ("tensors/c0.law.theta", np.ones((2, 1), np.float32), "malformed"),
    ],
)
def test_the_form_is_checked(desk: Desk, place: str, value: Any, code: str) -> None:
    assert desk.verdict((place, value)).code == code


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (0, 0.0, "malformed"),  # the step
        (1, 0.5, "malformed"),  # the window
        (2, 0.0, "probability-too-high"),  # the rate
        (3, 0.0, "probability-too-high"),  # the curb: nothing stands for what moves z
        (3, 1e9, "probability-too-high"),
        (4, 1.0, "malformed"),  # the noise
    ],
)
def test_the_lattice_is_checked(desk: Desk, column: int, value: float, code: str) -> None:
    table = desk.tensors["c0.law.numbers"].copy()
    table[0, column] = value
    assert desk.verdict((NUMBERS, table)).code == code


def test_a_lattice_law_without_its_lines_is_malformed(desk: Desk) -> None:
    header = json.loads(json.dumps(desk.header))
    del header["evidence"]["components"][0]["lower"]["law"]["threshold"]
    desk.path.write_bytes(save(desk.tensors, {"bnncert": json.dumps(header)}))
    verdict = check_certificate(desk.path, desk.model)
    assert verdict.code == "unsupported"  # the other form is for ReLUs


def test_lines_of_one_activation_prove_nothing_of_another(desk: Desk, tmp_path: Path) -> None:
    """Steeper than tanh, the network fails more often; what is claimed is too much."""
    law = desk.header["evidence"]["components"][0]["lower"]
    other = Desk(tmp_path, asked(ELU(2.0), 0.05), joint=False)
    other.header["evidence"]["components"][0]["lower"] = law
    other.tensors |= {k: v for k, v in desk.tensors.items() if k.startswith("c0.law")}
    assert other.verdict(("claim/lower", desk.header["claim"]["lower"])).status != ACCEPT


def test_the_other_end_counts_as_far_as_it_is_the_other_end(desk: Desk) -> None:
    """A row and its opposite at one point; without it the claim is too low, and no other row may
    stand in for it."""
    place = "evidence/components/0/upper"
    said = desk.header["evidence"]["components"][0]["upper"]
    assert {said["row"], said["opposite"]["row"]} == {0, 1}
    assert desk.verdict().status == ACCEPT
    rows, offsets = desk.tensors["rows"], desk.tensors["offsets"]
    alone = {key: value for key, value in said.items() if key != "opposite"}
    assert desk.verdict((place, alone)).code == "malformed"  # tensors that nothing reads
    again = {**said, "opposite": {**said["opposite"], "row": said["row"]}}
    assert desk.verdict((place, again)).code == "rows-not-opposite"
    other = {**said, "opposite": {**said["opposite"], "row": 2}}
    assert desk.verdict((place, other)).code == "malformed"
    # At a point beside it the digests hold, but the law does not: the claim is another's.
    moved = desk.tensors["c0.point"] + 0.2
    assert desk.verdict(("tensors/c0.point", moved)).code == "point-outside-region"
    changed = desk.verdict(("tensors/rows", rows[::-1].copy()), ("tensors/offsets", offsets * 2))
    assert changed.code == "digest-mismatch"


def test_numbers_whose_squares_vanish_are_refused(tmp_path: Path) -> None:
    own = Desk(tmp_path, asked(Tanh(), 0.05))
    rows = own.tensors["rows"] * 2.0**-130
    assert own.verdict(("tensors/rows", rows)).status != ACCEPT
    posterior = Normal(torch.ones(10).double(), torch.full((10,), 2.0**-130).double())
    small = Desk(tmp_path, replace(asked(Tanh(), 0.05), posterior=posterior))
    small.header["evidence"] = own.header["evidence"]
    asking = {k: v for k, v in small.tensors.items() if not k.startswith("c0.")}
    small.tensors = asking | {k: v for k, v in own.tensors.items() if k.startswith("c0.")}
    assert small.verdict().code == "unsupported", small.verdict()


@pytest.mark.parametrize("activation", [ReLU(), GELU(), ELU(2.0)], ids=str)
def test_flat_lines_say_nothing_of_weights_of_unknown_sign(
    activation: Activation, tmp_path: Path
) -> None:
    """Sums of terms of 2^53 are off by more than 4 for all that is known, and f(z) by up to 20;
    with terms of 4 the sum is known, and is positive."""
    network = mlp(1, 1, 3, activation=activation)
    for large, step, sure in ((4.0, 2.0**-10, True), (2.0**53, 2.0**10, False)):
        choice = Choice(step, -2000, 0.0, 0.0, 1e-6, 0.03 / step)
        mean = vector(0.0, 10.0, large, -large, 4.0, 1.0, 0.0, 0.0)
        std = vector(0.0, 2.0, *[0.0] * 6)
        save_posterior(tmp_path / "p.safetensors", network, Normal(mean, std))
        model = read_model(tmp_path / "p.safetensors")
        (component,) = model.all_of(frozenset({"normal"}), "laws")
        box = Region("linf", np.zeros(1), 0.0, np.zeros(1), np.zeros(1))
        law = LineLaw((2, 16, 2, 1), 2**12, (choice,), None, 5.0, np.zeros((1, 2, 2)))
        found = failure(model, component.posterior, box, np.ones((1, 3)), np.zeros(1), law)
        assert bool(found < 0.01) is sure
        assert bool(found > 0.9) is not sure


def test_layers_that_are_no_activation_are_refused(desk: Desk, tmp_path: Path) -> None:
    network = Network((1,), (Dense(1, 2), Dense(2, 2), Dense(2, 1)))
    posterior = Normal(torch.ones(network.size).double(), torch.ones(network.size).double() / 9)
    region = ball(vector(0.4).reshape(1, 1), 0)
    linear = Desk(tmp_path, Problem(network, posterior, half_space(region, vector(1.0), -9.0)))
    linear.header["evidence"]["components"][0]["lower"] = desk.header["evidence"]["components"][0][
        "lower"
    ]
    assert linear.verdict().code == "unsupported"


def test_deeper_networks_are_refused(desk: Desk, tmp_path: Path) -> None:
    network = mlp(1, 3, 3, 1, activation=Tanh())
    posterior = Normal(torch.ones(network.size).double(), torch.ones(network.size).double() / 9)
    region = ball(vector(0.4).reshape(1, 1), 0)
    deep = Desk(tmp_path, Problem(network, posterior, half_space(region, vector(1.0), -9.0)))
    deep.header["evidence"]["components"][0]["lower"] = desk.header["evidence"]["components"][0][
        "lower"
    ]
    assert deep.verdict().code == "unsupported"
