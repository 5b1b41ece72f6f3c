"""NumPyro: the guides' draws and ours have the same moments, chains keep their networks, and
certificates hold."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError, Network
from bnncert.importers.numpyro import from_numpyro
from bnncert.importers.samples import from_samples
from bnncert.layers import Dense, Tanh
from bnncert.posteriors import LowRankNormal, Mixture, Normal
from moments import DRAWS, assert_certified, assert_same_moments, ours
from pages import blocks, run

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:jax"
)

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jax
        import numpyro
        from jax import numpy as jnp
        from numpyro import distributions as dist
        from numpyro.infer import HMC, MCMC, SVI, Predictive, Trace_ELBO, autoguide
except ModuleNotFoundError as error:
    pytest.skip(f"NumPyro is not installed ({error})", allow_module_level=True)

# NumPyro compiles every operation for every shape: sites of one shape, and no checks of its own,
# keep that short.
numpyro.enable_validation(False)
X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
NETWORK = Network((3,), (Dense(3, 3, bias=False), Tanh(), Dense(3, 3, bias=False)))
NAMES = {"first": "W0", "last": "W1"}


def model(x: Any, y: Any = None) -> None:
    """A network as a function of its sites, whose logits are divided by a random temperature."""
    first = numpyro.sample("first", dist.Normal(np.zeros((3, 3), np.float32), 1.0).to_event(2))
    temperature = numpyro.sample("temperature", dist.LogNormal(0.0, 0.1))
    last = numpyro.sample("last", dist.Normal(np.zeros((3, 3), np.float32), 1.0).to_event(2))
    logits = numpyro.deterministic("logits", jnp.tanh(x @ first) @ last)
    numpyro.sample("y", dist.Categorical(logits=logits / temperature).to_event(1), obs=y)


@cache
def trained() -> dict[str, Any]:
    """What SVI finds with `AutoNormal`."""
    guide = autoguide.AutoNormal(model, init_scale=0.02)
    svi = SVI(model, guide, numpyro.optim.Adam(0.02), Trace_ELBO())
    return dict(svi.run(jax.random.key(0), 80, X, Y, progress_bar=False).params)


def fitted(kind: str) -> tuple[Any, dict[str, Any]]:
    """The guide with what SVI found; with correlations, which `AutoNormal` cannot find, made up."""
    guide = getattr(autoguide, kind)(model, init_scale=0.02)
    with numpyro.handlers.block(), numpyro.handlers.seed(rng_seed=0):
        guide(X, Y)  # meets its model
    if kind == "AutoNormal":
        return guide, trained()
    loc, scale = (
        np.concatenate([np.ravel(trained()[f"{site}_auto_{part}"]) for site in guide._init_locs])
        for part in ("loc", "scale")
    )
    random = np.random.default_rng(1)
    mixed = np.tril(random.normal(size=(19, 19)), -1) / 6 + np.eye(19)
    own = {
        "AutoDiagonalNormal": {"auto_scale": scale},
        "AutoLowRankMultivariateNormal": {
            "auto_scale": scale,
            "auto_cov_factor": random.normal(size=(19, 3)),
        },
        "AutoMultivariateNormal": {"auto_scale_tril": scale[:, None] * mixed},
    }[kind]
    return guide, {
        name: jnp.asarray(value, jnp.float32) for name, value in {"auto_loc": loc, **own}.items()
    }


def in_order(sites: dict[str, Any]) -> Tensor:
    return torch.cat(
        [torch.from_numpy(np.array(sites[site])).flatten(1) for site in NAMES], 1
    ).double()


@pytest.mark.parametrize(
    "kind",
    ["AutoNormal", "AutoDiagonalNormal", "AutoLowRankMultivariateNormal", "AutoMultivariateNormal"],
)
def test_a_guide_is_what_it_draws(kind: str, tmp_path: Path) -> None:
    guide, params = fitted(kind)
    network, posterior = from_numpyro(guide, params, NETWORK, NAMES)
    assert network == NETWORK
    assert isinstance(posterior, LowRankNormal if "Multivariate" in kind else Normal)
    sites = guide.sample_posterior(jax.random.key(1), params, sample_shape=(DRAWS,))
    theirs, mine, x = in_order(sites), ours(posterior), torch.from_numpy(X[:2]).double()
    assert_same_moments(theirs, mine)
    logits = Predictive(model, sites, return_sites=["logits"])(jax.random.key(2), X[:2])["logits"]
    logits = torch.from_numpy(np.array(logits)).double()
    torch.testing.assert_close(network.forward(theirs, x), logits, rtol=1e-4, atol=1e-4)
    assert_same_moments(logits[:, 0], network.forward(mine, x)[:, 0])
    assert_certified(network, posterior, theirs, torch.from_numpy(X[:6]), tmp_path)


def test_a_chain_keeps_its_networks(tmp_path: Path) -> None:
    chain = MCMC(
        HMC(model, num_steps=5, trajectory_length=None),
        num_warmup=60,
        num_samples=8,
        progress_bar=False,
    )
    chain.run(jax.random.key(0), X, Y)
    samples = chain.get_samples()
    network, posterior = from_samples(NETWORK, samples, NAMES)
    outputs = torch.from_numpy(np.array(samples["logits"])).double()
    torch.testing.assert_close(
        network.forward(posterior.samples, torch.from_numpy(X).double()),
        outputs,
        rtol=1e-4,
        atol=1e-4,
    )
    # Until samples have a bound of their own: eight point masses.
    points = tuple(Normal(row, torch.zeros_like(row)) for row in posterior.samples)
    mixture = Mixture((0.125,) * 8, points)
    assert_certified(network, mixture, posterior.samples, torch.from_numpy(X[:6]), tmp_path)


def torch_names(x: Any, y: Any = None) -> None:
    """Sites with the names and layouts of a module of torch."""
    weight = numpyro.sample("0.weight", dist.Normal(np.zeros((3, 3), np.float32), 1.0).to_event(2))
    bias = numpyro.sample("0.bias", dist.LogNormal(np.zeros(3, np.float32), 1.0).to_event(1))
    numpyro.sample("y", dist.Categorical(logits=x @ weight.T + bias).to_event(1), obs=y)


def test_a_module_of_torch_and_what_cannot_be_read() -> None:
    net = nn.Sequential(nn.Linear(3, 3))
    guide = autoguide.AutoNormal(torch_names)
    with pytest.raises(InputError, match="SVI"):
        from_numpyro(guide, {}, net)
    svi = SVI(torch_names, guide, numpyro.optim.Adam(0.02), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), X, Y))
    with pytest.raises(InputError, match=r"'0\.bias' has support.*real"):
        from_numpyro(guide, params, net)
    with pytest.warns(UserWarning, match=r"0\.bias: taken as certain"):
        network, posterior = from_numpyro(guide, params, net, {"0.weight": "0.weight"})
    assert isinstance(posterior, Normal)
    weight = torch.from_numpy(np.array(params["0.weight_auto_loc"])).double()
    assert network.split(posterior.mean)[0][0].equal(weight.mT)
    assert posterior.mean[9:].equal(net[0].bias.detach().double())
    with pytest.raises(InputError, match="no site 'w9'"):
        from_numpyro(guide, params, net, {"w9": "0.weight"})
    with (
        pytest.warns(UserWarning, match="certain"),
        pytest.raises(InputError, match=r"lack '0\.weight_auto_loc'"),
    ):
        from_numpyro(guide, {}, net, {"0.weight": "0.weight"})
    with pytest.raises(InputError, match="AutoDelta"):
        from_numpyro(autoguide.AutoDelta(torch_names), params, net)


def test_the_page() -> None:
    (code,) = blocks("importers/numpyro.md")
    guide = autoguide.AutoDiagonalNormal(model, init_scale=0.02)
    names = run(code, model=model, guide=guide, inputs=X, targets=Y)
    assert names["network"] == NETWORK
    assert isinstance(names["posterior"], Normal)
