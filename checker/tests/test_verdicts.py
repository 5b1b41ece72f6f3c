"""Every verdict that the checker knows, by changes of certificates."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from bnncert_check import ACCEPT, ERROR, REJECT, arithmetic, check_certificate
from bnncert_check.verdict import ERRORS, REJECTIONS
from checking import Workshop


@pytest.mark.parametrize("name", ["cells", "box", "lower", "upper"])
def test_certificates_are_accepted_with_all_that_is_known(name: str, workshop: Workshop) -> None:
    started = time.perf_counter()
    verdict = check_certificate(workshop.folder / f"{name}.safetensors", workshop.model)
    passed = time.perf_counter() - started
    assert (verdict.status, verdict.code, verdict.message) == (ACCEPT, None, "")
    assert verdict.claimed is not None
    assert verdict.supported is not None
    assert verdict.supported[0] >= verdict.claimed[0]
    assert verdict.supported[1] <= verdict.claimed[1]
    assert verdict.eps == 0.1
    assert verdict.label is None
    assert verdict.question.endswith("positive on linf ball of radius 0.1")
    assert 0 < verdict.seconds <= passed


# Edits by the code they lead to: the certificate, where in its header or tensors, and the new
# value; "" is acceptance.
STEPS, CUTS, PARENT, APART = (
    f"evidence/{place}"
    for place in ("boxes/0/steps", "union/cells/0/cuts", "union/cells/0/parent", "union/separators")
)
T, UPPER, ROW = (f"evidence/components/0/{place}" for place in ("lower/t", "upper", "upper/row"))
X, ROWS = "tensors/x", "tensors/rows"
EDITS: dict[str, list[tuple[str, str, Any]]] = {
    "": [
        ("lower", "method", None),
        ("lower", "versions", []),
        ("box", "evidence", (3, "inclusion-exclusion")),
    ],
    "digest-mismatch": [
        ("box", ROWS, np.ones((2, 1))),
        ("box", "tensors/offsets", np.ones(2)),
        ("box", X, np.zeros(1)),
        ("box", "region/eps", "0x1p-9"),
        ("box", "region/norm", "l2"),
        ("box", "region/clip", [0, 2]),
        *(
            ("box", f"digests/{part}", "0" * 64)
            for part in ("architecture", "posterior", "specification", "problem")
        ),
    ],
    "claim-not-a-probability": [
        ("box", "claim/lower", value) for value in ("-0x1p-1", "0x1.8p0", "-0x1p-1074")
    ],
    "region-empty": [("box", "region/clip", value) for value in ([5, 6], [1, 0])],
    "box-empty": [("cells", CUTS, [[0, "0x1p0", "0x1.fp-1"]])],
    "row-not-positive": [("box", STEPS, 1000), ("box", "evidence/growth/step", 10)],
    "cell-outside-parent": [("cells", CUTS, [[0, "-0x1p9", "0x1p9"]])],
    "cells-overlap": [("cells", APART, []), ("cells", "evidence/union", {"rule": "cells"})],
    "threshold-not-positive": [("lower", T, value) for value in ("0x0p0", "-0x1p0")],
    "slope-out-of-range": [
        ("lower", "tensors/c0.lower_slopes1", np.array([value])) for value in (1.5, -5e-324)
    ],
    "point-outside-region": [
        ("upper", "tensors/c0.point", np.array([value])) for value in (1.11, 0.89)
    ],
    "rows-not-opposite": [
        ("upper", "evidence/components/0/upper/opposite", {"row": 0, "failure": {}})
    ],
    "probability-too-high": [
        ("lower", "claim/lower", "0x1p0"),
        ("lower", T, "0x1p-1000"),
        ("box", "evidence/boxes", []),
        ("box", "evidence", (3, "bonferroni")),
    ],
    "upper-too-low": [
        ("box", "claim/upper", "0x1.fffffffffffffp-1"),
        ("upper", "claim/upper", "0x1p-99"),
    ],
    "malformed": [
        ("box", "claim/lower", 0.5),
        ("box", "claim/lower", "0x1p99999"),
        ("box", "claim", 7),
        ("box", "digests", []),
        ("box", "region", None),
        ("box", "region/norm", "box"),
        ("box", "region/eps", "-0x1p-9"),
        ("box", "region/eps", "inf"),
        ("box", "region/eps", None),
        ("box", "region/clip", [0, "inf"]),
        ("box", ROWS, np.zeros((0, 1))),
        ("box", ROWS, np.zeros((2, 2))),
        ("box", ROWS, np.array(1.0)),
        ("box", X, np.array([np.nan])),
        ("box", X, np.ones(1, np.int8)),
        ("box", X, np.ones((1, 1))),
        ("box", STEPS, "1"),
        ("box", STEPS, True),
        ("box", STEPS, 10**400),
        ("box", "evidence/boxes/0/draw", 7),
        ("box", "evidence/boxes", {"a": 1}),
        ("cells", PARENT, 9),
        ("cells", PARENT, -1),
        ("cells", CUTS, [[2, "0x1p0", "0x1p0"]]),
        ("cells", APART, [[1, 0]]),
        ("lower", "evidence/components", []),
        ("lower", "tensors/c0.upper_slopes1", np.ones(2)),
        ("lower", "kind", "boxes"),
        ("upper", ROW, 1),
        ("upper", "evidence/components/0/upper/opposite", {"row": 1, "failure": {}}),
        ("upper", "evidence/components/0/upper/opposite", None),
        ("upper", ROW, 0.0),
        ("box", "evidence", []),
        # What is not part of the format, or is not what it must be, is refused wherever it stands.
        ("box", X, np.ones(1, np.float32)),
        ("lower", "extra", "thing"),
        ("box", "claim/lower", "nan"),
        ("box", "claim/lower", "inf"),
        ("box", "claim/lower", "0.5"),
        ("box", "claim/gap", "0x1p-1"),
        ("box", "region/clip", ["nan", 1]),
        ("box", "region/clip", [0, 1, 2]),
        ("box", "region/clip", [False, True]),
        ("box", "region/more", 1),
        ("box", "digests/more", ""),
        ("box", STEPS, -1),
        ("box", "evidence/more", 1),
        ("box", "evidence/bound", "magic"),
        ("box", "evidence/growth/more", 1),
        ("box", "evidence/growth/rho", -1),
        ("box", "evidence/growth/step", None),
        ("box", "evidence/growth/zero_gradient_only", 0),
        ("box", "evidence/boxes/0/more", 1),
        ("box", "evidence/boxes/0/draw", -1),
        ("box", "evidence/union/more", 1),
        ("box", "tensors/signs0", np.full(2, 2, np.int8)),
        ("box", "tensors/signs0", np.zeros(2, np.int32)),
        ("box", "tensors/more", np.zeros(1)),
        ("box", "tensors/center7", np.zeros(2)),
        ("cells", "evidence/union/cells/0/more", 1),
        ("cells", "evidence/union/separators", "all"),
        ("cells", CUTS, [[0, "nan", "nan"]]),
        ("cells", CUTS, [[0, "0x1p0", "0x1p0"], [0, "0x1p0", "0x1p0"]]),
        ("cells", APART, [[1, 0, 0], [1, 0, 0]]),
        ("cells", APART, [[0, 1, 0]]),
        ("cells", APART, [[1, 0, 2]]),
        ("lower", T, "inf"),
        ("lower", T, "nan"),
        ("lower", T, "5"),
        ("lower", "evidence/more", 1),
        ("lower", "evidence/components/0/weight", "0x1p-1"),
        ("lower", "evidence/components/0/more", 1),
        ("lower", "evidence/components/0/lower/more", 1),
        ("lower", "evidence/components/0/lower/probability", 1),
        ("lower", "evidence/components/0/lower/rows_optimised", None),
        ("lower", UPPER, {}),
        ("lower", "tensors/c0.row_slopes1", np.ones((2, 1))),
        ("lower", "tensors/c0.point", np.ones(1)),
        ("lower", "tensors/c0.refined0", np.ones(1, np.int8)),
        ("upper", UPPER, None),
        ("upper", "evidence/components/0/upper/more", 1),
    ],
    "unsupported": [
        ("box", "schema", "bnncert-certificate/2"),
        ("box", "kind", "magic"),
        ("box", "region/norm", "l3"),
        ("box", "evidence/union/rule", "magic"),
        ("box", "evidence", (17, "inclusion-exclusion")),
    ],
    "not-finite": [("box", STEPS, 1e308)],
}
FOLDERS = {"certificate-missing", "result-mismatch", "result-repeated"}  # tested below
ELSEWHERE = {"unreadable", "arithmetic", "too-large"}  # too
NETWORKS = {"network-counted-twice", "network-not-refuted"}  # tested in test_check_networks.py
DECISIONS = {"gap-too-high"}  # tested in test_check_decision.py
LEAVES = {"multiplier-negative", "leaves-do-not-cover"}  # tested in test_check_refine.py
TWO_LAYERS = {"choice-out-of-range"}  # tested in test_deep.py
TRUNKS = {"trunk-outside-box"}  # tested in test_trunk_laws.py
MAPS = {"cell-mismatch", "cells-do-not-cover"}  # tested in test_maps.py
OTHERS = {"radius-not-proved", "manifest-mismatch"}  # tested in test_radii.py, test_manifest.py


@pytest.mark.parametrize("code", EDITS)
def test_edits_lead_to_every_verdict(code: str, workshop: Workshop) -> None:
    for name, place, value in EDITS[code]:
        verdict = workshop.edited(name, place, value)
        status = ACCEPT if not code else REJECT if code in REJECTIONS else ERROR
        assert (verdict.status, verdict.code or "") == (status, code), (name, place, value)
        assert bool(verdict.message) == bool(code)
        assert "\n" not in verdict.message


def test_no_verdict_is_left_out() -> None:
    known = {*EDITS, *FOLDERS, *ELSEWHERE, *NETWORKS, *DECISIONS, *LEAVES, *TWO_LAYERS}
    known |= TRUNKS | MAPS | OTHERS
    assert known == {"", *REJECTIONS, *ERRORS}
    assert not {*REJECTIONS} & {*ERRORS}


def test_arithmetic_that_is_not_ieee_is_refused(workshop: Workshop) -> None:
    with patch.object(
        arithmetic.np, "full", lambda *_: np.zeros(2)
    ):  # as if subnormals were flushed
        verdict = workshop.edited("box", "seed", 0)
    assert (verdict.status, verdict.code) == (ERROR, "arithmetic")


def test_flushed_subnormals_are_noticed(workshop: Workshop) -> None:
    """As torch flushes them, for the whole thread, they also compare equal to zero."""
    assert torch.set_flush_denormal(True)
    try:
        verdict = workshop.edited("box", "seed", 0)
    finally:
        torch.set_flush_denormal(False)
    assert verdict.code == "arithmetic"
