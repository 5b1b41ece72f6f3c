"""Nodes of branch and bound: the domains of all inputs in one table, and trees of their leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert.concentration.domains import Domains, Tightened
from bnncert.concentration.functional import Functional
from bnncert.concentration.tails import row_failures
from bnncert.evidence.concentration import Tree


class Nodes:
    """All domains of a search, in the order of their making: tensors with room to grow."""

    def __init__(self, like: Tightened) -> None:
        self.count = 0
        self._store = {
            name: value[:0] for name, value in self._fields(like, like.branch, like.branch).items()
        }

    @staticmethod
    def _fields(found: Tightened, parent: Tensor, depth: Tensor) -> dict[str, Tensor]:
        own = {
            "value": found.value,
            "lipschitz": found.lipschitz,
            "branch": found.branch,
            "weight": found.weight,
        }
        own["failure"] = row_failures(Functional(found.value, found.lipschitz))
        return (
            vars(found.domains)
            | own
            | {"parent": parent, "depth": depth, "leaf": torch.ones_like(parent).bool()}
        )

    def append(self, found: Tightened, parent: Tensor, depth: Tensor) -> None:
        stop = self.count + len(parent)
        for name, value in self._fields(found, parent, depth).items():
            held = self._store[name]
            if stop > len(held):
                grown = held.new_empty(max(2 * len(held), stop), *held.shape[1:])
                grown[: self.count] = held[: self.count]
                self._store[name] = held = grown
            held[self.count : stop] = value
        self.count = stop

    def __getattr__(self, name: str) -> Tensor:
        return self._store[name][: self.count]

    def domains(self, index: Tensor) -> Domains:
        return Domains(
            *(
                getattr(self, name)[index]
                for name in ("input", "row", "splits", "slopes", "multipliers")
            )
        )


def tree_of(leaves: Domains, count: int) -> Tree:
    """The leaves with their splits in the order they were made."""
    order, column = leaves.splits[:, :count].abs().int().sort(1)
    column = torch.where(order > 0, column + 1, 0)
    depth = int((order > 0).sum(1).max()) if count else 0
    sign = leaves.splits[:, :count].sign().int()
    shift = (order == 0).sum(1, keepdim=True)
    place = (torch.arange(depth, device=order.device) + shift).clamp_max(max(count - 1, 0))
    within = torch.arange(depth, device=order.device) < count - shift
    number = column.gather(1, place)
    at = (number - 1).clamp_min(0)
    paths = torch.where(within, number * sign.gather(1, at), 0).int()
    multipliers = torch.where(within, leaves.multipliers[:, :count].gather(1, at), 0.0)
    return Tree(paths, multipliers, leaves.slopes[:, :count])
