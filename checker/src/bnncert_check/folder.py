"""Result folders: every line of results.jsonl or decisions.jsonl, and the certificate it names.

A line must repeat the claim and the question of its certificate, its words must follow from its
numbers, and without a certificate it must claim nothing. No two lines are about one thing, and no
two name one certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from bnncert_check.certificate import examine
from bnncert_check.files import digest, read_lines, reading, strict_json
from bnncert_check.grammar import exact, listed, members, number, threshold, whole, word
from bnncert_check.manifest import Manifest, read_manifest
from bnncert_check.model import Column, Model
from bnncert_check.question import Question
from bnncert_check.verdict import (
    ACCEPT,
    MEAN,
    P_SAFE,
    SOFTMAX,
    Bounds,
    CannotCheck,
    Reason,
    Rejected,
    Verdict,
)

RESULTS, DECISIONS = "results.jsonl", "decisions.jsonl"  # of P_safe, and of predictive means
RADII = "radii.jsonl"
ABOUT = ("index", "label", "predicted", "status", "lower", "upper", "eps", "seconds", "certificate")
OF_RESULTS, OF_DECISIONS = (*ABOUT, "method", "bound_calls", "seed"), (*ABOUT, "quantity", "gap")
OF_REGRESSIONS = ("output", "low", "high")
# Of a single rival; with a threshold; which bounds it was; not certified; and what the lines of
# campaigns have besides.
ALSO = (
    "target",
    "answer",
    "at_least",
    "lower_by",
    "upper_by",
    "estimate",
    "posterior",
    "name",
    "config",
    "reason",
    "input",
    "spec",
    *OF_REGRESSIONS,
)
CERTIFIED, FALSIFIED, UNDECIDED = "certified", "falsified", "undecided"
UNVERIFIED, MISCLASSIFIED, FAILED = "unverified", "misclassified", "error"
STATUSES = (CERTIFIED, FALSIFIED, UNDECIDED, UNVERIFIED, MISCLASSIFIED, FAILED)
DECIDED, EVERY = "decided", "every rival"
ANSWERS = ("unsat", "sat", "unknown")


@dataclass(frozen=True)
class Spec:
    """What a campaign asked of an input: a region, and a class or an interval around y."""

    norm: str
    eps: float
    clip: tuple[float, float] | None
    label: int | None
    target: int | None
    interval: tuple[int, float, float] | None  # and of which output


@dataclass(frozen=True)
class Line:
    """What a line says."""

    index: int
    label: int | None
    target: int | None
    predicted: int | None
    status: str
    quantity: str
    lower: float
    upper: float
    gap: float | None
    eps: float
    certificate: str | None
    answer: str | None
    at_least: Fraction | None
    input: str | None  # digest of x
    spec: Spec | None
    posterior: str | None
    method: tuple[str | None, str | None]  # its name and, of campaigns, its options
    ends: tuple[float | None, float | None]  # of an interval, as targets were measured

    def identity(self, model: Model) -> tuple[Any, ...]:
        """What no other line may be about: this posterior, an input, a radius, rivals and a
        method."""
        alone = (
            self.target is None and self.label in (0, 1) and model.outputs == 2
        )  # one rival is all of them
        return self.index, self.eps, 1 - (self.label or 0) if alone else self.target, self.method

    @property
    def claims_nothing(self) -> bool:
        """Nothing is known of a mean without a certificate, not even that it lies between 0 and
        1."""
        trivial = (self.lower, self.upper) == (0, 1) and self.gap in (None, -1)
        return trivial and self.quantity != MEAN and self.status != DECIDED

    @property
    def follows(self) -> str:
        """The status of P_safe that follows from the numbers.

        Lines of old folders know no threshold, or have an answer beside their status: there
        certified is any lower bound above 0.
        """
        if self.status == FAILED:
            return FAILED
        if self.label != self.predicted:
            return MISCLASSIFIED
        if self.at_least is None or self.answer is not None:
            return CERTIFIED if self.lower > 0 else UNVERIFIED
        if Fraction(self.lower) >= self.at_least:
            return CERTIFIED
        return FALSIFIED if Fraction(self.upper) < self.at_least else UNDECIDED


# By index and radius: the accepted bounds of P_safe, the question that they answer, and the line's
# class.
Accepted: TypeAlias = dict[tuple[int, float], tuple[Bounds, Question, int | None]]


def read_results(folder: Path) -> list[Any]:
    """The lines as they stand in the file."""
    path = _file(folder)
    lines = read_lines(path)
    if not lines:
        raise CannotCheck("unreadable", f"{str(path)!r} is empty")
    return lines


def _file(folder: Path) -> Path:
    """Decisions where there are no results; both together are not written by one run, and only one
    could be checked."""
    results, decisions = folder / RESULTS, folder / DECISIONS
    if results.exists() and decisions.exists():
        raise CannotCheck("malformed", f"{str(folder)!r} holds both {RESULTS} and {DECISIONS}")
    return decisions if decisions.exists() else results


def _line(value: Any, where: str, decisions: bool) -> Line:
    found = (
        members(value, where, OF_DECISIONS, OF_REGRESSIONS)
        if decisions
        else members(value, where, OF_RESULTS, ALSO)
    )

    if found.get("output") is not None:  # of the mean network: nothing is proved of it
        number(found["output"], f"output of {where}")

    def optional(name: str, read: Any, *arguments: Any) -> Any:
        given = found.get(name)
        return None if given is None else read(given, f"{name} of {where}", *arguments)

    return Line(
        index=whole(found["index"], f"index of {where}", 0),
        label=optional("label", whole, 0),
        target=optional("target", whole, 0),
        predicted=optional("predicted", whole, 0),
        status=word(
            found["status"], f"status of {where}", (DECIDED, UNDECIDED) if decisions else STATUSES
        ),
        quantity=word(found["quantity"], f"quantity of {where}", (SOFTMAX, MEAN))
        if decisions
        else P_SAFE,
        lower=number(found["lower"], f"lower of {where}"),
        upper=number(found["upper"], f"upper of {where}"),
        gap=optional("gap", number),
        eps=number(found["eps"], f"eps of {where}", 0.0),
        certificate=optional("certificate", word),
        answer=optional("answer", word, ANSWERS),
        at_least=optional("at_least", threshold),
        input=optional("input", word),
        spec=optional("spec", _spec),
        posterior=optional("posterior", word),
        method=(optional("method", word), optional("config", word)),
        ends=(optional("low", number), optional("high", number)),
    )


def _spec(value: Any, where: str) -> Spec:
    """JSON in a string."""
    with reading(f"{where} is not JSON", "malformed"):
        found = strict_json(word(value, where))
    classes = type(found) is dict and "label" in found
    names = ("label", "target") if classes else ("y", "tolerance")
    found = members(found, where, ("norm", "eps", "clip", *names), () if classes else ("output",))
    norm, eps = word(found["norm"], f"norm of {where}"), exact(found["eps"], f"eps of {where}")
    clip = None
    if found["clip"] is not None:
        low, high = (
            number(end, f"clip of {where}") for end in listed(found["clip"], f"clip of {where}", 2)
        )
        clip = low, high
    if classes:
        label, target = whole(found["label"], f"label of {where}", 0), found["target"]
        return Spec(
            norm,
            eps,
            clip,
            label,
            None if target is None else whole(target, f"target of {where}", 0),
            None,
        )
    y, tolerance = (exact(found[name], f"{name} of {where}") for name in names)
    output = whole(found.get("output", 0), f"output of {where}", 0)
    return Spec(norm, eps, clip, None, None, (output, y - tolerance, y + tolerance))


def speaks_of(line: Any, model: Model) -> bool:
    """Whether a line is about this posterior: it is, unless it names another, as lines of campaigns
    can."""
    named = line.get("posterior") if type(line) is dict else None
    return type(named) is not str or named == model.posterior_digest


def check_results(
    folder: Path, lines: list[Any], model: Model, accepted: Accepted | None = None
) -> Iterator[Verdict]:
    """One verdict a line about this posterior; what is accepted with a certificate is entered."""
    path, manifest = _file(folder), read_manifest(folder)
    seen: set[Any] = set()
    known: Accepted = {} if accepted is None else accepted
    for i, line in enumerate(lines, 1):
        if speaks_of(line, model):
            yield _check_line(path, i, line, model, manifest, seen, known)


def _check_line(
    path: Path,
    i: int,
    value: Any,
    model: Model,
    manifest: Manifest | None,
    seen: set[Any],
    accepted: Accepted,
) -> Verdict:
    verdict = Verdict(f"{path}:{i}", ACCEPT, message="claims nothing")
    try:
        line = _line(value, f"line {i}", path.name == DECISIONS)
        _require_new(line.identity(model), seen, "another line is about the same input")
        _require_consistent(line, model.outputs)
        if manifest is not None:
            classes = None if line.status == FAILED else line.label is not None
            manifest.require_line(model, line.quantity, line.eps, line.at_least, classes)
            if line.answer is not None:  # with it the status would speak of no threshold
                raise CannotCheck("malformed", "the line has an answer, as those of old folders")
        if line.certificate is None:
            if not line.claims_nothing:
                raise Rejected(
                    "certificate-missing", "the line claims something and names no certificate"
                )
            return verdict
        certificate = inside(path.parent, line.certificate)
        _require_new(identity_of(certificate), seen, "another line names the same certificate")
        verdict, question = examine(certificate, model)
        if verdict.status == ACCEPT and question is not None:
            _compare(line, verdict, question, model)
            asked = ("question", line.index, line.eps, line.method)
            _require_new_question(asked, question, seen)
            if manifest is not None:
                manifest.require_certificate(question)
            if line.quantity == P_SAFE:
                accepted[line.index, line.eps] = (line.lower, line.upper), question, line.label
    except Reason as reason:
        return replace(verdict, status=reason.status, code=reason.code, message=reason.message)
    return verdict


def _require_new(thing: Any, seen: set[Any], message: str) -> None:
    if thing in seen:
        raise Rejected("result-repeated", message)
    seen.add(thing)


def _require_new_question(about: tuple[Any, ...], question: Question, seen: set[Any]) -> None:
    """Whatever the line's words leave out: of an input a rival can be told from another one and
    from all of them; other rows could say the same as any."""
    rival = EVERY if question.against_all and question.target is None else question.target
    if not seen.isdisjoint([about] if rival is None else [(*about, rival), (*about, None)]):
        raise Rejected("result-repeated", "another line's certificate may prove the same")
    seen |= {about, (*about, rival)}


def identity_of(path: Path) -> tuple[Any, ...]:
    """Which file it is, whatever it is called; of a bundle also which member."""
    with reading(f"{str(path)!r} cannot be read"):
        bundled = path.parent.is_file()
        found = (path.parent if bundled else path).stat()
        return found.st_dev, found.st_ino, path.name if bundled else None


def inside(folder: Path, path: str) -> Path:
    with reading(f"certificate {path!r} is not a path", "malformed"):
        if not (folder / path).resolve().is_relative_to(folder.resolve()):
            raise CannotCheck("malformed", f"certificate {path!r} is not a path inside the folder")
    return folder / path


def _require_consistent(line: Line, outputs: int) -> None:
    """The words of a line follow from its numbers, whether or not they are certified."""
    for name in ("label", "target", "predicted"):
        if (named := getattr(line, name)) is not None and named >= outputs:
            raise CannotCheck(
                "malformed", f"{name} is {named}, and the network has {outputs} outputs"
            )
    if line.quantity == P_SAFE:
        _require_equal("status", line.status, line.follows)
    if line.answer is not None:
        if line.at_least is None:
            raise CannotCheck("malformed", "the line has an answer without a threshold")
        holds, fails = Fraction(line.lower) >= line.at_least, Fraction(line.upper) < line.at_least
        _require_equal("answer", line.answer, "unsat" if holds else "sat" if fails else "unknown")


def _compare(line: Line, verdict: Verdict, question: Question, model: Model) -> None:
    """The line must repeat the certificate's claim and question."""
    shape = model.input_shape
    lower, upper = verdict.claimed or (None, None)
    _require_equal("quantity", line.quantity, verdict.quantity)
    _require_equal("lower", line.lower, lower)
    _require_equal("upper", line.upper, upper)
    _require_equal("gap", line.gap, verdict.gap)
    _require_equal("eps", line.eps, question.region.eps)
    # Rows can put a class before others where nobody speaks of classes; a softmax is of one.
    if line.label is not None or line.quantity == SOFTMAX:
        _require_equal("label", line.label, question.label)
    _require_rivals(line.label, line.target, question)
    if line.quantity != P_SAFE:
        _require_equal("status", line.status, DECIDED if verdict.decided else UNDECIDED)
    flat = digest("input", [question.region.x])
    if line.input not in (
        None,
        flat,
        digest("input", [question.region.x.reshape(shape)]),
    ):  # once it was not flat
        _require_equal("input", line.input, flat)
    if line.status == FAILED:
        raise Rejected("result-mismatch", "status: the line says 'error' and has a certificate")
    if line.spec is not None:
        _compare_spec(line.spec, question)
    if line.ends != (None, None):
        _compare_ends(line.ends, question, model.units)


def _compare_ends(
    said: tuple[float | None, float | None], question: Question, units: Sequence[Column]
) -> None:
    """The ends of an interval, which the certificate has in the network's own numbers."""
    certified: tuple[float, float] | None = None
    if question.interval is not None:
        output, low, high = question.interval
        column = units[output] if units else Column(0.0, 1.0)
        certified = column.measured(low), column.measured(high)
    _require_equal("interval", said, certified)


def _compare_spec(spec: Spec, question: Question) -> None:
    """What a campaign says that it asked."""
    region = question.region
    _require_equal("norm", spec.norm, region.norm)
    _require_equal("eps", spec.eps, region.eps)
    _require_equal("clip", spec.clip, region.clip)
    _require_equal("label", spec.label, question.label)
    _require_rivals(spec.label, spec.target, question)
    if spec.interval is not None:
        _require_equal("interval", spec.interval, question.interval)


def _require_rivals(label: int | None, target: int | None, question: Question) -> None:
    """A class is said to come before its target, and before all others where none is named."""
    if label is None or target is not None:
        _require_equal("target", target, question.target if label is not None else None)
    elif not question.against_all:
        raise Rejected(
            "result-mismatch",
            "target: the line says all other classes, its certificate leaves some out",
        )


def _require_equal(name: str, said: Any, certified: Any) -> None:
    if said != certified:
        raise Rejected(
            "result-mismatch", f"{name}: the line says {said!r}, its certificate {certified!r}"
        )
