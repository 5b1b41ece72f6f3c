"""Importers: posteriors, networks and questions from files, one module per format."""

from __future__ import annotations

from pathlib import Path

from bnncert.errors import InputError
from bnncert.importers import native, npz
from bnncert.importers.dropout import from_dropout
from bnncert.importers.laplace import from_laplace
from bnncert.importers.numpyro import from_numpyro
from bnncert.importers.onnx import from_onnx
from bnncert.importers.posteriors_library import from_posteriors
from bnncert.importers.pyro import from_pyro
from bnncert.importers.samples import from_samples, from_swag
from bnncert.importers.variational import from_torch
from bnncert.importers.vnnlib import Query, load_vnnlib
from bnncert.model.network import Network
from bnncert.posteriors.base import Posterior

__all__ = [
    "Query",
    "from_dropout",
    "from_laplace",
    "from_numpyro",
    "from_onnx",
    "from_posteriors",
    "from_pyro",
    "from_samples",
    "from_swag",
    "from_torch",
    "load_posterior",
    "load_vnnlib",
    "save_posterior",
]


def load_posterior(path: str | Path) -> tuple[Network, Posterior]:
    """The network and posterior in a `.safetensors` (native) or `.npz` file; never unpickles."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"posterior file {str(path)!r} does not exist; check the path")
    if path.suffix == ".safetensors":
        return native.load(path)
    if path.suffix == ".npz":
        return npz.load(path)
    raise InputError(
        f"posterior file {str(path)!r} has an unknown ending; give a .safetensors or .npz file"
    )


def save_posterior(
    path: str | Path, network: Network, posterior: Posterior, notes: dict[str, object] | None = None
) -> None:
    """Write a native `.safetensors` file; `notes` (how it was trained, say) travel along and mean
    nothing to us."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"posterior file {str(path)!r} must end in .safetensors")
    native.dump(network, posterior, path, notes or {})
