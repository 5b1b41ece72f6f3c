"""The checker on splits at the kinks of clips: honest certificates are accepted, tampered ones are
not, and leaves that hold nothing are sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bnncert import Concentration, Network, Problem, certify, half_space, save_posterior
from bnncert.layers import Conv2d, Dense, Flatten, Hardtanh, LeakyReLU, MaxPool2d, ReLU, Residual
from bnncert.model.activations import Activation
from bnncert.model.network import mlp
from bnncert.model.specification import ball
from bnncert.posteriors import Normal
from bnncert_check import ACCEPT, ERROR, REJECT, Verdict, check_certificate, read_model
from open_problems import above_least, tight
from scenarios import correlated, vector

METHOD = Concentration(effort=2, nodes=60, precision=1e-5)
RESIDUAL = Residual((Dense(4, 4), Hardtanh(-0.5, 0.5), Dense(4, 4)))
NETWORKS = {
    "clips and ReLUs": ((3,), (Dense(3, 5), Hardtanh(), Dense(5, 4), LeakyReLU(0.1), Dense(4, 1))),
    "ReLUs and clips": ((3,), (Dense(3, 5), ReLU(), Dense(5, 4), Hardtanh(0, 1), Dense(4, 1))),
    "residual": ((3,), (Dense(3, 4), Hardtanh(0, 6), RESIDUAL, Hardtanh(0.2, 1), Dense(4, 1))),
    "convolution": (
        (1, 3, 3),
        (Conv2d(1, 3, 2), Hardtanh(0, 1), MaxPool2d(2, 1), Flatten(), Dense(3, 1)),
    ),
}


def refined(problem: Problem, folder: Path) -> tuple[list[Verdict], int]:
    """What the checker says of every input, and how many trees there are."""
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    model, found, trees = read_model(folder / "p.safetensors"), [], 0
    for result in certify(problem, METHOD):
        if result.certificate is not None:
            result.certificate.write(folder / "c.safetensors")
            found.append(check_certificate(folder / "c.safetensors", model))
            (entry,) = result.certificate.header["evidence"]["components"]
            trees += len(entry["lower"].get("trees", []))
    return found, trees


def all_accepted(problems: list[Problem], folder: Path) -> None:
    trees = 0
    for problem in problems:
        found, own = refined(problem, folder)
        assert [verdict.message for verdict in found if verdict.status != ACCEPT] == []
        trees += own
    assert trees


@pytest.mark.parametrize(
    "activation", [Hardtanh(), Hardtanh(0, 6), Hardtanh(0, 1), Hardtanh(-0.5, 0.25)], ids=str
)
def test_certificates_of_clips_are_accepted(activation: Activation, tmp_path: Path) -> None:
    sizes = [(2, 8, 1), (9, 6, 1), (9, 5, 4, 1)]
    some = [tight(seed, activation, sizes[seed % 3], [5e-4, 5e-3][seed % 2]) for seed in range(6)]
    all_accepted(some, tmp_path)


@pytest.mark.parametrize("name", NETWORKS)
def test_other_networks_are_accepted_too(name: str, tmp_path: Path) -> None:
    network = Network(*NETWORKS[name])
    all_accepted([above_least(network, seed, 2e-3) for seed in range(4)], tmp_path)


def test_correlated_posteriors_and_common_noise_are_accepted(tmp_path: Path) -> None:
    some = []
    for seed in range(4):
        problem = tight(seed, Hardtanh(-0.5, 0.5), (9, 6, 1), 1e-3)
        std = torch.full_like(problem.posterior.mean, 1e-3)
        std[-1] = 0.05
        common = Normal(problem.posterior.mean, std)
        some += [correlated(problem, 2 * seed)]
        some += [Problem(problem.network, common, problem.specification)]
    all_accepted(some, tmp_path)


def test_kinks_where_intervals_end_are_accepted(tmp_path: Path) -> None:
    """Weights and inputs of few digits: intervals end at kinks, and have them in the middle."""
    some = []
    for seed in range(12):
        problem = tight(seed, [Hardtanh(), Hardtanh(0, 1)][seed % 2], (9, 5, 4, 1))
        mean = (2 * problem.posterior.mean).round() / 2
        std = torch.zeros_like(mean)
        std[-1] = 1e-3
        region = ball((2 * problem.specification.region.center).round() / 2, 0.5)
        least = problem.network.forward(mean, region.center).min() - 1.0
        spec = half_space(region, vector(1.0), float(least))
        some.append(Problem(problem.network, Normal(mean, std), spec))
    all_accepted(some, tmp_path)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Verdict]:
    """The verdict on y = min(max(x, -1), 0.5) + min(max(-x, -1), 0.5) + 0.6 >= 0.1, after a change
    of its tensors."""
    folder = tmp_path_factory.mktemp("kinks")
    network = mlp(10, 2, 1, activation=Hardtanh(-1, 0.5))
    mean = torch.zeros(network.size, dtype=torch.float64)
    mean[:2] = vector(1.0, -1.0)
    mean[22:] = vector(1.0, 1.0, 0.6)
    region = ball(torch.zeros(1, 10, dtype=torch.float64), 2)
    problem = Problem(network, Normal(mean, mean * 0 + 1e-6), half_space(region, vector(1.0), 0.0))
    (result,) = certify(problem, METHOD)
    assert result.lower > 0.99
    save_posterior(folder / "p.safetensors", network, problem.posterior)
    result.certificate.write(folder / "c.safetensors")
    header = {"bnncert": json.dumps(result.certificate.header)}
    model = read_model(folder / "p.safetensors")

    def verdict(change: Callable[[dict[str, Any]], None]) -> Verdict:
        tensors = load_file(folder / "c.safetensors")
        own = {name.removeprefix("c0."): value for name, value in tensors.items()}
        change(own)
        save_file(
            {name: np.ascontiguousarray(own[name.removeprefix("c0.")]) for name in tensors},
            folder / "changed.safetensors",
            header,
        )
        return check_certificate(folder / "changed.safetensors", model)

    return verdict


def put(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(tensors: dict[str, Any]) -> None:
        tensors[name] = change(tensors[name])

    return apply


def with_leaves(paths: list[list[int]]) -> Callable[[dict[str, Any]], None]:
    """Other leaves, with neither multipliers nor slopes."""

    def apply(tensors: dict[str, Any]) -> None:
        tensors["tree0.paths"] = np.array(paths, np.int32)
        tensors["tree0.multipliers"] = np.zeros(tensors["tree0.paths"].shape, np.float32)
        tensors["tree0.slopes"] = np.zeros((len(paths), 4), np.float32)

    return apply


def split_again(tensors: dict[str, Any]) -> None:
    """A leaf where z >= high of a neuron, in two at the neuron's lower kink: one holds nothing."""
    paths = tensors["tree0.paths"]
    places = tensors["open"]
    for leaf, path in enumerate(paths.tolist()):
        for k in path:
            low = int(np.flatnonzero(places == places[k - 1] - 2)[0]) + 1 if k > 0 else 0
            if k > 0 and places[k - 1] >= 2 and low not in map(abs, path):
                _divide(tensors, leaf, low)
                return
    raise AssertionError("no leaf is beyond an upper kink alone")


def _divide(tensors: dict[str, Any], leaf: int, place: int) -> None:
    paths = tensors["tree0.paths"]
    depth = int((paths[leaf] != 0).sum())
    for name in ("paths", "multipliers"):
        found = tensors[f"tree0.{name}"]
        tensors[f"tree0.{name}"] = np.pad(found, ((0, 0), (0, 1)))
    for name in ("paths", "multipliers", "slopes"):
        found = tensors[f"tree0.{name}"]
        tensors[f"tree0.{name}"] = np.concatenate([found, found[leaf : leaf + 1]])
    tensors["tree0.paths"][leaf, depth] = place
    tensors["tree0.paths"][-1, depth] = -place


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], str, str]] = {
    "a kink beyond the second": (put("open", lambda o: o + 1), ERROR, "malformed"),
    "a negative kink": (put("open", lambda o: o - 1), ERROR, "malformed"),
    "a place listed twice": (put("open", lambda o: o // 2), ERROR, "malformed"),
    "a place split twice": (with_leaves([[1, 1], [1, -1], [-1, 0]]), ERROR, "malformed"),
    "a split beyond the list": (with_leaves([[5], [-5]]), ERROR, "malformed"),
    "what lies between two kinks": (with_leaves([[3], [-1]]), REJECT, "leaves-do-not-cover"),
    "two kinks at once": (with_leaves([[1], [-3]]), REJECT, "leaves-do-not-cover"),
    "one side": (with_leaves([[1]]), REJECT, "leaves-do-not-cover"),
    "no splits": (with_leaves([[0]]), REJECT, "probability-too-high"),
    "kinks in another order": (put("open", lambda o: o[::-1]), REJECT, "probability-too-high"),
    "all sides turned around": (put("tree0.paths", lambda p: -p), REJECT, "probability-too-high"),
    "large multipliers": (
        put("tree0.multipliers", lambda b: b + 100),
        REJECT,
        "probability-too-high",
    ),
    "slopes above 1": (put("tree0.slopes", lambda a: a + 1.5), REJECT, "slope-out-of-range"),
    "slopes below 0": (put("tree0.slopes", lambda a: a - 1.5), REJECT, "slope-out-of-range"),
    "a negative multiplier": (
        put("tree0.multipliers", lambda b: b - 1),
        REJECT,
        "multiplier-negative",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_leaves_are_rejected(name: str, checked: Callable[..., Verdict]) -> None:
    change, status, code = TAMPERED[name]
    verdict = checked(change)
    assert (verdict.status, verdict.code) == (status, code)


def test_the_untampered_certificate_is_accepted(checked: Callable[..., Verdict]) -> None:
    assert checked(lambda _: None).status == ACCEPT


def test_a_leaf_that_holds_nothing_is_allowed(checked: Callable[..., Verdict]) -> None:
    """z >= high and z <= low: what such a leaf is said to hold counts, and is nothing false."""
    assert checked(split_again).status == ACCEPT


def test_slopes_need_no_trust(checked: Callable[..., Verdict]) -> None:
    """Others make a bound worse, or not; of what is claimed nothing is lost to luck."""
    for slope in (0.0, 0.3, 1.0):
        verdict = checked(put("tree0.slopes", lambda a, slope=slope: 0 * a + slope))
        assert verdict.code in (None, "probability-too-high")


def test_places_of_one_kink_may_be_left_out(checked: Callable[..., Verdict]) -> None:
    """Then the lines that turn there are those of the whole region."""

    def upper_alone(tensors: dict[str, Any]) -> None:
        with_leaves([[1], [-1]])(tensors)
        tensors["open"] = tensors["open"][2:]
        tensors["tree0.slopes"] = tensors["tree0.slopes"][:, 2:]

    verdict = checked(upper_alone)
    assert (verdict.status, verdict.code) == (REJECT, "probability-too-high")
