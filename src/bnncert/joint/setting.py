"""What the rows of a question are at a point, where one hidden layer of neurons is random.

    S_i = β_i + Σ_k v_ik f(m_k + τ_k g_k),    g_k standard normal,

all neurons independent; the v_ik of one neuron k are jointly Gaussian over rows i, and so are the
β_i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from bnncert.laws.cells import REACH
from bnncert.laws.head import Head
from bnncert.model.activations import Activation, PReLU, Sigmoid, Tanh
from bnncert.numerics.rounding import UNIT

ROUNDED, CURVED = 2.0**-44, 2.0**-43  # of f: relative to z, and of tanh by its exponentials


@dataclass(frozen=True, eq=False)
class Setting:
    """activation: f. mean, std [n]: m and τ. v [R, n] and beta [R]: means. rows [R, O], and
    variances of the output's parameters, out [n, O] and shift [O]: of these covariances are made.
    moved [n]: by how much f may differ from what it is here, in the mean, as x is known in a box
    alone, and by roundings. v_size [R, n] and beta_size [R]: magnitudes that v and β are sums of,
    of which rounded is what these may be off by.
    """

    activation: Activation
    mean: Tensor
    std: Tensor
    v: Tensor
    beta: Tensor
    rows: Tensor
    out: Tensor
    shift: Tensor
    moved: Tensor
    v_size: Tensor
    beta_size: Tensor

    @property
    def rounded(self) -> float:
        return _roundings(self.rows.shape[1])

    def part(self, chosen: Tensor) -> Setting:
        """Of some neurons."""
        activation = self.activation
        if isinstance(activation, PReLU) and activation.shape:
            slopes = tuple(activation.slopes[k] for k in chosen.tolist())
            activation = PReLU(slopes, (len(slopes),))
        return replace(
            self,
            activation=activation,
            mean=self.mean[chosen],
            std=self.std[chosen],
            v=self.v[:, chosen],
            out=self.out[chosen],
            moved=self.moved[chosen],
            v_size=self.v_size[:, chosen],
        )

    def covariances(self, of: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Of v, by neuron, and of β, of so many rows d: [d, d, n] and [d, d]."""
        own = self.rows[list(of)]
        products = own.unsqueeze(1) * own.unsqueeze(0)
        return products @ self.out.mT, products @ self.shift


def applies(activation: Activation) -> bool:
    """Whether f is affine between kinks, or known in the complex plane."""
    return activation.traits.pieces is not None or isinstance(activation, Tanh | Sigmoid)


def setting(net: Head, lower: Tensor, upper: Tensor, rows: Tensor, offsets: Tensor) -> Setting:
    """Where the hidden layer reads a point between lower and upper [J], which are equal or nearly
    so; rows [R, O] and offsets [R]."""
    x, radius = (lower + upper) / 2, (upper - lower) / 2
    squares = net.weight_std**2
    mean, std = x @ net.weight + net.bias, (x**2 @ squares + net.bias_std**2).sqrt()
    far = radius @ net.weight.abs() + (radius**2 @ squares).sqrt()
    far = far + _roundings(len(x)) * (x.abs() @ net.weight.abs() + net.bias.abs() + std)
    far = far + ROUNDED * (mean.abs() + REACH * std)
    curved = net.activation.traits.pieces is None
    return Setting(
        net.activation,
        mean,
        std,
        rows @ net.out.mT,
        rows @ net.shift + offsets,
        rows,
        net.out_std**2,
        net.shift_std**2,
        net.activation.traits.steepest * far + (CURVED if curved else 0.0),
        rows.abs() @ net.out.abs().mT,
        rows.abs() @ net.shift.abs() + offsets.abs(),
    )


def _roundings(terms: int) -> float:
    """Of a sum of so many products, and of what is made of it, in units of their magnitudes."""
    return 8 * (terms + 16) * UNIT
