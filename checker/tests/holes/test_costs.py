"""Files that once cost too much, each as it was found."""

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

from bnncert.laws.proof import PAID, _of_references
from bnncert_check import ACCEPT, ERROR, CannotCheck, read_model
from bnncert_check.evidence.concentration import Concentration
from bnncert_check.maps import check_map
from bnncert_check.verdict import Support
from checking import cheaply
from forger.forgery import Forgery, write
from forger.laws import Law, Posterior
from forger.nets import Net
from holes.asking import NO_SLOPES, asked, first_activation, normal, verdict

MEASURED = """
import resource, sys
from pathlib import Path
from bnncert_check.__main__ import run
limit = 1_200_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
code = run(Path(sys.argv[1]), Path(sys.argv[2]), False)
# Not what getrusage says: that counts the program from which this one was started.
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(line for line in lines if line.startswith("VmHWM"))
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


def test_cuts_of_a_map_are_no_more_than_their_files_pay_for(tmp_path: Path) -> None:
    """Each of them makes two ends of the region: 8,000 of 8,000 sides took 1 GB."""
    size = 8000
    net = Net((size,), ({"type": "Dense", "inputs": size, "outputs": 1, "bias": False},))
    law = normal(np.zeros(size), np.ones(size))
    model = read_model(write(tmp_path / "p.safetensors", law.content(net)))
    side = {"unit": "", "low": "-1", "high": "1", "center": "0", "scale": "1"}
    side |= {"lower": (-1.0).hex(), "upper": (1.0).hex()}
    row = [{"row": [(1.0).hex()], "offset": (0.0).hex()}]
    about = {
        "schema": "bnncert-map/1",
        "digests": {"architecture": model.architecture_digest, "posterior": model.posterior_digest},
        "at_least": "0.5",
        "condition": {"text": "", "clauses": [[row]]},
        "region": [side | {"name": str(k)} for k in range(size)],
        "cuts": [[2 * k, k, (0.0).hex(), 2 * k + 1, 2 * k + 2] for k in range(size)],
        "shares": {name: [0.0, 1.0] for name in ("certified", "falsified", "undecided")},
    }
    (tmp_path / "map.json").write_text(json.dumps(about))
    (tmp_path / "cells.jsonl").write_text("")
    (found,) = cheaply(lambda: list(check_map(tmp_path, model)))
    assert (found.status, found.code) == (ERROR, "too-large")


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


def before_the_noise(inputs: int) -> Forgery:
    """A certain layer over so many inputs, then one that is random: bounded by zonotopes, it is
    said."""
    first = {"type": "Dense", "inputs": inputs, "outputs": 1, "bias": False}
    net = Net((inputs,), (first, {"type": "Dense", "inputs": 1, "outputs": 1, "bias": True}))
    proof = NO_SLOPES | {"probability": (0.5).hex(), "forward": True}
    evidence = {"components": [{"weight": "0x1p0", "lower": proof, "upper": None}]}
    mean, std = np.zeros(inputs + 2), np.zeros(inputs + 2)
    mean[-1], std[-1] = 1.0, 0.1
    x = np.zeros(inputs)
    return asked(net, normal(mean, std), "concentration", [[1]], evidence=evidence, x=x, eps=0.1)


def test_zonotopes_do_not_take_the_square_of_any_input(tmp_path: Path) -> None:
    """A direction for each of 20,000 coordinates: 3 GB. Those of 5,000 are 200 MB."""
    found = cheaply(lambda: verdict(before_the_noise(20_000), tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")
    assert cost(tmp_path)[1] < 300
    assert verdict(before_the_noise(5_000), tmp_path).status == ACCEPT
    assert cost(tmp_path)[1] < 700


def by_law(
    neurons: int,
    cells: tuple[int, int, int, int],
    size: int,
    rows: int,
    eps: float = 0.1,
    inputs: int = 1,
) -> Forgery:
    net = Net(
        (inputs,),
        (
            {"type": "Dense", "inputs": inputs, "outputs": neurons, "bias": False},
            {"type": "ReLU"},
            {"type": "Dense", "inputs": neurons, "outputs": 1, "bias": False},
        ),
    )
    law = {"probability": "0x1p0", "law": {"cells": list(cells), "size": size}}
    evidence = {"components": [{"weight": "0x1p0", "lower": law, "upper": None}]}
    many = np.ones((rows, 1))
    tensors: dict[str, Any] = {"c0.law.numbers": many * [[1.0, -8, 1.0, 1.0, 0.5, 0.1]]}
    tensors["c0.law.remainders"] = many * [[0.1, 1e-3, 1e-4]]
    tensors |= {f"c0.law.{name}": np.ones((rows, inputs), np.float32) for name in ("theta", "y")}
    size = (inputs + 1) * neurons
    posterior = normal(np.ones(size), np.ones(size))
    return asked(
        net,
        posterior,
        "concentration",
        many,
        evidence=evidence,
        tensors=tensors,
        claim={"lower": 0.5, "upper": 1.0},
        eps=eps,
    )


@pytest.mark.parametrize(
    ("neurons", "cells", "size", "rows"),
    [
        (1, (208, 16, 208, 16), 16, 1),
        (500, (45, 16, 45, 16), 16, 1),
        (10, (45, 16, 45, 16), 16, 30),
        (500, (2, 1, 2, 1), 2**17, 10),
    ],
)
def test_laws_are_no_finer_than_their_files_pay_for(
    neurons: int, cells: tuple[int, int, int, int], size: int, rows: int, tmp_path: Path
) -> None:
    """Ten million atoms of a neuron took 800 MB."""
    found = cheaply(lambda: verdict(by_law(neurons, cells, size, rows), tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


@pytest.mark.parametrize(
    ("cells", "size"), [((26, 3, 12, 5), 2**14), ((256, 1, 256, 1), 16), ((2, 1, 2, 1), 2**17)]
)
def test_laws_of_many_neurons_take_no_more_memory(
    cells: tuple[int, int, int, int], size: int, tmp_path: Path
) -> None:
    """They are summed a few at a time."""
    made = by_law(10 if size == 16 else 150, cells, size, 1)
    assert verdict(made, tmp_path).code != "too-large"
    assert cost(tmp_path)[1] < 200


@pytest.mark.parametrize(("neurons", "rows"), [(1000, 16), (1, 2000)])
def test_remainders_are_no_more_than_their_files_pay_for(
    neurons: int, rows: int, tmp_path: Path
) -> None:
    """However coarse its law is, proxies are found for every neuron."""
    found = cheaply(lambda: verdict(by_law(neurons, (2, 1, 2, 1), 16, rows), tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


def test_laws_at_a_point_have_no_remainders(tmp_path: Path) -> None:
    found = verdict(by_law(1000, (2, 1, 2, 1), 16, 16, 0.0), tmp_path)
    assert found.code == "probability-too-high"


@pytest.mark.parametrize("finer", [False, True])
@pytest.mark.parametrize(
    ("neurons", "rows"), [(1, 2), (20, 2), (20, 60), (128, 9), (600, 1), (1000, 2)]
)
def test_laws_that_provers_choose_are_paid_for(
    neurons: int, rows: int, finer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a posterior of as few inputs as have such a law, and one output, which pays for
    least."""
    monkeypatch.setattr(Concentration, "supported", lambda *_: Support(0.5, 1.0))
    lattice = _of_references(neurons)
    lattice, inputs = (lattice.finer, PAID * rows) if finer else (lattice, 1)
    made = by_law(neurons, lattice.cells, lattice.size, rows, inputs=inputs)
    found = verdict(made, tmp_path)
    assert found.status == ACCEPT, found


def by_moments(
    neurons: int, scale: float, rows: int, tails: int, components: int = 1, rank: int = 1
) -> Forgery:
    """Shared noise, and majorants that touch 1 where tails are nearly nothing."""
    net = Net(
        (1,),
        (
            {"type": "Dense", "inputs": 1, "outputs": neurons, "bias": False},
            {"type": "Tanh"},
            {"type": "Dense", "inputs": neurons, "outputs": 1, "bias": False},
        ),
    )
    own = Law(
        "low-rank-normal",
        {
            "mean": np.zeros(2 * neurons),
            "std": np.full(2 * neurons, scale),
            "factor": np.full((2 * neurons, rank), 0.1 / rank**0.5),
        },
    )
    each = np.ones(neurons)
    one: dict[str, Any] = {"numbers": np.array([1.0, 0.0, 1e-6, 0.0]), "centers": 0 * each}
    one |= {"bounds": 2 * scale**2 * each * (1 + neurons), "powers": each * (2 + neurons)}
    one |= {"rates": np.linspace(0.1, 1, tails), "weights": np.full(tails, 1e-300)}
    one |= {name: np.ones((tails, neurons)) for name in ("slopes", "curvatures")}
    every = range(rows)
    parts = range(components)
    tensors = {
        f"c{i}.g{g}.{name}": value for i in parts for g in every for name, value in one.items()
    }
    groups = [{"rows": [g], "terms": 96 - g % 90} for g in every]
    lower = {"probability": "0x0p0", "correlated": groups}
    weight = 1.0 / components
    each_part = {"weight": weight.hex(), "lower": lower, "upper": None}
    evidence = {"components": [each_part] * components}
    return asked(
        net,
        Posterior((weight,) * components, (own,) * components, components > 1),
        "concentration",
        np.ones((rows, 1)),
        evidence=evidence,
        tensors=tensors,
        offsets=np.ones(rows),
        x=[1.0],
    )


@pytest.mark.parametrize(("neurons", "scale", "tails"), [(1, 1.0, 16), (128, 160.0, 0)])
def test_boxes_and_nodes_of_moments_are_walked_in_parts(
    neurons: int, scale: float, tails: int, tmp_path: Path
) -> None:
    """Half a million boxes of 16 tails took 500 MB, 49,000 nodes of 128 neurons 600 MB."""
    assert verdict(by_moments(neurons, scale, 1, tails), tmp_path).status == ACCEPT
    assert cost(tmp_path)[1] < 150


def test_groups_are_no_more_than_their_files_pay_for(tmp_path: Path) -> None:
    """Each inverts the covariance of all neurons."""
    found = cheaply(lambda: verdict(by_moments(128, 1.0, 100, 0), tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


def test_nodes_of_moments_are_no_more_than_their_files_pay_for(tmp_path: Path) -> None:
    """Of every component its own: wide pre-activations need 49,000."""
    assert verdict(by_moments(128, 1.0, 1, 0, components=8), tmp_path).status == ACCEPT
    found = cheaply(lambda: verdict(by_moments(128, 160.0, 1, 0, components=8), tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")


def test_shared_noise_is_no_more_than_its_files_pay_for(tmp_path: Path) -> None:
    """Each group multiplies all of it."""
    found = cheaply(lambda: verdict(by_moments(4, 1.0, 1000, 0, rank=20_000), tmp_path))
    assert (found.status, found.code) == (ERROR, "too-large")
