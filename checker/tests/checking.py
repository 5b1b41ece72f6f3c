"""What tests of the checker share: a folder with certificates to change, and hostile or odd
files."""

from __future__ import annotations

import io
import json
import os
import resource
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import Tensor

from bnncert import Problem, certify, save_posterior
from bnncert.layers import Dense, ReLU
from bnncert.methods import PIE, Concentration, Method
from bnncert.model.network import Network
from bnncert.model.specification import (
    Region,
    Specification,
    ball,
    class_robust,
    half_space,
    output_interval,
)
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.gaussian import LowRankNormal, Mixture
from bnncert.posteriors.independent import Laplace, Normal, StudentT, TruncatedNormal, Uniform
from bnncert_check import ACCEPT, CannotCheck, Verdict, check_certificate, read_model
from scenarios import gaussian, vector

Header: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]
Outcome = TypeVar("Outcome")

SECONDS, KIBIBYTES = 2.0, 512 * 2**10  # that a refusal may take


def parse(path: Path) -> tuple[Header, Tensors]:
    content = path.read_bytes()
    index = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(index["__metadata__"]["bnncert"]), load(content)


class Desk:
    """One certificate of concentration, and what the checker says of changes."""

    def __init__(
        self,
        folder: Path,
        given: Problem,
        number: int = 0,
        *,
        upper: bool = True,
        joint: bool = True,
    ) -> None:
        """joint: whether the prover looks for joint laws."""
        self.path = folder / "c.safetensors"
        save_posterior(folder / "p.safetensors", given.network, given.posterior)
        self.model = read_model(folder / "p.safetensors")
        with pytest.MonkeyPatch.context() as patch:
            if not joint:
                patch.setattr("bnncert.joint.search.applies", lambda _: False)
            found = certify(given, Concentration(upper=upper))[number]
        assert found.certificate is not None
        self.names = found.lower_by, found.upper_by
        found.certificate.write(self.path)
        self.header, self.tensors = parse(self.path)

    def verdict(self, *changes: tuple[str, Any]) -> Verdict:
        header, tensors = json.loads(json.dumps(self.header)), dict(self.tensors)
        for place, value in changes:
            edit(header, tensors, place, value)
        self.path.write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
        return check_certificate(self.path, self.model)

    def accepted(self) -> tuple[float, float]:
        """The ends that are claimed: the checker finds a little more."""
        verdict = self.verdict()
        assert verdict.status == ACCEPT, verdict
        assert verdict.claimed is not None
        assert verdict.supported is not None
        spared = 1e-4 if by_joint_laws(self.header) else 1e-5
        assert 0 <= verdict.supported[0] - verdict.claimed[0] < spared
        assert 0 <= verdict.claimed[1] - verdict.supported[1] < spared
        return verdict.claimed

    def column(self, name: str, column: int, value: float) -> tuple[str, Any]:
        """The first row's entry of a table, changed."""
        table = self.tensors[name.removeprefix("tensors/")].copy()
        table[0, column] = value
        return name, table


def by_joint_laws(header: Header) -> bool:
    """Whether any law of rows together is among the evidence."""
    said = json.dumps(header["evidence"])
    return '"joint"' in said or '"together"' in said


class Workshop:
    """A folder with a posterior p, and three certificates for it: of cells, of one box, and of
    concentration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
        posterior = Normal(vector(1.0, 1.0), vector(0.1, 0.1))
        self.posterior = folder / "p.safetensors"
        save_posterior(self.posterior, network, posterior)
        self.model = read_model(self.posterior)
        interval = output_interval(ball(vector(1.0).reshape(1, 1), 0.1), 0.3, 3.0)
        above = half_space(ball(vector(1.0).reshape(1, 1), 0.1), vector(1.0), 1.3)
        methods = {
            "cells": (interval, PIE(samples=3)),
            "box": (interval, PIE(samples=1)),
            "lower": (interval, Concentration(effort=0)),
            "upper": (above, Concentration(effort=0, upper=True)),
        }
        for name, (spec, method) in methods.items():
            found = certify(Problem(network, posterior, spec), method)[0].certificate
            assert found is not None
            found.write(folder / f"{name}.safetensors")

    def read(self, name: str) -> tuple[Header, Tensors]:
        return parse(self.folder / f"{name}.safetensors")

    def check(self, content: bytes) -> Verdict:
        path = self.folder / "changed.safetensors"
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return check_certificate(path, self.model)

    def edited(self, name: str, place: str, value: Any) -> Verdict:
        """What the checker says of the certificate after an edit of its header or tensors."""
        header, tensors = self.read(name)
        edit(header, tensors, place, value)
        return self.check(save(tensors, {"bnncert": json.dumps(header)}))


def edit(header: Header, tensors: Tensors, place: str, value: Any) -> None:
    """Change one thing; a number of boxes and a rule stand for evidence of so many equal boxes."""
    *path, last = [int(part) if part.isdigit() else part for part in place.split("/")]
    inner: Any = {**header, "tensors": tensors} if path else header
    for part in path:
        inner = inner[part]
    if isinstance(value, tuple):
        value = inner[last] | {
            "boxes": inner[last]["boxes"] * value[0],
            "union": {"rule": value[1]},
        }
    inner[last] = value


def raw(text: str, data: bytes = b"") -> bytes:
    """A safetensors file with this index."""
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


def cheaply(action: Callable[[], Outcome]) -> Outcome:
    """What the action returns, which took little time and memory."""
    started, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = action()
    assert time.process_time() - started < SECONDS  # its own: others may be busy
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KIBIBYTES
    return outcome


def refusal(posterior: Path) -> str | None:
    """The code with which a posterior file is refused."""
    try:
        read_model(posterior)
    except CannotCheck as reason:
        return reason.code
    return None


def archive(
    members: dict[str, bytes], size: int | None = None, method: int = zipfile.ZIP_STORED
) -> bytes:
    """An .npz of these members; size: what it says that each of them unpacks to."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
        for entry in file.infolist():
            entry.file_size = entry.file_size if size is None else size
    return buffer.getvalue()


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"\0" * 64


def array(shape: str, descr: str = "'<f8'") -> bytes:
    return npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + "}\n")


class Bomb:
    """Unpickling it would leave a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def objects() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()]), allow_pickle=True)
    return buffer.getvalue()


def question(
    network: Network, center: Tensor, region: Region | None = None, wrong: bool = False
) -> Specification:
    """The class that the central network prefers at an input, or the other one, in a small region
    around it."""
    x = vector(0.3, 0.6).reshape(1, *network.input_shape)
    label = network.forward(center, x).argmax(-1)
    return class_robust(region or ball(x, 0.01), 1 - label if wrong else label, 2)


def families(size: int) -> dict[str, tuple[Posterior, Method]]:
    """Every family with a method that can certify it; some weights are deterministic where that is
    possible."""
    generator = torch.Generator().manual_seed(0)
    mean, some = gaussian(size, generator=generator), torch.full((size,), 0.02, dtype=torch.float64)
    some[::4] = 0
    none, boxes = torch.zeros_like(mean), PIE(samples=3, step=1.0)
    factor = 0.02 * gaussian(size, 2, generator=generator)
    return {
        "normal": (Normal(mean, some), boxes),
        "no noise": (Normal(mean, none), boxes),
        "laplace": (Laplace(mean, some), boxes),
        "student-t": (StudentT(mean, some, none + 3), boxes),
        "uniform": (Uniform(mean - some, mean + some), boxes),
        "truncated-normal": (TruncatedNormal(mean, some + 0.01, mean - 0.02, mean + 0.05), boxes),
        "low-rank-normal": (LowRankNormal(mean, some, factor), Concentration()),
        "shared noise only": (LowRankNormal(mean, none, factor), Concentration()),
        "no noise at all": (Normal(mean, none), Concentration()),
        "mixture": (
            Mixture((0.25, 0.75), (Normal(mean, some), LowRankNormal(mean, some, factor))),
            Concentration(),
        ),
    }


def certified(
    network: Network, posterior: Posterior, spec: Specification, method: Method, path: Path
) -> Path:
    """A new certificate, beside its posterior file, that is accepted and claims something."""
    if path.suffix == ".safetensors":
        save_posterior(path, network, posterior)
    certificate = certify(Problem(network, posterior, spec), method)[0].certificate
    assert certificate is not None
    certificate.write(path.with_name("c.safetensors"))
    verdict = check_certificate(path.with_name("c.safetensors"), read_model(path))
    assert verdict.status == ACCEPT, verdict
    return path.with_name("c.safetensors")


def program(
    *arguments: object, module: str = "bnncert_check", options: tuple[str, ...] = ()
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `python -m MODULE ARGUMENTS`."""
    command = [sys.executable, *options, "-m", *module.split(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stdout, done.stderr


def results(workshop: Workshop, *lines: dict[str, Any]) -> Path:
    """A folder whose results say what the certificate `lower` says, except for the changes of each
    line."""
    header, _ = workshop.read("lower")
    said = {end: float.fromhex(header["claim"][end]) for end in ("lower", "upper")}
    said |= {
        "eps": 0.1,
        "label": None,
        "predicted": None,
        "status": "certified",
        "certificate": "lower.safetensors",
    }
    said |= {"method": "concentration", "bound_calls": 1, "seconds": 0.5, "seed": 0}
    text = "".join(json.dumps({"index": i, **said, **line}) + "\n" for i, line in enumerate(lines))
    (workshop.folder / "results.jsonl").write_text(text)
    return workshop.folder


def bundle(workshop: Workshop, method: int = zipfile.ZIP_STORED) -> Path:
    path = workshop.folder / "bundle.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.write(workshop.folder / "lower.safetensors", "lower.safetensors")
    return path


# Nothing is claimed. Lines name no threshold, as those of old folders.
NOTHING = {"certificate": None, "lower": 0, "upper": 1, "status": "unverified"}
