"""Margins for training: the bounds that certificates prove, sound by themselves, with gradients."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import Concentration, certify
from bnncert.concentration import trace as trace_module
from bnncert.concentration.functional import Functional, Trace, local
from bnncert.concentration.margin import CHARGE, Weights, margins, threshold
from bnncert.concentration.slopes import evaluate
from bnncert.concentration.tails import probability, row_failures
from bnncert.concentration.trace import trace
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, ReLU
from bnncert.model.layers import JOINS
from bnncert.model.network import Network, Residual, cnn, mlp, residual
from bnncert.model.problem import Problem
from margins import BY_HAND, KINDS, layers_of, marginal_problem, margins_of
from scenarios import ACTIVATIONS, vector
from truth import assert_below_truth

THRESHOLDS = (1.5, 3.0, 4.5)
LOST = 0.01  # probability


def by_intervals(problem: Problem, t: float, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A certificate's trace if no neuron had rows of its own."""

    def neurons(traced: Trace, *_: object) -> tuple[Functional, None]:
        return local(traced, len(traced.steps) - 1), None

    monkeypatch.setattr(trace_module, "_neurons", neurons)
    monkeypatch.setattr(trace_module, "_of_vector", lambda traced: neurons(traced)[0])
    return trace(problem.network, problem.posterior, problem.specification.region, t)


# The bounds of certificates


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_the_chain_of_one_layer_rules(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows ±e_i: the functionals of every output and of its negative, or the ends of its
    interval."""
    for seed in range(16):
        problem = marginal_problem(kind, seed)
        last = len(problem.network.layers) - 1
        each = torch.eye(problem.network.outputs, dtype=torch.float64)
        for t in THRESHOLDS[::2]:
            traced = by_intervals(problem, t, monkeypatch)
            found = margins_of(problem, t, torch.cat([each, -each]).unsqueeze(0))
            if isinstance(problem.network.layers[last], (Dense, *JOINS)):
                known = local(traced, last)
            else:
                box = traced.boxes[-1]
                assert box is not None
                ends = torch.cat([box.lower, -box.upper], 1)
                known = Functional(ends, torch.zeros_like(ends))
            torch.testing.assert_close(found.value, known.value, rtol=1e-9, atol=1e-8)
            torch.testing.assert_close(found.lipschitz, known.lipschitz, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_a_last_layer(seed: int) -> None:
    """rows·(W h + b) as a layer with weights W rowsᵀ, whose variances are σ² (rows²)ᵀ."""
    generator = torch.Generator().manual_seed(seed)
    network, other = mlp(3, 5, 4), mlp(3, 5, 2)
    parts = network.split(torch.randn(network.size, generator=generator).double())
    stds = network.split(torch.rand(network.size, generator=generator).double())
    rows = torch.randn(1, 2, 4, generator=generator).double()
    lower = torch.randn(2, 3, generator=generator).double()
    weights: Weights = [(m, s if s else None) for m, s in zip(parts, stds, strict=True)]
    (mean, bias), (std, bias_std) = parts[-1], stds[-1]
    mixed = (mean @ rows[0].mT, bias @ rows[0].mT)
    noises = tuple((part.square() @ rows[0].mT.square()).sqrt() for part in (std, bias_std))
    found = margins(network, weights, lower, lower + 0.1, rows, 2.0)
    each = torch.eye(2, dtype=torch.float64).unsqueeze(0)
    known = margins(other, [*weights[:-1], (mixed, noises)], lower, lower + 0.1, each, 2.0)
    torch.testing.assert_close(found.value, known.value)
    torch.testing.assert_close(found.lipschitz, known.lipschitz)


TRAINED = {
    "mlp": mlp(6, 8, 3),
    "deep mlp": mlp(6, 8, 8, 3),
    "cnn": cnn((1, 6, 6), 3, [(2, 2), (3, 1)], [5]),
    "residual": residual((1, 6, 6), 3, [(2, 1), (2, 1), (3, 2)], [5]),
}


@pytest.mark.parametrize("name", TRAINED)
def test_training_and_certifying_do_not_drift_apart(name: str) -> None:
    """At the same threshold the certificate of a network that can be trained is better than its
    margins. Not by a theorem: rows through all layers can lose where the noise is wide and little
    is certified either way, hence LOST."""
    better = 0
    for seed in range(24):
        problem = marginal_problem(TRAINED[name], seed, fixed=seed % 2 > 0)
        spec = problem.specification
        for t in THRESHOLDS:
            traced = trace(problem.network, problem.posterior, spec.region, t)
            certified = probability(traced.charge, evaluate(traced, spec, {}))
            failures = row_failures(margins_of(problem, t)).sum(1)
            marginal = (1 - traced.charge - failures).clamp(0, 1)
            assert bool((certified >= marginal - LOST).all()), (seed, t)
            better += int((certified > marginal + 1e-3).sum())
    assert better > 0


@pytest.mark.parametrize("name", TRAINED)
def test_what_training_watches_is_what_certify_proves(name: str) -> None:
    """`certify` searches over thresholds; at effort 0 it has no less than the margins at theirs."""
    network = TRAINED[name]
    proved = 0
    for seed in range(8):
        problem = marginal_problem(network, seed, fixed=False)
        t = threshold(network, [bool(stds) for stds in network.split(problem.posterior.std)])
        failures = row_failures(margins_of(problem, t)).sum(1)
        marginal = (1 - CHARGE - failures).clamp(0, 1)
        for result, known in zip(certify(problem, Concentration(effort=0)), marginal, strict=True):
            assert result.lower >= float(known) - 1e-3, seed
            proved += float(known) > 0.5
    assert proved > 0


@pytest.mark.parametrize("kind", KINDS)
def test_of_all_networks_certificates_are_the_better_ones(kind: str) -> None:
    """An interval can be better than rows, after the output's activation or behind max pooling, but
    seldom."""
    gains = []
    for seed in range(40):
        problem = marginal_problem(kind, seed)
        spec = problem.specification
        traced = trace(problem.network, problem.posterior, spec.region, 4.0)
        certified = probability(traced.charge, evaluate(traced, spec, {}))
        failures = row_failures(margins_of(problem, 4.0)).sum(1)
        gains += (certified - (1 - traced.charge - failures).clamp(0, 1)).tolist()
    assert sum(gains) > 0
    assert sum(gain < -1e-3 for gain in gains) <= 0.06 * len(gains)


@pytest.mark.parametrize("seed", range(4))
def test_one_hidden_layer_has_the_intervals_of_a_certificate(seed: int) -> None:
    """There nothing is lost: the trace itself has these boxes."""
    problem = marginal_problem(mlp(3, 4, 2), seed)
    traced = trace(problem.network, problem.posterior, problem.specification.region, 3.0)
    box = traced.boxes[2]
    assert box is not None
    first = Network((3,), problem.network.layers[:2])
    each = torch.eye(4, dtype=torch.float64)
    ends = margins(
        first,
        layers_of(problem)[:2],
        problem.specification.region.box.lower,
        problem.specification.region.box.upper,
        torch.cat([each, -each]).unsqueeze(0),
        3.0,
    ).value
    torch.testing.assert_close(ends, torch.cat([box.lower, -box.upper], 1), rtol=1e-9, atol=1e-9)


# Soundness


def marginal_probability(problem: Problem, t: float) -> Tensor:
    """1 - 2 N Q(t) - Σ q, by the margins and the count of `threshold` alone."""
    random = [stds is not None for _, stds in layers_of(problem)]
    own = threshold(problem.network, random)
    sides = CHARGE / norm.sf(own) if own > 0 else 0.0
    return (1 - sides * norm.sf(t) - row_failures(margins_of(problem, t)).sum(1)).clamp(0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_never_above_brute_force(kind: str) -> None:
    positive = 0
    for seed in range(100, {"chain": 124, "graph": 124, "images": 106}.get(kind, 108)):
        problem = marginal_problem(kind, seed)
        lowers = torch.stack([marginal_probability(problem, t) for t in (1.0, 2.5, 4.0)])
        positive += int((lowers > 0.01).any(0).sum())
        if bool((lowers > 0).any()):
            assert_below_truth(problem, lowers.amax(0), seed)
    assert positive > 3


def test_one_weight_is_exact() -> None:
    """P(w x + b > 0 for x in 1 ± ε) where x keeps its sign: ε σ_w enters E|w| alone."""
    network = mlp(1, 1)
    rows = torch.ones(1, 1, 1, dtype=torch.float64)
    weights: Weights = [
        ((vector(2.0).reshape(1, 1), vector(1.0)), (vector(0.3).reshape(1, 1), vector(0.4)))
    ]
    found = margins(
        network, weights, vector(1.0).reshape(1, 1), vector(1.0).reshape(1, 1), rows, 3.0
    )
    assert float(found.value) == pytest.approx(3.0)
    assert float(found.lipschitz) == pytest.approx(0.5)
    wide = margins(
        network, weights, vector(0.9).reshape(1, 1), vector(1.1).reshape(1, 1), rows, 3.0
    )
    size = 0.3 * math.sqrt(2 / math.pi) * math.exp(-(4 / 0.18)) + 2 * math.erf(
        2 / 0.3 / math.sqrt(2)
    )
    assert float(wide.value) == pytest.approx(3 - 0.1 * size)
    assert float(wide.lipschitz) == pytest.approx(math.hypot(1.1 * 0.3, 0.4))


def test_two_layers_by_hand() -> None:
    """z = x, σ_z = 1/2 at t = 2: h in [0, 2] about 1; then 3 h - 1 has m = 3 - 1 - 3, L = 2 σ."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1)))
    one = torch.ones(1, 1, dtype=torch.float64)
    weights: Weights = [((one,), (one / 2,)), ((), None), ((3 * one, -one[0]), None)]
    rows = one.unsqueeze(0)
    found = margins(network, weights, one, one, rows, 2.0)
    assert (float(found.value), float(found.lipschitz)) == pytest.approx((-1.0, 0.0))
    up = margins(network, weights, one, one, -rows, 2.0)
    assert float(up.value) == pytest.approx(-5.0)
    random: Weights = [*weights[:2], ((3 * one, -one[0]), (one / 100, one[0]))]
    found = margins(network, random, one, one, rows, 2.0)
    assert float(found.value) == pytest.approx(-1.0)
    assert float(found.lipschitz) == pytest.approx(math.hypot(2 / 100, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_wider_boxes_noise_and_thresholds_never_help(kind: str) -> None:
    """m - τ L falls as anything widens."""
    for seed in range(12):
        problem = marginal_problem(kind, seed, fixed=False)
        weights, box, rows = (
            layers_of(problem),
            problem.specification.region.box,
            problem.specification.rows,
        )
        noisier = [(m, None if s is None else tuple(2 * p for p in s)) for m, s in weights]
        least = [
            found.value - 3 * found.lipschitz
            for found in (
                margins(problem.network, weights, box.lower, box.upper, rows, 3.0),
                margins(problem.network, weights, box.lower, box.upper, rows, 3.5),
                margins(problem.network, weights, box.lower - 0.1, box.upper + 0.1, rows, 3.0),
                margins(problem.network, noisier, box.lower, box.upper, rows, 3.0),
            )
        ]
        for other in least[1:]:
            assert bool((other <= least[0] + 1e-9).all()), seed


def test_without_noise_or_width_they_are_the_forward_pass() -> None:
    for kind in KINDS:
        problem = marginal_problem(kind, 3)
        network, posterior = problem.network, problem.posterior
        x = problem.specification.region.center
        weights: Weights = [(means, None) for means in network.split(posterior.mean)]
        found = margins(network, weights, x, x, problem.specification.rows, 4.0)
        known = problem.specification.margins(network.forward(posterior.mean, x))
        torch.testing.assert_close(found.value, known)
        assert float(found.lipschitz.max()) <= 1e-9


# Gradients


def leaves(weights: Weights) -> tuple[Weights, list[Tensor]]:
    made = [
        (
            tuple(m.clone().requires_grad_() for m in means),
            None if stds is None else tuple(s.clone().requires_grad_() for s in stds),
        )
        for means, stds in weights
    ]
    return made, [part for means, stds in made for part in (*means, *(stds or ()))]


def network_with(activation: object) -> Network:
    return Network(
        (1, 3, 3),
        (
            Conv2d(1, 2, 2, 1, 1),
            activation,
            Residual((Conv2d(2, 2, 1), activation)),
            AvgPool2d(2),
            Flatten(),
            Dense(8, 3),
            activation,
            Dense(3, 2, bias=False),
        ),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_gradients_are_right(activation: object) -> None:
    network = network_with(activation)
    generator = torch.Generator().manual_seed(2)
    weights = [
        (
            tuple(torch.randn(p.shape, generator=generator).double() for p in parts),
            tuple(0.1 * torch.rand(p.shape, generator=generator).double() + 0.01 for p in parts)
            or None,
        )
        for parts in network.split(torch.zeros(network.size))
    ]
    made, own = leaves(weights)
    x = torch.randn(2, 1, 3, 3, generator=generator).double()
    rows = torch.randn(2, 2, 2, generator=generator).double()

    def least(*_: Tensor) -> Tensor:
        found = margins(network, made, x - 0.05, x + 0.05, rows, 2.0)
        return found.value - 3 * found.lipschitz

    assert torch.autograd.gradcheck(least, own)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("std", [0.0, 1e-30, 1e-12, 1e-6, 10.0])
@pytest.mark.parametrize("width", [0.0, 0.1])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_gradients_are_finite_at_the_edges(
    dtype: torch.dtype, std: float, width: float, scale: float
) -> None:
    """No noise, black images, no radius, dead ReLUs, weights of 0, large weights."""
    for activation in (ReLU(), *ACTIVATIONS[3:]):
        network = network_with(activation)
        for bias in (0.0, -100.0):
            made, own = leaves(
                [
                    (
                        tuple(
                            (torch.ones(p.shape, dtype=dtype) * scale + (p.dim() == 1) * bias)
                            for p in parts
                        ),
                        tuple(torch.full(p.shape, std, dtype=dtype) for p in parts) or None,
                    )
                    for parts in network.split(torch.zeros(network.size))
                ]
            )
            x = torch.zeros(2, 1, 3, 3, dtype=dtype)
            rows = torch.tensor([[[1.0, -1.0]]], dtype=dtype)
            found = margins(network, made, x, x + width, rows, 4.0)
            least = found.value - 3.5 * found.lipschitz
            assert bool(least.isfinite().all())
            used = torch.autograd.grad(least.sum(), own, allow_unused=True)
            assert all(part is None or bool(part.isfinite().all()) for part in used)


# Arithmetic


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_float64_but_for_its_digits(kind: str) -> None:
    for seed in range(12):
        problem = marginal_problem(kind, seed)
        box, rows = problem.specification.region.box, problem.specification.rows
        found = margins(
            problem.network,
            layers_of(problem, dtype=torch.float32),
            box.lower.float(),
            box.upper.float(),
            rows.float(),
            3.0,
        )
        known = margins_of(problem, 3.0)
        assert found.value.dtype == found.lipschitz.dtype == torch.float32
        size = 1 + float(known.value.abs().max())
        assert float((found.value - known.value).abs().max()) < 1e-4 * size
        assert float((found.lipschitz - known.lipschitz).abs().max()) < 1e-4 * size


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu(kind: str) -> None:
    problem = marginal_problem(kind, 1)
    box, rows = problem.specification.region.box, problem.specification.rows
    weights = layers_of(problem, device="cuda")
    found = margins(problem.network, weights, box.lower.cuda(), box.upper.cuda(), rows.cuda(), 3.0)
    known = margins_of(problem, 3.0)
    assert found.value.device.type == "cuda"
    torch.testing.assert_close(found.value.cpu(), known.value)
    torch.testing.assert_close(found.lipschitz.cpu(), known.lipschitz)


def test_rows_may_be_those_of_all_inputs() -> None:
    for kind in KINDS:
        problem = marginal_problem(kind, 2)
        rows = problem.specification.rows[:1]
        once, each = (margins_of(problem, 3.0, r) for r in (rows, rows.expand(2, -1, -1)))
        torch.testing.assert_close(once.value, each.value)
        torch.testing.assert_close(once.lipschitz.expand_as(each.lipschitz), each.lipschitz)


# The threshold


@pytest.mark.parametrize(
    ("network", "random", "neurons"),
    [
        (mlp(5, 3), "all", 0),
        (mlp(5, 7, 3), "all", 7),
        (mlp(5, 7, 4, 3), "all", 11),
        (mlp(5, 7, 4, 3), "none", 0),
        (mlp(5, 7, 4, 3), "last", 0),
        (cnn((1, 8, 8), 3, [(2, 2), (3, 1)], [6]), "all", 2 * 16 + 3 * 16 + 6),
        (cnn((1, 8, 8), 3, [(2, 2), (3, 1)], [6]), "dense", 6),
        # the first convolution, the block's own first, the sum, the hidden layer
        (residual((1, 8, 8), 3, [(2, 2), (2, 1)], [6]), "all", 3 * 2 * 16 + 6),
        (residual((1, 8, 8), 3, [(2, 2), (2, 1)], [6]), "dense", 6),
        (Network((1, 4, 4), (Conv2d(1, 2, 3), AvgPool2d(2), Flatten(), Dense(2, 2))), "all", 8),
        (BY_HAND["sum at the output"], "all", 4),
        (BY_HAND["sum of sums at the output"], "all", 0),
        (BY_HAND["a term twice"], "all", 2),
        (BY_HAND["the input in the sum"], "all", 0),
        (BY_HAND["ends in an activation"], "all", 6),
        (BY_HAND["ends flat"], "all", 8 + 1),
        (BY_HAND["pools"], "all", 32),
    ],
)
def test_the_threshold_counts_noisy_hidden_sums(
    network: Network, random: str, neurons: int
) -> None:
    weighted = [k for k, layer in enumerate(network.layers) if isinstance(layer, Dense | Conv2d)]
    chosen = {
        "all": weighted,
        "none": [],
        "last": weighted[-1:],
        "dense": [k for k in weighted if isinstance(network.layers[k], Dense)],
    }[random]
    t = threshold(network, [k in chosen for k in range(len(network.layers))])
    if neurons == 0:
        assert t == 0
    else:
        assert 2 * neurons * norm.sf(t) == pytest.approx(CHARGE)


@pytest.mark.parametrize("kind", ["by hand", "chain", "convolutions"])
def test_a_certificate_charges_no_more(kind: str) -> None:
    """Where all weights are random: it leaves out what cannot fail, or does not matter."""
    for seed in range(30):
        problem = marginal_problem(kind, seed, fixed=False)
        t = threshold(problem.network, [stds is not None for _, stds in layers_of(problem)])
        traced = trace(problem.network, problem.posterior, problem.specification.region, t)
        assert bool((traced.charge <= CHARGE * (1 + 1e-9)).all())
