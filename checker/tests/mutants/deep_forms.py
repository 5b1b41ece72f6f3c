"""Two hidden layers: choices and networks that the theorem does not speak of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mutants.deep_known import WIDE, choices, network
from mutants.fresh import chain
from mutants.outcomes import Checker, never


def forms(checker: Checker) -> None:
    signs(checker)
    points(checker)


def signs(checker: Checker) -> None:
    """What the theorem does not speak of."""
    good = choices(checker, 9.0, WIDE, 0.2, 1.0, 0.1, (0.0, 0.0, 0.0))
    require = checker.evidence.deep._require_signs
    require(good, "")
    for name, index, value in (
        ("caps", 0, -1.0),
        ("ends", (0, 0), 10.0),
        ("ends", (0, 2), 0.0),
        ("ends", (0, 2), 2.0),
        ("tilts", (0, 0), 0.0),
        ("ceilings", 0, -0.1),
        ("majorants", (0, 0, 3), -0.1),
        ("curvatures", (0, 0), -0.1),
        ("powers", 0, 0.99),
    ):
        numbers = getattr(good, name).copy()
        numbers[index] = value
        never(_passes(checker, require, replace(good, **{name: numbers}), ""), name)
    for capped in ([0, 0], [1], [-1]):
        tensors = checker.grammar.Tensors({"capped": np.array(capped, np.int32)})
        never(_passes(checker, checker.evidence.deep._capped, tensors, "capped", 1), "capped")


def points(checker: Checker) -> None:
    """Neither balls nor other networks or noise."""
    own_network = network(checker)
    fields = {"mean": np.zeros(6), "std": np.ones(6)}
    own = [checker.model.Posterior(name, fields) for name in ("normal", "laplace")]
    never(not checker.deep.rows.is_deep(own_network, own[0]), "what it is about is left out")
    never(checker.deep.rows.is_deep(own_network, own[1]), "other noise")
    curved = list(own_network.layers)
    curved[1] = checker.layers.Activation("Tanh", None, 1, 1)
    other = chain(checker, (1,), tuple(curved))
    never(checker.deep.rows.is_deep(other, own[0]), "another activation")
    short = chain(checker, (1,), own_network.layers[:3])
    never(checker.deep.rows.is_deep(short, own[0]), "one hidden layer")
    wired = replace(own_network, reads=(*own_network.reads[:-1], (2,)))
    never(checker.deep.rows.is_deep(wired, own[0]), "another wiring")


def _passes(checker: Checker, call: Any, *given: Any) -> bool:
    try:
        call(*given)
    except checker.verdict.Reason:
        return False
    return True
