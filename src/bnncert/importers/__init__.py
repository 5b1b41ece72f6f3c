"""Importers: posteriors, networks and questions from files, one module per format.

>>> from bnncert import importers
>>> [name for name in importers.__all__ if name.startswith("load")]
['load_posterior', 'load_vnnlib']
"""

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
    """The network and posterior in a `.safetensors` (native) or `.npz` file; never unpickles.

    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> arrays = {"W0_mean": np.eye(2), "b0_mean": np.zeros(2)}
    >>> arrays |= {"W0_std": np.ones((2, 2)), "b0_std": np.ones(2)}
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/posterior.npz", **arrays)
    ...     network, posterior = load_posterior(f"{folder}/posterior.npz")
    >>> network.parameters, posterior.family
    ({'W0': (2, 2), 'b0': (2,)}, 'normal')
    """
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
    """Write a native `.safetensors` file.

    `notes` (how it was trained, say) travel along and mean nothing to us.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> from bnncert import mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/posterior.safetensors"
    ...     save_posterior(path, mlp(1, 1), Normal(ones, ones / 10))
    ...     load_posterior(path)[1].mean
    tensor([1., 1.], dtype=torch.float64)
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(f"posterior file {str(path)!r} must end in .safetensors")
    native.dump(network, posterior, path, notes or {})
