"""Files: safetensors and .npz read by hand or without pickles, and the digests of what is in them."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.verdict import CannotCheck

Tensors: TypeAlias = dict[str, NDArray[Any]]

KEY = "bnncert"  # the metadata key that holds our header
LARGEST_HEADER = 100 * 2**20
LARGEST_FILE = 16 * 2**30  # unpacked; more is taken for a zip bomb
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I8": "<i1", "I32": "<i4"}
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RecursionError,
    OverflowError,
    MemoryError,
)


UNPACKABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, EOFError, RuntimeError)
MEMBER = re.compile(r"[Wb]\d+_(mean|std)|meta")


def read_safetensors(path: Path, schema: str) -> tuple[dict[str, Any], Tensors]:
    """Our JSON header and the tensors: 8 bytes of length, a JSON index, then the data. The file may be in a bundle."""
    try:
        content = _member(path) if path.parent.is_file() else _regular(path).read_bytes()
        length = int.from_bytes(content[:8], "little")
        if not len(content) >= 8 + length or not 2 <= length <= LARGEST_HEADER:
            raise ValueError("the index is longer than the file")
        index = strict_json(content[8 : 8 + length].decode())
        header = strict_json(index.pop("__metadata__")[KEY])
        data = memoryview(content)[8 + length :]
        tensors = {name: _tensor(entry, data) for name, entry in index.items()}
    except (*UNREADABLE, *UNPACKABLE) as error:
        raise CannotCheck("unreadable", f"{str(path)!r} is not a bnncert file ({error})") from error
    if not isinstance(header, dict) or header.get("schema") != schema:
        raise CannotCheck("unsupported", f"{str(path)!r} is not of schema {schema}")
    return header, tensors


def _member(path: Path) -> bytes:
    """A file in a bundle, named as if the bundle, a zip archive that compresses nothing, were a folder."""
    with zipfile.ZipFile(path.parent) as bundle:
        entry = bundle.getinfo(path.name)
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > LARGEST_FILE:
            raise ValueError("it is compressed or too large")
        return bundle.read(entry)


def _regular(path: Path) -> Path:
    """Not a folder, and nothing that would be read for ever."""
    if not path.is_file():
        raise OSError("no such file")
    return path


def strict_json(text: str) -> Any:
    """JSON without NaN and infinities."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} in JSON")

    return json.loads(text, parse_constant=refuse)


def _tensor(entry: dict[str, Any], data: memoryview) -> NDArray[Any]:
    dtype, shape, (start, stop) = np.dtype(DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
    if not all(type(n) is int and n >= 0 for n in (*shape, start, stop)) or stop > len(data):
        raise ValueError("a tensor lies outside the file")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("a tensor's shape and its bytes disagree")
    return np.frombuffer(data[start:stop], dtype).reshape(shape)


def read_npz(path: Path) -> Tensors:
    """The arrays of a posterior; pickles, object arrays and archives that unpack to too much are refused."""
    try:
        with zipfile.ZipFile(_regular(path)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST_FILE:
                raise ValueError("it unpacks to too much")
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files if MEMBER.fullmatch(name)}
    except (*UNREADABLE, *UNPACKABLE) as error:
        raise CannotCheck("unreadable", f"{str(path)!r} is not an .npz of plain arrays ({error})") from error


def numbers(tensors: Tensors, name: str, shape: tuple[int, ...]) -> Array:
    """A finite float64 array of the given shape."""
    value = tensors.get(name)
    if value is None or value.shape != shape or not np.issubdtype(value.dtype, np.floating):
        raise CannotCheck("malformed", f"tensor {name!r} is missing or not numbers of shape {shape}")
    array = value.astype(np.float64)
    if not np.isfinite(array).all():
        raise CannotCheck("malformed", f"tensor {name!r} holds NaN or infinity")
    return array


def digest(header: object, arrays: Iterable[Array] = ()) -> str:
    """SHA-256 of canonical JSON, then of each array: its shape as canonical JSON, its little-endian float64 bytes."""
    running = hashlib.sha256(_canonical(header))
    for array in arrays:
        running.update(_canonical(list(array.shape)))
        running.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return running.hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
