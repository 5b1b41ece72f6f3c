"""A file of any kind that can be read, as a network, a posterior and notes on their origin."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bnncert.errors import InputError
from bnncert.importers import native, npz
from bnncert.importers.onnx import from_onnx
from bnncert.importers.state_dict import LIBRARIES, from_state_dict
from bnncert.importers.torch_file import load_state_dict
from bnncert.importers.variational import parameterisation
from bnncert.model.activations import Activation
from bnncert.model.network import Network
from bnncert.posteriors.base import Posterior

WHOLE = {"native": native.load, "npz": npz.load}  # files that hold the architecture too
ONNX = "onnx"  # the architecture and means; standard deviations are the caller's
FORMATS = (*LIBRARIES, *WHOLE, ONNX)


@dataclass(frozen=True)
class Assumptions:
    """What a `state_dict` does not say (an ONNX file lacks `std` alone).

    None leaves it to the format's default.
    """

    activation: str | None = None
    input_shape: Sequence[int] | None = None
    std: float | None = None
    layers: Sequence[str] | None = None
    bias: bool = True


@dataclass(frozen=True, eq=False)
class Imported:
    network: Network
    posterior: Posterior
    notes: dict[str, object]


def import_file(path: Path, kind: str, assumptions: Assumptions | None = None) -> Imported:
    """The posterior in a file of the given kind, one of FORMATS."""
    assumptions = assumptions or Assumptions()
    if kind not in FORMATS:
        raise InputError(f"format {kind!r} is not known; choose {', '.join(FORMATS)}")
    if not path.is_file():
        raise InputError(f"file {str(path)!r} does not exist; check the path")
    if kind not in LIBRARIES:
        network, posterior = _architecture_included(path, kind, assumptions)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return Imported(network, posterior, {"library": kind, "file": path.name, "sha256": sha256})
    state = load_state_dict(path)
    reading, normal = from_state_dict(
        state,
        kind,
        _activation(assumptions.activation or "relu"),
        assumptions.input_shape,
        assumptions.std,
        assumptions.layers,
        assumptions.bias,
    )
    notes = {
        **parameterisation(reading),
        "library": kind,
        "file": path.name,
        "sha256": state.sha256,
    }
    return Imported(reading.network, normal, dict(notes))


def _architecture_included(
    path: Path, kind: str, assumptions: Assumptions
) -> tuple[Network, Posterior]:
    own = Assumptions(std=assumptions.std) if kind == ONNX else Assumptions()
    if assumptions != own:
        rest = "but standard deviations" if kind == ONNX else "about their network"
        raise InputError(f"{kind} files say all {rest}; leave out what they say")
    if kind in WHOLE:
        return WHOLE[kind](path)
    if assumptions.std is None:
        warnings.warn(
            f"{path.name}: no standard deviation, taken as certain; give std=...", stacklevel=3
        )
    return from_onnx(path, assumptions.std or 0.0)


def _activation(name: str) -> Activation:
    known = {
        each: activation for each, activation in npz.ACTIVATIONS.items() if activation is not None
    }
    if name not in known:
        raise InputError(f"activation {name!r} is not known; choose {', '.join(known)}")
    return known[name]
