"""The posterior, in the place of which the mean network, or sampled ones, give a wrong answer."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bnncert.bench.known.instance import ONE, known
from bnncert.bench.models import Model, dense, normal
from bnncert.bench.recipes import Recipe, box, keeps, positive, within
from bnncert.model.activations import ReLU
from bnncert.model.network import mlp
from bnncert.model.specification import Specification
from bnncert.posteriors.empirical import Empirical

# δ: z with Q(z) about δ, and a threshold below 1 - δ.
PLANTED = {
    "0.5": (0.0, "0.45"),
    "1e-2": (2.328125, "0.98"),
    "1e-4": (3.71875, "0.999"),
    "1e-6": (4.75, "0.99999"),
    "1e-9": (6.0, "0.99999999"),
}
STEEP = 8.0  # how fast the planted pocket turns unsafe


def _thirds() -> Model:
    return mlp(1, 1), Empirical(torch.tensor([[1.0, 0.0], [2.0, 0.0], [-6.0, 0.0]]).double())


def _repeated() -> Model:
    return mlp(1, 1), Empirical(
        torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-2.0, 0.0]]).double()
    )


def _around_zero() -> Model:
    """No network is near the mean of all."""
    return mlp(1, 1), Empirical(
        torch.tensor([[-2.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]).double()
    )


def _planted(z: float) -> Callable[[], Model]:
    """y1 - y2 = 1 + Σ relu(x_i - 1/2) - 8 relu(b): a margin of 1 unless the noise of b is large."""

    def model() -> Model:
        inputs, honest = 4, torch.cat([torch.eye(4), torch.zeros(4, 1)], 1).double()
        bias, noise = torch.full((inputs + 1,), -0.5).double(), torch.zeros(inputs + 1).double()
        bias[-1], noise[-1] = 1 / STEEP - z, 1.0
        out = torch.tensor([[1.5, 0.5]] * inputs + [[0.0, STEEP]]).double()
        return normal(
            (inputs,), dense(honest, 0.0, bias, noise), ReLU(), dense(out, bias=[1.0, 0.0])
        )

    return model


def _planted_question() -> Specification:
    return keeps(box([0.375] * 4, [0.625] * 4), 0, 2)


NETWORKS: tuple[Recipe, ...] = (
    known(
        "thirds",
        "three networks, two of them safe",
        _thirds,
        lambda: positive(ONE),  # 2/3
        "0.66",
        "a normal distribution fitted to weight samples",
    ),
    known(
        "repeated-samples",
        "four networks, of which two are equal",
        _repeated,
        lambda: positive(ONE),  # 1/2
        "0.49",
        "networks that occur twice counted once",
    ),
    known(
        "around-zero",
        "four unsafe networks around a safe mean",
        _around_zero,
        lambda: within(ONE, -0.5, 0.5),  # 0
        "0.5",
        "the network of the mean weights in the place of the posterior",
    ),
    *(
        known(
            f"planted-{delta}",
            f"a robust mean with an unsafe pocket of mass about {delta}",
            _planted(z),
            _planted_question,  # 1 - Q(z)
            threshold,
            "the mean network, or sampled ones, in the place of the posterior",
        )
        for delta, (z, threshold) in PLANTED.items()
    ),
)
