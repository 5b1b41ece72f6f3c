"""A question about a tiny network, in a folder, and the verdict on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bnncert_check import Verdict, check_certificate, read_model
from forger.forgery import Forgery, write
from forger.laws import Law, Posterior
from forger.nets import Net

ONE = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": 1, "bias": True},))
DUEL = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": 2, "bias": True},))
NO_SLOPES = {"t": (5.0).hex(), "rows_optimised": False}


def normal(mean: Any, std: Any) -> Posterior:
    return Posterior(
        (1.0,),
        (Law("normal", {"mean": np.array(mean, float), "std": np.array(std, float)}),),
        False,
    )


def networks(*samples: Any) -> Law:
    return Law("empirical", {"samples": np.array(samples, float)})


def asked(net: Net, posterior: Posterior, kind: str, rows: Any, **others: Any) -> Forgery:
    """A certificate about x = 0 alone, unless it is said otherwise."""
    rows = np.array(rows, float)
    claim = others.get("claim", {"lower": 0.0, "upper": 1.0})
    header = {"schema": "bnncert-certificate/1", "kind": kind, "evidence": others["evidence"]}
    header["claim"] = {name: float(value).hex() for name, value in claim.items()}
    header["region"] = {"norm": "linf", "clip": None, "eps": float(others.get("eps", 0.0)).hex()}
    x = np.array(others.get("x", np.zeros(net.input_shape)), float)
    tensors = {
        "x": x,
        "rows": rows,
        "offsets": np.array(others.get("offsets", np.zeros(len(rows))), float),
    }
    return Forgery(net, posterior, header, tensors | others.get("tensors", {}))


def verdict(made: Forgery, folder: Path) -> Verdict:
    model = read_model(write(folder / "p.safetensors", made.posterior.content(made.net)))
    return check_certificate(write(folder / "c.safetensors", made.seal()), model)


def first_activation(kind: dict[str, Any], inputs: int, neurons: int = 1) -> Forgery:
    """y = w·f(x) + b, w about -100, b about 1: surely negative at x = 1, unless the slopes of a
    tree have no width."""
    net = Net((inputs,), (kind, {"type": "Dense", "inputs": inputs, "outputs": 1, "bias": True}))
    posterior = normal([-100.0] * inputs + [1.0], [0.01] * (inputs + 1))
    lower = NO_SLOPES | {"probability": (0.5).hex(), "trees": [{"row": 0, "scale": None}]}
    evidence = {"components": [{"weight": "0x1p0", "lower": lower, "upper": None}]}
    tensors: dict[str, Any] = {f"c0.{side}_slopes0": np.ones(inputs) for side in ("lower", "upper")}
    tensors |= {
        "c0.open": np.zeros(neurons, np.int32),
        "c0.tree0.paths": np.zeros((1, 0), np.int32),
    }
    tensors |= {"c0.tree0.multipliers": np.zeros((1, 0), np.float32)}
    tensors["c0.tree0.slopes"] = np.ones((1, neurons), np.float32)
    claim = {"lower": 0.999999, "upper": 1.0}
    return asked(
        net,
        posterior,
        "concentration",
        [[1]],
        evidence=evidence,
        tensors=tensors,
        claim=claim,
        eps=0.1,
        x=[1.0] * inputs,
    )
