"""The zoo: networks of the paper and others, as recipes.

Small ones are shipped trained, the rest one command away. A recipe is all that training needs: data
set, architecture, hyper-parameters, seed. A trained posterior carries its recipe, its scores on the
test set and the training log in its notes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from bnncert.data import COUNTERPART, Dataset, at_hand, inputs_for, seen_by, standardisation_of
from bnncert.errors import InputError
from bnncert.importers import save_posterior
from bnncert.model.network import Network, cnn, mlp, residual
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.gaussian import LowRankNormal
from bnncert.posteriors.independent import Normal
from bnncert.train import BayesByBackprop, Epoch, Robust, Scores, score, train
from bnncert.zoo.heads import fit_head

SHIPPED = "weights"  # folder of the trained files
INDEX = "index.json"  # there: SHA-256, accuracy and size of σ by name


@dataclass(frozen=True)
class Recipe:
    """How a network of the zoo is made, and the paper's test accuracy in percent, if it has one.

    head: the structure of the covariance of its last layer, where that becomes random after the
    training of the rest. targets: the columns of a table that are learned. A regression of values
    as they were measured is trained on standardised ones.
    """

    network: Network
    data: str
    training: BayesByBackprop
    paper: float | None = None
    about: str = ""
    head: str | None = None
    targets: tuple[str, ...] = ()


def _cifar_cnn() -> Network:
    return cnn((3, 32, 32), 10)


def _narrow(std: float, **options: Any) -> BayesByBackprop:
    """A posterior whose σ stays where it starts, as the paper's: the divergence hardly counts."""
    settings: dict[str, Any] = {
        "epochs": 15,
        "initial_std": std,
        "kl_weight": 1e-6,
        "schedule": "cosine",
    }
    return BayesByBackprop(**settings | options)


def _honest(kl_weight: float) -> BayesByBackprop:
    """σ as the evidence lower bound wants it."""
    return BayesByBackprop(epochs=40, kl_weight=kl_weight, schedule="cosine")


def _mnist(*hidden: int) -> Network:
    return mlp(784, *hidden, 10)


def _cifar(std: float, bayesian: str, decay: float) -> BayesByBackprop:
    """A decay strong enough for narrow bounds, as far as an accuracy of 72 % allows.

    Random kernels get the decay from a prior of their own size: kl_weight / (N prior_std²) =
    weight_decay.
    """
    examples = 50_000
    own = (
        {"weight_decay": decay}
        if bayesian == "dense"
        else {"prior_std": std, "kl_weight": decay * examples * std**2}
    )
    return _narrow(std, epochs=45, learning_rate=2e-3, augment=True, bayesian=bayesian, **own)


def _certifiable(eps: float, kl_weight: float, **options: Any) -> BayesByBackprop:
    """The certified bound in the likelihood; t and τ as `Robust` has them unless given."""
    own = {name: options.pop(name) for name in ("kappa", "t", "tau", "clip") if name in options}
    settings: dict[str, Any] = {
        "batch_size": 250,
        "learning_rate": 2e-3,
        "initial_std": 0.02,
        "schedule": "cosine",
    }
    return BayesByBackprop(kl_weight=kl_weight, robust=Robust(eps, **own), **settings | options)


def _certifiable_cifar(eps: float, bayesian: str, epochs: int) -> BayesByBackprop:
    return _certifiable(
        eps,
        0.01,
        tau=3.0,
        epochs=epochs,
        learning_rate=1e-3,
        initial_std=1e-3,
        bayesian=bayesian,
        weight_decay=1e-5,
        augment=True,
        normalise=True,
    )


def _certifiable_trunk(eps: float, epochs: int) -> BayesByBackprop:
    """Nothing random: for a head that is fitted after it."""
    return _certifiable(
        eps,
        0.01,
        epochs=epochs,
        learning_rate=3e-3,
        initial_std=0.05,
        bayesian="none",
        weight_decay=1e-5,
        augment=True,
        normalise=True,
    )


def _certifiable_regression(noise_std: float) -> BayesByBackprop:
    """Of standardised measurements and target: ε and the noise are in standard deviations."""
    return _certifiable(
        0.05,
        1.0,
        epochs=300,
        batch_size=32,
        learning_rate=1e-2,
        initial_std=0.05,
        noise_std=noise_std,
        clip=None,
    )


def _image_cnn(channels: int, hidden: int) -> Network:
    """For images of 28 x 28: two convolutions that halve them, then two dense layers."""
    return cnn((1, 28, 28), 10, [(channels, 2), (2 * channels, 2)], [hidden])


def _certifiable_cnn() -> Network:
    return cnn((3, 32, 32), 10, [(32, 1), (64, 2), (64, 1), (128, 2)], [256])


ZOO: dict[str, Recipe] = {
    "digits": Recipe(
        mlp(64, 32, 10),
        "digits",
        _narrow(4e-3, epochs=60, learning_rate=1e-2),
        about="first steps",
    ),
    "1x128": Recipe(_mnist(128), "mnist", _narrow(7e-5), 96),
    "1x256": Recipe(_mnist(256), "mnist", _narrow(7e-5), 94),
    "1x512": Recipe(_mnist(512), "mnist", _narrow(7e-5), 94),
    "2x256": Recipe(_mnist(256, 256), "mnist", _narrow(2e-4), 92),
    "2x512": Recipe(_mnist(512, 512), "mnist", _narrow(2e-4), 82),
    "2x1024": Recipe(_mnist(1024, 1024), "mnist", _narrow(2e-4), 68),
    "2x50": Recipe(_mnist(50, 50), "mnist", _narrow(1e-2), 96),
    "2x150": Recipe(_mnist(150, 150), "mnist", _narrow(1e-2), 92),
    "cnn": Recipe(_cifar_cnn(), "cifar10", _cifar(1e-3, "dense", 4.5e-3), 72, "σ in dense"),
    "cnn-bayesian": Recipe(_cifar_cnn(), "cifar10", _cifar(5e-4, "all", 3e-3), about="σ in all"),
    "1x128-kl1": Recipe(_mnist(128), "mnist", _honest(1.0), about="KL 1"),
    "1x128-kl0.1": Recipe(_mnist(128), "mnist", _honest(0.1), about="KL 0.1"),
    "2x50-kl1": Recipe(_mnist(50, 50), "mnist", _honest(1.0), about="KL 1"),
    "2x50-kl0.1": Recipe(_mnist(50, 50), "mnist", _honest(0.1), about="KL 0.1"),
    "digits-robust": Recipe(
        mlp(64, 64, 10),
        "digits",
        _certifiable(0.05, 1.0, epochs=100, batch_size=64, learning_rate=1e-2, kappa=0.8),
        about="KL 1",
    ),
    "advisory": Recipe(
        mlp(3, 24, 24, 5),
        "advisory",
        _certifiable(0.01, 1.0, epochs=25, learning_rate=5e-3, clip=None),
        about="KL 1",
    ),
    "boston-robust": Recipe(
        mlp(13, 50, 1), "boston", _certifiable_regression(noise_std=0.3), about="KL 1"
    ),
    "diabetes-robust": Recipe(
        mlp(10, 50, 1), "diabetes", _certifiable_regression(noise_std=0.7), about="KL 1"
    ),
    "mnist-mlp-robust": Recipe(
        _mnist(1024),
        "mnist",
        _certifiable(0.027, 0.1, epochs=40, kappa=0.7, t=3.5, tau=3.0, normalise=True),
        about="KL 0.1",
    ),
    "mnist-mlp-robust-kl1": Recipe(
        _mnist(512),
        "mnist",
        _certifiable(0.013, 1.0, epochs=50, t=3.5, tau=3.0),
        about="KL 1",
    ),
    "mnist-cnn-robust": Recipe(
        _image_cnn(32, 256), "mnist", _certifiable(0.102, 0.1, epochs=50), about="KL 0.1"
    ),
    "mnist-cnn-robust-kl1": Recipe(
        _image_cnn(16, 100),
        "mnist",
        _certifiable(0.102, 1.0, epochs=60, prior="fan-in", prior_std=2.0),
        about="KL 1",
    ),
    "mnist-cnn-robust-03": Recipe(
        _image_cnn(32, 256),
        "mnist",
        _certifiable(0.305, 0.1, epochs=50, kappa=0.6),
        about="KL 0.1",
    ),
    "fashion-cnn-robust": Recipe(
        _image_cnn(32, 256),
        "fashion-mnist",
        _certifiable(0.102, 0.1, epochs=40),
        about="KL 0.1",
    ),
    "cifar10-cnn-robust-2": Recipe(
        _certifiable_cnn(),
        "cifar10",
        _certifiable_cifar(2 / 255, "dense", 70),
        about="σ in dense",
    ),
    "cifar10-cnn-robust-8": Recipe(
        _certifiable_cnn(),
        "cifar10",
        _certifiable_cifar(8 / 255, "dense", 60),
        about="σ in dense",
    ),
    "cifar10-bayesian-robust-2": Recipe(
        _certifiable_cnn(),
        "cifar10",
        _certifiable_cifar(2 / 255, "all", 60),
        about="σ in all",
    ),
    "cifar10-residual-laplace": Recipe(
        residual((3, 32, 32), 10, [(16, 2), (16, 1), (32, 2), (32, 1)], [64]),
        "cifar10",
        _certifiable_trunk(0.0079, 30),
        about="Laplace",
        head="full",
    ),
}


def recipe(name: str) -> Recipe:
    if name not in ZOO:
        raise InputError(f"the zoo has no network {name!r}; it has {', '.join(ZOO)}")
    return ZOO[name]


def fit_recipe(
    made: Recipe,
    path: Path,
    device: str = "cpu",
    on_epoch: Callable[[Epoch], None] | None = None,
    begin: Normal | None = None,
) -> dict[str, Any]:
    """Train a network and write its posterior, with its notes, which are returned.

    An interrupted run goes on. A head is fitted to the whole training set, without augmentation.
    """
    if path.suffix != ".safetensors" or not path.parent.is_dir() or path.is_dir():
        raise InputError(
            f"posterior {str(path)!r} must be a .safetensors file in a folder that exists"
        )
    known = made.network.standardisation
    examples, test = (
        inputs_for(known, made.data, split, made.targets) for split in ("train", "test")
    )
    if made.training.noise_std is not None and begin is None:
        own = standardisation_of(examples)
        made = replace(made, network=replace(made.network, standardisation=own))
    x, y = _examples(examples, made.network)
    _examples(test, made.network)  # what is wrong with it is said before the training, not after
    partial = path.with_suffix(".partial")
    trained = train(made.network, x, y, made.training, device, on_epoch, partial, begin)
    network: Network = made.network
    posterior: Normal | LowRankNormal = trained.posterior
    if made.head is not None:
        network, posterior = fit_head(network, posterior.mean, x, y, made.head)
    stds = posterior.marginal_std
    notes = {
        "recipe": {"data": made.data} | asdict(made.training) | _described_head(made),
        "std": _median(stds[stds > 0]),
        "log": [asdict(epoch) for epoch in trained.history],
    }
    # Scores take a while: what interrupts them does not cost the training.
    save_posterior(path, network, posterior, notes)
    found = score_on(test, network, posterior, made.training, device)
    notes |= {"accuracy": found.accuracy, "scores": asdict(found)}
    save_posterior(path, network, posterior, notes)
    return notes


def _described_head(made: Recipe) -> dict[str, str]:
    return {} if made.head is None else {"head": made.head}


def _median(stds: torch.Tensor) -> float:
    """0 where no weight is random."""
    return float(stds.median()) if len(stds) else 0.0


def score_on(
    data: Dataset,
    network: Network,
    posterior: Posterior,
    training: BayesByBackprop,
    device: str = "cpu",
) -> Scores:
    """Scores on a data set, told apart from its counterpart if it has one and that is at hand."""
    x, y = _examples(data, network)
    other = at_hand(COUNTERPART[data.name]) if data.name in COUNTERPART else None
    images = None if other is None else other.x.reshape(-1, *network.input_shape)
    return score(network, posterior, x, y, training, images, device)


def posterior_path(name: str) -> Path:
    """The trained posterior: shipped with the package, or trained by the user.

    An `InputError` where there is none.
    """
    recipe(name)
    shipped = Path(str(files("bnncert.zoo") / SHIPPED / f"{name}.safetensors"))
    if shipped.is_file():
        expected = shipped_index().get(name, {}).get("sha256")
        if hashlib.sha256(shipped.read_bytes()).hexdigest() != expected:
            raise InputError(
                f"{str(shipped)!r} is not the file that was shipped; reinstall bnncert"
            )
        return shipped
    trained = trained_path(name)
    if not trained.is_file():
        raise InputError(
            f"{name} is not shipped and not trained yet; run: bnncert zoo train {name}"
        )
    return trained


def trained_path(name: str) -> Path:
    """Where a network trained by the user is kept: in BNNCERT_DATA, or in the user's cache."""
    folder = os.environ.get("BNNCERT_DATA")
    base = (
        Path(folder)
        if folder
        else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bnncert"
    )
    return base / "zoo" / f"{name}.safetensors"


def shipped_index() -> dict[str, dict[str, Any]]:
    """SHA-256, test accuracy (None of a regression) and median σ of the shipped posteriors."""
    index: dict[str, dict[str, Any]] = json.loads(
        (files("bnncert.zoo") / SHIPPED / INDEX).read_text(encoding="utf-8")
    )
    return index


def _examples(data: Dataset, network: Network) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of the network's shape, and their classes or targets."""
    if data.y is None:
        raise InputError(f"data set {data.name!r} came without labels; add an array 'y'")
    if data.x[0].numel() != math.prod(network.input_shape):
        raise InputError(
            f"inputs have shape {tuple(data.x.shape[1:])}, the network takes "
            f"{network.input_shape}; give matching inputs"
        )
    own = network.standardisation
    x = seen_by(own, data).x.reshape(len(data.x), *network.input_shape)
    return x, own.targets_of(data.y) if own is not None else data.y
