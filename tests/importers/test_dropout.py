"""Monte Carlo dropout: each sample is the real module under its masks, and what has no such sample
is refused."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bnncert import InputError, Problem, ball, certify, class_robust, from_torch, save_posterior
from bnncert.importers.dropout import draw_masks, from_dropout
from bnncert.importers.module import read
from bnncert.posteriors import Empirical
from bnncert_check import ACCEPT, check_certificate, read_model
from moments import DRAWS, assert_same_moments
from pages import blocks, run
from scenarios import sample_region

SAMPLES = 6


class Given(TorchFunctionMode):
    """torch with dropout's noise replaced: call by call, by the masks given."""

    def __init__(self, masks: list[Tensor]) -> None:
        super().__init__()
        self.masks = list(masks)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func in (functional.dropout, functional.dropout2d) and options["p"] > 0:
            assert options["training"]
            return args[0] * self.masks.pop(0)
        return func(*args, **options)


def switched_on(module: nn.Module) -> nn.Module:
    """Dropout as in training, batch normalisations as in evaluation."""
    module.train()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            part.eval()
    return module


def normalised(norm: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.Module:
    """With statistics that are not those of a start."""
    for tensor in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        assert tensor is not None
        nn.init.uniform_(tensor, 0.5, 2.0)
    return norm


class Functional(nn.Module):
    """One module of dropout in two places, and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out, self.drop = (
            nn.Conv2d(2, 3, 3, padding=1),
            nn.Linear(12, 4),
            nn.Dropout2d(0.3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(functional.relu(self.conv(self.drop(x))))
        x = functional.dropout2d(functional.max_pool2d(x, 2), 0.4, training=self.training)
        return self.out(functional.dropout(x, 0.2, training=self.training).flatten(1))


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "after the activation": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)),
        (4,),
    ),
    "before it, twice, and on the input": (
        lambda: nn.Sequential(
            nn.Dropout(0.2),
            nn.Linear(4, 8),
            normalised(nn.BatchNorm1d(8)),
            nn.Dropout(0.1),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),
            nn.Linear(8, 5, bias=False),
            nn.Tanh(),
            nn.Dropout(0.25),
            nn.Linear(5, 3),
            nn.Softmax(1),
        ),
        (4,),
    ),
    "channels": (
        lambda: nn.Sequential(
            nn.Dropout2d(0.3),
            nn.Conv2d(3, 4, 3, padding=1),
            normalised(nn.BatchNorm2d(4)),
            nn.Dropout2d(0.4),
            nn.LeakyReLU(0.1),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 5, 2, padding=1),
            nn.ReLU(),
            nn.Dropout2d(0.5),
            nn.AvgPool2d(2),
            nn.MaxPool2d((1, 2), 1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(10, 3),
        ),
        (3, 6, 8),
    ),
    "single values of images": (
        lambda: nn.Sequential(
            nn.Dropout(0.3), nn.Flatten(), nn.Linear(18, 6), nn.Sigmoid(), nn.Linear(6, 2)
        ),
        (2, 3, 3),
    ),
    "images of one pixel": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.Dropout(0.5), nn.ReLU(), nn.Conv2d(4, 3, 1), nn.Flatten()
        ),
        (2, 3, 3),
    ),
    "functions": (Functional, (2, 4, 4)),
    "channels of a vector": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout2d(0.5), nn.Linear(6, 3)),
        (4,),
    ),
}


def made(name: str) -> tuple[nn.Module, tuple[int, ...], Tensor]:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    return make().double(), shape, torch.randn(5, *shape, dtype=torch.float64)


@pytest.mark.parametrize("name", MODULES)
def test_every_sample_is_the_module_under_its_masks(name: str) -> None:
    module, shape, x = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network, posterior = from_dropout(module, SAMPLES, seed=3, input_shape=shape)
    masks = draw_masks(read(module, shape, dropout=True), SAMPLES, seed=3)
    outputs = network.forward(posterior.samples, x)
    if isinstance(list(module.children())[-1], nn.Softmax):
        outputs = outputs.softmax(-1)
    for s in range(SAMPLES):
        with Given([mask[s] for mask in masks]) as given, torch.no_grad():
            expected = switched_on(module)(x)
        assert given.masks == []
        torch.testing.assert_close(outputs[s], expected, rtol=1e-12, atol=1e-12)
    assert outputs.std(0).max() > 1e-3


@pytest.mark.parametrize("name", ["after the activation", "channels"])
def test_outputs_are_distributed_as_torch_draws_them(name: str) -> None:
    module, shape, x = made(name)
    network, posterior = from_dropout(module, DRAWS, input_shape=shape)
    with torch.no_grad():
        theirs = torch.stack([switched_on(module)(x[:1])[0] for _ in range(DRAWS)])
    assert_same_moments(theirs, network.forward(posterior.samples, x[:1])[:, 0])


def test_masks_keep_the_mean_and_the_seed_decides() -> None:
    module, shape, _ = made("channels")
    reading = read(module, shape, dropout=True)
    for mask, p in zip(draw_masks(reading, 2000, 0), (0.3, 0.4, 0.5, 0.2), strict=True):
        assert {float(value) for value in mask.unique()} == {0.0, 1 / (1 - p)}
        error = math.sqrt(p / (1 - p) / mask.numel())
        assert abs(float(mask.mean()) - 1) < 5 * error
        apart = (
            (mask.flatten(1) - 1).mT @ (mask.flatten(1) - 1) / len(mask)
        )  # independent from entry to entry
        assert (apart - torch.diag(torch.diag(apart))).abs().max() < 5 * p / (1 - p) / math.sqrt(
            len(mask)
        )
    first, again, other = (from_dropout(module, 4, seed, shape)[1].digest for seed in (0, 0, 1))
    assert first == again != other


def test_the_module_stays_as_it_was_and_float32_is_read() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    posterior = from_dropout(module, 2)[1]
    assert posterior.samples.dtype == torch.float64
    assert module[2].training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def trained() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    x = torch.rand(80, 2) * 2 - 1
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    module = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    return module, x[:8].double()


def test_the_count_is_certified_and_checked(tmp_path: Path) -> None:
    module, x = trained()
    network, posterior = from_dropout(module, 40)
    with torch.no_grad():
        labels = module.eval().double()(x).argmax(-1)
    asked = class_robust(ball(x, 0.02), labels, 3)
    points = sample_region(asked.region, 100, torch.Generator().manual_seed(0))
    worst = torch.stack(
        [asked.margins(network.forward(posterior.samples, p)).amin(-1) for p in points]
    ).amin(0)
    save_posterior(tmp_path / "posterior.safetensors", network, posterior)
    model = read_model(tmp_path / "posterior.safetensors")
    results = certify(Problem(network, posterior, asked))
    assert {result.method for result in results} == {"enumeration"}
    assert max(result.lower for result in results) > 0.9
    assert min(result.upper for result in results) < 1
    for i, result in enumerate(results):
        assert result.lower <= float((worst[:, i] > 0).double().mean())
        assert result.certificate is not None
        result.certificate.write(tmp_path / "certificate.safetensors")
        assert check_certificate(tmp_path / "certificate.safetensors", model).status == ACCEPT


def test_folding_by_hand() -> None:
    module = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Dropout(0.75), nn.Linear(2, 1)).double()
    network, posterior = from_dropout(module, 50)
    (_, (weight, bias)) = (own for own in network.split(posterior.samples) if own)
    kept = (weight[..., 0] != 0).double()
    assert torch.equal(weight[..., 0], 4 * kept * module[3].weight[0].detach())
    assert torch.equal(bias, module[3].bias.detach().expand(50, 1))
    assert {tuple(row) for row in kept.tolist()} == {(0, 0), (0, 1), (1, 0), (1, 1)}


class Always(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.p, training=True)


REFUSED: dict[str, tuple[list[nn.Module], tuple[int, ...], str]] = {
    "output": ([nn.Linear(4, 3), nn.Dropout()], (4,), r"1: Dropout acts on the output"),
    "logits": (
        [nn.Linear(4, 3), nn.Dropout(), nn.Softmax(1)],
        (4,),
        (r"1: Dropout acts on the " r"output"),
    ),
    "outputs of ReLU": (
        [nn.Linear(4, 3), nn.Dropout(), nn.ReLU()],
        (4,),
        (r"1: Dropout acts on the " r"output"),
    ),
    "tanh": (
        [nn.Linear(4, 4), nn.Dropout(), nn.Tanh(), nn.Linear(4, 3)],
        (4,),
        (r"1: Dropout stands before " r"Tanh"),
    ),
    "sigmoid": (
        [nn.Dropout2d(), nn.Sigmoid(), nn.Conv2d(2, 3, 2), nn.Flatten()],
        (2, 2, 2),
        "stands before Sigmoid",
    ),
    "single values, convolution": (
        [nn.Dropout(), nn.Conv2d(2, 3, 2), nn.Flatten()],
        (2, 2, 2),
        r"0: Dropout drops single values before Conv2d",
    ),
    "single values, maximum": (
        [
            nn.Conv2d(2, 3, 1),
            nn.Dropout(),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(3, 2),
        ],
        (2, 2, 2),
        "drops single values before MaxPool2d",
    ),
    "single values, mean": (
        [nn.Dropout(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 2)],
        (2, 2, 2),
        "drops single values before AvgPool2d",
    ),
    "normalisation": (
        [nn.Linear(4, 4), nn.Dropout(), nn.Identity(), nn.BatchNorm1d(4), nn.Linear(4, 3)],
        (4,),
        r"1: Dropout stands before a batch normalisation",
    ),
    "alpha": (
        [nn.Linear(4, 4), nn.AlphaDropout(), nn.Linear(4, 3)],
        (4,),
        (r"1: AlphaDropout is not " r"one"),
    ),
    "rows": (
        [nn.Linear(4, 4), nn.Dropout1d(), nn.Linear(4, 3)],
        (4,),
        (r"1: Dropout1d is not " r"one"),
    ),
    "everything": (
        [nn.Linear(4, 4), nn.Dropout(1.0), nn.Linear(4, 3)],
        (4,),
        (r"1: Dropout is not " r"one"),
    ),
    "always on": ([nn.Linear(4, 4), Always(), nn.Linear(4, 3)], (4,), "stays on in evaluation"),
    "none": (
        [nn.Linear(4, 4), nn.Dropout(0.0), nn.Linear(4, 3)],
        (4,),
        "no dropout with p > 0.*from_torch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_folded_is_refused_by_name(name: str) -> None:
    layers, shape, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        from_dropout(nn.Sequential(*layers), 3, input_shape=shape)
    assert "\n" not in str(caught.value)


def test_numbers_of_samples_and_hidden_work_are_refused() -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    for samples in (0, -1, 2.5):
        with pytest.raises(InputError, match="whole number of at least 1"):
            from_dropout(module, samples)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="GiB"):
        from_dropout(module, 2**26)
    module.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    with pytest.raises(InputError, match="computes something else"):
        from_dropout(module, 3)


def test_a_module_with_a_posterior_of_its_own_is_refused() -> None:
    torchbnn = pytest.importorskip("torchbnn", reason="torchbnn is not installed")
    layer = torchbnn.BayesLinear(prior_mu=0, prior_sigma=0.1, in_features=2, out_features=3)
    with pytest.raises(InputError, match="from_torch"):
        from_dropout(nn.Sequential(nn.Dropout(), layer), 3)


def test_from_torch_leaves_it_out_and_says_where_to_go() -> None:
    module = nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    ).eval()
    with pytest.warns(UserWarning, match=r"1: Dropout: left out.*from_dropout"):
        network, posterior = from_torch(module, std=0.0)
    x = torch.randn(5, 4)
    torch.testing.assert_close(
        network.forward(posterior.mean, x.double()).float(), module(x), rtol=1e-5, atol=1e-5
    )


def test_the_page() -> None:
    (code,) = blocks("importers/samples.md", "Monte Carlo dropout")
    names = run(code)
    assert isinstance(names["posterior"], Empirical)
    assert [0 <= result.lower <= result.upper <= 1 for result in names["results"]] == [True] * 5  # type: ignore[attr-defined]
