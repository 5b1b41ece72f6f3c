"""Published data sets: where their files are, the SHA-256 they must have, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bnncert.data.dataset import Array
from bnncert.data.formats import read_cifar10, read_idx


@dataclass(frozen=True)
class Published:
    """One split of a data set as its authors publish it.

    `files` holds the SHA-256 of each file under the base `url`, and `read` reads them. `shape` is
    that of one input in what `read` returns and in an `.npz`; `repacked` are the SHA-256 of local
    files that hold the same contents compressed otherwise.
    """

    url: str
    files: Mapping[str, str]
    shape: tuple[int, ...]
    read: Callable[[Sequence[Path]], tuple[Array, Array]]
    repacked: Mapping[str, str] = field(default_factory=dict)


def _read_idx_pair(paths: Sequence[Path]) -> tuple[Array, Array]:
    images, labels = paths
    return read_idx(images), read_idx(labels)


def _pair(split: str, images: str, labels: str) -> dict[str, str]:
    """The SHA-256 of the images' and of the labels' file, by name."""
    return {
        f"{split}-images-idx3-ubyte.gz": images,
        f"{split}-labels-idx1-ubyte.gz": labels,
    }


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
            _pair(
                "train",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            )
        ),
        "test": _mnist(
            _pair(
                "t10k",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            )
        ),
    },
    "fashion-mnist": {
        "train": _fashion_mnist(
            _pair(
                "train",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            debian=_pair(
                "train",
                "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
                "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
            ),
        ),
        "test": _fashion_mnist(
            _pair(
                "t10k",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
            debian=_pair(
                "t10k",
                "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
                "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
            ),
        ),
    },
    "cifar10": {
        "train": _cifar10(
            "data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"
        ),
        "test": _cifar10("test_batch"),
    },
}

# Another data set of the same shape, whose images a network should be unsure of.
COUNTERPART = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
