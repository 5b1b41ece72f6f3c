"""Radii: both ends of each input have certificates that settle the threshold, on one question."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

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
    save_posterior,
)
from bnncert.methods import Concentration
from bnncert.posteriors import Normal
from bnncert.radius import Search, certified_radii
from bnncert_check import ACCEPT, Verdict, read_model
from bnncert_check.__main__ import run
from bnncert_check.folder import Accepted, check_results, read_results
from bnncert_check.radii import check_radii, read_radii


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs of one network with their radii, and the posterior p beside the folder."""
    place: Path = tmp_path_factory.mktemp("radii")
    network = mlp(2, 2)  # the larger input wins, nearly surely
    mean = torch.tensor([1, 0, 0, 1, 0, 0]).double()
    posterior = Normal(mean, torch.full_like(mean, 0.01))
    x = torch.tensor([[1.0, 0.0], [0.1, 0.8]]).double()
    problem = Problem(network, posterior, class_robust(ball(x, 0.0), [0, 1], 2))
    method = Concentration(effort=0, upper=True)
    search = Search(precision=0.5)
    certified_radii(problem, method, Decimal("0.6"), search=search).save(place / "out")
    save_posterior(place / "p.safetensors", network, posterior)
    return place


def verdicts(folder: Path, lines: list[Any]) -> list[Verdict]:
    accepted: Accepted = {}
    model = read_model(folder / "p.safetensors")
    list(check_results(folder / "out", read_results(folder / "out"), model, accepted))
    return check_radii(folder / "out", lines, accepted)


def test_radii_of_the_prover_are_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = read_radii(folder / "out")
    assert all(line["certified"] < line["falsified"] for line in lines)
    assert run(folder / "out", folder / "p.safetensors", as_json=False) == 0
    said = f"P_safe >= 0.6 up to {lines[1]['certified']!r}, not from {lines[1]['falsified']!r}"
    assert (
        f"radii.jsonl:2  input 1: {said}: class 1 before every other, linf ball"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"certified": 0.123}, "radius-not-proved"),  # of no certificate
        ({"falsified": 0.0}, "radius-not-proved"),
        ({"at_least": "1"}, "radius-not-proved"),
        ({"at_least": "0"}, "radius-not-proved"),  # nothing falsifies that
        ({"at_least": "1.1"}, "malformed"),
        ({"label": None}, "radius-not-proved"),
        ({"index": 1}, "result-repeated"),
        ({"index": -1}, "malformed"),
        ({"certified": "0.1"}, "malformed"),
        ({"more": 1}, "malformed"),
    ],
)
def test_changed_radii_are_not(folder: Path, change: dict[str, Any], code: str) -> None:
    first, second = read_radii(folder / "out")
    found = verdicts(folder, [second, first | change])
    assert (found[0].status, found[1].code) == (ACCEPT, code)


def test_ends_may_be_unknown(folder: Path) -> None:
    line = read_radii(folder / "out")[0] | {"certified": None}
    (half,) = verdicts(folder, [line])
    (none,) = verdicts(folder, [line | {"falsified": None}])
    assert (half.status, none.status) == (ACCEPT, ACCEPT)
    assert "of no radius is anything known" in none.message


def test_a_ball_that_is_clipped_is_no_ball(folder: Path, tmp_path: Path) -> None:
    """The narrower the clip range is, the larger is the radius that is certified."""
    network, posterior = load_posterior(folder / "p.safetensors")
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    x = torch.tensor([[0.5, 0.25]]).double()
    asked = Problem(network, posterior, class_robust(ball(x, 0.0, clip=(0.25, 0.5)), [0], 2))
    certified_radii(
        asked, Concentration(effort=0, upper=True), "0.6", search=Search(precision=0.5)
    ).save(tmp_path / "out")
    (found,) = verdicts(tmp_path, read_radii(tmp_path / "out"))
    assert found.status == ACCEPT
    assert found.message.endswith("every other, linf ball within [0.25, 0.5]")


def test_radii_of_a_half_space_name_no_class(folder: Path, tmp_path: Path) -> None:
    """Though its rows put class 0 before class 1."""
    network, posterior = load_posterior(folder / "p.safetensors")
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    x, normal = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([1.0, -1.0]).double()
    asked = Problem(network, posterior, half_space(ball(x, 0.0), normal, 0.0))
    method, search = Concentration(effort=0, upper=True), Search(precision=0.5)
    certified_radii(asked, method, "0.6", search=search).save(tmp_path / "out")
    (line,) = read_radii(tmp_path / "out")
    codes = [verdicts(tmp_path, [line | {"label": label}])[0].code for label in (None, 0)]
    assert codes == [None, "radius-not-proved"]


def test_both_ends_are_of_one_input(folder: Path) -> None:
    """Certificates of two inputs do not make a bracket."""
    lines = read_radii(folder / "out")
    model = read_model(folder / "p.safetensors")
    accepted: Accepted = {}
    list(check_results(folder / "out", read_results(folder / "out"), model, accepted))
    accepted[0, 77.0] = accepted[1, lines[1]["falsified"]]
    (found,) = check_radii(folder / "out", [lines[0] | {"falsified": 77.0}], accepted)
    assert found.code == "radius-not-proved"
    assert "different questions" in found.message


def test_boxes_have_no_radius(tmp_path: Path) -> None:
    """Of two boxes the wider one need not contain the other."""
    network = mlp(2, 2)
    mean = torch.tensor([1, 0, 0, 1, 0, 0]).double()
    posterior = Normal(mean, torch.full_like(mean, 0.01))
    x = torch.tensor([[1.0, 0.0]]).double()
    long = explicit_box(Box(x - torch.tensor([0.1, 0.0]), x + torch.tensor([0.1, 0.0])), x)
    problem = Problem(network, posterior, class_robust(long, [0], 2))
    certify(problem, Concentration(effort=0), at_least=Decimal("0.6")).save(tmp_path / "out")
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    (row,) = read_results(tmp_path / "out")
    line = {"index": 0, "label": 0, "at_least": "0.6", "certified": row["eps"], "falsified": None}
    (found,) = verdicts(tmp_path, [line])
    assert (found.code, "has a box" in found.message) == ("radius-not-proved", True)


def test_means_prove_no_radius(folder: Path, tmp_path: Path) -> None:
    network, posterior = load_posterior(folder / "p.safetensors")
    x = torch.tensor([[1.0, 0.0]]).double()
    problem = Problem(network, posterior, class_robust(ball(x, 0.01), [0], 2))
    decide(problem).save(tmp_path / "out")
    (row,) = read_results(tmp_path / "out")
    line = {"index": 0, "label": 0, "at_least": "0.6", "certified": 0.01, "falsified": None}
    assert row["lower"] > 0.6
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    assert [found.code for found in verdicts(tmp_path, [line])] == ["radius-not-proved"]


def test_a_certificate_that_is_not_accepted_proves_no_radius(folder: Path) -> None:
    path = folder / "out" / "results.jsonl"
    before = path.read_text()
    lines = [json.loads(text) for text in before.splitlines()]
    path.write_text("".join(json.dumps(line | {"lower": 0.0}) + "\n" for line in lines))
    try:
        codes = {verdict.code for verdict in verdicts(folder, read_radii(folder / "out"))}
    finally:
        path.write_text(before)
    assert codes == {"radius-not-proved"}
