"""Posteriors from a `state_dict`: tensors with names, and no architecture.

The layers are those whose tensors are there; their order is that of the numbers in their names, or
of the file. Between them stands one activation. Strides, padding, pools and normalisations leave no
trace that could be read safely: a file of a network with them does not fit together, and is
refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.conventions import CONVENTIONS, Convention, convention_of
from bnncert.importers.reading import Reading, Source
from bnncert.importers.torch_file import StateDict
from bnncert.importers.variational import Std, posterior_of
from bnncert.model.activations import Activation, ReLU
from bnncert.model.layers import Conv2d, Dense, Flatten, Layer, Weighted
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

PLAIN = "torch"  # layers without standard deviations
LIBRARIES = (*CONVENTIONS, PLAIN)
ELSEWHERE = "build the module and use bnncert.from_torch in Python"
# What layers keep beside their weights: samplers that repeat them, priors, noise.
BESIDE = re.compile(
    r"(weight|bias)_(sampler|prior_dist)\..+|(eps|prior)_.+|(weight|bias)_eps|bias_zero"
)


@dataclass(frozen=True, eq=False)
class Found:
    """A layer in the file: its path, its tensors by their names in it, and their convention.

    None if it is plain.
    """

    path: str
    tensors: dict[str, Tensor]
    convention: Convention | None

    @property
    def prefix(self) -> str:
        return f"{self.path}." if self.path else ""

    @property
    def dimensions(self) -> int:
        names = self.names("weight")
        dimensions = self.tensors[names[0]].dim() if names else 0
        if dimensions not in (2, 4):
            raise InputError(f"layer {self.path!r} is no Linear and no Conv2d; {ELSEWHERE}")
        return dimensions

    def names(self, part: str) -> tuple[str, str | None] | None:
        """Names of the mean and the spread of "weight" or "bias"."""
        if self.convention:
            return self.convention.names(part, self.tensors)
        return (part, None) if part in self.tensors else None

    def claims(self, name: str) -> bool:
        """Whether it is a weight of the layer, or what its library keeps beside the weights."""
        if self.convention is None:
            return name in ("weight", "bias")
        own = [
            self.convention.names(part, [n for n in self.tensors if "." not in n])
            for part in ("weight", "bias")
        ]
        return BESIDE.fullmatch(name) is not None or any(name in pair for pair in own if pair)

    def sources(self, bias: bool) -> dict[str, Source]:
        found = {}
        for letter, part in (("W", "weight"), *([("b", "bias")] if bias else [])):
            names = self.names(part)
            if names:
                spread = self.prefix + names[1] if names[1] else None
                shape = tuple(self.tensors[names[0]].shape)
                found[letter] = Source(self.prefix + names[0], shape, spread, self.convention)
        return found


def from_state_dict(
    state: StateDict,
    library: str,
    activation: Activation | None = None,
    input_shape: Sequence[int] | None = None,
    std: Std | None = None,
    layers: Sequence[str] | None = None,
    bias: bool = True,
) -> tuple[Reading, Normal]:
    """The file's layers with `activation` (ReLU unless given) between them, and their posterior.

    `layers` gives their names in order where the file does not tell it. `bias=False` is for blitz,
    which stores biases that its layers do not use.
    """
    if library not in LIBRARIES:
        raise InputError(f"library {library!r} is not known; choose {', '.join(LIBRARIES)}")
    if not bias and library != "blitz":
        raise InputError(f"{library} stores no biases that are not used; leave the biases in")
    found = _order(_layers(state.tensors, library), state.ordered, layers)
    parts = [layer.sources(bias) for layer in found]
    network = _network([layer.path for layer in found], parts, activation or ReLU(), input_shape)
    sources = [source for part in parts for source in part.values()]
    reading = Reading(network, dict(zip(network.parameters, sources, strict=True)))
    return reading, posterior_of(reading, state.tensors, std)


def _layers(tensors: Mapping[str, Tensor], library: str) -> list[Found]:
    """The layers in the file; a tensor that belongs to none is refused."""
    convention = CONVENTIONS.get(library)
    weights = (
        ["weight", *(convention.mean.format(name) for name in convention.weights)]
        if convention
        else ["weight"]
    )
    split = (name.rpartition(".") for name in tensors)
    found = [
        _found(path, tensors, convention)
        for path in dict.fromkeys(p for p, _, name in split if name in weights)
    ]
    if convention and not any(layer.convention for layer in found):
        raise InputError(_no_layers(tensors, convention))
    claimed = {
        layer.prefix + name for layer in found for name in layer.tensors if layer.claims(name)
    }
    left = sorted(set(tensors) - claimed)
    if left or not found:
        raise InputError(
            f"{left[0] if left else 'nothing'!r} is not a weight "
            f"that {library} has in a Linear or Conv2d; {ELSEWHERE}"
        )
    frozen = [layer.path for layer in found if layer.convention and "weight_eps" in layer.tensors]
    if frozen:
        warnings.warn(
            f"frozen layers {', '.join(frozen)}: their posterior is read all the same", stacklevel=4
        )
    return found


def _found(path: str, tensors: Mapping[str, Tensor], convention: Convention | None) -> Found:
    prefix = f"{path}." if path else ""
    inside = {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
    return Found(
        path, inside, convention if convention and convention.names("weight", inside) else None
    )


def _no_layers(tensors: Collection[str], convention: Convention) -> str:
    """Why there are none, and whose names they are if anybody's."""
    groups: dict[str, list[str]] = {}
    for name in tensors:
        groups.setdefault(name.rpartition(".")[0], []).append(name.rpartition(".")[2])
    others = {each.library for each in map(convention_of, groups.values()) if each}
    wanted = f"{convention.mean.format('weight')!r} and {convention.spread.format('weight')!r}"
    hint = f"it looks like {', '.join(sorted(others))}" if others else "check what was saved"
    return f"the file has no {convention.library} layer (tensors named {wanted}); {hint}"


def _order(found: Sequence[Found], ordered: bool, given: Sequence[str] | None) -> list[Found]:
    """In the order in which the network applies them, convolutions before dense layers."""
    paths = {layer.path: layer for layer in found}
    if given is not None:
        if sorted(given) != sorted(paths):
            raise InputError(
                f"layers {', '.join(given)} must be all of {', '.join(paths)}, first to last"
            )
        return [paths[path] for path in given]
    result = []
    for dimensions in (4, 2):
        group = [layer for layer in found if layer.dimensions == dimensions]
        if len({re.sub(r"\d+", "0", layer.path) for layer in group}) <= 1:
            group.sort(key=_numbers)
        elif not ordered:
            names = ", ".join(layer.path for layer in group)
            raise InputError(
                f"the names {names} do not tell the layers' order; give it, first to last"
            )
        result += group
    return result


def _numbers(layer: Found) -> list[tuple[int, str]]:
    """The numbers in the path, compared as numbers however many digits they have."""
    digits = (number.lstrip("0") for number in re.findall(r"\d+", layer.path))
    return [(len(number), number) for number in digits]


def _network(
    paths: list[str],
    parts: list[dict[str, Source]],
    activation: Activation,
    input_shape: Sequence[int] | None,
) -> Network:
    layers: list[Layer] = []
    for part in parts:
        layer = _layer(part)
        if isinstance(layer, Dense) and len(layers) > 1 and isinstance(layers[-2], Conv2d):
            layers.append(Flatten())
        layers += [layer, activation]
    first = layers[0]
    if isinstance(first, Conv2d) and input_shape is None:
        raise InputError(
            f"layer {paths[0]!r} is a convolution; give the input shape (channels, height, width)"
        )
    shape = (
        (first.inputs,)
        if isinstance(first, Dense) and input_shape is None
        else tuple(input_shape or ())
    )
    if isinstance(first, Dense) and len(shape) > 1:
        layers.insert(0, Flatten())
    try:
        return Network(shape, tuple(layers[:-1]))
    except InputError as error:
        raise InputError(
            f"the layers {', '.join(paths)} do not fit together ({error}); a state_dict does not "
            f"tell strides, padding, pools and the order of layers: {ELSEWHERE}"
        ) from error


def _layer(part: Mapping[str, Source]) -> Weighted:
    shape = part["W"].shape
    bias = "b" in part
    if len(shape) == 2:
        layer: Weighted = Dense(shape[1], shape[0], bias)
    else:
        layer = Conv2d(shape[1], shape[0], (shape[2], shape[3]), bias=bias)
    if bias and part["b"].shape != shape[:1]:
        raise InputError(
            f"{part['b'].name!r} has shape {part['b'].shape}; {part['W'].name!r} has {shape}"
        )
    return layer
