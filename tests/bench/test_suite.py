"""The suite as files: the same bytes from the same recipes, one question in two forms, and one line
for what is wrong."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnncert import InputError, Problem
from bnncert.bench.fitted import control_mean_field, ensemble, small_cnn, small_residual
from bnncert.bench.known import KNOWN
from bnncert.bench.models import Model, dense, normal
from bnncert.bench.pictures import digit, patches
from bnncert.bench.recipes import box, rows
from bnncert.bench.streams import Stream
from bnncert.bench.suite import FOR_READERS, Instance, make, missing, read_suite
from bnncert.bench.tracks import TRACKS, recipes
from bnncert.importers import load_vnnlib
from bnncert.model.activations import Activation, LeakyReLU, ReLU
from bnncert.model.layers import Dense, Flatten
from bnncert.model.network import Network
from bnncert.posteriors.independent import Laplace, Normal
from commands import Run, runner

FITTED = (control_mean_field, ensemble, small_cnn, small_residual)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the truth set."""
    folder = tmp_path_factory.mktemp("bench")
    make(KNOWN, folder)
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(capsys, monkeypatch)


def test_numbers_come_from_the_seed_alone() -> None:
    """The generator's stream is fixed by its definition; these are its first numbers."""
    assert (Stream(7).uniform(3) * 2**16).tolist() == [57152.0, 19357.0, 27531.0]
    bells = Stream(1).bell(4000)
    assert abs(float(bells.mean())) < 0.05
    assert abs(float(bells.std()) - 1) < 0.05


def test_pictures_come_from_the_seed_alone() -> None:
    """Grey levels are whole, so that their sum is."""
    assert float(256 * digit(3, 1).sum()) == PICTURES[0]
    assert float(256 * patches(3).sum()) == PICTURES[1]


PICTURES = (39901.0, 347698.0)


def test_the_same_recipes_give_the_same_bytes(suite: Path, tmp_path: Path) -> None:
    """With another number of threads too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        make(KNOWN, tmp_path)
        again = [model()[1].digest for model in FITTED]
    finally:
        torch.set_num_threads(threads)
    assert again == [model()[1].digest for model in FITTED]
    assert digests(tmp_path) == digests(suite)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_hold_the_question_of_the_recipe(suite: Path) -> None:
    """In numbers, and in VNN-LIB: the same region, and the same condition."""
    instances = read_suite(suite)
    assert [instance.name for instance in instances] == [recipe.name for recipe in KNOWN]
    for instance, recipe in zip(instances, KNOWN, strict=True):
        problem, asked = instance.problem(), Problem(*recipe.model(), recipe.question().distinct())
        assert problem.digest == asked.digest
        assert_vnnlib_says_so(instance, problem)


def assert_vnnlib_says_so(instance: Instance, problem: Problem) -> None:
    path = instance.path.with_suffix(".vnnlib")
    (read,) = load_vnnlib(path, problem.network, problem.posterior.center).specifications
    region = problem.specification.region.box
    assert torch.equal(read.region.box.lower, region.lower)
    assert torch.equal(read.region.box.upper, region.upper)
    outputs = torch.randn(50, 1, problem.network.outputs, dtype=torch.float64)
    ours = (problem.specification.margins(outputs) > 0).all(-1)
    assert torch.equal((read.margins(outputs) > 0).all(-1), ours)


def test_rows_that_are_written_twice_are_asked_about_once(tmp_path: Path) -> None:
    twice = rows(box([0.0], [1.0]), [[-1.0], [-2.0], [-1.0]], [1.0, 2.0, 1.0])
    make([replace(KNOWN[0], question=lambda: twice)], tmp_path)
    (instance,) = read_suite(tmp_path)
    assert instance.fields["rows"] == [[-1.0], [-2.0], [-1.0]]
    assert instance.specification((1,)).rows.tolist() == [[[-1.0]]]


def test_digests_tell_questions_apart(suite: Path) -> None:
    """Every field of an instance counts but what is for readers."""
    asked = read_suite(suite)[0]
    for name in asked.fields.keys() - {"posterior"}:
        other = Instance(asked.path, asked.fields | {name: "another"}, None)
        assert (other.digest == asked.digest) == (name in FOR_READERS), name
    lost = Instance(asked.path, asked.fields | {"posterior": "another"}, None)
    with pytest.raises(InputError, match="lacks a file"):
        _ = lost.digest


def relu(activation: Activation, std: float = 0.5, bias: float = 1.0) -> tuple[Network, Normal]:
    """y = bias - activation(w x)."""
    return normal((1,), dense([[0.5]], std), activation, dense([[-1.0]], bias=bias))


NETWORK, WEIGHTS = relu(ReLU())
POSTERIORS: dict[str, Model] = {
    "activation": relu(LeakyReLU(0.01)),
    "slope": relu(LeakyReLU(0.02)),
    "std": relu(ReLU(), std=0.25),
    "mean": relu(ReLU(), bias=0.5),
    "family": (NETWORK, Laplace(WEIGHTS.mean, WEIGHTS.std)),
    "shape": (Network((1, 1), (Flatten(), Dense(1, 1), ReLU(), Dense(1, 1))), WEIGHTS),
}


def test_digests_tell_posteriors_apart(tmp_path: Path) -> None:
    """The same numbers in another architecture too."""
    digests = set()
    for model in ((NETWORK, WEIGHTS), *POSTERIORS.values()):
        make([replace(KNOWN[0], model=lambda made=model: made)], tmp_path)
        digests.add(read_suite(tmp_path)[0].digest)
    assert len(digests) == 1 + len(POSTERIORS)


def test_every_track_has_quick_instances() -> None:
    """Names are unique, thresholds probabilities, and the full size holds the quick one."""
    quick, full = recipes(), recipes(full=True)
    assert {recipe.track for recipe in quick} == TRACKS.keys()
    assert len({recipe.name for recipe in full}) == len(full)
    assert {recipe.name for recipe in quick} <= {recipe.name for recipe in full}
    assert all(0 < float(recipe.threshold) < 1 for recipe in full)


def test_networks_that_are_not_trained_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BNNCERT_DATA", str(tmp_path))
    assert missing(recipes(full=True)) == ["1x256", "1x512", "2x256"]
    assert missing(recipes()) == []


def test_make_writes_a_track(cli: Run, tmp_path: Path) -> None:
    code, out, _ = cli("bench", "make", "--track", "samples", "--out", tmp_path / "b")
    assert (code, out.split()[0]) == (0, "8")
    index = json.loads((tmp_path / "b" / "suite" / "index.json").read_text())
    assert len(index["instances"]) == len(read_suite(tmp_path / "b")) == 8


def test_list_names_every_mistake(cli: Run) -> None:
    code, out, _ = cli("bench", "list")
    assert code == 0
    assert all(recipe.name in out and recipe.catches in out for recipe in KNOWN)


def test_an_unknown_track_is_one_line(cli: Run, tmp_path: Path) -> None:
    code, _, err = cli("bench", "make", "--track", "nope", "--out", tmp_path / "b")
    assert code == 2
    assert err.startswith("bnncert: track 'nope' is not known; choose truth, narrow")
    assert not (tmp_path / "b").exists()


def test_a_folder_without_a_suite_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="write one with bnncert bench make"):
        read_suite(tmp_path)
