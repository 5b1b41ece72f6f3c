"""What `robust_loss` reads of a live module is what `from_torch` imports, and gradients reach what
the library trains."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from bnncert import from_torch, robust, robust_loss
from bnncert.concentration.margin import Weights
from bnncert.importers.modules import own_parameters
from bnncert.model.network import Network
from bnncert.posteriors import Normal
from living import LIBRARIES, SHAPES, build, examples

CASES = list(product(LIBRARIES, SHAPES))


def given(library: str) -> float | None:
    return 0.05 if library == "plain" else None


def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Network, Weights]]:
    """The networks and weights that bounds are asked for, as they come."""
    found: list[tuple[Network, Weights]] = []
    worst = robust.worst_nll

    def spy(network: Network, weights: Weights, *rest: object) -> Tensor:
        found.append((network, weights))
        return worst(network, weights, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(robust, "worst_nll", spy)
    return found


def assert_imported(weights: Weights, network: Network, posterior: Normal) -> None:
    """Bit for bit; a layer without spread has none at all."""
    expected = zip(network.split(posterior.mean), network.split(posterior.std), strict=True)
    for (means, stds), (imported, spread) in zip(weights, expected, strict=True):
        assert all(map(torch.equal, means, imported))
        if stds is None:
            assert not any(bool(part.any()) for part in spread)
        else:
            assert all(map(torch.equal, stds, spread))


@pytest.mark.parametrize(("library", "kind"), CASES)
def test_the_weights_are_those_that_are_imported(
    library: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = seen(monkeypatch)
    module = build(library, kind)
    robust_loss(module, *examples(kind), eps=0.01, std=given(library))
    ((network, weights),) = found
    imported, posterior = from_torch(module, SHAPES[kind], given(library))
    assert network == imported
    assert sum(stds is not None for _, stds in weights) == 2
    assert_imported(weights, network, posterior)


@pytest.mark.parametrize(("library", "kind"), CASES)
def test_gradients_are_finite_differences(library: str, kind: str) -> None:
    """Of all parameters in the library's own parametrisation, along a random direction; what has no
    gradient does not matter."""
    module = build(library, kind)
    x, y = examples(kind)
    loss = robust_loss(module, x, y, eps=0.02, std=given(library))
    loss.backward()
    leaves = [leaf for leaf in module.parameters() if leaf.grad is not None]
    assert len(leaves) >= (4 if library == "plain" else 6)
    assert all(leaf.grad.any() for leaf in leaves)

    generator = torch.Generator().manual_seed(2)
    along = [torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype) for leaf in leaves]
    slope = sum(float((leaf.grad * step).sum()) for leaf, step in zip(leaves, along, strict=True))
    ends = []
    with torch.no_grad():
        for length in (1e-6, -2e-6):
            for leaf, step in zip(leaves, along, strict=True):
                leaf += length * step
            ends.append(float(robust_loss(module, x, y, eps=0.02, std=given(library))))
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_dtype_is_the_modules(library: str) -> None:
    """The inputs' does not matter; and in float32 the loss is nearly the same."""
    x, y = examples("dense")
    exact = robust_loss(build(library, "dense"), x, y, 0.02, std=given(library))
    module = build(library, "dense").float()
    loss = robust_loss(module, x, y.int(), 0.02, std=given(library))
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("library", "kind"), CASES)
def test_the_device_is_the_modules(library: str, kind: str) -> None:
    x, y = examples(kind)
    known = robust_loss(build(library, kind), x, y, 0.02, std=given(library))
    module = build(library, kind).cuda()
    loss = robust_loss(module, x, y, 0.02, std=given(library))
    loss.backward()
    assert loss.device.type == "cuda"
    assert loss.item() == pytest.approx(known.item(), rel=1e-9)
    assert any(bool(leaf.grad.any()) for leaf in module.parameters() if leaf.grad is not None)


def test_plain_layers_without_standard_deviations_are_not_random(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = seen(monkeypatch)
    module = build("plain", "dense")
    robust_loss(module, *examples("dense"), eps=0.01)
    robust_loss(module, *examples("dense"), eps=0.01, std={"2.weight": 0.1})
    (_, certain), (_, mixed) = found
    assert [stds for _, stds in certain] == [None] * 3
    assert [stds is not None for _, stds in mixed] == [False, False, True]


def test_standard_deviations_can_be_trained() -> None:
    module = build("plain", "dense")
    logarithms = {
        name: torch.full_like(value, -3.0).requires_grad_()
        for name, value in module.named_parameters()
    }
    std = {name: value.exp() for name, value in logarithms.items()}
    robust_loss(module, *examples("dense"), eps=0.01, std=std).backward()
    # Less spread, less loss.
    assert all(bool((value.grad > 0).any()) for value in logarithms.values())


def normalised() -> nn.Sequential:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(18, 4),
        nn.BatchNorm1d(4, affine=False),
        nn.Tanh(),
        nn.Linear(4, 3),
    ).double()
    module(examples("convolutional")[0])  # so that there are statistics
    return module


def test_normalisations_are_folded_live(monkeypatch: pytest.MonkeyPatch) -> None:
    found = seen(monkeypatch)
    module = normalised()
    loss = robust_loss(module, *examples("convolutional"), eps=0.01, std=0.05)
    module(examples("convolutional")[0])  # in training mode: the statistics are written
    loss.backward()
    assert all(bool(value.grad.any()) for value in module[1].parameters())
    module = normalised()
    assert_imported(found[0][1], *from_torch(module, (1, 5, 5), std=0.05))


def test_the_module_and_random_numbers_stay_as_they_were() -> None:
    module = normalised().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    robust_loss(module, *examples("convolutional"), eps=0.01, std=0.05)
    assert torch.equal(torch.rand(3), expected)
    assert all(each.training for each in module.modules())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(value.grad is None for value in own_parameters(module).values())
