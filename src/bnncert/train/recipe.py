"""How to train: the settings of Bayes by Backprop and the schedule of its learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bnncert.errors import InputError

BAYESIAN = ("all", "dense", "last", "none")
SCHEDULES = ("constant", "cosine")
PRIORS = ("fixed", "fan-in")

LEAST, MOST = 1e-15, 1e15  # numbers whose squares, and their quotients, float32 can hold
RISE = (0.1, 0.6)  # shares of all steps between which ε, κ and the KL weight of --robust rise


@dataclass(frozen=True)
class Robust:
    """What makes a training certifiable: the likelihood mixed with its certified bound,

        (1 - κ) · nll(drawn network)  +  κ · nll(the worst that is certified but for Q(τ) a row)

    over the boxes x ± eps, clipped to `clip`, hidden intervals at threshold t (see
    `concentration.margin`; left out, from the number of neurons). eps, κ and the recipe's KL weight
    rise linearly from 0 between RISE of the steps: weights that the divergence takes to the prior
    before the bound has found a use for them do not come back.

    With `attack` steps of projected gradient ascent the drawn networks learn at attacked points of
    the box instead of its centre: the expressive mix of De Palma et al. (ICLR 2024).
    """

    eps: float
    kappa: float = 0.5
    t: float | None = None
    tau: float = 3.5
    attack: int = 0
    clip: tuple[float, float] | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise InputError(f"robust is {self.eps}; give a positive radius")
        if not 0 <= self.kappa <= 1:
            raise InputError(f"kappa is {self.kappa}; give a share from 0 to 1")
        if self.t is not None and not 0 < self.t < math.inf:
            raise InputError(f"t is {self.t}; give a positive number, or leave it out")
        if not 0 <= self.tau < math.inf:
            raise InputError(f"tau is {self.tau}; give a number of at least 0")
        if not self.attack >= 0:
            raise InputError(f"attack is {self.attack}; give a number of steps, 0 for none")
        check_clip(self.clip)


@dataclass(frozen=True)
class BayesByBackprop:
    """How to train; `seed` fixes weights at the start, order of examples, noise and augmentation.

    `bayesian` says which weights are random: all, those of Dense layers, of the last layer, or
    none, for a trunk whose head is to come from elsewhere. The others are ordinary parameters:
    their std is 0, they have no KL, and the loss takes weight_decay/2 · Σ mean² over them instead,
    the penalty of a prior N(0, 1 / (weight_decay · N)). Epochs report the loss without it.

    `schedule` constant keeps the learning rate; cosine takes it to 0 over the whole training,
    learning_rate · (1 + cos(π t)) / 2 after a share t of the steps. `augment` is for images: see
    `augmented`.

    `prior` fan-in divides the prior's standard deviation by the root of the number of terms that a
    weight is summed with; biases keep it. `normalise` trains every layer but the last under batch
    normalisation, which is folded into the weights: noise, divergence and bounds are those of the
    folded weights, and so is the posterior.

    `robust` adds the certified bound to the likelihood. `noise_std` makes it a regression: outputs
    are observed under Gaussian noise of that size; left out, they are the logits of classes.

    The defaults of kl_weight and initial_std were chosen on the digits (64-32-10, 60 epochs, five
    seeds, the last 300 training examples held out). Accuracy at the mean hardly depends on them,
    within 0.01 for weights 0.003 to 0.03 and stds 0.02 to 0.1, so they aim at moderate noise: a
    median std of 0.05 on digits and on MNIST. With kl_weight 1, the ELBO itself, a weight that the
    data say nothing about is as wide as the prior.

    Small data sets make few steps per epoch: on digits a learning rate of 1e-2 reaches in 60 epochs
    (held out 0.96) what 1e-3 takes about 200 for, at a median std of 0.14.
    """

    epochs: int
    batch_size: int = 128
    learning_rate: float = 1e-3
    prior_std: float = 1.0
    kl_weight: float = 0.01
    initial_std: float = 0.05
    seed: int = 0
    bayesian: str = "all"
    schedule: str = "constant"
    augment: bool = False
    weight_decay: float = 1e-4
    prior: str = "fixed"
    normalise: bool = False
    noise_std: float | None = None
    robust: Robust | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if not getattr(self, name) >= 1:
                raise InputError(
                    f"{name} is {getattr(self, name)}; give a whole number of at least 1"
                )
        for name in ("learning_rate", "prior_std", "initial_std"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; give a positive number")
        for name in ("learning_rate", "prior_std", "initial_std", "noise_std"):
            value = getattr(self, name)
            if value is not None and 0 < value < math.inf and not LEAST <= value <= MOST:
                raise InputError(
                    f"{name} is {value}; training is in float32, give {LEAST:g} to {MOST:g}"
                )
        for name, choices in (
            ("bayesian", BAYESIAN),
            ("schedule", SCHEDULES),
            ("augment", (False, True)),
            ("prior", PRIORS),
            ("normalise", (False, True)),
        ):
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}; give {' or '.join(map(str, choices))}"
                )
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay is {self.weight_decay}; give a number of at least 0")
        if not 0 <= self.kl_weight < math.inf:
            raise InputError(
                f"kl_weight is {self.kl_weight}; give a number of at least 0 (1 is the ELBO)"
            )
        if self.noise_std is not None and not 0 < self.noise_std < math.inf:
            raise InputError(
                f"noise_std is {self.noise_std}; give a positive number, or none for classes"
            )
        if self.normalise and self.batch_size < 2:
            raise InputError(
                "normalise compares the examples of a batch; give a batch_size above 1"
            )
        # The generator drops higher bits, so that two seeds would be one.
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}; give a whole number from 0 to 2³² - 1")


def check_clip(clip: tuple[float, float] | None) -> None:
    if clip is not None and not (len(clip) == 2 and clip[0] < clip[1]):
        raise InputError(f"clip is {clip}; give the least and the largest input, or None")


def learning_rate(recipe: BayesByBackprop, done: float) -> float:
    """The rate after a share `done` of all steps."""
    if recipe.schedule == "constant":
        return recipe.learning_rate
    return recipe.learning_rate * (1 + math.cos(math.pi * done)) / 2


def risen(done: float) -> float:
    """The share of eps and κ that holds after a share `done` of all steps."""
    start, stop = RISE
    return min(1.0, max(0.0, (done - start) / (stop - start)))
