"""Result folders: `results.jsonl`, one line per input, and `certificates/`, one file per input.

For predictive means `decisions.jsonl` stands in the place of the former. The run folder of a
campaign is one too: its lines name their posteriors, and its certificates lie in bundles.

A certificate is named after its input, `000007.safetensors`. With several radii per input it is
named after its radius too, `000007_0.025.safetensors`: the shortest decimal of a float tells it
from all others.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from bnncert.errors import InputError
from bnncert.estimate import Estimate
from bnncert.evidence.predictive import MEAN, SOFTMAX
from bnncert.files.tensors import write_atomically
from bnncert.results.answers import AT_LEAST, status
from bnncert.results.manifest import MANIFEST, Manifest, write_manifest
from bnncert.results.rows import (
    P_SAFE,
    REGRESSION,
    Answer,
    Decision,
    Result,
    Status,
    columns,
    facts,
)

RESULTS, DECISIONS, CERTIFICATES = "results.jsonl", "decisions.jsonl", "certificates"
RADII = "radii.jsonl"  # beside results: which of them are the ends of an input's radius
STATUSES = (
    Status.CERTIFIED,
    Status.FALSIFIED,
    Status.UNDECIDED,
    Status.MISCLASSIFIED,
    Status.ERROR,
)
OLD_STATUSES = ("certified", "unverified", "misclassified")  # a lower bound above 0, or none
# What lines of some folders lack; old statuses spoke of no threshold.
OPTIONAL = {
    **dict.fromkeys(("target", "posterior", "gap", *REGRESSION)),
    "at_least": str(AT_LEAST),
    "quantity": P_SAFE,
}
OF_DECISIONS = {"method": "predictive", "bound_calls": 0, "seed": 0}  # which their lines lack


@contextmanager
def result_folder(
    folder: Path,
    several_radii: bool = False,
    name: str = RESULTS,
    manifest: Manifest | None = None,
) -> Iterator[Callable[[Sequence[Result] | Sequence[Decision]], None]]:
    """Gives a function that stores results, or decisions.

    The folder changes only when the block ends well. Earlier results there are replaced; a folder
    that holds anything else is refused. several_radii: an input comes once for each of several
    radii, and certificates are named after both. manifest: what they are about.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output {str(folder)!r} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / name).is_file():
        raise InputError(
            f"output folder {str(folder)!r} is not empty and holds no {name}; name a new folder"
        )
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / CERTIFICATES).mkdir(parents=True)
    except OSError as error:
        raise InputError(
            f"output folder {str(folder)!r} cannot be written ({error.strerror}); name another"
        ) from error
    lines: list[str] = []
    stored: set[tuple[int, float]] = set()

    def store(results: Sequence[Result] | Sequence[Decision]) -> None:
        for result in results:
            if (about := (result.index, result.eps)) in stored:
                raise InputError(
                    f"input {result.index} comes twice with radius {result.eps!r}; "
                    "name each input once"
                )
            stored.add(about)
            if not math.isfinite(result.upper - result.lower):
                raise InputError(
                    f"nothing is known of the mean of input {result.index}, whose bounds overflow; "
                    "leave it out"
                )
            stem = f"{result.index:06d}_{result.eps!r}" if several_radii else f"{result.index:06d}"
            path = f"{CERTIFICATES}/{stem}.safetensors" if result.certificate else None
            if result.certificate and path:
                result.certificate.write(partial / path)
            lines.append(line(result, path))

    try:
        yield store
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / CERTIFICATES, ignore_errors=True)
        (partial / CERTIFICATES).rename(folder / CERTIFICATES)
        (folder / RADII).unlink(missing_ok=True)  # it would speak of rows that are gone
        (folder / MANIFEST).unlink(missing_ok=True)
        if manifest is not None:
            write_manifest(folder, manifest)
        write_atomically(folder / name, "".join(lines).encode())
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def line(row: Answer | Decision, certificate: str | None) -> str:
    """A row as one line of JSON, the certificate by its path."""
    return json.dumps(facts(row) | {"certificate": certificate}, allow_nan=False) + "\n"


@dataclass(frozen=True, eq=False)
class StoredResult(Answer):
    """A line of results.jsonl: an answer that names its certificate by the path inside the folder.

    line: its number in the file. posterior: the digest of the posterior, in folders that speak of
    several. output, low and high: as in a `Result`. quantity and gap: as in a `Decision`, of a line
    of decisions.jsonl, which has no threshold.
    """

    certificate: str | None
    posterior: str | None
    estimate: Estimate | None
    line: int
    output: float | None = None
    low: float | None = None
    high: float | None = None
    quantity: str = P_SAFE
    gap: float | None = None

    @property
    def file(self) -> str:
        """The name of the file whose line it is."""
        return RESULTS if self.quantity == P_SAFE else DECISIONS


def read_results(folder: Path) -> list[StoredResult]:
    """Every line of the folder's results, or of its decisions where it has those alone, checked.

    An `InputError` names the first that is not one.
    """
    path = folder / RESULTS
    if (folder / DECISIONS).is_file() and not path.is_file():
        path = folder / DECISIONS
    if not folder.is_dir():
        raise InputError(
            f"folder {str(folder)!r} does not exist; name one that `bnncert certify --out` wrote"
        )
    if not path.is_file():
        raise InputError(
            f"folder {str(folder)!r} holds no {RESULTS}; "
            "name one that `bnncert certify --out` or `export` wrote"
        )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be read ({error}); certify again") from error
    if not lines:
        raise InputError(f"{str(path)!r} is empty; certify again")
    return [_stored(text, number, str(path)) for number, text in enumerate(lines, 1)]


def _stored(text: str, number: int, path: str) -> StoredResult:
    try:
        found = json.loads(text, parse_constant=_refuse)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        decision = Path(path).name == DECISIONS
        given = OPTIONAL | (OF_DECISIONS if decision else {}) | found | {"line": number}
        drawn = _estimate(found["estimate"]) if "estimate" in found else None
        values = {name: column.read(given) for name, column in columns(StoredResult).items()}
        _require_bounds(values)
        if decision:
            values["status"] = _decided(values)
            return StoredResult(**values, estimate=None)
        if values["quantity"] != P_SAFE:
            raise ValueError(f"quantity is {values['quantity']!r}")
        # Lines of old folders have words of their own; an `answer` stood beside those of campaigns.
        old = "at_least" not in found or "answer" in found
        values["status"] = _status(values, old)
        return StoredResult(**values, estimate=drawn)
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(
            f"line {number} of {path!r} is malformed ({error}); certify again"
        ) from error


def _decided(values: Mapping[str, Any]) -> Status:
    if values["quantity"] not in (SOFTMAX, MEAN):
        raise ValueError(f"quantity is {values['quantity']!r}")
    if values["status"] not in (Status.DECIDED, Status.UNDECIDED):
        raise ValueError(f"status is {values['status']!r}")
    return Status(values["status"])


def _status(values: Mapping[str, Any], old: bool) -> Status:
    """The status that follows from the numbers, which a line must say, unless it is an old one."""
    said = values["status"]
    if said == Status.ERROR:
        return Status.ERROR
    bounds = values["lower"], values["upper"]
    follows = status(values["label"], values["predicted"], *bounds, values["at_least"])
    if said != follows and not (old and said in OLD_STATUSES):
        raise ValueError(f"status is {said!r}, from the numbers follows {str(follows)!r}")
    return follows


def _estimate(found: object) -> Estimate:
    if not isinstance(found, dict):
        raise ValueError("the estimate is not an object")
    drawn = Estimate(**{name: column.read(found) for name, column in columns(Estimate).items()})
    if not (0 <= drawn.low <= drawn.high <= 1 and 0 < drawn.confidence < 1):
        raise ValueError(
            f"estimate is {drawn.low!r} to {drawn.high!r} with confidence {drawn.confidence!r}"
        )
    return drawn


def _require_bounds(values: Mapping[str, Any]) -> None:
    lower, upper, eps, seconds = (values[name] for name in ("lower", "upper", "eps", "seconds"))
    within = values["quantity"] == MEAN or (lower >= 0 and upper <= 1)
    if not (within and lower <= upper and math.isfinite(upper - lower)):
        raise ValueError(f"lower is {lower!r} and upper {upper!r}")
    if not all(value >= 0 and math.isfinite(value) for value in (eps, seconds)):
        raise ValueError(f"eps is {eps!r} and seconds {seconds!r}")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")
