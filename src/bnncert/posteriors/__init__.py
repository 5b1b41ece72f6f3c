"""Posteriors: distributions over the flat weight vector."""

from bnncert.posteriors.base import Posterior, sample
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import LowRankNormal, Mixture, full_covariance
from bnncert.posteriors.independent import Laplace, Normal, StudentT, TruncatedNormal, Uniform

__all__ = [
    "Empirical",
    "Laplace",
    "LowRankNormal",
    "Mixture",
    "Normal",
    "Posterior",
    "StudentT",
    "TruncatedNormal",
    "Uniform",
    "full_covariance",
    "sample",
]
