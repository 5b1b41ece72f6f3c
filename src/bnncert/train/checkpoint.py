"""A training on disk after each epoch, from where the same call goes on to the same bits."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.files.tensors import read_tensors, write_tensors
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert.train.recipe import BayesByBackprop
from bnncert.train.state import Epoch, Run

SCHEMA = "bnncert-training/1"
ADAM = ("step", "exp_avg", "exp_avg_sq")  # what Adam keeps for a parameter


def identity(
    network: Network, x: Tensor, y: Tensor, recipe: BayesByBackprop, begin: Normal | None
) -> dict[str, Any]:
    """What a training must share with a checkpoint to go on from there."""
    return {
        "recipe": json.loads(json.dumps(asdict(recipe))),  # as it is read back
        "network": network.digest,
        "data": digest({}, (x, y)),
        "start": "" if begin is None else digest({}, (begin.mean, begin.std)),
        "device": x.device.type,  # the noise of another kind would not be the same
    }


def save(path: Path, run: Run, identity: dict[str, Any]) -> None:
    """What `resume` needs, in one file."""
    tensors = {
        **run.q.parameters,
        "order": run.order.get_state(),
        "noise": run.q.noise.get_state(),
    }
    for i, state in run.optimiser.state_dict()["state"].items():
        tensors |= {f"{name}_{i}": state[name] for name in ADAM}
    history = [asdict(epoch) for epoch in run.history]
    write_tensors(path, {"schema": SCHEMA, **identity, "history": history}, tensors)


def resume(path: Path, run: Run, identity: dict[str, Any]) -> None:
    """The fresh run put where the checkpoint was written, if there is one."""
    if not path.parent.is_dir():
        raise InputError(
            f"checkpoint {str(path)!r} would be in a folder that does not exist; make it first"
        )
    if not path.exists():
        return

    header, tensors = read_tensors(path, SCHEMA)
    other = [name for name, value in identity.items() if header.get(name) != value]
    if other:
        raise InputError(
            f"checkpoint {str(path)!r} is of another {' and '.join(other)}; remove it to start anew"
        )

    with torch.no_grad():
        for name, parameter in run.q.parameters.items():
            parameter.copy_(tensors[name])
    run.order.set_state(tensors["order"])
    run.q.noise.set_state(tensors["noise"])
    state = {
        i: {name: tensors[f"{name}_{i}"] for name in ADAM} for i in range(len(run.q.parameters))
    }
    run.optimiser.load_state_dict(run.optimiser.state_dict() | {"state": state})
    run.history.extend(Epoch(**epoch) for epoch in header["history"])
