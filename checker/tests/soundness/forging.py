"""Forged certificates, and the exact value of what they speak of."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import mpmath
import numpy as np
import torch
from mpmath import mpf
from numpy.typing import NDArray
from torch import Tensor

import bnncert
from bnncert import Problem, Specification
from bnncert.evidence import concentration
from bnncert.evidence.certificate import Certificate, Found, certificate_for
from bnncert.layers import Dense, Flatten, ReLU, Sigmoid, Tanh
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.model.specification import ball, class_robust, explicit_box
from bnncert.posteriors import Mixture, Normal
from bnncert_check import ACCEPT, Verdict, check_certificate, read_model
from checking import by_joint_laws
from scenarios import correlated, random_problem, vector, wider

Array: TypeAlias = NDArray[np.float64]
Random: TypeAlias = np.random.Generator
Fields: TypeAlias = dict[str, float]  # of one weight
Evidence: TypeAlias = tuple[dict[str, Any], dict[str, Tensor]]  # JSON and tensors
ETA, BIG = 2.0**-1074, 2.0**500
FAMILIES = ("normal", "laplace", "student-t", "uniform", "truncated-normal")


def exact_rows(problem: Problem, weights: Tensor, x: Tensor) -> list[Any]:
    """C y + d of one network at one point of the first input: rational, or 60 digits where a curve
    enters."""
    network, spec = problem.network, problem.specification
    number: Any = (
        mpf if any(isinstance(layer, Tanh | Sigmoid) for layer in network.layers) else Fraction
    )

    def linear(coefficients: list[float], h: list[Any], constant: float) -> Any:
        return sum((number(c) * v for c, v in zip(coefficients, h, strict=True)), number(constant))

    h = [number(v) for v in x.flatten().tolist()]
    for layer, parameters in zip(network.layers, network.split(weights), strict=True):
        if isinstance(layer, Dense):
            bias = parameters[1].tolist() if layer.bias else [0.0] * layer.outputs
            h = [
                linear(column, h, b)
                for column, b in zip(parameters[0].T.tolist(), bias, strict=True)
            ]
        elif not isinstance(layer, Flatten):
            h = [exact_value(type(layer).__name__, getattr(layer, "slope", 0.0), z) for z in h]
    return [
        linear(row, h, d)
        for row, d in zip(spec.rows[0].tolist(), spec.offsets[0].tolist(), strict=True)
    ]


def exact_value(kind: str, alpha: float | None, z: Any) -> Any:
    if kind.endswith("ReLU"):
        return max(z, type(z)(alpha) * z)
    return mpmath.tanh(z) if kind == "Tanh" else 1 / (1 + mpmath.exp(-z))


def forged(
    problem: Problem, evidence: Evidence, claim: tuple[float, float] = (0.0, 1.0)
) -> Certificate:
    """Any evidence and any claim about the first input, with the right question and digests."""
    kind = "concentration" if "components" in evidence[0] else "boxes"
    digests = problem.network.digest, problem.posterior.digest
    claimed = dict(zip(("lower", "upper"), claim, strict=True))
    honest = certificate_for(
        digests, problem.specification[:1], claimed, concentration.Concentration(()), Found({})
    )
    value, tensors = evidence
    return Certificate(honest.header | {"kind": kind, "evidence": value}, honest.tensors | tensors)


def verdict(folder: Path, problem: Problem, certificate: Certificate) -> Verdict:
    """What the checker says of the certificate beside the problem's posterior, both read from
    files."""
    bnncert.save_posterior(folder / "posterior.safetensors", problem.network, problem.posterior)
    certificate.write(folder / "certificate.safetensors")
    return check_certificate(
        folder / "certificate.safetensors", read_model(folder / "posterior.safetensors")
    )


def one_box(step: float = 1.0) -> Evidence:
    """The posterior's centre ± step times its spread."""
    growth = {"step": step, "rho": 0.0, "zero_gradient_only": False}
    boxes = [{"draw": None, "steps": 1}]
    return {"bound": "lbp", "growth": growth, "boxes": boxes, "union": {"rule": "cells"}}, {}


def proof(
    problem: Problem, prefix: str, t: float, rows: int, slopes: Any, own: Any = None
) -> Evidence:
    """A proof with slopes(*shape) for every activation, and own(*shape) for those of the output
    rows."""
    tensors = {}
    for k, layer in enumerate(problem.network.layers):
        if not isinstance(layer, Dense | Flatten):
            width = math.prod(problem.network.shapes[k])
            tensors |= {f"{prefix}{side}_slopes{k}": slopes(width) for side in ("lower", "upper")}
            tensors |= {} if own is None else {f"{prefix}row_slopes{k}": own(rows, width)}
    found = {"probability": (0.0).hex(), "t": t.hex(), "rows_optimised": own is not None}
    return found | {"layers_alone": True}, tensors


def constant_slopes(problem: Problem, value: float) -> Evidence:
    """Concentration with this slope everywhere, at t = 4."""
    slopes = partial(torch.full, fill_value=value, dtype=torch.float64)
    own = [lambda *shape: slopes(shape)] * 2
    lower, tensors = proof(problem, "c0.", 4.0, problem.specification.rows.shape[1], *own)
    return {"components": [{"weight": (1.0).hex(), "lower": lower, "upper": None}]}, tensors


def accepted(folder: Path, problem: Problem) -> list[bool]:
    """Whether P_safe >= 1 is accepted by one box, and by concentration with slopes 0, 1/2 and 1."""
    evidence = [one_box(), *(constant_slopes(problem, value) for value in (0.0, 0.5, 1.0))]
    return [
        verdict(folder, problem, forged(problem, each, (1.0, 1.0))).status == ACCEPT
        for each in evidence
    ]


def as_explicit_box(problem: Problem) -> Problem:
    spec = problem.specification
    return replace(problem, specification=replace(spec, region=explicit_box(spec.region.box)))


def with_margin(problem: Problem, margin: float) -> Problem:
    """The offsets moved so that the central network's rows are `margin` at the clean input; labels
    become right."""
    spec = problem.specification
    if spec.labels is not None:
        labels = problem.predictions()
        return replace(
            problem, specification=class_robust(spec.region, labels, problem.network.outputs)
        )
    offsets = spec.offsets + margin - problem.margins(problem.posterior.center)
    return replace(problem, specification=replace(spec, offsets=offsets))


def certified(
    folder: Path, problem: Problem, method: Method, seed: int, file: Path | None = None
) -> list[Any]:
    """The headers of the certificates that the method writes: accepted, every one, with what is
    supported to 1e-6, or by joint laws to 1e-4."""
    posterior, path, headers = (
        file or folder / "posterior.safetensors",
        folder / "certificate.safetensors",
        [],
    )
    if file is None:
        bnncert.save_posterior(posterior, problem.network, problem.posterior)
    for result in bnncert.certify(problem, method, seed=seed):
        if result.certificate is not None:
            result.certificate.write(path)
            found = check_certificate(path, read_model(posterior))
            assert found.status == ACCEPT, (found, problem.network, problem.posterior.family)
            lower, upper = found.supported or (math.nan, math.nan)
            spared = 1e-4 if by_joint_laws(result.certificate.header) else 1e-6
            assert lower - spared <= result.lower <= lower
            assert upper <= result.upper <= upper + spared
            headers.append(result.certificate.header)
    return headers


def fixed(
    network: Network, weights: list[float], x: list[float], offset: float = 0.0, **options: Any
) -> Problem:
    """A network without noise, safe iff row·outputs (their sum) plus `offset` is positive on a ball
    around x."""
    rows = vector(*options.pop("row", [1.0] * network.outputs)).reshape(1, 1, -1)
    region = ball(vector(*x).unsqueeze(0), options.pop("eps", 0.0), **options)
    posterior = Normal(vector(*weights), torch.zeros(len(weights), dtype=torch.float64))
    return Problem(network, posterior, Specification(region, rows, vector(offset).reshape(1, 1)))


def trap_vectors(kind: str, rng: Random) -> tuple[Array, Array]:
    n = int(rng.integers(1, 120))
    a, b = rng.standard_normal((2, n))
    if kind == "wild":
        a, b = (v * 2.0 ** rng.integers(-400, 400, n) for v in (a, b))
    elif kind == "cancelling":
        a, b = (
            np.concatenate([a * 2.0**54, rng.standard_normal(n), -a * 2.0**54]),
            np.concatenate([b, b, b]),
        )
    elif kind == "subnormal":
        a, b = rng.integers(-9, 10, n) * ETA, b * 2.0 ** rng.integers(-3, 4, n)
    elif kind == "underflowing":
        a, b = (v * 2.0 ** rng.integers(-560, -500, n) for v in (a, b))
    elif kind == "zero":
        a = np.where(rng.random(n) < 0.5, 0.0, -0.0)
    order = rng.permutation(len(a))
    return a[order], b[order]


def lines_on_narrower_intervals(seed: int, moved: float) -> Problem:
    """Lines of curves and leaky ReLUs on narrower intervals may do worse; here checker and prover
    differ."""
    problem = random_problem(seed, norm="linf", batch=1)
    spec = problem.specification
    offsets = spec.offsets + moved * (torch.arange(spec.offsets.shape[1]) == 0)
    return replace(problem, specification=replace(spec, offsets=offsets))


def gaussian_problem(seed: int) -> Problem:
    """Independent, correlated or a mixture of both; some safe at the clean input by up to 4/3, some
    unsafe."""
    problem = random_problem(seed, batch=1)
    independent, shared = wider(problem, seed).posterior, correlated(problem, seed).posterior
    posterior = (independent, shared, Mixture((0.375, 0.625), (independent, shared)))[seed % 3]
    return with_margin(replace(problem, posterior=posterior), (seed % 7 - 2) / 3)


LINE, SHIFTED = Network((1,), (Dense(1, 1, bias=False),)), Network((1,), (Dense(1, 1),))
BENT = Network((1,), (Dense(1, 1, bias=False), ReLU()))
TWO = Network((1,), (Dense(1, 2, bias=False), ReLU(), Dense(2, 1, bias=False)))
