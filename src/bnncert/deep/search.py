"""Two hidden layers at a point: the exponential moment of every output row.

    P(M <= 0) <= E exp(-λM) = E_h exp(-λβ + λ²s_β²/2) Π_j G_j(m_j(h), T_j(h))

on the event that the first layer's activations h and every m_j, T_j stay between ends; each G_j has
a quadratic majorant there, and `products` bounds what is left. See docs/wide-two-layers.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from bnncert.deep.ends import Ends, Second, beyond, find
from bnncert.deep.majorants import Factors, Majorants, choose, lifted
from bnncert.deep.moments import Array
from bnncert.deep.products import Exponent, Inputs, bound
from bnncert.evidence.concentration import Proved
from bnncert.evidence.deep import Deep
from bnncert.model.layers import Dense, ReLU
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.posteriors.gaussian import Gaussian
from bnncert.posteriors.independent import Normal

LEVELS = (1e-5, 1e-4)  # that an end does not hold; the second where that may help
ENOUGH, HOPELESS = 0.1, 1.5
DEAD, STIFF = 6e-3, 0.25  # P(z > 0) below which a neuron may be cut off, and λ²s²T from which it is
CUT = 1e-4  # P(z > ζ) of others that are cut off
FIRST, STEP = 0.4, 1.45  # λ: of the Gaussian's, and from one try to the next
LEAST = 1e-3  # where that is not above 0
WILD = 1e5  # of tilts times caps
STEEPEST = 0.9  # λ²σ²T of what is not cut off
TRIES, PASSES, INNER = 6, 4, 2
PARTS = (1.0, 0.4)
DECIDED = 1e-3  # failure that is not worth the effort
ROUNDING = 2.0**-24  # of the failure, relative
LAYERS = (Dense, ReLU, Dense, ReLU, Dense)


@dataclass(frozen=True, eq=False)
class Row:
    """M = β + Σ v_j relu(z_j): means and variances of v [J] and of β."""

    weight: Array
    variance: Array
    offset: float
    offset_variance: float


@dataclass(frozen=True, eq=False)
class Setting:
    """What all rows share: ends, and ceilings ζ [J] of the second layer, infinite but for `capped`.

    tails [n, 3]: what shows them; charge: the probability that something of it does not hold.
    """

    known: Ends
    second: Second
    ceiling: Array
    capped: NDArray[np.int64]
    tails: Array
    charge: float


@dataclass(frozen=True, eq=False)
class Found:
    """A row's bound, in logarithms, and its choices."""

    log: float
    scale: float
    majorants: Majorants
    center: Array
    curvature: Array
    power: float


def improve(
    problem: Problem,
    posterior: Gaussian,
    proofs: Sequence[Proved],
    enough: float = 1.0,
) -> list[Proved]:
    """For every input the better of its proof and the bound here, where that speaks of it and the
    proof is not good enough."""
    if not isinstance(posterior, Normal) or not applies(problem.network):
        return list(proofs)
    region = problem.specification.region
    points = (region.box.lower == region.box.upper).flatten(1).all(1).tolist()
    better = list(proofs)
    for i, proof in enumerate(proofs):
        if points[i] and 1 - proof.bound >= DECIDED and proof.bound < enough:
            found = prove(problem[i : i + 1], posterior)
            better[i] = found if found is not None and found.bound > proof.bound else proof
    return better


def applies(network: Network) -> bool:
    """Whether this is a chain of two hidden ReLU layers."""
    chain = network.reads == tuple((k,) for k in range(len(network.layers)))
    return chain and tuple(type(layer) for layer in network.layers) == LAYERS


def prove(problem: Problem, posterior: Normal) -> Deep | None:
    """The bound for one input whose region is a point; None where it says nothing."""
    mean, variance, second, rows = _laws(problem, posterior)
    if not ((variance > 0).all() and (second.bias_variance > 0).all()):
        return None
    best: Deep | None = None
    for level in LEVELS:
        known = find(mean, variance, second, level)
        if not (np.isfinite(known.ends).all() and np.isfinite(known.tilts).all()):
            break
        setting = _setting(known, second, rows)
        found = [_search(setting, row) for row in rows]
        failure = sum(float(np.exp(min(one.log, 0.0))) for one in found)
        bounded = 1 - (setting.charge + failure) * (1 + ROUNDING)
        if bounded > (best.bound if best else 0.0):
            best = _evidence(bounded, setting, found)
        if not ENOUGH < failure < HOPELESS:
            break
    return best


def _laws(problem: Problem, posterior: Normal) -> tuple[Array, Array, Second, list[Row]]:
    """Of the first layer's z, the second layer, and the rows."""
    means, noise = (_matrices(problem.network, part) for part in (posterior.mean, posterior.std))
    x = problem.specification.region.box.lower.double().cpu().numpy().reshape(-1)
    (w0, b0), (w1, b1), (w2, b2) = means
    (s0, t0), (s1, t1), (s2, t2) = ((w**2, b**2) for w, b in noise)
    rows = problem.specification.rows[0].double().cpu().numpy()
    offsets = problem.specification.offsets[0].double().cpu().numpy()
    found = [
        Row(w2 @ row, s2 @ row**2, float(b2 @ row + offset), float(t2 @ row**2))
        for row, offset in zip(rows, offsets, strict=True)
    ]
    return x @ w0 + b0, x**2 @ s0 + t0, Second(w1.T, s1.T, b1, t1), found


def _matrices(network: Network, flat: Tensor) -> list[tuple[Array, Array]]:
    """Weights and biases of the dense layers, a bias of zeros where there is none."""
    found = []
    for layer, parts in zip(network.layers, network.split(flat), strict=True):
        if isinstance(layer, Dense):
            arrays = [part.double().cpu().numpy() for part in parts]
            found.append((arrays[0], arrays[1] if layer.bias else np.zeros(layer.outputs)))
    return found


def _setting(known: Ends, second: Second, rows: list[Row]) -> Setting:
    """Cut off the neurons whose squared output weights would outgrow their own tails."""
    typical = STEP * float(np.median([_first_scale(known.inputs, second, row) for row in rows]))
    loudest = np.max([row.variance for row in rows], axis=0) * typical**2 * known.ends[:, 3]
    alive, dead = beyond(known, second, np.zeros_like(second.bias))
    off = (alive < DEAD) & (loudest > STIFF)
    about = second.about(*_plain(known.inputs))
    high = about.mean + 4.5 * np.sqrt(about.variance + about.spread)
    cut = ~off & (loudest > 2 * STIFF)
    ceiling = np.where(off, 0.0, np.where(cut, np.maximum(high, 0), np.inf))
    over, shown = beyond(known, second, np.where(cut, ceiling, 0.0))
    charge = float(alive[off].sum() + over[cut].sum())
    capped = np.flatnonzero(off | cut).astype(np.int64)
    pick = [
        np.where(off, getattr(dead, n), getattr(shown, n)) for n in ("level", "slope", "spread")
    ]
    tails = np.stack(pick, 1)[capped]
    return Setting(known, second, ceiling, capped, tails, known.charge + charge)


def _plain(inputs: Inputs) -> tuple[Array, Array]:
    """Mean and covariance of h."""
    zero = np.zeros_like(inputs.mean)
    mean, variance = inputs.tilted(zero, zero)
    return mean, np.diag(variance)


def _first_scale(inputs: Inputs, second: Second, row: Row) -> float:
    """A part of λ = E M / Var M, which a Gaussian row would want."""
    mean, covariance = _plain(inputs)
    about = second.about(mean, covariance)
    deviation = np.sqrt(about.spread)
    alive = ndtr(about.mean / np.sqrt(about.spread + about.variance))
    height = np.exp(-((about.mean / deviation) ** 2) / 2) * deviation / np.sqrt(2 * np.pi)
    output = alive * about.mean + height
    own = (row.weight**2 + row.variance) * alive * about.spread
    shared = second.weight.T @ (row.weight * alive)
    variance = own.sum() + shared @ covariance @ shared + row.offset_variance
    expected = float(row.weight @ output + row.offset)
    return FIRST * expected / float(variance) if expected > 0 and variance > 0 else LEAST


def _search(setting: Setting, row: Row) -> Found:
    """The best λ found by steps up, or else down, from a first guess."""
    start = _at(setting, row, _first_scale(setting.known.inputs, setting.second, row), None)
    best = _along(setting, row, start, STEP) if start.log < 0 else start
    if best is start:
        best = _along(setting, row, start, 1 / STEP)
    return _with_levels(setting, row, best)


def _along(setting: Setting, row: Row, start: Found, ratio: float) -> Found:
    """The best of λ that grow, or shrink, until they get worse; as long as they say nothing, on."""
    best, scale = start, start.scale
    for _ in range(TRIES):
        scale *= ratio
        found = _at(setting, row, scale, best if best.log < 0 else None)
        if found.log < best.log:
            best = found
        elif best.log < 0:
            break
    return best


def _at(setting: Setting, row: Row, scale: float, start: Found | None) -> Found:
    """The bound with λ = scale: majorants are chosen where the tilted law is, and tilt it."""
    inputs, second = setting.known.inputs, setting.second
    factors = _factors(setting, row, scale)
    best = Found(np.inf, scale, _nothing(len(second.bias)), *_still(inputs))
    if (factors.c * setting.known.ends[:, 3] > STEEPEST).any():
        return best
    mean, covariance = _plain(inputs)
    if start is not None:
        mean, covariance = _tilt(inputs, second, start.majorants, start.center)
    own = -scale * row.offset + scale**2 * row.offset_variance / 2
    for _ in range(PASSES):
        new = choose(factors, setting.known.ends, second.about(mean, covariance))
        tries = [
            _value(setting, best.majorants.towards(new, part), mean)
            for part in PARTS[: 1 if best.log == np.inf else None]
        ]
        found = min(tries, key=lambda one: one.log)
        if not found.log + own < best.log:
            break
        best = replace(found, log=found.log + own, scale=scale)
        mean, covariance = _tilt(inputs, second, best.majorants, best.center)
    return best


def _value(setting: Setting, chosen: Majorants, mean: Array) -> Found:
    """The bound with these majorants, at the mean they tilt h to."""
    inputs, second = setting.known.inputs, setting.second
    nothing = Found(np.inf, 0.0, chosen, *_still(inputs))
    for _ in range(INNER):
        if _is_wild(inputs, _exponent(second, chosen, mean)[1]):
            return nothing
        mean, _ = _tilt(inputs, second, chosen, mean)
    level, exponent = _exponent(second, chosen, mean)
    if _is_wild(inputs, exponent):
        return nothing
    found = bound(inputs, exponent)
    return Found(level + found.log, 0.0, chosen, mean, found.curvature, found.power)


def _is_wild(inputs: Inputs, exponent: Exponent) -> bool:
    """Whether h is tilted so far that differences of moments say nothing of its mean."""
    return not (np.abs(exponent.linear) * inputs.cap < WILD).all()


def _with_levels(setting: Setting, row: Row, found: Found) -> Found:
    """With majorants that are lifted to be above their factors."""
    factors = _factors(setting, row, found.scale)
    high = lifted(factors, setting.known.ends, found.majorants)
    more = float((high.level - found.majorants.level).sum())
    return replace(found, log=found.log + more, majorants=high)


def _nothing(size: int) -> Majorants:
    return Majorants(*(np.zeros(size) for _ in range(4)))


def _still(inputs: Inputs) -> tuple[Array, Array, float]:
    return np.zeros_like(inputs.mean), np.zeros_like(inputs.mean), 1.0


def _factors(setting: Setting, row: Row, scale: float) -> Factors:
    """Where z <= ζ, z² <= ζz."""
    square = scale**2 * row.variance
    cut = np.isfinite(setting.ceiling)
    ceiling = np.where(cut, setting.ceiling, 0.0)
    b = -scale * row.weight + np.where(cut, square * ceiling / 2, 0.0)
    return Factors(b, np.where(cut, 0.0, square), setting.ceiling)


def _exponent(second: Second, chosen: Majorants, center: Array) -> tuple[float, Exponent]:
    """Σ_j of the majorants as a function of h, about h⁰ = center."""
    m = second.bias + second.weight @ center
    level = chosen.level + chosen.slope * m + chosen.bend * m**2 / 2
    linear = (chosen.slope + chosen.bend * m) @ second.weight
    coupling = (second.weight.T * chosen.bend) @ second.weight
    square = chosen.spread @ second.variance
    constant = float((level + chosen.spread * second.bias_variance / 2).sum())
    return constant, Exponent(linear, square, coupling, center)


def _tilt(inputs: Inputs, second: Second, chosen: Majorants, center: Array) -> tuple[Array, Array]:
    """Mean and covariance of h under the majorants' tilt, nearly: a step of Newton's method."""
    _, exponent = _exponent(second, chosen, center)
    mean, variance = inputs.tilted(exponent.linear, exponent.square)
    moved = np.eye(len(mean)) - variance[:, None] * exponent.coupling
    root = np.sqrt(variance)
    if np.linalg.eigvalsh(root[:, None] * exponent.coupling * root)[-1] > 0.95:
        return mean, np.diag(variance)
    covariance = np.linalg.solve(moved, np.diag(variance))
    step = np.linalg.solve(moved, mean - center)
    return np.clip(center + 0.7 * step, 0, inputs.cap), (covariance + covariance.T) / 2


def _evidence(bounded: float, setting: Setting, found: list[Found]) -> Deep:
    known = setting.known
    majorants = [
        np.stack([m.level, m.slope, m.spread, m.bend], -1) for m in (one.majorants for one in found)
    ]
    scales = [one.scale if one.log < 0 else 0.0 for one in found]
    return Deep(
        bounded,
        _tensor(known.inputs.cap),
        _tensor(known.ends),
        _tensor(known.tilts),
        torch.tensor(setting.capped, dtype=torch.int32),
        _tensor(setting.ceiling[setting.capped]),
        _tensor(setting.tails),
        _tensor(scales),
        _tensor(majorants),
        _tensor([one.center for one in found]),
        _tensor([one.curvature for one in found]),
        _tensor([one.power for one in found]),
    )


def _tensor(values: object) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64))
