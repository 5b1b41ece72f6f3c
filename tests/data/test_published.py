"""Published data sets: in a local folder, and downloaded."""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import data
from bnncert.data import load_inputs
from bnncert.errors import InputError
from published_data import (
    CLASSES,
    COLOURS,
    FILES,
    IMAGES,
    LABELS,
    archive,
    check_colours,
    check_small,
    idx,
    pin,
    records,
    save,
    sha256,
)

REAL_FOLDER = os.environ.get(data.FOLDER)


def test_local_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.FOLDER, str(tmp_path))
    save(tmp_path / "mnist_test.npz", x=IMAGES, y=LABELS)
    check_small(load_inputs("mnist"))


def test_what_is_at_hand_is_never_downloaded(
    tmp_path: Path, published: Path, cache: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder or from the cache; a file that is another does not count."""
    pin(monkeypatch, url=server)
    assert data.at_hand("mnist") is None
    assert not cache.exists()
    load_inputs("mnist")
    found = data.at_hand("mnist")
    assert found is not None
    check_small(found)
    monkeypatch.setenv(data.FOLDER, str(published))
    assert data.at_hand("mnist") is not None
    (tmp_path / "other").mkdir()
    monkeypatch.setenv(data.FOLDER, str(tmp_path / "other"))
    save(tmp_path / "other" / "mnist_test.npz", x=IMAGES)
    assert data.at_hand("mnist") is None


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
