"""Pyro's automatic guides: the guide's own draws and ours have the same moments, and certificates
hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError, Problem, ball, certify, mlp, output_interval, save_posterior
from bnncert.importers.pyro import from_pyro
from bnncert.layers import Tanh
from bnncert.methods import Concentration
from bnncert.model.network import Network
from bnncert.posteriors import LowRankNormal, Normal
from bnncert.posteriors.base import sample
from bnncert_check import ACCEPT, check_certificate, read_model
from moments import DRAWS, assert_certified, assert_same_moments, ours
from pages import blocks, run

pyro = pytest.importorskip("pyro", reason="Pyro is not installed: pip install pyro-ppl")

from pyro import distributions as dist  # noqa: E402
from pyro.infer import SVI, Predictive, Trace_ELBO  # noqa: E402
from pyro.infer import autoguide as guides  # noqa: E402
from pyro.nn import PyroModule, PyroSample  # noqa: E402
from pyro.nn.module import to_pyro_module_  # noqa: E402

X = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
FORWARDS = 400  # of the library, which takes them one by one
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def bayesian(net: nn.Module, last_only: bool = False) -> nn.Module:
    """Standard normal priors on all weights, or on those of the last layer."""
    to_pyro_module_(net)
    layers = [module for module in net.modules() if isinstance(module, nn.Linear)]
    for module in layers[-1:] if last_only else layers:
        for name, value in list(module.named_parameters(recurse=False)):
            setattr(
                module,
                name,
                PyroSample(dist.Normal(torch.zeros_like(value), 1.0).to_event(value.dim())),
            )
    return net


class Classifier(PyroModule):
    """A network as one part of a model that draws a temperature as well."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.temperature = PyroSample(dist.LogNormal(0.0, 0.1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        logits, temperature = self.net(x), self.temperature
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Categorical(logits=logits * temperature), obs=y)
        return pyro.deterministic("logits", logits)


def fitted(kind: str, model: nn.Module, steps: int = 60) -> nn.Module:
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide = getattr(guides, kind)(model, init_scale=0.02)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.03}), Trace_ELBO())
    for _ in range(steps):
        svi.step(X, Y)
    return guide


def sequential() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))


def drawn(guide: nn.Module) -> dict[str, Tensor]:
    """The guide's own draws by site, [S, *shape]."""
    with torch.no_grad():
        found = Predictive(guide, num_samples=DRAWS, parallel=True)(X)
    return {
        f"net.{i}.{part}": found[f"net.{i}.{part}"].squeeze()
        for i in (0, 2)
        for part in ("weight", "bias")
    }


def in_order(sites: dict[str, Tensor]) -> Tensor:
    """Draws by site as [S, n], matrices transposed."""
    return torch.cat(
        [(value.mT if value.dim() == 3 else value).flatten(1) for value in sites.values()], 1
    )


@pytest.mark.parametrize(
    "kind",
    ["AutoNormal", "AutoDiagonalNormal", "AutoLowRankMultivariateNormal", "AutoMultivariateNormal"],
)
def test_a_guide_is_what_it_draws(kind: str, tmp_path: Path) -> None:
    model = Classifier(bayesian(sequential()))
    guide = fitted(kind, model)
    network, posterior = from_pyro(guide, model.net)
    assert network == mlp(2, 4, 3, activation=Tanh())
    assert isinstance(posterior, LowRankNormal if "Multivariate" in kind else Normal)
    x, theirs, mine = X[:2], drawn(guide), ours(posterior)
    assert_same_moments(in_order(theirs), mine)
    some = {name: value[:FORWARDS] for name, value in theirs.items()}
    with torch.no_grad():
        logits = Predictive(model, posterior_samples=some, return_sites=["logits"], parallel=False)(
            x
        )
        logits = logits["logits"].squeeze(1).double()
    torch.testing.assert_close(
        network.forward(in_order(some).double(), x.double()), logits, rtol=1e-4, atol=1e-4
    )
    assert_same_moments(logits[:, 0], network.forward(mine, x.double())[:, 0])
    assert_certified(network, posterior, in_order(theirs), X[:6], tmp_path)


class ByHand(PyroModule):
    """A network whose forward is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = PyroModule[nn.Linear](2, 4), PyroModule[nn.Linear](4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


def test_a_forward_written_by_hand_and_layers_that_stay_certain() -> None:
    torch.manual_seed(0)
    model = Classifier(bayesian(ByHand(), last_only=True))
    guide = fitted("AutoDiagonalNormal", model, steps=3)
    with pytest.warns(UserWarning, match=r"first\.weight, first\.bias: taken as certain"):
        network, posterior = from_pyro(guide, model.net)
    assert network == mlp(2, 4, 3)
    assert isinstance(posterior, Normal)
    assert posterior.mean[:8].reshape(2, 4).equal(model.net.first.weight.detach().double().mT)
    assert bool((posterior.std[:12] == 0).all())
    assert bool((posterior.std[12:] > 0).all())
    assert isinstance(model.net.first, PyroModule)  # the user's network is as it was


def test_a_plain_network_of_the_same_names() -> None:
    model = Classifier(bayesian(sequential()))
    guide = fitted("AutoNormal", model, steps=1)
    assert from_pyro(guide, sequential())[1].digest == from_pyro(guide, model.net)[1].digest


class Regression(PyroModule):
    """Pyro's tutorial of Bayesian regression, by a network of 20 hidden neurons."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.net = bayesian(nn.Sequential(nn.Linear(1, 20), activation, nn.Linear(20, 1)))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        mean = self.net(x).squeeze(-1)
        sigma = pyro.sample("sigma", dist.Gamma(0.5, 1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, sigma), obs=y)
        return mean


def regression(activation: nn.Module, steps: int) -> tuple[Network, Normal]:
    """Fitted to a noisy sine on 60 points of [-1.5, 1.5], about standardised."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    model = Regression(activation)
    x = torch.linspace(-1.5, 1.5, 60)
    y = 0.8 * torch.sin(2 * x) + 0.1 * torch.randn(60)
    guide = guides.AutoNormal(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.02}), Trace_ELBO())
    for _ in range(steps):
        svi.step(x.unsqueeze(1), y)
    network, posterior = from_pyro(guide, model.net)
    assert isinstance(posterior, Normal)
    return network, posterior


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU()], ids=["tanh", "relu"])
@pytest.mark.parametrize("eps", [0.0, 0.01])
def test_a_regression_is_certified(activation: nn.Module, eps: float, tmp_path: Path) -> None:
    """Without a certificate in mind, also on boxes: an output near its mean, from both sides."""
    network, posterior = regression(activation, steps=400)
    region = ball(torch.tensor([[0.6]]).double(), eps)
    weights = sample(posterior, 4000, 1)
    points = (0.6 + eps * torch.linspace(-1, 1, 21).double()).reshape(-1, 1)
    middle = float(network.forward(posterior.mean, region.center))
    away = (network.forward(weights, points) - middle).abs().amax((1, 2))
    for share in (0.7, 0.9):
        tolerance = float(away.quantile(share))
        spec = output_interval(region, middle - tolerance, middle + tolerance)
        (result,) = certify(Problem(network, posterior, spec), Concentration(upper=True))
        assert result.lower - 0.03 < share < result.upper + 0.03
        assert result.upper - result.lower < 0.3
    assert result.certificate is not None
    result.certificate.write(tmp_path / "c.safetensors")
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    model = read_model(tmp_path / "p.safetensors")
    assert check_certificate(tmp_path / "c.safetensors", model).status == ACCEPT


def test_what_cannot_be_read_is_refused() -> None:
    model = Classifier(bayesian(sequential()))
    with pytest.raises(InputError, match="SVI"):
        from_pyro(guides.AutoNormal(model), model.net)
    with pytest.raises(InputError, match="AutoDelta"):
        from_pyro(guides.AutoDelta(model), model.net)
    guide = fitted("AutoNormal", model, steps=1)
    with pytest.raises(InputError, match="do not match"):
        from_pyro(guide, nn.Sequential(nn.Flatten(), nn.Linear(2, 3)))
    with pytest.raises(InputError, match="shape"):
        from_pyro(guide, nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 3)))


def test_weights_need_priors_on_all_real_numbers() -> None:
    net = bayesian(sequential())
    net[0].bias = PyroSample(dist.LogNormal(torch.zeros(4), 1.0).to_event(1))
    model = Classifier(net)
    with pytest.raises(InputError, match=r"net\.0\.bias.*real"):
        from_pyro(fitted("AutoNormal", model, steps=1), model.net)


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    (code,) = blocks("importers/pyro.md")
    names = run(code, model=Classifier(bayesian(sequential())), inputs=X, targets=Y)
    (certify,) = blocks("importers/index.md")
    run(certify, network=names["network"], posterior=names["posterior"], x=X[:2].double())
    assert capsys.readouterr().out.startswith("[")
