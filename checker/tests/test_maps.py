"""Maps: cells cover the region, and every cell's certificates are about that cell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import (
    Box,
    Problem,
    ball,
    certify,
    class_robust,
    decide,
    explicit_box,
    half_space,
    load_posterior,
    mlp,
    read_certificate,
    save_posterior,
)
from bnncert.data.regions import Dimension, OperatingRegion
from bnncert.map.cells import Cell
from bnncert.map.condition import Row, parse_condition
from bnncert.map.folder import question_of, write_map
from bnncert.map.proving import Prover
from bnncert.map.run import Budget, Mapping, smallest_sizes
from bnncert.map.store import open_store
from bnncert.methods import Concentration
from bnncert.posteriors import Empirical, Normal, Uniform
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.gaussian import Mixture
from bnncert_check import ACCEPT, CannotCheck, Verdict, read_model
from bnncert_check.__main__ import run
from bnncert_check.certificate import examine
from bnncert_check.conditions import in_words, require_predicted
from bnncert_check.maps import _shown, check_map
from bnncert_check.model import Model
from bnncert_check.question import Question, said
from bnncert_check.verdict import Rejected

REGION = OperatingRegion(
    (
        Dimension("distance", Fraction(0), Fraction(10), "km", scale=Fraction(10)),
        Dimension("speed", Fraction(0), Fraction(1)),
        Dimension("height", Fraction(1), Fraction(1)),  # of length 0
    )
)
EITHER = "class 0 or y1 - y0 >= 0.125"  # on one side of a gap or on the other

Change = Callable[[dict[str, Any], list[dict[str, Any]]], object]


def mapped(place: Path, condition: str, parts: int = 4) -> Path:
    """The map of a network whose outputs are its first two inputs, nearly surely."""
    network = mlp(3, 2)
    mean = torch.tensor([1, 0, 0, 1, 0, 0, 0, 0]).double()
    posterior = Normal(mean, torch.full_like(mean, 0.01))
    save_posterior(place / "p.safetensors", network, posterior)
    method = Concentration(effort=0, at_least=0.95)
    prover = Prover(network, posterior, parse_condition(condition, 2), method, "0.95")
    box = REGION.box(network.input_shape)
    region = Cell(0, box.lower[0].numpy(), box.upper[0].numpy())
    sizes = smallest_sizes(REGION, region.lower, region.upper, parts)
    with open_store(place / "out") as store:
        store.enter("tests")
        Mapping(store, prover, region, sizes, Budget(60, 1000), lambda _: None).run()
        write_map(store, question_of(prover, REGION, region, "0.95"), region)
    return place


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mapped(tmp_path_factory.mktemp("predicted"), "class predicted")


@pytest.fixture(scope="module")
def either(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mapped(tmp_path_factory.mktemp("either"), EITHER)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clauses: rows, and a disjunction."""
    return mapped(tmp_path_factory.mktemp("several"), f"y0 >= -1 and ({EITHER})")


def verdicts(place: Path, tmp_path: Path, change: Change | None = None) -> list[Verdict]:
    """Of the map, or of one that was changed."""
    folder = tmp_path / "changed"
    shutil.copytree(place / "out", folder)
    about = json.loads((folder / "map.json").read_text())
    lines = [json.loads(text) for text in (folder / "cells.jsonl").read_text().splitlines()]
    if change is not None:
        change(about, lines)
        (folder / "map.json").write_text(json.dumps(about))
        (folder / "cells.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(check_map(folder, read_model(place / "p.safetensors")))


def codes(place: Path, tmp_path: Path, change: Change) -> set[str]:
    return {verdict.code for verdict in verdicts(place, tmp_path, change) if verdict.code}


def of(status: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The first line of a status."""
    return next(line for line in lines if line["status"] == status)


@pytest.mark.parametrize("name", ["predicted", "either", "several"])
def test_maps_of_the_prover_are_accepted(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = request.getfixturevalue(name)
    found = verdicts(place, tmp_path)
    assert {verdict.status for verdict in found} == {ACCEPT}
    lines = [json.loads(text) for text in (place / "out" / "cells.jsonl").read_text().splitlines()]
    assert {line["status"] for line in lines} >= {"certified", "falsified"}
    assert run(place / "out", place / "p.safetensors", as_json=False) == 0
    said = capsys.readouterr().out
    assert "cells cover the region (distance 0 to 10 km, speed 0 to 1, height 1 to 1)" in said
    assert "distance reads 0.0 to" in said


def set_map(**values: Any) -> Change:
    return lambda about, _: about.update(values)


def set_side(**values: Any) -> Change:
    return lambda about, _: about["region"][0].update(values)


def set_line(which: str, **values: Any) -> Change:
    return lambda _, lines: of(which, lines).update(values)


def drop(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del about, lines[3]


def repeat(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del about
    lines.append(lines[0])


def shift_cut(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del lines
    about["cuts"][-1][2] = float.fromhex(about["cuts"][-1][2]).__add__(2**-50).hex()


def cut_outside(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del lines
    about["cuts"][0][2] = (7.0).hex()


def cut_again(dimension: int, at: float) -> Change:
    """The first certified cell, which is doubled."""

    def change(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        line, above = of("certified", lines), 1 + max(cut[4] for cut in about["cuts"])
        about["cuts"].append([line["cell"], dimension, at.hex(), above, above + 1])
        lines.append(line | {"cell": above + 1})
        line["cell"] = above
        about["shares"] = {name: [0.0, 1.0] for name in about["shares"]}

    return change


def cut_at_an_end(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    cut_again(0, of("certified", lines)["low"][0])(about, lines)


cut_a_side_of_length_0 = cut_again(2, 1.0)


def swap_certificates(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del about
    certified = [line for line in lines if line["status"] == "certified" and line["class"] == 0]
    first, second = certified[:2]
    first["below"], second["below"] = second["below"], first["below"]


def swap_uppers(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del about
    first, second = [line for line in lines if line["status"] == "falsified"][:2]
    first["above"], second["above"] = second["above"], first["above"]


def test_a_certificate_is_examined_once_whatever_it_is_called(
    predicted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes that name it again would have it computed again."""
    looked: list[Path] = []

    def counted(path: Path, model: Model) -> tuple[Verdict, Question | None]:
        looked.append(path.resolve())
        return examine(path, model)

    def name_again(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        del about
        line = of("certified", lines)
        line["above"] = {"clause": 0, "certificates": [f"./{line['below'][0]}"]}

    monkeypatch.setattr("bnncert_check.maps.examine", counted)
    assert {verdict.status for verdict in verdicts(predicted, tmp_path, name_again)} == {ACCEPT}
    assert len(looked) == len(set(looked)) > 1


def grow_shares(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del lines
    about["shares"]["certified"] = [0.99, 0.99]


def other_class(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    del about
    line = of("certified", lines)
    line["class"] = 1 - line["class"]


def grow_line(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """The cell itself says that it is larger than the part that was cut."""
    del about
    line = of("certified", lines)
    line["high"] = [end + 0.01 for end in line["high"]]


NOT = "malformed"
GAPS = "cells-do-not-cover"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (drop, GAPS),
        (repeat, "result-repeated"),
        (shift_cut, GAPS),
        (cut_outside, GAPS),
        (cut_at_an_end, GAPS),
        (cut_a_side_of_length_0, GAPS),
        (grow_line, GAPS),
        (swap_certificates, "cell-mismatch"),
        (swap_uppers, "cell-mismatch"),
        (other_class, "result-mismatch"),
        (grow_shares, "result-mismatch"),
        (set_map(at_least="1"), "result-mismatch"),
        (set_map(at_least="2"), NOT),
        (set_map(schema="bnncert-map/9"), "unsupported"),
        (set_map(digests={"architecture": "", "posterior": ""}), "digest-mismatch"),
        (set_map(more=1), NOT),
        (set_map(region=[]), NOT),
        (set_map(condition={"text": "", "clauses": []}), NOT),
        (set_map(condition={"text": "", "clauses": [[[7]]]}), NOT),
        (set_side(high="11"), GAPS),
        (set_side(low="-1/1000000000000000000"), GAPS),
        (set_side(scale="9"), GAPS),
        (set_side(scale="0"), NOT),
        (set_side(high="-1"), NOT),
        (set_side(high="1/1000000"), GAPS),  # shares would be those of other places
        (set_side(low="1/1000000"), GAPS),
        (set_side(name="speed"), NOT),  # as another side
        (set_side(high="1e1"), NOT),
        (set_side(upper=(2.0).hex()), GAPS),  # then the cells are too small
        (set_line("certified", lower=1.0), "probability-too-high"),
        (set_line("certified", lower=0.0), "result-mismatch"),  # of its status
        (set_line("certified", below=[]), "probability-too-high"),
        (set_line("certified", below=[None]), "probability-too-high"),
        (set_line("certified", below=["a", "b"]), NOT),
        (set_line("certified", below=["nothing.safetensors"]), "unreadable"),
        (set_line("certified", below=["../p.safetensors"]), NOT),
        (set_line("certified", **{"class": 7}), NOT),
        (set_line("certified", **{"class": None}), NOT),
        (set_line("certified", lower=0.97, upper=0.96), "claim-not-a-probability"),
        (set_line("certified", point=[1.0]), NOT),
        (set_line("certified", point=[9.0, 0.0, 1.0]), NOT),  # outside the cell
        (set_line("certified", low=[0.0]), NOT),
        (set_line("certified", cell=10**6), GAPS),
        (set_line("falsified", upper=0.0, lower=0.0), "upper-too-low"),
        (set_line("falsified", above=None), "upper-too-low"),
        (set_line("falsified", status="undecided"), "result-mismatch"),
    ],
)
def test_changed_maps_are_not(predicted: Path, tmp_path: Path, change: Change, code: str) -> None:
    assert code in codes(predicted, tmp_path, change)


def test_failures_add_up(several: Path, either: Path, tmp_path: Path) -> None:
    """Of clauses those of lower bounds, of alternatives the upper bounds; the best of them is not
    enough."""

    def ends(place: Path, paths: list[str], name: str) -> list[float]:
        return [read_certificate(place / "out" / path).claim[name] for path in paths]

    def lower(_: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        line = of("certified", lines)
        line["lower"] = min(ends(several, line["below"], "lower"))

    def upper(_: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["status"] == "falsified":
                line["upper"] = max(ends(either, line["above"]["certificates"], "upper"))
                line["lower"] = 0.0

    assert codes(several, tmp_path / "lower", lower) >= {"probability-too-high"}
    assert codes(either, tmp_path / "upper", upper) >= {"upper-too-low"}


def test_trees_that_are_none(predicted: Path, tmp_path: Path) -> None:
    def twice(about: dict[str, Any], _: list[dict[str, Any]]) -> None:
        about["cuts"].append(about["cuts"][0])

    def joined(about: dict[str, Any], _: list[dict[str, Any]]) -> None:
        about["cuts"][-1][4] = about["cuts"][-1][3]  # one box for both sides

    def apart(about: dict[str, Any], _: list[dict[str, Any]]) -> None:
        about["cuts"].append([10**6, 0, (0.5).hex(), 10**6 + 1, 10**6 + 2])

    for i, (change, code) in enumerate(((twice, NOT), (joined, GAPS), (apart, GAPS))):
        assert codes(predicted, tmp_path / str(i), change) == {code}
    (found,) = verdicts(predicted, tmp_path / "outside", cut_outside)
    assert found.message == "box 0 is not cut in its inside"


def test_disjunctions_need_every_alternative_at_one_point(either: Path, tmp_path: Path) -> None:
    def with_above(above: Callable[[list[dict[str, Any]]], Any]) -> Change:
        def change(_: dict[str, Any], lines: list[dict[str, Any]]) -> None:
            falsified = [line for line in lines if line["status"] == "falsified"]
            falsified[0]["above"] = above(falsified)

        return change

    def one(lines: list[dict[str, Any]]) -> Any:
        return {"clause": 0, "certificates": lines[0]["above"]["certificates"][:1]}

    def reordered(lines: list[dict[str, Any]]) -> Any:
        return {"clause": 0, "certificates": lines[0]["above"]["certificates"][::-1]}

    def no_clause(lines: list[dict[str, Any]]) -> Any:
        return lines[0]["above"] | {"clause": 1}

    for i, (above, code) in enumerate(((one, NOT), (reordered, "cell-mismatch"), (no_clause, NOT))):
        assert code in codes(either, tmp_path / str(i), with_above(above))


def test_alternatives_at_different_points_do_not_add_up(either: Path, tmp_path: Path) -> None:
    """Each may fail somewhere while one of them holds everywhere."""
    network, posterior = load_posterior(either / "p.safetensors")
    lines = [json.loads(text) for text in (either / "out" / "cells.jsonl").read_text().splitlines()]
    low, high = (torch.tensor([of("falsified", lines)[name]]).double() for name in ("low", "high"))
    points = [low + (high - low) * torch.tensor(p).double() for p in ((0.8, 0.2, 0), (0.2, 0.8, 0))]
    ((first,), (second,)) = parse_condition(EITHER, 2).clauses[0]
    for i, (row, x) in enumerate(zip((first, second), points, strict=True)):
        assert isinstance(row, Row)
        there = half_space(explicit_box(Box.point(x)), torch.tensor(row.coefficients), -row.offset)
        method = Concentration(effort=0, upper=True)
        certificate = certify(Problem(network, posterior, there), method)[0].certificate
        assert certificate is not None
        certificate.write(either / "out" / f"own{i}.safetensors")
    names = ["own0.safetensors", "own1.safetensors"]
    change = set_line("falsified", above={"clause": 0, "certificates": names})
    found = [v for v in verdicts(either, tmp_path, change) if v.code == "cell-mismatch"]
    assert "alternatives are bounded at different points" in found[0].message
    for name in names:
        (either / "out" / name).unlink()


def test_a_clause_without_a_certificate_supports_nothing(several: Path, tmp_path: Path) -> None:
    def change(_: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        line = of("certified", lines)
        line["below"] = [line["below"][0], None]

    assert "probability-too-high" in codes(several, tmp_path, change)


def test_rejected_certificates(predicted: Path, tmp_path: Path) -> None:
    """One that does not hold, one of a mean, and one of a ball."""
    network, posterior = load_posterior(predicted / "p.safetensors")
    x = torch.tensor([[0.9, 0.1, 1.0]]).double()
    robust = class_robust(ball(x, 0.01), [0], 2)
    of_ball = certify(Problem(network, posterior, robust))[0].certificate
    box = class_robust(explicit_box(Box(x - 0.01, x + 0.01)), [0], 2)
    of_mean = decide(Problem(network, posterior, box))[0].certificate
    false = certify(Problem(network, posterior, box))[0].certificate
    assert of_ball is not None
    assert of_mean is not None
    assert false is not None
    false.header["claim"]["lower"] = (1.0).hex()
    for i, (certificate, code) in enumerate(
        ((of_ball, "cell-mismatch"), (of_mean, "cell-mismatch"), (false, "probability-too-high"))
    ):
        certificate.write(predicted / "out" / "own.safetensors")
        change = set_line("certified", below=["own.safetensors"])
        assert code in codes(predicted, tmp_path / str(i), change)
    (predicted / "out" / "own.safetensors").unlink()


def test_one_output_has_no_classes(tmp_path: Path) -> None:
    network = mlp(1, 1)
    save_posterior(
        tmp_path / "p.safetensors", network, Normal(torch.ones(2).double(), torch.ones(2).double())
    )
    model = read_model(tmp_path / "p.safetensors")
    side = {"name": "x", "unit": "", "low": "0", "high": "1", "center": "0", "scale": "1"}
    about = {
        "schema": "bnncert-map/1",
        "digests": {"architecture": model.architecture_digest, "posterior": model.posterior_digest},
        "at_least": "0.95",
        "condition": {"text": "class predicted", "clauses": [[["predicted"]]]},
        "region": [side | {"lower": (0.0).hex(), "upper": (1.0).hex()}],
        "cuts": [],
        "shares": {name: [0.0, 1.0] for name in ("certified", "falsified", "undecided")},
    }
    (tmp_path / "map.json").write_text(json.dumps(about))
    (tmp_path / "cells.jsonl").write_text("")
    assert [verdict.code for verdict in check_map(tmp_path, model)] == [NOT]
    (tmp_path / "map.json").write_text("no JSON")
    assert [verdict.code for verdict in check_map(tmp_path, model)] == ["unreadable"]


def test_falsified_is_the_class_of_the_centre(predicted: Path, tmp_path: Path) -> None:
    """Of any other class it is always said with a right."""
    network, posterior = load_posterior(predicted / "p.safetensors")
    lines = [
        json.loads(text) for text in (predicted / "out" / "cells.jsonl").read_text().splitlines()
    ]
    line = of("certified", lines)
    box = explicit_box(Box(*(torch.tensor([line[end]]).double() for end in ("low", "high"))))
    other = 1 - line["class"]
    found = certify(
        Problem(network, posterior, class_robust(box, [other], 2)), Concentration(0, upper=True)
    )[0]
    assert found.certificate is not None
    found.certificate.write(predicted / "out" / "own.safetensors")
    above = {"clause": 0, "certificates": ["own.safetensors"]}
    claim = {"class": other, "status": "falsified", "lower": 0.0, "upper": found.upper}
    change = set_line("certified", **claim, below=[], above=above)
    (said,) = (v for v in verdicts(predicted, tmp_path, change) if v.code == "result-mismatch")
    assert "not what the posterior's centre gives the middle" in said.message
    (predicted / "out" / "own.safetensors").unlink()


def test_parts_that_are_said_twice(tmp_path: Path) -> None:
    """Certificates leave out what they prove once: they are about the condition none the less, and
    not about one with another part."""
    twice = mapped(tmp_path, "(class predicted and y0 - y1 >= 0) or y1 >= 0.125")
    found = verdicts(twice, tmp_path)
    assert {verdict.status for verdict in found} == {ACCEPT}
    rows, offsets = np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([-0.25, -0.5])
    assert said(rows, offsets) == said(rows[1:] / 2, offsets[:1])
    assert said(rows, offsets) != said(rows, -offsets)
    assert said(rows, offsets) != said(-rows, offsets)
    assert said(0 * rows, 0 * offsets) == {(0, 0, 0)}


def test_no_class_where_the_condition_names_none(either: Path, tmp_path: Path) -> None:
    assert NOT in codes(either, tmp_path, set_line("certified", **{"class": 0}))


@pytest.mark.parametrize("name", ["results.jsonl", "decisions.jsonl", "radii.jsonl"])
def test_nothing_unchecked_stands_beside_a_map(name: str, predicted: Path, tmp_path: Path) -> None:
    def change(*_: object) -> None:
        (tmp_path / "changed" / name).write_text("{}")

    (said,) = verdicts(predicted, tmp_path, change)
    assert (said.code, f"both map.json and {name}" in said.message) == (NOT, True)


def test_words_are_those_of_the_clauses(several: Path, tmp_path: Path) -> None:
    def renamed(about: dict[str, Any], lines: list[dict[str, Any]]) -> None:
        about["condition"]["text"] = "always safe"
        about["at_least"] = "0.9500000000000000000001"
        del lines

    said = verdicts(several, tmp_path, renamed)[-1].message
    assert "condition: y0 > -1 and (class 0 or -8*y0 + 8*y1 > 1) (called 'always safe')" in said
    assert f"P_safe >= {Fraction('0.9500000000000000000001')}: " in said


def test_conditions_in_words() -> None:
    first, second = ((1.0, -0.5), 2.0), ((0.0, 0.0), 0.25)
    either = (((first, second), (None,)),)
    assert in_words(either, 2) == "(y0 + -0.5*y1 > -2 and 0 > -0.25) or class predicted"
    assert in_words((((first, second),),), 2) == "y0 + -0.5*y1 > -2 and 0 > -0.25"
    assert in_words((((((1.0,), -0.5),),),), 1) == "y0 > 0.5"


SHARES = [("certified", "0.999999"), ("falsified", "1.000000"), ("undecided", "1.000000")]


@pytest.mark.parametrize(("status", "shown"), SHARES)
def test_shares_are_rounded_to_the_safe_side(status: str, shown: str) -> None:
    assert _shown(status, 1 - Fraction(1, 10**9)) == shown


def centers(posterior: Posterior, path: Path) -> Model:
    save_posterior(path, mlp(1, 2), posterior)
    return read_model(path)


def test_the_centre_is_that_of_each_family(tmp_path: Path) -> None:
    """Outputs x and 0, or 0 and x: the class at 1 is the one that the centre prefers."""
    zero, one = torch.tensor([1, 0, 0, 0]).double(), torch.tensor([0, 1, 0, 0]).double()
    small = torch.full_like(zero, 0.1)
    samples = torch.stack([zero, one, 1.25 * one, one])
    ends = ((1.0,), (1.0,))
    for posterior, label in (
        (Mixture((0.25, 0.75), (Normal(zero, small), Normal(one, small))), 1),
        (Uniform(zero - small, zero + small), 0),
        (Empirical(samples), 1),
    ):
        model = centers(posterior, tmp_path / "p.safetensors")
        require_predicted(label, ends, model)
        with pytest.raises(Rejected, match=f"class: {1 - label} is not"):
            require_predicted(1 - label, ends, model)
        for either in (0, 1):  # at 0 they tie
            require_predicted(either, ((-1.0,), (1.0,)), model)


def test_a_class_that_cannot_be_computed(tmp_path: Path) -> None:
    huge = torch.tensor([1, -1, 0, 0]).double() * 2.0**499
    model = centers(Normal(huge, torch.ones_like(huge)), tmp_path / "p.safetensors")
    with pytest.raises(CannotCheck, match="not finite"):
        require_predicted(0, ((1e300,), (1e300,)), model)
