"""Files: safetensors and .npz read by hand, without pickles; the room that a file may take; digests
of what is in it.

Whatever goes wrong while a file is read, foreseen or not, becomes `unreadable`. A file of n bytes
may make the checker hold at most `room(n)` bytes beside itself: 64 MiB however small it is, and 64
times its own size.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.verdict import CannotCheck, Reason

Arrays: TypeAlias = dict[str, NDArray[Any]]

KEY = "bnncert"  # the metadata key that holds our header
LARGEST_HEADER = 16 * 2**20
LEAST_ROOM, SHARE = 64 * 2**20, 64
LEAST_EFFORT, EFFORT = 2**26, 2**12  # steps for any file, and for each byte
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I8": "<i1", "I32": "<i4"}
MEMBER = re.compile(r"([Wb](0|[1-9][0-9]{0,4})_(mean|std)|meta)(\.npy)?")
NPY_TYPES = re.compile(r"[<>]f[248]|[<>]U[0-9]{1,7}")
LARGEST_NPY_HEADER = 10_000


@dataclass(frozen=True)
class File:
    """The header and the arrays of a safetensors file, and how large it is."""

    header: dict[str, Any]
    arrays: Arrays
    size: int


@contextmanager
def reading(what: str, code: str = "unreadable") -> Iterator[None]:
    """Whatever happens in the block, foreseen or not, is a reason not to check."""
    try:
        yield
    except Reason:
        raise
    except Exception as error:
        raise CannotCheck(code, f"{what} ({type(error).__name__}: {error})") from error


def room(size: int) -> int:
    """The bytes that a file of this size may make the checker hold."""
    return LEAST_ROOM + SHARE * size


def require_room(needed: int, size: int, what: str) -> None:
    if needed > room(size):
        raise CannotCheck(
            "too-large",
            f"{what} would take {needed >> 20} MiB; files of {size} bytes may take less",
        )


def require_effort(steps: int, size: int, what: str) -> None:
    """Of all steps that the files ask for, to the last of them, `what`."""
    if steps > LEAST_EFFORT + EFFORT * size:
        raise CannotCheck(
            "too-large",
            f"with {what} checking would take {steps} steps; files of {size} bytes may take less",
        )


def read_safetensors(path: Path, schema: str) -> File:
    """Our JSON header and the tensors: 8 bytes of length, a JSON index, then the data. The file may
    be in a bundle."""
    with reading(f"{str(path)!r} is not a bnncert file"):
        content = _member(path) if path.parent.is_file() else regular(path).read_bytes()
        length = int.from_bytes(content[:8], "little")
        if not len(content) >= 8 + length or not 2 <= length <= LARGEST_HEADER:
            raise ValueError("the index is longer than the file, or than can be read")
        index = strict_json(content[8 : 8 + length].decode())
        header = strict_json(index.pop("__metadata__")[KEY])
        data = memoryview(content)[8 + length :]
        arrays = {name: _tensor(entry, data) for name, entry in index.items()}
        _require_neighbours(index, len(data))
    if not isinstance(header, dict) or header.get("schema") != schema:
        raise CannotCheck("unsupported", f"{str(path)!r} is not of schema {schema}")
    return File(header, arrays, len(content))


def _member(path: Path) -> bytes:
    """A file in a bundle, named as if the bundle, a zip archive that compresses nothing, were a
    folder."""
    with zipfile.ZipFile(path.parent) as bundle:
        entry = bundle.getinfo(path.name)
        if (
            entry.compress_type != zipfile.ZIP_STORED
            or entry.file_size > path.parent.stat().st_size
        ):
            raise ValueError("it is compressed or too large")
        return bundle.read(entry)


def regular(path: Path) -> Path:
    """Not a folder, and nothing that would be read for ever."""
    if not path.is_file():
        raise OSError("no such file")
    return path


def strict_json(text: str) -> Any:
    """JSON without NaN and infinities, in which no key occurs twice."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} in JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice in JSON")
        return found

    return json.loads(text, parse_constant=refuse, object_pairs_hook=once)


def _tensor(entry: dict[str, Any], data: memoryview) -> NDArray[Any]:
    if entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError("a tensor is not described by dtype, shape and offsets")
    dtype, shape, (start, stop) = (
        np.dtype(DTYPES[entry["dtype"]]),
        entry["shape"],
        entry["data_offsets"],
    )
    # Also an array without entries has sizes, and what they say may be allocated elsewhere.
    if not all(type(n) is int and 0 <= n <= len(data) for n in (*shape, start, stop)):
        raise ValueError("a tensor lies outside the file")
    if stop - start != math.prod(shape) * dtype.itemsize:
        raise ValueError("a tensor's shape and its bytes disagree")
    return np.frombuffer(data[start:stop], dtype).reshape(shape)


def _require_neighbours(index: dict[str, Any], size: int) -> None:
    """Tensors lie one after the other and fill the file: no byte is read twice, and none is
    hidden."""
    end = 0
    for start, stop in sorted(entry["data_offsets"] for entry in index.values()):
        if start != end:
            raise ValueError("tensors overlap or leave bytes out")
        end = stop
    if end != size:
        raise ValueError("there are bytes that belong to no tensor")


def read_npz(path: Path) -> tuple[Arrays, int]:
    """The arrays of a posterior and the archive's size; arrays of other names are not looked at."""
    with reading(f"{str(path)!r} is not an .npz of plain arrays"):
        size = regular(path).stat().st_size
        with zipfile.ZipFile(path) as archive:
            require_room(
                sum(entry.file_size for entry in archive.infolist()),
                size,
                f"unpacking {str(path)!r}",
            )
            entries = [
                (found[1], entry)
                for entry in archive.infolist()
                if (found := MEMBER.fullmatch(entry.filename))
            ]
            if len({name for name, _ in entries}) < len(entries):
                raise ValueError("an array occurs twice")
            return {name: _array(archive, entry) for name, entry in entries}, size


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """An array in numpy's format: a magic word, a version, the length of a header, a literal
    dictionary, the data."""
    # Other methods unpack without a limit.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("an array is packed in an unusual way")
    content = archive.read(entry)
    if content[:6] != b"\x93NUMPY" or content[6] not in (1, 2, 3):
        raise ValueError("an array is not in numpy's format")
    start = 10 if content[6] == 1 else 12
    stop = start + int.from_bytes(content[8:start], "little")
    if stop > min(len(content), start + LARGEST_NPY_HEADER):
        raise ValueError("an array's header is longer than can be read")
    described = ast.literal_eval(content[start:stop].decode("latin-1").strip())
    if type(described) is not dict or described.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError("an array is not described by type, order and shape")
    kind, shape, fortran = described["descr"], described["shape"], described["fortran_order"]
    if (
        type(kind) is not str
        or not NPY_TYPES.fullmatch(kind)
        or type(shape) is not tuple
        or type(fortran) is not bool
    ):
        raise ValueError("an array does not hold plain numbers or text")
    dtype = np.dtype(kind)
    if not all(type(n) is int and 0 <= n <= len(content) for n in shape):
        raise ValueError("an array has an impossible shape")
    if dtype.itemsize * math.prod(shape) != len(content) - stop:
        raise ValueError("an array's shape and its bytes disagree")
    return np.frombuffer(content, dtype, offset=stop).reshape(shape, order="F" if fortran else "C")


def read_lines(path: Path) -> list[Any]:
    """One JSON value a line."""
    with reading(f"{str(path)!r} is not a file of results"):
        text = regular(path).read_bytes().decode().removesuffix("\n")
        return [strict_json(line) for line in text.split("\n")] if text else []


def digest(header: object, arrays: Iterable[Array] = ()) -> str:
    """SHA-256 of canonical JSON, then of each array: its shape as canonical JSON, its little-endian
    float64 bytes."""
    running = hashlib.sha256(_canonical(header))
    for array in arrays:
        running.update(_canonical(list(array.shape)))
        running.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return running.hexdigest()


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
