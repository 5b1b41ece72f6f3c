"""Scores against what can be computed by hand, by torch.distributions or in closed form."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest
import torch
from scipy.stats import mannwhitneyu
from torch import Tensor
from torch.distributions import Categorical, kl_divergence
from torch.distributions import Normal as Law

from bnncert.errors import InputError
from bnncert.layers import Dense
from bnncert.model.network import Network, cnn, mlp
from bnncert.posteriors import Empirical, Laplace, LowRankNormal, Normal
from bnncert.posteriors.base import sample
from bnncert.train import BayesByBackprop, Scores, accuracy, score, scores
from bnncert.train.scores import (
    DRAWS,
    SEED,
    calibration_error,
    class_predictive,
    coverage,
    divergence,
    entropy,
    gaussian_nll,
    median_stds,
    separation,
)
from trainings import SMALL_CNN, blobs, pictures

RECIPE = BayesByBackprop(1)


def posterior_of(network: Network, std: float = 0.3) -> Normal:
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(network.size, generator=generator, dtype=torch.float64)
    return Normal(mean, torch.full_like(mean, std))


# Of classes


def test_calibration_error_by_hand() -> None:
    """Confidences 0.9, 0.9 (one right) and 0.6 (right): |1 - 1.8| / 3 + |1 - 0.6| / 3."""
    p = torch.tensor([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4]], dtype=torch.float64)
    assert calibration_error(p, torch.tensor([0, 0, 0])) == pytest.approx(1.2 / 3)


def test_errors_of_one_bin_cancel_and_of_two_do_not() -> None:
    sure = torch.tensor([[0.75, 0.25]] * 4, dtype=torch.float64)
    assert calibration_error(sure, torch.tensor([0, 0, 0, 1])) == pytest.approx(0)
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    assert calibration_error(p, torch.tensor([1, 0])) == pytest.approx((1 + 0.5) / 2)


def test_the_edges_of_the_bins() -> None:
    """Fifteen of them; an edge belongs to the bin below it, and 0 and 1 to the first and last."""
    p = torch.tensor([[2 / 3, 1 / 3], [2 / 3 - 0.01, 1 / 3 + 0.01], [2 / 3 + 0.01, 1 / 3 - 0.01]])
    y = torch.tensor([0, 1, 1])
    below, above = abs(1 - 2 / 3 - (2 / 3 - 0.01)), 2 / 3 + 0.01
    assert calibration_error(p.double(), y) == pytest.approx((below + above) / 3, abs=1e-6)
    assert calibration_error(torch.eye(2).double(), torch.tensor([0, 1])) == 0


@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_separation_is_the_rank_statistic_with_ties(decimals: int) -> None:
    generator = torch.Generator().manual_seed(decimals)
    known = torch.randn(70, generator=generator).round(decimals=decimals)
    other = (torch.randn(50, generator=generator) + 0.7).round(decimals=decimals)
    pairs = (other.unsqueeze(1) > known).double() + (other.unsqueeze(1) == known).double() / 2
    assert separation(known, other) == pytest.approx(float(pairs.mean()))
    statistic = mannwhitneyu(other.numpy(), known.numpy()).statistic
    assert separation(known, other) == pytest.approx(statistic / (70 * 50))


def test_separation_at_its_ends() -> None:
    low, high = torch.zeros(3), torch.ones(2)
    assert (separation(low, high), separation(high, low), separation(low, low)) == (1, 0, 0.5)


def drawn_outputs(network: Network, posterior: Normal, x: Tensor) -> Tensor:
    return network.forward(sample(posterior, DRAWS, SEED), x)  # [S, N, outputs]


def test_the_predictive_averages_probabilities() -> None:
    x, y = blobs()
    network = mlp(2, 5, 3)
    posterior = posterior_of(network)
    outputs = drawn_outputs(network, posterior, x)
    p = outputs.softmax(-1).mean(0)
    found = score(network, posterior, x, y, RECIPE, other=10 * x)
    assert found.examples == len(x)
    assert found.nll == pytest.approx(float(-p[torch.arange(len(y)), y].log().mean()), rel=1e-5)
    assert found.accuracy == accuracy(network, posterior.mean, x, y)
    assert found.drawn_accuracy == pytest.approx(float((outputs.argmax(-1) == y).double().mean()))
    assert found.calibration_error == pytest.approx(calibration_error(p, y), rel=1e-5)
    own, other = (
        Categorical(probs=drawn_outputs(network, posterior, at).softmax(-1).mean(0)).entropy()
        for at in (x, 10 * x)
    )
    assert torch.allclose(entropy(class_predictive(outputs)), own)
    assert found.auroc == pytest.approx(separation(own, other), abs=1e-3)
    assert (found.rmse, found.coverage) == (None, None)


def test_no_probability_underflows() -> None:
    """Networks that are sure of another class: -log p is the logits' difference, not infinite."""
    logits = torch.tensor([[[2000.0, 0.0]], [[2000.0, 0.0]]], dtype=torch.float64)
    log_p = class_predictive(logits)
    assert log_p.tolist() == [[0, -2000]]
    assert entropy(log_p).tolist() == [0]


def test_without_another_data_set_there_is_no_separation() -> None:
    x, y = pictures()
    assert score(SMALL_CNN, posterior_of(SMALL_CNN), x, y, RECIPE).auroc is None


def test_many_images_are_judged_a_part_at_a_time() -> None:
    """Copies of the same images have the same scores."""
    x, y = pictures(count=37)
    network = cnn((1, 6, 6), 3, [(4, 2)], [5])
    posterior = posterior_of(network)
    once = score(network, posterior, x, y, RECIPE)
    many = score(network, posterior, x.repeat(9, 1, 1, 1), y.repeat(9), RECIPE)
    assert many.examples == 9 * once.examples
    for name in ("nll", "accuracy", "drawn_accuracy", "calibration_error"):
        assert getattr(many, name) == pytest.approx(getattr(once, name), rel=1e-4)


# Of a regression


def test_the_nll_of_a_mixture_by_torch() -> None:
    generator = torch.Generator().manual_seed(3)
    drawn, y = (torch.randn(*n, generator=generator).double() for n in ((7, 20), (20,)))
    densities = Law(drawn, 0.4).log_prob(y).exp().mean(0)
    one = gaussian_nll(drawn.unsqueeze(-1), y.unsqueeze(-1), 0.4)
    assert one == pytest.approx(float(-densities.log().mean()))
    two = Law(drawn, 0.4).log_prob(y) + Law(2 * drawn, 0.4).log_prob(y)
    both = gaussian_nll(torch.stack([drawn, 2 * drawn], -1), torch.stack([y, y], -1), 0.4)
    assert both == pytest.approx(float(-two.exp().mean(0).log().mean()))
    assert gaussian_nll(drawn, y + 100, 0.4) > 10_000  # where the densities are 0 in float64


def test_coverage_of_one_network_is_two_standard_deviations() -> None:
    """|y| <= 1.96 noise."""
    y = torch.tensor([0.0, 1.95, -1.95, 1.97, -1.97], dtype=torch.float64) * 0.3
    assert coverage(torch.zeros(1, 5).double(), y, 0.3) == pytest.approx(3 / 5)


def test_a_linear_gaussian_model_is_covered_as_often_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """y = w x + noise under w ~ N(1, 0.5²): the predictive is N(x, 0.25 x² + noise²), its nll and
    coverage are known; few draws of one weight would not show them."""
    monkeypatch.setattr(scores, "DRAWS", 1000)
    count, noise = 4000, 0.3
    generator = torch.Generator().manual_seed(2)
    x, own, other = torch.randn(3, count, generator=generator, dtype=torch.float64)
    network = Network((1,), (Dense(1, 1, bias=False),))
    one = torch.ones(1).double()
    y = x + 0.5 * x * own + noise * other
    recipe = BayesByBackprop(1, noise_std=noise)
    found = score(network, Normal(one, one / 2), x.unsqueeze(1), y, recipe)
    std = (0.25 * x.square() + noise**2).sqrt()
    assert found.nll == pytest.approx(float(-Law(x, std).log_prob(y).mean()), abs=0.01)
    assert found.coverage == pytest.approx(0.95, abs=0.01)
    assert found.rmse == pytest.approx(float((y - x).square().mean().sqrt()), rel=1e-4)
    narrow = score(network, Normal(one, one / 100), x.unsqueeze(1), y, recipe)
    assert narrow.coverage is not None
    assert narrow.coverage < 0.85
    assert (found.accuracy, found.calibration_error, found.auroc) == (None, None, None)


def test_whole_numbers_are_targets_too() -> None:
    network = mlp(2, 1)
    found = score(network, posterior_of(network), *blobs(), BayesByBackprop(1, noise_std=1.0))
    assert found.rmse is not None


# Of the posterior alone


@pytest.mark.parametrize("prior", ["fixed", "fan-in"])
def test_the_divergence_by_torch(prior: str) -> None:
    network = mlp(4, 9, 2)
    posterior = posterior_of(network, 0.2)
    scales = torch.full_like(posterior.mean, 1.5)
    if prior == "fan-in":
        (first, _), _, (second, _) = network.split(scales)
        first /= 2
        second /= 3
    expected = kl_divergence(Law(*posterior.tensors().values()), Law(0.0, scales)).sum()
    recipe = BayesByBackprop(1, prior=prior, prior_std=1.5)
    assert divergence(network, posterior, recipe) == pytest.approx(float(expected), rel=1e-6)


def test_certain_weights_have_no_divergence() -> None:
    network = mlp(1, 1)
    mean, std = torch.tensor([[3.0, 5.0], [0.5, 0.0]]).double()
    expected = kl_divergence(Law(3.0, 0.5), Law(0.0, 1.0))
    assert divergence(network, Normal(mean, std), RECIPE) == pytest.approx(float(expected))


def test_median_stds_layer_by_layer() -> None:
    """Of the weights that are random: 1, 2, 6 of the first layer, none of the second, all alike of
    the third."""
    network = mlp(1, 2, 1, 1)
    std = torch.tensor([1.0, 2.0, 6.0, 0, 0, 0, 0, 0.5, 0.5], dtype=torch.float64)
    assert median_stds(network, Normal(torch.zeros_like(std), std)) == (2, 0, 0.5)
    factor = torch.zeros(9, 1).double()
    factor[7:] = 1.2
    correlated = LowRankNormal(torch.zeros_like(std), std, factor)
    assert median_stds(network, correlated) == pytest.approx((2, 0, 1.3))


@pytest.mark.parametrize("family", ["laplace", "empirical"])
def test_other_families_are_scored_without_divergence(family: str) -> None:
    network = mlp(2, 3)
    mean = posterior_of(network).mean
    made = Laplace(mean, mean.abs()) if family == "laplace" else Empirical(mean.unsqueeze(0))
    found = score(network, made, *blobs(), RECIPE)
    assert (found.kl, found.std) == (None, None)
    assert found.accuracy == accuracy(network, mean, *blobs())
    if family == "empirical":
        assert found.drawn_accuracy == found.accuracy


# What comes back


def test_scores_are_plain_json_and_the_same_again() -> None:
    network = mlp(2, 5, 3)
    first, again = (score(network, posterior_of(network), *blobs(), RECIPE) for _ in range(2))
    assert first == again
    read = json.loads(json.dumps(asdict(first), allow_nan=False))
    assert Scores(**read | {"std": tuple(read["std"])}) == first


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_scores_on_a_gpu() -> None:
    x, y = pictures()
    posterior = posterior_of(SMALL_CNN)
    here, there = (
        score(SMALL_CNN, posterior, x, y, RECIPE, other=1 - x, device=device)
        for device in ("cpu", "cuda")
    )
    assert there.nll == pytest.approx(here.nll, rel=1e-4)
    assert there.auroc == pytest.approx(here.auroc, abs=1e-2)
    assert there.kl == here.kl


def test_what_does_not_fit_is_refused() -> None:
    x, y = blobs()
    network = mlp(2, 3)
    with pytest.raises(InputError, match="labels must be integers from 0 to 2"):
        score(network, posterior_of(network), x, y.double(), RECIPE)
    with pytest.raises(InputError, match=r"targets have shape .*; give a target for each"):
        score(network, posterior_of(network), x, y, BayesByBackprop(1, noise_std=1.0))
    none = torch.zeros(network.size).double()
    huge = Normal(none + 2.0**400, none)
    with pytest.raises(InputError, match="outputs beyond float32"):
        score(network, huge, x, y, RECIPE)
    assert math.isfinite(score(network, posterior_of(network), x, y, RECIPE).nll)
