"""What instances of the truth set have in common."""

from __future__ import annotations

from collections.abc import Callable

from bnncert.bench.models import Model, dense, normal
from bnncert.bench.recipes import Recipe, point
from bnncert.model.specification import Specification
from bnncert.results.rows import P_SAFE

TRACK = "truth"
ONE = point(1.0)


def weight(mean: float = 0.0, std: float = 1.0) -> Model:
    """y = w x."""
    return normal((1,), dense([[mean]], std))


def known(
    name: str,
    about: str,
    model: Callable[[], Model],
    question: Callable[[], Specification],
    threshold: str,
    catches: str,
    quantity: str = P_SAFE,
) -> Recipe:
    name = f"{TRACK}-{name}"
    return Recipe(
        name, TRACK, about, name, model, question, threshold, quantity=quantity, catches=catches
    )
