"""Result folders: `results.jsonl`, one line an input, and `certificates/`, one file an input; `decisions.jsonl` in the
place of the former for predictive means.

The run folder of a campaign is one too: its lines name their posteriors, and its certificates lie in bundles.

A certificate is named after its input, `000007.safetensors`. With several radii an input it is named after its radius
too, `000007_0.025.safetensors`: the shortest decimal of a float tells it from all others.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from bnncert.certificate import Answer, Result
from bnncert.decision import Decision
from bnncert.errors import InputError
from bnncert.files import write_atomically
from bnncert.methods.statistical import Estimate

RESULTS, DECISIONS, CERTIFICATES = "results.jsonl", "decisions.jsonl", "certificates"
STATUSES = ("certified", "unverified", "misclassified", "error")


@contextmanager
def result_folder(
    folder: Path, several_radii: bool = False, name: str = RESULTS
) -> Iterator[Callable[[Sequence[Result] | Sequence[Decision]], None]]:
    """Gives a function that stores results, or decisions; the folder changes only when the block ends well.

    Earlier results there are replaced; a folder that holds anything else is refused. several_radii: an input comes
    once for each of several radii, and certificates are named after both.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output {str(folder)!r} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / name).is_file():
        raise InputError(f"output folder {str(folder)!r} is not empty and holds no {name}; name a new folder")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / CERTIFICATES).mkdir(parents=True)
    except OSError as error:
        raise InputError(f"output folder {str(folder)!r} cannot be written ({error.strerror}); name another") from error
    lines: list[str] = []
    stored: set[tuple[int, float]] = set()

    def store(results: Sequence[Result] | Sequence[Decision]) -> None:
        for result in results:
            if (about := (result.index, result.eps)) in stored:
                raise InputError(f"input {result.index} comes twice with radius {result.eps!r}; name each input once")
            stored.add(about)
            stem = f"{result.index:06d}_{result.eps!r}" if several_radii else f"{result.index:06d}"
            path = f"{CERTIFICATES}/{stem}.safetensors" if result.certificate else None
            if result.certificate and path:
                result.certificate.write(partial / path)
            lines.append(result.line(path) + "\n")

    try:
        yield store
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / CERTIFICATES, ignore_errors=True)
        (partial / CERTIFICATES).rename(folder / CERTIFICATES)
        write_atomically(folder / name, "".join(lines).encode())
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class StoredResult(Answer):
    """A line of results.jsonl: an answer that names its certificate by the path inside the folder.

    line: its number in the file. posterior: the digest of the posterior, in folders that speak of several.
    """

    certificate: str | None
    line: int
    posterior: str | None


TYPES: dict[str, tuple[type, ...]] = {
    "index": (int,),
    "label": (int, NoneType),
    "predicted": (int, NoneType),
    "status": (str,),
    "lower": (int, float),
    "upper": (int, float),
    "method": (str,),
    "eps": (int, float),
    "bound_calls": (int,),
    "seconds": (int, float),
    "seed": (int,),
    "certificate": (str, NoneType),
}
OPTIONAL: dict[str, tuple[type, ...]] = {"posterior": (str, NoneType), "target": (int, NoneType)}
ESTIMATE_TYPES: dict[str, tuple[type, ...]] = {
    "samples": (int,),
    "verified": (int,),
    "survived": (int,),
    "confidence": (int, float),
    "low": (int, float),
    "high": (int, float),
}


def read_results(folder: Path) -> list[StoredResult]:
    """Every line of the folder's results, checked; an `InputError` names the first that is not one."""
    path = folder / RESULTS
    if not folder.is_dir():
        raise InputError(f"folder {str(folder)!r} does not exist; name one that `bnncert certify --out` wrote")
    if not path.is_file():
        raise InputError(
            f"folder {str(folder)!r} holds no {RESULTS}; name one that `bnncert certify --out` or `export` wrote"
        )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read ({error}); certify again") from error
    if not lines:
        raise InputError(f"{str(path)!r} is empty; certify again")
    return [_stored(line, number, str(path)) for number, line in enumerate(lines, 1)]


def _stored(line: str, number: int, path: str) -> StoredResult:
    try:
        found = json.loads(line, parse_constant=_refuse)
        fields = _typed(found, TYPES)  # which also says that it is an object
        drawn = Estimate(**_typed(found["estimate"], ESTIMATE_TYPES)) if "estimate" in found else None
        own = _typed({"posterior": None, "target": None} | found, OPTIONAL)
        return _checked(StoredResult(**fields, **own, estimate=drawn, line=number))
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"line {number} of {path!r} is malformed ({error}); certify again") from error


def _typed(fields: object, types: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    """The fields named, each of one of its types; what else there is means nothing to us."""
    if not isinstance(fields, dict):
        raise ValueError("not an object")
    for name, allowed in types.items():
        if name not in fields:
            raise ValueError(f"{name} is missing")
        if type(fields[name]) not in allowed:
            raise ValueError(f"{name} is {fields[name]!r}")
    return {name: fields[name] for name in types}


def _checked(result: StoredResult) -> StoredResult:
    drawn = result.estimate
    if result.status not in STATUSES:
        raise ValueError(f"status is {result.status!r}")
    if not 0 <= result.lower <= result.upper <= 1:
        raise ValueError(f"lower is {result.lower!r} and upper {result.upper!r}")
    if not all(value >= 0 and math.isfinite(value) for value in (result.eps, result.seconds)):
        raise ValueError(f"eps is {result.eps!r} and seconds {result.seconds!r}")
    if drawn and not (0 <= drawn.low <= drawn.high <= 1 and 0 < drawn.confidence < 1):
        raise ValueError(f"estimate is {drawn.low!r} to {drawn.high!r} with confidence {drawn.confidence!r}")
    return result


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
