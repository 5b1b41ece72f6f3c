"""Concentration: for each component of a Gaussian posterior a proof on the region, and one at a
point for the upper bound.

    Σ_c π_c (1 - failure_c) <= P_safe <= Σ_c π_c P(not (row r <= 0 at the point))

Of c·y + d and -c·y + d' both failures count: if d + d' > 0 they exclude each other, and if not both
are never positive, P_safe = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from flint import arb

from bnncert_check.arithmetic import Array, as_probability, down, lower_float, upper_float
from bnncert_check.correlated.gaussian import require_form
from bnncert_check.correlated.rows import Correlated, correlated_failure
from bnncert_check.deep.rows import Deep, deep_failure
from bnncert_check.deep.rows import laws as deep_laws
from bnncert_check.evidence.correlated import is_correlation, read_correlated
from bnncert_check.evidence.deep import read_deep
from bnncert_check.evidence.joint import (
    TOGETHER,
    is_beside,
    is_joint,
    read_joint,
    read_together,
)
from bnncert_check.evidence.laws import is_law, is_reply, read_fall, read_law, read_reply
from bnncert_check.evidence.networks import require_point
from bnncert_check.evidence.proof import Asked, Cut, Divided, read_divided, read_probability
from bnncert_check.grammar import Tensors, exact, index, listed, members
from bnncert_check.joint import rows as joint
from bnncert_check.joint.rows import Pairs, Rows, Together
from bnncert_check.laws import anchored
from bnncert_check.laws import rows as laws
from bnncert_check.laws.anchored import AnchorLaw, Fall
from bnncert_check.laws.replies import ReplyLaw, reply_failure
from bnncert_check.laws.rows import LineLaw, SharedLaw
from bnncert_check.model import GAUSSIAN, Component, Model, Posterior
from bnncert_check.proofs import Proof, failure
from bnncert_check.question import Question
from bnncert_check.region import Region
from bnncert_check.verdict import CannotCheck, Rejected, Support

WHAT = "concentration"
Found = TypeVar("Found")
Law: TypeAlias = SharedLaw | LineLaw | AnchorLaw
Alone: TypeAlias = Law | Deep | Correlated | Together  # what speaks of the whole region


@dataclass(frozen=True)
class Refutation:
    """At the point (flat), row r is at most 0 with the probability that its proof shows; and so is
    the row opposite to it, if there is one, there or at a point of its own: then both are no more
    often than by a fall of row r."""

    point: Array
    failures: tuple[tuple[int, Proof | Alone], ...]
    other: tuple[Array, Fall] | None = None


@dataclass(frozen=True)
class Replied:
    """Row r is at most 0 where an adversary who sees the network moves the input."""

    row: int
    law: ReplyLaw


@dataclass(frozen=True)
class Beside:
    """A law of every row on the region, and pairs of rows that fail together at points of it."""

    law: Law
    together: Pairs


@dataclass(frozen=True)
class Part:
    """What is shown of one component."""

    lower: Divided | Alone | Beside
    upper: Refutation | Replied | None


@dataclass(frozen=True)
class Concentration:
    """One part for every component of the posterior."""

    parts: tuple[Part, ...]

    def supported(self, question: Question, model: Model) -> Support:
        """Weighted sums over the components of 1 - failure, and of 1 - (1 - failure of a row's
        failure)."""
        components = model.all_of(GAUSSIAN, WHAT)
        lower, upper, total = (
            arb(0),
            arb(0),
            sum((arb(component.weight) for component in components), arb(0)),
        )
        for component, part in zip(components, self.parts, strict=True):
            weight, posterior = arb(component.weight), component.posterior
            failing = _failure(part.lower, question, question.region, model, posterior)
            lower += weight * arb(as_probability(lower_float(1 - failing)))
            upper += weight * (_upper(part.upper, question, model, posterior) if part.upper else 1)
        return Support(lower_float(lower / total), as_probability(upper_float(upper / total)))


def _failure(
    found: Divided | Alone | Beside,
    question: Question,
    region: Region,
    model: Model,
    posterior: Posterior,
) -> arb:
    """Of the rows on the region: by one proof, or on its two parts beyond and before a cut, which
    share the cut.

    A part of a ball's bounding box may miss the ball, and nothing fails there.
    """
    if region.is_empty:
        return arb(0)
    if isinstance(found, Beside):
        return _less_pairs(found, question, model, posterior)
    if not isinstance(found, Cut):
        return _of_rows(found, model, posterior, region, question.rows, question.offsets)
    below, above = _halves(found, region)
    first = _failure(found.below, question, below, model, posterior)
    return first + _failure(found.above, question, above, model, posterior)


def _less_pairs(found: Beside, question: Question, model: Model, posterior: Posterior) -> arb:
    """P(some row fails somewhere) is at most the sum over rows less, over pairs that are a forest,
    P(both fail somewhere), and these fail where both do at a point. What rows share in laws is
    charged once more for every pair."""
    law, pairs, asked = found.law, found.together.pairs, (question.rows, question.offsets)
    about = model, posterior, question.region, *asked
    if isinstance(law, AnchorLaw):
        total = anchored.failure(*about, law)  # where nothing is shared
    else:
        total = laws.failure(*about, law, len(pairs))
    rows = Rows(model, posterior, *asked)
    for pair, point in pairs:
        at = require_point(point, question)
        total -= joint.both_fail(rows, pair, at)
    return total


def _of_rows(
    found: Proof | Alone,
    model: Model,
    posterior: Posterior,
    region: Region,
    rows: Array,
    offsets: Array,
) -> arb:
    if isinstance(found, AnchorLaw):
        return anchored.failure(model, posterior, region, rows, offsets, found)
    if isinstance(found, SharedLaw | LineLaw):
        return laws.failure(model, posterior, region, rows, offsets, found)
    if isinstance(found, Proof):
        return failure(model, posterior, region, rows, offsets, found)
    if not (region.lower == region.upper).all():
        raise CannotCheck("unsupported", "a proof of this kind speaks of a point alone")
    if isinstance(found, Correlated):
        form = require_form(model.network, posterior)
        return correlated_failure(form, region.lower, rows, offsets, found, inside=False)
    if isinstance(found, Together):
        return joint.failure(Rows(model, posterior, rows, offsets), region, found)
    return deep_failure(deep_laws(model.network, posterior, region.lower), rows, offsets, found)


def _halves(cut: Cut, region: Region) -> tuple[Region, Region]:
    if not region.lower[cut.dimension] <= cut.at <= region.upper[cut.dimension]:
        raise Rejected("region-empty", f"a cut at {cut.at!r} leaves one of its parts empty")
    upper, lower = region.upper.copy(), region.lower.copy()
    upper[cut.dimension], lower[cut.dimension] = cut.at, cut.at
    return replace(region, upper=upper), replace(region, lower=lower)


def _upper(
    found: Refutation | Replied, question: Question, model: Model, posterior: Posterior
) -> arb:
    """P_safe <= 1 - P(row r <= 0 at the point), for a point of the region, less P(the opposite row
    <= 0), and for another point of its own with P(both) added."""
    if isinstance(found, Replied):
        require_point(found.law.center, question)
        asked = _negated(question, found.row)
        failing = reply_failure(model, posterior, question.region, asked, found.law)
        return arb(as_probability(upper_float(failing)))
    point, total = require_point(found.point, question), arb(0)
    if isinstance(found.failures[0][1], Correlated):
        form, asked = require_form(model.network, posterior), (question.rows, question.offsets)
        none = correlated_failure(form, point.lower, *asked, found.failures[0][1], inside=True)
        return arb(as_probability(upper_float(none)))
    if isinstance(found.failures[0][1], Together):
        every = Rows(model, posterior, question.rows, question.offsets)
        none = joint.none_fails(every, point, found.failures[0][1])
        return arb(as_probability(upper_float(none)))
    for number, proof in found.failures:
        failing = _of_rows(proof, model, posterior, point, *_negated(question, number))
        total += arb(as_probability(upper_float(failing)))
        if found.other is not None:  # where the next row fails
            point = require_point(found.other[0], question)
    both = _both(found, question, model, posterior) if found.other is not None else arb(0)
    return arb(as_probability(upper_float(total - (len(found.failures) - 1) + both)))


def _negated(question: Question, number: int) -> tuple[Array, Array]:
    row = slice(number, number + 1)
    return -question.rows[row], -question.offsets[row]


def _both(found: Refutation, question: Question, model: Model, posterior: Posterior) -> arb:
    """Where c·y + d <= 0 at the first point and -c·y + d' <= 0 at the other, c·y falls from the
    other to the first by at least d + d'."""
    assert found.other is not None
    (first, _), (second, _) = found.failures
    other, law = found.other
    least = float(down(question.offsets[first] + question.offsets[second]))
    row = question.rows[first : first + 1]
    return anchored.fall(model, posterior, (other, found.point), row, least, law)


def read(value: Any, tensors: Tensors, question: Question, model: Model) -> Concentration:
    components = model.all_of(GAUSSIAN, WHAT)
    entries = listed(
        members(value, "the evidence", ("components",))["components"],
        "the components",
        len(components),
    )
    pairs = enumerate(zip(entries, components, strict=True))
    return Concentration(
        tuple(
            _part(entry, i, component, tensors, question, model) for i, (entry, component) in pairs
        )
    )


def _part(
    value: Any, i: int, component: Component, tensors: Tensors, question: Question, model: Model
) -> Part:
    entry = members(value, f"component {i}", ("weight", "lower", "upper"))
    require_weight(entry["weight"], component, i)
    moving = bool((question.region.lower < question.region.upper).any())
    asked = Asked(model, component.posterior, len(question.rows), tensors, moving)
    lower = _lower(entry["lower"], f"c{i}.", asked, question)
    if entry["upper"] is None:
        return Part(lower, None)
    said = f"the upper bound of component {i}"
    upper = members(entry["upper"], said, ("row", "failure"), ("opposite",))
    one = replace(asked, rows=1, moving=False)
    row = index(upper["row"], f"the row of component {i}", len(question.rows))
    failure, prefix = upper["failure"], f"c{i}.upper."
    if is_reply(failure) and "opposite" not in upper:
        # Not beside the opposite row, for which inputs would be moved another way.
        return Part(lower, Replied(row, read_reply(failure, prefix, one)))
    point = tensors.numbers(f"c{i}.point", model.input_shape).reshape(-1)
    if is_correlation(failure) or is_joint(failure):
        return Part(lower, _without_failures(upper, row, point, prefix, asked, question))
    proof = _read(failure, prefix, one, read_probability)
    if "opposite" not in upper:
        return Part(lower, Refutation(point, ((row, proof),)))
    other = members(
        upper["opposite"], f"the row opposite to that of {i}", ("row", "failure"), ("both",)
    )
    second = index(other["row"], f"the row opposite to that of {i}", len(question.rows))
    if not (question.rows[row] == -question.rows[second]).all():
        raise Rejected("rows-not-opposite", f"rows {row} and {second} may fail together")
    against = _read(other["failure"], f"c{i}.opposite.", one, read_probability)
    failures = (row, proof), (second, against)
    if "both" not in other:
        return Part(lower, Refutation(point, failures))
    elsewhere = tensors.numbers(f"c{i}.opposite.point", model.input_shape).reshape(-1)
    both = read_fall(other["both"], f"c{i}.both.", one)
    return Part(lower, Refutation(point, failures, (elsewhere, both)))


def _lower(value: Any, prefix: str, asked: Asked, question: Question) -> Divided | Alone | Beside:
    if is_correlation(value):
        return read_correlated(value, prefix, asked, question.rows, question.region.lower)
    if is_joint(value):
        return read_joint(value, prefix, asked, question)
    if is_law(value) and is_beside(value):
        own = {name: part for name, part in value.items() if name != TOGETHER}
        law = read_law(own, prefix, asked)
        return Beside(law, read_together(value[TOGETHER], prefix, asked))
    return _read(value, prefix, asked, read_divided)


def _without_failures(
    upper: dict[str, Any], row: int, point: Array, prefix: str, asked: Asked, question: Question
) -> Refutation:
    """How often no row of some fails, the first of them `row`."""
    proof: Correlated | Together
    if is_joint(upper["failure"]):
        proof = read_joint(upper["failure"], prefix, asked, question, inside=True)
        first = proof.singles[0].rows[0]
    else:
        proof = read_correlated(upper["failure"], prefix, asked, question.rows, point, inside=True)
        first = proof.groups[0].rows[0]
    if "opposite" in upper or first != row:
        raise CannotCheck("malformed", f"{prefix!r} speaks of other rows than its group")
    return Refutation(point, ((row, proof),))


def _read(
    value: Any, prefix: str, asked: Asked, read: Callable[[Any, str, Asked], Found]
) -> Found | Alone:
    if _is_deep(value):
        return read_deep(value, prefix, asked)
    return read_law(value, prefix, asked) if is_law(value) else read(value, prefix, asked)


def _is_deep(value: Any) -> bool:
    return type(value) is dict and "two_layers" in value


def require_weight(value: Any, component: Component, i: int) -> None:
    """The posterior's weights count; evidence must repeat them."""
    if exact(value, f"the weight of component {i}") != component.weight:
        raise CannotCheck("malformed", f"component {i} has another weight in the posterior")
