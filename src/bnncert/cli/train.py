"""train: Bayesian networks by Bayes by Backprop."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.options import Device, Seed, device_named
from bnncert.errors import InputError

if TYPE_CHECKING:
    from bnncert.data import Dataset
    from bnncert.model.network import Network
    from bnncert.model.standardisation import Standardisation
    from bnncert.posteriors.independent import Normal
    from bnncert.train import Epoch, Robust
    from bnncert.zoo.recipes import Recipe


TASKS = ("classification", "regression")
LEAST_FREEDOM = 10  # examples beyond the numbers of one, for a straight line to leave something
LEAST_NOISE = (
    0.05  # that a straight line leaves: targets without any are learned no better for less
)
MOST_CLASSES = 2**16  # a larger label is an identifier, not a class


def register(app: typer.Typer) -> None:
    app.command()(train)


def train(
    data: Annotated[
        str,
        typer.Option(
            help="Data set: digits, advisory, diabetes, boston, mnist, fashion-mnist, cifar10; or "
            "an .npz with x and y or a .csv, whose last tenth is kept out for the scores (shuffle "
            "a sorted one)."
        ),
    ] = "digits",
    task: Annotated[
        str | None,
        typer.Option(
            help="classification, or regression: columns are standardised, and the posterior keeps "
            "by what.",
            show_default="regression with --noise-std or --targets",
        ),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Regression from a .csv: the columns to predict, as price or a,b.",
            show_default="the last",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="mlp; cnn or residual for images.", show_default="mlp"),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Widths of the hidden dense layers, as 128 or 50,50.",
            show_default="128; 64 after convolutions",
        ),
    ] = None,
    convolutions: Annotated[
        str | None,
        typer.Option(
            help="Channels of the convolutions, /2 where one halves the image. residual: one block "
            "for each after the first.",
            show_default="cnn: 24/2,24,48/2,48,16/2; residual: 16/2,16,32/2",
        ),
    ] = None,
    begin: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A posterior to start from, of independent normal weights.",
            dir_okay=False,
        ),
    ] = None,
    bayesian: Annotated[
        str,
        typer.Option(help="Random weights: all, those of dense layers, of the last layer, none."),
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
    prior: Annotated[
        str, typer.Option(help="fixed, or fan-in: narrower by the root of a weight's fan-in.")
    ] = "fixed",
    prior_std: Annotated[
        float, typer.Option(help="Standard deviation of the prior N(0, s²).")
    ] = 1.0,
    initial_std: Annotated[
        float, typer.Option(help="Standard deviation every weight starts with.")
    ] = 0.05,
    weight_decay: Annotated[float, typer.Option(help="Of the weights that are not random.")] = 1e-4,
    augment: Annotated[bool, typer.Option("--augment", help="Mirror and move the images.")] = False,
    normalise: Annotated[
        bool, typer.Option("--normalise", help="Batch normalisation, folded into the weights.")
    ] = False,
    noise_std: Annotated[
        float | None,
        typer.Option(
            help="Regression: standard deviation of the targets' noise, in those of the targets.",
            show_default="what a straight line leaves",
        ),
    ] = None,
    robust: Annotated[
        float | None, typer.Option(help="Train for a certificate at this radius ε.")
    ] = None,
    kappa: Annotated[
        float | None,
        typer.Option(
            help="--robust: weight of the certified part of the loss.", show_default="0.5"
        ),
    ] = None,
    t: Annotated[
        float | None,
        typer.Option(
            help="--robust: threshold of the hidden intervals.",
            show_default="from the number of neurons",
        ),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(
            help="--robust: standard deviations that a margin is lowered by.", show_default="3.5"
        ),
    ] = None,
    attack: Annotated[
        int | None,
        typer.Option(
            help="--robust: steps of the attack that drawn networks learn under.",
            show_default="none",
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    out: Annotated[Path, typer.Option(help="Where to write the posterior.")] = Path(
        "posterior.safetensors"
    ),
) -> None:
    """Train a Bayesian neural network and save its posterior.

    Bayes by Backprop, with ReLU. With --robust the certified bound is part of the loss, so that
    the posterior can be certified.
    What `score` says of the posterior is printed, and is in the file.
    An interrupted training goes on after its last whole epoch when the same command is given again.
    """
    from bnncert.data import inputs_for, standardisation_of
    from bnncert.model.standardisation import Standardisation
    from bnncert.train import BayesByBackprop
    from bnncert.zoo.recipes import Recipe

    started = None if begin is None else _posterior(begin, bayesian)
    known = None if started is None else started[0].standardisation
    named = _targets(targets, data)
    examples = inputs_for(known, data, targets=named)
    if _is_regression(task, noise_std, named) and noise_std is None:
        seen = inputs_for(known, data, "train", named)
        columns = standardisation_of(seen) if started is None else known
        noise_std = _noise(seen, columns or Standardisation())
    training = BayesByBackprop(
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        prior=prior,
        prior_std=prior_std,
        kl_weight=kl_weight,
        initial_std=initial_std,
        seed=seed,
        bayesian=bayesian,
        schedule=schedule,
        augment=augment,
        weight_decay=weight_decay,
        normalise=normalise,
        noise_std=noise_std,
        robust=_robust(robust, examples, {"kappa": kappa, "t": t, "tau": tau, "attack": attack}),
    )
    if started is None:
        own = _architecture(network or "mlp", hidden, convolutions, examples, noise_std is None)
        fit(Recipe(own, data, training, targets=named), out, device)
        return
    if network or hidden or convolutions:
        raise InputError(
            "--from brings its architecture; leave --network, --hidden and --convolutions out"
        )
    fit(Recipe(started[0], data, training, targets=named), out, device, started[1])


def _is_regression(task: str | None, noise_std: float | None, targets: Sequence[str]) -> bool:
    if task not in (None, *TASKS):
        raise InputError(f"task {task!r} is not known; choose {' or '.join(TASKS)}")
    if task == "classification" and noise_std is not None:
        raise InputError("--noise-std is for a regression; leave it out, or give --task regression")
    return task == "regression" or (task is None and (noise_std is not None or bool(targets)))


def _targets(names: str | None, data: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if Path(data).suffix != ".csv":
        raise InputError("--targets name columns of a .csv; leave it out")
    return tuple(name.strip() for name in names.split(","))


def _noise(examples: Dataset, own: Standardisation) -> float:
    """What the best straight line leaves of the network's targets, root mean square: an estimate of
    their noise from above."""
    import torch

    from bnncert.ask import labels_of

    count = len(examples.x)
    y = own.targets_of(labels_of(examples, [*range(count)]).double()).reshape(count, -1)
    x = own.inputs_of(examples.x).reshape(count, -1)
    if count - x.shape[1] < LEAST_FREEDOM:
        raise InputError(
            f"{examples.name!r} has {count} examples of {x.shape[1]} numbers, too few to tell the "
            "noise from; give --noise-std, in standard deviations of the targets"
        )
    line = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    left = y - line @ torch.linalg.lstsq(line, y, driver="gelsd").solution
    degrees = (count - line.shape[1]) * y.shape[1]
    return max(math.sqrt(float(left.square().sum()) / degrees), LEAST_NOISE)


def posterior_path(out: Path) -> None:
    if out.suffix != ".safetensors" or not out.parent.is_dir() or out.is_dir():
        raise InputError(f"--out {str(out)!r} must be a .safetensors file in a folder that exists")


def _robust(
    eps: float | None, examples: Dataset, options: dict[str, float | None]
) -> Robust | None:
    """What --robust asks for; its options are for nothing else."""
    from bnncert.train import Robust

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if eps is None:
        if given:
            names = ", ".join(f"--{name}" for name in given)
            raise InputError(f"{names}: for --robust alone; give its radius, or leave them out")
        return None
    return Robust(eps, clip=(0.0, 1.0) if examples.image else None, **given)


def _architecture(
    name: str,
    hidden: str | None,
    convolutions: str | None,
    examples: Dataset,
    classes: bool,
) -> Network:
    """The network asked for, of the data set's sizes."""
    from bnncert.ask import labels_of
    from bnncert.model.network import cnn, mlp, residual
    from bnncert.question import whole_numbers

    images = {"cnn": cnn, "residual": residual}
    if name != "mlp" and name not in images:
        raise InputError(f"network {name!r} is not known; choose mlp, cnn or residual")
    shape = tuple(examples.x.shape[1:])
    labels = labels_of(examples, [*range(len(examples.x))])
    outputs = 1 if labels.dim() == 1 else labels.shape[1]
    if classes:
        if labels.is_floating_point():
            raise InputError(f"targets of {examples.name!r} are no classes; give --task regression")
        outputs = int(labels.max()) + 1
        if outputs > MOST_CLASSES:
            raise InputError(
                f"{examples.name!r} has a label {outputs - 1}; "
                f"number classes from 0 to at most {MOST_CLASSES - 1}"
            )
    widths = None if hidden is None else whole_numbers(hidden, "--hidden")
    if name == "mlp":
        if convolutions is not None:
            raise InputError("--convolutions are for --network cnn or residual")
        return mlp(math.prod(shape), *(widths or (128,)), outputs)
    options: dict[str, Any] = {}
    if widths is not None:
        options["hidden"] = widths
    if convolutions is not None:
        options["convolutions"] = _convolutions(convolutions)
    return images[name]((1, *shape) if len(shape) == 2 else shape, outputs, **options)


def _convolutions(text: str) -> list[tuple[int, int]]:
    """32/2,32 as [(32, 2), (32, 1)]"""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([1-9][0-9]*)(/2)?\s*", part)
        if match is None:
            raise InputError(
                f"--convolutions {text!r} must be channels, /2 where one halves the image, "
                "as 32/2,32,64/2"
            )
        found.append((int(match[1]), 2 if match[2] else 1))
    return found


def _posterior(path: Path, bayesian: str) -> tuple[Network, Normal]:
    """What a file holds, if its weights are independent and normal."""
    from bnncert.importers import load_posterior
    from bnncert.model.layers import Conv2d
    from bnncert.posteriors.independent import Normal

    network, posterior = load_posterior(path)
    if not isinstance(posterior, Normal):
        raise InputError(
            f"--from {str(path)!r} is {type(posterior).__name__}; "
            "training starts from independent normal weights"
        )
    kernels = [
        std
        for layer, stds in zip(network.layers, network.split(posterior.std), strict=True)
        if isinstance(layer, Conv2d)
        for std in stds
    ]
    if bayesian == "all" and kernels and not any(bool(std.any()) for std in kernels):
        raise InputError(
            f"--from {str(path)!r} has convolutions without noise; give --bayesian dense"
        )
    return network, posterior


def fit(recipe: Recipe, path: Path, device: str, begin: Normal | None = None) -> None:
    """Train under a progress bar, write the posterior, and say how good it is."""
    from bnncert.cli.score import show
    from bnncert.console import progress
    from bnncert.data import named
    from bnncert.train import Scores
    from bnncert.zoo.recipes import fit_recipe

    with progress("training") as bar:
        task = bar.add_task("training", total=recipe.training.epochs, note="")
        notes = fit_recipe(
            recipe,
            path,
            device_named(device),
            lambda epoch: bar.update(task, completed=epoch.number, note=_note(epoch)),
            begin,
        )
    found = Scores(**notes["scores"])
    place = "the test set" if named(recipe.data) else "the tenth kept out"
    good = (
        f"RMSE at the mean {found.rmse:.4g}"
        if found.accuracy is None
        else f"accuracy at the mean {100 * found.accuracy:.2f} %"
    )
    print(
        f"{path}: {good} on {place}, "
        f"median std {notes['std']:.2g}, "
        f"ELBO {notes['log'][-1]['elbo']:.4g}"
    )
    show(found, recipe.data, recipe.training)


def _note(epoch: Epoch) -> str:
    parts = [
        f"loss {epoch.loss:.3f}",
        f"accuracy {100 * epoch.accuracy:.1f} %",
        f"KL {epoch.kl:.3g}",
    ]
    if epoch.certified is not None:
        parts.append(f"certified {100 * epoch.certified:.1f} %")
    return ", ".join(parts)
