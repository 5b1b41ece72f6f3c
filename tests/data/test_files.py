"""Input files: what is read is what was written, and every fault is one line that says so."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bnncert.data import load_inputs, read_cifar10, read_idx
from bnncert.errors import InputError
from published_data import CLASSES, COLOURS, IMAGES, LABELS, archive, cifar10, idx, records, save

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
        ({"x": X, "y": np.array([[1, 0], [0, 1]])}, r"y has shape \(2, 2\).*or targets in columns"),
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
    known = "advisory, digits, diabetes, boston, mnist, fashion-mnist, cifar10"
    with pytest.raises(InputError, match=rf"a data set \({known}\) nor a file"):
        load_inputs("mnits")
    with pytest.raises(InputError, match=r"missing\.npz' are neither"):
        load_inputs(tmp_path / "missing.npz")
    with pytest.raises(InputError, match="split 'valid' is not known; choose train or test"):
        load_inputs("digits", "valid")


# Splits


def test_a_file_is_whole_unless_it_is_split(tmp_path: Path) -> None:
    """The last tenth is for the test, with its targets and radii."""
    count = 25
    x = np.arange(2.0 * count).reshape(count, 2)
    path = save(tmp_path / "a.npz", x=x, y=x[:, 0] / 2, eps=x[:, 1])
    whole, train, test = (load_inputs(path, split) for split in (None, "train", "test"))
    assert [len(part.x) for part in (whole, train, test)] == [25, 23, 2]
    for name in ("x", "y", "eps"):
        parts = [getattr(part, name) for part in (train, test)]
        assert torch.equal(torch.cat(parts), getattr(whole, name))


def test_a_small_file_keeps_one_example_for_the_test(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=np.zeros((2, 3)))
    assert [len(load_inputs(path, split).x) for split in ("train", "test")] == [1, 1]
    assert load_inputs(path, "train").y is None
    path = save(tmp_path / "one.npz", x=np.zeros((1, 3)))
    with pytest.raises(InputError, match=r"one\.npz' holds one example"):
        load_inputs(path, "train")


def test_diabetes_is_standardised_on_its_training_split() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bnncert[data]'")
    train, test = (load_inputs("diabetes", split) for split in ("train", "test"))
    assert (train.x.shape, test.x.shape) == ((400, 10), (42, 10))
    assert not train.image
    for values in (train.x, train.y):
        assert values is not None
        assert values.mean(0).abs().max() < 1e-12
        assert (values.std(0, correction=0) - 1).abs().max() < 1e-12


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
