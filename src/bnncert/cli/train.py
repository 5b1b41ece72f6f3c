"""train: Bayesian networks by Bayes by Backprop."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bnncert.cli.options import Device, Seed, device_named
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.model.network import Network
    from bnncert.zoo.recipes import Recipe


def register(app: typer.Typer) -> None:
    app.command()(train)


def train(
    data: Annotated[
        str, typer.Option(help="Data set: digits, mnist, fashion-mnist or cifar10.")
    ] = "digits",
    network: Annotated[
        str, typer.Option(help="mlp, or cnn for images: five convolutions, then two layers.")
    ] = "mlp",
    hidden: Annotated[
        str, typer.Option(help="mlp: widths of the hidden layers, as 128 or 50,50.")
    ] = "128",
    bayesian: Annotated[
        str, typer.Option(help="Random weights: all, or those of dense layers.")
    ] = "all",
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 30,
    batch_size: Annotated[int, typer.Option(help="Examples a gradient step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Adam's.")] = 1e-3,
    schedule: Annotated[
        str, typer.Option(help="Of the learning rate: constant, or cosine down to 0.")
    ] = "constant",
    kl_weight: Annotated[
        float, typer.Option(help="1 is the full evidence lower bound; less is narrower.")
    ] = 0.01,
    prior_std: Annotated[
        float, typer.Option(help="Standard deviation of the prior N(0, s²).")
    ] = 1.0,
    initial_std: Annotated[
        float, typer.Option(help="Standard deviation every weight starts with.")
    ] = 0.05,
    weight_decay: Annotated[float, typer.Option(help="Of the weights that are not random.")] = 1e-4,
    augment: Annotated[bool, typer.Option("--augment", help="Mirror and move the images.")] = False,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="Where to write the posterior.")] = Path(
        "posterior.safetensors"
    ),
) -> None:
    """Train a Bayesian neural network (Bayes by Backprop, ReLU) and save its posterior.

    An interrupted training goes on after its last whole epoch when the same command is given again.
    """
    from bnncert.train import BayesByBackprop
    from bnncert.zoo.recipes import Recipe

    training = BayesByBackprop(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        prior_std=prior_std,
        kl_weight=kl_weight,
        initial_std=initial_std,
        seed=seed,
        bayesian=bayesian,
        schedule=schedule,
        augment=augment,
        weight_decay=weight_decay,
    )
    fit(Recipe(_architecture(network, hidden, data), data, training), out, device)


def posterior_path(out: Path) -> None:
    if out.suffix != ".safetensors" or not out.parent.is_dir():
        raise InputError(f"--out {str(out)!r} must be a .safetensors file in a folder that exists")


def _architecture(name: str, hidden: str, data: str) -> Network:
    """The network asked for, of the data set's sizes."""
    from bnncert.ask import labels_of
    from bnncert.data import load_inputs
    from bnncert.model.network import cnn, mlp
    from bnncert.question import whole_numbers

    examples = load_inputs(data, "train")
    shape = tuple(examples.x.shape[1:])
    classes = int(labels_of(examples, [*range(len(examples.x))]).max()) + 1
    if name == "cnn":
        return cnn((1, *shape) if len(shape) == 2 else shape, classes)
    if name != "mlp":
        raise InputError(f"network {name!r} is not known; choose mlp or cnn")
    return mlp(math.prod(shape), *whole_numbers(hidden, "--hidden"), classes)


def fit(recipe: Recipe, path: Path, device: str) -> None:
    """Train under a progress bar, write the posterior, and say how good it is."""
    from bnncert.console import progress
    from bnncert.zoo.recipes import fit_recipe

    with progress("training") as bar:
        task = bar.add_task("training", total=recipe.training.epochs, note="")
        notes = fit_recipe(
            recipe,
            path,
            device_named(device),
            lambda epoch: bar.update(task, completed=epoch.number, note=f"loss {epoch.loss:.3f}"),
        )
    print(
        f"{path}: accuracy at the mean {100 * notes['accuracy']:.2f} % on the test set, "
        f"median std {notes['std']:.2g}, "
        f"ELBO {notes['log'][-1]['elbo']:.4g}"
    )
