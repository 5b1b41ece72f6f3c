"""Certificates: a claim about one input with its evidence, as files hold it.

The file format is described in docs/certificate-format.md; a checker needs nothing but that page,
the posterior and the certificate.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bnncert.evidence import Evidence, concentration, networks, write
from bnncert.files.digest import digest
from bnncert.files.tensors import read_tensors, tensor_bytes, write_atomically
from bnncert.model.specification import Region, Specification
from bnncert.version import __version__

SCHEMA = "bnncert-certificate/1"
KIND, EVIDENCE, CLAIM, DIGESTS, REGION = "kind", "evidence", "claim", "digests", "region"
METHOD, BOUND_CALLS, SEED, VERSIONS = "method", "bound_calls", "seed", "versions"
NORM, CLIP, EPS = "norm", "clip", "eps"
X, ROWS, OFFSETS, LOWER, UPPER = "x", "rows", "offsets", "lower", "upper"
ARCHITECTURE, POSTERIOR, SPECIFICATION, PROBLEM = (
    "architecture",
    "posterior",
    "specification",
    "problem",
)


@dataclass(frozen=True, eq=False)
class Certificate:
    """A claim about one input: a JSON header, and the tensors it speaks of.

    >>> import torch
    >>> from bnncert import Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> proved = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))[0].certificate
    >>> proved.kind, proved.claim["lower"] > 0.99, proved.norm
    ('concentration', True, 'linf')
    """

    header: dict[str, Any]
    tensors: dict[str, Tensor]

    def content(self) -> bytes:
        """What the certificate's file holds."""
        return tensor_bytes(self.header, self.tensors)

    def write(self, path: Path) -> None:
        write_atomically(path, self.content())

    @property
    def kind(self) -> str:
        return str(self.header[KIND])

    @property
    def evidence(self) -> Any:
        """As JSON; the modules of `bnncert.evidence` read it."""
        return self.header[EVIDENCE]

    @property
    def claim(self) -> dict[str, float]:
        """lower, upper, and of softmax the gap."""
        return {name: float.fromhex(value) for name, value in self.header[CLAIM].items()}

    @property
    def digests(self) -> dict[str, str]:
        return dict(self.header[DIGESTS])

    @property
    def norm(self) -> str:
        return str(self.header[REGION][NORM])

    @property
    def clip(self) -> tuple[float, float] | None:
        clip = self.header[REGION][CLIP]
        return None if clip is None else (float(clip[0]), float(clip[1]))

    @property
    def method(self) -> dict[str, Any]:
        """Its name and options."""
        return dict(self.header[METHOD])

    @property
    def versions(self) -> dict[str, str]:
        return dict(self.header[VERSIONS])

    @property
    def x(self) -> Tensor:
        """The clean input."""
        return self.tensors[X]

    @property
    def rows(self) -> Tensor:
        return self.tensors[ROWS]

    @property
    def offsets(self) -> Tensor:
        return self.tensors[OFFSETS]

    @property
    def counterexample(self) -> Tensor | None:
        """The stored input of the region at which networks are proved to fail: that of the heaviest
        component which has one, or of a list of networks the one that most of them fail at. Where
        every network has its own there is none."""
        point: Tensor | None = None
        if self.kind == concentration.KIND:
            parts = concentration.read(self.evidence, self.tensors).components
            failing = [
                (part.weight, part.upper.point)
                for part in parts
                if part.upper is not None and part.upper.point is not None
            ]
            point = max(failing, key=lambda each: each[0])[1] if failing else None
        elif self.kind == networks.KIND:
            found = networks.read(self.evidence, self.tensors)
            common = Counter(p for _, p, _ in found.refuted).most_common(1)
            point = found.points[common[0][0]] if common else None
        if point is not None and point.shape != self.x.shape:
            raise ValueError("the counterexample has another shape than the input")
        return point


def read_certificate(path: str | Path) -> Certificate:
    """The certificate in a file, also `bundle.zip/name`.

    >>> import torch
    >>> from bnncert import Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive)).save(folder)
    ...     read_certificate(f"{folder}/certificates/000000.safetensors").x
    tensor([1.], dtype=torch.float64)
    """
    return Certificate(*read_tensors(Path(path), SCHEMA))


@dataclass(frozen=True)
class Found:
    """How a claim was found; nothing rests on it."""

    method: Mapping[str, Any]
    bound_calls: int = 0
    seed: int = 0


def certificate_for(
    digests: tuple[str, str],
    spec: Specification,
    claim: Mapping[str, float],
    evidence: Evidence,
    found: Found,
) -> Certificate:
    """The claim about one input with everything a checker needs beside the posterior.

    digests: of the architecture and of the posterior.
    """
    written = write(evidence)
    parts = [*digests, spec.digest]
    names = (ARCHITECTURE, POSTERIOR, SPECIFICATION, PROBLEM)
    versions = {
        "bnncert": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    header = {
        "schema": SCHEMA,
        KIND: written.kind,
        DIGESTS: dict(zip(names, [*parts, digest(parts)], strict=True)),
        REGION: _described(spec.region),
        CLAIM: {name: value.hex() for name, value in claim.items()},
        EVIDENCE: written.value,
        METHOD: dict(found.method),
        BOUND_CALLS: found.bound_calls,
        SEED: found.seed,
        VERSIONS: versions,
    }
    question = {X: spec.region.center, ROWS: spec.rows, OFFSETS: spec.offsets}
    if spec.region.norm == "box":
        question |= {LOWER: spec.region.box.lower, UPPER: spec.region.box.upper}
    own = {name: value[0].clone() for name, value in question.items()}
    return Certificate(header, own | written.tensors)


def _described(region: Region) -> dict[str, Any]:
    eps = None if region.norm == "box" else float(region.eps[0]).hex()
    return {NORM: region.norm, CLIP: region.clip, EPS: eps}
