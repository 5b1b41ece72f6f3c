"""train: Bayesian networks by Bayes by Backprop."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bnncert.cli.options import Device, Seed, device_named, takes
from bnncert.cli.training import Architecture, Certifiable, Learned, Settings
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


@takes(learned=Learned, shape=Architecture, settings=Settings, robust=Certifiable)
def train(
    learned: Learned,
    shape: Architecture,
    settings: Settings,
    robust: Certifiable,
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
    from bnncert.data import inputs_for
    from bnncert.train import BayesByBackprop
    from bnncert.zoo.recipes import Recipe

    started = None if shape.begin is None else _posterior(shape.begin, settings.bayesian)
    known = None if started is None else started[0].standardisation
    named = _targets(learned.targets, learned.data)
    examples = inputs_for(known, learned.data, targets=named)
    if _is_regression(learned.task, settings.noise_std, named):
        settings = _with_noise(settings, learned.data, named, started)
    training = BayesByBackprop(**vars(settings), seed=seed, robust=_robust(robust, examples))
    if started is None:
        network, begin = _network(shape, examples, settings.noise_std is None), None
    elif shape.network or shape.hidden or shape.convolutions:
        raise InputError(
            "--from brings its architecture; leave --network, --hidden and --convolutions out"
        )
    else:
        network, begin = started
    fit(Recipe(network, learned.data, training, targets=named), out, device, begin)


def _with_noise(
    settings: Settings,
    data: str,
    targets: tuple[str, ...],
    started: tuple[Network, Normal] | None,
) -> Settings:
    """With the noise of a regression's targets, estimated from the training set unless given."""
    from bnncert.data import inputs_for, standardisation_of
    from bnncert.model.standardisation import Standardisation

    if settings.noise_std is not None:
        return settings
    known = None if started is None else started[0].standardisation
    seen = inputs_for(known, data, "train", targets)
    columns = standardisation_of(seen) if started is None else known
    return replace(settings, noise_std=_noise(seen, columns or Standardisation()))


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


def _robust(asked: Certifiable, examples: Dataset) -> Robust | None:
    """What --robust asks for; its options are for nothing else."""
    from bnncert.train import Robust

    given: dict[str, Any] = {name: own for name, own in vars(asked).items() if own is not None}
    eps = given.pop("robust", None)
    if eps is None:
        if given:
            names = ", ".join(f"--{name}" for name in given)
            raise InputError(f"{names}: for --robust alone; give its radius, or leave them out")
        return None
    return Robust(eps, clip=(0.0, 1.0) if examples.image else None, **given)


def _network(asked: Architecture, examples: Dataset, classes: bool) -> Network:
    """The network asked for, of the data set's sizes."""
    from bnncert.model.network import cnn, mlp, residual
    from bnncert.question import whole_numbers

    name = asked.network or "mlp"
    images = {"cnn": cnn, "residual": residual}
    if name != "mlp" and name not in images:
        raise InputError(f"network {name!r} is not known; choose mlp, cnn or residual")
    outputs = _outputs(examples, classes)
    widths = None if asked.hidden is None else whole_numbers(asked.hidden, "--hidden")
    shape = tuple(examples.x.shape[1:])
    if name == "mlp":
        if asked.convolutions is not None:
            raise InputError("--convolutions are for --network cnn or residual")
        return mlp(math.prod(shape), *(widths or (128,)), outputs)
    options: dict[str, Any] = {}
    if widths is not None:
        options["hidden"] = widths
    if asked.convolutions is not None:
        options["convolutions"] = _convolutions(asked.convolutions)
    return images[name]((1, *shape) if len(shape) == 2 else shape, outputs, **options)


def _outputs(examples: Dataset, classes: bool) -> int:
    """As many as there are classes, or numbers of a target."""
    from bnncert.ask import labels_of

    labels = labels_of(examples, [*range(len(examples.x))])
    if not classes:
        return 1 if labels.dim() == 1 else labels.shape[1]
    if labels.is_floating_point():
        raise InputError(f"targets of {examples.name!r} are no classes; give --task regression")
    count = int(labels.max()) + 1
    if count > MOST_CLASSES:
        raise InputError(
            f"{examples.name!r} has a label {count - 1}; "
            f"number classes from 0 to at most {MOST_CLASSES - 1}"
        )
    return count


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
