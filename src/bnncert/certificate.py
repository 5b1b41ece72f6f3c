"""Certificates and results: what is claimed, with its evidence, and how both are written and read.

The file format is described in docs/certificate-format.md; a checker needs nothing but that page, the posterior and
the certificate.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bnncert.files import read_tensors, write_tensors
from bnncert.methods.statistical import Estimate

SCHEMA = "bnncert-certificate/1"


@dataclass(frozen=True, eq=False)
class Certificate:
    """A claim about one input: a JSON header, and the tensors it speaks of."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]

    def write(self, path: Path) -> None:
        write_tensors(path, self.header, self.tensors)


def read_certificate(path: str | Path) -> Certificate:
    return Certificate(*read_tensors(Path(path), SCHEMA))


@dataclass(frozen=True, eq=False)
class Result:
    """One input's answer: lower <= P_safe <= upper, certified.

    status: "certified" (lower > 0), "unverified" (nothing proved), "misclassified" (the mean network errs on the clean
    input; counted as nothing proved) or "error". lower and upper are 0 and 1 when nothing is known. `estimate` is
    not certified and enters neither.
    """

    index: int
    label: int | None
    predicted: int | None
    status: str
    lower: float
    upper: float
    method: str
    eps: float
    bound_calls: int
    seconds: float
    seed: int
    estimate: Estimate | None
    certificate: Certificate | None

    def line(self, certificate: str | None) -> str:
        """The result as one JSON line, the certificate by its path."""
        fields = {name: value for name, value in vars(self).items() if name not in ("certificate", "estimate")}
        if self.estimate:
            fields["estimate"] = asdict(self.estimate)
        return json.dumps(fields | {"certificate": certificate}, allow_nan=False)
