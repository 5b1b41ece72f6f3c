"""The tracks: kinds of networks that people have, some of the zoo and some fitted here.

The truth set is the first of them. Nobody knows the truth of the others: there, checked
certificates judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor

from bnncert.bench.fitted import (
    KINDS,
    control_head,
    control_mean_field,
    ensemble,
    small_cnn,
    small_digit,
    small_residual,
)
from bnncert.bench.known import KNOWN, TRACK
from bnncert.bench.models import Model
from bnncert.bench.pictures import digit, patches
from bnncert.bench.recipes import QUICK_SECONDS, SOFTMAX, Recipe, around, keeps, within
from bnncert.bench.streams import Stream, rounded
from bnncert.errors import InputError
from bnncert.importers import load_posterior
from bnncert.model.specification import Specification
from bnncert.results.rows import P_SAFE
from bnncert.zoo.recipes import posterior_path

TRACKS = {
    TRACK: "small networks whose P_safe is known",
    "narrow": "the paper's MNIST networks, as the zoo has them",
    "wide": "posteriors of the full evidence lower bound",
    "certifiable": "posteriors trained for a certificate",
    "cnn": "convolutional networks, all weights random",
    "head": "residual trunks with a Bayesian last layer",
    "control": "regression and control, of few inputs",
    "predictive": "the mean softmax in the place of P_safe",
    "samples": "ensembles: finitely many networks",
}
UNIT = (0.0, 1.0)  # of pixels
FULL_SECONDS = 60.0
# Pictures of patches by seed, and the class that the zoo's residual network gives each.
COLOURED = {3: 3, 4: 2, 13: 5, 15: 8}


def zoo(name: str) -> Callable[[], Model]:
    return partial(_of_the_zoo, name)


def _of_the_zoo(name: str) -> Model:
    return load_posterior(posterior_path(name))


def _drawn(name: str, kind: int, seed: int, eps: float) -> Specification:
    """A digit of our own drawing keeps its class, for a network of the zoo."""
    network, _ = _of_the_zoo(name)
    picture = digit(kind, seed).reshape(network.input_shape)
    return keeps(around(picture, eps, UNIT), kind, network.outputs)


def _digits(
    track: str,
    names: Sequence[str],
    kinds: Sequence[tuple[int, int]],
    radii: Sequence[float],
    threshold: str = "0.9",
    quantity: str = P_SAFE,
    seconds: float = QUICK_SECONDS,
    needs: bool = False,
) -> Iterable[Recipe]:
    """Every network with every digit (which, and the seed of its drawing) at every radius."""
    for name, (kind, seed), eps in product(names, kinds, radii):
        yield Recipe(
            name=f"{track}-{name}-{kind}.{seed}-{eps:g}",
            track=track,
            about=f"a drawn {kind} keeps its class under {name}, ε {eps:g}",
            posterior=name,
            model=zoo(name),
            question=partial(_drawn, name, kind, seed, eps),
            threshold=threshold,
            timeout=seconds,
            quantity=quantity,
            needs=name if needs else None,
        )


def _small(
    track: str,
    name: str,
    model: Callable[[], Model],
    kinds: Sequence[tuple[int, int]],
    radii: Sequence[float],
) -> Iterable[Recipe]:
    """A small network fitted here, which tells a few digits apart."""
    for (kind, seed), eps in product(kinds, radii):
        picture = small_digit(kind, seed)
        yield Recipe(
            name=f"{track}-{name}-{kind}.{seed}-{eps:g}",
            track=track,
            about=f"a drawn {kind} keeps its class under {track}-{name}, ε {eps:g}",
            posterior=f"{track}-{name}",
            model=model,
            question=partial(keeps, around(picture, eps, UNIT), KINDS.index(kind), len(KINDS)),
            threshold="0.9",
        )


def _between(
    name: str,
    model: Callable[[], Model],
    points: Sequence[Sequence[float]],
    radii: Sequence[float],
    tolerance: float,
) -> Iterable[Recipe]:
    """The output stays within a tolerance of what the central network gives."""
    for (i, x), eps in product(enumerate(points), radii):
        center = torch.tensor(x, dtype=torch.float64)
        yield Recipe(
            name=f"control-{name}-{i}-{eps:g}",
            track="control",
            about=f"{name} stays within {tolerance:g} of its centre around point {i}, ε {eps:g}",
            posterior=f"control-{name}",
            model=model,
            question=partial(_near, model, center, eps, tolerance),
            threshold="0.9",
        )


def _near(model: Callable[[], Model], x: Tensor, eps: float, tolerance: float) -> Specification:
    network, posterior = model()
    middle = float(rounded(network.forward(posterior.center, x.unsqueeze(0))))
    return within(around(x, eps), middle - tolerance, middle + tolerance)


def _quadrants(radii: Sequence[float]) -> Iterable[Recipe]:
    """The ensemble decides an exclusive or of signs."""
    points = [(0.5, 0.5), (-0.5, 0.375), (0.25, -0.5), (-0.125, -0.25)]
    for (i, x), eps in product(enumerate(points), radii):
        label = 0 if x[0] * x[1] > 0 else 1
        center = torch.tensor(x, dtype=torch.float64)
        yield Recipe(
            name=f"samples-{i}-{eps:g}",
            track="samples",
            about=f"networks of the ensemble that keep class {label} around point {i}, ε {eps:g}",
            posterior="ensemble",
            model=ensemble,
            question=partial(keeps, around(center, eps), label, 2),
            threshold="0.75",
        )


def _coloured(labels: dict[int, int], radii: Sequence[float]) -> Iterable[Recipe]:
    """Pictures of soft patches keep the class that the zoo's residual network gives them."""
    name = "cifar10-residual-laplace"
    for (seed, label), eps in product(labels.items(), radii):
        yield Recipe(
            name=f"head-{name}-{seed}-{eps:g}",
            track="head",
            about=f"patches of colour {seed} keep class {label} under {name}, ε {eps:g}",
            posterior=name,
            model=zoo(name),
            question=partial(_patched, seed, label, eps),
            threshold="0.9",
            timeout=FULL_SECONDS,
        )


def _patched(seed: int, label: int, eps: float) -> Specification:
    return keeps(around(patches(seed), eps, UNIT), label, 10)


def _points(seed: int, count: int, size: int) -> list[list[float]]:
    """Points of [-1, 1]^size."""
    found: list[list[float]] = (2 * Stream(seed).uniform(count, size) - 1).tolist()
    return found


def _quick() -> Iterable[Recipe]:
    yield from KNOWN
    yield from _digits("narrow", ("1x128",), ((2, 1), (5, 1)), (0.0125, 0.05))
    yield from _digits("narrow", ("2x50",), ((3, 1),), (0.04, 0.05))
    yield from _digits("wide", ("1x128-kl1",), ((0, 1), (5, 1)), (0.0,))
    yield from _digits("wide", ("1x128-kl0.1",), ((3, 1),), (0.01, 0.02))
    yield from _digits("certifiable", ("mnist-mlp-robust-kl1",), ((6, 1),), (0.01,))
    yield from _small("cnn", "small", small_cnn, ((1, 1), (3, 1)), (0.016, 0.02))
    yield from _small("head", "residual-small", small_residual, ((1, 1), (2, 1)), (0.01, 0.016))
    yield from _between("head", control_head, _points(21, 3, 2), (0.0625,), 0.375)
    yield from _between("mean-field", control_mean_field, _points(22, 3, 2), (0.0625,), 0.25)
    yield from _digits("predictive", ("1x128",), ((2, 1), (5, 1)), (0.0125,), "0.5", SOFTMAX)
    yield from _digits(
        "predictive", ("mnist-mlp-robust-kl1",), ((0, 1),), (0.005,), "0.95", SOFTMAX
    )
    yield from _quadrants((0.0625, 0.125))


def _full() -> Iterable[Recipe]:
    """What is added to the quick ones."""
    kinds = ((0, 2), (1, 2), (4, 2), (8, 1))
    two = kinds[:2]
    digits = partial(_digits, seconds=FULL_SECONDS)
    yield from digits("narrow", ("1x128",), kinds, (0.025, 0.05))
    yield from digits("narrow", ("2x50",), kinds, (0.02, 0.05))
    yield from digits("narrow", ("2x150",), kinds, (0.002, 0.01))
    yield from digits("narrow", ("1x256", "1x512"), two, (0.025, 0.05), needs=True)
    yield from digits("narrow", ("2x256",), two, (0.001, 0.005), needs=True)
    yield from digits("wide", ("1x128-kl1", "1x128-kl0.1"), kinds, (0.0, 0.003, 0.01))
    yield from digits("wide", ("2x50-kl1", "2x50-kl0.1"), kinds, (0.0,))
    yield from digits("certifiable", ("mnist-mlp-robust-kl1",), kinds, (0.01, 0.02))
    yield from digits("certifiable", ("mnist-mlp-robust",), kinds, (0.025, 0.05))
    yield from digits("cnn", ("mnist-cnn-robust-kl1",), kinds, (0.05, 0.1))
    yield from digits("cnn", ("mnist-cnn-robust",), two, (0.1,))
    yield from _coloured(COLOURED, (1 / 255, 2 / 255))
    points = _points(23, 6, 2)
    yield from _between("head", control_head, points, (0.03125, 0.125), 0.375)
    yield from _between("mean-field", control_mean_field, points, (0.03125, 0.125), 0.25)
    yield from _between("boston-robust", zoo("boston-robust"), _points(24, 4, 13), (0.05,), 0.5)
    yield from _between("diabetes-robust", zoo("diabetes-robust"), _points(25, 4, 10), (0.05,), 0.5)
    yield from digits(
        "predictive", ("1x128", "2x50", "1x128-kl0.1"), kinds, (0.003,), "0.5", SOFTMAX
    )
    yield from _quadrants((0.03125, 0.25))


def recipes(full: bool = False, tracks: Sequence[str] = ()) -> list[Recipe]:
    """The recipes of a size, of all tracks unless some are named."""
    unknown = [track for track in tracks if track not in TRACKS]
    if unknown:
        raise InputError(f"track {unknown[0]!r} is not known; choose {', '.join(TRACKS)}")
    found = [*_quick(), *(_full() if full else ())]
    return [recipe for recipe in found if not tracks or recipe.track in tracks]
