"""Tables of an entry: its input with the ends of its region and the counterexample, coordinate by
coordinate, and the outputs of the network at the posterior's centre there.

Numbers are as they were measured, where the posterior knows that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.evidence.certificate import LOWER, UPPER, Certificate
from bnncert.model.network import Network
from bnncert.model.standardisation import Column
from bnncert.posteriors.base import Posterior

MOST = 64  # coordinates that are written out


@dataclass(frozen=True)
class Table:
    """A caption, the names of columns and the cells."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def ends(certificate: Certificate, eps: float) -> tuple[Tensor, Tensor]:
    """The box around the region, flat."""
    if certificate.norm == "box":
        return certificate.tensors[LOWER].flatten(), certificate.tensors[UPPER].flatten()
    return around(certificate.x, eps, certificate.clip)


def half_widths(certificate: Certificate) -> str:
    """Of a box, by coordinate where they differ and are few."""
    low, high = ends(certificate, 0.0)
    halves = [f"{half:.6g}" for half in ((high - low) / 2).tolist()]
    different = list(dict.fromkeys(halves))
    if len(different) == 1:
        return different[0]
    if len(halves) <= MOST:
        return ", ".join(halves)
    numbers = sorted(map(float, different))
    return f"from {numbers[0]:g} to {numbers[-1]:g}"


def around(x: Tensor, eps: float, clip: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """The box around a ball."""
    low, high = x.flatten() - eps, x.flatten() + eps
    return (low, high) if clip is None else (low.clamp_min(clip[0]), high.clamp_max(clip[1]))


def coordinates(
    x: Tensor,
    sides: tuple[Tensor, Tensor],
    point: Tensor | None,
    features: Sequence[Column],
    norm: str,
) -> Table | None:
    """None of inputs of very many coordinates."""
    low, high = sides
    if len(low) > MOST:
        return None
    kept = [x.flatten(), low, high] + ([] if point is None else [point.flatten()])
    rows = []
    for i, values in enumerate(torch.stack(kept, 1).tolist()):
        known = i < len(features)
        column = features[i] if known else Column(f"x{i}")
        rows.append((column.name, *(f"{column.measured(value):.6g}" for value in values)))
    about = "counterexample", *["input", "from", "to"]
    names = ("coordinate", *about[1:], *about[: len(kept) - 3])
    within = "" if norm in ("linf", "box") else f" (and in the {norm} ball)"
    return Table(f"The input and the ends of its region{within}", names, tuple(rows))


def outputs_there(
    model: tuple[Network, Posterior],
    certificate: Certificate,
    point: Tensor | None,
    outputs: Sequence[Column],
) -> Table:
    """What the network at the centre gives at the input and at the counterexample."""
    network, posterior = model
    points = [certificate.x] + ([] if point is None else [point])
    found = network.forward(posterior.center, torch.stack(points))
    rows = []
    for i, values in enumerate(found.T.tolist()):
        column = outputs[i] if i < len(outputs) else Column(f"y{i}")
        rows.append((column.name, *(f"{column.measured(value):.6g}" for value in values)))
    names = ("output", "at the input", *["at the counterexample"][: len(points) - 1])
    return Table("Outputs of the network at the posterior’s centre", names, tuple(rows))
