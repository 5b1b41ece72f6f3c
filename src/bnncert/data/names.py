"""Names of coordinates, classes and outputs: those of data sets, and those that a file gives.

They are for people: no bound depends on them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from bnncert.data.advisory import ADVISORIES, ADVISORY, OPERATING
from bnncert.data.dataset import Dataset
from bnncert.errors import InputError
from bnncert.model.standardisation import Column


@dataclass(frozen=True)
class Names:
    """Of the coordinates of an input, in order, and of classes or outputs; none where unknown."""

    features: tuple[Column, ...] = ()
    outputs: tuple[Column, ...] = ()


def _named(features: str = "", outputs: str = "") -> Names:
    return Names(
        tuple(map(Column, features.split())), tuple(map(Column, filter(None, outputs.split(", "))))
    )


NAMES = {
    ADVISORY: Names(
        tuple(
            Column(f"{side.name} [{side.unit}]", float(side.center), float(side.scale))
            for side in OPERATING.dimensions
        ),
        tuple(map(Column, ADVISORIES)),
    ),
    "fashion-mnist": _named(
        outputs="T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, "
        "ankle boot"
    ),
    "cifar10": _named(
        outputs="airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
    ),
    "diabetes": _named("age sex bmi bp s1 s2 s3 s4 s5 s6", "disease progression"),
    "boston": _named(
        "CRIM ZN INDUS CHAS NOX RM AGE DIS RAD TAX PTRATIO B LSTAT", "median value of homes"
    ),
}


def names_of(data: Dataset) -> Names:
    """Of a table its own, else those of a data set that is known."""
    if data.names:
        return Names(tuple(map(Column, data.names)), tuple(map(Column, data.targets)))
    return NAMES.get(data.name, Names())


def read_names(path: Path) -> Names:
    """A TOML file with `features` and `outputs` (or classes), both lists of text, or one of them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "names.toml")
    ...     _ = path.write_text('features = ["distance", "angle"]')
    ...     read_names(path).features
    (Column(name='distance', mean=0.0, std=1.0), Column(name='angle', mean=0.0, std=1.0))
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"names {str(path)!r} cannot be read as TOML ({error}); "
            'give features = ["...", ...] and outputs = ["...", ...]'
        ) from error
    for key, value in found.items():
        if key not in ("features", "outputs"):
            raise InputError(
                f"names {str(path)!r}: key {key!r} is not known; give features, outputs"
            )
        if not (isinstance(value, list) and all(isinstance(name, str) and name for name in value)):
            raise InputError(
                f"names {str(path)!r}: {key!r} is not a list of texts; correct it there"
            )
    return Names(*(tuple(map(Column, found.get(key, ()))) for key in ("features", "outputs")))
