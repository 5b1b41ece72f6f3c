"""The evidence of a certificate in words, for people; programs read docs/certificate-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bnncert.certificate import Certificate

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


def in_words(certificate: Certificate) -> list[str]:
    """Sentences that say what was proved and how."""
    kind, evidence = certificate.header["kind"], certificate.header["evidence"]
    if kind == "boxes":
        return _boxes(evidence)
    if kind == "concentration":
        return _concentration(evidence, certificate.tensors)
    if kind == "networks":
        return [_networks(evidence)]
    return [f"Evidence of kind {kind}, which this report cannot put into words."]


def _networks(evidence: Mapping[str, Any]) -> str:
    verified, refuted, count = len(evidence["verified"]), len(evidence["refuted"]), evidence["networks"]
    return f"Of {count} networks {verified} are proved safe on the whole region and {refuted} are proved to fail in it."


def row_in_words(row: int, rows: Tensor) -> str:
    """Which output row: "class 3 before class 5" where it compares two outputs, its number otherwise."""
    coefficients = rows[row].tolist()
    if sorted(coefficients) == [-1.0] + [0.0] * (len(coefficients) - 2) + [1.0]:
        return f"class {coefficients.index(1.0)} before class {coefficients.index(-1.0)}"
    return f"output row {row}"


def _boxes(evidence: Mapping[str, Any]) -> list[str]:
    boxes, growth, union = evidence["boxes"], evidence["growth"], evidence["union"]
    bound = BOUNDS.get(evidence["bound"], evidence["bound"])
    some = "one box" if len(boxes) == 1 else f"{len(boxes)} boxes"
    mass = (
        "The lower bound is its mass"
        if len(boxes) == 1
        else f"The lower bound is the mass of their union, {_rule(union)}"
    )
    where = "; ".join(
        f"{_center(box['draw'])}, {box['steps']} {'step' if box['steps'] == 1 else 'steps'}" for box in boxes[:SHOWN]
    )
    more = f"; and {len(boxes) - SHOWN} more" if len(boxes) > SHOWN else ""
    return [
        f"Every network in {some} of weights is proved safe on the whole region, by {bound}. {mass}.",
        f"Centre and size: {where}{more}. {_growth(growth)}",
    ]


def _rule(union: Mapping[str, Any]) -> str:
    cells = union.get("cells")
    named = RULES.get(union["rule"], union["rule"])
    return f"cut into {len(cells)} disjoint cells" if cells else str(named)


def _center(draw: int | None) -> str:
    return "the posterior's centre" if draw is None else f"draw {draw}"


def _growth(growth: Mapping[str, Any]) -> str:
    step, rho = f"One step is {growth['step']:g} σ to either side", growth["rho"]
    if not rho:
        return f"{step}."
    where = "whose gradient is 0" if growth["zero_gradient_only"] else "and sides where the margin does not fall"
    return f"{step}, {1 + rho:g} times that for weights {where}."


def _concentration(evidence: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[str]:
    words = []
    for i, component in enumerate(evidence["components"]):
        several = len(evidence["components"]) > 1
        name = f"Component {i} (weight {float.fromhex(component['weight']):.6g}): " if several else ""
        words.append(name + _lower(component["lower"], tensors, f"c{i}."))
        if component["upper"]:
            words.append(name + _upper(component["upper"], tensors["rows"]))
    return words


def _lower(proof: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str) -> str:
    probability = float.fromhex(proof["probability"])
    if not probability > 0:
        return "No lower bound above 0 was found."
    if "at" in proof:
        count = _parts(proof)
        return f"The region is cut into {count} parts, each with a proof; their failures sum to {1 - probability!r}."
    t, trees = float.fromhex(proof["t"]), proof.get("trees", [])
    if trees:
        leaves = sum(len(tensors[f"{prefix}tree{tree['row']}.paths"]) for tree in trees)
        some = f"{leaves} {'leaf' if leaves == 1 else 'leaves'} for {len(trees)} {'row' if len(trees) == 1 else 'rows'}"
        return (
            f"With probability at least {probability!r} every hidden neuron stays in its interval (threshold "
            f"t = {t:g}) and every output row is positive on the whole region, by branch and bound: {some}."
        )
    slopes = ", with slopes optimised for every row" if proof["rows_optimised"] else ""
    return (
        f"With probability at least {probability!r} every hidden neuron stays in its interval (threshold t = {t:g}) "
        f"and every output row is positive on the whole region{slopes}."
    )


def _parts(proof: Mapping[str, Any]) -> int:
    return _parts(proof["below"]) + _parts(proof["above"]) if "at" in proof else 1


def _upper(upper: Mapping[str, Any], rows: Tensor) -> str:
    probability = float.fromhex(upper["failure"]["probability"])
    which = row_in_words(upper["row"], rows)
    return f"At the stored counterexample {which} fails with probability at least {probability!r}."
