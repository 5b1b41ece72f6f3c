"""Small data sets in the published formats."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from bnncert import data

IMAGES = np.arange(3 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(3, 28, 28)
LABELS = np.array([7, 0, 9], dtype=np.uint8)

FILES = {"t10k-images-idx3-ubyte.gz": IMAGES, "t10k-labels-idx1-ubyte.gz": LABELS}
COLOURS = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
CLASSES = np.arange(12, dtype=np.uint8) % 10
# As in the published archive, the batches are in no order.
BATCHES = {
    "data_batch_1": 0,
    "data_batch_3": 4,
    "data_batch_4": 6,
    "test_batch": 10,
    "data_batch_5": 8,
    "data_batch_2": 2,
}


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def records(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> bytes:
    """Byte by byte as CIFAR-10's page describes the binary version."""
    return b"".join(
        bytes([y]) + b"".join(x[:, :, c].tobytes() for c in range(3))
        for x, y in zip(images, labels, strict=True)
    )


def archive(path: Path, members: Mapping[str, bytes | None]) -> Path:
    """A .tar.gz of files, and of folders where the content is None."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size, entry.type = (
                len(content or b""),
                tarfile.DIRTYPE if content is None else tarfile.REGTYPE,
            )
            tar.addfile(entry, io.BytesIO(content or b""))
    return path


def cifar10(path: Path) -> Path:
    """Two images a batch, the last two of them the test split."""
    return archive(
        path, {name: records(COLOURS[i : i + 2], CLASSES[i : i + 2]) for name, i in BATCHES.items()}
    )


def save(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def pin(
    monkeypatch: pytest.MonkeyPatch, name: str = "mnist", split: str = "test", **changes: object
) -> None:
    monkeypatch.setitem(
        data.PUBLISHED[name], split, replace(data.PUBLISHED[name][split], **changes)
    )


def check_small(inputs: data.Dataset) -> None:
    assert (inputs.name, inputs.image) == ("mnist", True)
    np.testing.assert_array_equal((inputs.x * 255).round().numpy(), IMAGES)
    assert inputs.y is not None
    assert inputs.y.tolist() == LABELS.tolist()


def check_colours(inputs: data.Dataset, part: slice) -> None:
    assert (inputs.name, inputs.image) == ("cifar10", True)
    assert inputs.x.is_contiguous()
    np.testing.assert_array_equal(
        (inputs.x * 255).round().numpy(), COLOURS[part].transpose(0, 3, 1, 2)
    )
    assert inputs.y is not None
    assert inputs.y.tolist() == CLASSES[part].tolist()
