"""Random networks of every layer, under posteriors of every form, by every method: nothing
certified is beyond brute force, the checker agrees, and what is tampered with supports nothing
false."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bnncert import (
    GIE,
    PIE,
    Concentration,
    Enumeration,
    Problem,
    Result,
    Sampling,
    certify,
    decide,
    save_posterior,
)
from bnncert.evidence.certificate import Certificate
from bnncert.methods import Method
from bnncert.model.network import Network
from bnncert.model.specification import Region, Specification, ball, class_robust
from bnncert.posteriors import Empirical, Mixture, Normal
from bnncert.posteriors.base import Posterior, sample
from bnncert_check import ACCEPT, REJECT, check_certificate, read_model
from bnncert_check.verdict import Verdict
from graphs import BENT, KINDS, random_graph
from heads import posterior
from scenarios import draw_many, gaussian
from tampering.desk import Draft, Random, parse
from truth import worst_rows

DRAWS, AGAIN = 800, 20_000  # networks; and where those few contradict a bound
RADII = (0.0, 0.01, 0.05, 0.2)
ERRORS = 4  # standard errors that chance may make
GAUSSIAN_METHODS: tuple[Method, ...] = (
    Concentration(effort=0, upper=True),
    Concentration(effort=1, upper=True),
    Concentration(effort=2, nodes=12, precision=0.0, upper=True),
    Concentration(effort=3, nodes=12, precision=0.0, upper=True),
)
BOX_METHODS: tuple[Method, ...] = (
    PIE(samples=2, step=1.0),
    GIE(samples=2, step=0.5, rho=1.0, bound="ibp"),
    Sampling(samples=2, step=3.0),
)


def problem_of(seed: int, images: bool) -> Problem:
    """Several inputs, with balls of several sizes."""
    network = random_graph(seed, images, BENT if seed % 2 else KINDS)
    law = posterior(seed, network)
    generator = torch.Generator().manual_seed(seed + 7)
    x = torch.rand(len(RADII), *network.input_shape, generator=generator, dtype=torch.float64)
    clip = (0.0, 1.0) if seed % 5 == 0 else None
    region = ball(x, torch.tensor(RADII).double(), ("linf", "l2", "l1")[seed // 7 % 3], clip)
    return Problem(network, law, asked(seed, network, law, region))


def asked(seed: int, network: Network, law: Posterior, region: Region) -> Specification:
    """The class of the central network, or rows with which a given share of networks is safe:
    where bounds say something, and errors show."""
    generator = torch.Generator().manual_seed(seed + 8)
    if network.outputs > 1 and seed % 4 == 0:
        labels = network.forward(law.center, region.center).argmax(-1)
        return class_robust(region, labels, network.outputs)
    rows = gaussian(len(region), 1 + seed % 2, network.outputs, generator=generator)
    plain = Specification(region, rows, torch.zeros(rows.shape[:2], dtype=torch.float64))
    worst = worst_rows(Problem(network, law, plain), draw_many(law, 200, generator), seed)
    share = (0.3, 0.05, 0.005, 0.97)[seed // 2 % 4]
    return replace(plain, offsets=1e-9 - worst.quantile(share, 0))


# ---- brute force ---------------------------------------------------------------------------------


def require_below(lower: float, safe: Callable[[int, int], Tensor], what: object) -> None:
    """No bound may be above the share of networks that are safe by more than errors of the share,
    of a few networks and of many others. safe: whether each of so many, drawn from a seed, is."""
    for seed, draws in enumerate((DRAWS, AGAIN)):
        share = float(safe(draws, seed).double().mean())
        spread = math.sqrt(max(lower * (1 - lower), 1 / draws) / draws)
        if lower <= share + ERRORS * spread:
            return
    raise AssertionError((what, lower, share, spread))


@dataclass
class Robust:
    """Which drawn networks of a problem are safe: of many at once, and remembered."""

    problem: Problem
    found: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def of(self, i: int) -> Callable[[int, int], Tensor]:
        """Of one input."""
        return lambda draws, seed: self._all(draws, seed)[:, i]

    def _all(self, draws: int, seed: int) -> Tensor:
        if (draws, seed) not in self.found:
            generator = torch.Generator().manual_seed(10**6 + seed)
            parts = torch.split(draw_many(self.problem.posterior, draws, generator), 2000)
            rows = [worst_rows(self.problem, weights, seed) for weights in parts]
            self.found[draws, seed] = (torch.cat(rows) > 0).all(2)
        return self.found[draws, seed]


def require_above(problem: Problem, result: Result, what: object) -> None:
    """Each component's row fails at its point at least as often as the upper bound rests on."""
    law, i = problem.posterior, result.index
    weights, parts = (law.weights, law.components) if isinstance(law, Mixture) else ((1.0,), (law,))
    assert result.certificate is not None
    entries = [entry["upper"] for entry in result.certificate.evidence["components"]]
    points = {c: result.certificate.tensors[f"c{c}.point"] for c, e in enumerate(entries) if e}
    if not points:
        assert result.upper == 1, what
        return

    def fails(draws: int, seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(2 * 10**6 + seed)
        total = torch.zeros(draws, dtype=torch.float64)
        for c, x in points.items():
            row = entries[c]["row"]
            y = problem.network.forward(draw_many(parts[c], draws, generator), x.unsqueeze(0))
            margin = y[:, 0] @ problem.specification.rows[i, row]
            total += weights[c] * (margin + problem.specification.offsets[i, row] <= 0)
        return total

    require_below(1 - result.upper, fails, what)


# ---- the checker ---------------------------------------------------------------------------------


class Desk:
    """A problem whose certificates are checked, as they are and tampered with."""

    def __init__(self, problem: Problem, folder: Path) -> None:
        self.problem = problem
        self.folder = folder
        save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
        self.model = read_model(folder / "p.safetensors")

    def verdict(self, content: bytes) -> Verdict:
        path = self.folder / "c.safetensors"
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return check_certificate(path, self.model)

    def require_accepted(self, certificate: Certificate, what: object) -> None:
        verdict = self.verdict(certificate.content())
        assert verdict.status == ACCEPT, (what, verdict)

    def tamper(self, certificate: Certificate, i: int, seed: int) -> str:
        """More is claimed, which must be rejected; and one other change, whose name is given back:
        what the checker then supports must be true."""
        random = np.random.default_rng(seed)
        supported = self.verdict(certificate.content()).supported
        assert supported is not None
        if supported[0] < 1:  # of what is certain no more can be claimed
            draft = self._draft(certificate)
            _claim_more(draft, random, supported)
            verdict = self.verdict(draft.sealed(self.model))
            assert verdict.status == REJECT, (seed, i, verdict)

        draft = self._draft(certificate)
        name = str(random.choice(sorted(CHANGES)))
        CHANGES[name](draft, random)
        verdict = self.verdict(draft.sealed(self.model))
        if verdict.supported is not None:
            changed = replace(self.problem, specification=self._question(draft, i))
            require_below(verdict.supported[0], Robust(changed).of(0), (seed, i, name))
        return name

    def _draft(self, certificate: Certificate) -> Draft:
        return parse(certificate.content(), None)  # type: ignore[arg-type]  # of any network

    def _question(self, draft: Draft, i: int) -> Specification:
        spec = self.problem.specification[i : i + 1]
        region = spec.region
        assert draft.eps is not None
        offsets = torch.from_numpy(draft.tensors["offsets"])[None]
        wider = ball(region.center, draft.eps, region.norm, region.clip)
        return replace(spec, region=wider, offsets=offsets)


def _claim_more(draft: Draft, random: Random, supported: tuple[float, float]) -> None:
    step = float(random.choice([2.0**-50, 1e-9, 1e-3]))
    lower = supported[0] + step if supported[0] + step <= 1 else supported[0]
    upper = supported[1] if lower > supported[0] else supported[1] - step
    draft.header["claim"] = {"lower": lower.hex(), "upper": max(upper, lower).hex()}


def _wider(draft: Draft, random: Random) -> None:
    draft.header["region"]["eps"] = float((draft.eps or 0.0) + random.exponential(0.05)).hex()


def _harder(draft: Draft, random: Random) -> None:
    draft.tensors["offsets"] = draft.tensors["offsets"] - random.exponential(0.1)


def _other_slopes(draft: Draft, random: Random) -> None:
    for name, value in draft.tensors.items():
        if "slopes" in name:
            draft.tensors[name] = random.random(value.shape).astype(value.dtype)


def _other_rows(draft: Draft, random: Random) -> None:
    for name, value in draft.tensors.items():
        if "refined" in name:
            draft.tensors[name] = random.integers(0, 2, value.shape).astype(np.int8)


def _other_rules(draft: Draft, random: Random) -> None:
    for entry in draft.header["evidence"].get("components", []):
        for proof in _proofs(entry["lower"]):
            flags = random.random(2) < 0.5
            proof |= {"layers_alone": bool(flags[0]), "forward": bool(flags[1])}
            proof["t"] = float(random.choice([0.5, 2.0, 4.0])).hex()


def _proofs(value: dict[str, object]) -> list[dict[str, object]]:
    """Those of all parts of the region."""
    if "at" not in value:
        return [value]
    return [*_proofs(value["below"]), *_proofs(value["above"])]  # type: ignore[arg-type]


CHANGES: dict[str, Callable[[Draft, Random], None]] = {
    "a wider region": _wider,
    "harder rows": _harder,
    "other slopes": _other_slopes,
    "other neurons with rows": _other_rows,
    "other rules and thresholds": _other_rules,
}


# ---- the tests -----------------------------------------------------------------------------------


def examine(seed: int, images: bool, folder: Path, counts: Counter[str]) -> None:
    """A method on a problem, and its predictive mean or a list of its networks."""
    problem = problem_of(seed, images)
    desk = Desk(problem, folder)
    methods = GAUSSIAN_METHODS
    if isinstance(problem.posterior, Normal):
        methods += BOX_METHODS
    method = methods[seed // 3 % len(methods)]
    robust = Robust(problem)
    for result in certify(problem, method, seed=seed):
        what = (seed, images, result.index, method)
        counts[method.name] += 1
        counts["lower bounds that say something"] += result.lower > 0
        counts["upper bounds that say something"] += result.upper < 1
        if result.lower > 0:
            require_below(result.lower, robust.of(result.index), what)
        if result.certificate is None:
            continue
        counts["certificates"] += 1
        counts["certificates with zonotopes"] += "'forward': True" in str(
            result.certificate.evidence
        )
        desk.require_accepted(result.certificate, what)
        if isinstance(method, Concentration):
            require_above(problem, result, what)
        if result.index == seed % len(RADII):
            counts[f"tampered: {desk.tamper(result.certificate, result.index, seed)}"] += 1
    (examine_means if seed % 2 else examine_list)(problem, seed, folder, counts)


def examine_means(problem: Problem, seed: int, folder: Path, counts: Counter[str]) -> None:
    """Predictive means at the clean inputs, against many networks."""
    spec = problem.specification
    if spec.rows.shape[1] != 1 and spec.labels is None:
        return
    generator = torch.Generator().manual_seed(seed)
    y = problem.network.forward(draw_many(problem.posterior, AGAIN, generator), spec.region.center)
    desk = Desk(problem, folder)
    for i, decision in enumerate(decide(problem)):
        if decision.certificate is None:
            continue
        desk.require_accepted(decision.certificate, (seed, "mean"))
        one = y[:, i] @ spec.rows[i, 0]
        if decision.quantity == "softmax":
            one = torch.softmax(y[:, i], -1)[:, int(spec.rows[i, 0].argmax())]
        error = 5 * float(one.std()) / math.sqrt(len(one)) + 1e-9
        assert decision.lower <= float(one.mean()) + error, (seed, i, decision)
        assert decision.upper >= float(one.mean()) - error, (seed, i, decision)
        counts[decision.quantity] += 1


def examine_list(problem: Problem, seed: int, folder: Path, counts: Counter[str]) -> None:
    """Four networks, each of which is safe, or not."""
    drawn = sample(problem.posterior, 4, seed)
    listed = Problem(problem.network, Empirical(drawn), problem.specification)
    desk = Desk(listed, folder)
    safe = (worst_rows(problem, drawn, seed) > 0).all(2).double().mean(0)
    for i, result in enumerate(certify(listed, Enumeration())):
        assert result.lower <= float(safe[i]), (seed, i)
        assert result.upper >= float(safe[i]) or RADII[i] > 0, (seed, i)
        if result.certificate is not None:
            desk.require_accepted(result.certificate, (seed, i, "list"))
            counts["lists"] += 1


KINDS_OF_INPUT = pytest.mark.parametrize("images", [False, True], ids=["vectors", "images"])


@KINDS_OF_INPUT
@pytest.mark.parametrize("part", range(4))
def test_no_bound_is_beyond_brute_force_and_the_checker_agrees(
    part: int, images: bool, tmp_path: Path
) -> None:
    counts = Counter[str]()
    for seed in range(part, 12, 4):
        examine(seed, images, tmp_path, counts)
    assert counts["lower bounds that say something"] >= 4, counts
    assert counts["certificates"] >= 8, counts


# Of images; in the first some places read padding alone, in the second heads flatten one node each.
REFUSED = (1450, 1780)


@pytest.mark.parametrize("seed", REFUSED)
def test_what_was_refused_once_is_accepted(seed: int, tmp_path: Path) -> None:
    problem = problem_of(seed, images=True)
    desk = Desk(problem, tmp_path)
    for result in certify(problem, Concentration(effort=0)):
        assert result.certificate is not None
        desk.require_accepted(result.certificate, (seed, result.index))


@pytest.mark.slow
@KINDS_OF_INPUT
@pytest.mark.parametrize("part", range(20))
def test_nor_of_thousands(part: int, images: bool, tmp_path: Path) -> None:
    counts = Counter[str]()
    for seed in range(1000 + part, 2500, 20):
        examine(seed, images, tmp_path, counts)
    print(dict(sorted(counts.items())))
