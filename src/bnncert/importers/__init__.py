"""Importers: posteriors from files, one module per format."""

from __future__ import annotations

from pathlib import Path

from bnncert.errors import InputError
from bnncert.importers import native, npz
from bnncert.importers.variational import from_torch
from bnncert.network import Network
from bnncert.posterior import Posterior

__all__ = ["from_torch", "load_posterior", "save_posterior"]


def load_posterior(path: str | Path) -> tuple[Network, Posterior]:
    """The network and posterior in a `.safetensors` (native) or `.npz` file; never unpickles."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"posterior file {str(path)!r} does not exist; check the path")
    if path.suffix == ".safetensors":
        return native.load(path)
    if path.suffix == ".npz":
        return npz.load(path)
    raise InputError(f"posterior file {str(path)!r} has an unknown ending; give a .safetensors or .npz file")


def save_posterior(
    path: str | Path, network: Network, posterior: Posterior, notes: dict[str, object] | None = None
) -> None:
    """Write a native `.safetensors` file; `notes` (how it was trained, say) travel along and mean nothing to us."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"posterior file {str(path)!r} must end in .safetensors")
    native.dump(network, posterior, path, notes or {})
