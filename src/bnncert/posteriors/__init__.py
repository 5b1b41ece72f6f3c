"""Posteriors: distributions over the flat weight vector.

>>> import torch
>>> from bnncert import mlp, posteriors
>>> size = mlp(2, 3, 1).size
>>> posteriors.Normal(torch.zeros(size).double(), torch.ones(size).double()).size
13
"""

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
