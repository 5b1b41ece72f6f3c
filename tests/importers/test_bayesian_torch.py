"""bayesian-torch: its layers draw what was imported, and models that return divergences are
read."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from bnncert import InputError, from_torch
from bnncert.layers import Conv2d, Dense, Flatten, MaxPool2d, ReLU, Tanh
from importing import (
    DRAWS,
    assert_certified,
    assert_dense_moments,
    assert_moments,
    assert_same_from_file,
    assert_survives_its_file,
    fit,
)

layers = pytest.importorskip("bayesian_torch.layers")


class Returning(nn.Module):
    """A forward in bayesian-torch's own manner: every layer returns its output and its
    divergence."""

    def __init__(self, kind: str = "Reparameterization", bias: bool = True) -> None:
        super().__init__()
        self.fc1 = getattr(layers, f"Linear{kind}")(2, 6, posterior_rho_init=-4.0, bias=bias)
        self.fc2 = getattr(layers, f"Linear{kind}")(6, 2, posterior_rho_init=-4.0, bias=bias)

    def forward(self, x: Tensor, return_kl: bool = True) -> Tensor | tuple[Tensor, Tensor]:
        total = 0
        x, kl = self.fc1(x)
        total += kl
        x, kl = self.fc2(functional.relu(x))
        total += kl
        return (x, total) if return_kl else x


def model(kind: str = "Reparameterization", bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    return fit(Returning(kind, bias), lambda module: module.fc1.kl_loss() + module.fc2.kl_loss())


@pytest.mark.parametrize(
    ("kind", "bias", "draws"),
    [
        ("Reparameterization", True, DRAWS),
        ("Reparameterization", False, 2000),
        ("Flipout", True, 5000),
    ],
)
def test_the_layers_draw_what_was_imported(kind: str, bias: bool, draws: int) -> None:
    """With flipout too: the signs it multiplies the noise with leave the distribution of the
    weights alone."""
    module = model(kind, bias)
    network, posterior = from_torch(module)
    assert network.layers == (Dense(2, 6, bias), ReLU(), Dense(6, 2, bias))
    assert_dense_moments(partial(module.fc1, return_kl=False), network, posterior, 0, draws)


def test_trained_imported_certified_checked(tmp_path: Path) -> None:
    module = model()
    network, posterior = from_torch(module)
    assert_certified(network, posterior, tmp_path)
    assert_survives_its_file(network, posterior, tmp_path)
    assert_same_from_file(module, "bayesian-torch", tmp_path)


def test_the_parameterisation_is_softplus() -> None:
    module = layers.LinearReparameterization(1, 1, bias=False)
    module.mu_weight.data.fill_(2.0)
    for rho in (-30.0, -1.0, 0.0, 50.0):
        module.rho_weight.data.fill_(rho)
        _, posterior = from_torch(nn.Sequential(module))
        assert posterior.mean.tolist() == [2.0]
        expected = float(torch.log1p(torch.tensor(rho, dtype=torch.float64).exp()))
        assert posterior.std.tolist() == pytest.approx([expected], rel=1e-12)


def convolutional(kind: str) -> nn.Module:
    """A network turned Bayesian by `dnn_to_bnn`, whose layers return their output alone."""
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn

    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    options = {
        "prior_mu": 0.0,
        "prior_sigma": 1.0,
        "posterior_mu_init": 0.0,
        "posterior_rho_init": -5.0,
    }
    dnn_to_bnn(module, options | {"type": kind, "moped_enable": False, "moped_delta": 0.5})
    return module


@pytest.mark.parametrize("kind", ["Reparameterization", "Flipout"])
def test_convolutions(kind: str, tmp_path: Path) -> None:
    module = convolutional(kind)
    network, posterior = from_torch(module, input_shape=(1, 8, 8))
    expected = (
        Conv2d(1, 2, (3, 3), (2, 2), (1, 1)),
        Tanh(),
        MaxPool2d((2, 2)),
        Flatten(),
        Dense(8, 3),
    )
    assert network.layers == expected
    # An image that is one pixel in the middle shows the nine weights around it, upside down, and
    # the bias.
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 2, 2] = 1
    conv = module[0]
    conv.stride, conv.padding = 1, 1
    with torch.no_grad():
        draws = torch.stack([conv(image)[0, :, 1:4, 1:4] for _ in range(5000)]).double()
    (kernel, bias), (kernel_std, bias_std) = (
        network.split(posterior.mean)[0],
        network.split(posterior.std)[0],
    )
    mean = kernel[:, 0].flip(-1, -2) + bias[:, None, None]
    assert_moments(draws, mean, kernel_std[:, 0].flip(-1, -2) ** 2 + bias_std[:, None, None] ** 2)
    assert_certified(network, posterior, tmp_path)


def test_layers_in_a_sequence_are_read_although_they_return_tuples() -> None:
    """The library cannot run this; wrappers that pass on the first of a tuple can."""
    module = nn.Sequential(
        layers.LinearReparameterization(2, 3), nn.ReLU(), layers.LinearReparameterization(3, 2)
    )
    with pytest.warns(
        UserWarning, match=r"Sequential does not run \(.*\): not compared with what was read"
    ):
        assert from_torch(module)[0].layers == (Dense(2, 3), ReLU(), Dense(3, 2))


def test_a_transposed_convolution_is_refused() -> None:
    module = nn.Sequential(
        layers.ConvTranspose2dReparameterization(2, 2, 3), nn.Flatten(), nn.Linear(2, 2)
    )
    with pytest.raises(InputError, match="ConvTranspose2dReparameterization"):
        from_torch(module, input_shape=(2, 4, 4))


def test_the_librarys_own_example_is_read() -> None:
    """Convolutions, a pool, dropout, dense layers, log-softmax and a sum of divergences; 1.2
    million weights."""
    from bayesian_torch.models.bayesian.simple_cnn_variational import SCNN

    with pytest.warns(
        UserWarning, match=r"^dropout1: Dropout2d .*not Monte Carlo dropout"
    ) as found:
        network, posterior = from_torch(SCNN(), input_shape=(1, 28, 28))
    assert len(found) == 1
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds == [
        "Conv2d",
        "ReLU",
        "Conv2d",
        "ReLU",
        "MaxPool2d",
        "Flatten",
        "Dense",
        "ReLU",
        "Dense",
    ]
    assert posterior.size == 1_199_882


def test_the_librarys_residual_network_is_read() -> None:
    """Convolutions with divergences, shortcuts that are slices and channels of zeros."""
    from bayesian_torch.models.bayesian.resnet_variational import resnet20

    torch.manual_seed(0)
    module = resnet20()
    network, posterior = from_torch(module, input_shape=(3, 32, 32))
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds.count("Add") == 9
    assert kinds.count("Conv2d") == 19
    assert kinds.count("Pad") == 2
    random = sum(value.numel() for name, value in module.named_parameters() if "mu_" in name)
    assert int((posterior.std > 0).sum()) == random


def test_a_layer_drawn_twice_is_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = layers.LinearReparameterization(2, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x, first = self.fc(x)
            x, second = self.fc(torch.relu(x))
            return x, first + second

    with pytest.raises(InputError, match=r"'fc\.mu_bias' twice"):
        from_torch(Twice())


def test_without_the_divergence_an_index_takes_examples() -> None:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = layers.LinearReparameterization(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x, return_kl=False)[0]

    with pytest.raises(InputError, match="indexing mixes the examples"):
        from_torch(First())
