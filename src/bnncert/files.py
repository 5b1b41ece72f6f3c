"""Files: safetensors with one JSON header, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bnncert.digest import canonical_json
from bnncert.errors import InputError

KEY = "bnncert"  # the one metadata key: with more than one the bytes would not be deterministic


def write_tensors(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    write_atomically(path, save(copies, {KEY: canonical_json(header)}))


def read_tensors(path: Path, schema: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file of the given schema."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not a safetensors file ({error}); write it with bnncert") from error
    if not isinstance(header, dict) or header.get("schema") != schema:
        raise InputError(f"{str(path)!r} is not a {schema} file; write it with bnncert")
    return header, tensors


def write_atomically(path: Path, content: bytes) -> None:
    """All of the content or nothing: a temporary file beside it, flushed to disk, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
