"""Data as a network sees them: columns that it knows by name, standardised as in its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from bnncert.data.dataset import Dataset
from bnncert.data.load import load_inputs
from bnncert.errors import InputError
from bnncert.model.standardisation import Column, Standardisation, columns_of


def inputs_for(
    own: Standardisation | None,
    source: str,
    split: str | None = None,
    targets: Sequence[str] = (),
) -> Dataset:
    """A data set, of a table the columns that the standardisation names, or else its `targets`."""
    if own is None or not own.inputs or Path(source).suffix != ".csv":
        return load_inputs(source, split, targets)
    names, known = ([column.name for column in part] for part in (own.inputs, own.outputs))
    return load_inputs(source, split, known, names)


def seen_by(own: Standardisation | None, data: Dataset) -> Dataset:
    """The data set with its inputs as the network takes them; y stays what it was."""
    if own is None:
        return data
    if data.standardised:
        raise InputError(
            f"data set {data.name!r} comes standardised, and the posterior takes values as they "
            "were measured; give a file of those"
        )
    return replace(data, x=own.inputs_of(data.x))


def standardisation_of(data: Dataset) -> Standardisation | None:
    """By the means and standard deviations of its columns; None where it comes standardised.

    Pixels are taken as they are, and so is what has no targets.
    """
    if data.standardised or data.y is None:
        return None
    inputs: tuple[Column, ...] = ()
    if data.x.dim() == 2 and not data.image:
        inputs = columns_of(data.names or _numbered("x", data.x), data.x)
    return Standardisation(inputs, columns_of(data.targets or _numbered("y", data.y), data.y))


def _numbered(name: str, values: Tensor) -> tuple[str, ...]:
    count = values[0].numel()
    return (name,) if count == 1 else tuple(f"{name}{i}" for i in range(count))
