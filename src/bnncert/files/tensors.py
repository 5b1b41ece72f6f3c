"""Files: safetensors with one JSON header, written whole or not at all."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import canonical_json

KEY = "bnncert"  # the one metadata key: with more than one the bytes would not be deterministic


def write_tensors(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    write_atomically(path, tensor_bytes(header, tensors))


def tensor_bytes(header: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """The file's content: equal headers and tensors give equal bytes."""
    # From numpy, which takes a quarter of the time: campaigns write certificates by the hundred
    # thousand.
    arrays = {
        name: np.ascontiguousarray(value.detach().cpu().numpy()) for name, value in tensors.items()
    }
    return save(arrays, {KEY: canonical_json(header)})


def read_tensors(path: Path, schema: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file of the given schema.

    It may lie in a bundle, as `bundle.zip/name`.
    """
    try:
        metadata, tensors = _read_bundled(path) if path.parent.is_file() else _read(path)
        header = json.loads(metadata.get(KEY, "null"))
    except (
        SafetensorError,
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        OSError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{str(path)!r} is not a safetensors file ({error}); write it with bnncert"
        ) from error
    if not isinstance(header, dict) or header.get("schema") != schema:
        raise InputError(f"{str(path)!r} is not a {schema} file; write it with bnncert")
    return header, tensors


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        return file.metadata() or {}, tensors


def _read_bundled(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with zipfile.ZipFile(path.parent) as bundle:
        if bundle.getinfo(path.name).compress_type != zipfile.ZIP_STORED:
            raise ValueError("a bundle is not compressed")
        content = bundle.read(path.name)
    tensors = load(content)  # which checks the file; then its index starts after 8 bytes of length
    index = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return index.get("__metadata__", {}), tensors


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content or nothing, even after a crash: a temporary file, flushed and renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """The new name to disk; not needed where no folder can be opened as a file (Windows)."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
