"""The manifest of a result folder: what was asked, of which posterior, about which inputs, by which
methods, on what machine and when.

Facts only, each once: `statement` says them in sentences, and the checker says them in its own and
compares them with the certificates, so that no words in the file can differ from its numbers.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

import torch

from bnncert.errors import InputError
from bnncert.files.tensors import write_atomically
from bnncert.model.network import Network
from bnncert.model.specification import Region, Specification
from bnncert.model.standardisation import Column
from bnncert.posteriors.base import Posterior
from bnncert.results.rows import P_SAFE
from bnncert.version import __version__

MANIFEST, SCHEMA = "manifest.json", "bnncert-manifest/1"
Option: TypeAlias = str | float | int | bool | None


@dataclass(frozen=True)
class Source:
    """A file by its name and the SHA-256 of its bytes, or a data set and that of its numbers."""

    name: str
    sha256: str
    is_file: bool = True


@dataclass(frozen=True)
class Subject:
    """A posterior: its file, if it came from one, its digests as in certificates, and its law."""

    name: str
    source: Source | None
    posterior: str
    architecture: str
    family: str
    weights: int


@dataclass(frozen=True)
class Inputs:
    """Which inputs of a data set or file; count of them are asked about. Of a map the one file of
    its region."""

    source: Source
    select: str
    count: int


@dataclass(frozen=True)
class Around:
    """The region around an input.

    norm: linf, l2 or l1 for a ball, or box. eps: every radius that is asked about; none where they
    are searched for, or for a box, whose ends each certificate has. lower, upper: of one region
    that all boxes are parts of, its ends by coordinate.
    """

    norm: str
    eps: tuple[float, ...] = ()
    clip: tuple[float, float] | None = None
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()


@dataclass(frozen=True)
class ClassKept:
    """The label's output is larger than that of every other class, or of `target` alone."""

    target: int | None


@dataclass(frozen=True)
class OutputWithin:
    """An output stays within `tolerance` of the target, in the network's own numbers; none where
    every input has an interval of its own."""

    output: int
    tolerance: float | None


@dataclass(frozen=True)
class HalfSpace:
    """normal·y > bound."""

    normal: tuple[float, ...]
    bound: float


@dataclass(frozen=True)
class Rows:
    """C y + d > 0 with the rows and offsets of each certificate."""


@dataclass(frozen=True)
class VnnLib:
    """No counterexample of a VNN-LIB file, whose text is kept whole.

    exact: whether upper bounds are of that question too; notes say why not.
    """

    source: Source
    text: str
    exact: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Stated:
    """A condition as text, as maps take it."""

    text: str


Condition: TypeAlias = ClassKept | OutputWithin | HalfSpace | Rows | VnnLib | Stated
KINDS: dict[str, type[Any]] = {
    "class": ClassKept,
    "interval": OutputWithin,
    "half-space": HalfSpace,
    "rows": Rows,
    "vnn-lib": VnnLib,
    "text": Stated,
}


@dataclass(frozen=True)
class Chosen:
    """A method with its options."""

    name: str
    options: Mapping[str, Option]


@dataclass(frozen=True)
class Question:
    """What was asked: of whom, around what, with which condition, and how much is enough.

    quantity: P_safe, or a predictive mean (softmax, mean), which has no threshold. inputs: none
    where the question holds them itself.
    """

    subjects: tuple[Subject, ...]
    region: Around
    condition: Condition
    quantity: str = P_SAFE
    at_least: str | None = None
    inputs: Inputs | None = None


@dataclass(frozen=True)
class Manifest:
    """The question, how it was answered, and where.

    command: of the program; none from Python. features, outputs: coordinates and outputs or
    classes by name, where they are known, with the mean and the standard deviation that they are
    given in. estimate: networks drawn for estimates, which are not certified.
    """

    question: Question
    methods: tuple[Chosen, ...]
    seed: int
    estimate: int
    features: tuple[Column, ...]
    outputs: tuple[Column, ...]
    versions: Mapping[str, str]
    machine: Mapping[str, str]
    date: str
    command: str | None

    def content(self) -> bytes:
        text = json.dumps({"schema": SCHEMA, **_written(self)}, indent=1, allow_nan=False)
        return f"{text}\n".encode()


def written_now(
    question: Question,
    methods: tuple[Chosen, ...],
    *,
    seed: int = 0,
    estimate: int = 0,
    features: tuple[Column, ...] = (),
    outputs: tuple[Column, ...] = (),
    device: str = "cpu",
    command: bool = True,
) -> Manifest:
    """The manifest of what this process answers now.

    command: whether the command line asked.
    """
    packages = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return Manifest(
        question=question,
        methods=methods,
        seed=seed,
        estimate=estimate,
        features=features,
        outputs=outputs,
        versions={"bnncert": __version__, "python": platform.python_version(), **packages},
        machine=_machine(device),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=f"bnncert {shlex.join(sys.argv[1:])}" if command else None,
    )


def _machine(device: str) -> dict[str, str]:
    """What kind of machine this is; nothing says whose."""
    found = {"platform": f"{platform.system()} {platform.machine()}", "cpu": _cpu()}
    return found | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" else {})


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def file_source(path: Path) -> Source:
    """A file under its own name: where it lies is nobody's business."""
    with path.open("rb") as file:
        return Source(path.name, hashlib.file_digest(file, "sha256").hexdigest())


def subject(network: Network, posterior: Posterior, path: Path | None, name: str = "") -> Subject:
    """A posterior, and the file it was read from."""
    return Subject(
        name=name or (path.name if path else posterior.family),
        source=None if path is None else file_source(path),
        posterior=posterior.digest,
        architecture=network.digest,
        family=posterior.family,
        weights=posterior.size,
    )


def around(region: Region) -> Around:
    """The norm, the radii in ascending order and the clip range of a batch of regions."""
    if region.norm == "box":
        return Around("box")
    radii = tuple(sorted({*region.eps.tolist()}))
    return Around(region.norm, radii, region.clip)


def condition_of(spec: Specification) -> Condition:
    """What the rows of a batch ask, where all of them ask the same."""
    if spec.labels is not None:
        targets = {*spec.targets()}
        return ClassKept(targets.pop() if len(targets) == 1 else None)
    rows = spec.rows
    if not bool((rows == rows[:1]).all()):
        return Rows()
    first = rows[0]
    output = int(first[0].argmax())
    if (
        len(first) == 2
        and torch.equal(first[0], -first[1])
        and first[0].tolist().count(0) == (rows.shape[2] - 1)
    ):
        return OutputWithin(output, None)
    if len(first) == 1 and bool((spec.offsets == spec.offsets[:1]).all()):
        return HalfSpace(tuple(first[0].tolist()), -float(spec.offsets[0, 0]))
    return Rows()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """The one writer: every command that leaves results calls it, mostly through
    `result_folder`."""
    write_atomically(folder / MANIFEST, manifest.content())


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a result folder; none in folders that were written before there were any."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.pop("schema", None) != SCHEMA:
            raise ValueError(f"it is not of schema {SCHEMA}")
        manifest: Manifest = _read(Manifest, found)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f"{str(path)!r} is not a manifest ({error}); certify again, or remove it"
        ) from error
    return manifest


def _written(value: Any) -> Any:
    """As JSON; a condition says its kind."""
    if is_dataclass(value):
        kind = [name for name, each in KINDS.items() if type(value) is each]
        own = {"kind": kind[0]} if kind else {}
        return own | {field.name: _written(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_written(entry) for entry in value]
    return dict(value) if isinstance(value, Mapping) else value


def _read(kind: Any, value: Any) -> Any:
    """A value of this type from JSON; a `ValueError` says what is wrong."""
    if get_origin(kind) in (UnionType,) or kind == Condition:
        return _one_of(get_args(kind), value)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{value!r:.60} has not the entries {', '.join(hints)}")
        return kind(**{name: _read(hint, value[name]) for name, hint in hints.items()})  # type: ignore[operator]
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{value!r:.60} is not a list")
        inner = get_args(kind)
        each = inner[:1] * len(value) if inner[-1] is ... else inner
        return tuple(_read(own, entry) for own, entry in zip(each, value, strict=True))
    if get_origin(kind) is Mapping:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.60} is not a table")
        return {name: _read(get_args(kind)[1], entry) for name, entry in value.items()}
    plain = (int, float) if kind is float else (kind,)
    if type(value) not in plain:
        raise ValueError(f"{value!r:.60} is not of type {kind.__name__}")
    return value


def _one_of(kinds: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in kinds:
        return None
    if isinstance(value, dict) and "kind" in value:
        named = KINDS.get(value["kind"])
        if named not in kinds:
            raise ValueError(f"kind {value['kind']!r} is not known")
        return _read(named, {name: own for name, own in value.items() if name != "kind"})
    plain = [kind for kind in kinds if type(value) is kind]
    rest = [kind for kind in kinds if kind is not NoneType]
    return _read(plain[0] if plain else rest[0], value)
