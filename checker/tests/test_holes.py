"""Certificates that were once accepted and are false, and files that once cost too much: each as it
was found."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from bnncert_check import ACCEPT, ERROR, REJECT, CannotCheck, Verdict, check_certificate, read_model
from bnncert_check.__main__ import run
from bnncert_check.grammar import exact
from bnncert_check.network import read_network
from checking import cheaply, npy
from forger import Forgery, Law, Net, Posterior, write

ONE = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": 1, "bias": True},))
DUEL = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": 2, "bias": True},))
NO_SLOPES = {"t": (5.0).hex(), "rows_optimised": False}


def normal(mean: Any, std: Any) -> Posterior:
    return Posterior(
        (1.0,),
        (Law("normal", {"mean": np.array(mean, float), "std": np.array(std, float)}),),
        False,
    )


def networks(*samples: Any) -> Law:
    return Law("empirical", {"samples": np.array(samples, float)})


def asked(net: Net, posterior: Posterior, kind: str, rows: Any, **others: Any) -> Forgery:
    """A certificate about x = 0 alone, unless it is said otherwise."""
    rows = np.array(rows, float)
    claim = others.get("claim", {"lower": 0.0, "upper": 1.0})
    header = {"schema": "bnncert-certificate/1", "kind": kind, "evidence": others["evidence"]}
    header["claim"] = {name: float(value).hex() for name, value in claim.items()}
    header["region"] = {"norm": "linf", "clip": None, "eps": float(others.get("eps", 0.0)).hex()}
    x = np.array(others.get("x", np.zeros(net.input_shape)), float)
    tensors = {
        "x": x,
        "rows": rows,
        "offsets": np.array(others.get("offsets", np.zeros(len(rows))), float),
    }
    return Forgery(net, posterior, header, tensors | others.get("tensors", {}))


def verdict(made: Forgery, folder: Path) -> Verdict:
    model = read_model(write(folder / "p.safetensors", made.posterior.content(made.net)))
    return check_certificate(write(folder / "c.safetensors", made.seal()), model)


# ---- repeated rows -------------------------------------------------------------------------------


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


# ---- an activation first -------------------------------------------------------------------------


def first_activation(kind: dict[str, Any], inputs: int, neurons: int = 1) -> Forgery:
    """y = w·f(x) + b, w about -100, b about 1: surely negative at x = 1, unless the slopes of a
    tree have no width."""
    net = Net((inputs,), (kind, {"type": "Dense", "inputs": inputs, "outputs": 1, "bias": True}))
    posterior = normal([-100.0] * inputs + [1.0], [0.01] * (inputs + 1))
    lower = NO_SLOPES | {"probability": (0.5).hex(), "trees": [{"row": 0, "scale": None}]}
    evidence = {"components": [{"weight": "0x1p0", "lower": lower, "upper": None}]}
    tensors: dict[str, Any] = {f"c0.{side}_slopes0": np.ones(inputs) for side in ("lower", "upper")}
    tensors |= {
        "c0.open": np.zeros(neurons, np.int32),
        "c0.tree0.paths": np.zeros((1, 0), np.int32),
    }
    tensors |= {"c0.tree0.multipliers": np.zeros((1, 0), np.float32)}
    tensors["c0.tree0.slopes"] = np.ones((1, neurons), np.float32)
    claim = {"lower": 0.999999, "upper": 1.0}
    return asked(net, posterior, "concentration", [[1]], evidence=evidence, tensors=tensors, claim=claim, eps=0.1,
                 x=[1.0] * inputs)  # fmt: skip


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
    cut = f'{{"probability": "0x1p-1", "dimension": 0, "at": "0x0p0", "below": {json.dumps(proof)}, "above": '
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


# ---- mixtures of what mixtures are not for -------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_mixture_is_of_gaussians(order: tuple[int, int], tmp_path: Path) -> None:
    """Of weight 0.01 a network that is safe, of 0.99 one that is not: P_safe is 0.01, the mean
    -0.98."""
    laws = (networks((0.0, 1.0)), normal((0.0, -1.0), (0.0, 0.0)).laws[0])
    posterior = Posterior((0.01, 0.99), tuple(laws[i] for i in order), True)
    with pytest.raises(CannotCheck, match="mixtures are of Gaussians") as reason:
        read_model(write(tmp_path / "p.safetensors", posterior.content(ONE)))
    assert reason.value.code == "unsupported"


# ---- posteriors ----------------------------------------------------------------------------------


def archive(path: Path, activations: list[str]) -> Path:
    text = str(activations).replace("'", '"')
    arrays = {
        "W0_mean": np.ones((1, 1)),
        "W1_mean": -np.ones((1, 1)),
        "meta": f'{{"activations": {text}}}',
    }
    np.savez(path, **arrays, W0_std=np.zeros((1, 1)), W1_std=np.zeros((1, 1)))
    return path


def test_a_softmax_is_at_the_end_or_nowhere(tmp_path: Path) -> None:
    """Of one number it is 1, so the network outputs -1: without it, it outputs -x."""
    with pytest.raises(CannotCheck, match="activation 0 is 'softmax'") as reason:
        read_model(archive(tmp_path / "p.npz", ["softmax", "linear"]))
    assert reason.value.code == "malformed"
    assert read_model(archive(tmp_path / "q.npz", ["linear", "softmax"])).outputs == 1


@pytest.mark.parametrize("slope", ["", [], {}, None, False, True, "0.1", -0.1, 1.0, 1])
def test_the_slope_of_a_leaky_relu_is_a_number(slope: Any, tmp_path: Path) -> None:
    net = Net((1,), ({"type": "LeakyReLU", "slope": slope}, *ONE.layers))
    with pytest.raises(CannotCheck) as reason:
        read_model(write(tmp_path / "p.safetensors", normal((1.0, 1.0), (0.0, 0.0)).content(net)))
    assert reason.value.code == "malformed"


@pytest.mark.parametrize(
    "entry", [{"type": "GELU"}, {"type": ["ReLU"]}, {"type": None}, {}, 7, None, ["ReLU"]]
)
def test_a_layer_that_nobody_knows_is_refused(entry: Any) -> None:
    with pytest.raises(CannotCheck) as reason:
        read_network({"input_shape": [1], "layers": [entry, *ONE.layers]})
    assert reason.value.code == "unsupported"


def stored(tensors: dict[str, Any], folder: Path, family: str = "normal") -> str | None:
    """The code with which a posterior of one layer is refused."""
    header = {"schema": "bnncert-posterior/1", "network": ONE.description, "family": family}
    write(folder / "p.safetensors", bytes(save(tensors, {"bnncert": json.dumps(header)})))
    try:
        read_model(folder / "p.safetensors")
    except CannotCheck as reason:
        return reason.code
    return None


def test_a_posterior_holds_what_it_must_and_nothing_else(tmp_path: Path) -> None:
    one, names = np.ones((1, 1)), ("W0_mean", "W0_std")
    whole = dict.fromkeys(names, one) | {name.replace("W", "b"): one[0] for name in names}
    assert stored(whole, tmp_path) is None
    assert stored(whole | {"W1_mean": one}, tmp_path) == "malformed"
    assert stored(whole | {"remark": one}, tmp_path) == "malformed"
    assert stored(whole | {"W0_mean": one * np.nan}, tmp_path) == "malformed"
    assert stored(whole | {"W0_mean": one.astype(np.int32)}, tmp_path) == "malformed"
    drawn = {"W0_samples": np.ones((2, 1, 1)), "b0_samples": np.ones((2, 1))}
    assert stored(drawn, tmp_path, "empirical") is None
    assert stored(drawn | {"b0_samples": np.ones((3, 1))}, tmp_path, "empirical") == "malformed"
    none = {"W0_samples": np.zeros((0, 1, 1)), "b0_samples": np.ones((2, 1))}
    assert stored(none, tmp_path, "empirical") == "malformed"
    assert stored({"b0_samples": np.ones((2, 1))}, tmp_path, "empirical") == "malformed"


# ---- nothing unforeseen is a verdict -------------------------------------------------------------


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


# ---- what a file may cost ------------------------------------------------------------------------

MEASURED = """
import resource, sys
from pathlib import Path
from bnncert_check.__main__ import run
limit = 1_200_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
code = run(Path(sys.argv[1]), Path(sys.argv[2]), False)
# Not what getrusage says: that counts the program from which this one was started.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(code, int(peak.split()[1]) // 1024)
"""


def cost(folder: Path, posterior: str = "p.safetensors") -> tuple[str, int]:
    """What the program says of c.safetensors, and the MiB that it took."""
    command = [
        sys.executable,
        "-c",
        MEASURED,
        str(folder / "c.safetensors"),
        str(folder / posterior),
    ]
    one = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=one)
    *said, last = done.stdout.splitlines()
    return said[0], int(last.split()[1])


def test_arrays_without_entries_have_small_sizes(tmp_path: Path) -> None:
    made = first_activation({"type": "ReLU"}, 1)
    empty = np.zeros((300_000_000, 0), np.int32)
    made.tensors |= {"c0.tree0.paths": empty, "c0.tree0.multipliers": empty.astype(np.float32)}
    found = cheaply(lambda: verdict(made, tmp_path))
    assert (found.status, found.code) == (ERROR, "unreadable")
    assert cost(tmp_path)[1] < 300


def test_many_outputs_do_not_take_their_square(tmp_path: Path) -> None:
    """15,000 of them, of which one row speaks."""
    net = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": 15_000, "bias": False},))
    rows = np.zeros((1, 15_000))
    rows[0, :2] = 1, -1
    proof = NO_SLOPES | {"probability": (0.5).hex()}
    evidence = {"components": [{"weight": "0x1p0", "lower": proof, "upper": None}]}
    made = asked(
        net, normal(np.zeros(15_000), np.ones(15_000)), "concentration", rows, evidence=evidence
    )
    assert verdict(made, tmp_path).status == ACCEPT
    said, size = cost(tmp_path)
    assert said.startswith("ACCEPT")
    assert size < 300


def test_wide_layers_are_walked_in_parts(tmp_path: Path) -> None:
    """4,000 neurons, with rows of their own: 128 MB at once."""
    width = 4000
    dense = [
        {"type": "Dense", "inputs": a, "outputs": b, "bias": False}
        for a, b in ((1, width), (width, 1))
    ]
    net = Net((1,), (dense[0], {"type": "ReLU"}, dense[1]))
    proof = NO_SLOPES | {"probability": (0.5).hex()}
    tensors = {f"c0.{side}_slopes1": np.ones(width) for side in ("lower", "upper")}
    evidence = {"components": [{"weight": "0x1p0", "lower": proof, "upper": None}]}
    law = normal(np.ones(2 * width), np.full(2 * width, 1e-3))
    made = asked(
        net, law, "concentration", [[1]], evidence=evidence, tensors=tensors, x=[1.0], eps=0.1
    )
    assert verdict(made, tmp_path).status == ACCEPT
    assert cost(tmp_path)[1] < 400


def bomb(path: Path) -> Path:
    """1 MB that unpacks to 1 GB."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((1, 8)))
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("W0_mean.npy", "w") as member,
    ):
        member.write(buffer.getvalue()[:128])
        for _ in range(1024):
            member.write(bytes(2**20))
    return path


def test_an_archive_unpacks_to_little_more_than_it_is(tmp_path: Path) -> None:
    assert bomb(tmp_path / "p.npz").stat().st_size < 2 * 2**20
    (tmp_path / "c.safetensors").write_bytes(b"")
    said, size = cost(tmp_path, "p.npz")
    assert "too-large" in said
    assert size < 200


def test_layers_are_no_wider_than_the_files_that_ask_for_them(tmp_path: Path) -> None:
    """A kernel of half the image meets it at a quarter of a million places, each with as many
    entries."""
    side = 900
    conv = {
        "type": "Conv2d",
        "in_channels": 1,
        "out_channels": 1,
        "kernel": [side // 2, side // 2],
        "stride": [1, 1],
    }
    conv |= {"padding": [0, 0], "bias": False}
    places = side - side // 2 + 1
    pool = {"type": "MaxPool2d", "kernel": [places, places], "stride": [1, 1]}
    net = Net((1, side, side), (conv, pool, {"type": "Flatten"}))
    size = (side // 2) ** 2
    posterior = normal(np.zeros(size), np.ones(size))
    path = write(tmp_path / "p.safetensors", posterior.content(net))
    model = read_model(path)
    with pytest.raises(CannotCheck) as reason:
        cheaply(lambda: model.require_room(8 * side * side))
    assert reason.value.code == "too-large"


def test_boxes_are_no_more_than_their_files_pay_for(tmp_path: Path) -> None:
    """Each entry of a few bytes stands for two vectors of all weights."""
    size = 20_000
    net = Net((1,), ({"type": "Dense", "inputs": 1, "outputs": size, "bias": False},))
    growth = {"step": 1.0, "rho": 0.0, "zero_gradient_only": False}
    boxes = [{"draw": None, "steps": 1}] * 3000
    evidence = {"bound": "lbp", "growth": growth, "boxes": boxes, "union": {"rule": "bonferroni"}}
    rows = np.zeros((1, size))
    rows[0, 0] = 1
    made = asked(
        net, normal(np.ones(size), np.ones(size)), "boxes", rows, evidence=evidence, x=[1.0]
    )
    found = cheaply(lambda: verdict(made, tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


def test_cells_are_no_more_than_their_files_pay_for(tmp_path: Path) -> None:
    size = 10_000
    net = Net((size,), ({"type": "Dense", "inputs": size, "outputs": 1, "bias": False},))
    growth = {"step": 0.0, "rho": 0.0, "zero_gradient_only": False}
    union = {"rule": "cells", "cells": [{"parent": 0, "cuts": []}] * 20_000, "separators": []}
    evidence = {
        "bound": "ibp",
        "growth": growth,
        "boxes": [{"draw": None, "steps": 0}],
        "union": union,
    }
    made = asked(
        net,
        normal(np.zeros(size), np.zeros(size)),
        "boxes",
        [[1]],
        evidence=evidence,
        x=np.zeros(size),
    )
    made.tensors["offsets"] = np.ones(1)
    found = cheaply(lambda: verdict(made, tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


def test_cuts_are_no_deeper_than_their_files_pay_for(tmp_path: Path) -> None:
    """Each of them holds two ends of the region."""
    size = 200_000
    net = Net((size,), ({"type": "Dense", "inputs": size, "outputs": 1, "bias": False},))
    whole = {"probability": "0x1p0", "t": "0x1p1", "rows_optimised": False}
    proof: dict[str, Any] = whole
    for _ in range(300):
        proof = {
            "probability": "0x1p0",
            "dimension": 0,
            "at": "0x0p0",
            "below": proof,
            "above": whole,
        }
    evidence = {"components": [{"weight": "0x1p0", "lower": proof, "upper": None}]}
    law = normal(np.zeros(size), np.zeros(size))
    made = asked(net, law, "concentration", [[1]], evidence=evidence, x=np.zeros(size))
    found = cheaply(lambda: verdict(made, tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


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


@pytest.mark.parametrize("layer", [{"type": "ReLU"}, {"type": "Add", "reads": [1, 1]}], ids=str)
def test_nodes_are_no_more_than_their_files_pay_for(layer: dict[str, Any], tmp_path: Path) -> None:
    """Each of them takes some bytes of text, and as many vectors as any other."""
    width = 5000
    wide = {"type": "Dense", "inputs": 1, "outputs": width, "bias": False}
    some = [dict(layer, reads=[k + 1] * len(layer.get("reads", [0]))) for k in range(2000)]
    net = Net((1,), (wide, *some))
    model = read_model(
        write(tmp_path / "p.safetensors", normal(np.ones(width), np.ones(width)).content(net))
    )
    with pytest.raises(CannotCheck) as reason:
        model.require_room(1000)
    assert reason.value.code == "too-large"


NETWORK = ({"type": "Dense", "inputs": 1, "outputs": 2, "bias": True}, {"type": "ReLU"})
READS: dict[str, Any] = {
    "nothing": [], "itself": [3], "a later node": [4], "a negative node": [-1, 1], "one node": [2], "no list": 1,
    "no numbers": [1, "2"], "true": [1, True], "other shapes": [0, 2], "none": None,
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_a_sum_reads_several_nodes_of_one_shape_before_it(name: str) -> None:
    good = {"input_shape": [1], "layers": [*NETWORK, {"type": "Add", "reads": [1, 2]}]}
    assert read_network(good).reads == ((0,), (1,), (1, 2))
    with pytest.raises(CannotCheck):
        read_network(
            {"input_shape": [1], "layers": [*NETWORK, {"type": "Add", "reads": READS[name]}]}
        )


def test_every_node_is_read() -> None:
    last = {"type": "Dense", "inputs": 1, "outputs": 2, "bias": True, "reads": [0]}
    with pytest.raises(CannotCheck, match="nothing reads"):
        read_network({"input_shape": [1], "layers": [*NETWORK, last]})
    with pytest.raises(CannotCheck, match="one node"):
        read_network(
            {"input_shape": [1], "layers": [NETWORK[0], {"type": "ReLU", "reads": [1, 1]}]}
        )


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


@pytest.mark.parametrize(
    "name", ["results.jsonl", "decisions.jsonl", "c.safetensors", "p.safetensors", "p.npz"]
)
def test_nothing_is_waited_for(name: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to."""
    made = first_activation({"type": "ReLU"}, 1)
    verdict(made, tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    target = tmp_path if name.endswith("jsonl") else tmp_path / "c.safetensors"
    posterior = tmp_path / ("p.npz" if name == "p.npz" else "p.safetensors")
    program = [sys.executable, "-m", "bnncert_check", str(target), "--posterior", str(posterior)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2
    assert done.stdout.startswith("ERROR  ")
