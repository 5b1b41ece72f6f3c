"""Standardisation: what the numbers that go into a network and come out of it were measured as.

A network that was trained on standardised columns takes z = (value - mean) / std and gives outputs
of which mean + std · y is the measured target. Bounds, radii and certificates speak of the
network's own numbers, so that a radius is in standard deviations; what people give and read is
measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from bnncert.errors import InputError

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class Column:
    """A measured quantity: its name, and the mean and standard deviation that it is given in.

    >>> price = Column("price", mean=22.5, std=9.0)
    >>> price.standardised(31.5), price.measured(-1.0)
    (1.0, 13.5)
    """

    name: str
    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 < self.std < math.inf):
            raise InputError(
                f"column {self.name!r} has mean {self.mean} and standard deviation {self.std}; "
                "give finite numbers, the second above 0"
            )

    def standardised(self, value: Number) -> Number:
        return (value - self.mean) / self.std

    def measured(self, value: Number) -> Number:
        return self.mean + self.std * value


@dataclass(frozen=True)
class Standardisation:
    """The columns of a network's inputs and outputs; none where they are taken as they are.

    >>> own = Standardisation((Column("rooms", 6.0, 0.5),), (Column("price", 22.5, 9.0),))
    >>> own.inputs_of(torch.tensor([[6.5]]).double()), own.targets_of(torch.tensor([22.5]).double())
    (tensor([[1.]], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """

    inputs: tuple[Column, ...] = ()
    outputs: tuple[Column, ...] = ()

    @property
    def is_identity(self) -> bool:
        """Whether it only names columns."""
        return all(
            column == Column(column.name) for part in (self.inputs, self.outputs) for column in part
        )

    def inputs_of(self, x: Tensor) -> Tensor:
        """Measured inputs x [N, ...] as the network takes them."""
        return _standardised(self.inputs, x)

    def targets_of(self, y: Tensor) -> Tensor:
        """Measured targets y [N] or [N, outputs] as the network gives them."""
        return _standardised(self.outputs, y)


def _standardised(columns: Sequence[Column], values: Tensor) -> Tensor:
    if not columns or values[0].numel() != len(
        columns
    ):  # another shape is refused where it is used
        return values
    mean, std = (
        torch.tensor([getattr(column, name) for column in columns], dtype=torch.float64)
        for name in ("mean", "std")
    )
    flat = values.double().reshape(len(values), len(columns))
    return ((flat - mean) / std).reshape(values.shape)


def columns_of(names: Sequence[str], values: Tensor) -> tuple[Column, ...]:
    """The columns of values [N, k] or [N], by their means and standard deviations; one that does
    not vary is only moved to 0."""
    flat = values.double().reshape(len(values), -1)
    means, stds = flat.mean(0).tolist(), flat.std(0, correction=0).tolist()
    varying = (flat != flat[0]).any(0).tolist()
    return tuple(
        Column(name, mean, std if varies else 1.0)
        for name, mean, std, varies in zip(names, means, stds, varying, strict=True)
    )
