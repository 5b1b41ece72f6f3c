"""`robust_loss`: known answers, its promise for drawn networks, what training with it brings, what
it refuses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal as Gaussian

from bnncert import (
    InputError,
    Problem,
    ball,
    certify,
    class_robust,
    from_torch,
    robust,
    robust_loss,
)
from bnncert.posteriors import sample
from living import build, examples
from trainings import blobs

pytestmark = pytest.mark.usefixtures("one_thread")


# Known answers


def test_one_layer_is_the_formula() -> None:
    """A row D ~ N(d, s²) of two classes: m = d·x - Σ r E|D| and L² = Σ s² max|x'|² + s_b², and the
    loss is log(1 + exp(τ L - m)). Values and gradients, in the exponential of torchbnn."""
    torchbnn = pytest.importorskip("torchbnn")
    torch.manual_seed(0)
    layer = torchbnn.BayesLinear(0, 0.1, 3, 2).double()
    x = torch.tensor([[0.3, 0.5, 0.99]], dtype=torch.float64)
    loss = robust_loss(layer, x, torch.tensor([1]), 0.05, tau=2.0)
    loss.backward()
    found = [leaf.grad.clone() for leaf in layer.parameters()]
    layer.zero_grad()

    low, high = x[0] - 0.05, (x[0] + 0.05).clamp_max(1)
    center, radius = (low + high) / 2, (high - low) / 2
    row = layer.weight_mu[1] - layer.weight_mu[0]
    std = (2 * layer.weight_log_sigma).exp().sum(0).sqrt()
    folded = (
        row * (1 - 2 * Gaussian(0, 1).cdf(-row / std))
        + std * math.sqrt(2 / math.pi) * (-(row**2) / (2 * std**2)).exp()
    )
    margin = (row * center).sum() + layer.bias_mu[1] - layer.bias_mu[0] - (radius * folded).sum()
    squared = (std**2 * high**2).sum() + (2 * layer.bias_log_sigma).exp().sum()
    known = nn.functional.softplus(2.0 * squared.sqrt() - margin)
    known.backward()
    assert loss.item() == pytest.approx(known.item(), rel=1e-12)
    for gradient, leaf in zip(found, layer.parameters(), strict=True):
        assert torch.allclose(gradient, leaf.grad, rtol=1e-9, atol=1e-12)


def test_without_spread_and_radius_it_is_the_cross_entropy() -> None:
    module = build("plain", "convolutional")
    x, y = examples("convolutional")
    known = nn.functional.cross_entropy(module(x), y)
    assert robust_loss(module, x, y, eps=0.0).item() == pytest.approx(known.item(), rel=1e-12)
    gradients = torch.autograd.grad(known, list(module.parameters()))
    robust_loss(module, x, y, eps=0.0).backward()
    for leaf, gradient in zip(module.parameters(), gradients, strict=True):
        assert torch.allclose(leaf.grad, gradient, rtol=1e-9, atol=1e-12)


def test_a_radius_of_zero_leaves_the_spread() -> None:
    module = build("plain", "dense")
    x, y = examples("dense")
    losses = [robust_loss(module, x, y, eps, std=0.05) for eps in (0.0, 0.01, 0.1)]
    assert losses == sorted(losses)
    assert losses[0] > robust_loss(module, x, y, eps=0.0)
    losses[0].backward()
    assert all(bool(leaf.grad.isfinite().all()) for leaf in module.parameters())


def test_regression_is_at_the_farther_end() -> None:
    """y = 2 x with x in [0.4, 0.6]: outputs 0.8 to 1.2, and 0.9 is farther from 1.2."""
    module = nn.Linear(1, 1, bias=False).double()
    module.weight.data.fill_(2.0)
    x, y = torch.tensor([[0.5]]), torch.tensor([0.9])
    loss = robust_loss(module, x, y, eps=0.1, noise_std=0.5)
    known = -Gaussian(1.2, 0.5).log_prob(torch.tensor(0.9, dtype=torch.float64))
    assert loss.item() == pytest.approx(known.item(), rel=1e-6)


def test_regions_are_clipped_unless_told_otherwise() -> None:
    module = nn.Linear(1, 1, bias=False).double()
    module.weight.data.fill_(1.0)
    x, y = torch.ones(1, 1), torch.zeros(1)
    ends = {(0.0, 1.0): 1.0, (0.0, 1.2): 1.2, None: 1.5}
    for clip, end in ends.items():
        loss = robust_loss(module, x, y, eps=0.5, clip=clip, noise_std=1.0)
        known = end**2 / 2 + math.log(2 * math.pi) / 2
        assert loss.item() == pytest.approx(known, rel=1e-6)


# What it promises


@pytest.mark.parametrize("kind", ["dense", "convolutional"])
def test_drawn_networks_do_no_worse(kind: str) -> None:
    """Each example's loss holds on all of its box but for 0.03 + 2 Q(2) of the networks."""
    module = build("plain", kind)
    network, posterior = from_torch(module, examples(kind)[0].shape[1:], std=0.1)
    drawn = sample(posterior, 1000, seed=0)
    generator = torch.Generator().manual_seed(3)
    for x, y in zip(*examples(kind), strict=True):
        loss = robust_loss(module, x[None], y[None], eps=0.05, std=0.1, tau=2.0)
        noise = torch.randint(2, (64, *x.shape), generator=generator) * 0.1 - 0.05
        points = (x + noise).clamp(0, 1)
        outputs = network.forward(drawn, points)
        worst = -outputs.log_softmax(-1)[..., int(y)].amin(-1)
        assert float((worst > loss).double().mean()) <= 0.03 + 2 * 0.0228


class Trainable(nn.Module):
    """Plain layers whose standard deviations are parameters beside them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
        self.logs = nn.ParameterList(
            torch.full_like(value, -1.5) for value in self.layers.parameters()
        )

    def std(self) -> Mapping[str, Tensor]:
        names = [name for name, _ in self.layers.named_parameters()]
        return {name: log.exp() for name, log in zip(names, self.logs, strict=True)}

    def certified(self, x: Tensor, y: Tensor, eps: float) -> float:
        """The certified probability on average."""
        network, posterior = from_torch(self.layers, std=self.std())
        problem = Problem(network, posterior, class_robust(ball(x, eps), y, network.outputs))
        return sum(result.lower for result in certify(problem)) / len(x)


def test_training_lowers_the_loss_and_certifies() -> None:
    """With radius and share rising: at once, they would take the weights to 0."""
    x, y = blobs(30)
    model = Trainable()
    before = model.certified(x[:6], y[:6], 0.2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for step in range(100):
        share = step / 99
        nll = nn.functional.cross_entropy(model.layers(x.float()), y)
        bound = robust_loss(model.layers, x, y, 0.2 * share, clip=None, std=model.std())
        optimiser.zero_grad()
        ((1 - share) * nll + share * bound).backward()
        optimiser.step()
        losses.append(bound.item())
    after = model.certified(x[:6], y[:6], 0.2)
    assert losses[-1] < losses[0] / 10
    assert before < 0.1
    assert after > 0.9


# What it refuses


def asked(module: nn.Module, **changes: Any) -> Tensor:
    x, y = examples("dense")
    settings: dict[str, Any] = {"x": x, "y": y, "eps": 0.01} | changes
    return robust_loss(module, settings.pop("x"), settings.pop("y"), **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eps": -0.1}, "eps is -0.1; give a radius of at least 0"),
        ({"eps": math.nan}, "eps is nan"),
        ({"t": 0.0}, "t is 0.0; give a positive number, or leave it out"),
        ({"tau": -1.0}, "tau is -1.0"),
        ({"noise_std": 0.0}, "noise_std is 0.0; give a positive number, or none for classes"),
        ({"noise_std": 0.1}, r"targets have shape \(8,\), and the network has 3 outputs"),
        ({"y": torch.ones(8)}, r"targets are torch.float32; give integer labels, or noise_std"),
        ({"y": torch.full((8,), 3)}, "labels must be integers from 0 to 2"),
        ({"y": torch.zeros(7).long()}, r"labels have shape \(7,\) for 8 inputs"),
        ({"x": torch.rand(8, 3)}, r"0: Linear does not fit"),
        ({"x": torch.full((8, 2), math.nan)}, "inputs hold NaN or infinity"),
        ({"x": torch.ones(8, 2, dtype=torch.complex64)}, "must be real numbers"),
        ({"y": torch.ones(8, dtype=torch.complex64)}, "must be real numbers"),
        ({"clip": (1.0, 0.0)}, r"clip is \(1.0, 0.0\); give the least and the largest input"),
        ({"clip": (math.nan, 1.0)}, "clip is"),
        ({"clip": (0.0, 0.5, 1.0)}, "clip is"),
        ({"std": -0.1}, "negative"),
        ({"std": math.nan}, "'std' holds NaN or infinity"),
        ({"std": {"1.weight": 0.1}}, r"std names '1\.weight'; parameters that take one are"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    module = build("plain", "dense")
    with pytest.raises(InputError, match=message):
        asked(module, **changes)
    asked(module)
    with pytest.raises(InputError, match=message):  # what was taken once changes nothing
        asked(module, **changes)


def test_weights_without_a_value_are_no_posterior() -> None:
    module = build("plain", "dense")
    asked(module)
    with torch.no_grad():
        module[0].weight[0, 0] = math.nan
    with pytest.raises(InputError, match="'mean' holds NaN or infinity"):
        asked(module)
    for read in (asked, lambda module: from_torch(module, std=0.1)):
        with pytest.raises(InputError, match="on the meta device, where weights have no values"):
            read(build("plain", "dense").to("meta"))


def test_one_class_is_none() -> None:
    with pytest.raises(InputError, match="one class is always right"):
        asked(nn.Linear(2, 1), y=torch.zeros(8).long())


def doubled(module: nn.Sequential) -> None:
    forward = module[1].forward
    module[1].forward = lambda x: 2 * forward(x)  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module[1].register_forward_hook(lambda _, __, output: 2 * output),
        lambda module: module[1].register_forward_pre_hook(lambda _, inputs: (2 * inputs[0],)),
        doubled,
    ],
)
def test_what_names_and_types_do_not_show_is_seen_later_too(change: Any) -> None:
    module = build("plain", "dense")
    asked(module)
    change(module)
    known = refusal(lambda: from_torch(module, std=0.0))
    assert refusal(lambda: asked(module)) == known


def refusal(call: Any) -> str:
    with pytest.raises(InputError) as found:
        call()
    assert "\n" not in str(found.value)
    return str(found.value)


class Scaled(nn.ReLU):
    """Computes more than its class shows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(lambda _, __, output: 2 * output)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(2, 3), nn.Tanhshrink()),
        nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, track_running_stats=False)),
        nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 3)),
        nn.Sequential(nn.ReLU()),
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))),
        nn.Sequential(nn.Linear(2, 3), Scaled()),
    ],
)
def test_what_importers_refuse_is_refused_in_the_same_words(module: nn.Module) -> None:
    known = refusal(lambda: from_torch(module, (2,), std=0.0))
    assert refusal(lambda: asked(module, std=0.0)) == known
    assert refusal(lambda: asked(module, std=0.0)) == known  # the second time as well


def test_std_is_for_plain_parameters_only() -> None:
    module = build("torchbnn", "dense")
    known = refusal(lambda: from_torch(module, std=0.1))
    assert refusal(lambda: asked(module, std=0.1)) == known


def test_warnings_point_at_the_users_line_and_a_module_is_run_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        robust_loss(module, *examples("dense"), eps=0.01)
    (warning,) = found
    assert "not Monte Carlo dropout" in str(warning.message)
    assert warning.filename == __file__

    runs: list[int] = []
    monkeypatch.setattr(robust, "check_agreement", lambda *_: runs.append(1))
    with pytest.warns(UserWarning, match="dropout"):
        asked(module)
    assert runs == []
    module.append(nn.Linear(3, 3))
    with pytest.warns(UserWarning, match="dropout"):
        asked(module)
    assert runs == [1]
