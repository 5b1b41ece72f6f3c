"""The checker on replies: accepted where they are better, with a claim as high as its own, and
refused wherever something else is said."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import Network, ball, explicit_box, mlp, save_posterior
from bnncert.layers import Dense, Tanh
from bnncert.model.box import Box
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, CannotCheck, read_model
from bnncert_check.evidence import laws
from bnncert_check.laws.lattice import Choice
from bnncert_check.laws.replies import ReplyLaw, reply_failure
from bnncert_check.region import Region as Checked
from bnncert_check.region import point_region
from checking import Desk
from scenarios import wide_biases

UPPER = "evidence/components/0/upper"
LAW = f"{UPPER}/failure/law"
NAMED = "tensors/c0.upper.law"


def center(value: float = 0.0) -> torch.Tensor:
    return torch.full((1, 30), value).double()


REGIONS = {
    "about 0": ball(center(), 0.02),
    "clipped": ball(center(), 0.02, clip=(0.0, 1.0)),
    "a box": explicit_box(Box(center(-0.02), center(0.03))),
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("replies"), wide_biases(REGIONS["about 0"]), joint=False)


@pytest.mark.parametrize("region", REGIONS)
def test_replies_are_accepted(region: str, tmp_path: Path) -> None:
    """And say a little less than the checker itself finds."""
    own = Desk(tmp_path, wide_biases(REGIONS[region]), joint=False)
    assert own.names[1] == "reply"
    assert own.accepted()[1] < 0.99


def test_remainders_of_replies_are_paid_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of the law from below are."""
    paid: list[Any] = []
    monkeypatch.setattr(laws, "_require_proxies", lambda *given: paid.append(given))
    assert desk.names == ("laws", "reply")
    assert desk.verdict().status == ACCEPT
    assert len(paid) == 2


def hexes(*numbers: float) -> list[str]:
    return [number.hex() for number in numbers]


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (f"{LAW}/reply", hexes(0.0, 0.5), "upper-too-low"),  # any neuron may be beyond its chord
        (f"{LAW}/reply", hexes(2.0, 0.5), "upper-too-low"),
        (f"{LAW}/reply", hexes(60.0, 0.5), "upper-too-low"),  # chords of nearly everything
        (f"{LAW}/reply", hexes(5.0, 1e-4), "upper-too-low"),
        (f"{LAW}/reply", hexes(5.0, 1e4), "upper-too-low"),
        (f"{LAW}/reply", hexes(-1.0, 0.5), "malformed"),
        (f"{LAW}/reply", hexes(65.0, 0.5), "malformed"),
        (f"{LAW}/reply", hexes(5.0, 0.0), "malformed"),
        (f"{LAW}/reply", hexes(5.0, -0.5), "malformed"),
        (f"{LAW}/reply", hexes(5.0, 2.0**21), "malformed"),
        (f"{LAW}/reply", hexes(5.0), "malformed"),
        (f"{LAW}/reply", ["nan", "0x1p-1"], "malformed"),
        (f"{LAW}/reply", [5.0, 0.5], "malformed"),
        (f"{LAW}/threshold", (5.0).hex(), "malformed"),
        (f"{LAW}/trunk", True, "malformed"),
        (f"{LAW}/size", 2**10, "upper-too-low"),
        (f"{LAW}/cells", [48, 1, 12, 1], "upper-too-low"),
        (f"{LAW}/cells", [256, 16, 256, 16], "too-large"),
        (f"{NAMED}.weights", np.zeros(4), "upper-too-low"),
        (f"{NAMED}.weights", np.full(4, 2.0**-121), "unsupported"),
        (f"{NAMED}.weights", np.full(4, 2.0**101), "unsupported"),
        (f"{NAMED}.weights", np.full(4, np.nan), "malformed"),
        (f"{NAMED}.weights", np.zeros(3), "malformed"),
        (f"{NAMED}.weights", np.zeros(4, np.float32), "malformed"),
        (f"{NAMED}.remainders", np.ones((2, 3)), "malformed"),
        (f"{NAMED}.center", np.full(30, 0.03), "point-outside-region"),
        (f"{UPPER}/row", 1, "malformed"),
    ],
)
def test_the_form_is_checked(desk: Desk, place: str, value: Any, code: str) -> None:
    assert desk.verdict((place, value)).code == code


@pytest.mark.parametrize(
    ("name", "column", "value", "code"),
    [
        ("numbers", 0, 0.0, "malformed"),  # the step
        ("numbers", 1, 0.5, "malformed"),  # the window
        ("numbers", 2, 0.0, "malformed"),  # the rate: nothing stands for the noise
        ("numbers", 2, 1e-3, "upper-too-low"),
        ("numbers", 2, 1e3, "upper-too-low"),
        ("numbers", 3, 1.0, "upper-too-low"),  # a curb, which is not needed
        ("numbers", 4, 1.0, "malformed"),  # the lattice's noise
        ("remainders", 0, 0.0, "malformed"),
        ("remainders", 1, 1e-6, "upper-too-low"),  # the scale
        ("remainders", 1, 1e9, "probability-too-high"),  # no moment
        ("remainders", 2, 0.0, "upper-too-low"),  # the chance
        ("remainders", 2, 0.5, "upper-too-low"),
        ("remainders", 2, -1.0, "malformed"),
    ],
)
def test_the_numbers_are_checked(
    desk: Desk, name: str, column: int, value: float, code: str
) -> None:
    assert desk.verdict(desk.column(f"{NAMED}.{name}", column, value)).code == code


def test_without_room_it_is_a_point(desk: Desk) -> None:
    """Where nothing moves there is no noise, whatever is said of it."""
    there = (f"{NAMED}.center", np.full(30, -0.02))
    verdict = desk.verdict(there, desk.column(f"{NAMED}.remainders", 1, 1e9))
    assert verdict.supported is not None
    assert 0.95 < verdict.supported[1] < 0.99


def test_a_reply_says_nothing_of_the_lower_end(desk: Desk) -> None:
    """One adversary that fails is no proof that all do."""
    failure = desk.header["evidence"]["components"][0]["upper"]["failure"]
    names = ("numbers", "remainders", "weights")
    moved = [(f"tensors/c0.law.{name}", desk.tensors[f"c0.upper.law.{name}"]) for name in names]
    assert desk.verdict(("evidence/components/0/lower", failure), *moved).code == "malformed"


def test_nor_beside_a_row_that_is_opposite(desk: Desk) -> None:
    """Each moves the inputs its own way: both may fail in the same network."""
    upper = desk.header["evidence"]["components"][0]["upper"]
    assert desk.verdict((f"{UPPER}/opposite", dict(upper))).code == "malformed"


CHOSEN = ReplyLaw(
    (8, 1, 4, 1),
    2**8,
    Choice(2.0**-3, -128, 1.0, 0.0, 0.1, 1.0),
    3.0,
    1.0,
    np.array([[0.1, 0.1, 0.1]]),
    np.array([1.0]),
    np.zeros(1),
)


@pytest.mark.parametrize(
    ("network", "region"),
    [
        (mlp(1, 1, 1, activation=Tanh()), point_region(np.zeros(1))),
        (Network((1,), (Dense(1, 1), *mlp(1, 1, 1).layers)), point_region(np.zeros(1))),
        (mlp(1, 1, 1), Checked("l2", np.zeros(1), 0.1, -0.1 * np.ones(1), 0.1 * np.ones(1))),
    ],
    ids=["no ReLUs", "layers before", "no box"],
)
def test_of_others_nothing_is_said(network: Network, region: Checked, tmp_path: Path) -> None:
    std = torch.full((network.size,), 0.1).double()
    std[: network.size - 4] = 0.0
    save_posterior(tmp_path / "p.safetensors", network, Normal(torch.ones_like(std), std))
    model = read_model(tmp_path / "p.safetensors")
    asked = np.ones((1, 1)), np.zeros(1)
    with pytest.raises(CannotCheck, match=r"are for boxes|are for ReLUs"):
        reply_failure(model, model.components[0].posterior, region, asked, CHOSEN)


def test_room_lies_within_the_region() -> None:
    """By rational arithmetic, where no float ends the ball."""
    x = np.array([0.1, 0.3, 0.0, 1.0])
    region = Checked("linf", x, 0.1, x - 0.2, x + 0.2, clip=(0.0, 1.0))
    for point in (x, np.array([0.15, 0.25, 0.1, 0.95])):
        room = region.room(point)
        assert (room >= 0).all()
        for p, r, c in zip(point, room, x, strict=True):
            for end in (Fraction(p) + Fraction(r), Fraction(p) - Fraction(r)):
                assert 0 <= end <= 1
                assert abs(end - Fraction(c)) <= Fraction(0.1)
    assert (region.room(x)[:2] > 0.0999).all()
