"""bnncert: certified probabilistic robustness of Bayesian neural networks.

Names are imported when first used, so that the command line can answer --help without loading torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bnncert.version import __version__

if TYPE_CHECKING:
    from bnncert.box import Box
    from bnncert.certificate import Certificate, Result, read_certificate
    from bnncert.certification import certify
    from bnncert.correlated import LowRankNormal, Mixture, full_covariance
    from bnncert.decision import Decision, decide
    from bnncert.empirical import Empirical
    from bnncert.errors import InputError
    from bnncert.importers import (
        Query,
        from_dropout,
        from_laplace,
        from_numpyro,
        from_onnx,
        from_posteriors,
        from_pyro,
        from_samples,
        from_swag,
        from_torch,
        load_posterior,
        load_vnnlib,
        save_posterior,
    )
    from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, LeakyReLU, MaxPool2d, ReLU, Sigmoid, Tanh
    from bnncert.methods import GIE, PIE, Concentration, Enumeration, Sampling
    from bnncert.network import Network, mlp
    from bnncert.posterior import Laplace, Normal, StudentT, TruncatedNormal, Uniform
    from bnncert.problem import Problem
    from bnncert.specification import (
        Region,
        Specification,
        ball,
        class_robust,
        explicit_box,
        half_space,
        output_interval,
    )

_ROOMS = {
    "box": ("Box",),
    "certificate": ("Certificate", "Result", "read_certificate"),
    "certification": ("certify",),
    "correlated": ("LowRankNormal", "Mixture", "full_covariance"),
    "decision": ("Decision", "decide"),
    "empirical": ("Empirical",),
    "errors": ("InputError",),
    "importers": (
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
    ),
    "methods": ("GIE", "PIE", "Concentration", "Enumeration", "Sampling"),
    "layers": ("AvgPool2d", "Conv2d", "Dense", "Flatten", "LeakyReLU", "MaxPool2d", "ReLU", "Sigmoid", "Tanh"),
    "network": ("Network", "mlp"),
    "posterior": ("Laplace", "Normal", "StudentT", "TruncatedNormal", "Uniform"),
    "problem": ("Problem",),
    "specification": (
        "Region",
        "Specification",
        "ball",
        "class_robust",
        "explicit_box",
        "half_space",
        "output_interval",
    ),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "GIE",
    "PIE",
    "AvgPool2d",
    "Box",
    "Certificate",
    "Concentration",
    "Conv2d",
    "Decision",
    "Dense",
    "Empirical",
    "Enumeration",
    "Flatten",
    "InputError",
    "Laplace",
    "LeakyReLU",
    "LowRankNormal",
    "MaxPool2d",
    "Mixture",
    "Network",
    "Normal",
    "Problem",
    "Query",
    "ReLU",
    "Region",
    "Result",
    "Sampling",
    "Sigmoid",
    "Specification",
    "StudentT",
    "Tanh",
    "TruncatedNormal",
    "Uniform",
    "__version__",
    "ball",
    "certify",
    "class_robust",
    "decide",
    "explicit_box",
    "from_dropout",
    "from_laplace",
    "from_numpyro",
    "from_onnx",
    "from_posteriors",
    "from_pyro",
    "from_samples",
    "from_swag",
    "from_torch",
    "full_covariance",
    "half_space",
    "load_posterior",
    "load_vnnlib",
    "mlp",
    "output_interval",
    "read_certificate",
    "save_posterior",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bnncert' has no attribute {name!r}")
    value = getattr(import_module(f"bnncert.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
