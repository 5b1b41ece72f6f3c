"""The fixed suite that every mutant meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import mpmath
import numpy as np
from flint import ctx

from mutants.anchor_values import anchor_laws, falls
from mutants.bounds import activation_lines, regions, steps, sums, walks
from mutants.brackets import radii
from mutants.cells import maps
from mutants.certificates import Case, accepted
from mutants.correlated_known import CORRELATED
from mutants.curves_known import curve_lines
from mutants.deep_forms import forms
from mutants.deep_known import DEEP
from mutants.evidence_cases import (
    box_cases,
    form_cases,
    mixture_cases,
    network_cases,
    predictive_cases,
)
from mutants.graphs_known import graphs
from mutants.heads_known import heads
from mutants.joint_values import joint_laws, shared_events
from mutants.law_values import laws
from mutants.layer_cases import (
    hidden_cases,
    line_cases,
    norm_cases,
    shared_cases,
    tree_cases,
    width_cases,
)
from mutants.layers_known import every_layer
from mutants.line_values import line_laws
from mutants.lines import LINES, lines
from mutants.outcomes import Checker, never
from mutants.probabilities import masses, means, tails, unions
from mutants.reply_values import replies
from mutants.splits_known import splits

Check: TypeAlias = Callable[[Checker], None]


@cache
def cases() -> list[Case]:
    groups = (
        line_cases,
        norm_cases,
        hidden_cases,
        shared_cases,
        tree_cases,
        mixture_cases,
        box_cases,
        form_cases,
    )
    groups += (predictive_cases, network_cases, width_cases)
    return [one for group in groups for one in group()]


# Cheap ones first: what one of them catches does not wait for a dear one.
CHECKS = (
    regions,
    tails,
    means,
    heads,
    steps,
    activation_lines,
    sums,
    walks,
    unions,
    masses,
    radii,
    forms,
    falls,
    maps,
    graphs,
    curve_lines,
    every_layer,
    anchor_laws,
    laws,
    line_laws,
    replies,
    splits,
    joint_laws,
    shared_events,
    *chain.from_iterable(CORRELATED.values()),
    *chain.from_iterable(DEEP.values()),
)
# What a change of these modules is most likely to be caught by, which comes first then: by a
# module's whole name, or else by its parts.
OWN = {
    "activations": (activation_lines, curve_lines, splits),
    "affine": (heads,),
    "arithmetic": (sums, steps),
    "curves": (curve_lines,),
    "evidence.concentration": (falls, shared_events),
    "evidence.deep": (forms,),
    "functionals": (heads,),
    "joint": (joint_laws, shared_events),
    "laws": (laws, line_laws, shared_events),
    "laws.anchored": (anchor_laws, falls),
    "laws.anchors": (anchor_laws, falls),
    "laws.lines": (line_laws,),
    "laws.replies": (replies,),
    "laws.reply": (replies,),
    "layers": (curve_lines, splits),
    "linear": (steps, graphs),
    "maps": (maps,),
    "mass": (masses, unions),
    "predictive": (means,),
    "radii": (radii,),
    "region": (regions, replies),
    "splits": (splits,),
    "tails": (tails,),
    "tangents": (curve_lines,),
    "weighted": (every_layer,),
    "wiring": (graphs, every_layer),
    "zonotopes": (every_layer,),
}
OWN |= {f"correlated.{part}": checks for part, checks in CORRELATED.items()}
OWN |= {f"deep.{part}": (forms, *checks) for part, checks in DEEP.items()}


def own_checks(module: str) -> Sequence[Check]:
    return OWN.get(module) or [check for part in module.split(".") for check in OWN.get(part, ())]


def run_suite(checker: Checker, folder: Path, module: str = "") -> None:
    """The first wrong outcome raises."""
    own = own_checks(module)
    with ctx.workprec(128), np.errstate(all="ignore"), mpmath.workdps(60):
        for check in own:
            check(checker)
        for number, case in enumerate(cases()):
            for name in case.claims.keys() - {"true"}:
                never(accepted(checker, folder, number, name), f"{case.name}: {case.claims[name]}")
            if case.name in LINES:  # of results, that repeat it or do not
                lines(checker, folder, number, case.name)
        for check in CHECKS:
            if check not in own:
                check(checker)
