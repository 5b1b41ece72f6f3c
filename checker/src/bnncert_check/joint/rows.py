"""What joint laws of rows say together, with A_i = {row i <= 0}: by Hunter's bound, where the pairs
are a forest on the rows,

    P(some A_i) <= Σ_i P(A_i) - Σ_pairs P(A_i and A_j),

and by Bonferroni's, where they are all pairs, P(some A_i) >= the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb

from bnncert_check.arithmetic import Array
from bnncert_check.joint.neurons import Neurons, at_point
from bnncert_check.joint.series import Joint, above, below
from bnncert_check.joint.sums import Sums, sums
from bnncert_check.laws.rows import Form, require_form
from bnncert_check.linear import certain_point
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region


@dataclass(frozen=True)
class Together:
    """Laws of single rows and of pairs at one point."""

    singles: tuple[Joint, ...]
    pairs: tuple[Joint, ...]


@dataclass(frozen=True)
class Pairs:
    """Pairs that are a forest, each with a point of its own."""

    pairs: tuple[tuple[Joint, Array], ...]


@dataclass(frozen=True)
class Rows:
    """Whose rows fail."""

    model: Model
    posterior: Posterior
    rows: Array
    offsets: Array


def failure(asked: Rows, point: Region, found: Together) -> arb:
    """P(some row <= 0 at the point), from above; the pairs are a forest."""
    at = _neurons(asked, point)
    every = (_above(asked, at, law) for law in found.singles)
    return sum(every, arb(0)) - sum((_below(asked, at, law) for law in found.pairs), arb(0))


def none_fails(asked: Rows, point: Region, found: Together) -> arb:
    """P(no row of the laws <= 0 at the point), from above; the pairs are all of those that may fail
    together."""
    at = _neurons(asked, point)
    every = (_below(asked, at, law) for law in found.singles)
    return 1 - sum(every, arb(0)) + sum((_above(asked, at, law) for law in found.pairs), arb(0))


def both_fail(asked: Rows, law: Joint, point: Region) -> arb:
    """P(both rows <= 0 at the point), from below."""
    return _below(asked, _neurons(asked, point), law)


def _neurons(asked: Rows, point: Region) -> tuple[Form, Neurons]:
    """Behind certain layers, of the box that these leave."""
    form = require_form(asked.model, asked.posterior)
    box = certain_point(asked.model, asked.posterior.fields["mean"], point.lower, form.node)
    return form, at_point(form, asked.posterior, box)


def _above(asked: Rows, at: tuple[Form, Neurons], law: Joint) -> arb:
    return above(_sums(asked, at[0], law), at[1], law)


def _below(asked: Rows, at: tuple[Form, Neurons], law: Joint) -> arb:
    return below(_sums(asked, at[0], law), at[1], law)


def _sums(asked: Rows, form: Form, law: Joint) -> Sums:
    rows = list(law.rows)
    return sums(form, asked.posterior, asked.rows[rows], asked.offsets[rows])
