"""Bayesian heads: a trained network whose last layer becomes random, by laplace-torch.

The trunk is certain and walked by bounds once; the last layer has the Gaussian N(w*, P⁻¹), P the
generalised Gauss-Newton matrix of the training data plus the prior's precision, which the marginal
likelihood chooses. The network is linear in these weights, so that drawing them and linearising the
network in them is the same.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bnncert.errors import InputError
from bnncert.importers import from_laplace
from bnncert.model.layers import (
    Add,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    ReLU,
    rule_for,
)
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import Gaussian

AT_ONCE = 500  # training examples


def fit_head(
    network: Network, mean: Tensor, x: Tensor, y: Tensor, structure: str
) -> tuple[Network, Gaussian]:
    """The network with weights `mean` and a last-layer Laplace posterior fitted to x and y, its
    covariance of the given structure.

    Its parameters are rounded to float32, so that a file of them is half as large.
    """
    loader = DataLoader(TensorDataset(x.float(), y), batch_size=AT_ONCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of a library that is new to its own imports
        la = _laplace()(as_module(network, mean), "classification", "last_layer", structure)
        la.fit(loader)
        la.optimize_prior_precision(method="marglik")
    network, posterior = from_laplace(la, network.input_shape)
    rounded = {name: value.float().double() for name, value in posterior.tensors().items()}
    return network, type(posterior)(**rounded)


def _laplace() -> Any:
    try:
        from laplace import Laplace
    except ImportError as error:
        raise InputError(
            f"the head is fitted by laplace-torch, which does not import here ({error}); "
            "pip install laplace-torch"
        ) from error
    return Laplace


def as_module(network: Network, weights: Tensor) -> nn.Module:
    """The network as a torch module in float32, of layers that the zoo's trunks have."""
    modules = []
    for layer, values in zip(network.layers, network.split(weights.float()), strict=True):
        module = rule_for(MODULES, layer)(layer)
        for parameter, value in zip(module.parameters(), values, strict=True):
            # Dense has [in, out], where torch has [out, in].
            parameter.data = (value.mT if value.dim() == 2 else value).contiguous()
        modules.append(module)
    return _Layers(modules, network.reads).eval()


class _Layers(nn.Module):
    """Modules that read the input, node 0, or what others gave, node k + 1 of the k-th."""

    def __init__(self, modules: Sequence[nn.Module], reads: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(modules)
        self._reads = reads

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for module, read in zip(self.layers, self._reads, strict=True):
            nodes.append(module(*(nodes[node] for node in read)))
        return nodes[-1]


class _Sum(nn.Module):
    def forward(self, *terms: Tensor) -> Tensor:
        return reduce(operator.add, terms)


def _dense(layer: Dense) -> nn.Module:
    return nn.Linear(layer.inputs, layer.outputs, layer.bias)


def _convolution(layer: Conv2d) -> nn.Module:
    padding: Any = layer.padding
    if len(padding) == 4:
        raise InputError(f"{layer} is padded on one side more; a head needs even padding")
    return nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel,
        layer.stride,
        padding,
        layer.dilation,
        layer.groups,
        layer.bias,
    )


MODULES: dict[type, Callable[[Any], nn.Module]] = {
    Dense: _dense,
    Conv2d: _convolution,
    AvgPool2d: lambda layer: nn.AvgPool2d(layer.kernel, layer.stride, layer.padding),
    ReLU: lambda _: nn.ReLU(),
    Flatten: lambda _: nn.Flatten(),
    Add: lambda _: _Sum(),
}
