"""Arrays of numbers, as people have them: tensors and numpy's."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = Tensor | NDArray[np.floating[Any]]


def as_tensor(value: Array) -> Tensor:
    """The tensor itself, or a copy of the array, of the same type."""
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def take_arrays(owner: object, *names: str) -> None:
    """Replace arrays among the named attributes of a frozen value by tensors."""
    for name in names:
        if isinstance(value := getattr(owner, name), np.ndarray):
            object.__setattr__(owner, name, as_tensor(value))
