"""Evidence: what certificates hold, one typed kind a module, each with `write` and `read`."""

from collections.abc import Callable
from typing import Any, TypeAlias

from bnncert.evidence import boxes, concentration, networks, predictive
from bnncert.evidence.boxes import Boxes
from bnncert.evidence.concentration import Concentration
from bnncert.evidence.networks import Networks
from bnncert.evidence.predictive import Predictive
from bnncert.evidence.written import Written

Evidence: TypeAlias = Boxes | Concentration | Networks | Predictive

WRITERS: dict[type, Callable[[Any], Written]] = {
    Boxes: boxes.write,
    Concentration: concentration.write,
    Networks: networks.write,
    Predictive: predictive.write,
}


def bound_names(evidence: Evidence) -> tuple[str, str]:
    """In a word each: which bound gave the lower end, and which the upper one."""
    if isinstance(evidence, Concentration):
        return concentration.bound_names(evidence)
    kind = boxes.KIND if isinstance(evidence, Boxes) else networks.KIND
    return kind, kind


def write(evidence: Evidence) -> Written:
    """Evidence as a file holds it."""
    return WRITERS[type(evidence)](evidence)
