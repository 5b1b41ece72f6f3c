"""The checker on laws behind layers that are certain: it bounds itself what the hidden layer
reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import Problem, save_posterior
from bnncert.layers import Dense, ReLU
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, read_model
from bnncert_check.laws.rows import require_form
from bnncert_check.verdict import CannotCheck
from checking import Desk
from trunks import behind

LAW = "evidence/components/0/lower/law"
ENDS = "tensors/c0.law.lower", "tensors/c0.law.upper"


@pytest.mark.parametrize("seed", [1, 4, 7, 8, 11, 12, 16])
def test_laws_behind_trunks_are_accepted(seed: int, tmp_path: Path) -> None:
    problem, _ = behind(seed)
    for number in range(len(problem)):
        desk = Desk(tmp_path, problem, number)
        verdict = desk.verdict()
        assert verdict.status == ACCEPT, verdict


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    found = Desk(tmp_path_factory.mktemp("trunk"), behind(16)[0], 0, joint=False)
    assert found.names == ("lines", "lines")
    return found


def test_a_box_must_hold_what_the_trunk_gives(desk: Desk) -> None:
    for name, sign in zip(ENDS, (1.0, -1.0), strict=True):
        end = desk.tensors[name.removeprefix("tensors/")]
        assert desk.verdict((name, end - sign)).status != "ERROR"  # wider, and the bound lower
        smaller = end.copy()
        smaller[1] += sign * 1e-3
        assert desk.verdict((name, smaller)).code == "trunk-outside-box"
        assert desk.verdict((name, np.full_like(end, np.nan))).code == "malformed"
        assert desk.verdict((name, end[1:])).code == "malformed"


def test_the_node_is_that_of_the_network(desk: Desk) -> None:
    said = desk.header["evidence"]["components"][0]["lower"]["law"]
    without = {key: value for key, value in said.items() if key != "trunk"}
    for changed in (without, said | {"trunk": False}, said | {"trunk": 1}):
        assert desk.verdict((LAW, changed)).code == "malformed"


def test_random_trunks_are_refused(tmp_path: Path) -> None:
    """Noise on one weight of the trunk."""
    problem, posterior = behind(5)
    std = posterior.std.clone()
    std[0] = 0.1
    other = Problem(problem.network, Normal(posterior.mean, std), problem.specification)
    path = tmp_path / "p.safetensors"
    save_posterior(path, other.network, other.posterior)

    model = read_model(path)
    with pytest.raises(CannotCheck):
        require_form(model, model.components[0].posterior)


def test_single_layers_have_no_law(tmp_path: Path) -> None:

    for layers in ((Dense(2, 1),), (Dense(2, 2), ReLU())):
        network = Network((2,), layers)
        zero = torch.zeros(network.size).double()
        save_posterior(tmp_path / "p.safetensors", network, Normal(zero, zero + 1))
        model = read_model(tmp_path / "p.safetensors")
        with pytest.raises(CannotCheck):
            require_form(model, model.components[0].posterior)
