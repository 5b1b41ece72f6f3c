"""From a question to a problem: data, regions and conditions, and the method with its options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor

from bnncert.data import Dataset, inputs_for, seen_by
from bnncert.data.regions import load_radii
from bnncert.errors import InputError, closest
from bnncert.methods import METHODS, Method
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import (
    Specification,
    ball,
    box_around,
    class_robust,
    output_interval,
)
from bnncert.posteriors.base import Posterior
from bnncert.question import Question, require_kind, selection


@dataclass(frozen=True, eq=False)
class Asked:
    """A question with its data read: the problem, what its inputs are called, and all of the data
    that they are from.

    question: in the network's own numbers, as problem and data are.
    """

    problem: Problem
    indices: list[int]
    question: Question
    data: Dataset


def ask(question: Question, network: Network, posterior: Posterior) -> Asked:
    """The problem that a question poses, on the posterior's device."""
    question, data = as_the_network_sees(question, network)
    indices = selection(question.select, len(data.x))
    x, y = data.x[indices], labels_of(data, indices)
    if question.eps:
        x, y, eps = repeated(question, x, y)
    elif question.eps_file is not None:
        eps = torch.zeros(len(x), dtype=torch.float64)  # those of coordinates are read from it
    elif data.eps is None:
        raise InputError(
            "no radius is given; add --eps, or an array 'eps' to the .npz of the inputs"
        )
    else:
        eps = data.eps[indices]
    spec = specification(question, network, x, y, eps, data.image)
    names = [index for index in indices for _ in question.eps or (None,)]
    problem = Problem(network, posterior, spec.to(posterior.center.device))
    return Asked(problem, names, question, data)


def as_the_network_sees(question: Question, network: Network) -> tuple[Question, Dataset]:
    """The question and its data in the network's own numbers: standardised where it is, and with
    the targets and the tolerance of the one output that is asked about."""
    own = network.standardisation
    data = seen_by(own, inputs_for(own, question.inputs))
    if question.tolerance is None or data.y is None:
        return question, data
    output = _output(question, network)
    y = _targets_of(data.y, output, network.outputs, data.name)
    if own is None or not own.outputs:
        return question, replace(data, y=y)
    column = own.outputs[output]
    tolerance = question.tolerance / column.std
    return replace(question, tolerance=tolerance), replace(data, y=column.standardised(y.double()))


def _output(question: Question, network: Network) -> int:
    """The output that a tolerance is about."""
    count = network.outputs
    if question.output is None and count > 1:
        raise InputError(
            f"the network has {count} outputs; say by --output which of them, 0 to {count - 1}, "
            "the tolerance is about"
        )
    output = question.output or 0
    if not 0 <= output < count:
        raise InputError(
            f"output {output} does not exist; the network has outputs 0 to {count - 1}"
        )
    return output


def _targets_of(y: Tensor, output: int, outputs: int, name: str) -> Tensor:
    """The targets [N] of one output, from y of it [N] or of all [N, outputs]."""
    if y.dim() == 1:
        return y
    if y.shape[1] != outputs:
        raise InputError(
            f"{name!r} has {y.shape[1]} targets for each input, and the network {outputs} "
            "outputs; give y for each, or for the one that is asked about"
        )
    return y[:, output]


def specification(
    question: Question, network: Network, x: Tensor, y: Tensor, eps: Tensor, image: bool
) -> Specification:
    """Regions of radius eps [n], or of the radii of a file, around inputs x [n, ...], which take
    the network's shape, and the condition: class robustness from labels y [n], or with a tolerance
    a regression interval around targets."""
    if x[0].numel() != math.prod(network.input_shape):
        raise InputError(
            f"inputs have shape {tuple(x.shape[1:])}, the network takes {network.input_shape}; "
            "give matching inputs"
        )
    shaped = x.reshape(len(x), *network.input_shape)
    clip = question.clip_of(image)
    region = ball(shaped, eps, question.norm, clip)
    if question.eps_file is not None:
        region = box_around(shaped, load_radii(question.eps_file, network.input_shape), clip)
    if question.tolerance is not None:
        ends = (y.double() - question.tolerance, y.double() + question.tolerance)
        return output_interval(region, *ends, network.outputs, _output(question, network))
    if y.is_floating_point():
        raise InputError(
            "labels are not whole numbers; give classes, or certify a regression with a tolerance"
        )
    return class_robust(region, y, network.outputs, question.target)


def repeated(question: Question, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels and radii, once for each radius: item i·E + e is input i at radius e of E."""
    count = len(question.eps)
    each = torch.tensor(question.eps, dtype=torch.float64).repeat(len(x))
    return x.repeat_interleave(count, 0), y.repeat_interleave(count, 0), each


def labels_of(data: Dataset, indices: list[int]) -> Tensor:
    if data.y is None:
        raise InputError(f"inputs {data.name!r} have no labels; add an array 'y' to the .npz")
    return data.y[indices]


def method_named(name: str, options: Mapping[str, Any]) -> Method:
    """The method with the options given.

    One that it does not have, or of another type, is refused by name.
    """
    if name not in METHODS:
        raise InputError(f"method {name!r} is not known; choose {', '.join(METHODS)}")
    known = method_options(name)
    for key, value in options.items():
        if key not in known:
            others = ", ".join(option.replace("_", "-") for option in known) or "none"
            hint = closest(key, list(known)) or f"it has {others}"
            shown = key.replace("_", "-")
            raise InputError(f"method {name} has no option {shown!r}; leave it out ({hint})")
        require_kind(f"{name}.{key}", value, known[key])
    return METHODS[name](**options)


def method_options(name: str) -> dict[str, tuple[type, ...]]:
    """The options of a method with the types that each may have; None is said by leaving it out."""
    kind = METHODS[name]
    hints = get_type_hints(kind)
    return {key: _kinds(hints[key]) for key in kind.__dataclass_fields__}


def _kinds(hint: Any) -> tuple[type, ...]:
    kinds = tuple(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)
    return (int, *kinds) if float in kinds else kinds
