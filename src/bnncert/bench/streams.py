"""Numbers from seeds that are the same bits on every machine.

Raw words of a counter-based generator, whose stream is fixed, become floats by exact arithmetic:
no sampler of a library and no transcendental function lies between, so that neither versions nor
threads can change a bit.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

DRAW_BITS = 16  # of each number: all of them are multiples of 2^-16
ROUNDED = 2.0**-20  # to what the results of longer computations are rounded


class Stream:
    """The numbers that belong to a seed, one after the other.

    >>> Stream(7).uniform(3)
    tensor([0.8721, 0.2954, 0.4201], dtype=torch.float64)
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(key=seed)

    def uniform(self, *shape: int) -> Tensor:
        """In [0, 1), multiples of 2^-16."""
        raw = self._generator.random_raw(math.prod(shape))
        words = (np.asarray(raw, dtype=np.uint64) >> np.uint64(64 - DRAW_BITS)).astype(np.float64)
        return torch.from_numpy(words / 2.0**DRAW_BITS).reshape(shape)

    def bell(self, *shape: int) -> Tensor:
        """Of mean 0 and variance 1, nearly Gaussian: a sum of four uniform numbers."""
        total = self.uniform(4, *shape).sum(0) - 2 + 2.0 ** (1 - DRAW_BITS)
        return 1.75 * total

    def whole(self, below: int, count: int) -> list[int]:
        """Numbers from 0 to below - 1."""
        return [int(value * below) for value in self.uniform(count).tolist()]


def rounded(values: Tensor) -> Tensor:
    """To multiples of 2^-20: the last bits of a matrix product or a solver do not matter."""
    return (values / ROUNDED).round() * ROUNDED
