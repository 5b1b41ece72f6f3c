"""The native posterior file: safetensors, one metadata key with the architecture and the family.

Tensors are named as in the `.npz` form: parameter, underscore, the family's field (`W0_mean`, `b1_std`, `W0_low`, ...).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from bnncert.digest import canonical_json
from bnncert.errors import InputError
from bnncert.files import write_atomically
from bnncert.network import Network, from_description
from bnncert.posterior import FAMILIES, Posterior

SCHEMA = "bnncert-posterior/1"


def dump(network: Network, posterior: Posterior, path: Path, notes: dict[str, object]) -> None:
    header = {"schema": SCHEMA, "family": posterior.family, "network": network.describe(), "notes": notes}
    tensors: dict[str, Tensor] = {}
    for field, flat in posterior.tensors().items():
        values = [value for layer in network.split(flat.cpu()) for value in layer]
        tensors |= {
            f"{name}_{field}": value.contiguous() for name, value in zip(network.parameters, values, strict=True)
        }
    write_atomically(path, save(tensors, {"bnncert": canonical_json(header)}))


def load(path: Path) -> tuple[Network, Posterior]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("bnncert", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(f"{str(path)!r} is not a safetensors file ({error})") from error
    if not isinstance(header, dict) or header.get("schema") != SCHEMA or header.get("family") not in FAMILIES:
        raise InputError(f"{str(path)!r} is not a bnncert posterior; write one with 'bnncert train'")
    network = from_description(header.get("network", {}))
    family = FAMILIES[header["family"]]
    flat = {}
    for field in family.names():
        names = [f"{name}_{field}" for name in network.parameters]
        for name, shape in zip(names, network.parameters.values(), strict=True):
            if name not in tensors or tuple(tensors[name].shape) != shape:
                raise InputError(f"{str(path)!r}: tensor {name!r} is missing or not of shape {shape}")
        flat[field] = torch.cat([tensors[name].double().flatten() for name in names])
    return network, family(**flat)
