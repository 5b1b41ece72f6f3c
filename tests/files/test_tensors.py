"""Files of tensors: the same bytes for the same content, read again bit for bit, whole or not at
all."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert.errors import InputError
from bnncert.files import npz
from bnncert.files.digest import canonical_json, digest
from bnncert.files.npz import read_arrays
from bnncert.files.tensors import read_tensors, tensor_bytes, write_atomically, write_tensors

HEADER = {"schema": "s/1", "numbers": [1, 0.1, -0.0, 5e-324], "words": {"b": None, "a": True}}
TENSORS = {
    "float": torch.tensor([[0.1, -0.0], [5e-324, math.inf]], dtype=torch.float64),
    "int": torch.tensor([1, -(2**31)], dtype=torch.int32),
    "none": torch.empty(0, 3, dtype=torch.float64),
    "transposed": torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t.safetensors", HEADER, TENSORS)
    header, tensors = read_tensors(tmp_path / "t.safetensors", "s/1")
    assert repr(header) == repr(dict(sorted(HEADER.items())) | {"words": {"a": True, "b": None}})
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert tensors[name].shape == value.shape
        assert tensors[name].numpy().tobytes() == value.contiguous().numpy().tobytes()


def test_equal_content_gives_equal_bytes() -> None:
    turned = dict(reversed(HEADER.items())), dict(reversed(TENSORS.items()))
    assert tensor_bytes(HEADER, TENSORS) == tensor_bytes(*turned)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_bundle_is_read_if_it_is_not_compressed(compression: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "b.zip", "w", compression) as bundle:
        bundle.writestr("t.safetensors", tensor_bytes(HEADER, TENSORS))
    if compression == zipfile.ZIP_STORED:
        assert read_tensors(tmp_path / "b.zip" / "t.safetensors", "s/1")[0] == HEADER
        with pytest.raises(InputError, match="is not a safetensors file"):
            read_tensors(tmp_path / "b.zip" / "other.safetensors", "s/1")
    else:
        with pytest.raises(InputError, match="not compressed"):
            read_tensors(tmp_path / "b.zip" / "t.safetensors", "s/1")


def test_another_schema_is_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t.safetensors", HEADER, TENSORS)
    with pytest.raises(InputError, match="is not a s/2 file"):
        read_tensors(tmp_path / "t.safetensors", "s/2")
    (tmp_path / "t.safetensors").write_bytes(b"text")
    with pytest.raises(InputError, match="is not a safetensors file"):
        read_tensors(tmp_path / "t.safetensors", "s/1")


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    write_atomically(path, b"before")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_digests_tell_content_apart() -> None:
    row, column = torch.zeros(1, 2).double(), torch.zeros(2, 1).double()
    found = {
        digest({"a": 1}),
        digest({"a": 2}),
        digest({"a": 1}, [row]),
        digest({"a": 1}, [column]),
        digest({"a": 1}, [row, row]),
        digest({"a": 1}, [-row]),
    }
    assert len(found) == 6
    assert digest({"a": 1, "b": 2}, [row]) == digest({"b": 2, "a": 1}, [row.clone()])
    assert canonical_json({"b": [1.5, None], "a": "ä"}) == '{"a":"\\u00e4","b":[1.5,null]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(math.nan)


def test_archives_that_unpack_to_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1000))
    assert read_arrays(tmp_path / "a.npz")["x"].shape == (1000,)
    monkeypatch.setattr(npz, "LARGEST", 4000)
    with pytest.raises(InputError, match="unpacks to more than"):
        read_arrays(tmp_path / "a.npz")
