"""The form that laws are for: one random hidden layer of an activation f, then a linear output,
behind layers that are certain, if there are any.

    M = β + Σ_i v_i f(z_i + W_i·δ),   |δ_j| <= r_j,

with z_i ~ N(m_i, τ_i²) the pre-activation at the centre c of a box that holds what the hidden layer
reads, W_ij ~ N(W̄_ij, σ_ij²), and v_i
and β Gaussian: everything independent but z_i and W_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import torch
from torch import Tensor

from bnncert.bounds.linear import prefix
from bnncert.bounds.walk import known_boxes
from bnncert.model.activations import ACTIVATIONS, Activation, PReLU
from bnncert.model.box import Box
from bnncert.model.layers import Dense
from bnncert.model.moves import Flatten, Reshape, Shape
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.independent import Normal

MOVES = (Flatten, Reshape)
LEAST, MOST = 2.0**-120, 2.0**100  # of numbers: no product of a few is lost to underflow
WIDER, ROUNDED = 2.0**-20, 2.0**-40  # of a box's width, and of its ends
GRAIN = 2.0**-60
UNDERFLOW = 2.0**-499  # of a sum or a root of what was too small for a float, generously
OF_INPUTS = ("mean", "std", "size", "radius", "kappa")
OF_ROWS = ("v", "s", "v_size", "beta", "beta_std")


@dataclass(frozen=True, eq=False)
class Head:
    """The activation, and means and standard deviations: hidden layer [J, n] and [n], output [n, O]
    and [O]."""

    activation: Activation
    weight: Tensor
    weight_std: Tensor
    bias: Tensor
    bias_std: Tensor
    out: Tensor
    out_std: Tensor
    shift: Tensor
    shift_std: Tensor


@dataclass(frozen=True, eq=False)
class Margins:
    """Rows of one input over its box, neuron by neuron; or of several, of which the same inputs
    move: then all but weight and variance lead with a batch dimension.

    mean, std [n]: m and τ at the centre; v, s [R, n] and beta, beta_std [R]: the output's; radius
    [J]: of the inputs that move, and for these alone weight and variance [J, n], and kappa [J, n],
    κ_ij = σ_ij² c_j / τ_i²: w̄_ij = W̄_ij + κ_ij (z_i - m_i) follows z_i. size [n] and v_size [R, n]:
    |W̄|·|c| + |b|, and the same for v. beta is from below.
    """

    mean: Tensor
    std: Tensor
    size: Tensor
    v: Tensor
    s: Tensor
    v_size: Tensor
    beta: Tensor
    beta_std: Tensor
    radius: Tensor
    weight: Tensor
    variance: Tensor
    kappa: Tensor
    inputs: int

    @cached_property
    def spread(self) -> Tensor:
        """a_i² = Σ_j r_j² σ_ij², [n]"""
        squared: Tensor = self.radius**2 @ self.variance
        return squared

    def __getitem__(self, inputs: Tensor) -> Margins:
        """Of some inputs."""
        names = (*OF_INPUTS, *OF_ROWS)
        return replace(self, **{name: getattr(self, name)[inputs] for name in names})

    def alone(self, inputs: Tensor, rows: Tensor) -> Margins:
        """Of pairs [P] of an input and a row: P inputs of one row each."""
        own = {name: getattr(self, name)[inputs, rows].unsqueeze(1) for name in OF_ROWS}
        return replace(self[inputs], **own)

    def swept(self, weights: Tensor) -> Tensor:
        """Σ_j r_j |w_j| of weights [..., J, n], [..., n]"""
        return (self.radius.unsqueeze(-2) @ weights.abs()).squeeze(-2)

    @cached_property
    def turned(self) -> Tensor:
        """Σ_j r_j (|W̄_ij| + |κ_ij| τ_i), [n]: what moves z_i, within a deviation of it"""
        return self.swept(self.weight.abs() + self.kappa.abs() * self.std.unsqueeze(-2))

    @property
    def slack(self) -> float:
        """What roundings may come to, in units of the magnitudes that are summed."""
        return _slack(self.inputs + self.mean.shape[-1])


def _slack(terms: int) -> float:
    return 128 * (terms + 64) * UNIT


def has_form(network: Network, posterior: Normal) -> bool:
    """Whether the network ends in a dense layer, an activation and a dense output, and random
    weights are there alone."""
    found = _last_layers(network)
    if found is None:
        return False
    hidden, activation, last = (network.layers[k] for k in found)
    certain = [own for k, own in enumerate(network.split(posterior.std)) if k not in found]
    return (
        type(hidden) is type(last) is Dense
        and isinstance(activation, ACTIVATIONS)
        and bool(posterior.std.any())
        and not any(bool(part.any()) for own in certain for part in own)
    )


def _last_layers(network: Network) -> tuple[int, int, int] | None:
    """The last three layers but for moves, each of which reads the one before it."""
    found: list[int] = []
    node = len(network.layers)
    while len(found) < 3:
        if node == 0 or len(network.reads[node - 1]) > 1:
            return None
        if not isinstance(network.layers[node - 1], MOVES):
            found.append(node - 1)
        (node,) = network.reads[node - 1]
    return found[2], found[1], found[0]


def _form(network: Network) -> tuple[int, int, int]:
    """The places of the hidden layer, the activation and the output."""
    found = _last_layers(network)
    if found is None:
        raise TypeError("laws are for a dense layer, an activation and a dense layer")
    return found


def head(network: Network, posterior: Normal) -> Head:
    """The activation and the parameters of a network that has the form."""
    first, between, last = _form(network)
    activation = network.layers[between]
    if not isinstance(activation, ACTIVATIONS):
        raise TypeError(f"laws are for an activation between dense layers, not for {activation}")
    mean, std = network.split(posterior.mean), network.split(posterior.std)
    (weight, bias, weight_std, bias_std), (out, shift, out_std, shift_std) = (
        (mean[k][0], _bias(mean[k]), std[k][0], _bias(std[k])) for k in (first, last)
    )
    own = _by_neuron(activation, network.shape_before(between))
    return Head(own, weight, weight_std, bias, bias_std, out, out_std, shift, shift_std)


def _by_neuron(activation: Activation, shape: Shape) -> Activation:
    """With a slope for every neuron, where slopes are of a shape: here neurons stand in a row."""
    if not isinstance(activation, PReLU) or not activation.shape:
        return activation
    slopes = torch.tensor(activation.slopes, dtype=torch.float64).reshape(activation.shape)
    each = slopes.expand(shape).flatten().tolist()
    return PReLU(tuple(each), (len(each),))


def _node(network: Network) -> int:
    """The node that the hidden layer reads."""
    (node,) = network.reads[_form(network)[0]]
    return node


def has_trunk(network: Network) -> bool:
    """Whether the hidden layer reads something else than the input."""
    return _node(network) not in network.inputs


def read_box(network: Network, posterior: Normal, region: Region) -> Box:
    """A box [B, J] of what the hidden layer reads on the region: its own bounding box, or linear
    bounds of the certain layers before it."""
    if not has_trunk(network):
        return Box(region.box.lower.flatten(1), region.box.upper.flatten(1))
    known = read_of(network, prefix(network, posterior.mean, posterior.std, region).boxes)
    lower, upper = known.lower, known.upper
    # A checker whose roundings differ must find that it holds them. Multiples of a grain, so that
    # no centre and no width is too small to be squared.
    spare = WIDER * (upper - lower) + ROUNDED * (lower.abs() + upper.abs()) + GRAIN
    lower, upper = ((lower - spare) / GRAIN).floor(), ((upper + spare) / GRAIN).ceil()
    return Box(lower * GRAIN, upper * GRAIN)


def read_of(network: Network, boxes: Sequence[Box | None]) -> Box:
    """Of the boxes of the first nodes the one [B, J] of what the hidden layer reads."""
    (found,) = known_boxes([boxes[_node(network)]])
    return Box(found.lower.flatten(1), found.upper.flatten(1))


def read_at(network: Network, posterior: Normal, x: Tensor) -> Tensor:
    """What the hidden layer reads at points [B, *shape], [B, J]."""
    return network.values(posterior.mean, x)[_node(network)].flatten(1)


def _bias(parameters: tuple[Tensor, ...]) -> Tensor:
    weight = parameters[0]
    return parameters[1] if len(parameters) > 1 else torch.zeros_like(weight[0])


def margins(net: Head, lower: Tensor, upper: Tensor, rows: Tensor, offsets: Tensor) -> Margins:
    """Of flat ends [..., J] of boxes, rows [..., R, O] and offsets [..., R]."""
    center = (lower + upper) / 2
    radius = torch.maximum(upper - center, center - lower) * (1 + 4 * UNIT)
    return margins_about(net, center, radius, rows, offsets)


def margins_about(
    net: Head, center: Tensor, radius: Tensor, rows: Tensor, offsets: Tensor
) -> Margins:
    """Of inputs [..., J] that move by at most a radius [..., J]."""
    moving = (radius > 0).reshape(-1, radius.shape[-1])[0]  # of all centres the same
    squares = net.weight_std**2
    variance = center**2 @ squares + net.bias_std**2
    kappa = squares[moving] * center[..., moving, None] / variance.unsqueeze(-2)
    terms = center.shape[-1] + rows.shape[-1]
    beta_std = (rows**2 @ net.shift_std**2).sqrt()
    beta_size = rows.abs() @ net.shift.abs() + offsets.abs() + 12 * beta_std
    return Margins(
        mean=center @ net.weight + net.bias,
        std=variance.sqrt(),
        size=center.abs() @ net.weight.abs() + net.bias.abs(),
        v=rows @ net.out.mT,
        s=(rows**2 @ (net.out_std**2).mT).sqrt(),
        v_size=rows.abs() @ net.out.abs().mT,
        beta=rows @ net.shift + offsets - (_slack(terms + len(net.bias)) * beta_size + UNDERFLOW),
        beta_std=beta_std,
        radius=radius[..., moving],
        weight=net.weight[moving],
        variance=squares[moving],
        kappa=torch.where(variance.unsqueeze(-2) > 0, kappa, 0.0),
        inputs=terms,
    )


def in_scale(net: Head, lower: Tensor, upper: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Whether squares of all factors are floats, [B]; means, which are summed, may be smaller."""
    spreads = (net.weight_std, net.bias_std, net.out_std, net.shift_std)
    shared = (net.weight, net.bias, net.out, net.shift)
    factors = (*(x[None] for x in spreads), (lower + upper) / 2, upper - lower, rows)
    means = (*(x[None] for x in shared), offsets)
    found = [(x == 0) | (x.abs() >= LEAST) for x in factors]
    found += [x.abs() <= MOST for x in (*factors, *means)]
    return reduce(torch.logical_and, (x.flatten(1).all(-1) for x in found))
