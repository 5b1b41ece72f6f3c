"""Data sets by name, pinned by hash, and inputs from `.npz` files.

A published data set is looked for in the folder that the environment variable BNNCERT_DATA names, first as
`<name>_<split>.npz` (x uint8, y integers), then as the files its authors publish (in a folder `<name>` there, or there
itself), and is downloaded otherwise. Published files are used only when their SHA-256 is the pinned one.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.npz import read_arrays

FOLDER = "BNNCERT_DATA"
SPLITS = ("train", "test")
DIGITS_TRAIN = 1500  # of 1797; the other 297 are the test split
Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs x [N, *shape] (float64) with class labels (int64) or regression targets (float64) y [N], if known.

    `image` says that the values are pixels scaled into [0, 1], so that perturbed inputs are clipped there by default.
    """

    name: str
    x: Tensor
    y: Tensor | None
    image: bool


@dataclass(frozen=True)
class Published:
    """One split of a data set as its authors publish it: files under a base URL by SHA-256, and how to read them."""

    url: str
    files: Mapping[str, str]
    shape: tuple[int, ...]
    read: Callable[[Sequence[Path]], tuple[Array, Array]]


def load_inputs(source: str | Path, split: str = "test") -> Dataset:
    """A data set by name (`split` train or test), or the arrays `x` [N, ...] and optionally `y` [N] of an `.npz`.

    In a file uint8 is taken for pixels and divided by 255; floating-point numbers are taken as they are.
    """
    name, path = str(source), Path(source)
    if split not in SPLITS:
        raise InputError(f"split {split!r} is not known; choose {' or '.join(SPLITS)}")
    if name == "digits":
        return _digits(split)
    if name in PUBLISHED:
        return _published(name, split)
    if not path.is_file():
        known = ", ".join(["digits", *PUBLISHED])
        raise InputError(f"inputs {name!r} are neither a data set ({known}) nor a file; check the name or path")
    return _from_file(path)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The bytes in a gzipped idx file.

    Its header is two zero bytes, the type (8: unsigned bytes), the number of dimensions, and each size as a big-endian
    32-bit integer; the values follow, last dimension fastest.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{str(path)!r} is not a gzip file ({error}); download it again") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(f"{str(path)!r} does not start as an idx file of unsigned bytes; download it again")
    start = 4 + 4 * content[3]
    shape = [int(size) for size in np.frombuffer(content[4:start], dtype=">u4")]
    if len(content) - start != math.prod(shape):
        raise InputError(f"{str(path)!r} holds {len(content) - start} values for shape {shape}; download it again")
    return np.frombuffer(content[start:], dtype=np.uint8).reshape(shape)


def _read_idx_pair(paths: Sequence[Path]) -> tuple[Array, Array]:
    images, labels = paths
    return read_idx(images), read_idx(labels)


def _mnist(files: Mapping[str, str]) -> Published:
    return Published("https://ossci-datasets.s3.amazonaws.com/mnist/", files, (28, 28), _read_idx_pair)


PUBLISHED: dict[str, dict[str, Published]] = {
    "mnist": {
        "train": _mnist(
            {
                "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            }
        ),
        "test": _mnist(
            {
                "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            }
        ),
    }
}


def _digits(split: str) -> Dataset:
    """The 8 x 8 digits that scikit-learn ships; pixels are 0 to 16."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError("data set 'digits' needs scikit-learn: pip install 'bnncert[data]'") from error
    digits = load_digits()
    part = slice(DIGITS_TRAIN) if split == "train" else slice(DIGITS_TRAIN, None)
    x, y = torch.from_numpy(digits.images[part] / 16), torch.from_numpy(digits.target[part].astype(np.int64))
    return Dataset("digits", x, y, image=True)


def _published(name: str, split: str) -> Dataset:
    """The data set from the local folder when it is there, and from the network otherwise."""
    published, folder = PUBLISHED[name][split], _folder()
    archive = folder / f"{name}_{split}.npz" if folder else None
    if archive and archive.is_file():
        data = _from_file(archive)
    else:
        data = _dataset(name, *published.read(_local_files(name, published, folder) or _downloaded(name, published)))
    if not data.image or data.y is None or data.x.shape[1:] != published.shape:
        shape = ", ".join(["N", *map(str, published.shape)])
        raise InputError(f"{data.name!r} is not {name}; it must hold x uint8 [{shape}] and y [N]")
    return replace(data, name=name)


def _from_file(path: Path) -> Dataset:
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise InputError(f"{str(path)!r} lacks the array 'x'; save the inputs with numpy.savez(path, x=..., y=...)")
    return _dataset(str(path), arrays["x"], arrays.get("y"))


def _folder() -> Path | None:
    """The folder BNNCERT_DATA names, if it is set."""
    value = os.environ.get(FOLDER)
    if value and not Path(value).is_dir():
        raise InputError(f"{FOLDER} is {value!r}, which is not a folder; fix or unset it")
    return Path(value) if value else None


def _local_files(name: str, published: Published, folder: Path | None) -> list[Path] | None:
    """The published files in `<folder>/<name>` or in the folder itself, if they are all there."""
    for place in [folder / name, folder] if folder else []:
        paths = [place / file for file in published.files]
        if all(path.is_file() for path in paths):
            for path in paths:
                _verify(path, published.files[path.name])
            return paths
    return None


def _verify(path: Path, sha256: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise InputError(f"{str(path)!r} has SHA-256 {found}, not the pinned {sha256}; download it again or remove it")


def _downloaded(name: str, published: Published) -> list[Path]:
    """The published files in the user's cache, fetched when they are not there yet."""
    try:
        import pooch
    except ImportError as error:
        raise InputError(
            f"data set {name!r} needs pooch: pip install 'bnncert[data]', or set {FOLDER} to a folder that holds it"
        ) from error
    # A folder for each data set: several publish files of the same names.
    cache = pooch.os_cache("bnncert") / name
    try:
        return [
            Path(pooch.retrieve(published.url + file, f"sha256:{sha256}", file, cache, progressbar=False))
            for file, sha256 in published.files.items()
        ]
    except (OSError, ValueError) as error:  # no network or no cache; a hash that differs
        reason, files = " ".join(str(error).split()), " and ".join(published.files)
        raise InputError(
            f"data set {name!r} could not be downloaded ({reason}); set {FOLDER} to a folder that holds {files}"
        ) from error


def _dataset(where: str, x: Array, y: Array | None) -> Dataset:
    x = np.asarray(x)  # a member of an .npz that is no array comes as bytes
    if x.ndim < 2 or x.size == 0:
        raise InputError(f"{where!r}: x has shape {x.shape}; give [N, ...] with at least one input")
    image = x.dtype == np.uint8
    if not image and not np.issubdtype(x.dtype, np.floating):
        raise InputError(f"{where!r}: x is {x.dtype}; give uint8 pixels or floating-point numbers")
    values = np.divide(x, 255 if image else 1, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{where!r}: x holds NaN or infinity; every entry must be finite")
    return Dataset(where, torch.from_numpy(values), None if y is None else _labels(where, y, len(x)), image)


def _labels(where: str, y: Array, count: int) -> Tensor:
    y = np.asarray(y)
    if y.shape != (count,):
        raise InputError(f"{where!r}: y has shape {y.shape}; give one label for each of the {count} inputs")
    if np.issubdtype(y.dtype, np.floating) and np.isfinite(y).all():
        return torch.from_numpy(y.astype(np.float64))
    if not np.issubdtype(y.dtype, np.integer):
        raise InputError(f"{where!r}: y is {y.dtype} or not finite; give integer class labels or finite targets")
    labels = torch.from_numpy(y.astype(np.int64))
    if not bool((labels >= 0).all()):
        raise InputError(f"{where!r}: y holds a label outside 0 to 2⁶³ - 1; class labels start at 0")
    return labels
