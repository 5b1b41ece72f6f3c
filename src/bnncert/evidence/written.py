"""Evidence as a certificate's file holds it: a kind, a JSON value and named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

Tensors: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Written:
    kind: str
    value: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)
