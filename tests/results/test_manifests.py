"""Manifests: what a result folder says of itself, from every command, and read again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import (
    InputError,
    Problem,
    ball,
    certify,
    class_robust,
    decide,
    half_space,
    load_posterior,
    mlp,
    output_interval,
    save_posterior,
)
from bnncert.data import Dataset
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.specification import explicit_box
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors import Normal
from bnncert.record import names_for
from bnncert.results.manifest import (
    MANIFEST,
    Around,
    ClassKept,
    HalfSpace,
    Manifest,
    OutputWithin,
    Rows,
    VnnLib,
    around,
    condition_of,
    read_manifest,
)
from commands import Run
from question_files import property_file


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_in(folder: Path) -> Manifest:
    found = read_manifest(folder)
    assert found is not None
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A posterior of 4 inputs and 3 classes, one of one output, and inputs for both."""
    network, regression = mlp(4, 5, 3), mlp(4, 5, 1)
    generator = torch.Generator().manual_seed(0)
    for name, each in (("p", network), ("r", regression)):
        mean = torch.randn(each.size, generator=generator, dtype=torch.float64)
        save_posterior(tmp_path / f"{name}.safetensors", each, Normal(mean, mean.abs() / 100))
    x = np.random.default_rng(0).random((6, 4))
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(6) % 3)
    np.savez(tmp_path / "t.npz", x=x, y=np.linspace(0, 1, 6), eps=np.linspace(0.01, 0.06, 6))
    names = ["p.safetensors", "r.safetensors", "x.npz", "t.npz"]
    return {name.split(".")[0]: tmp_path / name for name in names}


def test_certify_says_what_was_asked(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """Files and digests, selection, region, condition, threshold, method, versions and machine."""
    names = tmp_path / "names.toml"
    names.write_text('features = ["a", "b", "c", "d"]\noutputs = ["stay", "left", "right"]\n')
    asked = ["certify", files["p"], "--inputs", files["x"], "--select", "1:3", "--out"]
    asked += [tmp_path / "out", "--eps", "0.02,0.01", "--norm", "l2", "--clip", 0, 1]
    asked += ["--at-least", "0.9", "--target", "0", "--names", names, "--seed", 7]
    assert run(*asked)[0] in (0, 1)
    found = manifest_in(tmp_path / "out")
    network, posterior = load_posterior(files["p"])
    question = found.question
    (subject,) = question.subjects
    assert (subject.name, subject.family, subject.weights) == ("p.safetensors", "normal", 43)
    assert subject.source is not None
    assert subject.source.sha256 == sha256(files["p"])
    assert (subject.posterior, subject.architecture) == (posterior.digest, network.digest)
    assert question.inputs is not None
    assert (question.inputs.source.name, question.inputs.source.sha256) == (
        "x.npz",
        sha256(files["x"]),
    )
    assert (question.inputs.select, question.inputs.count) == ("1:3", 2)
    assert question.region == Around("l2", (0.01, 0.02), (0.0, 1.0))
    assert question.condition == ClassKept(0)
    assert (question.quantity, question.at_least) == ("P_safe", "0.9")
    assert [method.name for method in found.methods] == ["concentration"]
    assert found.methods[0].options["at_least"] == 0.9
    assert [column.name for column in found.features] == ["a", "b", "c", "d"]
    assert (found.seed, found.outputs[1]) == (7, Column("left"))
    assert {"bnncert", "python", "torch", "numpy", "scipy"} == set(found.versions)
    assert {"platform", "cpu"} == set(found.machine)
    assert found.command is not None
    assert found.command.startswith("bnncert certify")
    assert found.date.endswith("+00:00")


def test_regressions_and_radii_of_their_own(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    asked = ["certify", files["r"], "--inputs", files["t"], "--select", "0,5", "--tolerance", 0.5]
    assert run(*asked, "--out", tmp_path / "out", "--estimate", 3)[0] == 0
    found = manifest_in(tmp_path / "out")
    assert found.question.condition == OutputWithin(0, 0.5)
    assert found.question.region == Around("linf", (0.01, 0.06))
    assert found.estimate == 3
    assert run("decide", *asked[1:], "--out", tmp_path / "mean")[0] == 0
    found = manifest_in(tmp_path / "mean")
    assert (found.question.quantity, found.question.at_least) == ("mean", None)
    assert found.methods[0].options == {"effort": 1}


def test_campaigns_name_every_posterior_and_method(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    """Merged shards have the manifest of the campaign."""
    (tmp_path / "c.toml").write_text(
        'posteriors = ["p.safetensors"]\ninputs = "x.npz"\nselect = "0:2"\neps = 0.01\n'
        'at_least = 0.9\nmethods = [{name = "concentration", effort = [0, 1]}]\nchunk = 1\n'
    )
    for part in ("1/2", "2/2"):
        shard = tmp_path / part[0]
        assert run("run", tmp_path / "c.toml", "--shard", part, "--out", shard)[0] == 0
    assert run("merge", tmp_path / "all", tmp_path / "1", tmp_path / "2")[0] == 0
    found = manifest_in(tmp_path / "all")
    assert [subject.name for subject in found.question.subjects] == ["p"]
    assert found.question.subjects[0].source is not None
    assert found.question.subjects[0].source.sha256 == sha256(files["p"])
    assert [method.options["effort"] for method in found.methods] == [0, 1]
    assert (found.question.at_least, found.question.region) == ("0.9", Around("linf", (0.01,)))
    assert found.question.inputs is not None
    assert found.question.inputs.count == 2


def test_searched_radii_are_not_listed(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    asked = ["radius", files["p"], "--inputs", files["x"], "--select", "0", "--largest", 0.02]
    assert run(*asked, "--out", tmp_path / "out")[0] == 0
    found = manifest_in(tmp_path / "out")
    assert (found.question.region, found.question.at_least) == (Around("linf"), "0.95")


def test_a_property_is_kept_with_its_text(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "robust.vnnlib"
    property_file(path, np.full(4, 0.5), 0.01, 1)
    assert run("certify", files["p"], "--vnnlib", path, "--out", tmp_path / "out")[0] == 0
    question = manifest_in(tmp_path / "out").question
    assert isinstance(question.condition, VnnLib)
    assert (question.condition.source.name, question.condition.exact) == ("robust.vnnlib", True)
    assert question.condition.source.sha256 == sha256(path)
    assert question.condition.text == path.read_text()
    assert (question.region, question.inputs) == (Around("box"), None)


def test_results_of_python_say_what_their_problem_asks(tmp_path: Path) -> None:
    network = mlp(2, 3)
    posterior = Normal(torch.ones(network.size).double(), torch.ones(network.size).double() / 100)
    region = ball(torch.rand(3, 2).double(), 0.01, "l1", (0, 1))
    classes = Problem(network, posterior, class_robust(region, [0, 1, 2], 3))
    certify(classes, at_least=0.5).save(tmp_path / "certified")
    found = manifest_in(tmp_path / "certified")
    assert found.question.region == Around("l1", (0.01,), (0.0, 1.0))
    assert (found.question.condition, found.question.at_least) == (ClassKept(None), "0.5")
    assert found.question.subjects[0].posterior == posterior.digest
    assert (found.question.subjects[0].source, found.command) == (None, None)
    decide(classes).save(tmp_path / "decided")
    assert manifest_in(tmp_path / "decided").question.quantity == "softmax"


def test_conditions_are_told_from_rows() -> None:
    region = ball(torch.rand(2, 2).double(), 0.01)
    one = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    assert condition_of(class_robust(region, [0, 1], 3, target=2)) == ClassKept(2)
    assert condition_of(class_robust(region, [0, 1], 2)) == ClassKept(None)
    assert condition_of(half_space(region, one, 0.5)) == HalfSpace((1.0, 0.0, -2.0), 0.5)
    lows = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert condition_of(output_interval(region, lows, lows + 1, 3, 1)) == OutputWithin(1, None)
    mixed = class_robust(region, [0, 1], 3)
    mixed = type(mixed)(region, mixed.rows, mixed.offsets)
    assert condition_of(mixed) == Rows()
    ends = torch.zeros(1, 2).double(), torch.ones(1, 2).double()
    assert around(explicit_box(Box(*ends))) == Around("box")


def test_a_folder_written_again_has_its_own_manifest(tmp_path: Path) -> None:
    """One written without a manifest keeps none of an earlier run."""
    ones = torch.ones(2).double()
    positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    found = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))
    found.save(tmp_path)
    assert read_manifest(tmp_path) is not None
    type(found)(found.rows).save(tmp_path)
    assert read_manifest(tmp_path) is None


WRONG: dict[str, Any] = {
    "no JSON": lambda _: "{",
    "another schema": lambda found: found | {"schema": "bnncert-manifest/9"},
    "a list": lambda found: [found],
    "something missing": lambda found: {k: v for k, v in found.items() if k != "seed"},
    "something more": lambda found: found | {"more": 1},
    "no number": lambda found: found | {"seed": "0"},
    "no list": lambda found: found | {"features": "abc"},
    "no table": lambda found: found | {"versions": []},
    "no question": lambda found: found | {"question": 3},
    "no clip": lambda found: (
        found
        | {"question": found["question"] | {"region": found["question"]["region"] | {"clip": [0]}}}
    ),
    "an unknown condition": lambda found: (
        found | {"question": found["question"] | {"condition": {"kind": "luck"}}}
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_manifest_is_refused(name: str, tmp_path: Path) -> None:
    ones = torch.ones(2).double()
    positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive)).save(tmp_path)
    spoilt = WRONG[name](json.loads((tmp_path / MANIFEST).read_text()))
    text = spoilt if isinstance(spoilt, str) else json.dumps(spoilt)
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError, match=r"manifest.json.*is not a manifest"):
        read_manifest(tmp_path)


NAMES = {
    "no TOML": ("features = ", "cannot be read as TOML"),
    "another key": ('classes = ["a"]', "'classes' is not known"),
    "no list": ('features = "abcd"', "is not a list of texts"),
    "an empty name": ('features = ["a", "", "c", "d"]', "is not a list of texts"),
    "too few": ('features = ["a"]', "has 1 features, the network 4"),
}


@pytest.mark.parametrize("name", NAMES)
def test_names_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    text, message = NAMES[name]
    path = tmp_path / "names.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        names_for(path, mlp(4, 3))


def test_data_sets_have_names() -> None:
    def data(name: str, *names: str) -> Dataset:
        return Dataset(name, torch.zeros(1, 1).double(), None, image=False, names=names)

    assert names_for(None, mlp(784, 10), data("fashion-mnist")).outputs[7] == Column("sneaker")
    assert names_for(None, mlp(13, 1), data("boston")).features[5] == Column("RM")
    assert names_for(None, mlp(12, 1), data("boston")).features == ()
    assert names_for(None, mlp(2, 1), data("a table", "size", "age")).features[1] == Column("age")
    assert names_for(None, mlp(4, 3)).outputs == ()


def test_what_the_posterior_measured_keeps_its_units(tmp_path: Path) -> None:
    own = Standardisation((Column("size", 5.0, 2.0),), (Column("price", 1.0, 3.0),))
    network = Network((1,), mlp(1, 1).layers, standardisation=own)
    assert names_for(None, network).features == own.inputs
    path = tmp_path / "names.toml"
    path.write_text('features = ["floor space"]')
    found = names_for(path, network)
    assert (found.features, found.outputs) == ((Column("floor space", 5.0, 2.0),), own.outputs)
