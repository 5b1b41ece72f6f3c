"""The fixed suite that every mutant meets."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import mpmath
import numpy as np
from flint import ctx

from mutants.anchor_values import anchor_laws, falls
from mutants.bounds import activation_lines, regions, steps, sums, walks
from mutants.brackets import radii
from mutants.cells import maps
from mutants.certificates import Case, accepted
from mutants.correlated_known import correlated
from mutants.curves_known import curve_lines
from mutants.deep_forms import forms
from mutants.deep_known import deep
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


CHECKS = (
    sums,
    regions,
    activation_lines,
    steps,
    walks,
    graphs,
    every_layer,
    heads,
    splits,
    unions,
    tails,
    masses,
    means,
    laws,
    line_laws,
    anchor_laws,
    falls,
    replies,
    curve_lines,
    deep,
    forms,
    correlated,
    joint_laws,
    shared_events,
    maps,
    radii,
)
# What a change of these modules is most likely to be caught by, which comes first then.
OWN = {
    "activations": (activation_lines, curve_lines, splits),
    "affine": (heads,),
    "arithmetic": (sums, steps),
    "correlated": (correlated,),
    "curves": (curve_lines,),
    "concentration": (shared_events,),
    "deep": (forms, deep),
    "functionals": (heads, graphs),
    "joint": (joint_laws, shared_events),
    "laws": (laws, line_laws, anchor_laws, falls, shared_events),
    "layers": (curve_lines, splits),
    "linear": (steps, graphs),
    "maps": (maps,),
    "mass": (masses, unions),
    "predictive": (means,),
    "radii": (radii,),
    "region": (regions,),
    "splits": (splits,),
    "tails": (tails,),
    "tangents": (curve_lines,),
    "weighted": (every_layer,),
    "wiring": (graphs, every_layer),
    "zonotopes": (every_layer,),
}


def run_suite(checker: Checker, folder: Path, module: str = "") -> None:
    """The first wrong outcome raises."""
    own = [check for part in module.split(".") for check in OWN.get(part, ())]
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
