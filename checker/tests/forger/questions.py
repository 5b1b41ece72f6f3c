"""Random questions, and evidence of a kind that mostly fits them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from forger.evidence import boxes, concentration, networks, predictive
from forger.forgery import Forgery
from forger.laws import Posterior, random_posterior
from forger.nets import Array, Net, Random, pick

KINDS = ("boxes", "concentration", "concentration", "concentration", "networks", "softmax", "mean")


def forge(r: Random, net: Net, laws: bool = False) -> Forgery:
    """A random question with random evidence of a kind that mostly fits the posterior; of laws
    alone, concentration of Gaussians."""
    posterior = random_posterior(r, net)
    while laws and not _is_for_laws(r, net, posterior):
        posterior = random_posterior(r, net)
    kind = "concentration" if laws else pick(r, KINDS)
    if not laws and r.random() < 0.85:  # otherwise whatever comes: it must be refused
        kind = _fitting(r, posterior)
    made = Forgery(net, posterior, {"schema": "bnncert-certificate/1", "kind": kind})
    ask(r, made)
    claim = {"lower": (0.0).hex(), "upper": (1.0).hex()}
    claim |= {"gap": (-1.0).hex()} if kind == "softmax" else {}
    made.header["claim"] = (
        claim if kind != "mean" else {"lower": (-1e300).hex(), "upper": (1e300).hex()}
    )
    made.header["evidence"] = EVIDENCE[kind](r, made)
    return made


def _is_for_laws(r: Random, net: Net, posterior: Posterior) -> bool:
    """Independent Gaussians, mostly of the last two layers of weights alone."""
    before = any(any(law.random_layers(net)[:-3]) for law in posterior.laws)
    return posterior.families == {"normal"} and (not before or r.random() < 0.02)


def _fitting(r: Random, posterior: Posterior) -> str:
    families = posterior.families
    if families == {"empirical"}:
        return str(pick(r, ["networks", "softmax", "mean"]))
    if families <= {"normal", "low-rank-normal"}:
        boxed = ["boxes"] if families == {"normal"} and not posterior.mixture else []
        return str(pick(r, ["concentration", "concentration", "softmax", "mean", *boxed]))
    return "boxes"


def ask(r: Random, made: Forgery) -> None:
    """A region of any norm, and rows of any form; predictive means mostly get rows that they are
    for."""
    shape, kind = made.net.input_shape, made.header["kind"]
    x = np.round(r.normal(0, 1, shape), 2)
    norm = pick(r, ["linf", "linf", "l2", "l1", "box"])
    eps = float(pick(r, [0.0, 0.05, 0.2, 1.0]))
    clip = (
        [float(x.min()) - 0.1, float(x.max()) + 0.1] if norm != "box" and r.random() < 0.3 else None
    )
    made.header["region"] = {
        "norm": norm,
        "clip": clip,
        "eps": None if norm == "box" else eps.hex(),
    }
    made.tensors["x"] = x
    if norm == "box":
        sides = r.exponential(0.2, (2, *shape)) * (r.random((2, *shape)) < 0.8)
        made.tensors |= {"lower": x - sides[0], "upper": x + sides[1]}
    rows = _rows(r, made, kind)
    made.tensors["rows"] = rows
    if _is_duel(rows) and r.random() < 0.9:
        made.tensors["offsets"] = np.zeros(len(rows))
    else:  # true at the clean input, or false: upper bounds want that
        middle = 0.7 * pick(r, [1, 1, -1] if kind == "boxes" else [1, -1])
        made.tensors["offsets"] = (
            r.normal(middle, 0.7, len(rows)) - rows @ _central(made, x[None])[0]
        )


def _central(made: Forgery, points: Array) -> Array:
    """The outputs of the first component's central network, [P, outputs]."""
    return made.net.forward(made.posterior.laws[0].center[None], points)[0]


def _rows(r: Random, made: Forgery, kind: str) -> Array:
    outputs, style = made.net.shapes[-1][0], r.random()
    if kind == "mean" and style < 0.9:
        first = r.normal(0, 1, outputs)
        return np.stack(
            [first * pick(r, [1, -1]) if i else first for i in range(int(r.integers(1, 4)))]
        )
    if outputs > 1 and (style < 0.5 or kind == "softmax"):
        label = int(r.integers(outputs))
        if r.random() < 0.5:
            label = int(_central(made, made.tensors["x"][None])[0].argmax())
        rivals = [j for j in range(outputs) if j != label]
        chosen = (
            [*rivals]
            if r.random() < 0.8
            else [int(pick(r, rivals)) for _ in range(int(r.integers(1, 5)))]
        )
        return np.eye(outputs)[label] - np.eye(outputs)[chosen]
    count = int(r.integers(1, 4))
    if r.random() < 0.4:  # an interval
        first = r.normal(0, 1, outputs)
        return np.stack([first, -first])
    return (
        r.normal(0, 1, (count, outputs))
        if style < 0.8
        else np.repeat(r.normal(0, 1, (1, outputs)), count, 0)
    )


def _is_duel(rows: Array) -> bool:
    return bool((np.sort(rows)[:, [0, -1]] == [-1, 1]).all()) and rows.shape[1] > 1


EVIDENCE: dict[str, Callable[[Random, Forgery], dict[str, Any]]] = {
    "boxes": boxes,
    "concentration": concentration,
    "networks": networks,
    "softmax": predictive,
    "mean": predictive,
}
