"""Data sets by name, pinned by hash, and inputs from `.npz` files.

A published data set is looked for in the folder that the environment variable BNNCERT_DATA names,
first as `<name>_<split>.npz` (x uint8, y integers), then as the files its authors publish (in a
folder `<name>` there, or there itself), and is downloaded otherwise. Published files are used only
when their SHA-256 is the pinned one.

Colour images are stored channels last, x [N, height, width, channels], and come out channels first,
as convolutions take them.
"""

from bnncert.data.dataset import Dataset
from bnncert.data.fetch import FOLDER
from bnncert.data.formats import read_cifar10, read_idx
from bnncert.data.load import SPLITS, at_hand, load_inputs, load_operating_region, named
from bnncert.data.measured import inputs_for, seen_by, standardisation_of
from bnncert.data.published import COUNTERPART, PUBLISHED, Published

__all__ = [
    "COUNTERPART",
    "FOLDER",
    "PUBLISHED",
    "SPLITS",
    "Dataset",
    "Published",
    "at_hand",
    "inputs_for",
    "load_inputs",
    "load_operating_region",
    "named",
    "read_cifar10",
    "read_idx",
    "seen_by",
    "standardisation_of",
]
