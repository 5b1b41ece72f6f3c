"""The truth set: small instances whose P_safe is known to many digits, each made so that a known
mistake gives a wrong answer to it.

What is known is in `truths.json`: an interval from closed forms and rigorous quadrature, which the
tests compute again in ball arithmetic. The next line under each question is its truth, Φ and Q the
distribution function and the tail of a standard normal, φ its density.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from bnncert.bench.models import Model, convolution, dense, normal
from bnncert.bench.recipes import SOFTMAX, Recipe, box, keeps, point, positive, rows, within
from bnncert.model.activations import LeakyReLU, ReLU
from bnncert.model.layers import Conv2d, Dense, Flatten
from bnncert.model.network import Network, mlp
from bnncert.model.specification import Specification
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import LowRankNormal, Mixture
from bnncert.posteriors.independent import Normal
from bnncert.results.rows import P_SAFE

TRACK = "truth"
IDENTITY = [[1.0, -1.0]]  # x ↦ (x, -x)
ONE = point(1.0)
# δ: z with Q(z) about δ, and a threshold below 1 - δ.
PLANTED = {
    "0.5": (0.0, "0.45"),
    "1e-2": (2.328125, "0.98"),
    "1e-4": (3.71875, "0.999"),
    "1e-6": (4.75, "0.99999"),
    "1e-9": (6.0, "0.99999999"),
}
STEEP = 8.0  # how fast the planted pocket turns unsafe
LARGE = 2.0**26  # times a slope of float32, an error of more than 1
TRAP = 2.0**25  # beside which float32 holds every fourth whole number
HUGE = 2.0**54  # beside which float64 does so


def _weight(mean: float = 0.0, std: float = 1.0) -> Model:
    """y = w x."""
    return normal((1,), dense([[mean]], std))


def _two_weights() -> Model:
    """y = (w1 x, w2 x), both standard normal."""
    return normal((1,), dense([[0.0, 0.0]], 1.0))


def _sum() -> Model:
    """y = w·x + b."""
    return normal((2,), dense([[0.5], [-0.25]], [[0.25], [0.125]], bias=0.25))


def _relu() -> Model:
    """y = 1 - relu(w x)."""
    return normal((1,), dense([[0.5]], 0.5), ReLU(), dense([[-1.0]], bias=1.0))


def _line() -> Model:
    """y = w x + 0.05."""
    return normal((1,), dense([[0.0]], 1.0, bias=0.05))


def _noisy_line() -> Model:
    """y = w x + b, both random."""
    return normal((1,), dense([[1.0]], 1.0, bias=0.25, bias_std=0.5))


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


def _dead() -> Model:
    """y = relu(w x), which is exactly 0 where w is negative."""
    return normal((1,), dense([[0.5]], 1.0), ReLU(), dense([[1.0]]))


def _twins() -> Model:
    """Two classes whose outputs are always equal."""
    return normal((1,), dense([[0.25]], 1.0), dense([[1.0, 1.0]]))


def _single() -> Model:
    """y = (2²⁵ + 3) x + b, b ~ N(-(2²⁵ + 4), 1/4): float32 rounds the first weight up by 1."""
    return normal((1,), dense([[TRAP + 3]], bias=-(TRAP + 4), bias_std=0.5))


def _order() -> Model:
    """y = 2⁵⁴ x1 - x2 - 2⁵⁴ x3 + b, b ~ N(1/2, 1/64): from left to right, float64 loses the -1."""
    return normal((3,), dense([[HUGE], [-1.0], [-HUGE]], bias=0.5, bias_std=0.125))


def _islands() -> Model:
    """y = |w x|."""
    return normal((1,), dense([[0.0]], 1.0), dense(IDENTITY), ReLU(), dense([[1.0], [1.0]]))


def _quadrants() -> Model:
    """y = |w1 + w2| - |w1 - w2| - 1: both weights beyond 1/2 on the same side."""
    parts = dense([[1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]])
    ends = dense([[1.0], [1.0], [-1.0], [-1.0]], bias=-1.0)
    return normal((1,), dense([[0.0, 0.0]], 1.0), parts, ReLU(), ends)


def _slope() -> Model:
    """y = -2²⁶ leaky(-1) + b, b ~ N(-2²⁶·0.3 - 1, 1/4): of its slope 0.3 float32 rounds up."""
    slope = LeakyReLU(0.3)
    last = dense([[-LARGE]], bias=-LARGE * 0.3 - 1, bias_std=0.5)
    return normal((1,), dense([[-1.0]]), slope, last)


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


def _known(
    name: str,
    about: str,
    model: Callable[[], Model],
    question: Callable[[], Specification],
    threshold: str,
    catches: str,
    quantity: str = P_SAFE,
) -> Recipe:
    name = f"{TRACK}-{name}"
    return Recipe(
        name, TRACK, about, name, model, question, threshold, quantity=quantity, catches=catches
    )


KNOWN: tuple[Recipe, ...] = (
    _known(
        "linear",
        "a linear function of normal weights at a point",
        _sum,
        lambda: positive(point(1.0, 2.0)),  # Φ(1/√2)
        "0.75",
        "a variance in the place of a standard deviation",
    ),
    _known(
        "relu",
        "one ReLU at a point",
        _relu,
        lambda: positive(ONE),  # Φ(1)
        "0.84",
        "what a proof leaves open counted as unsafe, so that an upper bound is too low",
    ),
    _known(
        "two-tails",
        "a normal output inside an interval",
        _weight,
        lambda: within(ONE, -1.5, 1.5),  # 1 - 2 Q(1.5)
        "0.86",
        "one of two tails forgotten: Q without its factor 2",
    ),
    _known(
        "wide-line",
        "w x + 0.05 > 0 on [-1, 1], where the noise outweighs the margin",
        _line,
        lambda: positive(box([-1.0], [1.0])),  # 1 - 2 Q(0.05)
        "0.03",
        "Q of a negative number, where the margin is below the mean of the noise: 0.227",
    ),
    _known(
        "noisy-line",
        "w x + b > 0 on an interval",
        _noisy_line,
        lambda: positive(box([0.5], [1.5])),  # ∫ φ(w) P(b > -min(w/2, 3w/2)) dw
        "0.8",
        "the clean input in the place of the region",
    ),
    _known(
        "product",
        "relu(w2 relu(w1)) < 1, the two-weight example of Batten et al. (2024)",
        _product,
        lambda: rows(ONE, [[-1.0]], [1.0]),  # 1/2 + ∫ φ(w) Φ(1/w) dw over w > 0
        "0.84",
        "a product of normal numbers taken for normal",
    ),
    _known(
        "opposed",
        "two output rows that the same noise moves in opposite ways",
        _opposed,
        lambda: rows(ONE, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0]),
        "0.35",  # ∫ φ(v) (1 - 2 Q(1/2 + v/4))⁺ dv
        "the probabilities of rows multiplied as if they were independent",
    ),
    _known(
        "neurons",
        "the difference of two noisy ReLUs",
        _neurons,
        lambda: positive(ONE),  # Φ(1/2)/2 + ∫ φ(z) Φ(1/2 + z) dz over z > 0
        "0.78",
        "activations taken for normal by their first two moments",
    ),
    _known(
        "thirds",
        "three networks, two of them safe",
        _thirds,
        lambda: positive(ONE),  # 2/3
        "0.66",
        "a normal distribution fitted to weight samples",
    ),
    _known(
        "repeated-samples",
        "four networks, of which two are equal",
        _repeated,
        lambda: positive(ONE),  # 1/2
        "0.49",
        "networks that occur twice counted once",
    ),
    _known(
        "around-zero",
        "four unsafe networks around a safe mean",
        _around_zero,
        lambda: within(ONE, -0.5, 0.5),  # 0
        "0.5",
        "the network of the mean weights in the place of the posterior",
    ),
    *(
        _known(
            f"planted-{delta}",
            f"a robust mean with an unsafe pocket of mass about {delta}",
            _planted(z),
            _planted_question,  # 1 - Q(z)
            threshold,
            "the mean network, or sampled ones, in the place of the posterior",
        )
        for delta, (z, threshold) in PLANTED.items()
    ),
    _known(
        "tie-dead",
        "relu(w) > 0, a tie where the neuron is dead",
        _dead,
        lambda: positive(ONE),  # Φ(1/2)
        "0.69",
        "a tie taken for safe: y >= 0",
    ),
    _known(
        "tie-classes",
        "two classes with equal outputs",
        _twins,
        lambda: keeps(ONE, 0, 2),  # 0
        "0.5",
        "a tie taken for the first class, as argmax does",
    ),
    _known(
        "float32",
        "a weight that float32 rounds up",
        _single,
        lambda: positive(ONE),  # Q(2)
        "0.03",
        "weights in float32",
    ),
    _known(
        "float64",
        "large weights that cancel",
        _order,
        lambda: positive(point(1.0, 1.0, 1.0)),  # Q(4)
        "0.5",
        "the rounding of float64 not charged",
    ),
    _known(
        "box-width",
        "a normal output inside ±1 standard deviation",
        _weight,
        lambda: within(ONE, -1.0, 1.0),  # 1 - 2 Q(1)
        "0.68",
        "a box of ±λσ proved and one of ±2λσ integrated",
    ),
    _known(
        "overlap",
        "two normal outputs inside ±1 standard deviation",
        _two_weights,
        lambda: rows(ONE, [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [1.0] * 4),
        "0.46",  # (1 - 2 Q(1))²
        "masses of overlapping boxes added, or inclusion and exclusion ended at an odd depth",
    ),
    _known(
        "islands",
        "two safe intervals of one weight",
        _islands,
        lambda: within(ONE, 1.0, 2.0),  # 2 (Q(1) - Q(2))
        "0.27",
        "an empty intersection of boxes that became a box",
    ),
    _known(
        "quadrants",
        "two safe quadrants of two weights",
        _quadrants,
        lambda: positive(ONE),  # 2 Q(1/2)²
        "0.19",
        "masses added in each dimension and then multiplied",
    ),
    _known(
        "outside",
        "w x < 1 on [0, 1], unsafe from w = 1 on",
        lambda: _weight(0.5, 0.25),
        lambda: rows(box([0.0], [1.0]), [[-1.0]], [1.0]),  # Φ(2)
        "0.97",
        "an upper bound by a point outside of the region",
    ),
    _known(
        "slope",
        "a leaky ReLU of slope 0.3, 2²⁶ times",
        _slope,
        lambda: positive(ONE),  # Q(2)
        "0.03",
        "the slope of a leaky ReLU in float32",
    ),
    _known(
        "repeated-rows",
        "one output row, written three times",
        _weight,
        lambda: rows(ONE, [[1.0], [2.0], [1.0]], [1.0, 2.0, 1.0]),  # Φ(1)
        "0.84",
        "repeated rows charged, or multiplied, for an upper bound",
    ),
    _known(
        "mixture",
        "a mixture whose lighter component is unsafe",
        _mixture,
        lambda: rows(ONE, [[1.0]], [-1.0]),  # 3/4 Φ(4) + 1/4 Q(12)
        "0.74",
        "the heaviest component in the place of the mixture, or its first two moments",
    ),
    _known(
        "common",
        "a difference of weights that share their noise",
        _common,
        lambda: positive(point(1.0, -1.0)),  # Φ(1/√8)
        "0.63",
        "the weights' own variances without their covariance",
    ),
    _known(
        "kernel",
        "a convolution whose pixels share its kernel and bias",
        _kernel,
        lambda: positive(box([1.0, 0.5, 0.25, 0.25], [1.0, 0.5, 0.25, 0.25], (1, 2, 2))),
        "0.92",  # Φ(1.5 / √1.0625)
        "an own kernel and bias for every pixel",
    ),
    _known(
        "logit",
        "the mean softmax of two classes that are x + b apart, on an interval",
        _logit,
        lambda: keeps(box([0.5], [1.5]), 0, 2),  # E σ(1/2 + 2 g) and E σ(3/2 + 2 g)
        "0.55",
        "the softmax of the mean in the place of the mean softmax",
        SOFTMAX,
    ),
    _known(
        "far-safe",
        "ten standard deviations from failure",
        _weight,
        lambda: rows(ONE, [[1.0]], [10.0]),  # 1 - Q(10)
        "0.5",
        "a failure of 8e-24 that a difference of distribution functions rounds to 0",
    ),
    _known(
        "far-unsafe",
        "ten standard deviations from safety",
        _weight,
        lambda: rows(ONE, [[1.0]], [-10.0]),  # Q(10)
        "0.5",
        "a probability of 8e-24 that a difference of distribution functions rounds to 0",
    ),
)
