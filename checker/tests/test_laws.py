"""The checker on laws of output rows: what is accepted, what tampering does, and the numbers that
everything rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, ctx

from bnncert import Problem, ball, class_robust, half_space, mlp, save_posterior
from bnncert.evidence.laws import LineLaw as ProvedLines
from bnncert.evidence.laws import SharedLaw as ProvedLaw
from bnncert.laws.head import Margins
from bnncert.laws.proof import prove_laws
from bnncert.laws.shared import Lattice, Shared, by_blend
from bnncert.layers import Tanh
from bnncert.posteriors.gaussian import LowRankNormal
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, read_model
from bnncert_check.laws.cells import base_edges, cells, with_edge
from bnncert_check.laws.corners import FLOOR, SQUARE
from bnncert_check.laws.exponentials import density, exp_up, log_up, signed_tails_up
from bnncert_check.laws.lattice import Choice
from bnncert_check.laws.remainder import proxy
from bnncert_check.laws.rows import LineLaw, SharedLaw, failure
from bnncert_check.region import Region
from checking import Desk
from scenarios import gaussian, vector

LOWER = "evidence/components/0/lower"
NUMBERS, REMAINDERS = "tensors/c0.law.numbers", "tensors/c0.law.remainders"


def problem(sizes: tuple[int, ...], eps: float, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    network = mlp(*sizes)
    mean = 1.5 * gaussian(network.size, generator=generator)
    std = torch.full_like(mean, 0.35)
    center = gaussian(1, sizes[0], generator=generator)
    labels = network.forward(mean, center).argmax(-1)
    robust = class_robust(ball(center, eps), labels, sizes[-1])
    return Problem(network, Normal(mean, std), robust)


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """ReLUs of few inputs would be proved by lines, of which `test_line_laws` speaks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bnncert.laws.proof.FEW", 0)
        yield


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(
        tmp_path_factory.mktemp("laws"), problem((2, 3, 3), 0.05, 5), upper=False, joint=False
    )


@pytest.mark.parametrize(
    ("sizes", "eps", "seed"),
    [((2, 3, 3), 0.05, 5), ((6, 1, 2), 0.02, 2), ((2, 4, 3), 0.0, 1), ((1, 150, 2), 0.001, 1)],
)
def test_laws_are_accepted(sizes: tuple[int, ...], eps: float, seed: int, tmp_path: Path) -> None:
    """Also of many neurons; and say a little less than the checker itself finds."""
    own = Desk(tmp_path, problem(sizes, eps, seed), joint=False)
    entry = own.header["evidence"]["components"][0]
    assert "law" in entry["lower"]
    assert entry["upper"] is None or "law" in entry["upper"]["failure"]
    verdict = own.verdict()
    assert verdict.status == ACCEPT, verdict
    assert verdict.claimed is not None
    assert verdict.supported is not None
    assert 0 <= verdict.supported[0] - verdict.claimed[0] < 1e-5


RANDOM = {  # of the flat weights of 2 inputs, 3 neurons, 2 outputs
    "nothing": slice(0, 0),
    "the first weights": slice(0, 6),
    "the first biases": slice(6, 9),
    "the second weights": slice(9, 15),
    "the second biases": slice(15, 17),
}


@pytest.mark.parametrize("random", RANDOM)
@pytest.mark.parametrize("center", [0.0, 1e4])
@pytest.mark.parametrize("few", [0, 8])
def test_laws_of_certain_neurons_are_accepted(
    random: str, center: float, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is random the remainder has any moment, but for what rounding may hide: a
    checker's mean of A is off by 2^-34 of it. Few inputs have the better of both forms."""
    monkeypatch.setattr("bnncert.laws.proof.FEW", few)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        network = mlp(2, 3, 2)
        mean = 0.3 * gaussian(17, generator=generator)
        std = torch.zeros(17).double()
        std[RANDOM[random]] = 0.1
        given = Normal(mean, std)
        x = center * gaussian(1, 2, generator=generator)
        spec = class_robust(ball(x, 0.01), network.forward(mean, x).argmax(-1), 2)
        (found,) = prove_laws(Problem(network, given, spec), given)
        save_posterior(tmp_path / "p.safetensors", network, given)
        model = read_model(tmp_path / "p.safetensors")
        numbers = found.numbers.tolist()
        choices = tuple(Choice(row[0], int(row[1]), *row[2:]) for row in numbers)
        common = found.cells, found.size, choices, None
        law: SharedLaw | LineLaw
        if isinstance(found, ProvedLines):
            law = LineLaw(*common, found.threshold, found.slopes.numpy())
        else:
            theta, y = (part.double().numpy() for part in (found.theta, found.y))
            references = found.remainders.numpy(), theta, y
            law = SharedLaw(*common, *references, tuple(found.blends.tolist()))
        lower, upper = (end.numpy()[0] for end in (spec.region.box.lower, spec.region.box.upper))
        region = Region("linf", x.numpy()[0], 0.01, lower, upper)
        own, rows = model.components[0].posterior, spec.rows[0].numpy()
        with np.errstate(all="ignore"):
            failing = failure(model, own, region, rows, spec.offsets[0].numpy(), law)
        assert max(0.0, 1 - float(failing)) >= found.bound


def test_a_claim_above_is_refused(desk: Desk) -> None:
    verdict = desk.verdict()
    assert verdict.supported is not None
    more = math.nextafter(verdict.supported[0], 1.0)
    assert desk.verdict(("claim/lower", more.hex())).code == "probability-too-high"
    assert desk.verdict(("claim/lower", verdict.supported[0].hex())).status == ACCEPT


@pytest.mark.parametrize(
    ("name", "column", "value", "code"),
    [
        (NUMBERS, 0, 0.0, "malformed"),  # the step
        (NUMBERS, 0, 4.0, "not-finite"),  # as Chernoff's bound on so wide a lattice
        (NUMBERS, 1, 0.5, "malformed"),  # the window
        (NUMBERS, 1, 2.0**41, "malformed"),
        (NUMBERS, 1, 100_000.0, "probability-too-high"),
        (NUMBERS, 1, 0.0, "probability-too-high"),
        (NUMBERS, 2, -1.0, "malformed"),  # the rate
        (NUMBERS, 2, 0.0, "probability-too-high"),
        (NUMBERS, 2, 1e6, "probability-too-high"),
        (NUMBERS, 3, 0.0, "probability-too-high"),  # the curb
        (NUMBERS, 4, 1.0, "malformed"),  # the noise
        (NUMBERS, 4, 1e-300, "probability-too-high"),
        (NUMBERS, 5, 0.0, "malformed"),  # the tilt
        (REMAINDERS, 0, -0.5, "malformed"),
        (REMAINDERS, 1, 1e9, "probability-too-high"),  # no moment of that scale
        (REMAINDERS, 2, -1e-9, "malformed"),
        (REMAINDERS, 2, 1e-300, "probability-too-high"),
    ],
)
def test_choices_are_checked(desk: Desk, name: str, column: int, value: float, code: str) -> None:
    assert desk.verdict(desk.column(name, column, value)).code == code


def test_a_chance_of_0_proves_nothing(desk: Desk) -> None:
    assert desk.verdict(desk.column(REMAINDERS, 2, 0.0)).status != ACCEPT


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{LOWER}/law/size", 3000, "malformed"),
        (f"{LOWER}/law/cells", [256, 16, 256, 16], "too-large"),
        (f"{LOWER}/law/cells", [256, 3, 256, 3], "too-large"),
        (f"{LOWER}/law/size", 2**18, "malformed"),
        (f"{LOWER}/law/cells", [32, 2, 16], "malformed"),
        (f"{LOWER}/law/cells", [32, 0, 16, 3], "malformed"),
        (f"{LOWER}/law/cells", [8, 1, 4, 1], "probability-too-high"),
        (f"{LOWER}/law", [], "malformed"),
        (f"{LOWER}/probability", 0.5, "malformed"),
        ("tensors/c0.law.theta", np.zeros((2, 2), np.float32), "malformed"),
        ("tensors/c0.law.theta", np.full((2, 2), 1e-3, np.float32), "probability-too-high"),
    ],
)
def test_the_form_is_checked(desk: Desk, place: str, value: Any, code: str) -> None:
    assert desk.verdict((place, value)).code == code


@pytest.fixture(scope="module")
def blended(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Narrow weights, whose law blends slopes."""
    own = problem((6, 8, 3), 0.1, 0)
    assert isinstance(own.posterior, Normal)
    posterior = Normal(own.posterior.mean / 1.5, torch.full_like(own.posterior.mean, 0.1))
    given = Problem(own.network, posterior, own.specification)
    return Desk(tmp_path_factory.mktemp("blended"), given, upper=False)


def test_blends_are_accepted(blended: Desk) -> None:
    said = blended.header["evidence"]["components"][0]["lower"]["law"]["blends"]
    assert any(float.fromhex(blend) for blend in said)
    assert blended.accepted()[0] > 0.4


def test_laws_without_blends_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were written before there were any."""
    monkeypatch.setattr("bnncert.laws.shared.BLENDS", ())
    own = Desk(tmp_path, problem((6, 8, 2), 0.01, 0), upper=False)
    assert "blends" not in own.header["evidence"]["components"][0]["lower"]["law"]
    assert own.accepted()[0] > 0
    none = f"{LOWER}/law/blends", ["0x0p0"]
    assert own.verdict(none).supported == own.verdict().supported


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (["0x0p0", "0x0p0"], "probability-too-high"),  # not what references were chosen for
        (["0x1p0"], "malformed"),
        (["0x1p0", "0x1.0000000000001p0"], "malformed"),
        (["0x1p0", "-0x1p-1074"], "malformed"),
        ([1.0, 1.0], "malformed"),
        ("0x1p0", "malformed"),
    ],
)
def test_other_blends_are_refused(blended: Desk, value: Any, code: str) -> None:
    assert blended.verdict((f"{LOWER}/law/blends", value)).code == code


@pytest.mark.parametrize("blend", [0.25, 0.7, 1.0])
@pytest.mark.parametrize(
    ("sizes", "eps", "seed"), [((2, 4, 2), 0.01, 3), ((6, 8, 2), 0.01, 0), ((5, 60, 2), 0.001, 1)]
)
def test_any_blend_is_accepted(
    blend: float,
    sizes: tuple[int, ...],
    eps: float,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mean that a checker finds is off by roundings alone."""

    def always(rows: Margins, lattice: Lattice, found: torch.Tensor) -> Shared:
        return by_blend(rows, lattice, torch.full_like(found, blend))

    monkeypatch.setattr("bnncert.laws.shared.by_blend", always)
    own = Desk(tmp_path, problem(sizes, eps, seed), upper=False)
    law = own.header["evidence"]["components"][0]["lower"]["law"]
    assert law["blends"] == [blend.hex()] * (sizes[-1] - 1)
    assert own.accepted()[0] > 0


def test_lines_blend_no_slopes(blended: Desk) -> None:
    changed = (f"{LOWER}/law/threshold", "0x1p2")
    assert blended.verdict(changed).code == "malformed"


def test_other_networks_are_refused(desk: Desk, tmp_path: Path) -> None:
    """Shared noise, another activation, a second hidden layer: the theorem speaks of none."""
    law = desk.header["evidence"]["components"][0]["lower"]
    own = problem((2, 3, 3), 0.05, 5)
    assert isinstance(own.posterior, Normal)
    mean, std = own.posterior.mean, own.posterior.std
    shared = LowRankNormal(mean, std, torch.full((len(mean), 1), 1e-3).double())
    curved = mlp(2, 3, 3, activation=Tanh())
    deep = mlp(2, 3, 3, 3)
    longer = Normal(*(torch.cat([part, part[:12]]) for part in (mean, std)))
    for network, posterior in ((own.network, shared), (curved, own.posterior), (deep, longer)):
        other = Desk(
            tmp_path,
            Problem(
                network, posterior, half_space(own.specification.region, vector(0, 0, 0), -1.0)
            ),
        )
        other.header["evidence"]["components"][0]["lower"] = law
        assert other.verdict().code == "unsupported"


@pytest.mark.parametrize(
    ("mean", "std", "truth"),
    [
        ([1.0, 0.0, 0.0, 0.01], [1e-9, 0.0, 1.0, 0.0], 0.503989),  # cells at their midpoints: .691
        ([0.0, 0.0, 0.0, 2.296], [0.0, 0.0, 0.0, 1.0], 0.989163),  # β on a coarse lattice: .99998
        ([0.0, 0.0, 1.0, -0.01], [1.0, 0.0, 0.0, 0.0], 0.496011),  # coarse inversion: .715
        ([0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], 0.25),  # the sign of 0
        ([0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], 0.0),  # ties
    ],
)
@pytest.mark.parametrize("size", [2**4, 2**8, 2**12])
def test_traps(
    mean: list[float], std: list[float], truth: float, size: int, tmp_path: Path
) -> None:
    """y = v relu(w x + b) + β at x = 1, on lattices however coarse."""
    network, posterior = mlp(1, 1, 1), Normal(vector(*mean), vector(*std))
    spec = half_space(ball(vector(1.0).reshape(1, 1), 0), vector(1.0), 0.0)
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    model = read_model(tmp_path / "p.safetensors")
    (found,) = prove_laws(Problem(network, posterior, spec), posterior)
    step, low, *others = found.numbers[0].tolist()
    factor = found.size // size
    choice = Choice(step * factor, math.floor(low / factor), *others)
    empty = np.ones((1, 1))
    assert isinstance(found, ProvedLaw)
    references = found.remainders.numpy(), empty, empty
    law = SharedLaw(found.cells, size, (choice,), None, *references, (0.0,))
    region = Region("linf", np.ones(1), 0.0, np.ones(1), np.ones(1))
    own = model.components[0].posterior
    with np.errstate(all="ignore"):
        failing = failure(model, own, region, np.ones((1, 1)), np.zeros(1), law)
    assert min(float(failing), 1.0) >= 1 - truth - 1e-6
    if size == 2**12:
        assert min(float(failing), 1.0) <= 1 - truth + 0.08


def test_exponentials_are_from_above() -> None:
    x = np.random.default_rng(0).uniform(-690, 690, 300)
    x = np.concatenate([x, np.random.default_rng(1).uniform(-3, 3, 300), [0.0, -1e4]])
    with ctx.workprec(128):
        true = [arb(v).exp() for v in x.tolist()]
        for found, least in zip(exp_up(x).tolist(), true, strict=True):
            assert arb(found) >= least
            assert arb(found) <= least * (1 + arb(2) ** -46) + arb(2) ** -1000
        positive = exp_up(x[:-1])
        for found, value in zip(log_up(positive).tolist(), positive.tolist(), strict=True):
            assert arb(value).log() <= arb(found) <= arb(value).log() + arb(2) ** -42
        for z in np.linspace(-8, 8, 101):
            tail = (arb(z) / arb(2).sqrt()).erfc() / 2
            assert arb(float(signed_tails_up(np.array(z)))) >= tail
            true_density = (-(arb(z) ** 2) / 2).exp() / (2 * arb.pi()).sqrt()
            gap = abs(arb(float(density(np.array(z)))) - true_density)
            assert gap <= true_density * arb(2) ** -46
    assert exp_up(np.array(800.0)) == np.inf


def test_cells_hold_their_masses_and_means() -> None:
    """Against 40 digits."""
    found = cells(with_edge(base_edges(8), np.array([-1.234])), 3)
    with mpmath.workdps(40):
        for k, i in np.ndindex(8, 3):
            left, right = (mpmath.mpf(float(found.edges[0, j])) for j in (k, k + 1))
            a, b = left + (right - left) * i / 3, left + (right - left) * (i + 1) / 3
            mass = mpmath.ncdf(b) - mpmath.ncdf(a) if b < 0 else mpmath.ncdf(-a) - mpmath.ncdf(-b)
            assert 0 <= found.mass[0, k, i] - mass <= 1e-14
            mean = (mpmath.npdf(a) - mpmath.npdf(b)) / mass
            gap = abs((mean - left) / (right - left) - found.place[0, k, i])
            assert gap <= found.off[0, k, i]


def test_proxies_are_from_above() -> None:
    x, mass = np.array([[-0.01, 0.99]]), np.array([[0.99, 0.01]])
    with np.errstate(all="ignore"):
        found = float(proxy(x, mass, np.zeros(1))[0])
    exact = 0.98 / (2 * math.log(99))  # Kearns and Saul
    assert exact <= found <= 1.3 * exact


def expected_magnitude(t: arb) -> arb:
    """F(t) = E|N(t, 1)|"""
    return t * (t / arb(2).sqrt()).erf() + (2 / arb.pi()).sqrt() * (-t * t / 2).exp()


def test_the_two_lemmas() -> None:
    """2b F(t/b) <= 1 + k t² with b = .56 and k = 1.06, and F(x)² <= 2/π + x².

    On [0, T] by intervals; beyond it F(x) <= x + 2φ(x)/x². Near 0 F(x) <= √(2/π)(1 + x²/2), since
    F'' = 2φ, and its square is at most 2/π + x² for x² <= 2π - 4.
    """
    with ctx.workprec(64):
        b, k = arb(FLOOR), arb(SQUARE)
        steps = 4096
        for i in range(4 * steps):
            t = arb(i + 0.5) / steps + arb(0, 0.5 / steps)
            middle = (arb(i) + 0.5) / steps
            # F is 1-Lipschitz, so t on an interval moves 2b F(t/b) by its slope: by mean values.
            slope = 2 * (t / b / arb(2).sqrt()).erf() - 2 * k * t
            gap = 2 * b * expected_magnitude(middle / b) - 1 - k * middle**2
            assert gap + slope * arb(0, 0.5 / steps) < 0
            x = 2 * t
            if i > 0.7 * steps:
                assert expected_magnitude(x) ** 2 < 2 / arb.pi() + x**2 or _closely(x)
        last = arb(4)
        assert 2 * last + 2 * b * expected_magnitude(last / b) - 2 * last < 1 + k * last**2


def _closely(x: arb) -> bool:
    """The same by halves, where the interval is too wide."""
    parts = [x.mid() + x.rad() * (2 * i - 15) / 16 + arb(0, float(x.rad()) / 16) for i in range(16)]
    return all(bool(expected_magnitude(part) ** 2 < 2 / arb.pi() + part**2) for part in parts)
