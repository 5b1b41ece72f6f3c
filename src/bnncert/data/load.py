"""Inputs by the name of a data set or by the path of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bnncert.data.dataset import Array, Dataset, dataset
from bnncert.data.fetch import downloaded, folder, local_files
from bnncert.data.published import PUBLISHED
from bnncert.errors import InputError
from bnncert.files.npz import read_arrays

SPLITS = ("train", "test")
DIGITS_TRAIN = 1500  # of 1797; the other 297 are the test split


def load_inputs(source: str | Path, split: str = "test") -> Dataset:
    """A data set by name (`split` train or test), or the inputs of an `.npz`.

    A file holds `x` [N, ...] and optionally `y` [N] and `eps` [N]. In it uint8 is taken for pixels
    and divided by 255; floating-point numbers are taken as they are.

    >>> import numpy
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pixels = numpy.full((2, 3), 255, dtype="uint8")
    ...     numpy.savez(f"{folder}/inputs.npz", x=pixels, y=[0, 1])
    ...     load_inputs(f"{folder}/inputs.npz").x
    tensor([[1., 1., 1.],
            [1., 1., 1.]], dtype=torch.float64)
    """
    name = str(source)
    path = Path(source)
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
    x = torch.from_numpy(digits.images[part] / 16)
    y = torch.from_numpy(digits.target[part].astype(np.int64))
    return Dataset("digits", x, y, image=True)


def _published(name: str, split: str) -> Dataset:
    """The data set from the local folder when it is there, and from the network otherwise."""
    published = PUBLISHED[name][split]
    own = folder()
    archive = own / f"{name}_{split}.npz" if own else None
    y: Array | None
    if archive and archive.is_file():
        where = str(archive)
        x, y, _ = _arrays(archive)
    else:
        where = name
        x, y = published.read(local_files(name, published, own) or downloaded(name, published))

    if x.dtype != np.uint8 or x.shape[1:] != published.shape or y is None:
        shape = ", ".join(["N", *map(str, published.shape)])
        raise InputError(f"{where!r} is not {name}; it must hold x uint8 [{shape}] and y [N]")
    return replace(dataset(where, _channels_first(x), y), name=name)


def _channels_first(x: Array) -> Array:
    """Colour images [N, height, width, channels] as [N, channels, height, width]."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 else x


def _from_file(path: Path) -> Dataset:
    return dataset(str(path), *_arrays(path))


def _arrays(path: Path) -> tuple[Array, Array | None, Array | None]:
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise InputError(
            f"{str(path)!r} lacks the array 'x'; "
            "save the inputs with numpy.savez(path, x=..., y=...)"
        )
    # A member of an .npz that is no array comes as bytes.
    return np.asarray(arrays["x"]), arrays.get("y"), arrays.get("eps")
