"""Records: what options asked, as the facts of a manifest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass, replace
from decimal import Decimal
from pathlib import Path

from bnncert.data import Dataset, named
from bnncert.data.names import Names, names_of, read_names
from bnncert.errors import InputError
from bnncert.importers import Query
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.model.standardisation import Column, Standardisation
from bnncert.question import Question
from bnncert.results import manifest
from bnncert.results.manifest import (
    Around,
    ClassKept,
    Inputs,
    OutputWithin,
    Source,
    Stated,
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
    region = Around(question.norm, tuple(sorted({*radii})), question.clip_of(data.image))
    if question.eps_file is not None:  # every certificate has the ends of its box
        region = Around("box")
    return manifest.Question(
        subjects=tuple(subjects),
        region=region,
        condition=condition_asked(question),
        quantity=quantity,
        at_least=None if at_least is None else str(at_least),
        inputs=_inputs(question, data, len({*indices})),
    )


def _inputs(question: Question, data: Dataset, count: int) -> Inputs:
    """The data, by the bytes of its file or the numbers of a data set, and how many of it."""
    if not named(question.inputs):
        return Inputs(manifest.file_source(Path(question.inputs)), question.select, count)
    return Inputs(Source(question.inputs, data.digest, is_file=False), question.select, count)


def about_region(
    condition: str,
    lower: Sequence[float],
    upper: Sequence[float],
    subjects: Sequence[Subject],
    at_least: Decimal,
    source: Path | None = None,
) -> manifest.Question:
    """The question about every part of a region: a condition as text, or a VNN-LIB file.

    source: the file that the region was read from.
    """
    asked: manifest.Condition = Stated(condition)
    if condition.endswith(".vnnlib"):
        path = Path(condition)
        text = path.read_bytes().decode("ascii")
        asked = VnnLib(manifest.file_source(path), text, True, ())
    return manifest.Question(
        subjects=tuple(subjects),
        region=Around("box", lower=tuple(lower), upper=tuple(upper)),
        condition=asked,
        at_least=str(at_least),
        inputs=None if source is None else Inputs(manifest.file_source(source), ":", 1),
    )


def condition_asked(question: Question) -> ClassKept | OutputWithin:
    if question.tolerance is None:
        return ClassKept(question.target)
    return OutputWithin(question.output or 0, float(question.tolerance))


def about_property(
    path: Path, query: Query, subjects: Sequence[Subject], *, at_least: Decimal
) -> manifest.Question:
    """The question of a VNN-LIB file, with its text."""
    text = path.read_bytes().decode("ascii")
    asked = VnnLib(manifest.file_source(path), text, query.exact, query.notes)
    return manifest.Question(tuple(subjects), Around("box"), asked, at_least=str(at_least))


def names_for(path: Path | None, network: Network, data: Dataset | None = None) -> Names:
    """From a file, which must fit the network, else as the posterior or the data set knows them.

    What they were measured as, where the posterior knows it, stays.
    """
    inputs, outputs = math.prod(network.input_shape), network.outputs
    own = network.standardisation or Standardisation()
    given = Names() if path is None else read_names(path)
    known = Names() if data is None else names_of(data)
    return Names(
        _called("features", path, given.features, own.inputs, known.features, inputs),
        _called("outputs", path, given.outputs, own.outputs, known.outputs, outputs),
    )


def _called(
    kind: str,
    path: Path | None,
    given: tuple[Column, ...],
    own: tuple[Column, ...],
    known: tuple[Column, ...],
    count: int,
) -> tuple[Column, ...]:
    if given and len(given) != count:
        raise InputError(
            f"names {str(path)!r} has {len(given)} {kind}, the network {count}; name each"
        )
    if given and own:
        return tuple(
            replace(column, name=each.name) for column, each in zip(own, given, strict=True)
        )
    return given or own or (known if len(known) == count else ())


def methods_asked(methods: Sequence[Method]) -> tuple[manifest.Chosen, ...]:
    return tuple(
        manifest.Chosen(method.name, asdict(method) if is_dataclass(method) else {})
        for method in methods
    )
