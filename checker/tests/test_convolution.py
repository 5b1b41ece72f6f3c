"""The checker on convolutions and pools: it accepts what certify writes, and nothing that was made
false."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import GIE, PIE, Concentration, Problem, Sampling, certify, save_posterior
from bnncert.evidence.certificate import Certificate
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.posteriors import LowRankNormal, Normal
from bnncert_check import ACCEPT, CannotCheck, check_certificate, read_model
from bnncert_check.weighted import Conv
from bnncert_check.wiring import MaxPool
from convolutions import network, problem

METHODS: tuple[Method, ...] = (
    Concentration(upper=True),
    PIE(samples=1, step=0.3),
    GIE(samples=1, step=0.3),
    Sampling(samples=1, step=1.0, bound="ibp"),
)


def made(seed: int) -> Problem:
    """Random everywhere, or with kernels that are not (odd seeds)."""
    found = problem(seed, network(seed), norm=("linf", "linf", "l2", "l1")[seed % 4])
    posterior = found.posterior
    assert isinstance(posterior, Normal)
    std = posterior.std.clone()
    if seed % 2:
        kernels = sum(part.numel() for parts in found.network.split(std)[:4] for part in parts)
        std[:kernels] = 0
    return replace(found, posterior=Normal(posterior.mean, std))


@pytest.mark.parametrize("seed", range(10))
def test_what_certify_writes_is_accepted(seed: int, tmp_path: Path) -> None:
    asked = made(seed)
    save_posterior(tmp_path / "p.safetensors", asked.network, asked.posterior)
    model = read_model(tmp_path / "p.safetensors")
    count = 0
    for method in METHODS:
        for result in certify(asked, method):
            if result.certificate is not None:
                result.certificate.write(tmp_path / "c.safetensors")
                verdict = check_certificate(tmp_path / "c.safetensors", model)
                assert verdict.status == ACCEPT, verdict
                assert verdict.supported is not None
                assert verdict.supported[0] - 1e-6 <= result.lower <= verdict.supported[0]
                count += 1
    assert count


def test_a_claim_slightly_too_high_is_rejected(tmp_path: Path) -> None:
    asked = made(0)
    save_posterior(tmp_path / "p.safetensors", asked.network, asked.posterior)
    model = read_model(tmp_path / "p.safetensors")
    for method in METHODS[:2]:
        found = certify(asked, method)[0].certificate
        assert found is not None
        found.write(tmp_path / "c.safetensors")
        supported = check_certificate(tmp_path / "c.safetensors", model).supported
        assert supported is not None
        header = json.loads(json.dumps(found.header))
        header["claim"]["lower"] = float(np.nextafter(supported[0], 1)).hex()
        Certificate(header, found.tensors).write(tmp_path / "c.safetensors")
        assert check_certificate(tmp_path / "c.safetensors", model).code == "probability-too-high"


@pytest.mark.parametrize("pools", [False, True])
@pytest.mark.parametrize("rank", [1, 3])
def test_correlated_kernels_are_checked(pools: bool, rank: int, tmp_path: Path) -> None:
    """One float more than they support is refused."""
    asked = problem(rank, network(rank, pools=pools))
    mean = asked.posterior.center
    generator = torch.Generator().manual_seed(rank)
    factor = 0.01 * torch.randn(len(mean), rank, dtype=torch.float64, generator=generator)
    posterior = LowRankNormal(mean, torch.zeros_like(mean), factor)
    save_posterior(tmp_path / "p.safetensors", asked.network, posterior)
    model = read_model(tmp_path / "p.safetensors")
    informative = 0
    for result in certify(replace(asked, posterior=posterior), Concentration(effort=0)):
        found = result.certificate
        if found is None:
            continue
        found.write(tmp_path / "c.safetensors")
        verdict = check_certificate(tmp_path / "c.safetensors", model)
        assert verdict.status == ACCEPT
        assert verdict.supported is not None
        if 0 < result.lower < 1 - 1e-6:
            informative += 1
            header = json.loads(json.dumps(found.header))
            header["claim"]["lower"] = float(np.nextafter(verdict.supported[0], 1)).hex()
            Certificate(header, found.tensors).write(tmp_path / "c.safetensors")
            code = check_certificate(tmp_path / "c.safetensors", model).code
            assert code == "probability-too-high"
    assert informative


def test_convolutions_do_not_fit_anywhere(tmp_path: Path) -> None:
    """A layer that gets another shape than it takes."""
    net = Network(
        (1, 4, 4),
        (Conv2d(1, 2, (3, 3)), MaxPool2d((2, 2)), AvgPool2d((1, 1)), Flatten(), Dense(2, 2)),
    )
    posterior = Normal(
        torch.zeros(net.size, dtype=torch.float64), torch.ones(net.size, dtype=torch.float64)
    )
    save_posterior(tmp_path / "p.safetensors", net, posterior)
    content = (tmp_path / "p.safetensors").read_bytes()
    assert [type(layer) for layer in read_model(tmp_path / "p.safetensors").layers[:3]] == [
        Conv,
        MaxPool,
        Conv,
    ]
    broken = content.replace(b'\\"in_channels\\":1', b'\\"in_channels\\":2')
    assert broken != content
    (tmp_path / "p.safetensors").write_bytes(broken)
    with pytest.raises(CannotCheck, match="takes"):
        read_model(tmp_path / "p.safetensors")
