"""What experiments are made on: the paper's networks, as published or as our zoo trains them, on
the first test images.

Batten, Hosseini, Lomuscio (AISTATS 2024), Table 1: accuracies and mean certified P_safe in percent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from torch import Tensor

from bnncert._certify import certify
from bnncert.attack import surviving
from bnncert.data import Dataset, load_inputs
from bnncert.errors import InputError
from bnncert.experiments.run import Row, Setting
from bnncert.importers import load_posterior
from bnncert.methods import GIE, PIE, Method, Sampling
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import ball, class_robust
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import Normal
from bnncert.zoo.recipes import posterior_path

SEED = 0


@dataclass(frozen=True)
class Published:
    """A row of the paper's Table 1; PGD at ε = 0.05."""

    clean: float
    pgd: float
    eps: float
    sampling: float
    pie: float
    gie: float


PAPER = {
    "1x128": Published(96, 40, 0.025, 26.0, 56.9, 58.4),
    "1x256": Published(94, 42, 0.025, 22.0, 50.0, 51.2),
    "1x512": Published(94, 36, 0.025, 10.0, 35.0, 37.3),
    "2x256": Published(92, 16, 0.001, 72.0, 74.0, 74.0),
    "2x512": Published(82, 2, 0.001, 22.0, 22.0, 26.1),
    "2x1024": Published(68, 0, 0.001, 0.0, 0.0, 0.0),
    "2x50": Published(96, 70, 0.01, 58.6, 67.3, 71.8),
    "2x150": Published(92, 54, 0.001, 49.8, 54.9, 56.4),
    "cnn": Published(72, 2, 0.0, 22.0, 27.1, 35.6),
}
# One box around the posterior mean, at most 50 bound calls.
BOX_METHODS: dict[str, Sampling | PIE | GIE] = {
    "sampling": Sampling(samples=1, step=5.0),
    "PIE": PIE(samples=1),
    "GIE": GIE(samples=1),
}
# Where MNIST is out of reach: the shipped network, and a radius that divides the methods.
DIGITS = (
    "digits",
    0.02,
)


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, its posterior, images x [N, *input_shape] with classes y, and their radius."""

    name: str
    eps: float
    network: Network
    posterior: Normal
    x: Tensor
    y: Tensor

    def problem(
        self,
        device: str,
        eps: float | None = None,
        scale: float = 1.0,
        clip: tuple[float, float] | None = (0.0, 1.0),
    ) -> Problem:
        """Class robustness within `eps`, the subject's own unless given; every σ times `scale`."""
        region = ball(self.x, self.eps if eps is None else eps, clip=clip)
        posterior = replace(self.posterior, std=scale * self.posterior.std)
        return Problem(
            self.network, posterior, class_robust(region, self.y, self.network.outputs)
        ).to(device)


def subjects(setting: Setting, names: Sequence[str] = tuple(PAPER)) -> list[Subject]:
    """Those of the networks that are at hand.

    The others are named on standard error with what to do.
    """
    found = [subject for name in names if (subject := _subject(setting, name))]
    if not found and setting.quick and setting.published is None:
        _say("MNIST is out of reach: using the digits network")
        return [_of_zoo(*DIGITS, setting.images)]
    if not found:
        raise InputError(
            f"none of {', '.join(names)} can be had; "
            "set BNNCERT_DATA to a folder with the data sets"
        )
    return found


def first(setting: Setting) -> Subject:
    """One network for experiments that need no more."""
    return subjects(setting, ("1x128",))[0]


def several(setting: Setting) -> list[Subject]:
    """A narrow and a wider posterior, for experiments over a parameter."""
    return subjects(setting, ("1x128",) if setting.quick else ("1x128", "2x50"))


def _subject(setting: Setting, name: str) -> Subject | None:
    eps = PAPER[name].eps
    try:
        if setting.published is None:
            return _of_zoo(name, eps, setting.images)
        return _load(
            name, eps, _published(setting.published, name), _inputs("mnist"), setting.images
        )
    except InputError as error:
        _say(f"{name}: left out; {error}")
        return None


@cache
def _say(line: str) -> None:
    """Once, however many experiments ask for the same network."""
    print(line, file=sys.stderr)


def _published(folder: Path, name: str) -> Path:
    for path in (folder / f"paper_{name}.npz", folder / "posteriors" / f"paper_{name}.npz"):
        if path.is_file():
            return path
    raise InputError(f"{str(folder)!r} holds no paper_{name}.npz")


def _of_zoo(name: str, eps: float, images: int) -> Subject:
    data = {"cnn": "cifar10", "digits": "digits"}.get(name, "mnist")
    return _load(name, eps, posterior_path(name), _inputs(data), images)


def _load(name: str, eps: float, path: Path, data: Dataset, images: int) -> Subject:
    network, posterior = load_posterior(path)
    if not isinstance(posterior, Normal) or data.y is None:
        raise InputError(
            f"{str(path)!r} is no independent Gaussian posterior, or its data have no classes"
        )
    x = data.x[:images].reshape(-1, *network.input_shape)
    return Subject(name, eps, network, posterior, x, data.y[:images])


def _inputs(name: str) -> Dataset:
    found = _tried(name)
    if isinstance(found, InputError):
        raise found
    return found


@cache
def _tried(name: str) -> Dataset | InputError:
    """A download that failed is not tried again."""
    try:
        return load_inputs(name)
    except InputError as error:
        return error


def certified(problem: Problem, method: Method) -> dict[str, float]:
    """Mean lower and upper bounds in percent, and seconds per input."""
    results = certify(problem, method, seed=SEED)
    lower, upper, seconds = (
        sum(getattr(result, field) for result in results) / len(results)
        for field in ("lower", "upper", "seconds")
    )
    return {"lower": 100 * lower, "upper": 100 * upper, "seconds": seconds}


def compared(problem: Problem, methods: Mapping[str, Method], own: Row, drawn: int) -> list[Row]:
    """A row for each method, and one for the ceiling; each starts with what is its `own`."""
    rows = [own | {"method": name} | certified(problem, each) for name, each in methods.items()]
    return [*rows, own | {"method": "ceiling", "lower": ceiling(problem, drawn)}]


def lines_against(
    rows: Sequence[Row], x: str, methods: Iterable[str]
) -> dict[str, list[tuple[float, float]]]:
    """Lower bounds and ceiling of `compared` rows against column x; concentration's upper too."""
    lines = {
        name: [(row[x], row["lower"]) for row in rows if row["method"] == name]
        for name in (*methods, "ceiling")
    }
    upper = [(row[x], row["upper"]) for row in rows if row["method"] == "concentration"]
    return lines | {"certified upper bound": upper}


def ceiling(problem: Problem, networks: int) -> float:
    """Percent of sampled networks and inputs that survive attacks: no bound can exceed it."""
    return 100 * surviving(problem, sample(problem.posterior, networks, SEED), SEED)[1]
