"""Certified radii bracket the truth, and say so in files."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch

from bnncert import InputError, Problem, ball, explicit_box, half_space, mlp
from bnncert.methods import Concentration
from bnncert.model.box import Box
from bnncert.model.specification import Specification
from bnncert.posteriors import Normal
from bnncert.radius import Search, certified_radii

# y = w x with w ~ N(1, 0.1²) is above 1/2 for all x of [1 - e, 1 + e] iff w > 1 / (2 - 2e): with
# probability 0.95 where that is 1 - 0.1 z, z the quantile of 0.95.
TRUTH = 1 - 0.5 / (1 - 0.1 * 1.6448536269514722)
BOTH = Concentration(effort=0, upper=True)


def above_half(x: torch.Tensor) -> Problem:
    mean, std = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.1, 0.0]).double()
    return Problem(mlp(1, 1), Normal(mean, std), half_space(ball(x, 0.0), torch.ones(1), 0.5))


def test_the_true_radius_lies_between_the_ends() -> None:
    found = certified_radii(
        above_half(torch.ones(1, 1).double()), BOTH, Decimal("0.95"), search=Search(precision=1e-4)
    )
    (radius,) = found.radii
    assert radius.certified is not None
    assert radius.falsified is not None
    assert radius.certified <= TRUTH <= radius.falsified
    assert radius.falsified - radius.certified < 0.25
    ends = {row.eps: row for row in found.rows}
    assert ends[radius.certified].lower >= 0.95 > ends[radius.falsified].upper
    assert ends[radius.certified].certificate is not None


def test_inputs_without_a_radius() -> None:
    """At 1/4 half is missed whatever w is; at 1000 no radius asked about is falsified."""
    x = torch.tensor([[0.25], [1000.0]]).double()
    found = certified_radii(above_half(x), BOTH, Decimal("0.95"), indices=[3, 9])
    assert [(one.index, one.certified, one.falsified) for one in found.radii] == [
        (3, None, 0.0),
        (9, 1.0, None),
    ]
    assert [row.index for row in found.rows] == [3, 9]


def test_a_method_without_upper_bounds_falsifies_nothing() -> None:
    found = certified_radii(
        above_half(torch.tensor([[1.0], [0.25]]).double()),
        Concentration(effort=0),
        Decimal("0.95"),
    )
    assert [one.falsified for one in found.radii] == [None, None]
    assert found.radii[1].certified is None
    assert [row.index for row in found.rows] == [0, 1]  # what is not known has a row too


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_files(tmp_path: Path) -> None:
    found = certified_radii(above_half(torch.ones(1, 1).double()), BOTH, Decimal("0.95"))
    found.save(tmp_path / "out")
    (line,) = lines_of(tmp_path / "out" / "radii.jsonl")
    assert line["at_least"] == "0.95"
    rows = lines_of(tmp_path / "out" / "results.jsonl")
    assert {row["eps"] for row in rows} == {line["certified"], line["falsified"]}
    assert all((tmp_path / "out" / row["certificate"]).is_file() for row in rows)


def test_an_interrupt_keeps_what_is_known() -> None:
    calls = []

    class Impatient(Concentration):
        def __call__(self, problem: Problem, seed: int) -> list:  # type: ignore[type-arg]
            calls.append(len(problem))
            if len(calls) > 3:
                raise KeyboardInterrupt
            return super().__call__(problem, seed)

    problem = above_half(torch.ones(1, 1).double())
    found = certified_radii(problem, Impatient(effort=0, upper=True), Decimal("0.95"))
    assert found.interrupted
    assert found.radii[0].certified == 0.02  # 0, 0.01, 0.02 were asked
    calls[:] = [1, 1, 1]
    with pytest.raises(KeyboardInterrupt):
        certified_radii(problem, Impatient(effort=0, upper=True), Decimal("0.95"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"first": 0.0}, "two finite numbers above 0"),
        ({"first": 2.0}, "the smaller one first"),
        ({"largest": math.inf}, "two finite numbers"),
        ({"precision": 1.0}, "a share between 0 and 1"),
    ],
)
def test_bad_searches(options: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Search(**options)


def test_a_box_has_no_radius() -> None:
    spec = above_half(torch.ones(1, 1).double()).specification
    boxed = Specification(explicit_box(Box.point(spec.region.center)), spec.rows, spec.offsets)
    problem = Problem(mlp(1, 1), Normal(torch.ones(2).double(), torch.ones(2).double()), boxed)
    with pytest.raises(InputError, match="give a ball, not a box"):
        certified_radii(problem, BOTH, Decimal("0.95"))


def test_both_ends_of_an_input_ask_the_same_rows() -> None:
    """Whatever inputs are asked about beside it, and the rows of both repeat in the first alone."""
    matrix = torch.tensor([[[1.0], [2.0]], [[1.0], [3.0]]]).double()
    x = torch.tensor([[0.37549583822854055], [0.056593866734304984]]).double()
    spec = Specification(ball(x, 0.0), matrix, torch.tensor([[0.0, 0.0], [0.0, 0.1]]).double())
    mean, std = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.01, 0.01]).double()
    asked = Problem(mlp(1, 1), Normal(mean, std), spec)
    found = certified_radii(asked, Concentration(upper=True), "0.95", search=Search(precision=0.2))
    ends = [row.certificate for row in found.rows if row.index == 0]
    assert [end.rows.tolist() for end in ends if end] == [[[1.0], [2.0]]] * 2
