"""The law of a margin: its mean and spread, both of its tails, and noise that is shared or not."""

from __future__ import annotations

import torch

from bnncert.bench.known.instance import ONE, known, weight
from bnncert.bench.models import Model, convolution, dense, normal
from bnncert.bench.recipes import SOFTMAX, Recipe, box, keeps, point, positive, rows, within
from bnncert.model.activations import ReLU
from bnncert.model.layers import Conv2d, Dense, Flatten
from bnncert.model.network import Network, mlp
from bnncert.posteriors.gaussian import LowRankNormal, Mixture
from bnncert.posteriors.independent import Normal


def _sum() -> Model:
    """y = w·x + b."""
    return normal((2,), dense([[0.5], [-0.25]], [[0.25], [0.125]], bias=0.25))


def _relu() -> Model:
    """y = 1 - relu(w x)."""
    return normal((1,), dense([[0.5]], 0.5), ReLU(), dense([[-1.0]], bias=1.0))


def _line() -> Model:
    """y = w x + 0.05."""
    return normal((1,), dense([[0.0]], 1.0, bias=0.05))


def _product() -> Model:
    """y = relu(w2 relu(w1 x)), as in the first figure of Batten et al. (2024)."""
    return normal((1,), dense([[0.0]], 1.0), ReLU(), dense([[0.0]], 1.0), ReLU())


def _opposed() -> Model:
    """y = (u + v/4 + 1/2, -u + v/4 + 1/2): rows that share their noise."""
    shared = dense([[0.0, 0.0]], 1.0)
    return normal((1,), shared, dense([[1.0, -1.0], [0.25, 0.25]], bias=0.5))


def _neurons() -> Model:
    """y = relu(z1) - relu(z2) + 1/2, both noisy."""
    return normal((1,), dense([[0.0, 0.0]], 1.0), ReLU(), dense([[1.0], [-1.0]], bias=0.5))


def _mixture() -> Model:
    """w ~ 3/4 N(2, 1/16) + 1/4 N(-2, 1/16)."""
    zero = torch.zeros(1).double()
    parts = [
        Normal(torch.tensor([mean, 0.0]).double(), torch.cat([zero + 0.25, zero]))
        for mean in (2.0, -2.0)
    ]
    return mlp(1, 1), Mixture((0.75, 0.25), (parts[0], parts[1]))


def _common() -> Model:
    """y = w1 - w2 + 1/4, where both weights have a large noise in common."""
    mean, own = torch.tensor([0.0, 0.0, 0.25]).double(), torch.tensor([0.5, 0.5, 0.0]).double()
    factor = torch.tensor([[1.0], [1.0], [0.0]]).double()
    return Network((2,), (Dense(2, 1),)), LowRankNormal(mean, own, factor)


def _kernel() -> Model:
    """y = Σ_p (k x_p + b) over four pixels, which share the kernel and its bias."""
    first = convolution(Conv2d(1, 1, (1, 1)), 0.25, std=0.125, bias=0.25, bias_std=0.25)
    return normal((1, 2, 2), first, Flatten(), dense([[1.0]] * 4))


def _logit() -> Model:
    """Two classes apart by x + b, b ~ N(0, 4)."""
    return normal((1,), dense([[1.0]], bias=0.0, bias_std=2.0), dense([[1.0, 0.0]]))


LAWS: tuple[Recipe, ...] = (
    known(
        "linear",
        "a linear function of normal weights at a point",
        _sum,
        lambda: positive(point(1.0, 2.0)),  # Φ(1/√2)
        "0.75",
        "a variance in the place of a standard deviation",
    ),
    known(
        "relu",
        "one ReLU at a point",
        _relu,
        lambda: positive(ONE),  # Φ(1)
        "0.84",
        "what a proof leaves open counted as unsafe, so that an upper bound is too low",
    ),
    known(
        "two-tails",
        "a normal output inside an interval",
        weight,
        lambda: within(ONE, -1.5, 1.5),  # 1 - 2 Q(1.5)
        "0.86",
        "one of two tails forgotten: Q without its factor 2",
    ),
    known(
        "wide-line",
        "w x + 0.05 > 0 on [-1, 1], where the noise outweighs the margin",
        _line,
        lambda: positive(box([-1.0], [1.0])),  # 1 - 2 Q(0.05)
        "0.03",
        "Q of a negative number, where the margin is below the mean of the noise: 0.227",
    ),
    known(
        "product",
        "relu(w2 relu(w1)) < 1, the two-weight example of Batten et al. (2024)",
        _product,
        lambda: rows(ONE, [[-1.0]], [1.0]),  # 1/2 + ∫ φ(w) Φ(1/w) dw over w > 0
        "0.84",
        "a product of normal numbers taken for normal",
    ),
    known(
        "opposed",
        "two output rows that the same noise moves in opposite ways",
        _opposed,
        lambda: rows(ONE, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]),
        "0.35",  # ∫ φ(v) (1 - 2 Q(1/2 + v/4))⁺ dv
        "the probabilities of rows multiplied as if they were independent",
    ),
    known(
        "neurons",
        "the difference of two noisy ReLUs",
        _neurons,
        lambda: positive(ONE),  # Φ(1/2)/2 + ∫ φ(z) Φ(1/2 + z) dz over z > 0
        "0.78",
        "activations taken for normal by their first two moments",
    ),
    known(
        "mixture",
        "a mixture whose lighter component is unsafe",
        _mixture,
        lambda: rows(ONE, [[1.0]], [-1.0]),  # 3/4 Φ(4) + 1/4 Q(12)
        "0.74",
        "the heaviest component in the place of the mixture, or its first two moments",
    ),
    known(
        "common",
        "a difference of weights that share their noise",
        _common,
        lambda: positive(point(1.0, -1.0)),  # Φ(1/√8)
        "0.63",
        "the weights' own variances without their covariance",
    ),
    known(
        "kernel",
        "a convolution whose pixels share its kernel and bias",
        _kernel,
        lambda: positive(box([1.0, 0.5, 0.25, 0.25], [1.0, 0.5, 0.25, 0.25], (1, 2, 2))),
        "0.92",  # Φ(1.5 / √1.0625)
        "an own kernel and bias for every pixel",
    ),
    known(
        "logit",
        "the mean softmax of two classes that are x + b apart, on an interval",
        _logit,
        lambda: keeps(box([0.5], [1.5]), 0, 2),  # E σ(1/2 + 2 g) and E σ(3/2 + 2 g)
        "0.55",
        "the softmax of the mean in the place of the mean softmax",
        SOFTMAX,
    ),
)
