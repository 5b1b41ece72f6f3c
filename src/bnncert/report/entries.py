"""Entries of a report: a result, what its certificate shows, and what the checker said of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from bnncert.errors import InputError
from bnncert.evidence import boxes
from bnncert.evidence.certificate import (
    ARCHITECTURE,
    POSTERIOR,
    PROBLEM,
    SPECIFICATION,
    Certificate,
    read_certificate,
)
from bnncert.evidence.predictive import MEAN, SOFTMAX
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball
from bnncert.model.standardisation import Column
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.independent import Independent
from bnncert.report.coordinates import Table, around, coordinates, ends, half_widths, outputs_there
from bnncert.report.cross_section import CrossSection, cross_section
from bnncert.report.evidence import in_words
from bnncert.report.inputs import AskedInputs
from bnncert.report.pictures import Pixels, as_image, difference, to_pixels, value_range
from bnncert.report.statement import name_of, plain
from bnncert.results.folder import RADII, StoredResult
from bnncert.results.rows import P_SAFE

HALF_WIDTHS = "half-widths of the box"
BOUNDED = {  # what lines of decisions bound
    SOFTMAX: "the mean softmax probability of the label",
    MEAN: "the mean of the output, in the network’s own numbers",
}
CHECK = "check.json"  # in a result folder: what the checker printed
ACCEPT = "ACCEPT"
VERDICTS = {ACCEPT: "accepted", "REJECT": "rejected", "ERROR": "not checkable"}
DIGESTS = (POSTERIOR, ARCHITECTURE, SPECIFICATION, PROBLEM)
UNREADABLE = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    OverflowError,
    RuntimeError,
)
Model: TypeAlias = tuple[Network, Posterior]


@dataclass(frozen=True)
class CheckerVerdict:
    """What the independent checker said of one result."""

    status: str
    code: str | None
    message: str
    supported: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Picture:
    """The clean input, and the counterexample where there is one: itself and its scaled change."""

    clean: Pixels
    point: Pixels | None = None
    change: Pixels | None = None
    largest: float = 0.0


@dataclass(frozen=True, eq=False)
class Entry:
    """Everything the page says of one input.

    facts: what a person may look up, by name. words: the evidence. Where nothing is claimed there
    is no certificate, and so no evidence, picture or cross-section.
    """

    result: StoredResult
    verdict: CheckerVerdict | None
    facts: Mapping[str, str]
    words: Sequence[str] = ()
    picture: Picture | None = None
    section: CrossSection | None = None
    tables: Sequence[Table] = ()


@dataclass(frozen=True, eq=False)
class Called:
    """What coordinates, and outputs or classes, are called and were measured as; and whether
    regions are boxes, whose sides need not be equal."""

    features: Sequence[Column] = ()
    outputs: Sequence[Column] = ()
    boxed: bool = False
    bounded: Column | None = None  # what bounds of a mean were measured as
    asked: AskedInputs | None = None  # where they are at hand


def read_verdicts(folder: Path, results: Sequence[StoredResult]) -> list[CheckerVerdict] | None:
    """What `bnncert check FOLDER --json` printed into check.json, one verdict per result.

    None without that file.
    """
    path = folder / CHECK
    if not path.is_file():
        return None
    again = "check again: " + check_command(folder)
    try:
        said = json.loads(path.read_text(encoding="utf-8"))["certificates"]
        found = [entry for entry in said if f"{RADII}:" not in entry["path"]]
        if len(found) != len(results):
            raise InputError(
                f"{str(path)!r} holds {len(found)} verdicts for {len(results)} results; {again}"
            )
        verdicts = [_verdict(entry) for entry in found]
        for entry, result in zip(found, results, strict=True):
            if not _same_question(entry, result):
                raise InputError(
                    f"{str(path)!r} speaks of other results than line {result.line} here; {again}"
                )
    except InputError:
        raise
    except (*UNREADABLE, OSError) as error:
        raise InputError(
            f"{str(path)!r} is not what the checker prints ({error!r}); {again}"
        ) from error
    return verdicts


def read_statement(folder: Path) -> list[str]:
    """What the checker said in its own words, where it did."""
    path = folder / CHECK
    if not path.is_file():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))  # `read_verdicts` has read it
    return [str(sentence) for sentence in found.get("statement") or []]


def _verdict(entry: dict[str, Any]) -> CheckerVerdict:
    if entry["status"] not in VERDICTS:
        raise ValueError(f"status is {entry['status']!r}")
    supported = entry["supported"] and (float(entry["supported"][0]), float(entry["supported"][1]))
    code = entry["code"]
    return CheckerVerdict(
        entry["status"], None if code is None else str(code), str(entry["message"]), supported
    )


def _same_question(entry: dict[str, Any], result: StoredResult) -> bool:
    """Whether a verdict can be of this line: it names it or its certificate, and accepts nothing
    but what it claims."""
    path = str(entry["path"])
    claimed = entry["claimed"]
    line = f"{result.file}:{result.line}"
    if claimed is not None and tuple(claimed) != (result.lower, result.upper):
        return False
    if entry["status"] == ACCEPT and result.certificate is not None:
        asked = (
            claimed is not None
            and entry["eps"] in (None, result.eps)
            and entry["label"] == result.label
        )
        return asked and path.endswith(result.certificate)
    return path.endswith((line, result.certificate or line))


def check_command(folder: Path) -> str:
    name = shlex.quote(str(folder))
    return f"bnncert check {name} --posterior POSTERIOR --json > {shlex.quote(str(folder / CHECK))}"


def read_entry(
    folder: Path,
    result: StoredResult,
    verdict: CheckerVerdict | None,
    model: Model | None,
    called: Called | None = None,
) -> Entry:
    """A result with what its certificate shows.

    With a model, also the outputs of its centre and the cross-section through its weights.
    """
    called = called or Called()
    if result.certificate is None:
        if (result.lower, result.upper) != (0, 1) or result.quantity == MEAN:
            raise InputError(
                f"input {result.index} claims something and names no certificate; certify again"
            )
        return _unproved(result, verdict, called)
    path = _inside(folder, result.certificate)
    certificate = read_certificate(path)
    try:
        _compare(certificate, result)
        point = certificate.counterexample
        section = _section(certificate, point, model, result.seed) if model else None
        facts = _facts(result, verdict, certificate, called)
        words = in_words(certificate, called.outputs)
        picture = _picture(certificate, point)
        tables = _tables(certificate, result.eps, point, model, called, picture is not None)
        return Entry(result, verdict, facts, words, picture, section, tables)
    except InputError as error:
        raise InputError(f"{str(path)!r}: {error}") from error
    except UNREADABLE as error:
        raise InputError(
            f"{str(path)!r} is not a certificate of bnncert ({error!r}); certify again"
        ) from error


def _unproved(result: StoredResult, verdict: CheckerVerdict | None, called: Called) -> Entry:
    """A result without a certificate; its input is shown where the data are at hand."""
    facts = _facts(result, verdict, None, called)
    asked = called.asked
    if asked is None or not 0 <= result.index < len(asked.x):
        return Entry(result, verdict, facts)
    x = asked.x[result.index]
    image = as_image(x)
    if image is not None:
        return Entry(
            result,
            verdict,
            facts,
            picture=Picture(to_pixels(image, value_range(image, asked.clip))),
        )
    table = coordinates(x, around(x, result.eps, asked.clip), None, called.features, asked.norm)
    return Entry(result, verdict, facts, tables=[] if table is None else [table])


def _facts(
    result: StoredResult,
    verdict: CheckerVerdict | None,
    certificate: Certificate | None,
    called: Called,
) -> dict[str, str]:
    """In the order in which people ask: the claim, who checked it, the question, the method."""
    bounds = {
        "certified lower bound": repr(result.lower),
        "certified upper bound": repr(result.upper),
    }
    asked = {"threshold": f"P_safe ≥ {result.at_least}"}
    if result.quantity != P_SAFE:
        bounds |= {} if result.gap is None else {"ahead of every other class by": repr(result.gap)}
        asked = {"bounds of": BOUNDED[result.quantity]}
    asked |= _condition(result, called)
    if certificate is not None:
        asked |= _region(certificate, result.eps)
    else:
        asked |= {HALF_WIDTHS: "–"} if called.boxed else {"ε": repr(result.eps)}
    found = {"method": result.method, "seconds": repr(result.seconds)}
    if result.quantity == P_SAFE:
        found |= {"bound calls": str(result.bound_calls), "seed": str(result.seed)}
    origin = _origin(certificate, str(result.certificate)) if certificate else {}
    return bounds | _checked(verdict) | _estimated(result) | asked | found | origin


def _checked(verdict: CheckerVerdict | None) -> dict[str, str]:
    if verdict is None:
        return {}
    facts = {"independent check": VERDICTS[verdict.status]}
    if verdict.code or verdict.message:
        facts["reason"] = ": ".join(filter(None, (verdict.code, verdict.message)))
    if verdict.supported:
        facts["supported by the checker"] = f"{verdict.supported[0]!r} to {verdict.supported[1]!r}"
    return facts


def _estimated(result: StoredResult) -> dict[str, str]:
    drawn = result.estimate
    if drawn is None:
        return {}
    text = (
        f"{drawn.low!r} to {drawn.high!r} with {drawn.confidence:.0%} confidence; of "
        f"{drawn.samples} networks drawn, "
        f"{drawn.verified} are robust and {drawn.samples - drawn.survived} are not"
    )
    return {"estimated, not certified": text}


def _condition(result: StoredResult, called: Called) -> dict[str, str]:
    """The class, or the interval and what the network at the centre gives."""
    classes = {"label": result.label, "predicted class": result.predicted, "rival": result.target}
    found = {
        name: name_of(called.outputs, index, "class")
        for name, index in classes.items()
        if index is not None
    }
    if result.low is not None and result.high is not None:
        found["asked interval"] = f"{result.low:.6g} to {result.high:.6g}"
    if result.output is not None:
        found["the network at the centre gives"] = f"{result.output:.6g}"
    return found


def _region(certificate: Certificate, eps: float) -> dict[str, str]:
    """A box has sides of its own, which need not be equal."""
    if certificate.norm == "box":
        return {HALF_WIDTHS: half_widths(certificate), "norm": "box", "clip": "none"}
    clip = certificate.clip
    said = "none" if clip is None else f"{clip[0]:g} to {clip[1]:g}"
    return {"ε": repr(eps), "norm": certificate.norm, "clip": said}


def _origin(certificate: Certificate, name: str) -> dict[str, str]:
    options = {key: value for key, value in certificate.method.items() if key != "name"}
    said = (
        f"{key.replace('_', ' ')} {plain(value)}"
        for key, value in options.items()
        if value is not None
    )
    facts = {
        "kind of evidence": certificate.kind,
        "certificate": name,
        "options": ", ".join(said),
        "made with": ", ".join(f"{key} {value}" for key, value in certificate.versions.items()),
    }
    digests = certificate.digests
    return facts | {f"digest of the {key}": digests[key] for key in DIGESTS}


def _compare(certificate: Certificate, result: StoredResult) -> None:
    if (certificate.claim["lower"], certificate.claim["upper"]) != (result.lower, result.upper):
        raise InputError("claims other bounds than its line of results.jsonl; certify again")


def _inside(folder: Path, name: str) -> Path:
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    # A name that no file can have, or links in a circle.
    except (OSError, ValueError, RuntimeError):
        inside = False
    if not inside:
        raise InputError(
            f"certificate {name!r} is not a path inside {str(folder)!r}; certify again"
        )
    if not (path.is_file() or path.parent.is_file()):  # itself, or the bundle it lies in
        raise InputError(f"certificate {str(path)!r} is missing; put it back or certify again")
    return path


def _tables(
    certificate: Certificate,
    eps: float,
    point: Tensor | None,
    model: Model | None,
    called: Called,
    pictured: bool,
) -> list[Table]:
    """What a picture does not show: coordinates, and outputs where the posterior is at hand."""
    sides, x = ends(certificate, eps), certificate.x
    tables = [coordinates(x, sides, point, called.features, certificate.norm)][pictured:]
    if model is not None:
        tables.append(outputs_there(model, certificate, point, called.outputs))
    return [table for table in tables if table is not None]


def _picture(certificate: Certificate, point: Tensor | None) -> Picture | None:
    image = as_image(certificate.x)
    if image is None:
        return None
    values = value_range(image, certificate.clip)
    other = None if point is None else as_image(point)
    if other is None:
        return Picture(to_pixels(image, values))
    return Picture(to_pixels(image, values), to_pixels(other, values), *difference(image, other))


def _section(
    certificate: Certificate, point: Tensor | None, model: Model, seed: int
) -> CrossSection | None:
    network, posterior = model
    digests = certificate.digests
    if (digests[ARCHITECTURE], digests[POSTERIOR]) != (network.digest, posterior.digest):
        raise InputError("speaks of another posterior; give --posterior the one that was certified")
    there = ball(certificate.x.unsqueeze(0), 0)
    condition = Specification(there, certificate.rows[None], certificate.offsets[None])
    problem = Problem(network, posterior, condition)
    return cross_section(problem, point, _boxes(certificate, posterior), abs(seed))


def _boxes(certificate: Certificate, posterior: Posterior) -> list[Box]:
    """The boxes of weights that were proved safe."""
    if certificate.kind != boxes.KIND or not isinstance(posterior, Independent):
        return []
    found = boxes.read(certificate.evidence, certificate.tensors, posterior.center)
    return [box.box(found.growth, posterior.spread) for box in found.boxes]
