"""The inputs that a folder speaks of by index, where the data are at hand: a result that claims
nothing has no certificate to show them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bnncert.data import PUBLISHED, Dataset, at_hand, load_inputs
from bnncert.errors import InputError
from bnncert.results.manifest import Manifest, Source, file_source


@dataclass(frozen=True, eq=False)
class AskedInputs:
    """All inputs of the data, in the network's own numbers, and what regions around them are."""

    x: Tensor
    norm: str
    clip: tuple[float, float] | None


def inputs_at_hand(manifest: Manifest, folder: Path) -> AskedInputs | None:
    """A data set of this machine, or the file here or beside the folder, with the digest of the
    manifest; None where there is no such thing."""
    asked = manifest.question
    if asked.inputs is None or asked.region.norm == "box":
        return None
    try:
        data = _data(asked.inputs.source, folder)
    except (InputError, OSError):
        return None
    if data is None:
        return None
    x, columns = data.x, manifest.features
    if asked.inputs.source.is_file and len(columns) == x[0].numel():
        mean, std = (
            torch.tensor([getattr(column, end) for column in columns], dtype=torch.float64)
            for end in ("mean", "std")
        )
        x = (x - mean.reshape(x[0].shape)) / std.reshape(x[0].shape)
    return AskedInputs(x, asked.region.norm, asked.region.clip)


def _data(source: Source, folder: Path) -> Dataset | None:
    if not source.is_file:
        known = at_hand(source.name) if source.name in PUBLISHED else load_inputs(source.name)
        return known if known is not None and known.digest == source.sha256 else None
    for path in (Path(source.name), folder.resolve().parent / source.name):
        if path.is_file() and file_source(path) == source:
            return load_inputs(path)
    return None
