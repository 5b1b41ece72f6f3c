"""Modules of torch, and whether what was read of one is the module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnncert.importers.reading import Reading
from scenarios import uniform


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with statistics and factors of its normalisations that are not 0 and 1, some
    factors negative."""
    generator = torch.Generator().manual_seed(seed)
    for each in module.modules():
        if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d) and each.running_mean is not None:
            each.running_mean.copy_(torch.randn(each.num_features, generator=generator))
            each.running_var.copy_(0.1 + torch.rand(each.num_features, generator=generator))
            if each.affine:
                each.weight.data.copy_(torch.randn(each.num_features, generator=generator))
                each.bias.data.copy_(torch.randn(each.num_features, generator=generator))
    return module


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in module.named_parameters()}


def assert_same(module: nn.Module, reading: Reading) -> None:
    """The network at the module's weights and the module in evaluation agree on random inputs, in
    float64."""
    x = uniform(5, *reading.network.input_shape, generator=torch.Generator().manual_seed(1))
    found = reading.network.forward(reading.flat(values(module)), x)
    expected = module.double().eval()(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
