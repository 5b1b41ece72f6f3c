"""The native posterior file: safetensors, one metadata key with the architecture and the family.

Tensors are named as in the `.npz` form: parameter, underscore, the family's field (`W0_mean`,
`b1_std`, `W0_low`, ...). `standardisation`, where there is one, lists the columns of inputs and
outputs with their means and standard deviations; digests do not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.tensors import read_tensors, write_tensors
from bnncert.model.layers import Shape
from bnncert.model.network import Network, from_description
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import GAUSSIAN, LowRankNormal, Mixture
from bnncert.posteriors.independent import FAMILIES, Normal

SCHEMA = "bnncert-posterior/1"
SINGLE: dict[str, type[Posterior]] = {
    **FAMILIES,
    LowRankNormal.family: LowRankNormal,
    Empirical.family: Empirical,
}


def dump(network: Network, posterior: Posterior, path: Path, notes: dict[str, object]) -> None:
    own = network.standardisation
    header = {
        "schema": SCHEMA,
        "network": network.describe(),
        "notes": notes,
        **({} if own is None else {"standardisation": asdict(own)}),
        **_describe(posterior),
    }
    write_tensors(path, header, _named(network, posterior))


def load(path: Path) -> tuple[Network, Posterior]:
    header, tensors = read_tensors(path, SCHEMA)
    network = from_description(header.get("network", {}))
    if "standardisation" in header:
        own = _standardisation(header["standardisation"], str(path))
        network = replace(network, standardisation=own)
    return network, _build(header, network, tensors, str(path))


def _standardisation(found: Any, path: str) -> Standardisation:
    try:
        inputs, outputs = (
            tuple(
                Column(str(part["name"]), float(part["mean"]), float(part["std"]))
                for part in found[name]
            )
            for name in ("inputs", "outputs")
        )
        return Standardisation(inputs, outputs)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path!r}: the standardisation is malformed ({error!r}); it has inputs and outputs, "
            "lists of columns with name, mean and std"
        ) from error


def load_notes(path: Path) -> dict[str, Any]:
    """What was written about its origin."""
    notes = read_tensors(path, SCHEMA)[0].get("notes")
    return notes if isinstance(notes, dict) else {}


def _describe(posterior: Posterior) -> dict[str, Any]:
    """The family; of a mixture also its weights, as hexadecimal floats, and its components."""
    if not isinstance(posterior, Mixture):
        return {"family": posterior.family}
    weights = [weight.hex() for weight in posterior.weights]
    return {
        "family": posterior.family,
        "weights": weights,
        "components": [_describe(c) for c in posterior.components],
    }


def _named(network: Network, posterior: Posterior, prefix: str = "") -> dict[str, Tensor]:
    """Every parameter of every field by name.

    A factor [n, k] as [k, *its shape], if it has rows there; samples [S, n] as [S, *its shape].
    """
    if isinstance(posterior, Mixture):
        parts = (
            _named(network, component, f"{i}.") for i, component in enumerate(posterior.components)
        )
        return {name: value for part in parts for name, value in part.items()}
    tensors: dict[str, Tensor] = {}
    for field, values in posterior.tensors().items():
        for name, part in _parts(network, values.cpu(), field).items():
            tensors[f"{prefix}{name}_{field}"] = _compact(part)
    return tensors


def _parts(network: Network, values: Tensor, field: str) -> dict[str, Tensor]:
    """One field by parameter; a factor's rows are those of the last layers."""
    stacked = values.mT if field == "factor" else values
    layers = network.parameters_by_layer
    starts = [0, *accumulate(_entries(layer) for layer in layers)]
    first = starts[-1] - stacked.shape[-1]
    if first not in starts:
        raise InputError(
            f"the factor has rows for {stacked.shape[-1]} weights, which begin within a layer; "
            "give it rows from a layer's first weight on"
        )
    named = {
        name: shape for layer in layers[starts.index(first) :] for name, shape in layer.items()
    }
    parts = torch.split(stacked, [math.prod(shape) for shape in named.values()], -1)
    pairs = zip(named.items(), parts, strict=True)
    return {name: part.reshape(*part.shape[:-1], *shape) for (name, shape), part in pairs}


def _entries(layer: Mapping[str, Shape]) -> int:
    return sum(math.prod(shape) for shape in layer.values())


def _compact(value: Tensor) -> Tensor:
    """As float32 where that loses nothing: what was trained in float32 takes half the space."""
    single = value.float()
    return single if torch.equal(single.double(), value) else value


def _build(
    header: dict[str, Any],
    network: Network,
    tensors: dict[str, Tensor],
    path: str,
    prefix: str = "",
) -> Posterior:
    family = header.get("family")
    if family == Mixture.family and not prefix:
        try:
            weights = tuple(float.fromhex(weight) for weight in header["weights"])
            parts = [dict(part) for part in header["components"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path!r}: mixture lacks weights or components ({error!r})"
            ) from error
        for part in parts:
            if part.get("family") not in GAUSSIAN:
                raise InputError(
                    f"{path!r}: mixture of {part.get('family')!r}; its components must be Gaussian"
                )
        built = (_build(part, network, tensors, path, f"{i}.") for i, part in enumerate(parts))
        return Mixture(
            weights, tuple(part for part in built if isinstance(part, Normal | LowRankNormal))
        )
    if family not in SINGLE:
        raise InputError(
            f"{path!r}: posterior family {family!r} is not known; known: "
            f"{', '.join([*SINGLE, 'mixture'])}"
        )
    fields = {
        name: _gather(network, tensors, path, prefix, name) for name in SINGLE[family].names()
    }
    return SINGLE[family](**fields)


def _gather(
    network: Network, tensors: dict[str, Tensor], path: str, prefix: str, field: str
) -> Tensor:
    """One field of all parameters as a flat vector [n], a factor as [n, k], samples as [S, n]."""
    parts = []
    stacked = field in ("factor", "samples")
    for name, shape in _present(network, tensors, prefix, field).items():
        value = tensors.get(f"{prefix}{name}_{field}")
        expected = shape if value is None or not stacked else (*value.shape[:1], *shape)
        if value is None or tuple(value.shape) != expected or not value.is_floating_point():
            raise InputError(
                f"{path!r}: tensor '{prefix}{name}_{field}' "
                f"is missing or not of shape {tuple(expected)}"
            )
        parts.append(value.double().flatten(1).mT if stacked else value.double().flatten())
    if len({part.shape[1:] for part in parts}) > 1:
        raise InputError(f"{path!r}: the {field} of different parameters are not equally many")
    return torch.cat(parts).mT if field == "samples" else torch.cat(parts)


def _present(
    network: Network, tensors: dict[str, Tensor], prefix: str, field: str
) -> dict[str, Shape]:
    """The parameters that must be there: of a factor those from the first layer on that has one."""
    layers = network.parameters_by_layer
    if field == "factor":
        present = (
            i for i, own in enumerate(layers) if f"{prefix}{next(iter(own))}_factor" in tensors
        )
        layers = layers[next(present, 0) :]
    return {name: shape for layer in layers for name, shape in layer.items()}
