"""The same seed gives the same numbers, whatever is done to torch's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import pytest
import torch

from bnncert import certify
from bnncert.boxes.growth import grow
from bnncert.methods import PIE, Sampling
from bnncert.numerics import batching
from box_methods import FEW, claims, classifier
from scenarios import paper_example


@pytest.mark.parametrize("name", FEW)
def test_the_same_seed_gives_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together, one by one, in two unequal parts or cut to pieces by the memory budget: the same
    claims."""
    problem, method = classifier(), FEW[name]
    together = claims(certify(problem, method, seed=3, indices=range(6)))
    alone = [claims(certify(problem[i : i + 1], method, seed=3, indices=[i]))[0] for i in range(6)]
    parts = [
        claim
        for part in (range(4), range(4, 6))
        for claim in claims(certify(problem[part.start : part.stop], method, seed=3, indices=part))
    ]
    monkeypatch.setattr(batching, "CPU_BUDGET", 1)
    assert together == alone == parts == claims(certify(problem, method, seed=3, indices=range(6)))


def test_every_seed_and_every_draw_is_another_centre() -> None:
    problem, method = paper_example(), Sampling(samples=4, step=0.01, mean_first=False)
    (first,), _ = grow(problem, method.plan(), seed=0)
    (second,), _ = grow(problem, method.plan(), seed=1)
    centers = {tuple(box.center.tolist()) for box in first + second}
    assert len(centers) == len(first) + len(second) > 3


def test_the_global_generator_is_left_alone() -> None:
    """Neither read nor advanced."""
    torch.manual_seed(0)
    before, first = torch.get_rng_state(), claims(certify(paper_example(), PIE(samples=3)))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert claims(certify(paper_example(), PIE(samples=3))) == first


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def tf32() -> Iterator[None]:
    """Every switch that lets matrix products lose digits."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), matmul.allow_tf32, cudnn.allow_tf32
    torch.set_float32_matmul_precision("medium")
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        matmul.allow_tf32, cudnn.allow_tf32 = before[1:]


@contextmanager
def with_gradients() -> Iterator[None]:
    with torch.enable_grad():
        yield


SABOTAGE: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "nothing": nullcontext,
    "float64 by default": lambda: default_dtype(torch.float64),
    "float16 by default": lambda: default_dtype(torch.float16),
    "bfloat16 by default": lambda: default_dtype(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "tf32": tf32,
    "gradients": with_gradients,
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
@pytest.mark.parametrize("name", FEW)
def test_precision_cannot_be_taken_away(sabotage: str, name: str) -> None:
    """Global settings of precision, set around the problem and certify, change no bit of a
    claim."""
    with SABOTAGE[sabotage]():
        results = certify(classifier(), FEW[name])
    assert claims(results) == undisturbed(name)
    for certificate in filter(None, (result.certificate for result in results)):
        dtypes = {
            n: value.dtype for n, value in certificate.tensors.items() if not n.startswith("signs")
        }
        assert set(dtypes.values()) == {torch.float64}


@cache
def undisturbed(name: str) -> list[tuple[object, ...]]:
    return claims(certify(classifier(), FEW[name]))
