"""Data sets by name, pinned by hash, and inputs from `.npz` files.

A published data set is looked for in the folder that the environment variable BNNCERT_DATA names,
first as `<name>_<split>.npz` (x uint8, y integers), then as the files its authors publish (in a
folder `<name>` there, or there itself), and is downloaded otherwise. Published files are used only
when their SHA-256 is the pinned one.

Colour images are stored channels last, x [N, height, width, channels], and come out channels first,
as convolutions take them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import sys
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.npz import read_arrays

FOLDER = "BNNCERT_DATA"
SPLITS = ("train", "test")
DIGITS_TRAIN = 1500  # of 1797; the other 297 are the test split
CHUNK = 2**16  # bytes of a download between two looks at its progress
Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs x [N, *shape] (float64) with class labels (int64) or regression targets (float64) y
    [N], if known.

    `image` says that the values are pixels scaled into [0, 1], so that perturbed inputs are clipped
    there by default. `eps` are the radii [N] to certify around the inputs, where they come with
    their own.
    """

    name: str
    x: Tensor
    y: Tensor | None
    image: bool
    eps: Tensor | None = None


@dataclass(frozen=True)
class Published:
    """One split of a data set as its authors publish it: files under a base URL by SHA-256, and how
    to read them.

    `shape` is that of one input in what `read` returns and in an `.npz`; `repacked` are the SHA-256
    of local files that hold the same contents compressed otherwise.
    """

    url: str
    files: Mapping[str, str]
    shape: tuple[int, ...]
    read: Callable[[Sequence[Path]], tuple[Array, Array]]
    repacked: Mapping[str, str] = field(default_factory=dict)


def load_inputs(source: str | Path, split: str = "test") -> Dataset:
    """A data set by name (`split` train or test), or `x` [N, ...] and optionally `y` and `eps` [N]
    of an `.npz`.

    In a file uint8 is taken for pixels and divided by 255; floating-point numbers are taken as they
    are.
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
        raise InputError(
            f"inputs {name!r} are neither a data set ({known}) nor a file; check the name or path"
        )
    return _from_file(path)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The bytes in a gzipped idx file.

    Its header is two zero bytes, the type (8: unsigned bytes), the number of dimensions, and each
    size as a big-endian 32-bit integer; the values follow, last dimension fastest.
    """
    content = _gunzip(path)
    if len(content) < 4 or content[:3] != b"\0\0\x08" or len(content) < 4 + 4 * content[3]:
        raise InputError(
            f"{str(path)!r} does not start as an idx file of unsigned bytes; download it again"
        )
    start = 4 + 4 * content[3]
    shape = [int(size) for size in np.frombuffer(content[4:start], dtype=">u4")]
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{str(path)!r} holds {len(content) - start} values for shape {shape}; download "
            "it again"
        )
    return np.frombuffer(content[start:], dtype=np.uint8).reshape(shape)


def read_cifar10(path: Path, batches: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images [N, 32, 32, 3] and labels [N] of some batches in the archive of CIFAR-10's binary
    version.

    A batch is a file of records: a byte for the label, then 3 x 32 x 32 bytes, the red rows first.
    Unlike the Python version, which is pickled, it can be read without running what it says.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(_gunzip(path))) as archive:
            content = b"".join(
                _member(archive, f"cifar-10-batches-bin/{batch}.bin") for batch in batches
            )
    except (tarfile.TarError, KeyError) as error:
        raise InputError(
            f"{str(path)!r} is not the archive of CIFAR-10 ({error}); download it again"
        ) from error
    if len(content) % 3073:
        raise InputError(
            f"{str(path)!r} holds {len(content)} bytes, not records of 3073; download it again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3073)
    return np.moveaxis(records[:, 1:].reshape(-1, 3, 32, 32), 1, -1), records[:, 0]


def _gunzip(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{str(path)!r} is not a gzip file ({error}); download it again"
        ) from error


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is not a file")
    return file.read()


def _read_idx_pair(paths: Sequence[Path]) -> tuple[Array, Array]:
    images, labels = paths
    return read_idx(images), read_idx(labels)


def _mnist(files: Mapping[str, str]) -> Published:
    return Published(
        "https://ossci-datasets.s3.amazonaws.com/mnist/", files, (28, 28), _read_idx_pair
    )


def _fashion_mnist(files: Mapping[str, str], debian: Mapping[str, str]) -> Published:
    """From the authors' repository: the web site they name too answers without TLS alone.

    Debian's package dataset-fashion-mnist installs the files in /usr/share/datasets/fashion-mnist,
    so that BNNCERT_DATA may be /usr/share/datasets; in their gzip headers the name is dropped and
    the time is another.
    """
    url = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
    return Published(url, files, (28, 28), _read_idx_pair, debian)


def _cifar10(*batches: str) -> Published:
    archive = {
        "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
    }
    read = partial(_read_batches, batches=batches)
    return Published("https://www.cs.toronto.edu/~kriz/", archive, (32, 32, 3), read)


def _read_batches(paths: Sequence[Path], batches: Sequence[str]) -> tuple[Array, Array]:
    (archive,) = paths
    return read_cifar10(archive, batches)


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
    },
    "fashion-mnist": {
        "train": _fashion_mnist(
            {
                "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            },
            debian={
                "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
                "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
            },
        ),
        "test": _fashion_mnist(
            {
                "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            },
            debian={
                "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
                "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
            },
        ),
    },
    "cifar10": {
        "train": _cifar10(
            "data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"
        ),
        "test": _cifar10("test_batch"),
    },
}


def _digits(split: str) -> Dataset:
    """The 8 x 8 digits that scikit-learn ships; pixels are 0 to 16."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(
            "data set 'digits' needs scikit-learn: pip install 'bnncert[data]'"
        ) from error
    digits = load_digits()
    part = slice(DIGITS_TRAIN) if split == "train" else slice(DIGITS_TRAIN, None)
    x, y = (
        torch.from_numpy(digits.images[part] / 16),
        torch.from_numpy(digits.target[part].astype(np.int64)),
    )
    return Dataset("digits", x, y, image=True)


def _published(name: str, split: str) -> Dataset:
    """The data set from the local folder when it is there, and from the network otherwise."""
    published, folder = PUBLISHED[name][split], _folder()
    archive = folder / f"{name}_{split}.npz" if folder else None
    if archive and archive.is_file():
        where, (x, y, _) = str(archive), _arrays(archive)
    else:
        files = _local_files(name, published, folder) or _downloaded(name, published)
        where, (x, y) = name, published.read(files)
    if x.dtype != np.uint8 or x.shape[1:] != published.shape or y is None:
        shape = ", ".join(["N", *map(str, published.shape)])
        raise InputError(f"{where!r} is not {name}; it must hold x uint8 [{shape}] and y [N]")
    return replace(_dataset(where, _channels_first(x), y), name=name)


def _channels_first(x: Array) -> Array:
    """Colour images [N, height, width, channels] as [N, channels, height, width]; any others as
    they are."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 else x


def _from_file(path: Path) -> Dataset:
    return _dataset(str(path), *_arrays(path))


def _arrays(path: Path) -> tuple[Array, Array | None, Array | None]:
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise InputError(
            f"{str(path)!r} lacks the array 'x'; save the inputs with numpy.savez(path, "
            "x=..., y=...)"
        )
    # A member of an .npz that is no array comes as bytes.
    return np.asarray(arrays["x"]), arrays.get("y"), arrays.get("eps")


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
                _verify(path, published.files[path.name], published.repacked.get(path.name))
            return paths
    return None


def _verify(path: Path, sha256: str, repacked: str | None) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in (sha256, repacked):
        raise InputError(
            f"{str(path)!r} has SHA-256 {found}, not the pinned {sha256}; download it again "
            "or remove it"
        )


@dataclass
class _Progress:
    """What pooch asks of a progress bar: a line on standard error, where that is a terminal, wiped
    at the end."""

    file: str
    total: int = 0  # bytes, which pooch sets when the server has said
    done: int = 0

    def update(self, count: int) -> None:
        self.done += count
        self._show(
            f"{self.file}: {self.done >> 20} of {self.total >> 20 if self.total else '?'} MiB"
        )

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        self._show("")

    def _show(self, line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _downloaded(name: str, published: Published) -> list[Path]:
    """The published files in the user's cache, fetched when they are not there yet."""
    try:
        import pooch
    except ImportError as error:
        raise InputError(
            f"data set {name!r} needs pooch: pip install 'bnncert[data]', or set {FOLDER} to "
            "a folder that holds "
            "it"
        ) from error
    # A folder for each data set: several publish files of the same names.
    cache = pooch.os_cache("bnncert") / name
    try:
        for file, sha256 in published.files.items():
            download = pooch.HTTPDownloader(progressbar=_Progress(file), chunk_size=CHUNK)
            pooch.retrieve(
                published.url + file, f"sha256:{sha256}", file, cache, downloader=download
            )
        return [cache / file for file in published.files]
    except (OSError, ValueError) as error:  # no network or no cache; a hash that differs
        reason, files = " ".join(str(error).split()), " and ".join(published.files)
        raise InputError(
            f"data set {name!r} could not be downloaded ({reason}); set {FOLDER} to a folder "
            f"that holds {files}"
        ) from error


def _dataset(where: str, x: Array, y: Array | None, eps: Array | None = None) -> Dataset:
    if x.ndim < 2 or x.size == 0:
        raise InputError(f"{where!r}: x has shape {x.shape}; give [N, ...] with at least one input")
    image = x.dtype == np.uint8
    if not image and not np.issubdtype(x.dtype, np.floating):
        raise InputError(f"{where!r}: x is {x.dtype}; give uint8 pixels or floating-point numbers")
    values = np.divide(x, 255 if image else 1, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{where!r}: x holds NaN or infinity; every entry must be finite")
    labels = None if y is None else _labels(where, y, len(x))
    radii = None if eps is None else _radii(where, eps, len(x))
    return Dataset(where, torch.from_numpy(values), labels, image, radii)


def _radii(where: str, eps: Array, count: int) -> Tensor:
    eps = np.asarray(eps)
    if eps.shape != (count,) or not np.issubdtype(eps.dtype, np.floating):
        raise InputError(
            f"{where!r}: eps is {eps.dtype} of shape {eps.shape}; give a floating-point "
            "radius for each "
            "input"
        )
    return torch.from_numpy(eps.astype(np.float64))


def _labels(where: str, y: Array, count: int) -> Tensor:
    y = np.asarray(y)
    if y.shape != (count,):
        raise InputError(
            f"{where!r}: y has shape {y.shape}; give one label for each of the {count} inputs"
        )
    if np.issubdtype(y.dtype, np.floating) and np.isfinite(y).all():
        return torch.from_numpy(y.astype(np.float64))
    if not np.issubdtype(y.dtype, np.integer):
        raise InputError(
            f"{where!r}: y is {y.dtype} or not finite; give integer class labels or finite targets"
        )
    labels = torch.from_numpy(y.astype(np.int64))
    if not bool((labels >= 0).all()):
        raise InputError(
            f"{where!r}: y holds a label outside 0 to 2⁶³ - 1; class labels start at 0"
        )
    return labels
