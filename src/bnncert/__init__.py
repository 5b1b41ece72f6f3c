"""bnncert: certified probabilistic robustness of Bayesian neural networks.

Names are imported when first used, so that the command line can answer --help without loading
torch. Layers are in `bnncert.layers`, posterior families in `bnncert.posteriors`, what reads other
libraries' files and objects in `bnncert.importers`.

>>> import torch
>>> from bnncert import Problem, ball, certify, half_space, mlp
>>> from bnncert.posteriors import Normal
>>> ones = torch.ones(2).double()
>>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
>>> certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))
index  label  predicted     status  lower  upper
    0      -          -  certified      1      1
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bnncert.version import __version__

if TYPE_CHECKING:
    from bnncert import importers, layers, posteriors
    from bnncert._certify import certify, decide
    from bnncert.data import load_inputs
    from bnncert.errors import InputError
    from bnncert.estimate import Estimate
    from bnncert.evidence.certificate import Certificate, read_certificate
    from bnncert.exporters.samples import save_samples
    from bnncert.importers import from_torch, load_posterior, save_posterior
    from bnncert.methods import GIE, PIE, Concentration, Enumeration, Method, Sampling
    from bnncert.model.box import Box
    from bnncert.model.network import Network, Residual, mlp
    from bnncert.model.problem import Problem
    from bnncert.model.specification import (
        Region,
        Specification,
        ball,
        class_robust,
        explicit_box,
        half_space,
        output_interval,
    )
    from bnncert.model.standardisation import Column, Standardisation
    from bnncert.posteriors import Posterior
    from bnncert.results.rows import Decision, Result, Status
    from bnncert.results.sequence import Decisions, Results
    from bnncert.robust import robust_loss

_NAMESPACES = ("importers", "layers", "posteriors")
_ROOMS = {
    "_certify": "certify decide",
    "data": "load_inputs",
    "errors": "InputError",
    "estimate": "Estimate",
    "exporters.samples": "save_samples",
    "evidence.certificate": "Certificate read_certificate",
    "importers": "from_torch load_posterior save_posterior",
    "methods": "GIE PIE Concentration Enumeration Method Sampling",
    "model.box": "Box",
    "model.network": "Network Residual mlp",
    "model.problem": "Problem",
    "model.specification": (
        "Region Specification ball class_robust explicit_box half_space output_interval"
    ),
    "model.standardisation": "Column Standardisation",
    "posteriors": "Posterior",
    "results.rows": "Decision Result Status",
    "results.sequence": "Decisions Results",
    "robust": "robust_loss",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = [
    "GIE",
    "PIE",
    "Box",
    "Certificate",
    "Column",
    "Concentration",
    "Decision",
    "Decisions",
    "Enumeration",
    "Estimate",
    "InputError",
    "Method",
    "Network",
    "Posterior",
    "Problem",
    "Region",
    "Residual",
    "Result",
    "Results",
    "Sampling",
    "Specification",
    "Standardisation",
    "Status",
    "__version__",
    "ball",
    "certify",
    "class_robust",
    "decide",
    "explicit_box",
    "from_torch",
    "half_space",
    "importers",
    "layers",
    "load_inputs",
    "load_posterior",
    "mlp",
    "output_interval",
    "posteriors",
    "read_certificate",
    "robust_loss",
    "save_posterior",
    "save_samples",
]


def __getattr__(name: str) -> object:
    if name in _NAMESPACES:
        return import_module(f"bnncert.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'bnncert' has no attribute {name!r}")
    value = getattr(import_module(f"bnncert.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
