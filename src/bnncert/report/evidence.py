"""The evidence of a certificate in words, for people; programs read docs/certificate-format.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bnncert.evidence import boxes, concentration, networks
from bnncert.evidence.boxes import Boxes, Growth
from bnncert.evidence.certificate import OFFSETS, ROWS, Certificate
from bnncert.evidence.concentration import Concentration, Proof, Proved, Refutation
from bnncert.evidence.correlated import Correlated
from bnncert.evidence.deep import Deep
from bnncert.evidence.joint import Joint
from bnncert.evidence.laws import AnchorLaw, Law, ReplyLaw
from bnncert.evidence.networks import Networks
from bnncert.evidence.predictive import MEAN, SOFTMAX
from bnncert.evidence.written import Tensors
from bnncert.model.standardisation import Column
from bnncert.report.statement import name_of

PREDICTIVE = (
    "The mean over all networks lies between the bounds at every point of the region, by linear "
    "bounds of the outputs and exponential tails of what leaves them."
)
SHOWN = 6  # boxes that are described one by one
BOUNDS = {
    "lbp": "backward linear bounds (lbp)",
    "lbp-forward": "forward linear bounds as published (lbp-forward)",
    "ibp": "interval arithmetic (ibp)",
}
RULES = {
    "cells": "the union is cut into disjoint cells",
    "inclusion-exclusion": "by inclusion and exclusion",
    "bonferroni": "by inclusion and exclusion up to pairs, which is a lower bound",
}


def in_words(certificate: Certificate, outputs: Sequence[Column] = ()) -> list[str]:
    """Sentences that say what was proved and how; outputs are called by name."""
    kind = certificate.kind
    if kind not in WORDS:
        return [f"Evidence of kind {kind}, which this report cannot put into words."]
    return WORDS[kind](certificate.evidence, certificate.tensors, outputs)


def row_in_words(row: int, tensors: Tensors, outputs: Sequence[Column] = ()) -> str:
    """Which output row: "class 3 before class 5" where it compares two outputs, "output 0 above
    1.5" where it bounds one, else its number."""
    coefficients = tensors[ROWS][row].tolist()
    others = [0.0] * (len(coefficients) - 2)
    if sorted(coefficients) == [-1.0, *others, 1.0]:
        first, second = (coefficients.index(sign) for sign in (1.0, -1.0))
        return f"{name_of(outputs, first, 'class')} before {name_of(outputs, second, 'class')}"
    for sign, side in ((1.0, "above"), (-1.0, "below")):
        if coefficients.count(sign) == 1 and coefficients.count(0) == len(coefficients) - 1:
            index = coefficients.index(sign)
            column = outputs[index] if index < len(outputs) else Column("")
            bound = column.measured(-sign * float(tensors[OFFSETS][row]))
            return f"{name_of(outputs, index, 'output')} {side} {bound:.6g}"
    return f"output row {row}"


def _networks(value: Any, tensors: Tensors, _: Sequence[Column]) -> list[str]:
    found: Networks = networks.read(value, tensors)
    return [
        f"Of {found.count} networks {len(found.verified)} are proved safe on the whole region "
        f"and {len(found.refuted)} are proved to fail in it."
    ]


def _boxes(value: Any, tensors: Tensors, _: Sequence[Column]) -> list[str]:
    # Where the boxes are does not matter here, and the posterior's centre is not stored.
    found = boxes.read(value, tensors, center=next(iter(tensors.values())))
    count = len(found.boxes)
    some = "one box" if count == 1 else f"{count} boxes"
    mass = "The lower bound is its mass"
    if count != 1:
        mass = f"The lower bound is the mass of their union, {_rule(found)}"
    where = "; ".join(
        f"{_center(box.draw)}, {box.steps} {'step' if box.steps == 1 else 'steps'}"
        for box in found.boxes[:SHOWN]
    )
    more = f"; and {count - SHOWN} more" if count > SHOWN else ""
    bound = BOUNDS.get(found.bound, found.bound)
    return [
        (
            f"Every network in {some} of weights is proved safe on the whole region, "
            f"by {bound}. {mass}."
        ),
        f"Centre and size: {where}{more}. {_growth(found.growth)}",
    ]


def _rule(found: Boxes) -> str:
    if found.cells:
        return f"cut into {len(found.cells)} disjoint cells"
    return RULES.get(found.rule, found.rule)


def _center(draw: int | None) -> str:
    return "the posterior's centre" if draw is None else f"draw {draw}"


def _growth(growth: Growth) -> str:
    step = f"One step is {growth.step:g} σ to either side"
    if not growth.rho:
        return f"{step}."
    where = "and sides where the margin does not fall"
    if growth.zero_gradient_only:
        where = "whose gradient is 0"
    return f"{step}, {1 + growth.rho:g} times that for weights {where}."


def _concentration(value: Any, tensors: Tensors, outputs: Sequence[Column]) -> list[str]:
    found: Concentration = concentration.read(value, tensors)
    words = []
    for i, component in enumerate(found.components):
        several = len(found.components) > 1
        name = f"Component {i} (weight {component.weight:.6g}): " if several else ""
        words.append(name + _lower(component.lower))
        if component.upper is not None:
            words.append(name + _upper(component.upper, tensors, outputs))
    return words


def _lower(proof: Proved) -> str:
    if not proof.bound > 0:
        return "No lower bound above 0 was found."
    if isinstance(proof, Joint):
        pairs = sum(len(law.rows) == 2 for law in proof.laws)
        return (
            f"With probability at least {proof.bound!r} every output row is positive at the input: "
            f"by the laws of {len(proof.laws) - pairs} rows{_pairs(pairs)}."
        )
    if isinstance(proof, AnchorLaw):
        return (
            f"By the laws of the output rows, each at an anchor and on the way from there, all of "
            f"them are positive on the whole region with probability at least "
            f"{proof.bound!r}: {len(proof.numbers)} rows on lattices of {proof.size} points"
            f"{_pairs(len(proof.together))}."
        )
    if isinstance(proof, Law):
        return (
            f"By the laws of the output rows, neuron by neuron, all of them are positive on the "
            f"whole region with probability at least {proof.bound!r}: {len(proof.numbers)} rows on "
            f"a lattice of {proof.size} points{_pairs(len(proof.together))}."
        )
    if isinstance(proof, Deep):
        return (
            f"With probability at least {proof.bound!r} every output row is positive at the input, "
            "by exponential moments of both hidden layers."
        )
    if isinstance(proof, Correlated):
        return (
            f"With probability at least {proof.bound!r} every output row is positive at the input, "
            "by moments of what the output is given all pre-activations."
        )
    if proof.cut is not None:
        return (
            f"The region is cut into {_parts(proof)} parts, each with a proof; "
            f"their failures sum to {1 - proof.bound!r}."
        )
    said = (
        f"With probability at least {proof.bound!r} every hidden neuron stays in its interval "
        f"(threshold t = {proof.t:g}) and every output row is positive on the whole region"
    )
    if proof.trees:
        leaves = sum(len(tree.paths) for tree in proof.trees.values())
        rows = len(proof.trees)
        some = f"{leaves} {'leaf' if leaves == 1 else 'leaves'}"
        what = f"{rows} {'row' if rows == 1 else 'rows'}"
        return f"{said}, by branch and bound: {some} for {what}."
    return said + (", with slopes optimised for every row." if proof.row_slopes else ".")


def _pairs(count: int) -> str:
    if not count:
        return ""
    return f", less what {count} {'pair' if count == 1 else 'pairs'} of them fail together"


def _parts(proof: Proof) -> int:
    if proof.cut is None:
        return 1
    return _parts(proof.cut.below) + _parts(proof.cut.above)


def _upper(upper: Refutation, tensors: Tensors, outputs: Sequence[Column]) -> str:
    which = row_in_words(upper.row, tensors, outputs)
    least = f"{upper.proof.bound!r}"
    if isinstance(upper.proof, Correlated):
        several = " or its opposite" if len(upper.proof.groups[0].rows) > 1 else ""
        return f"At the stored point {which}{several} fails with probability at least {least}."
    if isinstance(upper.proof, Joint):
        others = sum(len(law.rows) == 1 for law in upper.proof.laws) - 1
        several = f" or one of {others} more" if others else ""
        return f"At the stored point {which}{several} fails with probability at least {least}."
    where = "At the stored counterexample"
    if isinstance(upper.proof, ReplyLaw):
        where = "At an input of its own for every network"
    said = f"{where} {which} fails with probability at least {least}"
    if upper.opposite is None:
        return f"{said}."
    other = row_in_words(upper.opposite.row, tensors, outputs)
    where = " at a point of its own," if upper.opposite.both else ""
    said = (
        f"{said}, and {other}, its opposite,{where} with probability at least "
        f"{upper.opposite.proof.bound!r}"
    )
    if upper.opposite.both:
        return f"{said}; both fail together with probability at most {upper.opposite.both.most!r}."
    return f"{said}."


WORDS: dict[str, Callable[[Any, Tensors, Sequence[Column]], list[str]]] = {
    boxes.KIND: _boxes,
    concentration.KIND: _concentration,
    networks.KIND: _networks,
    SOFTMAX: lambda *_: [PREDICTIVE],
    MEAN: lambda *_: [PREDICTIVE],
}
