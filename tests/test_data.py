"""Data sets and input files: what is read is what was written, and every fault is one line that says so."""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bnncert import data
from bnncert.data import load_inputs, read_idx
from bnncert.errors import InputError

IMAGES = np.arange(3 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(3, 28, 28)
LABELS = np.array([7, 0, 9], dtype=np.uint8)
REAL_FOLDER = os.environ.get(data.FOLDER)
FILES = {"t10k-images-idx3-ubyte.gz": IMAGES, "t10k-labels-idx1-ubyte.gz": LABELS}


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def save(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.FOLDER, raising=False)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small files in MNIST's place, their hashes pinned; no network beyond it."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name, array in FILES.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    pin(monkeypatch, files=hashes, url="http://127.0.0.1:9/")  # the discard port: nobody answers
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pooch = pytest.importorskip("pooch", reason="needs pooch: pip install 'bnncert[data]'")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def server(published: Path) -> Iterator[str]:
    """The published folder over HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(published))) as http:
        thread = threading.Thread(target=partial(http.serve_forever, poll_interval=0.01))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the base class)
        pass


def pin(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    monkeypatch.setitem(data.PUBLISHED["mnist"], "test", replace(data.PUBLISHED["mnist"]["test"], **changes))


# Input files


def test_bytes_are_pixels(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.array([[0, 51], [102, 255]], np.uint8), y=np.array([3, 0], np.uint8))
    inputs = load_inputs(path)
    assert inputs.image
    assert inputs.x.dtype == torch.float64
    assert inputs.x.tolist() == [[0.0, 0.2], [0.4, 1.0]]
    assert inputs.y is not None
    assert inputs.y.dtype == torch.int64
    assert inputs.y.tolist() == [3, 0]


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", "<f2"])
def test_floats_are_taken_as_they_are(tmp_path: Path, kind: str) -> None:
    values = np.array([[[-3.5, 0.1]], [[2.0, 1e4]]], kind)
    inputs = load_inputs(str(save(tmp_path / "a.npz", x=values)))
    assert not inputs.image
    assert inputs.y is None
    assert inputs.x.dtype == torch.float64
    assert inputs.x.tolist() == values.astype(np.float64).tolist()


def test_floating_targets_are_kept_for_regression(tmp_path: Path) -> None:
    inputs = load_inputs(str(save(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.array([0.5, -1.25], np.float32))))
    assert inputs.y is not None
    assert inputs.y.dtype == torch.float64
    assert inputs.y.tolist() == [0.5, -1.25]


X = np.zeros((2, 4))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": X}, "lacks the array 'x'"),
        ({"x": X.astype(np.int64)}, "x is int64; give uint8"),
        ({"x": X.astype(bool)}, "x is bool"),
        ({"x": X.astype(complex)}, "x is complex128"),
        ({"x": X + np.nan}, "x holds NaN or infinity"),
        ({"x": np.array([[1.0, -np.inf]])}, "x holds NaN or infinity"),
        ({"x": np.zeros(4)}, r"x has shape \(4,\); give \[N, ...\]"),
        ({"x": np.zeros((0, 4))}, "at least one input"),
        ({"x": X, "y": np.array([1])}, r"y has shape \(1,\); give one label for each of the 2"),
        ({"x": X, "y": np.array([[1], [2]])}, r"y has shape \(2, 1\)"),
        ({"x": X, "y": np.array([1.0, np.nan])}, "y is float64 or not finite"),
        ({"x": X, "y": np.array([True, False])}, "y is bool"),
        ({"x": X, "y": np.array([1, -1])}, "class labels start at 0"),
        ({"x": X, "y": np.array([1, 2**63], np.uint64)}, "class labels start at 0"),
        ({"x": np.array([["a", object()]], object)}, "not an .npz of plain arrays"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    path = save(tmp_path / "bad.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load_inputs(path)
    assert "bad.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither a data set \(digits, mnist\) nor a file"):
        load_inputs("mnits")
    with pytest.raises(InputError, match=r"missing\.npz' are neither"):
        load_inputs(tmp_path / "missing.npz")
    with pytest.raises(InputError, match="split 'valid' is not known; choose train or test"):
        load_inputs("digits", "valid")


# idx files


@pytest.mark.parametrize("array", [IMAGES, LABELS])
def test_idx_is_read_back(tmp_path: Path, array: NDArray[np.uint8]) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(read_idx(path), array, strict=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(LABELS), "not a gzip file"),
        (gzip.compress(idx(LABELS), mtime=0)[:-9], "not a gzip file"),
        (gzip.compress(b"", mtime=0), "does not start as an idx file"),
        (gzip.compress(b"\0\0\x09" + idx(LABELS)[3:], mtime=0), "does not start as an idx file"),
        (gzip.compress(b"\0\0\x08\x03\0\0", mtime=0), "does not start as an idx file"),
        (gzip.compress(idx(LABELS)[:-1], mtime=0), r"2 values for shape \[3\]"),
        (gzip.compress(idx(LABELS) + b"\0", mtime=0), r"4 values for shape \[3\]"),
    ],
)
def test_a_bad_idx_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_idx(path)


# Digits


def test_digits() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bnncert[data]'")
    train, test = load_inputs("digits", "train"), load_inputs("digits")
    assert train.image
    assert train.x.shape == (1500, 8, 8)
    assert test.x.shape == (297, 8, 8)
    assert train.x.dtype == torch.float64
    assert (train.x[0, 0] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert train.x.max() == 1
    assert train.y is not None
    assert test.y is not None
    assert train.y[:10].tolist() == list(range(10))
    assert torch.bincount(torch.cat([train.y, test.y])).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"^data set 'digits' needs scikit-learn: pip install 'bnncert\[data\]'$"):
        load_inputs("digits")
    with pytest.raises(InputError, match=r"^data set 'mnist' needs pooch: pip install 'bnncert\[data\]'"):
        load_inputs("mnist")


# A local folder


def check_small(inputs: data.Dataset) -> None:
    assert (inputs.name, inputs.image) == ("mnist", True)
    np.testing.assert_array_equal((inputs.x * 255).round().numpy(), IMAGES)
    assert inputs.y is not None
    assert inputs.y.tolist() == LABELS.tolist()


def test_local_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    save(tmp_path / "mnist_test.npz", x=IMAGES, y=LABELS)
    check_small(load_inputs("mnist"))


@pytest.mark.parametrize("arrays", [{"x": IMAGES}, {"x": IMAGES / 255, "y": LABELS}, {"x": IMAGES[:, :8], "y": LABELS}])
def test_local_arrays_must_be_the_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, object]
) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    save(tmp_path / "mnist_test.npz", **arrays)
    with pytest.raises(InputError, match=r"mnist_test\.npz' is not mnist; it must hold x uint8 \[N, 28, 28\] and y"):
        load_inputs("mnist")


def test_local_published_files(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(published))
    check_small(load_inputs("mnist"))
    (published / "mnist").mkdir()
    for name in FILES:
        (published / name).rename(published / "mnist" / name)
    check_small(load_inputs("mnist"))


def test_local_published_files_are_hashed(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(published))
    (published / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(LABELS[::-1])))
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz' has SHA-256 .*, not the pinned"):
        load_inputs("mnist")


@pytest.mark.skipif(not REAL_FOLDER, reason="BNNCERT_DATA is not set to a folder with MNIST")
def test_real_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(REAL_FOLDER))
    test = load_inputs("mnist")
    assert test.image
    assert test.x.shape == (10_000, 28, 28)
    assert test.x.mean() == pytest.approx(0.1325, abs=5e-5)
    assert test.y is not None
    assert test.y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert torch.bincount(test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_the_folder_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"BNNCERT_DATA is '.*nowhere', which is not a folder"):
        load_inputs("mnist")


# Downloads


def test_download_then_cache(server: str, published: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, url=server)
    check_small(load_inputs("mnist"))
    assert {path.name for path in (cache / "bnncert" / "mnist").iterdir()} == set(FILES)
    for name in FILES:
        (published / name).unlink()
    check_small(load_inputs("mnist"))


def test_a_wrong_hash_is_refused(server: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, url=server, files=dict.fromkeys(FILES, "0" * 64))
    with pytest.raises(InputError, match=r"'mnist' could not be downloaded \(SHA256 .*\); set BNNCERT_DATA") as caught:
        load_inputs("mnist")
    assert "\n" not in str(caught.value)
    assert not any(path.is_file() for path in cache.rglob("*"))


@pytest.mark.usefixtures("published", "cache")
def test_without_a_network_the_message_says_what_to_do() -> None:
    with pytest.raises(InputError, match=r"'mnist' could not be downloaded .*; set BNNCERT_DATA to a folder") as caught:
        load_inputs("mnist")
    assert "\n" not in str(caught.value)


def test_the_table_pins_real_hashes() -> None:
    for splits in data.PUBLISHED.values():
        assert set(splits) == set(data.SPLITS)
        for part in splits.values():
            assert part.url.startswith("https://")
            assert part.url.endswith("/")
            assert all(len(bytes.fromhex(sha256)) == 32 for sha256 in part.files.values())
