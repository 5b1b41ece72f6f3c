"""Networks drawn from a posterior, and what is asked of them, in the files of verifiers' contests:
ONNX, VNN-LIB, and a list of instances."""

from __future__ import annotations

from pathlib import Path

from bnncert.errors import InputError
from bnncert.exporters.networks import onnx_model
from bnncert.exporters.properties import vnnlib
from bnncert.files.tensors import write_atomically
from bnncert.model.problem import Problem
from bnncert.posteriors.base import sample

INSTANCES = "instances.csv"


def save_samples(
    problem: Problem, folder: str | Path, samples: int = 100, seed: int = 0, timeout: int = 60
) -> Path:
    """Write FOLDER/networks/000000.onnx, ... and FOLDER/properties/000000.vnnlib, ..., and
    FOLDER/instances.csv, which pairs each network with each property; the list is returned.

    Weights are rounded to float32. timeout: seconds a pair, as the list has them. The share of
    networks that a verifier proves is an estimate of P_safe from below, not a bound of it.

    >>> import tempfile, torch
    >>> from bnncert import ball, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> with tempfile.TemporaryDirectory() as new:
    ...     list = save_samples(Problem(mlp(1, 1), Normal(ones, ones), positive), new, samples=2)
    ...     print(list.read_text())
    networks/000000.onnx,properties/000000.vnnlib,60
    networks/000001.onnx,properties/000000.vnnlib,60
    <BLANKLINE>
    """
    if samples < 1:
        raise InputError(f"samples is {samples}; give at least 1")
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output {str(folder)!r} is not an empty folder; name a new one")
    specification = problem.specification.to("cpu")
    drawn = sample(problem.posterior, samples, seed)
    contents = {
        f"networks/{s:06d}.onnx": onnx_model(problem.network, weights)
        for s, weights in enumerate(drawn)
    }
    networks = [*contents]
    for i in range(len(problem)):
        contents[f"properties/{i:06d}.vnnlib"] = vnnlib(specification[i : i + 1]).encode()
    properties = [*contents][len(networks) :]
    lines = [f"{network},{asked},{timeout}\n" for asked in properties for network in networks]
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)
    write_atomically(folder / INSTANCES, "".join(lines).encode())
    return folder / INSTANCES
