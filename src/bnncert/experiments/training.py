"""Certified share against accuracy: what the weight κ of the certified bound, its radius, the
weight of the divergence and the prior make of one small network, trained on the digits from
nothing.

κ = 0 is the ELBO alone, on the same images, its KL weight rising alike. The radius of the training,
`train_eps`, is not the one that is certified, `eps`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure
from torch import Tensor

from bnncert.data import load_inputs
from bnncert.errors import InputError
from bnncert.experiments.plots import draw_trade
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import Subject, certified
from bnncert.methods import Concentration
from bnncert.model.network import mlp
from bnncert.train import BayesByBackprop, Robust, Scores, score, train

KL_WEIGHTS = (0.01, 0.1, 1.0)
KAPPAS = (0.0, 0.1, 0.3, 0.5, 0.8)
WITHOUT_AND_WITH = (0.0, 0.5)
TRAIN_EPS = (0.01, 0.02, 0.05, 0.1)
RADII = (0.02, 0.05)  # certified
SEEDS = (1, 2, 3)  # besides 0, for one choice: what chance does
METHOD = Concentration(effort=0, upper=True)


@dataclass(frozen=True)
class Choice:
    """What differs from row to row."""

    kl_weight: float = 0.1
    kappa: float = 0.5
    train_eps: float = 0.05
    prior: str = "fixed"
    seed: int = 0

    @property
    def key(self) -> str:
        values = f"KL {self.kl_weight:g}, κ {self.kappa:g}, ε {self.train_eps:g}"
        return f"{values}, {self.prior} prior, seed {self.seed}"

    def recipe(self, epochs: int) -> BayesByBackprop:
        return BayesByBackprop(
            epochs=epochs,
            batch_size=64,
            learning_rate=1e-2,
            kl_weight=self.kl_weight,
            initial_std=0.02,
            seed=self.seed,
            schedule="cosine",
            prior=self.prior,
            robust=Robust(self.train_eps, self.kappa),
        )


def choices(quick: bool) -> list[Choice]:
    """Each once: κ, and but for a quick run the radius, the prior and the seed besides."""
    if quick:
        return [Choice(weight, kappa) for weight in KL_WEIGHTS for kappa in WITHOUT_AND_WITH]
    return list(dict.fromkeys(_whole()))


def _whole() -> Iterator[Choice]:
    for weight in KL_WEIGHTS:
        yield from (Choice(weight, kappa) for kappa in KAPPAS)
    for weight in KL_WEIGHTS:
        yield from (Choice(weight, train_eps=eps) for eps in TRAIN_EPS)
    for weight in KL_WEIGHTS:
        yield from (Choice(weight, kappa, prior="fan-in") for kappa in WITHOUT_AND_WITH)
    yield from (Choice(seed=seed) for seed in SEEDS)


def cells(setting: Setting) -> list[Cell]:
    return [Cell(choice.key, partial(_rows, setting, choice)) for choice in choices(setting.quick)]


def _rows(setting: Setting, choice: Choice) -> list[Row]:
    start = time.perf_counter()
    subject, scores = _trained(choice.recipe(10 if setting.quick else 60), setting)
    own = {
        "network": subject.name,
        "kl_weight": choice.kl_weight,
        "kappa": choice.kappa,
        "train_eps": choice.train_eps,
        "prior": choice.prior,
        "seed": choice.seed,
        "accuracy": _percent(scores.accuracy),
        "drawn_accuracy": _percent(scores.drawn_accuracy),
        "std": float(subject.posterior.std.median()),
        "nll": scores.nll,
        "calibration_error": _percent(scores.calibration_error),
        "training_seconds": time.perf_counter() - start,
    }
    return [
        own | {"eps": eps} | certified(subject.problem(setting.device, eps), METHOD)
        for eps in RADII
    ]


def _trained(recipe: BayesByBackprop, setting: Setting) -> tuple[Subject, Scores]:
    """On 1,350 training images; scored and, unless the run is quick, certified on all test
    images."""
    network = mlp(64, 64, 10)
    x, y = _digits("test")
    posterior = train(network, *_digits("train"), recipe, setting.device).posterior
    scores = score(network, posterior, x, y, recipe, device=setting.device)
    images = setting.images if setting.quick else len(x)
    subject = Subject("digits", RADII[-1], network, posterior, x[:images], y[:images])
    return subject, scores


def _digits(split: str) -> tuple[Tensor, Tensor]:
    """Images [N, 64] and their classes."""
    data = load_inputs("digits", split)
    if data.y is None:
        raise InputError("the digits have no classes")
    return data.x.reshape(-1, 64), data.y


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def draw(rows: list[Row]) -> Figure:
    """κ from 0 upwards at the largest radius certified, a line for each KL weight."""
    usual = Choice()
    shown = [
        row
        for row in rows
        if (row["eps"], row["train_eps"]) == (RADII[-1], usual.train_eps)
        and (row["prior"], row["seed"]) == (usual.prior, usual.seed)
    ]
    lines = {
        f"KL weight {weight:g}": [
            (row["kappa"], row["drawn_accuracy"], row["lower"])
            for row in shown
            if row["kl_weight"] == weight
        ]
        for weight in dict.fromkeys(row["kl_weight"] for row in shown)
    }
    return draw_trade(
        lines,
        (
            "κ, the weight of the certified bound in the training",
            "accuracy of drawn networks",
            f"certified within ε = {RADII[-1]:g}",
        ),
        ("hollow: κ = 0, the ELBO alone; larger: larger κ", "the same by κ"),
        "What a certified bound in the training gives (digits, 64-64-10)",
    )


TRAINING = Experiment(
    "certified share against accuracy over κ, ε, KL weight and prior of the training", cells, draw
)
