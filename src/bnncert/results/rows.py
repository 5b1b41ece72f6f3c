"""Rows of results: one declaration for JSON lines, SQLite and Arrow tables and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from torch import Tensor

from bnncert.estimate import Estimate
from bnncert.evidence.certificate import Certificate

P_SAFE = "P_safe"
REGRESSION = ("output", "low", "high")  # facts that answers about classes lack


class Status(StrEnum):
    """What is known of an input; `sentence` says it to a person.

    The threshold is what P_safe was asked to reach: `at_least` of the answer.

    >>> Status("certified").sentence
    'P_safe is proved to reach the threshold'
    """

    CERTIFIED = "certified"
    FALSIFIED = "falsified"
    UNDECIDED = "undecided"
    MISCLASSIFIED = "misclassified"
    ERROR = "error"
    DECIDED = "decided"

    @property
    def sentence(self) -> str:
        return SENTENCES[self]


SENTENCES = {
    Status.CERTIFIED: "P_safe is proved to reach the threshold",
    Status.FALSIFIED: "P_safe is proved to stay below the threshold",
    Status.UNDECIDED: (
        "the bounds settle it neither way; more effort, another method or a smaller eps may"
    ),
    Status.MISCLASSIFIED: (
        "the central network is wrong at the clean input, whatever the bounds say"
    ),
    Status.ERROR: "nothing is known: the computation failed",
    Status.DECIDED: "the averaged network keeps its answer on the whole region",
}


@dataclass(frozen=True, eq=False)
class Answer:
    """One input's answer: lower <= P_safe <= upper, certified.

    target: the only rival class that was asked about, where there are others; else None. lower and
    upper are 0 and 1 when nothing is known. at_least: the threshold that the status speaks of, in
    decimals.
    """

    index: int
    label: int | None
    target: int | None
    predicted: int | None
    status: Status
    lower: float
    upper: float
    at_least: str
    method: str
    eps: float
    bound_calls: int
    seconds: float
    seed: int


@dataclass(frozen=True, eq=False)
class Result(Answer):
    """An answer with its certificate, if anything is proved.

    lower_by, upper_by: which bounds gave the ends, in a word; None where an end is 0 or 1.
    `estimate` is not certified and enters neither bound. Of a regression, `output` is what the
    central network gives at the clean input, and `low` and `high` the ends of the interval that was
    asked about, in the units that the targets were measured in.

    >>> import torch
    >>> from bnncert import Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> result = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))[0]
    >>> result.status, result.lower > 0.99, result.certificate.kind
    (<Status.CERTIFIED: 'certified'>, True, 'concentration')
    """

    lower_by: str | None
    upper_by: str | None
    estimate: Estimate | None
    certificate: Certificate | None
    output: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def counterexample(self) -> Tensor | None:
        """The input of the region at which networks are proved to fail, as the network takes it;
        None where no upper bound was found (`Concentration(upper=True)` looks for one).

        >>> import torch
        >>> from bnncert import Concentration, Problem, ball, certify, half_space, mlp
        >>> from bnncert.posteriors import Normal
        >>> ones = torch.ones(2).double()
        >>> large = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 2.5)
        >>> problem = Problem(mlp(1, 1), Normal(ones, ones / 10), large)
        >>> certify(problem, Concentration(upper=True))[0].counterexample
        tensor([0.9000], dtype=torch.float64)
        """
        return self.certificate.counterexample if self.certificate else None


@dataclass(frozen=True, eq=False)
class Decision:
    """lower <= predictive mean <= upper for every x of one input's region, certified.

    quantity: "softmax", the probability of the label under the averaged softmax, or "mean", of a
    regression output, whose bounds are -inf and inf where nothing is known. gap: the label's
    predictive probability exceeds every rival's by at least this on the whole region (softmax
    only). output, low, high: as in a `Result`; lower and upper are the network's own numbers,
    standardised where it is.

    >>> import torch
    >>> from bnncert import Problem, ball, decide, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> decision = decide(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))[0]
    >>> decision.quantity, round(decision.lower, 2), round(decision.upper, 2)
    ('mean', 1.9, 2.1)
    """

    index: int
    label: int | None
    predicted: int | None
    status: Status
    quantity: str
    lower: float
    upper: float
    gap: float | None
    eps: float
    seconds: float
    certificate: Certificate | None
    output: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Column:
    """A fact of a row: its name, its type, and whether it may be unknown."""

    name: str
    kind: type[int] | type[float] | type[str]
    unknown: bool

    @property
    def sql(self) -> str:
        kind = {int: "INTEGER", float: "REAL", str: "TEXT"}[self.kind]
        return f"{self.name} {kind}" + ("" if self.unknown else " NOT NULL")

    def read(self, fields: Mapping[str, Any]) -> Any:
        """The value in an object, checked: whole numbers are numbers, true is none."""
        if self.name not in fields:
            raise ValueError(f"{self.name} is missing")
        value = fields[self.name]
        kinds = (int, float) if self.kind is float else (self.kind,)
        if type(value) not in kinds and not (value is None and self.unknown):
            raise ValueError(f"{self.name} is {value!r}")
        return value


@cache
def columns(row: type[Any]) -> dict[str, Column]:
    """The facts of a dataclass by name, certificates and estimates apart."""
    found = {}
    for name, hint in get_type_hints(row).items():
        kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
        unknown = NoneType in get_args(hint)
        if kinds[0] in (int, float, str, Status):
            kind = str if kinds[0] is Status else kinds[0]
            found[name] = Column(name, kind, unknown)
    return {field.name: found[field.name] for field in fields(row) if field.name in found}


def facts(row: Answer | Decision) -> dict[str, Any]:
    """A row's facts as plain values, those of a regression and an estimate only if it has them."""
    kind: object = type(row)  # for mypy, which takes the hash of instances for that of their class
    found = {name: getattr(row, name) for name in columns(kind)}
    found = {
        name: found[name] for name in found if name not in REGRESSION or found[name] is not None
    }
    drawn = getattr(row, "estimate", None)
    return found | ({"estimate": asdict(drawn)} if drawn else {})
