"""What is learned from or asked about: inputs with labels, targets or radii, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import digest

Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs x [N, *shape] (float64), and y if known.

    `y` are class labels [N] (int64) or regression targets [N], or [N, k] of several (float64).
    `image` says that the values are
    pixels scaled into [0, 1], so that perturbed inputs are clipped there by default. `eps` are the
    radii [N] to certify around the inputs, where they come with their own. `names` and `targets`
    name the columns of a table, and `standardised` says that all of them, the target's too, come
    with mean 0 and standard deviation 1.
    """

    name: str
    x: Tensor
    y: Tensor | None
    image: bool
    eps: Tensor | None = None
    names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    standardised: bool = False

    @property
    def digest(self) -> str:
        """SHA-256 of the inputs and what is known of y."""
        return digest("data", [self.x] if self.y is None else [self.x, self.y])


def dataset(where: str, x: Array, y: Array | None, eps: Array | None = None) -> Dataset:
    """The arrays as a data set; an `InputError` says what is wrong with those found at `where`."""
    if x.ndim < 2 or x.size == 0:
        raise InputError(f"{where!r}: x has shape {x.shape}; give [N, ...] with at least one input")
    image = x.dtype == np.uint8
    if not image and not np.issubdtype(x.dtype, np.floating):
        raise InputError(f"{where!r}: x is {x.dtype}; give uint8 pixels or floating-point numbers")
    values = np.divide(x, 255 if image else 1, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{where!r}: x holds NaN or infinity; every entry must be finite")
    labels = None if y is None else _labels(where, y, len(x))
    radii = None if eps is None else _radii(where, eps, len(x))
    return Dataset(where, torch.from_numpy(values), labels, image, radii)


def _radii(where: str, eps: Array, count: int) -> Tensor:
    eps = np.asarray(eps)
    if eps.shape != (count,) or not np.issubdtype(eps.dtype, np.floating):
        raise InputError(
            f"{where!r}: eps is {eps.dtype} of shape {eps.shape}; "
            "give a floating-point radius for each input"
        )
    return torch.from_numpy(eps.astype(np.float64))


def _labels(where: str, y: Array, count: int) -> Tensor:
    y = np.asarray(y)
    if y.shape == (count, 1):
        y = y[:, 0]
    several = y.ndim == 2 and len(y) == count and y.shape[1] and np.issubdtype(y.dtype, np.floating)
    if y.shape != (count,) and not several:
        raise InputError(
            f"{where!r}: y has shape {y.shape}; give one label for each of the {count} inputs, "
            "or targets in columns"
        )
    if np.issubdtype(y.dtype, np.floating) and np.isfinite(y).all():
        return torch.from_numpy(y.astype(np.float64))
    if not np.issubdtype(y.dtype, np.integer):
        raise InputError(
            f"{where!r}: y is {y.dtype} or not finite; give integer class labels or finite targets"
        )
    labels = torch.from_numpy(y.astype(np.int64))
    if not bool((labels >= 0).all()):
        raise InputError(
            f"{where!r}: y holds a label outside 0 to 2⁶³ - 1; class labels start at 0"
        )
    return labels
