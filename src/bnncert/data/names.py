"""Names of coordinates, classes and outputs: those of data sets, and those that a file gives.

They are for people: no bound depends on them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from bnncert.errors import InputError


@dataclass(frozen=True)
class Names:
    """Of the coordinates of an input, in order, and of classes or outputs; none where unknown."""

    features: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def fitting(self, inputs: int, outputs: int) -> Names:
        """The names of a network with so many inputs and outputs; none where they are not as
        many."""
        return Names(
            self.features if len(self.features) == inputs else (),
            self.outputs if len(self.outputs) == outputs else (),
        )


def _named(features: str = "", outputs: str = "") -> Names:
    return Names(tuple(features.split()), tuple(filter(None, outputs.split(", "))))


NAMES = {
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


def read_names(path: Path) -> Names:
    """A TOML file with `features` and `outputs` (or classes), both lists of text, or one of them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "names.toml")
    ...     _ = path.write_text('features = ["distance", "angle"]')
    ...     read_names(path).features
    ('distance', 'angle')
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
    return Names(*(tuple(found.get(key, ())) for key in ("features", "outputs")))
