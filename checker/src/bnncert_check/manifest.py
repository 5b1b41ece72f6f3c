"""The manifest of a result folder: what it says was asked must be what its certificates prove.

Only facts are read that the posterior, a line or a certificate can contradict: digests, families
and sizes of posteriors, quantity and threshold, norm, radii and clip range, condition, and by what
numbers were standardised. What else a manifest holds (files, methods, versions, machine, date) is
demanded in its type, and believed by nobody.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

from bnncert_check.files import reading, regular, strict_json
from bnncert_check.grammar import flag, listed, members, number, threshold, whole, word
from bnncert_check.model import Column, Model
from bnncert_check.question import Question
from bnncert_check.verdict import MEAN, P_SAFE, SOFTMAX, CannotCheck, Rejected

MANIFEST, SCHEMA = "manifest.json", "bnncert-manifest/1"
ABOUT = ("question", "methods", "seed", "estimate", "features", "outputs")
WHERE = ("versions", "machine", "date", "command")
ASKED = ("subjects", "region", "condition", "quantity", "at_least", "inputs")
SUBJECT = ("name", "source", "posterior", "architecture", "family", "weights")
# What the conditions hold, by their kind.
CONDITIONS = {
    "class": ("target",),
    "interval": ("output", "tolerance"),
    "half-space": ("normal", "bound"),
    "rows": (),
    "vnn-lib": ("source", "text", "exact", "notes"),
    "text": ("text",),
}
ROUNDINGS = 8 * 2.0**-52  # of the ends of an interval, relative to the larger one


@dataclass(frozen=True)
class Condition:
    """What is asked of outputs: of each kind its own facts."""

    kind: str
    target: int | None = None
    output: int = 0
    tolerance: float | None = None
    normal: tuple[float, ...] = ()
    bound: float = 0.0
    file: str = ""
    text: str = ""

    def require(self, question: Question) -> None:
        """The rows of a certificate must ask the same."""
        outputs, rows = question.rows.shape[1], question.rows.tolist()
        if self.kind == "class":
            alone = outputs == 2 and question.against_all  # one rival is all of them
            kept = question.against_all if self.target is None else question.target == self.target
            _require("the rivals", alone or kept)
        elif self.kind == "interval":
            unit = [[sign * (i == self.output) for i in range(outputs)] for sign in (1.0, -1.0)]
            _require("the output", rows == unit)
            self._require_tolerance(-question.offsets[0], question.offsets[1])
        elif self.kind == "text":
            _require("the condition", False)  # it is that of a map, which has its own rows
        elif self.kind == "half-space":
            _require("the half-space", rows == [list(self.normal)])
            _require("the half-space", question.offsets.tolist() == [-self.bound])

    def _require_tolerance(self, low: float, high: float) -> None:
        if self.tolerance is not None:
            apart = abs((high - low) / 2 - self.tolerance)
            _require("the tolerance", bool(apart <= ROUNDINGS * max(abs(low), abs(high))))

    def describe(self) -> str:
        if self.kind == "class":
            rival = "every other" if self.target is None else f"class {self.target}"
            return f"the class of each input before {rival}"
        if self.kind == "interval":
            width = "an interval of its own" if self.tolerance is None else repr(self.tolerance)
            return f"output {self.output} within {width} of a target"
        if self.kind == "half-space":
            return f"{list(self.normal)!r} times the outputs above {self.bound!r}"
        if self.kind == "vnn-lib":
            return f"the rows of each certificate, said to be those of {self.file!r} (not read)"
        return "the rows of each certificate" if self.kind == "rows" else repr(self.text)


Named: TypeAlias = tuple[str, Column]
Subject: TypeAlias = tuple[str, str, str, int]  # digests, of the architecture second; family, size


@dataclass(frozen=True)
class Manifest:
    """What was asked, as far as a certificate can contradict it."""

    subjects: frozenset[Subject]
    norm: str
    eps: frozenset[float]
    clip: tuple[float, float] | None
    condition: Condition
    quantity: str
    at_least: Fraction | None
    count: int | None  # of inputs
    lower: tuple[float, ...]  # of a region that is certified in parts
    upper: tuple[float, ...]
    features: tuple[Named, ...]
    outputs: tuple[Named, ...]

    def require_line(
        self,
        model: Model,
        quantity: str,
        eps: float,
        at_least: Fraction | None,
        classes: bool | None,
    ) -> None:
        """A line of results must be an answer to this question.

        classes: whether it has a label; None where there is no result.
        """
        digests = model.posterior_digest, model.architecture_digest
        _require("the posterior", (*digests, model.family, model.weights) in self.subjects)
        _require("the standardisation of the outputs", _agree(self.outputs, model.units))
        _require("the quantity", quantity == self.quantity)
        _require("the threshold", at_least == self.at_least)
        _require("the radius", not self.eps or eps in self.eps)
        if not self.lower:  # of maps features are sides
            _require("the standardisation of the features", _agree(self.features, model.features))
        if classes is not None and self.condition.kind in ("class", "interval", "half-space"):
            _require("the class", classes == (self.condition.kind == "class"))

    def require_map(
        self,
        model: Model,
        at_least: Fraction,
        text: str,
        box: tuple[tuple[float, ...], tuple[float, ...]],
        sides: tuple[Named, ...],
    ) -> None:
        """A map of a region must be an answer to this question."""
        self.require_line(model, P_SAFE, 0.0, at_least, None)
        _require("the norm", self.norm == "box")
        _require("the region", (self.lower, self.upper) == box)
        _require("what sides are called and measured in", self.features == sides)
        stated = {
            "text": self.condition.text,
            "vnn-lib": f"no counterexample of {self.condition.file}",
        }
        _require("the condition", stated.get(self.condition.kind) == text)

    def require_certificate(self, question: Question) -> None:
        _require("the norm", question.region.norm == self.norm)
        _require("the clip range", question.region.clip == self.clip)
        _require("the region", not (self.lower or self.upper))  # maps alone have one for all parts
        self.condition.require(question)


def _agree(said: tuple[Named, ...], known: tuple[Column, ...]) -> bool:
    """Whether columns are the posterior's own, but for their names, where it has any."""
    return not known or tuple(column for _, column in said) == known


def _require(what: str, same: bool) -> None:
    if not same:
        raise Rejected("manifest-mismatch", f"{what} is not that of {MANIFEST}")


def read_manifest(folder: Path) -> Manifest | None:
    """None in folders that were written before there were manifests."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    with reading(f"{str(path)!r} is not a manifest"):
        found = strict_json(regular(path).read_bytes().decode())
    top = members(found, MANIFEST, ("schema", *ABOUT, *WHERE))
    word(top["schema"], f"the schema of {MANIFEST}", (SCHEMA,))
    _require_form(top)
    asked = members(top["question"], f"the question of {MANIFEST}", ASKED)
    names = ("norm", "eps", "clip", "lower", "upper")
    region = members(asked["region"], f"the region of {MANIFEST}", names)
    quantity = word(asked["quantity"], f"the quantity of {MANIFEST}", (P_SAFE, SOFTMAX, MEAN))
    at_least = None
    if quantity == P_SAFE:
        at_least = threshold(asked["at_least"], f"the threshold of {MANIFEST}")
    elif asked["at_least"] is not None:
        raise CannotCheck("malformed", f"{MANIFEST} has a threshold for another quantity")
    subjects = listed(asked["subjects"], f"the posteriors of {MANIFEST}")
    clip = None if region["clip"] is None else _numbers(region["clip"], "the clip range", 2)
    return Manifest(
        subjects=frozenset(map(_subject, subjects)),
        norm=word(region["norm"], f"the norm of {MANIFEST}"),
        eps=frozenset(_numbers(region["eps"], "the radii")),
        clip=None if clip is None else (clip[0], clip[1]),
        condition=_condition(asked["condition"]),
        quantity=quantity,
        at_least=at_least,
        count=_inputs(asked["inputs"]),
        lower=_numbers(region["lower"], "the lower ends"),
        upper=_numbers(region["upper"], "the upper ends"),
        features=_columns(top["features"], "the features"),
        outputs=_columns(top["outputs"], "the outputs"),
    )


def _require_form(top: dict[str, Any]) -> None:
    """Facts that nothing rests on have their types all the same."""
    for name in ("seed", "estimate"):
        whole(top[name], f"{name} of {MANIFEST}", 0)
    for method in listed(top["methods"], f"the methods of {MANIFEST}"):
        word(members(method, "a method", ("name", "options"))["name"], "the name of a method")
    for name in ("versions", "machine"):
        if type(top[name]) is not dict:
            raise CannotCheck("malformed", f"{name} of {MANIFEST} is not an object")
        for key, value in top[name].items():
            word(value, f"{key} of {MANIFEST}")
    word(top["date"], f"the date of {MANIFEST}")
    if top["command"] is not None:
        word(top["command"], f"the command of {MANIFEST}")


def _columns(value: Any, what: str) -> tuple[Named, ...]:
    found = []
    for column in listed(value, f"{what} of {MANIFEST}"):
        said = members(column, f"an entry of {what}", ("name", "mean", "std"))
        mean, std = (number(said[end], f"{end} of {what}") for end in ("mean", "std"))
        found.append((word(said["name"], f"a name of {what}"), Column(mean, std)))
    return tuple(found)


def _numbers(value: Any, what: str, count: int | None = None) -> tuple[float, ...]:
    where = f"{what} of {MANIFEST}"
    return tuple(number(entry, where) for entry in listed(value, where, count))


def _subject(value: Any) -> Subject:
    found = members(value, f"a posterior of {MANIFEST}", SUBJECT)
    word(found["name"], "the name of a posterior")
    family = word(found["family"], "the family of a posterior")
    weights = whole(found["weights"], "the weights of a posterior", 0)
    if found["source"] is not None:
        _source(found["source"])
    posterior, architecture = (word(found[name], name) for name in ("posterior", "architecture"))
    return posterior, architecture, family, weights


def _source(value: Any) -> tuple[str, str]:
    """Name and digest of a file or a data set."""
    found = members(value, f"a source of {MANIFEST}", ("name", "sha256", "is_file"))
    flag(found["is_file"], "is_file of a source")
    return word(found["name"], "the name of a source"), word(found["sha256"], "a SHA-256")


def _inputs(value: Any) -> int | None:
    if value is None:
        return None
    found = members(value, f"the inputs of {MANIFEST}", ("source", "select", "count"))
    _source(found["source"])
    word(found["select"], "the selection of inputs")
    return whole(found["count"], "the number of inputs", 0)


def _condition(value: Any) -> Condition:
    named = value.get("kind") if type(value) is dict else None
    kind = word(named, f"the kind of condition of {MANIFEST}", CONDITIONS)
    found = members(value, f"the condition of {MANIFEST}", ("kind", *CONDITIONS[kind]))
    if kind == "class":
        target = found["target"]
        return Condition(kind, target=None if target is None else whole(target, "the target", 0))
    if kind == "interval":
        wide = found["tolerance"]
        tolerance = None if wide is None else number(wide, "the tolerance", 0.0)
        return Condition(kind, output=whole(found["output"], "the output", 0), tolerance=tolerance)
    if kind == "half-space":
        normal = _numbers(found["normal"], "the normal")
        return Condition(kind, normal=normal, bound=number(found["bound"], "the bound"))
    if kind == "vnn-lib":
        return Condition(kind, file=_property(found))
    return Condition(kind, text=word(found.get("text", ""), "the condition"))


def _property(found: dict[str, Any]) -> str:
    """The name of a VNN-LIB file, whose text must be the one that its digest is of."""
    name, digest = _source(found["source"])
    text = word(found["text"], f"the text of {MANIFEST}")
    flag(found["exact"], "exact")
    for note in listed(found["notes"], f"the notes of {MANIFEST}"):
        word(note, f"a note of {MANIFEST}")
    with reading(f"the text of {MANIFEST} cannot be read", "malformed"):
        own = hashlib.sha256(text.encode()).hexdigest()
    _require("the digest of the VNN-LIB text", own == digest)
    return name
