"""Certain trunks under Bayesian heads: what certify writes is accepted, and nothing that was made
false."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import Concentration, Problem, certify, decide, save_posterior
from bnncert.evidence.certificate import Certificate
from bnncert.layers import Dense, ReLU
from bnncert.model.network import Network
from bnncert.model.specification import ball, half_space
from bnncert.posteriors import LowRankNormal, Normal
from bnncert_check import ACCEPT, check_certificate, functionals, read_model
from bnncert_check.affine import Affine, affine_form
from bnncert_check.region import Region
from scenarios import gaussian, vector
from trunks import HEADS, asked, head, trunk, two_flattened, two_heads


def written(problem: Problem, method: Concentration, folder: Path) -> list[Certificate]:
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    found = [result.certificate for result in certify(problem, method)]
    return [one for one in found if one is not None]


def verdict(certificate: Certificate, folder: Path) -> Any:
    certificate.write(folder / "c.safetensors")
    return check_certificate(folder / "c.safetensors", read_model(folder / "p.safetensors"))


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("seed", [1, 2, 6])
def test_heads_of_every_covariance_are_accepted(kind: str, seed: int, tmp_path: Path) -> None:
    """By every effort, from both sides; one float more than is supported is refused."""
    network = trunk(seed)
    problem = asked(seed, network, head(seed, network, kind, 0.2))
    options = {"nodes": 8, "precision": 0.0} if seed == 2 else {}
    informative = 0
    for one in written(problem, Concentration(effort=seed % 3, upper=True, **options), tmp_path):
        found = verdict(one, tmp_path)
        assert found.status == ACCEPT, found
        lower, upper = found.supported[:2]
        for name, value, code in (
            ("lower", np.nextafter(lower, 1), "probability-too-high"),
            ("upper", np.nextafter(upper, 0), "upper-too-low"),
        ):
            if 0 < value < 1:
                informative += 1
                header = json.loads(json.dumps(one.header))
                header["claim"][name] = float(value).hex()
                assert verdict(Certificate(header, one.tensors), tmp_path).code == code
    assert informative


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_without_the_form_less_is_supported(kind: str, tmp_path: Path) -> None:
    network = trunk(2)
    problem = asked(2, network, head(2, network, kind, 0.3), eps=0.1)
    less = 0
    for one in written(problem, Concentration(effort=0), tmp_path):
        header = json.loads(json.dumps(one.header))
        (part,) = header["evidence"]["components"]
        assert part["lower"].pop("affine") is True
        found = verdict(Certificate(header, one.tensors), tmp_path)
        assert found.code in (None, "probability-too-high")
        less += found.code is not None
    assert less


@pytest.mark.parametrize("shared", [False, True])
def test_two_heads_meet_the_input_together(shared: bool, tmp_path: Path) -> None:
    network = two_heads()
    generator = torch.Generator().manual_seed(1)
    mean = gaussian(network.size, generator=generator)
    std = torch.zeros_like(mean)
    std[-20:] = 0.15
    posterior: Normal | LowRankNormal = Normal(mean, std)
    if shared:
        factor = 0.1 * gaussian(20, 3, generator=generator)
        posterior = LowRankNormal(mean, std / 2, factor)
    problem = asked(1, network, posterior)
    certificates = written(problem, Concentration(effort=1, upper=True), tmp_path)
    assert certificates
    assert all(verdict(one, tmp_path).status == ACCEPT for one in certificates)


@pytest.mark.parametrize("seed", range(4))
def test_heads_that_flatten_the_same_node_are_accepted(seed: int, tmp_path: Path) -> None:
    """The checker knows no `Flatten`; the prover took the second one for uncertain."""
    network = two_flattened()
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    factor = 0.1 * gaussian(36, 2, generator=generator)
    posterior = LowRankNormal(mean, torch.zeros_like(mean), factor)
    for eps in (0.05, 0.2):
        problem = asked(seed, network, posterior, eps)
        for one in written(problem, Concentration(effort=0), tmp_path):
            assert verdict(one, tmp_path).status == ACCEPT


def test_predictive_means_of_a_head_are_accepted(tmp_path: Path) -> None:
    network = trunk(4)
    problem = asked(4, network, head(4, network, "kronecker", 0.2))
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    for decision in decide(problem):
        assert decision.certificate is not None
        assert verdict(decision.certificate, tmp_path).status == ACCEPT


@pytest.mark.parametrize("kind", ["diagonal", "shared"])
def test_a_head_at_a_point_has_the_tail_of_a_gaussian(kind: str, tmp_path: Path) -> None:
    """y is N(1, 1): at most Φ(1) is supported as an upper bound, and a little less is refused."""
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 1)))
    mean = vector(1.0, 1.0, 0.5, 0.0)
    posterior: Normal | LowRankNormal = Normal(mean, vector(0.0, 0.0, 0.5, 0.0))
    if kind == "shared":
        posterior = LowRankNormal(mean, torch.zeros_like(mean), vector(0.5, 0.0).reshape(2, 1))
    region = ball(torch.ones(1, 1).double(), 0.0)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
    (one,) = written(problem, Concentration(upper=True), tmp_path)
    found = verdict(one, tmp_path)
    assert found.status == ACCEPT
    assert found.supported[1] == pytest.approx(0.8413447460685429, abs=1e-12)
    assert found.supported[1] >= 0.8413447460685429


def test_wide_vectors_have_no_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their noise meets boxes, and what rests on the form is refused."""
    network = trunk(2)
    problem = asked(2, network, head(2, network, "full", 0.3), eps=0.1)
    certificates = written(problem, Concentration(effort=0), tmp_path)
    monkeypatch.setattr(functionals, "LARGEST", 1)
    codes = {verdict(one, tmp_path).code for one in certificates}
    assert "probability-too-high" in codes


def test_forms_hold_what_their_lines_do() -> None:
    """Lines x and x + 1 around h, on [0, 1]: halfway between them, half of 1 off."""
    region = Region("linf", np.array([0.5]), 0.5, np.zeros(1), np.ones(1))
    below = np.array([[1.0]]), np.array([0.0])
    above = np.array([[-1.0]]), np.array([-1.0])
    found = affine_form(region, below, above)
    assert found.matrix.tolist() == [[1.0]]
    assert found.middle.tolist() == [1.0]
    assert 0.5 <= found.slack[0] < 0.5 + 1e-12


def test_reaches_round_up() -> None:
    form = Affine(np.array([[1.0, -2.0]]), np.array([0.5, 0.25]), np.zeros(1), np.array([0.125]))
    (found,) = form.reach(np.array([[3.0]]))
    assert 3 * (0.5 + 0.5 + 0.125) <= found < 3.375 + 1e-12
    (most,) = form.most(np.array([[3.0]]))
    assert 3.375 <= most < 3.375 + 1e-12
