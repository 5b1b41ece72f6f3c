"""Tampering: over 10,000 changed certificates, and the checker accepts none whose claim is not
provably true still.

Two kinds of change: single bits of the file, and changes of meaning after which every digest is
made anew, so that only the mathematics can object. Most problems here have two Gaussian weights, so
P_safe of any changed question is an integral over the first of them, computed in `desk` without
anything of the checker.
"""

from __future__ import annotations

import math
from copy import deepcopy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from bnncert import Box, Problem, certify
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.specification import (
    Region,
    Specification,
    ball,
    class_robust,
    explicit_box,
    half_space,
    output_interval,
)
from bnncert_check import ACCEPT
from scenarios import paper_probability, uniform, vector
from tampering.changes import (
    BOXES,
    CLAIMS,
    CONCENTRATION,
    QUESTIONS,
    claims,
    edit_activation,
    edit_mean,
    edit_mixture,
    edit_sigma,
)
from tampering.desk import QUADRATURE, Desk, Draft, Tiny, Wide, parse

FLIPS, REPEATS = 620, 20  # of every certificate; of every change of meaning of every certificate
FLIPPED, CHANGED, FALSE = (
    7_000,
    3_500,
    300,
)  # mutants at least: flipped, changed, and of these surely false


# What a change leads to, None being acceptance; where nothing is said to anything, as long as it is
# true.
OUTCOMES: dict[str | None, tuple[str, ...]] = {
    None: ("claim as supported", "claim weaker", "hints"),
    "probability-too-high": ("claim up by ulps", "claim up"),
    "upper-too-low": ("upper down by ulps", "upper down", "upper bound"),
    "claim-not-a-probability": ("claim nonsense",),  # or malformed, where it is no number
    "cell-outside-parent": ("cell beyond its box",),
    "cells-overlap": ("separator missing",),
    "malformed": (
        "claim nonsense",
        "slope not finite",
        "components",
        "upper bound",
        "boxes as concentration",
        "concentration as boxes",
        "cell beyond its box",
        "threshold not positive",
    ),
    "slope-out-of-range": ("slope out of range",),
    "threshold-not-positive": ("threshold not positive",),
    "point-outside-region": ("point outside",),
    "unsupported": ("concentration as boxes",),
}


def base(
    tiny: Tiny, spec: Specification, method: Method, folder: Path, rule: str | None = None
) -> Draft:
    """The certificate that the prover writes; with another rule of union its claim is what that
    rule supports."""
    found = certify(Problem(tiny.network, tiny.posterior, spec), method)[0].certificate
    assert found is not None
    found.write(folder / "base.safetensors")
    draft, desk = parse((folder / "base.safetensors").read_bytes(), tiny), Desk(folder)
    if rule:
        draft.header["evidence"]["union"] = {"rule": rule}
        claims(draft, 0.0)
    verdict = desk.check(draft.sealed(desk.model(tiny)), tiny, "base")
    assert verdict.status == ACCEPT
    draft.supported = verdict.supported or (0.0, 1.0)
    if rule or not tiny.components:
        claims(draft, *draft.supported)
    return draft


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Draft]:
    """Certificates of every kind."""
    folder = tmp_path_factory.mktemp("bases")
    linear = Tiny("linear", ((1.0, (1.0, 0.5), (0.3, 0.3)),))
    classes = Tiny("classes", ((1.0, (1.0, 0.3), (0.2, 0.2)),))
    hidden = Tiny("hidden", ((1.0, (1.0, 1.0), (0.3, 0.3)),))
    narrow = Tiny("hidden", ((1.0, (1.0, 1.0), (0.1, 0.1)),))
    crossing = Tiny("hidden", ((1.0, (0.3, 1.0), (0.2, 0.1)),))
    mixture = Tiny("hidden", ((0.25, (1.0, 1.0), (0.1, 0.1)), (0.75, (0.9, 1.2), (0.12, 0.08))))
    x, two = vector(1.0).reshape(1, 1), vector(1.0, 0.5).reshape(1, 2)
    around, clipped = ball(x, 0.1), class_robust(ball(x, 0.1, clip=(0.0, 1.05)), [0], 2)

    def above(region: Region, bound: float) -> Specification:
        return half_space(region, vector(1.0), bound)

    upper = Concentration(effort=0, upper=True)
    found = {
        "one box": base(linear, above(ball(two, 0.1), 0.4), PIE(samples=1, step=0.3), folder),
        "cells": base(hidden, above(around, 0.2), PIE(samples=3, step=0.3), folder),
        "signs": base(linear, above(ball(two, 0.1, "l2"), 0.4), GIE(samples=3, step=0.3), folder),
        "inclusion-exclusion": base(
            classes, clipped, PIE(samples=3), folder, "inclusion-exclusion"
        ),
        "bonferroni": base(
            linear, above(ball(two, 0.1, "l1"), 0.4), PIE(samples=2), folder, "bonferroni"
        ),
        "input box": base(
            linear, above(explicit_box(Box(two - 0.1, two + 0.05)), 0.3), PIE(samples=2), folder
        ),
        "lower": base(narrow, above(around, 0.3), Concentration(effort=0), folder),
        "upper": base(narrow, output_interval(around, 1.3, 3.0), upper, folder),
        "classes": base(classes, clipped, Concentration(), folder),
        "mixture": base(mixture, above(around, 0.4), Concentration(effort=0), folder),
        "wide": base(Wide("wide", ()), wide_specification(), Sampling(samples=3, step=2.0), folder),
    }
    with pytest.MonkeyPatch.context() as patch:  # whose slopes no law is better than
        patch.setattr("bnncert.concentration.method.has_form", lambda *_: False)
        found["optimised rows"] = base(crossing, above(around, -0.2), Concentration(), folder)
    unions = [draft.header["evidence"].get("union", {}) for draft in found.values()]
    assert {(union.get("rule"), "cells" in union) for union in unions} == {
        ("cells", True),
        ("cells", False),
        ("inclusion-exclusion", False),
        ("bonferroni", False),
        (None, False),
    }
    tensors = {name for draft in found.values() for name in draft.tensors}
    assert tensors >= {
        "signs0",
        "center1",
        "c0.row_slopes1",
        "c0.point",
        "c1.lower_slopes1",
        "lower",
    }
    return found


def wide_specification() -> Specification:
    x = uniform(1, 2, generator=torch.Generator().manual_seed(2))
    network, posterior = Wide("wide", ()).network, Wide("wide", ()).posterior
    return class_robust(ball(x, 0.01), network.forward(posterior.mean, x).argmax(-1), 2)


def test_the_truth_is_known() -> None:
    """The integral, against the paper's example and a difference of two Gaussians."""
    hidden = Tiny("hidden", ((1.0, (0.0, 0.0), (1.0, 1.0)),))
    for eps in (0.0, 0.3):
        found = hidden.probability(
            np.array([[1 - eps], [1 + eps]]), np.array([[-1.0]]), np.array([1.0])
        )
        assert abs(found - paper_probability(eps)) < QUADRATURE
    classes = Tiny("classes", ((0.5, (1.0, 0.3), (0.2, 0.1)), (0.5, (1.0, 0.3), (0.2, 0.1))))
    found = classes.probability(np.array([[0.5], [1.5]]), np.array([[1.0, -1.0]]), np.zeros(1))
    assert abs(found - ndtr(0.7 / math.hypot(0.2, 0.1))) < QUADRATURE


def test_flipped_bits(bases: dict[str, Draft], tmp_path: Path) -> None:
    """What is accepted with a bit flipped speaks of the same question, and what it claims is
    true."""
    desk, random = Desk(tmp_path), np.random.default_rng(0)
    for name, draft in bases.items():
        content = draft.sealed(desk.model(draft.tiny))
        for place in random.choice(8 * len(content), FLIPS, replace=False).tolist():
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            if desk.check(bytes(flipped), draft.tiny, f"bit of {name}").status == ACCEPT:
                changed = parse(bytes(flipped), draft.tiny)
                assert changed.question == draft.question
                assert desk.true(changed.claim, changed, draft)
    desk.report()
    assert desk.verdicts.total() >= FLIPPED


def test_changed_meaning(bases: dict[str, Draft], tmp_path: Path) -> None:
    """With all digests made anew what is accepted is true, and so is whatever the checker says is
    supported."""
    desk, seen, false = Desk(tmp_path), set[tuple[bytes, Tiny]](), 0
    for name, draft in bases.items():
        evidence = BOXES if draft.header["kind"] == "boxes" else CONCENTRATION
        changes = CLAIMS | evidence | (QUESTIONS if draft.tiny.components else {})
        for number, (kind, _) in enumerate(product(changes, range(REPEATS))):
            changed = deepcopy(draft)
            if changes[kind](changed, np.random.default_rng(number)) is False:
                continue
            content = changed.sealed(desk.model(changed.tiny))
            if (content, changed.tiny) in seen:
                continue
            seen.add((content, changed.tiny))
            verdict = desk.check(content, changed.tiny, kind)
            expected = [code for code, kinds in OUTCOMES.items() if kind in kinds]
            assert verdict.code in expected or not expected, (name, kind, number, verdict)
            assert verdict.code != "digest-mismatch"
            false += desk.false(changed)
            if verdict.status == ACCEPT:
                assert desk.true(changed.claim, changed, draft), (name, kind, number, verdict)
            if verdict.supported and draft.tiny.components:
                assert desk.true(verdict.supported, changed, draft), (name, kind, number, verdict)
    desk.report()
    print(f"{false} with a false claim")
    assert desk.verdicts.total() >= CHANGED
    assert false >= FALSE
    assert {kind for kind, _ in desk.verdicts} == {*CLAIMS, *QUESTIONS, *BOXES, *CONCENTRATION}


def test_another_posterior(bases: dict[str, Draft], tmp_path: Path) -> None:
    """A certificate is for one posterior, to the last bit of it, and for one network."""
    desk = Desk(tmp_path)
    for draft in bases.values():
        content = draft.sealed(desk.model(draft.tiny))
        for change, number in product(
            (edit_sigma, edit_mean, edit_activation, edit_mixture), range(3)
        ):
            changed = deepcopy(draft)
            if (
                draft.tiny.components
                and change(changed, np.random.default_rng(number)) is not False
            ):
                assert desk.check(content, changed.tiny, "posterior").code == "digest-mismatch"
        other = next(
            other.tiny for other in bases.values() if other.tiny.network != draft.tiny.network
        )
        assert desk.check(content, other, "network").code in ("digest-mismatch", "malformed")
    desk.report()
