"""Lines of results that repeat a certificate, or do not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

from mutants.outcomes import Checker, never

WITHIN = 2 * NormalDist().cdf(1) - 1 + 1e-6  # of 1, a standard normal
NOTHING = {"certificate": None, "lower": 0, "upper": 1, "status": "unverified"}
RIVAL = {"label": 0, "predicted": 0, "target": 1}
# By the case whose true claim they repeat: what a line says besides, and changes that must not be
# accepted.
LINES: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "a true claim": (
        {"lower": 0.9, "upper": 1.0, "status": "certified"},
        (
            {"certificate": None},
            {"lower": 0.95},
            {"upper": 0.95},
            {"eps": 50.0},
            {"status": "unverified"},
            {"at_least": "0.95"},
            {"at_least": "0.95", "status": "falsified"},
            {"at_least": "0.8", "status": "undecided"},
            {"at_least": "0.8", "status": "falsified"},
            {"answer": "unsat", "at_least": "0.95"},
            NOTHING | {"status": "certified"},
            {"input": 64 * "0"},
            NOTHING | {"answer": "unsat", "at_least": "0.5"},
        ),
    ),
    "a box": (
        {"lower": 0.9, "upper": 1.0, "status": "certified", "eps": 1.0},
        ({"eps": 50.0}, {"eps": 0.5}),
    ),
    "two ends": (
        {"lower": 0.0, "upper": WITHIN, "status": "unverified", "low": -1.0, "high": 1.0},
        ({"low": -2.0, "high": 2.0}, {"high": 0.0}, {"low": None}),
    ),
    "one rival": (
        {"lower": 0.9, "upper": 1.0, "status": "certified", **RIVAL},
        ({"target": None}, {"target": 2}, {"label": 1}, {"label": 2, "predicted": 2}),
    ),
    "a mean": ({"lower": 0.25, "upper": 0.75, "status": "certified"}, ({},)),  # which is no P_safe
    "a softmax": (
        {
            "lower": 0.94,
            "upper": 0.96,
            "gap": math.tanh(1.5) - 0.01,
            "quantity": "softmax",
            "status": "decided",
            "label": 0,
            "predicted": 0,
        },
        (
            {"quantity": "mean", "gap": None},
            {"gap": 0.99},
            {"status": "undecided"},
            {"label": None, "predicted": None},
        ),
    ),
}


def manifests(checker: Checker, folder: Path, model: Any, line: dict[str, Any]) -> None:
    """Of the line's question, or of another one."""
    region = {"norm": "linf", "eps": [0.0], "clip": None, "lower": [], "upper": []}
    digests = {"posterior": model.posterior_digest, "architecture": model.architecture_digest}
    about: dict[str, Any] = {
        "name": "p",
        "source": None,
        "family": model.family,
        "weights": model.weights,
    }
    question: dict[str, Any] = {
        "subjects": [about | digests],
        "region": region,
        "condition": {"kind": "rows"},
    }
    question |= {"quantity": "P_safe", "at_least": "0.5", "inputs": None}
    own: dict[str, Any] = {"schema": "bnncert-manifest/1", "question": question, "methods": []}
    own |= {"seed": 0, "estimate": 0, "features": [], "outputs": [], "versions": {}, "machine": {}}
    own |= {"date": "now", "command": None}
    others: tuple[dict[str, Any], ...] = (
        {"subjects": [about | digests | {"posterior": 64 * "0"}]},
        {"at_least": "0.4"},
        {"region": region | {"eps": [50.0]}},
        {"region": region | {"norm": "l2"}},
        {"region": region | {"clip": [0.0, 1.0]}},
    )
    path = folder / "manifest.json"
    try:
        for other in others:
            path.write_text(json.dumps(own | {"question": question | other}))
            (verdict,) = checker.check_results(folder, [line], model)
            never(verdict.status == checker.ACCEPT, f"a manifest with {other}")
        path.write_text(json.dumps(own))
        (verdict,) = checker.check_results(folder, [line], model)
        never(verdict.status != checker.ACCEPT, "not the manifest itself")
    finally:
        path.unlink()


def lines(checker: Checker, folder: Path, number: int, name: str) -> None:
    model, (said, changes) = checker.read_model(folder / f"{number}.posterior"), LINES[name]
    line: dict[str, Any] = {
        "index": 0,
        "label": None,
        "predicted": None,
        "eps": 0.0,
        "seconds": 0.0,
    } | said
    line |= {"certificate": f"{number}.true"}
    decisions = "quantity" in said
    line |= {} if decisions else {"method": "concentration", "bound_calls": 1, "seed": 0}
    (folder / "results.jsonl").unlink(missing_ok=True)
    (folder / "decisions.jsonl").unlink(missing_ok=True)
    (folder / ("decisions.jsonl" if decisions else "results.jsonl")).touch()
    if name == "a true claim":
        manifests(checker, folder, model, line | {"at_least": "0.5"})
    for change in changes:
        (verdict,) = checker.check_results(folder, [line | change], model)
        never(verdict.status == checker.ACCEPT, f"a line with {change}")
    if decisions:
        nothing = NOTHING | {"status": "undecided", "quantity": "mean", "gap": None}
        (verdict,) = checker.check_results(folder, [line | nothing], model)
        never(verdict.status == checker.ACCEPT, "nothing of a mean")
        return
    for other in ({"index": 1}, NOTHING):
        *_, verdict = checker.check_results(folder, [line, line | other], model)
        never(verdict.status == checker.ACCEPT, f"a second line with {other}")
