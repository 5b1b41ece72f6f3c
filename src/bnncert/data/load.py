"""Inputs by the name of a data set or by the path of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnncert.data.advisory import ADVISORY, OPERATING, advisory
from bnncert.data.dataset import Array, Dataset, dataset
from bnncert.data.fetch import cached_files, downloaded, folder, local_files
from bnncert.data.published import PUBLISHED, Published
from bnncert.data.regions import OperatingRegion, load_region
from bnncert.data.table import read_table
from bnncert.errors import InputError
from bnncert.files.npz import read_arrays

SPLITS = ("train", "test")
DIGITS_TRAIN = 1500  # of 1797; the other 297 are the test split
DIABETES_TRAIN = 400  # of 442
KEPT = 10  # one of so many examples of a file is its test split: the last ones


def load_inputs(
    source: str | Path,
    split: str | None = None,
    targets: Sequence[str] = (),
    names: Sequence[str] = (),
) -> Dataset:
    """A data set by name, or the inputs of an `.npz` or `.csv`; of all the `split` train or test.

    Without one it is the test split of a data set, and all of a file. Split, the last tenth of a
    file is for the test: shuffle one that is sorted.

    A file holds `x` [N, ...] and optionally `y` [N] and `eps` [N]. In it uint8 is taken for pixels
    and divided by 255; floating-point numbers are taken as they are. A table names its columns in
    the first line: the last of them is y, or else the `targets`, and whole numbers are classes. The
    others are x, or else those that `names` names.

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
    if split not in (None, *SPLITS):
        raise InputError(f"split {split!r} is not known; choose {' or '.join(SPLITS)}")
    if name in SHIPPED:
        return SHIPPED[name](split or "test")
    if name in PUBLISHED:
        return _published(name, split or "test", downloaded)
    if not path.is_file():
        known = ", ".join([*SHIPPED, *PUBLISHED])
        raise InputError(
            f"inputs {name!r} are neither a data set ({known}) nor a file; check the name or path"
        )
    if path.suffix == ".csv":
        data = _table(path, targets, names)
    else:
        data = dataset(str(path), *_arrays(path))
    return data if split is None else _part(data, split)


def _table(path: Path, targets: Sequence[str], names: Sequence[str]) -> Dataset:
    table = read_table(path)
    asked = tuple(targets) or (list(table.values)[-1],)
    known = tuple(names) or tuple(name for name in table.values if name not in asked)
    if not known:
        raise InputError(f"{str(path)!r} has targets alone; give it columns of inputs too")
    # Inputs that a posterior knows by name may come without targets, or without the names of these.
    there = not names or (all(name in table.values for name in asked) and not {*asked} & {*known})
    found = dataset(str(path), table.columns(known), table.targets(asked) if there else None)
    return replace(found, names=known, targets=asked if there else ())


def load_operating_region(source: str) -> OperatingRegion:
    """That of a data set by name, or the one in a file.

    >>> [side.name for side in load_operating_region("advisory").dimensions]
    ['relative altitude', 'relative climb rate', 'time to closest approach']
    """
    return REGIONS[source] if source in REGIONS else load_region(source)


def named(source: str) -> bool:
    """Whether it is the name of a data set, which has a test split of its own."""
    return source in SHIPPED or source in PUBLISHED


def at_hand(name: str, split: str = "test") -> Dataset | None:
    """A published data set if this machine has it: nothing is downloaded."""
    try:
        return _published(name, split, cached_files)
    except InputError:
        return None


def _part(data: Dataset, split: str) -> Dataset:
    """The last tenth, at least one example, or what comes before it."""
    first = len(data.x) - max(1, len(data.x) // KEPT)
    if first == 0:
        raise InputError(f"{data.name!r} holds one example; training takes another to be tested on")
    part = slice(first) if split == "train" else slice(first, None)
    y, eps = (None if each is None else each[part] for each in (data.y, data.eps))
    return replace(data, x=data.x[part], y=y, eps=eps)


def _from_sklearn(name: str) -> Any:
    try:
        import sklearn.datasets as shipped
    except ImportError as error:
        raise InputError(
            f"data set {name!r} needs scikit-learn: pip install 'bnncert[data]'"
        ) from error
    return getattr(shipped, f"load_{name}")()


def _digits(split: str) -> Dataset:
    """The 8 x 8 digits that scikit-learn ships; pixels are 0 to 16."""
    digits = _from_sklearn("digits")
    part = slice(DIGITS_TRAIN) if split == "train" else slice(DIGITS_TRAIN, None)
    x = torch.from_numpy(digits.images[part] / 16)
    y = torch.from_numpy(digits.target[part].astype(np.int64))
    return Dataset("digits", x, y, image=True)


def _diabetes(split: str) -> Dataset:
    """The regression that scikit-learn ships: how a disease progresses, from ten measurements.

    Each of them and the target has mean 0 and standard deviation 1 over the training split.
    """
    columns = _from_sklearn("diabetes")
    x, y = (_standardised(values, DIABETES_TRAIN) for values in (columns.data, columns.target))
    part = slice(DIABETES_TRAIN) if split == "train" else slice(DIABETES_TRAIN, None)
    return Dataset("diabetes", x[part], y[part], image=False, standardised=True)


def _standardised(values: Array, count: int) -> Tensor:
    """As the first `count` of them say."""
    known = values[:count]
    return torch.from_numpy((values - known.mean(0)) / known.std(0))


def _boston(split: str) -> Dataset:
    """Boston housing of the UCI repository, which no longer publishes it: the price of a home from
    thirteen measurements, by the first of the usual twenty splits.

    Each of them and the target has mean 0 and standard deviation 1 over the training split.
    """
    own = folder()
    path = None if own is None else own / "uci_boston.npz"
    if path is None or not path.is_file():
        raise InputError(
            "data set 'boston' is taken from BNNCERT_DATA alone; put uci_boston.npz there, "
            "with x [506, 13], y [506] and the rows train_0 and test_0"
        )
    arrays = read_arrays(path)
    missing = [name for name in ("x", "y", "train_0", "test_0") if name not in arrays]
    if missing:
        raise InputError(f"{str(path)!r} lacks the array {missing[0]!r}; get it again")
    train, test = arrays["train_0"], arrays["test_0"]
    order = np.concatenate([train, test])
    x, y = (_standardised(arrays[name][order], len(train)) for name in ("x", "y"))
    part = slice(len(train)) if split == "train" else slice(len(train), None)
    return Dataset("boston", x[part], y[part], image=False, standardised=True)


# What is generated, what comes with scikit-learn, and what is looked for on the machine alone.
SHIPPED: dict[str, Callable[[str], Dataset]] = {
    ADVISORY: advisory,
    "digits": _digits,
    "diabetes": _diabetes,
    "boston": _boston,
}
REGIONS = {ADVISORY: OPERATING}


def _published(name: str, split: str, otherwise: Callable[[str, Published], list[Path]]) -> Dataset:
    """The data set from the local folder when it is there, and from elsewhere otherwise."""
    published = PUBLISHED[name][split]
    own = folder()
    archive = own / f"{name}_{split}.npz" if own else None
    y: Array | None
    if archive and archive.is_file():
        where = str(archive)
        x, y, _ = _arrays(archive)
    else:
        where = name
        x, y = published.read(local_files(name, published, own) or otherwise(name, published))

    if x.dtype != np.uint8 or x.shape[1:] != published.shape or y is None:
        shape = ", ".join(["N", *map(str, published.shape)])
        raise InputError(f"{where!r} is not {name}; it must hold x uint8 [{shape}] and y [N]")
    return replace(dataset(where, _channels_first(x), y), name=name)


def _channels_first(x: Array) -> Array:
    """Colour images [N, height, width, channels] as [N, channels, height, width]."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 else x


def _arrays(path: Path) -> tuple[Array, Array | None, Array | None]:
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise InputError(
            f"{str(path)!r} lacks the array 'x'; "
            "save the inputs with numpy.savez(path, x=..., y=...)"
        )
    # A member of an .npz that is no array comes as bytes.
    return np.asarray(arrays["x"]), arrays.get("y"), arrays.get("eps")
