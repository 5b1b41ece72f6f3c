"""Activations of torch: modules, functions, and the layers that compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bnncert.importers.modules import is_standard
from bnncert.importers.values import Held, UnreadableError
from bnncert.model.activations import (
    Activation,
    Hardtanh,
    LeakyReLU,
    PReLU,
    ReLU,
    Sigmoid,
    Tanh,
)
from bnncert.model.curves import ELU, GELU, SELU, HardSwish, Mish, SiLU, Softplus, Softsign
from bnncert.model.layers import Shape

LEAST_THRESHOLD = 20  # torch's own


def _softplus(module: nn.Softplus) -> Activation:
    """Torch's is z itself beyond the threshold, which differs by at most exp(-threshold) / β."""
    if module.threshold < LEAST_THRESHOLD:
        raise UnreadableError(
            f"with threshold={module.threshold} is not log(1 + exp(beta z)) / beta, which is what "
            f"can be certified; give it at least {LEAST_THRESHOLD}"
        )
    return Softplus(float(module.beta))


def _parametric(module: nn.PReLU, shape: Shape) -> Activation:
    """At the slopes that it has: certain numbers, of which a posterior has none."""
    slopes = tuple(module.weight.detach().double().tolist())
    spread = () if len(slopes) == 1 else (len(slopes), *[1] * (len(shape) - 1))
    return PReLU(slopes, spread)


# What a module is at inputs of a shape.
ACTIVATIONS: dict[type[nn.Module], Callable[[Any, Shape], Activation]] = {
    nn.ReLU: lambda _, __: ReLU(),
    nn.LeakyReLU: lambda module, _: LeakyReLU(float(module.negative_slope)),
    nn.PReLU: _parametric,
    nn.ReLU6: lambda _, __: Hardtanh(0.0, 6.0),
    nn.Hardtanh: lambda module, _: Hardtanh(float(module.min_val), float(module.max_val)),
    nn.Tanh: lambda _, __: Tanh(),
    nn.Sigmoid: lambda _, __: Sigmoid(),
    nn.GELU: lambda module, _: GELU(module.approximate),
    nn.SiLU: lambda _, __: SiLU(),
    nn.Mish: lambda _, __: Mish(),
    nn.Softplus: lambda module, _: _softplus(module),
    nn.ELU: lambda module, _: ELU(float(module.alpha)),
    nn.SELU: lambda _, __: SELU(),
    nn.Hardswish: lambda _, __: HardSwish(),
    nn.Softsign: lambda _, __: Softsign(),
}
# By the names of functions, methods and operators of ATen: the module that does the same, of the
# arguments after the input.
FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
    "gelu": lambda approximate="none": nn.GELU(approximate),
    "silu": lambda: nn.SiLU(),
    "mish": lambda: nn.Mish(),
    "softplus": nn.Softplus,
    "elu": lambda alpha=1.0: nn.ELU(alpha),  # ATen's has scales after it
    "selu": lambda: nn.SELU(),
    "hardswish": lambda: nn.Hardswish(),
    "softsign": lambda: nn.Softsign(),
}


def is_activation(module: nn.Module) -> bool:
    return is_standard(module, *ACTIVATIONS)


def activation_of(module: nn.Module, shape: Shape) -> Activation:
    """The layer that a module of ACTIVATIONS is at inputs of a shape."""
    kind = next(kind for kind in ACTIVATIONS if is_standard(module, kind))
    return ACTIVATIONS[kind](module, shape)


def activation_called(name: str, shape: Shape, *arguments: object, **options: object) -> Activation:
    """The layer that a function of FUNCTIONS is."""
    kept = {key: value for key, value in options.items() if key != "inplace"}
    if any(isinstance(value, Held) for value in (*arguments, *kept.values())):
        raise UnreadableError("has a weight; use the module")
    try:
        return activation_of(FUNCTIONS[name](*arguments, **kept), shape)
    except TypeError as error:
        raise UnreadableError(f"has arguments {[*arguments]} {kept} that cannot be read") from error
