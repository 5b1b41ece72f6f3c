"""Pictures of inputs that are shaped like images: PNG files small enough to sit in a page, made
with zlib alone."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Image: TypeAlias = NDArray[np.float64]  # [height, width, 1 or 3]
Pixels: TypeAlias = NDArray[np.uint8]  # the same, 0 to 255
Range: TypeAlias = tuple[float, float]

SMALLEST = 8  # pixels a side: shorter vectors are features, not images
LEVELS = 7  # of a difference, on either side of none: a few are enough and compress well
GREY, COLOUR = 0, 2  # PNG colour types by their number
FILTERS = (0, 1, 2)  # none, left, up


def as_image(x: Tensor) -> Image | None:
    """A vector of k² or 3k² values, a square, [1, h, w] or [3, h, w] as [h, w, channels].

    None for anything else.
    """
    shape = _image_shape(tuple(x.shape))
    if shape is None or min(shape[1:]) < SMALLEST:
        return None
    values: Image = x.detach().cpu().double().reshape(shape).permute(1, 2, 0).numpy()
    return values


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Channels, height, width."""
    if len(shape) == 1:
        for channels in (1, 3):
            side = math.isqrt(shape[0] // channels)
            if channels * side * side == shape[0]:
                return channels, side, side
    if len(shape) == 2 and shape[0] == shape[1]:
        return 1, *shape
    return (shape[0], shape[1], shape[2]) if len(shape) == 3 and shape[0] in (1, 3) else None


def value_range(image: Image, clip: Range | None) -> Range:
    """What is black and white: the clip range, else [0, 1] if it holds all, else the extremes."""
    low, high = float(image.min()), float(image.max())
    if clip is not None and all(map(math.isfinite, clip)):
        return clip
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def to_pixels(image: Image, values: Range) -> Pixels:
    low, high = values
    return _eight_bits((image - low) / (high - low if high > low else 1.0) * 255)


def difference(image: Image, other: Image) -> tuple[Pixels, float]:
    """other - image as grey, darker where it falls, lighter where it rises, and its maximum."""
    change = other - image
    largest = float(np.abs(change).max())
    levels = np.round(change / (largest or 1.0) * LEVELS)
    return _eight_bits(127.5 + levels * (127.5 / LEVELS)), largest


def _eight_bits(levels: Image) -> Pixels:
    """Rounded to 0, ..., 255; what is not a number is black."""
    return np.nan_to_num(levels).clip(0, 255).round().astype(np.uint8)


def shrink(pixels: Pixels, factor: int) -> Pixels:
    """The mean over squares of factor x factor pixels.

    The last ones are repeated where the sides do not divide.
    """
    if factor == 1:
        return pixels
    missing = [(0, -side % factor) for side in pixels.shape[:2]]
    padded = np.pad(pixels, [*missing, (0, 0)], mode="edge")
    height, width, channels = padded.shape
    squares = padded.reshape(height // factor, factor, width // factor, factor, channels)
    return _eight_bits(squares.mean((1, 3), dtype=np.float64))


def png(pixels: Pixels) -> bytes:
    """The smallest of the files that three row filters give."""
    height, width, channels = pixels.shape
    header = struct.pack(">2I5B", width, height, 8, COLOUR if channels == 3 else GREY, 0, 0, 0)
    data = min((zlib.compress(_filtered(pixels, kind), 9) for kind in FILTERS), key=len)
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def _filtered(pixels: Pixels, kind: int) -> bytes:
    """Every row after its filter's number: the values, or their change from the left or above."""
    before = np.zeros_like(pixels)
    if kind == 1:
        before[:, 1:] = pixels[:, :-1]
    elif kind == 2:
        before[1:] = pixels[:-1]
    rows = (pixels - before).reshape(len(pixels), -1)
    return np.pad(rows, ((0, 0), (1, 0)), constant_values=kind).tobytes()


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


def data_uri(pixels: Pixels) -> str:
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()
