"""Layers of networks: what `Network` is made of.

>>> from bnncert import Network, layers
>>> network = Network((2,), (layers.Dense(2, 3), layers.Tanh(), layers.Dense(3, 1)))
>>> network.outputs
1
"""

from bnncert.model.activations import (
    Hardtanh,
    LeakyReLU,
    PReLU,
    ReLU,
    Sigmoid,
    Tanh,
)
from bnncert.model.curves import ELU, GELU, SELU, HardSwish, Mish, SiLU, Softplus, Softsign
from bnncert.model.layers import Add, AvgPool2d, Conv2d, Dense, MaxPool2d, Scale
from bnncert.model.moves import Concat, Flatten, Pad, Permute, Reshape, Take
from bnncert.model.network import Residual

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "Add",
    "AvgPool2d",
    "Concat",
    "Conv2d",
    "Dense",
    "Flatten",
    "HardSwish",
    "Hardtanh",
    "LeakyReLU",
    "MaxPool2d",
    "Mish",
    "PReLU",
    "Pad",
    "Permute",
    "ReLU",
    "Reshape",
    "Residual",
    "Scale",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Take",
    "Tanh",
]
