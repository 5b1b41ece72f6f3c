"""NaN among the numbers of a law, wherever it comes from, is never accepted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest

from bnncert_check import ACCEPT
from bnncert_check.arithmetic import as_probability
from bnncert_check.evidence import concentration
from bnncert_check.laws import rows
from bnncert_check.laws.corners import Margins
from bnncert_check.laws.lattice import Ends
from bnncert_check.laws.rows import Law
from checking import Desk
from test_laws import problem

FORMS = {"shared": 0, "lines": 8}  # by the most inputs that lines are tried for


@pytest.fixture(scope="module", params=FORMS)
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bnncert.laws.proof.FEW", FORMS[request.param])
        folder = tmp_path_factory.mktemp(request.param)
        found = Desk(folder, problem((2, 3, 3), 0.05, 5), upper=False, joint=False)
    law = found.header["evidence"]["components"][0]["lower"]["law"]
    assert ("threshold" in law) == (request.param == "lines")
    assert found.verdict().status == ACCEPT
    return found


def spoilt(value: Any) -> Any:
    """With NaN for a number, or for the first of an array's."""
    if isinstance(value, float):
        return math.nan
    if isinstance(value, tuple):
        return (math.nan, *value[1:])
    changed = value.copy()
    changed.reshape(-1)[0] = math.nan
    return changed


def spoiling(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What the function gives, with NaN in the field."""

    def called(*given: Any) -> Any:
        found = function(*given)
        return replace(found, **{name: spoilt(getattr(found, name))})

    return called


NUMBERS = [field.name for field in fields(Margins) if field.name != "inputs"]


@pytest.mark.parametrize("name", NUMBERS)
def test_of_a_margin(name: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "margins", spoiling(rows.margins, name))
    assert desk.verdict().status != ACCEPT


@pytest.mark.parametrize("name", [field.name for field in fields(Ends)])
def test_of_an_end(name: str, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ends_of", spoiling(rows.ends_of, name))
    assert desk.verdict().status != ACCEPT


def test_of_a_certain_bias(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose law is a step, below which NaN lies no more than above."""
    certain = partial(replace, beta=math.nan, beta_std=0.0)
    monkeypatch.setattr(rows, "ends_of", lambda *given, own=rows.ends_of: certain(own(*given)))
    assert desk.verdict().status != ACCEPT


def of_lattices(law: Law) -> Iterator[Law]:
    first, *others = law.choices
    for name in ("step", "rate", "curb", "noise", "tilt"):
        yield replace(law, choices=(replace(first, **{name: math.nan}), *others))


def of_others(law: Law) -> Iterator[Law]:
    for name in {field.name for field in fields(law)} - {"cells", "size", "choices", "trunk"}:
        yield replace(law, **{name: spoilt(getattr(law, name))})


@pytest.mark.parametrize("changes", [of_lattices, of_others])
def test_of_what_was_chosen(
    changes: Callable[[Law], Iterator[Law]], desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where reading has let it pass."""
    read: list[Law] = []
    original = concentration.read_law
    monkeypatch.setattr(
        concentration, "read_law", lambda *given: read.append(original(*given)) or read[-1]
    )
    assert desk.verdict().status == ACCEPT
    spoiled = list(changes(read[0]))
    assert len(spoiled) > 1
    for law in spoiled:
        monkeypatch.setattr(concentration, "read_law", lambda *_, law=law: law)
        assert desk.verdict().status != ACCEPT


def test_of_a_probability() -> None:
    assert [as_probability(x) for x in (-0.5, 0.25, 1.5)] == [0.0, 0.25, 1.0]
    assert math.isnan(as_probability(math.nan))
