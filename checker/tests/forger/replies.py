"""Random replies of adversaries who see the network, of one hidden layer of ReLUs."""

from __future__ import annotations

from typing import Any

import numpy as np

from forger.forgery import Forgery
from forger.line_laws import has_form, has_trunk, lattice, numbers
from forger.nets import Array, Net, Random, pick


def has_relus(net: Net) -> bool:
    """Whether the last layers have the form, of ReLUs that read the input."""
    return has_form(net) and net.layers[-2]["type"] == "ReLU" and not has_trunk(net)


def can_reply(r: Random, made: Forgery) -> bool:
    """Now and then also where the theorem is silent: of other activations, and in balls."""
    is_box = made.header["region"]["norm"] in ("linf", "box")
    return (has_relus(made.net) and is_box) or r.random() < 0.2


def reply(r: Random, made: Forgery, prefix: str, center: Array, row: int) -> dict[str, Any]:
    """Weights, a centre and a lattice, mostly such as could prove something."""
    last = made.net.layers[-1]
    flat = made.posterior.laws[int(prefix[1 : prefix.index(".")])].center
    flat = flat[: -last["outputs"]] if last["bias"] else flat
    out = flat[-last["inputs"] * last["outputs"] :].reshape(last["inputs"], last["outputs"])
    weights = -out @ made.tensors["rows"][row]
    law = lattice(r) | {"size": 2 ** int(pick(r, [6, 10, 12, 12]))}
    drawn = numbers if r.random() < 0.2 else _wide_enough
    made.tensors[f"{prefix}law.numbers"] = drawn(r, law["size"], (1,))
    made.tensors[f"{prefix}law.numbers"][:, 2] += 1e-3 * (r.random() < 0.9)
    made.tensors |= {
        f"{prefix}law.remainders": np.array([[0.1, float(pick(r, [1.0, 1e3, 1e9])), 1e-3]]),
        f"{prefix}law.weights": weights * pick(r, [1.0, 1.0, 1.0, -1.0, 0.0]),
        f"{prefix}law.center": center.reshape(-1) + pick(r, [0.0, 0.0, 0.0, 0.01]),
    }
    said = float(pick(r, [0.0, 4.0, 5.0, 5.0, 5.0, 5.0])), float(pick(r, [0.1, 1.0, 10.0]))
    law["reply"] = [number.hex() for number in said]
    return {"probability": (0.5).hex(), "law": law}


def _wide_enough(r: Random, size: int, shape: tuple[int, ...]) -> Array:
    """A lattice that holds the sum, mostly, and charges little for its ends."""
    found = numbers(r, size, shape)
    found[..., 0] = float(pick(r, [16.0, 32.0, 128.0])) / size
    found[..., 1] = -(size // 2)
    found[..., 2] = float(pick(r, [3.0, 10.0, 100.0, 1000.0]))
    found[..., 4] = float(pick(r, [1e-4, 1e-3, 1e-2]))
    return found
