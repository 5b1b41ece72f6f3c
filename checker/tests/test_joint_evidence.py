"""The checker on certificates of joint laws: true ones are accepted, whatever else they may say is
checked, and what is forged proves nothing."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from scipy.special import ndtr

from bnncert import Problem, Specification, ball, class_robust, mlp, save_posterior
from bnncert.layers import Dense, LeakyReLU, ReLU, Softplus, Tanh
from bnncert.model.activations import Activation
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import Mixture
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, REJECT, Verdict, check_certificate, read_model
from bnncert_check.laws import rows as rows_of_laws
from bnncert_check.laws.cells import outside
from bnncert_check.laws.lattice import Choice
from bnncert_check.laws.rows import LineLaw, SharedLaw
from bnncert_check.linear import Bounded
from bnncert_check.region import Region
from checking import Desk
from scenarios import gaussian, vector

Law = tuple[tuple[int, ...], tuple[int, ...], Any]  # rows, terms and windows
Said = list[Law]
SAMPLES = 400_000


def problem(
    activation: Activation, eps: float = 0.0, outputs: int = 3, seed: int = 0, std: float = 0.4
) -> Problem:
    """A class before all others, with some doubt."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(2, 4, outputs, activation=activation)
    mean = gaussian(network.size, generator=generator)
    x = vector(0.4, 0.4).reshape(1, 2)
    label = network.forward(mean, x).argmax(-1)
    posterior = Normal(mean, torch.full_like(mean, std))
    return Problem(network, posterior, class_robust(ball(x, eps), label, outputs))


def sampled(given: Problem) -> float:
    """P_safe at the centre, of two dense layers."""
    first, between, last = given.network.layers
    r = np.random.default_rng(9)
    mean, std = given.posterior.mean.numpy(), given.posterior.std.numpy()
    x = given.specification.region.center[0].numpy()
    n, o = first.outputs, last.outputs
    w = mean[: 3 * n].reshape(3, n), std[: 3 * n].reshape(3, n)
    v = mean[3 * n :].reshape(n + 1, o), std[3 * n :].reshape(n + 1, o)
    one = np.append(x, 1.0)
    z = one @ w[0] + np.sqrt(one**2 @ w[1] ** 2) * r.normal(size=(SAMPLES, n))
    f = between(torch.from_numpy(z)).numpy()
    f = np.concatenate([f, np.ones((SAMPLES, 1))], -1)
    y = f @ v[0] + np.sqrt(f**2 @ v[1] ** 2) * r.normal(size=(SAMPLES, o))
    rows, offsets = given.specification.rows[0].numpy(), given.specification.offsets[0].numpy()
    return float((y @ rows.T + offsets > 0).all(-1).mean())


class Bench(Desk):
    """A certificate whose laws are exchanged; by row the windows that the prover chose."""

    def __init__(self, folder: Path, given: Problem) -> None:
        super().__init__(folder, given)
        (self.entry,) = self.header["evidence"]["components"]
        self.said = {
            end: self.read(part, f"c0.{prefix}")
            for end, part, prefix in (
                ("lower", self.entry["lower"], ""),
                ("upper", (self.entry["upper"] or {}).get("failure", {}), "upper."),
            )
        }
        self.windows = {
            rows[0]: table[0]
            for said in self.said.values()
            for rows, _, table in said
            if len(rows) == 1
        }

    def read(self, value: dict[str, Any], prefix: str) -> Said:
        letter = "j" if "joint" in value else "t"
        laws = value.get("joint", value.get("together", []))
        return [
            (tuple(law["rows"]), tuple(law["terms"]), self.tensors[f"{prefix}{letter}{k}.windows"])
            for k, law in enumerate(laws)
        ]

    def laws(self, *rows: tuple[int, ...], terms: int = 14) -> Said:
        return [
            (each, (terms,) * len(each), np.stack([self.windows[row] for row in each]))
            for each in rows
        ]

    def judged(
        self,
        lower: Said | None = None,
        upper: Said | None = None,
        claim: tuple[float, float] = (0.0, 1.0),
        **changes: Any,
    ) -> Verdict:
        """With other laws, and members of the upper bound, or tensors."""
        header, tensors = json.loads(json.dumps(self.header)), dict(self.tensors)
        entry = header["evidence"]["components"][0]
        header["claim"] = {"lower": claim[0].hex(), "upper": claim[1].hex()}
        for prefix, laws in (("c0.j", lower), ("c0.upper.j", upper)):
            if laws is None:
                continue
            tensors = {k: v for k, v in tensors.items() if not k.startswith(prefix)}
            tensors |= {f"{prefix}{k}.windows": law[2] for k, law in enumerate(laws)}
            value = {
                "probability": "0x0p0",
                "joint": [{"rows": [*law[0]], "terms": [*law[1]]} for law in laws],
            }
            if prefix == "c0.j":
                entry["lower"] = value
            else:
                entry["upper"]["failure"] = value
        for name, value in changes.items():
            if name in tensors:
                tensors[name] = value
            else:
                entry["upper"][name] = value
        self.path.write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
        return check_certificate(self.path, self.model)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Of three rows at a point."""
    found = Bench(tmp_path_factory.mktemp("joint"), problem(LeakyReLU(0.1), outputs=4, seed=2))
    found.verdict()
    assert {len(rows) for rows, _, _ in found.said["lower"]} == {1, 2}
    assert {len(rows) for rows, _, _ in found.said["upper"]} == {1, 2}
    assert sorted(found.windows) == [0, 1, 2]
    return found


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Pairs beside a law of a small region."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bnncert.laws.proof.FEW", 0)  # inputs that lines are tried for
        found = Bench(tmp_path_factory.mktemp("together"), problem(ReLU(), 0.02, seed=1))
    assert "together" in found.entry["lower"]
    assert "threshold" not in found.entry["lower"]["law"]
    return found


KINDS = (ReLU(), LeakyReLU(0.1), Tanh())


@pytest.mark.parametrize("activation", KINDS, ids=map(str, KINDS))
def test_they_are_accepted_and_about_the_truth(activation: Activation, tmp_path: Path) -> None:
    given = problem(activation, seed=1)
    desk = Desk(tmp_path, given)
    verdict = desk.verdict()
    assert verdict.status == ACCEPT, verdict
    assert "joint" in desk.header["evidence"]["components"][0]["lower"]
    assert verdict.supported is not None
    lower, upper = verdict.supported
    off = 6 * 0.5 / SAMPLES**0.5
    assert lower - off < sampled(given) < upper + off
    assert upper - lower < 1e-3


def test_pairs_beside_a_law(region: Bench) -> None:
    """They raise it, as far as both rows fail at the point that is named."""
    claimed = region.verdict().claimed
    assert claimed is not None
    lower = region.entry["lower"]
    alone = {k: v for k, v in lower.items() if k != "together"}
    place = "evidence/components/0/lower"
    assert region.verdict((place, alone)).code == "malformed"  # tensors that nothing reads
    empty = region.verdict((place, lower | {"together": []}))
    assert empty.code == "malformed"
    for value in (None, {}, [{}], [{"rows": [0], "terms": [3]}], lower["together"] * 2):
        assert region.verdict((place, lower | {"together": value})).code == "malformed"
    table = region.tensors["c0.t0.windows"]
    single = (f"{place}/together", [{"rows": [0], "terms": [3]}])
    assert region.verdict(single, ("tensors/c0.t0.windows", table[:1])).code == "malformed"
    point = region.tensors["c0.t0.point"]
    away = region.verdict(("tensors/c0.t0.point", point + 0.1))
    assert away.code == "point-outside-region"
    other = region.verdict(("tensors/c0.t0.point", point + 0.001))
    assert other.status in (ACCEPT, REJECT)
    assert other.code in (None, "probability-too-high", "point-outside-region")
    few = region.verdict((f"{place}/together/0/terms", [1, 1]))
    assert few.code == "probability-too-high"
    wide = region.tensors["c0.t0.windows"] * [1, 1, 1, 1e-3, 1e-3]
    assert region.verdict(("tensors/c0.t0.windows", wide)).code == "probability-too-high"


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_what_rows_share_counts_once_more_for_every_pair(eps: float, tmp_path: Path) -> None:
    """Hidden neurons beyond the cells, and those that lines are too short for."""
    given = problem(ReLU())
    save_posterior(tmp_path / "p.safetensors", given.network, given.posterior)
    model = read_model(tmp_path / "p.safetensors")
    x, choice = np.full(2, 0.4), Choice(2.0**-8, -2000, 0.0, 9.0, 1e-4, 1.0)
    box, rows = Region("linf", x, eps, x - eps, x + eps), np.eye(3)[:1]
    common = (4, 1, 4, 1), 2**12, (choice,), None
    law = LineLaw(*common, 2.0, np.zeros((4, 4, 2)))
    about = model, model.components[0].posterior, box, rows, np.ones(1)
    none, two = (float(rows_of_laws.failure(*about, law, pairs)) for pairs in (0, 2))
    each = 4 * (2 * outside() + (ndtr(-2.0) if eps else 0.0))
    assert two - none == pytest.approx(2 * each, rel=1e-6)
    shared = SharedLaw(*common, np.ones((1, 3)), np.ones((1, 2)), np.zeros((1, 2)), (0.0,))
    with np.errstate(all="ignore"):
        none, two = (rows_of_laws.failure(*about, shared, pairs) for pairs in (0, 2))
    assert float(two - none) == pytest.approx(16 * outside(), rel=1e-6)


@pytest.mark.parametrize("end", ["lower", "upper"])
@pytest.mark.parametrize("column", range(5))
def test_windows_are_anything(bench: Bench, end: str, column: int) -> None:
    """Each number moved either way: what is supported is never on the wrong side of the truth."""
    truth, off = _truth(), 6 * 0.5 / SAMPLES**0.5
    for k in (0, -1):
        for factor in (0.5, 2.0):
            laws = [*bench.said[end]]
            rows, terms, table = laws[k]
            changed = table.copy()
            changed[0, column] = changed[0, column] * factor + (column == 2) * 0.1 * factor
            laws[k] = rows, terms, changed
            verdict = bench.judged(**{end: laws})
            assert verdict.status == ACCEPT, verdict
            assert verdict.supported is not None
            assert verdict.supported[0] - off < truth < verdict.supported[1] + off


@cache
def _truth() -> float:
    return sampled(problem(LeakyReLU(0.1), outputs=4, seed=2))


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (0, 0.0, "choice-out-of-range"),
        (0, 1.0, "choice-out-of-range"),
        (0, -(2.0**-101), "choice-out-of-range"),
        (0, -(2.0**101), "choice-out-of-range"),
        (0, -(2.0**100), "choice-out-of-range"),  # so far that 0 is an end
        (1, 0.0, "choice-out-of-range"),
        (1, -1.0, "choice-out-of-range"),
        (1, 2.0**101, "choice-out-of-range"),
        (2, -1.0, "choice-out-of-range"),
        (2, 2.0**-101, "choice-out-of-range"),
        (3, 0.0, "choice-out-of-range"),
        (3, 2.0**101, "choice-out-of-range"),
        (4, -1.0, "choice-out-of-range"),
        (4, np.nan, "malformed"),
        (4, np.inf, "malformed"),
        (1, 2.0**100, None),
        (2, 2.0**100, None),
        (3, 2.0**100, None),
        (4, 2.0**-100, None),
    ],
)
def test_windows_have_a_range(bench: Bench, column: int, value: float, code: str | None) -> None:
    laws = bench.laws((0,), (1,), (2,))
    laws[1][2][0, column] = value
    assert bench.judged(lower=laws).code == code


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([(0,), (1,), (2,)], None),
        ([(2,), (0, 1), (0,), (1,)], None),
        ([(0,), (1,), (2,), (1, 2), (0, 2)], None),
        ([], "malformed"),
        ([(0,), (1,)], "malformed"),
        ([(0,), (1,), (2,), (2,)], "malformed"),
        ([(0,), (1,), (1, 2)], "malformed"),
        ([(0,), (1,), (2,), (0, 1), (1, 0)], "malformed"),
        ([(0,), (1,), (2,), (0, 1), (0, 1)], "malformed"),
        ([(0,), (1,), (2,), (0, 1), (1, 2), (2, 0)], "malformed"),
        ([(0,), (1,), (2,), (0, 0)], "malformed"),
        ([(0,), (1,), (2,), (0, 1, 2)], "malformed"),
        ([(0,), (1,), (2,), ()], "malformed"),
    ],
)
def test_a_lower_end_needs_every_row_and_a_forest(
    bench: Bench, rows: list[tuple[int, ...]], code: str | None
) -> None:
    laws = [(each, (3,) * len(each), np.ones((len(each), 5)) * [-1, 1, 1, 1, 1]) for each in rows]
    assert bench.judged(lower=laws).code == code


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([(0,)], None),
        ([(0,), (2,), (2, 0)], None),
        ([(0, 1), (0,), (1,)], None),
        ([(0,), (1,), (2,), (0, 1), (1, 2), (2, 0)], None),
        ([(1,)], "malformed"),  # another row than is said
        ([], "malformed"),
        ([(0, 1)], "malformed"),
        ([(0,), (0,)], "malformed"),
        ([(0,), (1,), (0, 2)], "malformed"),
        ([(0,), (1,), (0, 1), (1, 0)], "malformed"),
        ([(0,), (1,)], "rows-not-opposite"),
        ([(0,), (1,), (2,), (0, 1), (1, 2)], "rows-not-opposite"),
    ],
)
def test_an_upper_end_needs_all_pairs(
    bench: Bench, rows: list[tuple[int, ...]], code: str | None
) -> None:
    laws = [(each, (3,) * len(each), np.ones((len(each), 5)) * [-1, 1, 1, 1, 1]) for each in rows]
    assert bench.judged(upper=laws, row=0).code == code


@pytest.mark.parametrize(
    ("law", "code"),
    [
        ({"rows": [0], "terms": [0]}, "malformed"),
        ({"rows": [0], "terms": [2**10 + 1]}, "malformed"),
        ({"rows": [0], "terms": [3, 3]}, "malformed"),
        ({"rows": [0], "terms": [3.0]}, "malformed"),
        ({"rows": [3], "terms": [3]}, "malformed"),
        ({"rows": [-1], "terms": [3]}, "malformed"),
        ({"rows": [True], "terms": [3]}, "malformed"),
        ({"rows": 0, "terms": [3]}, "malformed"),
        ({"rows": [0, 1], "terms": [3, 2**7 + 1]}, "malformed"),
        ({"rows": [0, 1], "terms": [2**7, 2**7]}, "too-large"),  # for so small a file
        ({"rows": [0]}, "malformed"),
        ({"rows": [0], "terms": [3], "panels": 3}, "malformed"),
        ([0], "malformed"),
    ],
)
def test_a_law_is_read_strictly(bench: Bench, law: Any, code: str) -> None:
    place = "evidence/components/0/lower/joint/0"
    assert bench.verdict((place, law)).code == code


@pytest.mark.parametrize(
    ("name", "value"), [("probability", 0.5), ("joint", {}), ("joint", None), ("law", {})]
)
def test_a_proof_is_read_strictly(bench: Bench, name: str, value: Any) -> None:
    assert bench.verdict((f"evidence/components/0/lower/{name}", value)).code == "malformed"


def test_tensors_are_read_strictly(bench: Bench) -> None:
    name = "tensors/c0.j0.windows"
    table = bench.tensors["c0.j0.windows"]
    for value in (table[:, :4], table[0], table.astype(np.float32)):
        assert bench.verdict((name, value.copy())).code == "malformed"
    assert bench.verdict(("tensors/c0.j9.windows", table)).code == "malformed"


def test_time_is_paid_for(bench: Bench) -> None:
    laws = bench.laws(*[(0,)] * 40, terms=2**10)
    assert bench.judged(lower=laws).code == "too-large"


def test_forged_claims_are_refused(bench: Bench) -> None:
    """The prover's laws support no more than they do."""
    supported = bench.verdict().supported
    assert supported is not None
    lower, upper = supported
    said = bench.said
    assert bench.judged(said["lower"], claim=(lower, upper)).status == ACCEPT
    up, down = np.nextafter(lower, 1), np.nextafter(upper, 0)
    assert bench.judged(said["lower"], claim=(up, upper)).code == "probability-too-high"
    assert bench.judged(upper=said["upper"], claim=(lower, down)).code == "upper-too-low"
    alone = [law for law in said["lower"] if len(law[0]) == 1]
    assert bench.judged(alone, claim=(lower, upper)).code == "probability-too-high"
    swapped = [(rows[::-1], terms, table) for rows, terms, table in said["lower"]]
    assert bench.judged(swapped).status == ACCEPT


def test_the_upper_bound_is_at_its_point(bench: Bench) -> None:
    away = bench.judged(**{"c0.point": bench.tensors["c0.point"] + 1e-3})
    assert away.code == "point-outside-region"
    against = bench.entry["upper"] | {"opposite": {"row": 1, "failure": {}}}
    assert bench.verdict(("evidence/components/0/upper", against)).code == "malformed"


def test_joint_laws_are_of_points(region: Bench) -> None:
    """A law of all rows at the centre says nothing of the region."""
    table = np.ones((1, 5)) * [-9, 9, 1, 1, 1]
    laws = [((row,), (3,), table) for row in (0, 1)]
    kept = region.tensors
    names = ("c0.law", "c0.t")
    region.tensors = {k: v for k, v in kept.items() if not k.startswith(names)}
    assert region.judged(lower=laws).code == "unsupported"
    region.tensors = kept


def test_opposite_rows_exclude_each_other_if_they_do(tmp_path: Path) -> None:
    given = problem(ReLU(), outputs=2)
    x, network = ball(vector(0.4, 0.4).reshape(1, 2), 0), given.network
    rows = torch.tensor([[[1.0, 0.0], [-1.0, 0.0], [-1.0, 1.0]]]).double()
    middle = float(network.forward(given.posterior.mean, x.center)[0, 0])
    for offsets, code in (((0.5, 0.5), None), ((0.5, -0.5), "rows-not-opposite")):
        ends = torch.tensor([[offsets[0] - middle, offsets[1] + middle, 9.0]]).double()
        own = Bench(tmp_path, Problem(network, given.posterior, Specification(x, rows, ends)))
        table = np.ones((1, 5)) * [-9, 9, 0, 1, 1]
        laws = [((row,), (40,), table) for row in (0, 1)]
        upper = {"row": 0, "failure": {}}
        own.header["evidence"]["components"][0]["upper"] = upper
        own.tensors = {
            k: v for k, v in own.tensors.items() if not k.startswith(("c0.upper.", "c0.opp"))
        } | {"c0.point": x.center[0].numpy()}
        verdict = own.judged(upper=laws)
        assert verdict.code == code, verdict
        others = [((row,), (40,), table) for row in (0, 2)]
        assert own.judged(upper=others).code == "rows-not-opposite"


def test_one_input_moves_with_anchors_and_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is shared among rows there: what pairs fail together is gained."""
    monkeypatch.setattr("bnncert.joint.search.THERE", 0.0)
    generator = torch.Generator().manual_seed(0)
    network = mlp(1, 4, 3, activation=Tanh())
    mean = gaussian(network.size, generator=generator)
    region = ball(vector(0.4).reshape(1, 1), 0.5)
    label = network.forward(mean, region.center).argmax(-1)
    posterior = Normal(mean, torch.full_like(mean, 0.4))
    own = Desk(tmp_path, Problem(network, posterior, class_robust(region, label, 3)))
    lower = own.header["evidence"]["components"][0]["lower"]
    assert "along" in lower["law"]
    assert [law["rows"] for law in lower["together"]] in ([[0, 1]], [[1, 0]])
    together = own.verdict()
    assert together.status == ACCEPT, together
    own.header["evidence"]["components"][0]["lower"] = {
        name: said for name, said in lower.items() if name != "together"
    }
    own.tensors = {k: v for k, v in own.tensors.items() if not k.startswith("c0.t0.")}
    alone = own.verdict()
    assert alone.code == "probability-too-high"
    assert together.supported is not None
    assert alone.supported is not None
    assert together.supported[0] > alone.supported[0] + 1e-4


@pytest.mark.parametrize("kind", ["curve", "deep"])
def test_other_networks_are_refused(kind: str, tmp_path: Path) -> None:
    activation = Softplus() if kind == "curve" else ReLU()
    network = mlp(2, 4, 3, activation=activation)
    if kind != "curve":
        network = Network((2,), (Dense(2, 3), ReLU(), Dense(3, 4), ReLU(), Dense(4, 3)))
    mean = torch.ones(network.size).double()
    region = ball(vector(0.4, 0.4).reshape(1, 2), 0)
    rows = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]).double()
    spec = Specification(region, rows, torch.tensor([[-9.0, -9.0]]).double())
    own = Bench(tmp_path, Problem(network, Normal(mean, mean / 9), spec))
    own.tensors = {k: v for k, v in own.tensors.items() if not k.startswith("c0.")}
    own.header["evidence"]["components"][0]["upper"] = None
    table = np.ones((1, 5)) * [-9, 9, 1, 1, 1]
    laws = [((row,), (3,), table) for row in (0, 1)]
    assert own.judged(lower=laws).code == "unsupported"


def test_behind_certain_layers(tmp_path: Path) -> None:
    """The box that they leave is charged: the truth is inside, with the same weights."""
    network = Network((2,), (Dense(2, 3), Tanh(), Dense(3, 4), ReLU(), Dense(4, 3)))
    generator = torch.Generator().manual_seed(3)
    mean = gaussian(network.size, generator=generator)
    std = torch.full_like(mean, 0.3)
    std[:9] = 0
    region = ball(vector(0.4, -0.3).reshape(1, 2), 0)
    label = network.forward(mean, region.center).argmax(-1)
    own = Desk(tmp_path, Problem(network, Normal(mean, std), class_robust(region, label, 3)))
    assert "joint" in own.header["evidence"]["components"][0]["lower"]
    verdict = own.verdict()
    assert verdict.status == ACCEPT, verdict
    inner = Network((3,), network.layers[2:])
    h = torch.tanh(region.center @ mean[:6].reshape(2, 3) + mean[6:9])
    given = Problem(inner, Normal(mean[9:], std[9:]), class_robust(ball(h, 0), label, 3))
    again = Desk(tmp_path, given).verdict()
    assert verdict.supported is not None
    assert again.supported is not None
    assert np.abs(np.subtract(verdict.supported, again.supported)).max() < 1e-4


def test_pairs_behind_certain_layers_take_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair is some bytes of a file, and a walk over large images takes seconds."""
    network = Network((2,), (Dense(2, 3), Tanh(), Dense(3, 4), ReLU(), Dense(4, 6)))
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(3))
    std = torch.full_like(mean, 0.3)
    std[:9] = 0
    region = ball(vector(0.4, -0.3).reshape(1, 2), 1e-3)
    label = network.forward(mean, region.center).argmax(-1)
    own = Desk(tmp_path, Problem(network, Normal(mean, std), class_robust(region, label, 6)))
    (entry,) = own.header["evidence"]["components"]
    entry["upper"], entry["lower"] = None, {"probability": "0x0p0", "law": entry["lower"]["law"]}
    own.header["claim"] = {"lower": "0x0p0", "upper": "0x1p0"}
    own.tensors = {k: v for k, v in own.tensors.items() if not k.startswith(("c0.t", "c0.upper."))}
    own.tensors.pop("c0.point", None)
    walks, walk = [], Bounded.walk
    monkeypatch.setattr(Bounded, "walk", lambda *about: walks.append(0) or walk(*about))
    assert own.verdict().status == ACCEPT
    before = len(walks)
    assert before
    own.tensors |= {f"c0.t{k}.windows": np.ones((2, 5)) * [-9, 9, 1, 1, 1] for k in range(4)}
    own.tensors |= {f"c0.t{k}.point": region.center[0].numpy() for k in range(4)}
    entry["lower"]["together"] = [{"rows": [k, k + 1], "terms": [9, 9]} for k in range(4)]
    assert own.verdict().status == ACCEPT
    assert len(walks) == 2 * before


def test_parts_of_a_mixture(tmp_path: Path) -> None:
    one, two = problem(ReLU(), seed=1), problem(ReLU(), seed=1, std=0.2)
    posterior = Mixture((0.25, 0.75), (one.posterior, two.posterior))
    own = Desk(tmp_path, Problem(one.network, posterior, one.specification))
    assert all("joint" in part["lower"] for part in own.header["evidence"]["components"])
    verdict = own.verdict()
    assert verdict.status == ACCEPT, verdict
    assert verdict.supported is not None
    truth, off = (sampled(one) + 3 * sampled(two)) / 4, 6 * 0.5 / SAMPLES**0.5
    assert verdict.supported[0] - off < truth < verdict.supported[1] + off
