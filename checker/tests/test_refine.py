"""The checker on branch and bound: its leaves, their cover, multipliers and common noise, and what
tampering does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bnncert import (
    Concentration,
    Network,
    Problem,
    Results,
    ball,
    certify,
    class_robust,
    save_posterior,
)
from bnncert.evidence.certificate import Certificate
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, LeakyReLU, MaxPool2d, ReLU, Tanh
from bnncert.posteriors import Mixture, Normal
from bnncert_check import ACCEPT, ERROR, REJECT, Verdict, check_certificate, read_model
from bnncert_check.splits import covers
from open_problems import open_problem, regression, shared_noise
from scenarios import correlated, gaussian, uniform

NODES = 40


def verdicts(folder: Path, problem: Problem) -> tuple[list[Verdict], list[dict[str, Any]]]:
    """What the checker says of effort 2 on every input, and the trees in the certificates."""
    return of_results(folder, problem, refined_results(problem, NODES))


def refined_results(problem: Problem, nodes: int) -> Results:
    return certify(problem, Concentration(effort=2, upper=True, nodes=nodes, precision=1e-5))


def of_results(
    folder: Path, problem: Problem, results: Results
) -> tuple[list[Verdict], list[dict[str, Any]]]:
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    model, found, trees = read_model(folder / "p.safetensors"), [], []
    for i, result in enumerate(results):
        if result.certificate is not None:
            result.certificate.write(folder / f"{i}.safetensors")
            found.append(check_certificate(folder / f"{i}.safetensors", model))
            entries = result.certificate.header["evidence"]["components"]
            trees += [tree for entry in entries for tree in entry["lower"].get("trees", [])]
    return found, trees


@pytest.mark.parametrize("sizes", [(3, 8, 3), (2, 4, 4, 2), (9, 3, 3, 3, 2)])
def test_certificates_of_refinement_are_accepted(sizes: tuple[int, ...], tmp_path: Path) -> None:
    trees = 0
    for seed in range(16 if len(sizes) == 3 else 6):
        found, entries = verdicts(
            tmp_path, open_problem(seed, sizes, std=[0.005, 0.02, 0.05, 0.1][seed % 4])
        )
        assert [verdict.message for verdict in found if verdict.status != ACCEPT] == []
        trees += len(entries)
    assert trees


@pytest.mark.parametrize("sizes", [(3, 8, 2), (3, 6, 4, 2)])
def test_common_noise_is_accepted(sizes: tuple[int, ...], tmp_path: Path) -> None:
    common = 0
    for seed in range(4):
        found, entries = verdicts(tmp_path, shared_noise(seed, sizes))
        assert [verdict.message for verdict in found if verdict.status != ACCEPT] == []
        common += sum(tree["scale"] is not None for tree in entries)
    assert common


def shaped(
    layers: tuple[Any, ...], shape: tuple[int, ...], seed: int, std: float = 0.01
) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    network = Network(shape, layers)
    mean = 0.8 * gaussian(network.size, generator=generator)
    x = uniform(3, *shape, generator=generator)
    spec = class_robust(
        ball(x, 0.15 if len(shape) > 1 else 0.06),
        network.forward(mean, x).argmax(-1),
        network.outputs,
    )
    return Problem(network, Normal(mean, std * uniform(network.size, generator=generator)), spec)


CONVOLUTION = (
    Conv2d(1, 3, (2, 2)),
    ReLU(),
    MaxPool2d((2, 2)),
    Flatten(),
    Dense(3, 4),
    LeakyReLU(0.2),
    Dense(4, 2),
)
POOLS = (
    Conv2d(1, 2, (2, 2)),
    Tanh(),
    MaxPool2d((1, 1)),
    AvgPool2d((2, 2)),
    ReLU(),
    Flatten(),
    Dense(2, 2),
)
MIXED = (Dense(9, 6), Tanh(), Dense(6, 6), ReLU(), Dense(6, 2))


@pytest.mark.parametrize(
    ("layers", "shape"),
    [(CONVOLUTION, (1, 3, 3)), (POOLS, (1, 3, 3)), (MIXED, (9,))],
    ids=["convolution", "pools", "mixed"],
)
def test_other_layers_are_accepted_too(
    layers: tuple[Any, ...], shape: tuple[int, ...], tmp_path: Path
) -> None:
    trees = 0
    for seed in range(12):
        found, entries = verdicts(tmp_path, shaped(layers, shape, seed))
        assert [verdict.message for verdict in found if verdict.status != ACCEPT] == []
        trees += len(entries)
    assert trees


def test_mixtures_and_correlated_posteriors_are_accepted(tmp_path: Path) -> None:
    trees = 0
    for seed in range(4):
        problem = open_problem(seed, (3, 6, 3), std=0.03)
        other = Normal(1.02 * problem.posterior.mean, problem.posterior.std)
        mixture = Problem(
            problem.network, Mixture((0.4, 0.6), (problem.posterior, other)), problem.specification
        )
        for asked in (mixture, correlated(problem, 2 * seed)):
            found, entries = verdicts(tmp_path, asked)
            assert [verdict.message for verdict in found if verdict.status != ACCEPT] == []
            trees += len(entries)
    assert trees


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_parts_of_a_region_are_accepted_and_tampered_cuts_are_not(
    norm: str, tmp_path: Path
) -> None:
    parts, rejected = 0, 0
    for seed in range(8):
        problem = regression(seed, Tanh(), [0.005, 0.1][seed % 2], norm)
        results = refined_results(problem, 30)
        found, _ = of_results(tmp_path, problem, results)
        assert [verdict.message for verdict in found if verdict.status != ACCEPT] == []
        model = read_model(tmp_path / "p.safetensors")
        for result in results:
            lower = (
                result.certificate
                and result.certificate.header["evidence"]["components"][0]["lower"]
            )
            if not lower or "at" not in lower:
                continue
            parts += 1
            entry = dict(lower)
            changes = (
                {"at": (9.0).hex()},
                {"at": (-9.0).hex()},
                {"at": "nan"},
                {"dimension": 2},
                {"more": 1},
            )
            for change in (*changes, {"below": entry["above"]}):
                lower |= change
                result.certificate.write(tmp_path / "c.safetensors")
                verdict = check_certificate(tmp_path / "c.safetensors", model)
                assert verdict.status != ACCEPT or "below" in change
                rejected += verdict.code == "region-empty"
                lower.clear()
                lower |= entry
    assert rejected >= 2 * parts > 0


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([[]], True),
        ([[0]], True),
        ([[1], [-1]], True),
        ([[1, 0], [-1, 2], [-1, -2]], True),
        ([[-1, -2], [1, 3], [-1, 2], [1, -3]], True),
        (np.zeros((0, 0)), False),
        ([[], []], False),
        ([[1]], False),
        ([[1], [1]], False),
        ([[1], [-1], [-1]], False),
        ([[1], [-2]], False),
        ([[1, 0], [-1, 2]], False),
        ([[1, 2], [1, -2]], False),
        ([[0, 1], [0, -1]], False),
        ([[1, 0], [-1, 0], [0, 0]], False),
        ([[0, 1]], False),
    ],
)
def test_covers_by_hand(paths: Any, expected: bool) -> None:
    found = np.array(paths, np.int64)
    assert covers(found.reshape(len(found), -1) if found.size else found) is expected


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Verdict]:
    """The verdict on a certificate with a tree, after a change of its tensors and of its entry."""
    folder = tmp_path_factory.mktemp("refined")
    for seed in range(200):
        problem = open_problem(seed, (3, 8, 3), std=0.03, batch=2)
        for result in certify(problem, Concentration(effort=2, nodes=NODES)):
            entry = (
                result.certificate
                and result.certificate.header["evidence"]["components"][0]["lower"]
            )
            trees = entry["trees"] if entry and "trees" in entry else []
            sums = [t["row"] for t in trees if t["scale"] is None]
            if sums and len(result.certificate.tensors[f"c0.tree{sums[0]}.paths"]) > 4:
                break
        else:
            continue
        break
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    model, row = read_model(folder / "p.safetensors"), sums[0]
    result.certificate.write(folder / "c.safetensors")
    original, header = load_file(folder / "c.safetensors"), result.certificate.header

    def checked(
        change: Callable[[dict[str, Any], str], None] | None = None, entry: Any = None
    ) -> Verdict:
        tensors = {name: value.copy() for name, value in original.items()}
        told = json.loads(json.dumps(header))
        if change is not None:
            change(tensors, f"c0.tree{row}.")
        if entry is not None:
            proof = told["evidence"]["components"][0]["lower"]
            proof["trees"] = [entry(tree) for tree in proof["trees"]]
        save_file(tensors, folder / "changed.safetensors", {"bnncert": json.dumps(told)})
        return check_certificate(folder / "changed.safetensors", model)

    return checked


def put(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any], str], None]:
    def apply(tensors: dict[str, Any], prefix: str) -> None:
        where = name if name in tensors else prefix + name
        tensors[where] = np.ascontiguousarray(change(tensors[where]))

    return apply


def without_leaf(tensors: dict[str, Any], prefix: str) -> None:
    for name in ("paths", "multipliers", "slopes"):
        tensors[prefix + name] = np.ascontiguousarray(tensors[prefix + name][1:])


def root_alone(tensors: dict[str, Any], prefix: str) -> None:
    for name in ("paths", "multipliers"):
        tensors[prefix + name] = np.ascontiguousarray(tensors[prefix + name][:1, :0])
    tensors[prefix + "slopes"] = np.ascontiguousarray(tensors[prefix + "slopes"][:1])


def twice(tensors: dict[str, Any], prefix: str) -> None:
    for name in ("paths", "multipliers", "slopes"):
        value = tensors[prefix + name]
        tensors[prefix + name] = np.concatenate([value, value[:1]])


TAMPERED: dict[str, tuple[Callable[[dict[str, Any], str], None], str, str]] = {
    "a leaf is left out": (without_leaf, REJECT, "leaves-do-not-cover"),
    "a leaf is there twice": (twice, REJECT, "leaves-do-not-cover"),
    "one sign turned around": (
        put("paths", lambda p: np.concatenate([-p[:1], p[1:]])),
        REJECT,
        "leaves-do-not-cover",
    ),
    "another neuron": (
        put("paths", lambda p: np.concatenate([p[:1] % 3 + 1, p[1:]])),
        REJECT,
        "leaves-do-not-cover",
    ),
    "a negative multiplier": (put("multipliers", lambda b: b - 1), REJECT, "multiplier-negative"),
    "a slope above 1": (put("slopes", lambda a: a + 1), REJECT, "slope-out-of-range"),
    "a slope below 0": (put("slopes", lambda a: a - 1), REJECT, "slope-out-of-range"),
    "no splits": (root_alone, REJECT, "probability-too-high"),
    "large multipliers": (put("multipliers", lambda b: b + 100), REJECT, "probability-too-high"),
    "all signs turned around": (put("paths", lambda p: -p), REJECT, "probability-too-high"),
    "neurons in another order": (put("c0.open", lambda o: o[::-1]), REJECT, "probability-too-high"),
    "a neuron that does not exist": (put("c0.open", lambda o: o + 1000), ERROR, "malformed"),
    "a neuron of a negative number": (put("c0.open", lambda o: o - 1000), ERROR, "malformed"),
    "a neuron twice": (put("c0.open", lambda o: 0 * o), ERROR, "malformed"),
    "a split beyond the list": (put("paths", lambda p: 1000 * p), ERROR, "malformed"),
    "multipliers of another shape": (put("multipliers", lambda b: b[:, 1:]), ERROR, "malformed"),
    "slopes of another shape": (put("slopes", lambda a: a[:, 1:]), ERROR, "malformed"),
    "multipliers that are no numbers": (
        put("multipliers", lambda b: b * np.nan),
        ERROR,
        "malformed",
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_leaves_are_rejected(name: str, refined: Callable[..., Verdict]) -> None:
    change, status, code = TAMPERED[name]
    verdict = refined(change)
    assert (verdict.status, verdict.code) == (status, code)


def test_the_untampered_certificate_is_accepted(refined: Callable[..., Verdict]) -> None:
    assert refined().status == ACCEPT


@pytest.mark.parametrize(
    ("entry", "status", "code"),
    [
        (lambda tree: tree | {"row": 99}, ERROR, "malformed"),
        (lambda tree: tree | {"row": "0"}, ERROR, "malformed"),
        (lambda tree: tree | {"scale": (-1.0).hex()}, REJECT, "threshold-not-positive"),
        (lambda tree: tree | {"scale": "inf"}, ERROR, "malformed"),
        (lambda tree: tree | {"more": 1}, ERROR, "malformed"),
        (lambda tree: tree | {"scale": (1.0).hex()}, ERROR, "malformed"),
        (lambda tree: {"row": tree["row"]}, ERROR, "malformed"),
    ],
)
def test_tampered_entries_are_rejected(
    entry: Any, status: str, code: str, refined: Callable[..., Verdict]
) -> None:
    verdict = refined(entry=entry)
    assert (verdict.status, verdict.code) == (status, code)


def with_zeros(tensors: dict[str, Any], prefix: str) -> None:
    tensors |= {
        f"{prefix}rows0": np.zeros(8),
        f"{prefix}rows2": np.zeros(3),
        f"{prefix}centers2": np.zeros(8),
    }


def test_a_bad_reference_only_weakens_the_common_noise_bound(
    refined: Callable[..., Verdict],
) -> None:
    verdict = refined(with_zeros, lambda tree: tree | {"scale": (1.0).hex()})
    assert (verdict.status, verdict.code) == (REJECT, "probability-too-high")


def a_tree(problems: Iterator[Problem]) -> tuple[Problem, Certificate]:
    """The first certificate that has a tree."""
    for problem in problems:
        for result in certify(problem, Concentration(effort=2, nodes=NODES)):
            lower = (
                result.certificate
                and result.certificate.header["evidence"]["components"][0]["lower"]
            )
            if lower and lower.get("trees"):
                return problem, result.certificate
    raise AssertionError("no certificate has a tree")


@pytest.mark.parametrize(
    "problems",
    [
        lambda: (
            correlated(open_problem(seed, (3, 6, 3), std=0.02), 2 * seed) for seed in range(12, 50)
        ),
        lambda: (shaped(CONVOLUTION, (1, 3, 3), seed) for seed in range(1, 50)),
    ],
    ids=["correlated", "convolution"],
)
def test_common_noise_is_for_dense_layers_of_independent_weights(
    problems: Any, tmp_path: Path
) -> None:
    """A scale in a certificate of correlated weights, or of a convolution, is more than the checker
    knows."""
    problem, certificate = a_tree(problems())
    save_posterior(tmp_path / "p.safetensors", problem.network, problem.posterior)
    certificate.header["evidence"]["components"][0]["lower"]["trees"][0]["scale"] = (1.0).hex()
    certificate.write(tmp_path / "c.safetensors")
    verdict = check_certificate(tmp_path / "c.safetensors", read_model(tmp_path / "p.safetensors"))
    assert (verdict.status, verdict.code) == (ERROR, "unsupported")
