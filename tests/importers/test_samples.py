"""Weight samples: ensembles and chains keep every network they had; SWAG draws what the paper's
formula draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from bnncert import InputError, mlp
from bnncert.importers.samples import from_samples, from_swag
from bnncert.posteriors import LowRankNormal, Mixture, Normal
from bnncert.posteriors.base import sample
from bnncert.posteriors.empirical import Empirical
from moments import DRAWS, assert_certified, assert_same_moments, ours
from pages import blocks, run
from scenarios import gaussian

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def sequential(seed: int = 0, normalised: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    between = [nn.BatchNorm1d(4)] if normalised else []
    return nn.Sequential(nn.Linear(2, 4), *between, nn.ReLU(), nn.Linear(4, 3))


def trained(net: nn.Module, steps: int = 60) -> nn.Module:
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        optimiser.step()
    return net.eval()


@pytest.mark.parametrize("normalised", [False, True])
def test_an_ensemble_keeps_each_of_its_networks(normalised: bool, tmp_path: Path) -> None:
    """Batch normalisations differ from member to member and are folded into each."""
    members = [trained(sequential(seed, normalised)) for seed in range(4)]
    network, posterior = from_samples(
        sequential(9, normalised), [member.state_dict() for member in members]
    )
    assert network == mlp(2, 4, 3)
    outputs = torch.stack([member(X) for member in members]).double()
    torch.testing.assert_close(
        network.forward(posterior.samples, X.double()), outputs, rtol=1e-5, atol=1e-5
    )
    # Until samples have a bound of their own: four point masses.
    points = tuple(Normal(row, torch.zeros_like(row)) for row in posterior.samples)
    assert_certified(network, Mixture((0.25,) * 4, points), posterior.samples, X[:6], tmp_path)


def test_arrays_by_name_for_a_module_and_for_a_network() -> None:
    generator = torch.Generator().manual_seed(0)
    net = sequential()
    arrays = {
        name: gaussian(5, *value.shape, generator=generator)
        for name, value in net.named_parameters()
    }
    network, posterior = from_samples(net, arrays)
    for s in range(5):
        expected = torch.func.functional_call(
            net.double(), {name: value[s] for name, value in arrays.items()}, X.double()
        )
        torch.testing.assert_close(network.forward(posterior.samples[s], X.double()), expected)
    own = {"w1": arrays["0.weight"].mT.numpy(), "b1": arrays["0.bias"].numpy(), "noise": np.ones(5)}
    own |= {"w2": arrays["2.weight"].mT.numpy(), "b2": arrays["2.bias"].numpy()}
    again = from_samples(mlp(2, 4, 3), own, names={"w1": "W0", "b1": "b0", "w2": "W1", "b2": "b1"})[
        1
    ]
    assert again.digest == posterior.digest


def test_parameters_without_samples_are_certain() -> None:
    net = sequential()
    with pytest.warns(UserWarning, match=r"0\.weight, 0\.bias: taken as certain"):
        posterior = from_samples(
            net, {"2.weight": torch.randn(3, 3, 4), "2.bias": torch.randn(3, 3)}
        )[1]
    assert bool((posterior.samples[:, :12] == posterior.samples[0, :12]).all())


def test_an_empirical_posterior_draws_its_samples() -> None:
    rows = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.25, 1.0], [9.0, 9.0]], dtype=torch.float64)
    posterior = Empirical(rows)
    assert (posterior.size, posterior.family) == (2, "empirical")
    assert posterior.center.tolist() == [1.25, 1.0]
    draws = sample(posterior, 400, seed=0)
    shares = [float((draws == row).all(1).double().mean()) for row in rows]
    assert sum(shares) == 1
    assert all(abs(share - 0.25) < 5 * (0.1875 / 400) ** 0.5 for share in shares)
    assert posterior.digest == Empirical(rows.clone()).digest != Empirical(rows.flip(0)).digest
    assert posterior.to("cpu").digest == posterior.digest


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (torch.zeros(3, dtype=torch.float64), "shape"),
        (torch.zeros(0, 3, dtype=torch.float64), "at least one"),
        (torch.zeros(2, 3), "float64"),
        (torch.full((2, 3), torch.nan, dtype=torch.float64), "finite"),
        (torch.full((2, 3), 1e200, dtype=torch.float64), "finite"),
    ],
)
def test_malformed_samples_are_refused(samples: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Empirical(samples)


def test_samples_that_do_not_fit_are_refused() -> None:
    net, state = sequential(), sequential().state_dict()
    arrays = {name: value.expand(4, *value.shape) for name, value in state.items()}
    cases: list[tuple[object, str]] = [
        ([], "at least one"),
        (
            [{name: value for name, value in state.items() if name != "0.bias"}],
            r"Missing key.*0\.bias",
        ),
        ({**arrays, "2.bias": torch.zeros(3, 3)}, r"'2\.bias' have shape \(3, 3\); give \(4, 3\)"),
        ({**arrays, "2.bias": torch.zeros(4, 2)}, r"'2\.bias' have shape \(4, 2\)"),
        (
            {name: value.expand(2, *value.shape) for name, value in arrays.items()},
            r"shape \(2, 4, 4, 2\)",
        ),
        ({name: value[:0] for name, value in arrays.items()}, "at least one"),
        ({**arrays, "noise": torch.zeros(4)}, "no parameter 'noise'"),
        ({**arrays, "2.bias": torch.zeros(4, 3, dtype=torch.int64)}, "floating-point"),
    ]
    for samples, message in cases:
        with pytest.raises(InputError, match=message):
            from_samples(net, samples)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="state_dicts"):
        from_samples(mlp(2, 4, 3), [state])
    with pytest.raises(InputError, match=r"two of the names a, b .*'0\.bias'"):
        from_samples(net, arrays, names={"a": "0.bias", "b": "0.bias"})
    with pytest.raises(InputError, match="no 'w1' among"):
        from_samples(net, arrays, names={"w1": "0.weight"})
    with pytest.raises(InputError, match="no values for the parameter 'b1'"):
        from_samples(
            mlp(2, 4, 3),
            {"W0": torch.zeros(2, 2, 4), "b0": torch.zeros(2, 4), "W1": torch.zeros(2, 4, 3)},
        )


def test_a_module_with_a_posterior_of_its_own_is_refused() -> None:
    """Its state_dict holds means and spreads, and is no sample."""
    torchbnn = pytest.importorskip("torchbnn", reason="torchbnn is not installed")
    net = nn.Sequential(
        torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=2, out_features=3)
    )
    with pytest.raises(InputError, match="from_torch"):
        from_samples(net, [net.state_dict()])


def collected(
    rank: int = 6,
) -> tuple[nn.Module, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """The last iterates of SGD: torch's running mean, the mean of the squares, and the deviations
    from the mean."""
    net = trained(sequential()).train()
    mean, squares, deviations = AveragedModel(net), AveragedModel(net), []
    optimiser = torch.optim.SGD(net.parameters(), lr=0.02)
    for _ in range(3 * rank):
        index = torch.randint(len(X), (10,))
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(X[index]), Y[index]).backward()
        optimiser.step()
        mean.update_parameters(net)
        squared = sequential()
        squared.load_state_dict({name: value**2 for name, value in net.state_dict().items()})
        squares.update_parameters(squared)
        centre = mean.module.state_dict()
        deviations.append({name: value - centre[name] for name, value in net.state_dict().items()})
    columns = {
        name: torch.stack([each[name] for each in deviations[-rank:]]) for name in net.state_dict()
    }
    # As float64: sq_mean - mean² cancels, and SWAG itself is at the mercy of the digits it is
    # computed with.
    means, means_of_squares = (
        {name: value.double() for name, value in each.module.state_dict().items()}
        for each in (mean, squares)
    )
    return net.eval(), means, means_of_squares, columns


@pytest.mark.parametrize("diagonal", [False, True])
def test_swag_draws_by_its_formula(diagonal: bool, tmp_path: Path) -> None:
    """w = θ + Σ^½ z / √2 + D z' / √(2(K - 1)), drawn here tensor by tensor."""
    net, mean, squares, columns = collected()
    network, posterior = from_swag(net, mean, squares, None if diagonal else columns)
    assert isinstance(posterior, Normal if diagonal else LowRankNormal)
    generator = torch.Generator().manual_seed(1)
    shared = gaussian(DRAWS, 6, generator=generator)
    parts = []
    for name, centre in mean.items():
        own = (
            gaussian(DRAWS, *centre.shape, generator=generator)
            * (squares[name] - centre**2).clamp_min(1e-30).sqrt()
        )
        along = torch.einsum("sk,k...->s...", shared, columns[name].double())
        drawn = centre + (own if diagonal else own / 2**0.5 + along / 10**0.5)
        parts.append((drawn.mT if centre.dim() == 2 else drawn).flatten(1))
    theirs, mine = torch.cat(parts, 1), ours(posterior)
    assert_same_moments(theirs, mine)
    outputs = [network.forward(draws, X[:1].double())[:, 0] for draws in (theirs, mine)]
    assert_same_moments(*outputs)
    assert_certified(network, posterior, theirs, X[:6], tmp_path)


def test_swag_that_does_not_fit_is_refused() -> None:
    net, mean, squares, columns = collected(2)
    with pytest.raises(InputError, match="at least 2"):
        from_swag(net, mean, squares, {name: value[:1] for name, value in columns.items()})
    with pytest.raises(InputError, match="sq_mean"):
        from_swag(net, mean, {"0.weight": squares["0.weight"]})
    with pytest.raises(InputError, match="no parameter 'n_averaged'"):
        from_swag(
            net, {**mean, "n_averaged": torch.ones(1)}, {**squares, "n_averaged": torch.ones(1)}
        )


def test_the_page() -> None:
    ensemble = [trained(sequential(seed), steps=1) for seed in range(3)]
    members, chain, points = blocks("importers/samples.md", "Samples")
    names = run(members, net=sequential(), ensemble=ensemble)
    assert isinstance(names["posterior"], Empirical)
    assert isinstance(run(points, posterior=names["posterior"])["posterior"], Mixture)
    arrays = {
        "w1": np.ones((5, 2, 4)),
        "b1": np.ones((5, 4)),
        "w2": np.ones((5, 4, 3)),
        "b2": np.ones((5, 3)),
    }
    assert isinstance(run(chain, chain=arrays)["posterior"], Empirical)
    net, mean, squares, columns = collected(2)
    (code,) = blocks("importers/samples.md", "SWAG")
    found = run(code, net=net, mean=mean, sq_mean=squares, deviations=columns)["posterior"]
    assert isinstance(found, LowRankNormal)
