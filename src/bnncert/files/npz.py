"""`.npz` archives of plain arrays."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bnncert.errors import InputError

LARGEST = 16 * 2**30  # bytes an archive may unpack to; more is taken for a zip bomb


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """All arrays of an `.npz`; pickles, object arrays and decompression bombs are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                raise InputError(f"{str(path)!r} unpacks to more than {LARGEST >> 30} GiB; refused")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{str(path)!r} is not an .npz of plain arrays ({error}); save it with numpy.savez"
        ) from error
