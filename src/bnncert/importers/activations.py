"""Activations of torch: modules, functions, and the layers that compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bnncert.importers.modules import is_standard
from bnncert.importers.values import Held, UnreadableError
from bnncert.model.activations import Activation, LeakyReLU, ReLU, Sigmoid, Tanh

ACTIVATIONS: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.ReLU: lambda _: ReLU(),
    nn.LeakyReLU: lambda module: LeakyReLU(float(module.negative_slope)),
    nn.Tanh: lambda _: Tanh(),
    nn.Sigmoid: lambda _: Sigmoid(),
}
# By the names of functions, methods and operators of ATen: the module that does the same, of the
# arguments after the input.
FUNCTIONS: dict[str, Callable[..., nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


def is_activation(module: nn.Module) -> bool:
    return is_standard(module, *ACTIVATIONS)


def activation_of(module: nn.Module) -> Activation:
    """The layer that a module of ACTIVATIONS is."""
    kind = next(kind for kind in ACTIVATIONS if is_standard(module, kind))
    return ACTIVATIONS[kind](module)


def activation_called(name: str, *arguments: object, **options: object) -> Activation:
    """The layer that a function of FUNCTIONS is."""
    kept = {key: value for key, value in options.items() if key != "inplace"}
    if any(isinstance(value, Held) for value in (*arguments, *kept.values())):
        raise UnreadableError("has a weight; use the module")
    try:
        return activation_of(FUNCTIONS[name](*arguments, **kept))
    except TypeError as error:
        raise UnreadableError(f"has arguments {[*arguments]} {kept} that cannot be read") from error
