"""Distributions over a model's named parameters, as posteriors over flat weight vectors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.agreement import check_agreement
from bnncert.importers.module import read
from bnncert.importers.modules import own_parameters
from bnncert.importers.reading import Pick, Reading, Source, Values
from bnncert.model.layers import Shape
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import LowRankNormal
from bnncert.posteriors.independent import Normal

Target: TypeAlias = Network | nn.Module
LARGEST_FACTOR = 2**28  # numbers in a factor of the covariance: 2 GiB


@dataclass(frozen=True, eq=False)
class Named:
    """A network, the shapes of its parameters by the names that the model has for them, and their
    present values.

    The model is a module, whose names and layouts are the module's, or a `Network`, whose
    parameters are W0 [in, out], b0, ... and have no values. A parameter that a posterior does not
    name keeps its present value: it is certain.
    """

    reading: Reading
    shapes: dict[str, Shape]
    present: Values
    transposed: bool  # the reading has matrices [out, in] where the model has [in, out]

    @property
    def network(self) -> Network:
        return self.reading.network

    def normal(self, mean: Values, std: Values) -> Normal:
        """Independent N(mean, std²)."""
        return Normal(self._means(mean, 0), self._stds(std))

    def low_rank(self, mean: Values, std: Values, factor: Values) -> LowRankNormal:
        """mean + std∘ξ + factor η; the factor's tensors are [rank, *shape]."""
        along = self.reading.directions(self._filled(factor, 1), factor.keys())
        return LowRankNormal(self._means(mean, 0), self._stds(std), along.mT.contiguous())

    def rows(self, random: Collection[str]) -> int:
        """The weights that a factor has rows for where those parameters share noise."""
        return sum(math.prod(source.shape) for source in self.reading.from_first(random).values())

    def samples(self, values: Values) -> Tensor:
        """Draws [S, *shape] of the parameters as draws [S, size] of the flat vector."""
        return self._means(values, 1)

    @property
    def point(self) -> Tensor:
        """The present values."""
        return self._means({}, 0)

    def _stds(self, std: Values) -> Tensor:
        return self.reading.flat(self._filled(std, 0), shift=False)

    def _means(self, values: Values, leading: int) -> Tensor:
        lacking = sorted(self.shapes.keys() - values.keys() - self.present.keys())
        if lacking:
            raise InputError(
                f"no values for the parameter {lacking[0]!r}; "
                f"the network has {', '.join(self.shapes)}"
            )
        return self.reading.flat(self._filled(values, leading, self.present))

    def _filled(
        self, values: Values, leading: int, otherwise: Values | None = None
    ) -> dict[str, Tensor]:
        """The values in the reading's layout, missing ones filled in, by zeros unless told."""
        first = self._checked(values, leading)
        filled = {}
        for name, shape in self.shapes.items():
            value = values.get(name, otherwise.get(name) if otherwise else None)
            value = (
                torch.zeros(shape, dtype=torch.float64)
                if value is None
                else value.detach().cpu().double()
            )
            value = value.expand(*first, *shape)
            filled[name] = value.mT if self.transposed and len(shape) == 2 else value
        return filled

    def _checked(self, values: Values, leading: int) -> Shape:
        """The leading dimensions, as many as told, that all values share."""
        unknown = sorted(values.keys() - self.shapes.keys())
        if unknown:
            raise InputError(
                f"the network has no parameter {unknown[0]!r}; it has {', '.join(self.shapes)}"
            )
        fixed = sorted(values.keys() & self.reading.fixed)
        if fixed:
            raise InputError(
                f"{fixed[0]!r} is in a sum or product too, where it is certain; leave its values "
                "out, or use two parameters"
            )
        first = tuple(next(iter(values.values())).shape[:leading]) if values else (0,) * leading
        for name, value in values.items():
            if tuple(value.shape) != (*first, *self.shapes[name]):
                raise InputError(
                    f"values for {name!r} have shape {tuple(value.shape)}; give "
                    f"{(*first, *self.shapes[name])}"
                )
        return first


def named(
    target: Target,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
    compare: bool = True,
) -> Named:
    """The parameters of a network or of a module, which is read and, unless that was done before,
    compared with what it computes."""
    if isinstance(target, Network):
        sources = {
            name: Source(name, _reversed(shape)) for name, shape in target.parameters.items()
        }
        return Named(Reading(target, sources), dict(target.parameters), {}, transposed=True)
    reading = read(target, input_shape, output=output)
    refuse_bayesian(reading)
    if compare:
        check_agreement(target, reading, reading.flat(own_parameters(target)))
    sources = {
        source.name: source for source in reading.sources.values() if source.name is not None
    }
    state = own_parameters(target)
    present = {name: state[name] for name in sources if name in state}
    return Named(
        reading, {name: source.shape for name, source in sources.items()}, present, transposed=False
    )


def refuse_bayesian(reading: Reading) -> None:
    if reading.spreads:
        raise InputError(
            "the module has Bayesian layers, with a posterior of their own; read it with from_torch"
        )


def _reversed(shape: Shape) -> Shape:
    return shape[::-1] if len(shape) == 2 else shape


def unpacked(packed: Tensor, shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    """A vector [..., n] of parameters one after the other, cut into [..., *shape]."""
    sizes = [math.prod(shape) for shape in shapes.values()]
    if packed.shape[-1] != sum(sizes):
        raise InputError(
            f"{packed.shape[-1]} numbers for {sum(sizes)} weights in {', '.join(shapes)}"
        )
    parts = torch.split(packed, sizes, -1)
    return {
        name: part.reshape((*part.shape[:-1], *shapes[name]))
        for name, part in zip(shapes, parts, strict=True)
    }


def check_factor(size: int, rank: int, instead: str) -> None:
    """Refuse a factor of the covariance that would not fit into memory, before it is made."""
    if size * rank > LARGEST_FACTOR:
        raise InputError(
            f"the covariance needs a factor of {size} x {rank} numbers, "
            f"{size * rank * 8 / 2**30:.1f} GiB, "
            f"and at most {LARGEST_FACTOR * 8 >> 30} GiB are taken; {instead}"
        )


def check_names(names: Mapping[str, str]) -> None:
    twice = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if twice:
        raise InputError(
            f"two of the names {', '.join(names)} stand for "
            f"the parameter {twice[0]!r}; give each its own"
        )


def announce_certain(model: Named, given: Collection[str]) -> None:
    """Warn of parameters without a distribution: a misspelt name would make a weight certain."""
    certain = [name for name in model.present if name not in given]
    if certain:
        warnings.warn(
            f"no distribution for {', '.join(certain)}: taken as certain, at the module's values",
            stacklevel=3,
        )
