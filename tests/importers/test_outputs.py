"""Modules that return more than one tensor, and modules that use one layer twice."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError, Problem, ball, certify, from_torch, output_interval
from bnncert.importers import from_dropout, from_samples, from_swag
from modules import values

Both = namedtuple("Both", ["mean", "spread"])


@dataclass
class Named:
    mean: Tensor
    spread: Tensor


class TwoHeads(nn.Module):
    """A mean and the logarithm of a spread, of one trunk."""

    def __init__(self, joined: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        self.spread, self.mean = nn.Linear(4, 1), nn.Linear(4, 1)
        self.joined = joined

    def forward(self, x: Tensor) -> Any:
        x = self.trunk(x)
        return self.joined(self.mean(x), self.spread(x))


RETURNED: dict[str, tuple[Callable[[Tensor, Tensor], Any], int | str, int | str, str]] = {
    "tuple": (lambda m, s: (m, s), 0, 1, "returns 2 outputs; say which of them with output=0"),
    "list": (lambda m, s: [m, s], 0, 1, "returns 2 outputs"),
    "dict": (
        lambda m, s: {"mean": m, "spread": s},
        "mean",
        "spread",
        "returns outputs 'mean', 'spread'; say which of them with output='mean'",
    ),
    "named": (Both, "mean", "spread", "returns outputs 'mean', 'spread'"),
    "numbered": (Both, 0, 1, "returns outputs 'mean', 'spread'"),
    "dataclass": (Named, "mean", "spread", "returns outputs 'mean', 'spread'"),
    "vectors of numbers": (lambda m, s: (m.squeeze(-1), s.squeeze(-1)), 0, 1, "returns 2 outputs"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_one_of_several_outputs(name: str) -> None:
    joined, first, second, message = RETURNED[name]
    module = TwoHeads(joined).eval()
    with pytest.raises(InputError, match=message):
        from_torch(module, std=0.1)
    x = torch.rand(4, 3, dtype=torch.float64)
    for output, head in ((first, "mean"), (second, "spread")):
        network, posterior = from_torch(module, std=0.1, output=output)
        found = network.forward(posterior.mean, x)
        own = module.get_submodule(head).double()
        with torch.no_grad():
            torch.testing.assert_close(found, own(module.trunk.double()(x)), rtol=1e-6, atol=1e-6)
        module.float()
        # The other head is no part of it.
        assert network.size == 3 * 4 + 4 + 4 + 1
    with pytest.raises(InputError, match="output='nothing' is none of them"):
        from_torch(module, std=0.1, output="nothing")


def test_a_head_is_certified() -> None:
    network, posterior = from_torch(TwoHeads(lambda m, s: (m, s)), std=0.001, output=0)
    x = torch.rand(1, 3, dtype=torch.float64)
    y = network.forward(posterior.mean, x)[:, 0]
    (result,) = certify(Problem(network, posterior, output_interval(ball(x, 0.001), y - 1, y + 1)))
    assert result.lower > 0.9


def test_other_importers_take_the_output() -> None:
    module = TwoHeads(lambda m, s: (m, s))
    own = {name: value for name, value in values(module).items() if not name.startswith("spread")}
    draws = {name: torch.stack([value, value]) for name, value in own.items()}
    squares = {name: value**2 for name, value in own.items()}
    with pytest.raises(InputError, match="say which"):
        from_samples(module, draws)
    network, posterior = from_samples(module, draws, output=0)
    assert from_swag(module, own, squares, output=0)[0] == network
    assert from_samples(module, [module.state_dict()], output=0)[0] == network
    assert torch.equal(posterior.samples[0], from_torch(module, std=0.0, output=0)[1].mean)
    module.trunk.append(nn.Dropout(0.5))
    assert from_dropout(module, 3, output=1)[0].outputs == 1


@pytest.mark.parametrize("beside", [None, 0.5, "weights"])
def test_what_is_no_output_needs_no_choice(beside: object) -> None:
    """Nothing, a number, and a penalty on the weights do not depend on the input."""

    class Penalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Any:
            return self.net(x), self.net.weight.sum() if beside == "weights" else beside

    assert from_torch(Penalised(), std=0.1)[0].outputs == 2


def test_one_output_needs_no_choice_and_takes_none() -> None:
    with pytest.raises(InputError, match="returns one output; leave output=0 out"):
        from_torch(nn.Sequential(nn.Linear(2, 2)), std=0.1, output=0)


class Twice(nn.Module):
    """One layer at two places, one beside them."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.out = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        if tied:
            self.b.weight, self.b.bias = self.a.weight, self.a.bias
        self.second = self.b if tied else self.a

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.second(torch.relu(self.a(x)))))


@pytest.mark.parametrize("tied", [False, True])
def test_layers_used_twice_must_be_certain(tied: bool) -> None:
    module = Twice(tied)
    with pytest.raises(
        InputError, match=r"uses 'a\.(weight|bias)' twice, and every draw gives both"
    ):
        from_torch(module, std=0.1)
    certain = dict.fromkeys(("a.weight", "a.bias"), 0.0)
    network, posterior = from_torch(module, std=certain | {"out.weight": 0.1, "out.bias": 0.1})
    assert [bool(own[0].any()) for own in network.split(posterior.std) if own] == [
        False,
        False,
        True,
    ]
    x = torch.randn(5, 3, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(network.forward(posterior.mean, x), module.double()(x))


def test_draws_of_a_layer_used_twice_are_exact() -> None:
    """A list of networks has the same weights at both places in every network."""
    module = Twice().double()
    own = {name: value for name, value in values(module).items() if not name.startswith("b.")}
    draws = {name: torch.randn(4, *value.shape).double() for name, value in own.items()}
    network, posterior = from_samples(module, draws)
    x = torch.randn(5, 3, dtype=torch.float64)
    for k, sample in enumerate(posterior.samples):
        parameters = {name: value[k] for name, value in draws.items()}
        with torch.no_grad():
            expected = torch.func.functional_call(module, parameters, (x,))
        torch.testing.assert_close(network.forward(sample, x), expected)
    spread = {name: value**2 + 0.01 for name, value in own.items()}
    with pytest.raises(InputError, match="twice"):
        from_swag(module, own, spread)
