"""Files with a `state_dict`: tensors and their names. Nothing in a file is executed."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from bnncert.errors import InputError

LARGEST = 16 * 2**30  # bytes of a file, and of its tensors in float64


@dataclass(frozen=True, eq=False)
class StateDict:
    """Tensors by name, and the SHA-256 of the file they were in."""

    tensors: dict[str, Tensor]
    ordered: bool  # as the module's own, which is the order in which its layers were made
    sha256: str


def load_state_dict(path: str | Path) -> StateDict:
    """The tensors of a `.safetensors` file or of a `.pt` / `.pth` that torch.save wrote.

    Nothing in it is executed.
    """
    path = Path(path)
    if path.suffix not in (".safetensors", ".pt", ".pth"):
        raise InputError(
            f"state_dict file {str(path)!r} has an unknown ending; "
            "give a .pt, .pth or .safetensors file"
        )
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{str(path)!r} is larger than {LARGEST >> 30} GiB; refused")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"state_dict file {str(path)!r} cannot be read ({error.strerror}); check the path"
        ) from error
    ordered = path.suffix != ".safetensors"
    found = (
        _from_torch_save(content, str(path)) if ordered else _from_safetensors(content, str(path))
    )
    return StateDict(_checked(found, str(path)), ordered, hashlib.sha256(content).hexdigest())


def _from_safetensors(content: bytes, path: str) -> object:
    try:
        return load_safetensors(content)
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path!r} is not a safetensors file ({error})") from error


def _from_torch_save(content: bytes, path: str) -> object:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise InputError(
            f"{path!r} is not what torch.save writes; save model.state_dict() again"
        ) from error
    # torch.save does not compress, so a sum above the file's size is a bomb.
    if any(entry.compress_type for entry in entries) or sum(
        entry.file_size for entry in entries
    ) > len(content):
        raise InputError(f"{path!r} unpacks to more than its size; refused")
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file can fail in any way
        raise InputError(
            f"{path!r} is damaged or holds more than tensors; "
            "save them alone: torch.save(model.state_dict(), ...)"
        ) from error


def _checked(found: object, path: str) -> dict[str, Tensor]:
    """Names and dense tensors of numbers that are really in the file."""
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InputError(
            f"{path!r} holds a {type(found).__name__}, not a state_dict; "
            "save model.state_dict() itself"
        )
    for name, value in found.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_quantized:
            raise InputError(
                f"{path!r}: {name!r} is not a plain tensor; save model.state_dict() itself"
            )
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise InputError(f"{path!r}: {name!r} claims more numbers than the file holds; refused")
    if sum(value.numel() for value in found.values()) * 8 > LARGEST:
        raise InputError(f"{path!r} unpacks to more than {LARGEST >> 30} GiB; refused")
    return found
