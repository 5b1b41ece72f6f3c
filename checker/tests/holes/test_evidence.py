"""Certificates that were once accepted and are false, each as it was found."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert_check import ACCEPT, ERROR, REJECT, CannotCheck, check_certificate, read_model
from bnncert_check.__main__ import run
from bnncert_check.grammar import exact
from checking import npy
from forger.forgery import Forgery, write
from forger.laws import Posterior
from forger.nets import Net
from holes.asking import DUEL, NO_SLOPES, ONE, asked, first_activation, networks, normal, verdict


@pytest.mark.parametrize("family", ["normal", "empirical"])
@pytest.mark.parametrize("times", [1, 2, 1000])
def test_a_rival_counts_once(family: str, times: int, tmp_path: Path) -> None:
    """softmax of logits 3 and 0 is 0.95; a thousand rivals would leave 0.02 of it."""
    posterior = normal((0, 0, 3, 0), (0, 0, 0.01, 0.01))
    evidence: dict[str, Any] = {
        "components": [{"weight": "0x1p0", "lower": NO_SLOPES, "upper": NO_SLOPES}]
    }
    if family == "empirical":
        posterior, evidence = Posterior((1.0,), (networks((0, 0, 3, 0)),), False), {"networks": 1}
    claim = {"lower": 0.0, "upper": 0.03 if times > 1 else 0.96, "gap": -1.0}
    made = asked(DUEL, posterior, "softmax", [[1, -1]] * times, evidence=evidence, claim=claim)
    found = verdict(made, tmp_path)
    assert (found.status, found.code) == ((ACCEPT, None) if times == 1 else (ERROR, "unsupported"))


@pytest.mark.parametrize("inputs", [1, 2, 3])
@pytest.mark.parametrize(
    "kind", [{"type": "ReLU"}, {"type": "LeakyReLU", "slope": 0.25}], ids=lambda k: k["type"]
)
def test_an_activation_first_has_its_width(
    kind: dict[str, Any], inputs: int, tmp_path: Path
) -> None:
    found = verdict(first_activation(kind, inputs), tmp_path)
    assert (found.status, found.code) == (REJECT, "probability-too-high")
    assert found.supported == (0.0, 1.0)


@pytest.mark.parametrize(
    "kind", [{"type": "ReLU"}, {"type": "LeakyReLU", "slope": 0.25}], ids=lambda k: k["type"]
)
def test_a_tree_is_about_some_neurons(kind: dict[str, Any], tmp_path: Path) -> None:
    """Slopes of none broadcast against those of one, and the weights' part of the bound was
    gone."""
    found = verdict(first_activation(kind, 1, neurons=0), tmp_path)
    assert (found.status, found.code) == (ERROR, "malformed")


@pytest.mark.parametrize("shape", [(0,), (2,), (1, 1)])
def test_slopes_do_not_broadcast(shape: tuple[int, ...], tmp_path: Path) -> None:
    for name in ("c0.lower_slopes0", "c0.upper_slopes0"):
        made = first_activation({"type": "ReLU"}, 1)
        made.tensors[name] = np.ones(shape)
        assert verdict(made, tmp_path).code == "malformed"
    for open_neurons in (
        np.zeros(0, np.int32),
        np.array([1], np.int32),
        np.array([0, 0], np.int32),
    ):
        made = first_activation({"type": "ReLU"}, 1)
        made.tensors["c0.open"] = open_neurons
        assert verdict(made, tmp_path).code == "malformed"


def test_flags_are_0_or_1(tmp_path: Path) -> None:
    conv = {
        "type": "Conv2d",
        "in_channels": 1,
        "out_channels": 1,
        "kernel": [1, 1],
        "stride": [1, 1],
    }
    conv |= {"padding": [0, 0], "bias": False}
    net = Net((1, 1, 1), (conv, {"type": "Flatten"}, *ONE.layers))
    proof = NO_SLOPES | {"probability": (0.5).hex()}
    evidence = {"components": [{"weight": "0x1p0", "lower": proof, "upper": None}]}
    for value, code in ((0, None), (1, None), (2, "malformed"), (-1, "malformed")):
        tensors = {"c0.refined0": np.array([value], np.int8)}
        made = asked(
            net,
            normal(np.ones(3), np.zeros(3)),
            "concentration",
            [[1]],
            evidence=evidence,
            tensors=tensors,
        )
        assert verdict(made, tmp_path).code == code


@pytest.mark.parametrize(
    ("times", "code"), [(1, None), (400, None), (401, "malformed"), (5000, "unreadable")]
)
def test_a_region_is_cut_only_so_often(times: int, code: str | None, tmp_path: Path) -> None:
    """More often than eight coordinates can be halved is no bisection; far more often is not even
    read."""
    proof = NO_SLOPES | {"probability": (0.5).hex()}
    evidence = {"components": [{"weight": "0x1p0", "lower": None, "upper": None}]}
    made = asked(ONE, normal((0, 1), (0, 0)), "concentration", [[1]], evidence=evidence)
    cut = '{"probability": "0x1p-1", "dimension": 0, "at": "0x0p0", '
    cut += f'"below": {json.dumps(proof)}, "above": '
    text = cut * times + json.dumps(proof) + "}" * times  # deeper than it could be made of objects
    content = made.seal()
    size = int.from_bytes(content[:8], "little")
    index = json.loads(content[8 : 8 + size])
    inner = index["__metadata__"]["bnncert"].replace('"lower": null', '"lower": ' + text)
    index["__metadata__"]["bnncert"] = inner
    whole = json.dumps(index).encode()
    write(tmp_path / "p.safetensors", made.posterior.content(ONE))
    path = write(
        tmp_path / "c.safetensors", len(whole).to_bytes(8, "little") + whole + content[8 + size :]
    )
    found = check_certificate(path, read_model(tmp_path / "p.safetensors"))
    assert found.code == code, found.message


@pytest.mark.parametrize(("at", "accepted"), [(0.9, True), (0.7, False)])
def test_nothing_fails_in_a_part_that_misses_the_ball(
    at: float, accepted: bool, tmp_path: Path
) -> None:
    """d - x0 - x1 > 0 on the unit disc iff d > √2; the part from (at, at) on is outside the disc,
    or meets it."""
    net = Net((2,), ({"type": "Dense", "inputs": 2, "outputs": 1, "bias": False},))
    whole = {"probability": "0x1p0", "t": "0x1p1", "rows_optimised": False}
    inner = {"probability": "0x1p0", "dimension": 1, "at": at.hex(), "below": whole, "above": whole}
    proof = {"probability": "0x1p0", "dimension": 0, "at": at.hex(), "below": whole, "above": inner}
    evidence = {"components": [{"weight": "0x1p0", "lower": proof, "upper": None}]}
    law, offsets = normal(-np.ones(2), np.zeros(2)), [1.42 if accepted else 1.41]
    made = asked(
        net, law, "concentration", [[1]], evidence=evidence, x=[0.0, 0.0], eps=1.0, offsets=offsets
    )
    made.header["region"]["norm"] = "l2"
    made.header["claim"]["lower"] = "0x1p0"
    assert (verdict(made, tmp_path).status == ACCEPT) == accepted


@pytest.mark.parametrize(
    "text",
    ["0x1p-99999", "0x1p-1075", "0x0.ffffffffffffffffp+0", "0x1.00000000000001p+0", "0x1p+1024"],
)
def test_no_digit_of_a_number_is_rounded_away(text: str) -> None:
    with pytest.raises(CannotCheck):
        exact(text, "a number")


def test_numbers_that_are_floats_may_be_written_in_any_way() -> None:
    for text in (
        "0x1p-1074",
        "0x0.0000000000001p-1022",
        "-0x1.fffffffffffffp+1023",
        "0x0p0",
        "0x10.8p-4",
        "0x1.p1",
    ):
        assert exact(text, "a number") == float.fromhex(text)


def boxed(x: float, lower: float, upper: float) -> Forgery:
    net = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": 1, "bias": False},))
    whole = {"probability": "0x1p0", "t": "0x1p1", "rows_optimised": False}
    evidence = {"components": [{"weight": "0x1p0", "lower": whole, "upper": None}]}
    ends = {"lower": np.array([lower]), "upper": np.array([upper])}
    law = normal(np.ones(1), np.zeros(1))
    made = asked(net, law, "concentration", [[1]], evidence=evidence, tensors=ends, x=[x])
    made.header["region"] = {"norm": "box", "clip": None, "eps": None}
    return made


def test_an_input_lies_in_its_box(tmp_path: Path) -> None:
    assert verdict(boxed(1.5, 1.0, 2.0), tmp_path).status == ACCEPT
    assert verdict(boxed(-5.0, 1.0, 2.0), tmp_path).code == "malformed"
    assert verdict(boxed(0.0, -1.7e308, 1.7e308), tmp_path).code == "not-finite"


def test_a_ball_that_misses_its_clip_range_is_no_region(tmp_path: Path) -> None:
    """Nothing fails where there is no point."""
    net = Net((2,), ({"type": "Dense", "inputs": 2, "outputs": 1, "bias": False},))
    whole = {"probability": "0x1p0", "t": "0x1p1", "rows_optimised": False}
    evidence = {"components": [{"weight": "0x1p0", "lower": whole, "upper": None}]}
    made = asked(
        net,
        normal(np.zeros(2), np.zeros(2)),
        "concentration",
        [[1]],
        evidence=evidence,
        x=[0.0, 0.0],
        eps=1.0,
    )
    made.header["region"] |= {"norm": "l2", "clip": [0.8, 1.0]}
    assert verdict(made, tmp_path).code == "region-empty"


def test_a_malformed_array_is_an_error_not_a_rejection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its header breaks Python's own reader in a way of its own."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("W0_mean.npy", npy("1\n  2\n 3"))
    (tmp_path / "p.npz").write_bytes(buffer.getvalue())
    assert run(tmp_path, tmp_path / "p.npz", as_json=False) == 2
    assert capsys.readouterr().out.startswith("ERROR  ")


def test_whatever_goes_wrong_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = first_activation({"type": "ReLU"}, 1)

    def surprise(*_: object) -> None:
        raise ZeroDivisionError("what nobody thought of")

    monkeypatch.setattr("bnncert_check.evidence.concentration.failure", surprise)
    found = verdict(made, tmp_path)
    assert (found.status, found.code) == (ERROR, "malformed")
    monkeypatch.setattr("bnncert_check.__main__._verdicts", surprise)
    assert run(tmp_path / "c.safetensors", tmp_path / "p.safetensors", as_json=False) == 2
