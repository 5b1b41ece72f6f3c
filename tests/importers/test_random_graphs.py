"""Random forwards of sums, moves, activations and changes in place: whatever is read is the module,
and no check afterwards is needed for that."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError
from bnncert.importers import module as reader
from bnncert.importers.module import read
from bnncert.importers.reading import Reading
from modules import shaken, values

WIDTH = 6


@dataclass(frozen=True, eq=False)
class Midway:
    """The module, what it has computed so far, and what decides how it goes on."""

    m: Any
    found: list[Tensor]
    chance: random.Random

    def pick(self) -> Tensor:
        return self.chance.choice(self.found)

    def changeable(self) -> Tensor:
        """Not the input: a forward that changes it is another module when run again."""
        return self.chance.choice(self.found[1:] or [1.0 * self.found[0]])


def joined(way: Midway) -> Tensor:
    cut = way.chance.randrange(1, WIDTH)
    return torch.cat([way.pick()[:, cut:], way.pick()[:, :cut]], 1)


def added_in_place(way: Midway) -> Tensor:
    x = way.changeable()
    x += way.pick()
    return x


STEPS: list[Callable[[Midway], Tensor]] = [
    lambda way: way.chance.choice([way.m.a, way.m.b, way.m.norm])(way.pick()),
    lambda way: torch.relu(way.pick()),
    lambda way: way.m.leaky(way.pick()),
    lambda way: way.pick() + way.pick(),
    lambda way: torch.sub(way.pick(), way.pick(), alpha=0.5),
    lambda way: (way.pick() - way.m.mean) / 0.7,
    lambda way: -0.5 * way.pick(),
    lambda way: way.pick().view(-1, 2, 3).transpose(1, 2).reshape(-1, WIDTH),
    lambda way: way.pick().flip(-1),
    lambda way: way.pick().unsqueeze(1).squeeze(1),
    lambda way: torch.stack([way.pick(), way.pick()], 2).mean(2),
    lambda way: torch.roll(way.pick(), way.chance.randrange(1, WIDTH), 1),
    joined,
    added_in_place,
    lambda way: way.m.inplace(way.changeable()),
]


class Program(nn.Module):
    """So many steps, each on what came before; the seed decides which."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b, self.last = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.leaky = nn.BatchNorm1d(WIDTH), nn.LeakyReLU(0.3)
        self.inplace = nn.ReLU(inplace=True)
        self.register_buffer("mean", torch.rand(WIDTH))
        self.seed = seed
        shaken(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        chance = random.Random(self.seed)
        found = [x]
        for _ in range(8):
            found.append(chance.choice(STEPS)(Midway(self, found, chance)))
        return self.last(found[-1]) + found[-2]


def understood(module: nn.Module) -> Reading | None:
    """What is read, or nothing where a view was changed in place."""
    try:
        return read(module, (WIDTH,))
    except InputError as error:
        if "is changed in place through a view" not in str(error):
            raise
        return None


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_what_is_read_is_the_module(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seconds each, and the rule below holds without.
    monkeypatch.setattr(reader, "_exported", reader._computed)
    refused = 0
    for seed in range(start, start + 50):
        module = Program(seed).double().eval()
        x = torch.randn(3, WIDTH, dtype=torch.float64)
        reading = understood(module)
        if reading is None:
            refused += 1
            continue
        found = reading.network.forward(reading.flat(values(module)), x)
        with torch.no_grad():
            expected = module(x.clone())
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10, msg=f"seed {seed}")
    assert refused < 10
