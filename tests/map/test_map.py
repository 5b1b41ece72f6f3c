"""Maps: never above the truth, resumed as if nothing had happened, within their budgets."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from bnncert import InputError, mlp
from bnncert.data.regions import Dimension, OperatingRegion
from bnncert.map.cells import Cell
from bnncert.map.condition import parse_condition
from bnncert.map.folder import question_of, read_map, worst, write_map, write_table
from bnncert.map.proving import Prover
from bnncert.map.run import Budget, Mapping, Progress, smallest_sizes
from bnncert.map.store import open_store
from bnncert.methods import PIE, Concentration, Enumeration
from bnncert.outcome import Method
from bnncert.posteriors import Empirical, Normal
from bnncert.posteriors.base import Posterior, sample
from bnncert.results.rows import Status
from scenarios import vector

LINE = OperatingRegion((Dimension("x", Fraction(-1), Fraction(1), "m"),))
CONDITIONS = (
    "class predicted",
    "class not 0",
    "y0 >= -0.5 and (y1 >= 0.25 or y0 - y1 >= 0.25)",
    "y0 >= 0.5 or y1 >= 0.5 and y0 >= -1",
)


def mapping(
    folder: Path,
    posterior: Posterior,
    condition: str,
    *,
    method: Method | None = None,
    parts: int = 8,
    budget: Budget | None = None,
    show: Callable[[Progress], None] = lambda _: None,
) -> bool:
    """Map the line by a linear network of two outputs; whether nothing is left open."""
    network = mlp(1, 2)
    chosen = method or Concentration(effort=0, at_least=0.9)
    prover = Prover(network, posterior, parse_condition(condition, 2), chosen, "0.9")
    box = LINE.box((1,))
    region = Cell(0, box.lower[0].numpy(), box.upper[0].numpy())
    sizes = smallest_sizes(LINE, region.lower, region.upper, parts)
    with open_store(folder) as store:
        store.enter(condition + chosen.name)
        run = Mapping(store, prover, region, sizes, budget or Budget(60, 10_000), show)
        complete = run.run()
        write_map(store, question_of(prover, LINE, region, "0.9"), region)
    return complete


def holds(condition: str, outputs: torch.Tensor, label: int | None) -> torch.Tensor:
    """Whether networks [S] satisfy it at all points, outputs [S, P, 2]."""
    labels = torch.full((len(outputs),), label or 0)
    clauses = parse_condition(condition, 2).margins(outputs, labels)
    each = torch.stack([torch.stack(clause).amax(0) for clause in clauses]).amin(0)
    return (each > 0).all(1)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_on_every_cell(condition: str, seed: int, tmp_path: Path) -> None:
    """Lines over an interval, checked on a fine grid for 4,000 drawn networks."""
    generator = torch.Generator().manual_seed(seed)
    mean = 2 * torch.rand(4, generator=generator, dtype=torch.float64) - 1
    posterior = Normal(mean, torch.full_like(mean, 0.1))
    assert mapping(tmp_path / "m", posterior, condition)
    drawn = sample(posterior, 4000, seed)
    found = read_map(tmp_path / "m")
    for each in found.cells:
        x = torch.linspace(float(each.cell.lower[0]), float(each.cell.upper[0]), 51).double()
        outputs = mlp(1, 2).forward(drawn, x.unsqueeze(1))
        safe = float(holds(condition, outputs, each.label).double().mean())
        slack = 4 * (0.25 / 4000) ** 0.5
        assert each.lower - slack <= safe <= each.upper + slack
    assert sum(found.shares().values()) == 1
    lower, upper = found.mean()
    assert 0 <= lower <= upper <= 1


def test_alternatives_that_hold_on_different_parts(tmp_path: Path) -> None:
    """y0 = x > 0 or y1 = -x > 0 fails at 0 alone; no alternative holds everywhere. A bound that
    added up what alternatives reach on the whole cell would be 0, and false for cells beside 0."""
    posterior = Normal(vector(1.0, -1.0, 0.25, 0.25), vector(0.01, 0.01, 0.01, 0.01))
    mapping(tmp_path / "m", posterior, "y0 >= 0 or y1 >= 0", parts=1)
    (cell,) = read_map(tmp_path / "m").cells
    assert cell.upper == 1.0  # it holds on all of the cell, by one alternative or the other
    assert cell.status is Status.UNDECIDED


def test_statuses_and_cuts(tmp_path: Path) -> None:
    """y0 = x, y1 = 0: class 1 below 0, class 0 above; only cells at 0 are falsified."""
    posterior = Normal(vector(1.0, 0.0, 0.0, 0.0), vector(0.001, 0.001, 0.001, 0.001))
    assert mapping(tmp_path / "m", posterior, "class 0")
    found = read_map(tmp_path / "m")
    # From -1 to 0 nothing is safe, which is known without cutting it to pieces.
    first = found.cells[0]
    assert (first.status, first.cell.lower[0], first.cell.upper[0]) == (Status.FALSIFIED, -1, 0)
    assert first.point is not None
    assert -1 <= first.point[0] <= 0
    assert found.shares()[Status.CERTIFIED] == Fraction(3, 8)  # all but the cell next to 0
    assert worst(found)[0].upper == min(each.upper for each in found.cells)
    write_table(tmp_path / "m", found)
    rows = (tmp_path / "m" / "cells.csv").read_text().splitlines()
    assert rows[0].startswith("cell,x [m] from,x [m] to,share,status")
    assert len(rows) == 1 + len(found.cells)


def test_a_run_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    posterior = Normal(vector(1.0, 0.0, 0.01, 0.0), vector(0.001, 0.001, 0.001, 0.001))
    assert mapping(tmp_path / "whole", posterior, "class predicted")

    def end(state: Progress) -> None:
        if state.cells > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mapping(tmp_path / "parts", posterior, "class predicted", show=end)
    assert mapping(tmp_path / "parts", posterior, "class predicted")
    whole, parts = (
        [json.loads(text) for text in (tmp_path / name / "cells.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    )
    assert whole == parts


def test_budgets(tmp_path: Path) -> None:
    posterior = Normal(vector(1.0, 0.0, 0.01, 0.0), vector(0.001, 0.001, 0.001, 0.001))
    said = "class predicted"
    assert not mapping(tmp_path / "m", posterior, said, budget=Budget(60, 3))
    found = read_map(tmp_path / "m")
    assert len(found.cells) == 3
    assert found.shares()[Status.UNDECIDED] > 0  # claims nothing, and has no certificate
    assert not mapping(tmp_path / "m", posterior, said, budget=Budget(1e-9, 100))
    assert mapping(tmp_path / "m", posterior, said)
    with pytest.raises(InputError, match="seconds above 0"):
        Budget(0, 1)
    with pytest.raises(InputError, match="cells are 0"):
        Budget(1, 0)
    with pytest.raises(InputError, match="parts are 0"):
        mapping(tmp_path / "n", posterior, said, parts=0)


def test_folders(tmp_path: Path) -> None:
    posterior = Normal(vector(1.0, 0.0, 0.0, 0.0), vector(0.001, 0.001, 0.001, 0.001))
    mapping(tmp_path / "m", posterior, "class 0")
    with pytest.raises(InputError, match="holds the map of another question"):
        mapping(tmp_path / "m", posterior, "class 1")
    with (
        open_store(tmp_path / "m"),
        pytest.raises(InputError, match="another run is at work on"),
    ):
        mapping(tmp_path / "m", posterior, "class 0")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        mapping(tmp_path / "file", posterior, "class 0")
    with pytest.raises(InputError, match="is not empty and holds no map"):
        mapping(tmp_path, posterior, "class 0")
    with pytest.raises(InputError, match="is no map"):
        read_map(tmp_path)
    (tmp_path / "m" / "map.sqlite").write_bytes(b"not a store, but long enough to be one" * 99)
    with pytest.raises(InputError, match="cannot be read or written"):
        mapping(tmp_path / "m", posterior, "class 0")


@pytest.mark.parametrize("kind", ["enumeration", "pie"])
def test_other_methods(kind: str, tmp_path: Path) -> None:
    mean = vector(1.0, 0.0, 0.0, 0.0)
    posterior: Posterior = Normal(mean, torch.full_like(mean, 0.001))
    method: Method = PIE(samples=1)
    if kind == "enumeration":
        posterior, method = Empirical(mean.expand(3, -1).contiguous()), Enumeration()
    assert mapping(tmp_path / "m", posterior, "class 0", method=method, parts=4)
    shares = read_map(tmp_path / "m").shares()
    assert shares[Status.CERTIFIED] > 0
    assert (shares[Status.FALSIFIED] > 0) == (kind == "enumeration")


def test_smallest_sizes_of_the_region() -> None:
    """In their unit; what the file says comes before the number of parts."""
    side = Dimension("x", Fraction(0), Fraction(8), scale=Fraction(2), smallest=Fraction(2))
    region = OperatingRegion((side, Dimension("y", Fraction(0), Fraction(1))))
    box = region.box((2,))
    sizes = smallest_sizes(region, box.lower[0].numpy(), box.upper[0].numpy(), 4)
    assert sizes == pytest.approx([1.0, 0.25])
