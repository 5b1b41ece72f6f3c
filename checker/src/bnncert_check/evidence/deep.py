"""The choices of a bound for two hidden layers at a point, as certificates hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.deep.rows import Deep, is_deep
from bnncert_check.evidence.proof import Asked
from bnncert_check.grammar import Tensors, exact, flag, members
from bnncert_check.verdict import CannotCheck, Rejected


def read_deep(value: Any, prefix: str, asked: Asked) -> Deep:
    """Every number may be anything that the theorem speaks of."""
    found = members(value, f"proof {prefix!r}", ("probability", "two_layers"))
    exact(found["probability"], f"the probability of {prefix!r}")
    flag(found["two_layers"], f"whether {prefix!r} is for two layers")
    if not is_deep(asked.model.network, asked.posterior):
        raise CannotCheck(
            "unsupported", f"proof {prefix!r} is for two hidden ReLU layers of independent weights"
        )
    _, first, _, second, _ = (layer.outputs for layer in asked.model.network.layers)
    tensors, rows = asked.tensors, asked.rows

    def numbers(name: str, *shape: int) -> Array:
        return tensors.numbers(prefix + name, shape)

    capped = _capped(tensors, f"{prefix}capped", second)
    chosen = Deep(
        numbers("caps", first),
        numbers("ends", second, 4),
        numbers("tilts", second, 4),
        capped,
        numbers("ceilings", len(capped)),
        numbers("tails", len(capped), 3),
        numbers("scales", rows),
        numbers("majorants", rows, second, 4),
        numbers("centers", rows, first),
        numbers("curvatures", rows, first),
        numbers("powers", rows),
    )
    _require_signs(chosen, prefix)
    return chosen


def _require_signs(chosen: Deep, prefix: str) -> None:
    low, high, near, far = chosen.ends.T
    signs = {
        "caps": chosen.caps >= 0,
        "ends": (low <= high) & (near > 0) & (near <= far),
        "tilts": chosen.tilts > 0,
        "ceilings": chosen.ceilings >= 0,
        "majorants": chosen.majorants[..., 3] >= 0,
        "curvatures": chosen.curvatures >= 0,
        "powers": chosen.powers >= 1,
    }
    for name, holds in signs.items():
        if not holds.all():
            raise Rejected(
                "choice-out-of-range", f"tensor '{prefix}{name}' holds what the theorem does not"
            )


def _capped(tensors: Tensors, name: str, width: int) -> NDArray[np.int64]:
    """Neurons of the second layer, each once."""
    (count,) = tensors.shape(name, 1)
    found = tensors.take(name, (count,), "int32").astype(np.int64)
    if not ((found >= 0) & (found < width)).all() or len(np.unique(found)) < count:
        raise CannotCheck("malformed", f"tensor {name!r} does not number neurons, each once")
    return found
