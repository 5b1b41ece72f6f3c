"""Pictures of the benchmark's own making: digits drawn by strokes, and soft patches of colour.

Nothing of any data set is in them. Grey levels are multiples of 1/256, from arithmetic that is the
same on every machine.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from bnncert.bench.streams import Stream

LEVELS = 256
# Strokes of each digit as polygons in the unit square, y downwards.
STROKES: dict[int, tuple[tuple[tuple[float, float], ...], ...]] = {
    0: (((0.5, 0.0), (0.15, 0.2), (0.1, 0.6), (0.4, 1.0), (0.75, 0.9), (0.9, 0.4), (0.5, 0.0)),),
    1: (((0.6, 0.0), (0.45, 1.0)),),
    2: (((0.1, 0.2), (0.5, 0.0), (0.85, 0.25), (0.1, 1.0)), ((0.1, 1.0), (0.95, 0.95))),
    3: (((0.1, 0.1), (0.8, 0.1), (0.4, 0.45), (0.85, 0.7), (0.5, 1.0), (0.1, 0.9)),),
    4: (((0.2, 0.0), (0.15, 0.5), (0.85, 0.5)), ((0.8, 0.1), (0.7, 1.0))),
    5: (((0.9, 0.0), (0.3, 0.05), (0.25, 0.45), (0.8, 0.55), (0.75, 0.95), (0.1, 1.0)),),
    6: (((0.7, 0.0), (0.2, 0.5), (0.25, 0.95), (0.7, 0.95), (0.75, 0.6), (0.25, 0.65)),),
    7: (((0.1, 0.05), (0.9, 0.0), (0.4, 1.0)),),
    8: (
        ((0.5, 0.45), (0.2, 0.2), (0.5, 0.0), (0.8, 0.2), (0.5, 0.45)),
        ((0.5, 0.45), (0.15, 0.75), (0.5, 1.0), (0.85, 0.75), (0.5, 0.45)),
    ),
    9: (((0.8, 0.3), (0.4, 0.45), (0.2, 0.2), (0.5, 0.0), (0.8, 0.2), (0.65, 1.0)),),
}


def digit(kind: int, seed: int, size: int = 28) -> Tensor:
    """A white digit on black [size, size], shifted, stretched and slanted a little by the seed.

    >>> picture = digit(7, seed=1)
    >>> picture.shape, float(picture.max())
    (torch.Size([28, 28]), 1.0)
    """
    right, down, slant, width = Stream(1000 * kind + seed).uniform(4).tolist()
    pixels = (torch.arange(size).double() + 0.5) / size
    y, x = torch.meshgrid(pixels, pixels, indexing="ij")
    # The digit fills about 20 of 28 pixels; its strokes are about 3 of them wide.
    y = (y - 0.15 - 0.03 * (down - 0.5)) / 0.7
    x = (x - 0.26 - 0.05 * (right - 0.5)) / 0.48 + 0.3 * (slant - 0.5) * (y - 0.5)
    thickness = 0.045 + 0.02 * width
    nearest = torch.full_like(x, torch.inf)
    for stroke in STROKES[kind]:
        for (x0, y0), (x1, y1) in pairwise(stroke):
            along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / (
                (x1 - x0) ** 2 + (y1 - y0) ** 2
            )
            along = along.clamp(0, 1)
            across = (0.48 * (x - x0 - along * (x1 - x0))) ** 2
            nearest = torch.minimum(nearest, across + (0.7 * (y - y0 - along * (y1 - y0))) ** 2)
    return _levels(2 - nearest / thickness**2)


def patches(seed: int, channels: int = 3, size: int = 32, count: int = 5) -> Tensor:
    """Soft round patches of colour on a plain ground [channels, size, size]."""
    stream = Stream(seed)
    pixels = (torch.arange(size).double() + 0.5) / size
    y, x = torch.meshgrid(pixels, pixels, indexing="ij")
    picture = stream.uniform(channels, 1, 1).expand(channels, size, size)
    for _ in range(count):
        centre_x, centre_y, radius = stream.uniform(3).tolist()
        distance = ((x - centre_x) ** 2 + (y - centre_y) ** 2) / (0.1 + 0.3 * radius) ** 2
        share = (1 - distance).clamp_min(0)
        picture = picture + share * (stream.uniform(channels, 1, 1) - picture)
    return _levels(picture)


def _levels(values: Tensor) -> Tensor:
    return (values.clamp(0, 1) * LEVELS).round() / LEVELS
