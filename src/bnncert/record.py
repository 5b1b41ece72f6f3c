"""Records: what options asked, as the facts of a manifest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from decimal import Decimal
from pathlib import Path

from bnncert.data import Dataset, named
from bnncert.data.names import NAMES, Names, read_names
from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.importers import Query
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.question import Question
from bnncert.results import manifest
from bnncert.results.manifest import (
    Around,
    ClassKept,
    Inputs,
    OutputWithin,
    Source,
    Subject,
    VnnLib,
)
from bnncert.results.rows import P_SAFE


def about_data(
    question: Question,
    data: Dataset,
    indices: Sequence[int],
    subjects: Sequence[Subject],
    *,
    quantity: str = P_SAFE,
    at_least: Decimal | None = None,
    searched: bool = False,
) -> manifest.Question:
    """The question about the inputs of a data set called `indices`.

    searched: radii are looked for, and not asked about.
    """
    radii = question.eps
    if not radii and data.eps is not None and not searched:
        radii = tuple(data.eps[list(indices)].tolist())
    return manifest.Question(
        subjects=tuple(subjects),
        region=Around(question.norm, tuple(sorted({*radii})), question.clip_of(data.image)),
        condition=condition_asked(question),
        quantity=quantity,
        at_least=None if at_least is None else str(at_least),
        inputs=_inputs(question, data, len({*indices})),
    )


def _inputs(question: Question, data: Dataset, count: int) -> Inputs:
    """The data, by the bytes of its file or the numbers of a data set, and how many of it."""
    if not named(question.inputs):
        return Inputs(manifest.file_source(Path(question.inputs)), question.select, count)
    numbers = digest("data", [data.x] if data.y is None else [data.x, data.y])
    return Inputs(Source(question.inputs, numbers, is_file=False), question.select, count)


def condition_asked(question: Question) -> ClassKept | OutputWithin:
    if question.tolerance is None:
        return ClassKept(question.target)
    return OutputWithin(0, float(question.tolerance))


def about_property(
    path: Path, query: Query, subjects: Sequence[Subject], *, at_least: Decimal
) -> manifest.Question:
    """The question of a VNN-LIB file, with its text."""
    text = path.read_bytes().decode("ascii")
    asked = VnnLib(manifest.file_source(path), text, query.exact, query.notes)
    return manifest.Question(tuple(subjects), Around("box"), asked, at_least=str(at_least))


def names_for(path: Path | None, network: Network, data: str = "") -> Names:
    """From a file, which must fit the network, or of a data set, where they fit."""
    inputs, outputs = math.prod(network.input_shape), network.outputs
    if path is None:
        return NAMES.get(data, Names()).fitting(inputs, outputs)
    found = read_names(path)
    for kind, count, names in (
        ("features", inputs, found.features),
        ("outputs", outputs, found.outputs),
    ):
        if names and len(names) != count:
            raise InputError(
                f"names {str(path)!r} has {len(names)} {kind}, the network {count}; name each"
            )
    return found


def methods_asked(methods: Sequence[Method]) -> tuple[manifest.Chosen, ...]:
    return tuple(
        manifest.Chosen(method.name, asdict(method) if is_dataclass(method) else {})
        for method in methods
    )
