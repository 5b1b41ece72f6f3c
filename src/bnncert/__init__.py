"""bnncert: certified probabilistic robustness of Bayesian neural networks."""

from bnncert.box import Box
from bnncert.certificate import Certificate, Result, read_certificate
from bnncert.certify import certify
from bnncert.correlated import LowRankNormal, Mixture, full_covariance
from bnncert.errors import InputError
from bnncert.importers import load_posterior, save_posterior
from bnncert.methods import GIE, PIE, Concentration, Sampling
from bnncert.network import Dense, Flatten, LeakyReLU, Network, ReLU, Sigmoid, Tanh, mlp
from bnncert.posterior import Laplace, Normal, StudentT, TruncatedNormal, Uniform
from bnncert.problem import Problem
from bnncert.specification import Region, Specification, ball, class_robust, explicit_box, half_space, output_interval
from bnncert.version import __version__

__all__ = [
    "GIE",
    "PIE",
    "Box",
    "Certificate",
    "Concentration",
    "Dense",
    "Flatten",
    "InputError",
    "Laplace",
    "LeakyReLU",
    "LowRankNormal",
    "Mixture",
    "Network",
    "Normal",
    "Problem",
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
    "explicit_box",
    "full_covariance",
    "half_space",
    "load_posterior",
    "mlp",
    "output_interval",
    "read_certificate",
    "save_posterior",
]
