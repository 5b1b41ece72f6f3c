"""Ways to break a forgery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from forger.forgery import Forgery
from forger.nets import Random, pick
from forger.questions import KINDS


def break_something(r: Random, made: Forgery) -> str:
    """One thing is not as it should be; what it was."""
    name = str(pick(r, list(BREAKS)))
    BREAKS[name](r, made)
    return name


def _tensor(r: Random, made: Forgery) -> str:
    return str(pick(r, sorted(made.tensors)))


def _repeat_rows(r: Random, made: Forgery) -> None:
    times = int(pick(r, [2, 3, 50]))
    for name in ("rows", "offsets"):
        made.tensors[name] = np.repeat(made.tensors[name], times, 0)


def _empty(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    value = made.tensors[name]
    made.tensors[name] = value.reshape(-1)[:0].reshape(
        (0, *value.shape[1:]) if value.ndim else (0,)
    )


def _one_entry(r: Random, made: Forgery) -> None:
    """What would broadcast, if that were allowed."""
    name = _tensor(r, made)
    value = made.tensors[name]
    made.tensors[name] = (
        value.reshape(-1)[:1].reshape((1,) * max(1, value.ndim)) if value.size else value
    )


def _more_dimensions(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    made.tensors[name] = made.tensors[name][None]


def _other_type(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    made.tensors[name] = made.tensors[name].astype(
        pick(r, [np.float32, np.float64, np.int8, np.int32, np.float16])
    )


def _extreme(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    value = made.tensors[name].astype(made.tensors[name].dtype).copy()
    if value.size and value.dtype.kind == "f":
        value.reshape(-1)[int(r.integers(value.size))] = pick(
            r, [np.nan, np.inf, -1.0, 2.0, 1e30, -0.0]
        )
        made.tensors[name] = value


def _swap(r: Random, made: Forgery) -> None:
    first, second = _tensor(r, made), _tensor(r, made)
    made.tensors[first], made.tensors[second] = made.tensors[second], made.tensors[first]


def _drop(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    if name not in ("x", "rows", "offsets", "lower", "upper"):
        del made.tensors[name]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with every key."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [
            pair for inner in value.values() for pair in _places(inner)
        ]
    if isinstance(value, list):
        return [(value, i) for i in range(len(value))] + [
            pair for inner in value for pair in _places(inner)
        ]
    return []


def _json(r: Random, made: Forgery) -> None:
    container, key = pick(r, _places(made.header["evidence"]))
    values = [None, 0, 1, -1, 0.5, True, "", "0x1p0", "nan", [], {}, [[]], 10**30, "1"]
    container[key] = pick(r, values)


def _json_twice(r: Random, made: Forgery) -> None:
    lists = [c[k] for c, k in _places(made.header["evidence"]) if isinstance(c[k], list) and c[k]]
    if lists:
        chosen = pick(r, lists)
        chosen.append(chosen[int(r.integers(len(chosen)))])


def _json_dropped(r: Random, made: Forgery) -> None:
    container, key = pick(r, _places(made.header["evidence"]))
    del container[key]


def _json_added(r: Random, made: Forgery) -> None:
    objects = [c for c, _ in _places(made.header["evidence"]) if isinstance(c, dict)]
    pick(r, objects)["more"] = pick(r, [1, None, "0x1p0"])


def _other_kind(r: Random, made: Forgery) -> None:
    made.header["kind"] = pick(r, KINDS)


def _other_weights(_: Random, made: Forgery) -> None:
    for part in made.header["evidence"].get("components", []):
        if isinstance(part, dict):
            part["weight"] = (1.0).hex()


BREAKS: dict[str, Callable[[Random, Forgery], None]] = {
    "rows repeated": _repeat_rows,
    "empty array": _empty,
    "one entry": _one_entry,
    "more dimensions": _more_dimensions,
    "another type": _other_type,
    "extreme value": _extreme,
    "tensors swapped": _swap,
    "tensor dropped": _drop,
    "JSON changed": _json,
    "JSON repeated": _json_twice,
    "JSON dropped": _json_dropped,
    "JSON added": _json_added,
    "another kind": _other_kind,
    "other weights": _other_weights,
}
