"""Recipes of instances: which posterior, which question, which threshold, which seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.bench.models import Model
from bnncert.model.box import Box
from bnncert.model.specification import Specification, class_robust, explicit_box
from bnncert.results.rows import P_SAFE

SOFTMAX = "softmax"  # the other quantity: the label's probability under the averaged softmax
QUICK_SECONDS = 20.0


@dataclass(frozen=True, eq=False)
class Recipe:
    """One instance before it is made.

    posterior: its file's name; recipes with one name share it. threshold: τ, as a decimal. catches:
    the published or planted mistake that a wrong answer to it gives away. needs: a network of the
    zoo that the user trains.
    """

    name: str
    track: str
    about: str
    posterior: str
    model: Callable[[], Model]
    question: Callable[[], Specification]
    threshold: str
    timeout: float = QUICK_SECONDS
    quantity: str = P_SAFE
    catches: str = ""
    needs: str | None = None


def box(
    lower: Sequence[float] | Tensor, upper: Sequence[float] | Tensor, shape: Sequence[int] = ()
) -> Box:
    """One box as a batch, of the given shape."""
    ends = [torch.as_tensor(end, dtype=torch.float64) for end in (lower, upper)]
    return Box(*(end.reshape(1, *(shape or end.shape)) for end in ends))


def point(*values: float) -> Box:
    return box(values, values)


def around(center: Tensor, eps: float, clip: tuple[float, float] | None = None) -> Box:
    """x ± ε in every coordinate, one input as a batch, inside the clip range."""
    lower, upper = center - eps, center + eps
    if clip is not None:
        lower, upper = lower.clamp_min(clip[0]), upper.clamp_max(clip[1])
    return Box(lower.unsqueeze(0), upper.unsqueeze(0))


def rows(
    region: Box, coefficients: Sequence[Sequence[float]], offsets: Sequence[float]
) -> Specification:
    """Safe iff every row·y + offset is positive."""
    matrix = torch.tensor([coefficients], dtype=torch.float64)
    return Specification(explicit_box(region), matrix, torch.tensor([offsets], dtype=torch.float64))


def positive(region: Box, outputs: int = 1) -> Specification:
    """Safe iff the first output is positive."""
    return rows(region, [[1.0] + [0.0] * (outputs - 1)], [0.0])


def keeps(region: Box, label: int, classes: int) -> Specification:
    """Safe iff the label is before every other class."""
    return class_robust(explicit_box(region), [label], classes)


def within(region: Box, low: float, high: float) -> Specification:
    """Safe iff low < y < high, of one output."""
    return rows(region, [[1.0], [-1.0]], [-low, high])
