"""The joint law of pre-activations and output weights at a point, in Arb.

    y = c·output = b + Σ_i v_i t_i,   t_i = f(m_i + σ_i z_i);   unit 0 is b, with t = 1.

Given all z, y is Gaussian with variance tᵀ S t, S = Cov(v | z).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat

from bnncert_check.arithmetic import Array
from bnncert_check.layers import Activation
from bnncert_check.model import Posterior
from bnncert_check.network import Network
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Dense

MOST = 128  # neurons
FARTHEST = 2.0**60  # deviations, where they are no number or beyond it


@dataclass(frozen=True)
class Joint:
    """activation: f. mean, std [n]: of h. v [n + 1]: means of b and v; spread: their covariances;
    along [n + 1, n]: those with z; correlation [n, n]: of z; given: S."""

    activation: Activation
    mean: list[arb]
    std: list[arb]
    v: list[arb]
    spread: arb_mat
    along: arb_mat
    correlation: arb_mat
    given: arb_mat


@dataclass(frozen=True)
class Form:
    """The layers of a network that the theorem speaks of, and its noise."""

    hidden: Dense
    activation: Activation
    last: Dense
    posterior: Posterior


def require_form(network: Network, posterior: Posterior) -> Form:
    """A chain of two dense layers and between them f = lift + height tanh(rate z) in [-1, 1], rate
    at most 1."""
    if (
        posterior.family == "low-rank-normal"
        and len(network.layers) == 3
        and network.reads == tuple((k,) for k in range(3))
    ):
        hidden, between, last = network.layers
        if (
            isinstance(hidden, Dense)
            and isinstance(between, Activation)
            and isinstance(last, Dense)
            and between.kind in ("Tanh", "Sigmoid")
            and between.width <= MOST
        ):
            return Form(hidden, between, last, posterior)
    raise CannotCheck(
        "unsupported", "this is for one hidden layer of tanh or sigmoid with shared noise"
    )


@dataclass(frozen=True)
class Hidden:
    """Of the layer before the activation at a point, for any direction of the output. mean, std
    [n]: of h; shared [rank, n]: its share of the common noise; correlation [n, n]."""

    form: Form
    mean: list[arb]
    std: list[arb]
    shared: arb_mat
    correlation: arb_mat

    @property
    def activation(self) -> Activation:
        return self.form.activation


def at_point(form: Form, x: Array) -> Hidden:
    hidden, posterior, at = form.hidden, form.posterior, _column([*x.tolist(), 1.0])
    own = _forms(hidden.matrix(posterior.fields["std"]), at, squared=True)
    factors, rank = posterior.factors(hidden), posterior.fields["factor"].shape[1]
    shared = [_forms(factor, at) for factor in ([] if factors is None else factors)]
    covariance, along = _shared(shared, rank, hidden.outputs)
    _add_own(covariance, own)
    std = [_deviation(covariance[k, k]) for k in range(hidden.outputs)]
    mean = _forms(hidden.matrix(posterior.fields["mean"]), at)
    return Hidden(form, mean, std, along, _correlation(covariance, std))


def largest_deviation(form: Form, x: Array) -> float:
    """Of pre-activations at a point, about: what is paid for by it is computed later."""
    at, posterior = np.append(x, 1.0), form.posterior
    factors = posterior.factors(form.hidden)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = at**2 @ form.hidden.matrix(posterior.fields["std"]) ** 2
        for factor in [] if factors is None else factors:
            variance = variance + (at @ factor) ** 2
        return float(np.fmin(np.sqrt(variance.max()), FARTHEST))


def joint(hidden: Hidden, row: Array) -> Joint:
    """Of the direction c = row."""
    form, std, along = hidden.form, hidden.std, _column(row.tolist())
    last, posterior, n = form.last, form.posterior, len(std)
    v = _biased(_forms(last.matrix(posterior.fields["mean"]).T, along))
    own = _biased(_forms(last.matrix(posterior.fields["std"]).T, along, squared=True))
    factors, rank = posterior.factors(last), hidden.shared.nrows()
    shared = [_biased(_forms(f.T, along)) for f in ([] if factors is None else factors)]
    spread, loads = _shared(shared, rank, n + 1)
    _add_own(spread, own)
    both = loads.transpose() * hidden.shared
    units = range(n + 1)
    cross = arb_mat(
        [[both[i, j] / s if s > 0 else arb(0) for j, s in enumerate(std)] for i in units]
    )
    try:
        given = spread - cross * hidden.correlation.solve(cross.transpose())
    except ZeroDivisionError as error:
        raise CannotCheck("unsupported", "pre-activations determine each other") from error
    return Joint(form.activation, hidden.mean, std, v, spread, cross, hidden.correlation, given)


def _column(values: list[float]) -> arb_mat:
    return arb_mat([[arb(value)] for value in values])


def _forms(matrix: Array, at: arb_mat, squared: bool = False) -> list[arb]:
    """Σ_j a_j W_jk, or of squares, for every column k."""
    columns = arb_mat([[arb(value) for value in column] for column in matrix.T.tolist()])
    if squared:
        columns, at = _squares(columns), _squares(at)
    found = columns * at
    return [found[k, 0] for k in range(found.nrows())]


def _squares(matrix: arb_mat) -> arb_mat:
    return arb_mat([[value * value for value in row] for row in matrix.table()])


def _biased(values: list[arb]) -> list[arb]:
    """The output's bias, which stands last, first."""
    return [values[-1], *values[:-1]]


def _shared(rows: list[list[arb]], rank: int, width: int) -> tuple[arb_mat, arb_mat]:
    """The covariance by what weights share, and that [rank, width]: 0 where they share nothing."""
    entries = [value for row in rows for value in row]
    factor = arb_mat(rank, width, entries) if entries else arb_mat(rank, width)
    return factor.transpose() * factor, factor


def _add_own(covariance: arb_mat, own: list[arb]) -> None:
    for k, value in enumerate(own):
        covariance[k, k] += value


def _deviation(variance: arb) -> arb:
    """0 only where nothing is random."""
    if variance == 0:
        return arb(0)
    if not variance > 0:
        raise CannotCheck("unsupported", "a pre-activation's variance is not surely above 0")
    return variance.sqrt()


def _correlation(covariance: arb_mat, deviations: list[arb]) -> arb_mat:
    def entry(i: int, j: int) -> arb:
        if i == j:
            return arb(1)
        both = deviations[i] * deviations[j]
        return covariance[i, j] / both if both > 0 else arb(0)

    size = range(len(deviations))
    return arb_mat([[entry(i, j) for j in size] for i in size])


def floats(values: list[arb]) -> tuple[Array, Array]:
    """Nearest floats, and by how much they may be off."""
    found = np.array([float(value) for value in values])
    away = [_upper(abs(value - arb(x))) for value, x in zip(values, found.tolist(), strict=True)]
    return found, np.array(away)


def _upper(value: arb) -> float:
    return float(np.nextafter(float(value.upper()), np.inf))
