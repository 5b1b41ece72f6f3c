"""What training gives back: honest diagnostics, the same bits for the same seed, and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.layers import Dense
from bnncert.model.network import Network, mlp
from bnncert.train import BayesByBackprop, Epoch, accuracy, kl_divergence, train
from trainings import TWO_KERNELS, TWO_WEIGHTS, blobs, short

# What comes back


def test_diagnostics_add_up() -> None:
    seen: list[Epoch] = []
    x, y = blobs()
    recipe = BayesByBackprop(4, batch_size=16, kl_weight=0.3)
    trained = train(mlp(2, 5, 3), x, y, recipe, on_epoch=seen.append)
    assert tuple(seen) == trained.history
    assert [epoch.number for epoch in seen] == [1, 2, 3, 4]
    for epoch in seen:
        assert epoch.loss == pytest.approx(epoch.nll + 0.3 * epoch.kl / len(x))
        assert epoch.elbo == pytest.approx(-(epoch.nll * len(x) + epoch.kl))
        assert epoch.nll > 0
        assert epoch.kl > 0
        assert (epoch.accuracy * len(x)) == pytest.approx(round(epoch.accuracy * len(x)))


def test_the_first_epoch_is_at_the_initial_std() -> None:
    """So small a learning rate changes nothing: std = initial_std, and kl is that of the posterior
    returned."""
    trained = short(epochs=1, learning_rate=1e-12, initial_std=0.03)
    posterior = trained.posterior
    assert posterior.std.tolist() == pytest.approx([0.03] * posterior.size, rel=1e-5)
    assert trained.history[0].kl == pytest.approx(
        kl_divergence(posterior.mean, posterior.std, 1.0).item(), rel=1e-5
    )


def test_the_same_seed_gives_the_same_bits() -> None:
    first, again, other = short(seed=3), short(seed=3), short(seed=4)
    assert torch.equal(first.posterior.mean, again.posterior.mean)
    assert torch.equal(first.posterior.std, again.posterior.std)
    assert first.history == again.history
    assert not torch.equal(first.posterior.std, other.posterior.std)


def test_the_global_generator_is_neither_used_nor_moved() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        before = torch.get_rng_state()
        first = short()
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(12)
        assert torch.equal(short().posterior.mean, first.posterior.mean)


@pytest.fixture
def double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double_by_default")
def test_the_default_dtype_does_not_matter() -> None:
    inside = short()
    torch.set_default_dtype(torch.float32)
    outside = short()
    assert inside.posterior.mean.dtype == outside.posterior.mean.dtype == torch.float64
    assert torch.equal(inside.posterior.mean, outside.posterior.mean)
    assert torch.equal(inside.posterior.std, outside.posterior.std)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_training_on_a_gpu() -> None:
    x, y = blobs()
    network = mlp(2, 8, 3)
    first, again = (
        train(network, x, y, BayesByBackprop(40, learning_rate=0.05), "cuda").posterior
        for _ in range(2)
    )
    assert first.mean.device.type == "cpu"
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.std, again.std)
    assert accuracy(network, first.mean, x, y) == 1


def test_accuracy_by_hand() -> None:
    network = Network((2,), (Dense(2, 2, bias=False),))
    x = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 0])
    identity = torch.tensor([1, 0, 0, 1], dtype=torch.float64)
    assert accuracy(network, identity, x, y) == 0.75
    assert accuracy(network, -identity, x, y) == 0.25
    assert accuracy(network, torch.stack([identity, -identity]), x, y) == 0.5


# Faults


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"prior_std": -1.0},
        {"initial_std": 0.0},
        {"initial_std": math.inf},
        {"kl_weight": -0.1},
        {"kl_weight": math.nan},
        {"weight_decay": -0.1},
        {"weight_decay": math.inf},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_bad_recipes(changes: dict[str, float]) -> None:
    (name,) = changes
    with pytest.raises(InputError, match=f"^{name} is .*; give a"):
        BayesByBackprop(**({"epochs": 1} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "choices"),
    [
        ({"bayesian": "convolutions"}, "all or dense or last or none"),
        ({"bayesian": None}, "all or dense or last or none"),
        ({"schedule": "step"}, "constant or cosine"),
        ({"augment": "flips"}, "False or True"),
    ],
)
def test_unknown_choices(changes: dict[str, object], choices: str) -> None:
    ((name, value),) = changes.items()
    with pytest.raises(InputError, match=f"^{name} is {value!r}; give {choices}$"):
        BayesByBackprop(1, **changes)  # type: ignore[arg-type]


X, Y = torch.zeros(3, 1), torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3, 2), Y, r"inputs have shape \(2,\), the network takes \(1,\)"),
        (X + math.nan, Y, "inputs hold NaN"),
        (X, Y[:2], r"labels have shape \(2,\) for 3 inputs"),
        (X[:0], Y[:0], "give one label for each input"),
        (X, Y.double(), "labels must be integers from 0 to 1"),
        (X, Y + 1, "labels must be integers from 0 to 1"),
        (X, Y - 1, "labels must be integers from 0 to 1"),
    ],
)
def test_bad_examples(x: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(TWO_WEIGHTS, x, y, BayesByBackprop(1))
    with pytest.raises(InputError, match=message):
        accuracy(TWO_WEIGHTS, torch.zeros(2), x, y)


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(
        InputError, match=r"weights have shape \(3,\), the network takes \[..., 2\]"
    ):
        accuracy(TWO_WEIGHTS, torch.zeros(3), X, Y)


def test_divergence_is_reported() -> None:
    with pytest.raises(
        InputError, match=r"diverged in epoch \d+ .*; lower the learning rate \(now 1e\+15\)"
    ):
        short(learning_rate=1e15, initial_std=1e15)


def test_recipes_that_do_not_fit_the_network() -> None:
    with pytest.raises(
        InputError, match=r"^bayesian is 'dense', but the network has no Dense layer; give all$"
    ):
        train(TWO_KERNELS, X.reshape(3, 1, 1, 1), Y, BayesByBackprop(1, bayesian="dense"))
    with pytest.raises(InputError, match=r"^augment is for images, .*; the network takes \(1,\)$"):
        train(TWO_WEIGHTS, X, Y, BayesByBackprop(1, augment=True))
