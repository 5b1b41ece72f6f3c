"""Modules with plain layers, layers of one's own, and modules that compute something else than they
seem to."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError, from_torch, load_posterior, save_posterior
from bnncert.importers.module import read
from bnncert.importers.variational import parameterisation
from bnncert.layers import Dense, ReLU
from importing import assert_certified


def plain(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))


def test_a_number_is_the_standard_deviation_of_every_weight(tmp_path: Path) -> None:
    module = plain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network, posterior = from_torch(module, std=0.01)
    scale = 1 / math.sqrt(1 + 1e-5)  # the normalisation's
    assert network.split(posterior.std)[0][0].flatten().tolist() == pytest.approx(
        [0.01 * scale] * 6, rel=1e-12
    )
    assert network.split(posterior.std)[2][0].flatten().tolist() == [0.01] * 6
    assert_certified(network, posterior, tmp_path)


def test_standard_deviations_by_name() -> None:
    module = plain()
    given = {"0.weight": torch.full((3, 2), 0.5), "3.weight": 0.25, "3.bias": 0.0}
    with pytest.warns(UserWarning, match=r"^0\.bias: no standard deviation, taken as certain"):
        network, posterior = from_torch(module, std=given)
    parts = [part for parts in network.split(posterior.std) for part in parts]
    assert [float(part.max()) for part in parts] == pytest.approx([0.5, 0.0, 0.25, 0.0], rel=1e-4)


def test_without_a_standard_deviation_everything_is_certain_and_said() -> None:
    with pytest.warns(
        UserWarning, match=r"0\.weight, 0\.bias, 3\.weight, 3\.bias: no standard deviation"
    ):
        _, posterior = from_torch(plain())
    assert not posterior.std.any()


@pytest.mark.parametrize(
    ("std", "message"),
    [
        (
            {"1.weight": 0.1},
            r"std names '1\.weight'; parameters that take one are 0\.weight, 0\.bias",
        ),
        ({"0.weight": torch.ones(2, 3)}, r"std of '0\.weight' has shape \(2, 3\)"),
        (-0.1, "negative"),
        (math.nan, "NaN"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*no standard deviation:UserWarning")
def test_standard_deviations_that_do_not_fit(std: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_torch(plain(), std=std)  # type: ignore[arg-type]


def test_weights_that_are_not_finite_are_refused() -> None:
    module = plain()
    module[0].weight.data[0, 0] = math.nan  # type: ignore[index, union-attr]
    with pytest.raises(InputError, match="NaN"):
        from_torch(module, std=0.1)


class Own(nn.Module):
    """A layer as in many tutorials, with weights called as blitz calls them."""

    def __init__(
        self, inputs: int, outputs: int, transposed: bool = False, factor: float = 1.0
    ) -> None:
        super().__init__()
        shape = (inputs, outputs) if transposed else (outputs, inputs)
        self.weight_mu, self.bias_mu = (
            nn.Parameter(torch.randn(shape)),
            nn.Parameter(torch.randn(outputs)),
        )
        self.weight_rho = nn.Parameter(torch.full(shape, -4.0))
        self.bias_rho = nn.Parameter(torch.full((outputs,), -4.0))
        self.transposed, self.factor = transposed, factor

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (
            mu + nn.functional.softplus(rho) * torch.randn_like(mu)
            for mu, rho in ((self.weight_mu, self.weight_rho), (self.bias_mu, self.bias_rho))
        )
        return self.factor * nn.functional.linear(x, weight.T if self.transposed else weight, bias)


OWN = pytest.mark.filterwarnings("ignore:.*names its weights in the same way:UserWarning")


def test_layers_of_ones_own_are_read_by_their_names_and_announced() -> None:
    module = nn.Sequential(Own(2, 3), nn.ReLU(), Own(3, 2))
    with pytest.warns(
        UserWarning, match=r"^\d: Own is not from blitz .* std = log\(1 \+ exp\(rho\)\)"
    ) as found:
        network, posterior = from_torch(module)
    assert len(found) == 2
    assert network.layers == (Dense(2, 3), ReLU(), Dense(3, 2))
    assert posterior.std.tolist() == pytest.approx([math.log1p(math.exp(-4))] * 17, rel=1e-7)


@OWN
def test_a_module_that_computes_something_else_is_refused() -> None:
    """Weights stored the other way round, and a factor that no name shows."""
    for layer in (Own(3, 3, transposed=True), Own(3, 3, factor=1.5)):
        with pytest.raises(InputError, match="computes something else"):
            from_torch(nn.Sequential(layer))


@pytest.mark.parametrize("layer", [1, 2])
def test_a_hook_that_changes_the_output_of_a_layer_is_refused(layer: int) -> None:
    module = plain()
    handle = module[layer].register_forward_hook(lambda _, __, output: output + 1)  # type: ignore[index, union-attr]
    with pytest.raises(InputError, match="computes something else"):
        from_torch(module, std=0.1)
    handle.remove()
    from_torch(module, std=0.1)


def test_a_hook_that_can_be_traced_is_read() -> None:
    module = plain().eval()
    module[0].register_forward_hook(lambda _, __, output: output + 1)  # type: ignore[index, union-attr]
    network, posterior = from_torch(module, std=0.1)
    x = torch.randn(5, 2, dtype=torch.float64)
    torch.testing.assert_close(network.forward(posterior.mean, x), module.double()(x))


@OWN
def test_importing_changes_neither_the_module_nor_the_random_numbers() -> None:
    module = nn.Sequential(Own(2, 3), nn.ReLU(), Own(3, 2)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    from_torch(module)
    assert torch.equal(torch.rand(3), expected)
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@OWN
def test_std_is_for_plain_parameters_only() -> None:
    with pytest.raises(InputError, match="leave it out"):
        from_torch(nn.Sequential(Own(2, 2)), std=0.1)
    network, posterior = from_torch(nn.Sequential(Own(2, 2), nn.ReLU(), nn.Linear(2, 2)), std=0.5)
    assert network.split(posterior.std)[2][0].flatten().tolist() == [0.5] * 4


@OWN
def test_the_parameterisation_can_be_noted(tmp_path: Path) -> None:
    module = nn.Sequential(Own(2, 2))
    network, posterior = from_torch(module)
    notes = parameterisation(read(module))
    assert notes == {"library": "blitz", "parameterisation": "std = log(1 + exp(rho))"}
    save_posterior(tmp_path / "p.safetensors", network, posterior, dict(notes))
    assert load_posterior(tmp_path / "p.safetensors")[1].digest == posterior.digest
