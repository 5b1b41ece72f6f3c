"""Networks of an empirical posterior, one by one: verified on the region, or refuted at a point of
it.

verified / S <= P_safe <= 1 - refuted / S
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flint import arb

from bnncert_check.arithmetic import Array, lower_float, upper_float
from bnncert_check.grammar import Tensors, index, listed, members, whole
from bnncert_check.linear import row_bounds
from bnncert_check.mass import WeightBox
from bnncert_check.model import EMPIRICAL, Model
from bnncert_check.question import Question
from bnncert_check.region import Region, point_region
from bnncert_check.verdict import Rejected, Support


@dataclass(frozen=True)
class Networks:
    """Verified networks, and refuted ones as (network, point, row); points are flat."""

    verified: tuple[int, ...]
    refuted: tuple[tuple[int, int, int], ...]
    points: Array

    def supported(self, question: Question, model: Model) -> Support:
        samples = model.only(EMPIRICAL, "a list of networks").fields["samples"]
        rows, offsets = question.rows, question.offsets
        for s in self.verified:
            bounds = row_bounds(
                model, WeightBox(samples[s], samples[s]), question.region, rows, offsets
            )
            if not (bounds > 0).all():
                raise Rejected(
                    "row-not-positive",
                    f"network {s} is not proved safe: bound {float(bounds.min())!r}",
                )
        for s, p, r in self.refuted:
            row, point = slice(r, r + 1), require_point(self.points[p], question)
            bound = row_bounds(
                model, WeightBox(samples[s], samples[s]), point, -rows[row], -offsets[row]
            )
            if not (bound >= 0).all():
                raise Rejected(
                    "network-not-refuted",
                    f"row {r} of network {s} is not proved to fail at point {p}",
                )
        count = len(samples)
        return Support(
            lower_float(arb(len(self.verified)) / count),
            upper_float(1 - arb(len(self.refuted)) / count),
        )


def read(value: Any, tensors: Tensors, question: Question, model: Model) -> Networks:
    count = len(model.only(EMPIRICAL, "a list of networks").fields["samples"])
    found = members(value, "the evidence", ("networks", "verified", "refuted"))
    whole(found["networks"], "the number of networks", count, count)
    points, *_ = tensors.shape("points", 1 + len(model.input_shape))
    verified = tuple(
        index(s, "a network", count) for s in listed(found["verified"], "the verified networks")
    )
    refuted = []
    for entry in listed(found["refuted"], "the refuted networks"):
        s, p, r = listed(entry, "a refuted network", 3)
        network, point = index(s, "a network", count), index(p, "a point", points)
        refuted.append((network, point, index(r, "a row", len(question.rows))))
    named = [*verified, *(s for s, _, _ in refuted)]
    if len(set(named)) < len(named):
        raise Rejected("network-counted-twice", "a network is listed more than once")
    stored = tensors.numbers("points", (points, *model.input_shape))
    return Networks(verified, tuple(refuted), stored.reshape(points, len(question.region.x)))


def require_point(point: Array, question: Question) -> Region:
    """One point of the question's region, as a region."""
    if not question.region.contains(point):
        raise Rejected(
            "point-outside-region", "a point that should break a network is not in the input region"
        )
    return point_region(point)
