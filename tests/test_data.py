"""Data sets and input files: what is read is what was written, and every fault is one line that
says so."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bnncert import data
from bnncert.data import load_inputs, read_cifar10, read_idx
from bnncert.errors import InputError

IMAGES = np.arange(3 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(3, 28, 28)
LABELS = np.array([7, 0, 9], dtype=np.uint8)
REAL_FOLDER = os.environ.get(data.FOLDER)
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


@pytest.fixture(autouse=True)
def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(data.FOLDER, raising=False)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small files in the place of MNIST and CIFAR-10, their hashes pinned; no network
    beyond it."""
    folder = tmp_path / "published"
    folder.mkdir()
    for name, array in FILES.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))
    hashes = {name: sha256(folder / name) for name in FILES}
    pin(monkeypatch, files=hashes, url="http://127.0.0.1:9/")  # the discard port: nobody answers
    hashes = {"cifar-10-binary.tar.gz": sha256(cifar10(folder / "cifar-10-binary.tar.gz"))}
    for split in data.SPLITS:
        pin(monkeypatch, "cifar10", split, files=hashes, url="http://127.0.0.1:9/")
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
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietHandler, directory=str(published))
    ) as http:
        thread = threading.Thread(target=partial(http.serve_forever, poll_interval=0.01))
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the base class)
        pass


def pin(
    monkeypatch: pytest.MonkeyPatch, name: str = "mnist", split: str = "test", **changes: object
) -> None:
    monkeypatch.setitem(
        data.PUBLISHED[name], split, replace(data.PUBLISHED[name][split], **changes)
    )


# Input files


def test_bytes_are_pixels(tmp_path: Path) -> None:
    path = save(
        tmp_path / "a.npz",
        x=np.array([[0, 51], [102, 255]], np.uint8),
        y=np.array([3, 0], np.uint8),
    )
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
    inputs = load_inputs(
        str(save(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.array([0.5, -1.25], np.float32)))
    )
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
    with pytest.raises(
        InputError, match=r"neither a data set \(digits, mnist, fashion-mnist, cifar10\) nor a file"
    ):
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


# CIFAR-10's archive


def test_batches_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    images, labels = read_cifar10(cifar10(tmp_path / "a.tar.gz"), ["data_batch_2", "data_batch_1"])
    order = [2, 3, 0, 1]
    np.testing.assert_array_equal(images, COLOURS[order], strict=True)
    np.testing.assert_array_equal(labels, CLASSES[order], strict=True)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"data_batch_1": b""}, "not the archive of CIFAR-10 .*test_batch.bin"),
        ({"test_batch": None}, "not the archive of CIFAR-10 .*is not a file"),
        ({"test_batch": records(COLOURS, CLASSES)[:-1]}, "holds 36875 bytes, not records of 3073"),
    ],
)
def test_a_bad_archive_is_refused(
    tmp_path: Path, members: dict[str, bytes | None], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_cifar10(archive(tmp_path / "a.tar.gz", members), ["test_batch"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK", "not a gzip file"),
        (gzip.compress(b"no tar" * 999, mtime=0), "not the archive of CIFAR-10"),
    ],
)
def test_no_archive_at_all_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_cifar10(path, ["test_batch"])


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
    assert torch.bincount(torch.cat([train.y, test.y])).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(
        InputError, match=r"^data set 'digits' needs scikit-learn: pip install 'bnncert\[data\]'$"
    ):
        load_inputs("digits")
    with pytest.raises(
        InputError, match=r"^data set 'mnist' needs pooch: pip install 'bnncert\[data\]'"
    ):
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


@pytest.mark.parametrize(
    "arrays", [{"x": IMAGES}, {"x": IMAGES / 255, "y": LABELS}, {"x": IMAGES[:, :8], "y": LABELS}]
)
def test_local_arrays_must_be_the_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, object]
) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    save(tmp_path / "mnist_test.npz", **arrays)
    with pytest.raises(
        InputError, match=r"mnist_test\.npz' is not mnist; it must hold x uint8 \[N, 28, 28\] and y"
    ):
        load_inputs("mnist")


def check_colours(inputs: data.Dataset, part: slice) -> None:
    assert (inputs.name, inputs.image) == ("cifar10", True)
    assert inputs.x.is_contiguous()
    np.testing.assert_array_equal(
        (inputs.x * 255).round().numpy(), COLOURS[part].transpose(0, 3, 1, 2)
    )
    assert inputs.y is not None
    assert inputs.y.tolist() == CLASSES[part].tolist()


def test_colour_images_come_out_channels_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    save(tmp_path / "cifar10_train.npz", x=COLOURS, y=CLASSES)
    check_colours(load_inputs("cifar10", "train"), slice(12))


def test_colour_images_stored_channels_first_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    save(tmp_path / "cifar10_test.npz", x=np.moveaxis(COLOURS, -1, 1), y=CLASSES)
    with pytest.raises(
        InputError,
        match=r"cifar10_test\.npz' is not cifar10; it must hold x uint8 \[N, 32, 32, 3\]",
    ):
        load_inputs("cifar10")


def test_the_local_archive(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(published))
    check_colours(load_inputs("cifar10", "train"), slice(10))
    check_colours(load_inputs("cifar10"), slice(10, 12))


def test_the_local_archive_is_hashed(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(published))
    archive(published / "cifar-10-binary.tar.gz", {"test_batch": records(COLOURS, CLASSES)})
    with pytest.raises(
        InputError, match=r"cifar-10-binary\.tar\.gz' has SHA-256 .*, not the pinned"
    ):
        load_inputs("cifar10")


def test_data_sets_of_the_same_file_names(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own keeps Fashion-MNIST's files apart from MNIST's."""
    monkeypatch.setenv(data.FOLDER, str(published))
    folder = published / "fashion-mnist"
    folder.mkdir()
    for name, array in FILES.items():
        (folder / name).write_bytes(gzip.compress(idx(array[::-1])))
    pin(monkeypatch, "fashion-mnist", files={name: sha256(folder / name) for name in FILES})
    fashion = load_inputs("fashion-mnist")
    assert fashion.name == "fashion-mnist"
    np.testing.assert_array_equal((fashion.x * 255).round().numpy(), IMAGES[::-1])
    check_small(load_inputs("mnist"))


def test_repacked_files_are_pinned_too(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(published))
    repacked = dict.fromkeys(FILES, "0" * 64)
    for name, array in FILES.items():
        (published / name).write_bytes(gzip.compress(idx(array), compresslevel=1, mtime=1))
    pin(monkeypatch, repacked=repacked)
    with pytest.raises(InputError, match="not the pinned"):
        load_inputs("mnist")
    pin(monkeypatch, repacked={name: sha256(published / name) for name in FILES})
    check_small(load_inputs("mnist"))


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
    with pytest.raises(
        InputError, match=r"t10k-labels-idx1-ubyte\.gz' has SHA-256 .*, not the pinned"
    ):
        load_inputs("mnist")


EVEN = [1000] * 10
DIGITS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.parametrize(
    ("name", "shape", "mean", "labels", "counts"),
    [
        ("mnist", (28, 28), [0.13251], [7, 2, 1, 0, 4, 1, 4, 9, 5, 9], DIGITS),
        ("fashion-mnist", (28, 28), [0.28685], [9, 2, 1, 1, 6, 1, 4, 6, 5, 7], EVEN),
        ("cifar10", (3, 32, 32), [0.49421, 0.48513, 0.45041], [3, 8, 8, 0, 6, 6, 1, 6, 3, 1], EVEN),
    ],
)
def test_the_real_data_set(
    name: str,
    shape: tuple[int, ...],
    mean: list[float],
    labels: list[int],
    counts: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(REAL_FOLDER or "nowhere")
    if not (folder / f"{name}_test.npz").is_file() and not (folder / name).is_dir():
        pytest.skip(f"BNNCERT_DATA is not set to a folder with {name}")
    monkeypatch.setenv(data.FOLDER, str(folder))
    test = load_inputs(name)
    assert test.image
    assert test.x.shape == (10_000, *shape)
    assert test.x.reshape(10_000, len(mean), -1).mean((0, 2)).tolist() == pytest.approx(
        mean, abs=1e-5
    )
    assert test.y is not None
    assert test.y[:10].tolist() == labels
    assert torch.bincount(test.y).tolist() == counts


def test_the_folder_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"BNNCERT_DATA is '.*nowhere', which is not a folder"):
        load_inputs("mnist")


# Downloads


def test_download_then_cache(
    server: str, published: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(monkeypatch, url=server)
    check_small(load_inputs("mnist"))
    assert {path.name for path in (cache / "bnncert" / "mnist").iterdir()} == set(FILES)
    for name in FILES:
        (published / name).unlink()
    check_small(load_inputs("mnist"))


def test_the_archive_is_downloaded_once(
    server: str, published: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for split in data.SPLITS:
        pin(monkeypatch, "cifar10", split, url=server)
    check_colours(load_inputs("cifar10"), slice(10, 12))
    assert [path.name for path in (cache / "bnncert" / "cifar10").iterdir()] == [
        "cifar-10-binary.tar.gz"
    ]
    (published / "cifar-10-binary.tar.gz").unlink()
    check_colours(load_inputs("cifar10", "train"), slice(10))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_for_terminals(
    server: str, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    pin(monkeypatch, url=server)
    load_inputs("mnist")
    shown = capsys.readouterr().err
    assert ("t10k-images-idx3-ubyte.gz: 0 of 0 MiB" in shown) == terminal
    assert shown.endswith("\r\033[K") == terminal


def test_a_wrong_hash_is_refused(server: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(monkeypatch, url=server, files=dict.fromkeys(FILES, "0" * 64))
    with pytest.raises(
        InputError, match=r"'mnist' could not be downloaded \(SHA256 .*\); set BNNCERT_DATA"
    ) as caught:
        load_inputs("mnist")
    assert "\n" not in str(caught.value)
    assert not any(path.is_file() for path in cache.rglob("*"))


@pytest.mark.usefixtures("published", "cache")
def test_without_a_network_the_message_says_what_to_do() -> None:
    with pytest.raises(
        InputError, match=r"'mnist' could not be downloaded .*; set BNNCERT_DATA to a folder"
    ) as caught:
        load_inputs("mnist")
    assert "\n" not in str(caught.value)


def test_the_table_pins_real_hashes() -> None:
    for splits in data.PUBLISHED.values():
        assert set(splits) == set(data.SPLITS)
        for part in splits.values():
            assert part.url.startswith("https://")
            assert part.url.endswith("/")
            assert set(part.repacked) <= set(part.files)
            assert all(
                len(bytes.fromhex(pinned)) == 32
                for pinned in [*part.files.values(), *part.repacked.values()]
            )
