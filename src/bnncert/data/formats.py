"""The files that data sets are published as: gzipped idx, and the archive of CIFAR-10."""

from __future__ import annotations

import gzip
import io
import math
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bnncert.errors import InputError


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The bytes in a gzipped idx file.

    Its header is two zero bytes, the type (8: unsigned bytes), the number of dimensions, and each
    size as a big-endian 32-bit integer; the values follow, last dimension fastest.
    """
    content = _gunzip(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(
            f"{str(path)!r} does not start as an idx file of unsigned bytes; download it again"
        )
    start = 4 + 4 * content[3]
    shape = [int(size) for size in np.frombuffer(content[4:start], dtype=">u4")]
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{str(path)!r} holds {len(content) - start} "
            f"values for shape {shape}; download it again"
        )
    return np.frombuffer(content[start:], dtype=np.uint8).reshape(shape)


def read_cifar10(path: Path, batches: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images [N, 32, 32, 3] and labels [N] of some batches of CIFAR-10's binary version.

    A batch is a file of records: a byte for the label, then 3 x 32 x 32 bytes, the red rows first.
    Unlike the Python version, which is pickled, it can be read without running what it says.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(_gunzip(path))) as archive:
            content = b"".join(
                _member(archive, f"cifar-10-batches-bin/{batch}.bin") for batch in batches
            )
    except (tarfile.TarError, KeyError) as error:
        raise InputError(
            f"{str(path)!r} is not the archive of CIFAR-10 ({error}); download it again"
        ) from error
    if len(content) % 3073:
        raise InputError(
            f"{str(path)!r} holds {len(content)} bytes, not records of 3073; download it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3073)
    return np.moveaxis(records[:, 1:].reshape(-1, 3, 32, 32), 1, -1), records[:, 0]


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{str(path)!r} is not a gzip file ({error}); download it again"
        ) from error


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file.read()
