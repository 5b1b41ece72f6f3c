"""posteriors: its states' draws and ours have the same moments, and certificates hold."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError, mlp
from bnncert.importers.posteriors_library import from_posteriors
from bnncert.importers.samples import from_samples
from bnncert.layers import Tanh
from bnncert.posteriors import Normal
from moments import DRAWS, assert_certified, assert_same_moments, ours
from pages import blocks, run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import posteriors.vi  # the library: the folder of tests of this name has no such module
        import torchopt

        import posteriors
except ModuleNotFoundError as error:
    pytest.skip(f"posteriors is not installed ({error})", allow_module_level=True)

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def sequential() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))


NET = sequential()


def parameters(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in net.named_parameters()}


def log_posterior(params: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    logits = torch.func.functional_call(NET, params, batch[0])
    prior = posteriors.diag_normal_log_prob(params) / len(X)
    return -nn.functional.cross_entropy(logits, batch[1]) + prior, logits


def log_likelihoods(
    params: dict[str, Tensor], batch: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    logits = torch.func.functional_call(NET, params, batch[0])
    return -nn.functional.cross_entropy(logits, batch[1], reduction="none"), logits


def optimised() -> dict[str, Tensor]:
    net = sequential()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        optimiser.step()
    return parameters(net)


def variational() -> tuple[Any, Any]:
    method = posteriors.vi.diag
    transform = method.build(
        log_posterior, torchopt.adam(lr=0.03), temperature=1e-4, init_log_sds=-4.0
    )
    state = transform.init(parameters(NET))
    for _ in range(100):
        state, _ = transform.update(state, (X, Y))
    return method, state


def laplace() -> tuple[Any, Any]:
    method = posteriors.laplace.diag_fisher
    transform = method.build(log_likelihoods, per_sample=True, init_prec_diag=1000.0)
    return method, transform.update(transform.init(optimised()), (X, Y))[0]


def kalman() -> tuple[Any, Any]:
    method = posteriors.ekf.diag_fisher
    transform = method.build(log_likelihoods, lr=1e-3, per_sample=True, init_sds=0.02)
    return method, transform.update(transform.init(optimised()), (X, Y))[0]


@pytest.mark.parametrize("build", [variational, laplace, kalman])
def test_a_state_is_what_it_draws(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(1)
    method, state = build()
    network, posterior = from_posteriors(state, sequential())
    assert network == mlp(2, 4, 3, activation=Tanh())
    assert isinstance(posterior, Normal)
    torch.manual_seed(2)
    found = {
        name: value.detach() for name, value in method.sample(state, torch.Size([DRAWS])).items()
    }
    theirs = torch.cat([(v.mT if v.dim() == 3 else v).flatten(1) for v in found.values()], 1)
    mine, x = ours(posterior), X[:2]
    assert_same_moments(theirs, mine)
    logits = (
        torch.func.vmap(lambda params: torch.func.functional_call(NET, params, x))(found)
        .detach()
        .double()
    )
    torch.testing.assert_close(
        network.forward(theirs.double(), x.double()), logits, rtol=1e-4, atol=1e-4
    )
    assert_same_moments(logits[:, 0], network.forward(mine, x.double())[:, 0])
    assert_certified(network, posterior, theirs, X[:6], tmp_path)


def test_a_chain_of_langevin_dynamics() -> None:
    """Every state's params are a sample."""
    transform = posteriors.sgmcmc.sgld.build(log_posterior, lr=1e-3)
    state, chain = transform.init(optimised()), []
    for _ in range(10):
        state, _ = transform.update(state, (X, Y))
        chain.append({name: value.detach().clone() for name, value in state.params.items()})
    network, posterior = from_samples(sequential(), chain)
    expected = (
        torch.stack([torch.func.functional_call(NET, params, X) for params in chain])
        .detach()
        .double()
    )
    torch.testing.assert_close(
        network.forward(posterior.samples, X.double()), expected, rtol=1e-4, atol=1e-4
    )


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="SimpleNamespace is not a state"):
        from_posteriors(SimpleNamespace(), NET)
    method = posteriors.laplace.diag_fisher
    state = method.build(log_likelihoods).init(parameters(NET))
    with pytest.raises(InputError, match="prior's precision"):
        from_posteriors(state, NET)
    with pytest.raises(InputError, match="named_parameters"):
        from_posteriors(method.build(log_likelihoods).init(torch.zeros(27)), NET)
    named = method.build(log_likelihoods, init_prec_diag=1.0).init({"weight": torch.zeros(2)})
    with (
        pytest.warns(UserWarning, match="certain"),
        pytest.raises(InputError, match="no parameter 'weight'"),
    ):
        from_posteriors(named, NET)


def test_the_page() -> None:
    (code,) = blocks("importers/posteriors.md")
    names = run(code, net=sequential(), log_posterior=log_posterior, inputs=X, targets=Y)
    assert isinstance(names["posterior"], Normal)
