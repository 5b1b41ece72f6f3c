"""Mean-field Gaussian posteriors out of torch modules: Bayesian layers of several libraries, and
plain layers.

What is certified is N(mean, std²) with the numbers computed here, once, in float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.agreement import check_agreement
from bnncert.importers.module import read
from bnncert.importers.modules import own_parameters
from bnncert.importers.reading import Cast, Pick, Reading, Source, Values
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

Std: TypeAlias = float | Mapping[str, float | Tensor]


def from_torch(
    module: nn.Module,
    input_shape: Sequence[int] | None = None,
    std: Std | None = None,
    output: Pick = None,
) -> tuple[Network, Normal]:
    """The network and posterior of a module whose Bayesian layers name their weights as one of
    `CONVENTIONS` does.

    Parameters of plain layers are certain, with a warning, unless `std` gives them a standard
    deviation: one for all, or by the module's name of the parameter (a number, or a tensor of its
    shape). `input_shape`, without the batch, is needed only where a convolution or a pool comes
    first, or the module asks for it. `output` is the index or the key of the output that is meant,
    where the module returns several.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> network, posterior = from_torch(model, std=0.01)
    >>> network.parameters
    {'W0': (2, 3), 'b0': (3,), 'W1': (3, 2), 'b1': (2,)}
    """
    reading = read(module, input_shape, output=output)
    posterior = posterior_of(reading, own_parameters(module), std)
    check_agreement(module, reading, posterior.mean)
    return reading.network, posterior


def posterior_of(reading: Reading, tensors: Values, std: Std | None = None) -> Normal:
    """N(mean, std²) from tensors by the names in the reading."""
    sources = _named(reading)
    given = _given(sources, std)
    certain = [
        str(source.name)
        for source in sources
        if source.convention is None and source.name not in given
    ]
    if certain:
        warnings.warn(
            f"{', '.join(certain)}: no standard deviation, taken as certain; give std=...",
            stacklevel=3,
        )
    return Normal(*moments(reading, tensors, std))


def moments(reading: Reading, tensors: Values, std: Std | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [size] as the reading casts them; gradients pass if it does."""
    sources = _named(reading)
    given = _given(sources, std)
    mean = reading.flat(tensors)
    stds = {
        str(source.name): _std(source, tensors, given.get(str(source.name), 0.0), reading.cast).to(
            mean
        )
        for source in sources
    }
    return mean, reading.flat(stds, shift=False)


def _named(reading: Reading) -> list[Source]:
    """Without the biases that a batch normalisation brought."""
    return [source for source in reading.sources.values() if source.name is not None]


def parameterisation(reading: Reading) -> dict[str, str]:
    """Which libraries' layers there are, and how their spreads became standard deviations.

    It is written into a file's notes.
    """
    found = {
        source.convention for source in reading.sources.values() if source.convention is not None
    }
    ordered = sorted(found, key=lambda convention: convention.library)
    return {
        "library": ", ".join(each.library for each in ordered),
        "parameterisation": ", ".join(each.formula for each in ordered),
    }


def _given(sources: Sequence[Source], std: Std | None) -> Mapping[str, float | Tensor]:
    """The standard deviations the caller gives, by name.

    Every name must be that of a parameter without its own.
    """
    plain = [str(source.name) for source in sources if source.convention is None]
    if std is None:
        return {}
    if not plain:
        raise InputError(
            "std is given, but every layer has standard deviations of its own; leave it out"
        )
    if not isinstance(std, Mapping):
        return dict.fromkeys(plain, std)
    unknown = sorted(set(std) - set(plain))
    if unknown:
        raise InputError(
            f"std names {unknown[0]!r}; parameters that take one are {', '.join(plain)}"
        )
    return std


def _std(source: Source, tensors: Values, given: float | Tensor, cast: Cast) -> Tensor:
    if source.convention is not None:
        spread = tensors.get(str(source.spread))
        if spread is None or not spread.is_floating_point():
            raise InputError(f"{source.spread!r} is missing or holds no floating-point numbers")
        return source.convention.std(cast(spread))
    value = given if isinstance(given, Tensor) else torch.as_tensor(given, dtype=torch.float64)
    value = cast(value)
    if value.dim() and tuple(value.shape) != source.shape:
        raise InputError(
            f"std of {source.name!r} has shape {tuple(value.shape)}; "
            f"give a number or shape {source.shape}"
        )
    return value.expand(source.shape)
