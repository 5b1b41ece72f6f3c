"""Digests: SHA-256 of contents, independent of the file they came in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
from torch import Tensor

# Making one takes as long as using it.
ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no spaces, no NaN: equal values give equal bytes."""
    return ENCODER.encode(value)


def digest(header: object, arrays: Iterable[Tensor] = ()) -> str:
    """SHA-256 of canonical JSON, then of each array: its shape as canonical JSON, its little-endian
    float64 bytes."""
    running = hashlib.sha256(canonical_json(header).encode())
    for array in arrays:
        running.update(canonical_json(list(array.shape)).encode())
        running.update(np.ascontiguousarray(array.detach().cpu().numpy(), dtype="<f8").tobytes())
    return running.hexdigest()
