"""Manifests: folders of every kind are accepted with theirs, and tampered ones are not."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from bnncert import (
    Box,
    Column,
    Concentration,
    Problem,
    Standardisation,
    ball,
    certify,
    class_robust,
    decide,
    half_space,
    mlp,
    output_interval,
    save_posterior,
)
from bnncert.cli.main import main
from bnncert.model.specification import Specification, explicit_box
from bnncert.posteriors import Empirical, Mixture, Normal
from bnncert_check import ACCEPT, check_results, read_model, read_results
from bnncert_check.__main__ import run
from bnncert_check.maps import check_map
from checking import families

Change = Callable[[dict[str, Any]], None]


def problem(kind: str) -> Problem:
    generator = torch.Generator().manual_seed(0)
    network = mlp(2, 3, 1 if kind in ("interval", "box", "half-space") else 3)
    mean = torch.randn(network.size, generator=generator, dtype=torch.float64)
    x = torch.rand(3, 2, generator=generator, dtype=torch.float64)
    outputs = network.forward(mean, x)
    region = ball(x, 0.05, "linf", (0, 1))
    if kind == "interval":
        spec = output_interval(region, outputs[:, 0] - 0.5, outputs[:, 0] + 0.5)
    elif kind == "half-space":
        spec = half_space(region, torch.ones(1), float(outputs.min()) - 1)
    elif kind == "box":
        boxes = explicit_box(Box(x - 0.05, x + 0.05), x)
        spec = output_interval(boxes, outputs[:, 0] - 0.5, outputs[:, 0] + 0.5)
    else:
        target = 0 if kind == "target" else None
        labels = outputs[:, 1:].argmax(-1) + 1 if target == 0 else outputs.argmax(-1)
        spec = class_robust(region, labels, 3, target)
        if kind == "rows":
            spec = Specification(region, 2 * spec.rows, spec.offsets)
    return Problem(network, Normal(mean, mean.abs() / 100), spec)


def folder_of(folder: Path, kind: str, decisions: bool = False) -> Path:
    asked = problem(kind)
    found = decide(asked) if decisions else certify(asked, Concentration(upper=True))
    found.save(folder / "out")
    save_posterior(folder / "p.safetensors", asked.network, asked.posterior)
    if kind == "interval":
        edit(folder / "out", lambda m: m["question"]["condition"].update(tolerance=0.5))
    return folder / "out"


def edit(folder: Path, change: Change) -> None:
    path = folder / "manifest.json"
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def codes(folder: Path) -> set[str | None]:
    model = read_model(folder.parent / "p.safetensors")
    return {verdict.code for verdict in check_results(folder, read_results(folder), model)}


KINDS = ("class", "target", "interval", "half-space", "box", "rows")


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_and_its_manifest_agree(kind: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, kind)
    edit(folder, top(features=[{"name": "a", "mean": 0, "std": 1.0}], command="bnncert certify"))
    assert codes(folder) == {None}


@pytest.mark.parametrize("kind", ["class", "interval"])
def test_decisions_agree_with_theirs(kind: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, kind, decisions=True)
    assert codes(folder) == {None}
    edit(folder, lambda m: m["question"].update(quantity="P_safe", at_least="0.95"))
    assert codes(folder) == {"manifest-mismatch"}


def asked(**changes: Any) -> Change:
    return lambda m: m["question"].update(changes)


def region(**changes: Any) -> Change:
    return lambda m: m["question"]["region"].update(changes)


def condition(**changes: Any) -> Change:
    return lambda m: m["question"].update(condition=changes)


def posterior(**changes: Any) -> Change:
    return lambda m: m["question"]["subjects"][0].update(changes)


MISMATCHES: dict[str, tuple[str, Change]] = {
    "another posterior": ("class", posterior(posterior="0" * 64)),
    "another architecture": ("class", posterior(architecture="0" * 64)),
    "another family": ("class", posterior(family="laplace")),
    "another number of weights": ("class", posterior(weights=1)),
    "another threshold": ("class", asked(at_least="0.94999")),
    "another quantity": ("class", asked(quantity="softmax", at_least=None)),
    "a smaller radius": ("class", region(eps=[0.04])),
    "another norm": ("class", region(norm="l2")),
    "another clip range": ("class", region(clip=[0.0, 0.9])),
    "no clip range": ("class", region(clip=None)),
    "a ball for a box": ("box", region(norm="linf")),
    "one rival for all": ("class", condition(kind="class", target=0)),
    "all rivals for one": ("target", condition(kind="class", target=None)),
    "another rival": ("target", condition(kind="class", target=1)),
    "an interval for classes": ("class", condition(kind="interval", output=0, tolerance=0.5)),
    "classes for an interval": ("interval", condition(kind="class", target=None)),
    "a wider interval": ("interval", condition(kind="interval", output=0, tolerance=0.6)),
    "another output": ("interval", condition(kind="interval", output=1, tolerance=0.5)),
    "an interval for a half-space": (
        "half-space",
        condition(kind="interval", output=0, tolerance=None),
    ),
    "another half-space": ("half-space", condition(kind="half-space", normal=[2.0], bound=0.0)),
    "another bound": ("half-space", condition(kind="half-space", normal=[1.0], bound=9.0)),
    "a condition that is words alone": ("class", condition(kind="text", text="always safe")),
    "a region of which nothing shows that it is covered": ("box", region(lower=[0.0, 0.0])),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_another_question_is_refused(name: str, tmp_path: Path) -> None:
    kind, change = MISMATCHES[name]
    folder = folder_of(tmp_path, kind)
    edit(folder, change)
    assert codes(folder) == {"manifest-mismatch"}


OWN = Standardisation((Column("a", 0.0, 2.0), Column("b")), (Column("price", 22.5, 9.0),))
COLUMNS: dict[str, Change] = {
    "a tolerance in smaller units": lambda m: m["outputs"][0].update(std=0.09),
    "outputs as they are": lambda m: m["outputs"].clear(),
    "other targets": lambda m: m["outputs"][0].update(mean=0.0),
    "smaller radii": lambda m: m["features"][0].update(std=1.0),
    "other inputs": lambda m: m["features"].reverse(),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_measured_is_what_the_posterior_says(name: str, tmp_path: Path) -> None:
    """Radii and tolerances are read in those units; what columns are called is not compared."""
    asked = problem("interval")
    network = replace(asked.network, standardisation=OWN)
    found = certify(Problem(network, asked.posterior, asked.specification))
    found.save(tmp_path / "out")
    save_posterior(tmp_path / "p.safetensors", network, asked.posterior)
    edit(tmp_path / "out", lambda m: m["outputs"][0].update(name="cost"))
    assert codes(tmp_path / "out") == {None}
    edit(tmp_path / "out", COLUMNS[name])
    assert codes(tmp_path / "out") == {"manifest-mismatch"}


def test_a_manifest_names_families_and_sizes_as_the_checker_does(tmp_path: Path) -> None:
    network = mlp(1, 2, 1)
    laws = {name: law for name, (law, _) in families(network.size).items()}
    laws["empirical"] = Empirical(torch.stack([laws["normal"].center] * 2))
    laws["a mixture of one"] = Mixture((1.0,), (Normal(*laws["normal"].tensors().values()),))
    for law in laws.values():
        save_posterior(tmp_path / "p.safetensors", network, law)
        model = read_model(tmp_path / "p.safetensors")
        assert (model.family, model.weights) == (law.family, law.size)


VNNLIB = {
    "kind": "vnn-lib",
    "source": {"name": "q", "sha256": hashlib.sha256(b"(x)").hexdigest(), "is_file": True},
    "text": "(x)",
    "exact": False,
    "notes": ["rounded"],
}


def test_the_text_of_a_property_has_its_digest(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "class")
    edit(folder, condition(**VNNLIB))
    assert codes(folder) == {None}
    edit(folder, condition(**VNNLIB | {"text": "(y)"}))
    with pytest.raises(Exception, match="VNN-LIB text is not that of"):
        codes(folder)
    edit(folder, condition(**VNNLIB | {"text": "\ud800"}))
    with pytest.raises(Exception, match="cannot be read"):
        codes(folder)


def top(**changes: Any) -> Change:
    return lambda m: m.update(changes)


MALFORMED: dict[str, Change] = {
    "another schema": top(schema="bnncert-manifest/2"),
    "more": top(more=1),
    "a method without options": top(methods=[{"name": "pie"}]),
    "a negative seed": top(seed=-1),
    "features of text": top(features=["a"]),
    "a feature of no number": top(features=[{"name": "a", "mean": "0", "std": 1.0}]),
    "versions of numbers": top(versions={"torch": 2}),
    "a list of versions": top(versions=[]),
    "a date of numbers": top(date=2026),
    "a command of numbers": top(command=1),
    "no question": top(question=[]),
    "a threshold of a mean": asked(quantity="mean"),
    "a threshold of no number": asked(at_least="."),
    "a threshold above 1": asked(at_least="1.5"),
    "an unknown quantity": asked(quantity="luck"),
    "a posterior more": posterior(more=1),
    "a posterior of no file": posterior(source={"name": "p"}),
    "a clip of one end": region(clip=[0.0]),
    "radii of text": region(eps=["0.1"]),
    "ends of text": region(lower="x"),
    "an unknown condition": condition(kind="luck"),
    "a condition of text": asked(condition="class"),
    "a condition more": condition(kind="class", target=None, more=1),
    "no inputs": asked(inputs={"source": None}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_the_grammar_is_strict(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, "class")
    edit(folder, MALFORMED[name])
    assert run(folder, tmp_path / "p.safetensors", as_json=True) == 2
    (verdict,) = json.loads(capsys.readouterr().out)["certificates"]
    assert verdict["code"] == "malformed"


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1, "schema": 2}', "NaN"])
def test_what_is_no_json_is_not_checked(text: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "class")
    (folder / "manifest.json").write_text(text)
    assert run(folder, tmp_path / "p.safetensors", as_json=True) == 2


def test_lines_beside_a_manifest_are_not_those_of_old_folders(tmp_path: Path) -> None:
    """Whose status `certified` says no more than a lower bound above 0."""
    folder = folder_of(tmp_path, "class")
    edit(folder, asked(at_least="1"))
    model, lines = read_model(tmp_path / "p.safetensors"), read_results(folder)
    for line in lines:
        line |= {"at_least": "1", "status": "certified", "answer": "unknown"}
    assert {v.code for v in check_results(folder, lines, model)} == {"malformed"}


def test_thresholds_are_said_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, exact = folder_of(tmp_path, "class"), "0.94999999999999999999999"
    edit(folder, asked(at_least=exact))
    lines = [line | {"at_least": exact} for line in read_results(folder)]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert f"P_safe >= {Fraction(exact)} is proved of" in said(folder, capsys)


def test_lines_without_results_have_no_label(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "class")
    lines = read_results(folder)
    nothing = {"label": None, "predicted": None, "status": "error", "certificate": None}
    lines[0] |= nothing | {"lower": 0, "upper": 1}
    model = read_model(tmp_path / "p.safetensors")
    assert [verdict.status for verdict in check_results(folder, lines, model)] == [ACCEPT] * 3


def said(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    run(folder, folder.parent / "p.safetensors", as_json=False)
    printed = capsys.readouterr().out
    run(folder, folder.parent / "p.safetensors", as_json=True)
    words = json.loads(capsys.readouterr().out)["statement"]
    assert all(sentence in printed for sentence in words if sentence.isascii())
    return " ".join(words)


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("class", "asks the class of each input before every other, norm linf, radii 0.05"),
        ("target", "asks the class of each input before class 0,"),
        ("interval", "asks output 0 within 0.5 of a target,"),
        ("box", "asks output 0 within an interval of its own of a target, norm box;"),
        ("half-space", "asks [1.0] times the outputs above "),
        ("rows", "asks the rows of each certificate, norm linf"),
    ],
)
def test_the_checker_says_it_in_its_own_words(
    kind: str, about: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = said(folder_of(tmp_path, kind), capsys)
    assert about in words
    assert "3 results read, 3 accepted, 3 of them with a certificate, about 3 inputs." in words
    counts = re.search(r"P_safe >= 0.95 is proved of (\d), disproved of (\d), open of (\d)", words)
    assert counts is not None
    assert sum(map(int, counts.groups())) == 3
    assert "what is accepted agrees with it." in words


@pytest.mark.parametrize("kind", ["class", "box"])
def test_an_input_is_counted_once_whatever_its_lines_call_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copies of a certificate, under indices and methods of their own."""
    folder = folder_of(tmp_path, kind)
    first, second, _ = read_results(folder)
    copies = []
    for i, more in enumerate(({"index": 7}, {"method": "another"})):
        path = folder / f"copy{i}.safetensors"
        shutil.copy(folder / first["certificate"], path)
        copies.append(first | more | {"certificate": path.name})
    lines = [first, second, *copies]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = said(folder, capsys)
    assert "4 results read, 4 accepted, 4 of them with a certificate, about 2 inputs." in words
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in copies))
    assert "2 of them with a certificate, about 1 input." in said(folder, capsys)


def test_words_without_a_manifest_of_means_and_of_many_kinds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, "class", decisions=True)
    source = {"name": "x.npz", "sha256": "0" * 64, "is_file": True}
    edit(folder, asked(inputs={"source": source, "select": ":", "count": 4}))
    words = said(folder, capsys)
    assert "bound softmax of: its class before every other on linf ball of radius 0.05" in words
    assert "of 4 inputs, 3 results here" in words
    edit(folder, condition(**VNNLIB))
    assert "said to be those of 'q' (not read)" in said(folder, capsys)
    (folder / "manifest.json").unlink()
    assert "There is no manifest.json" in said(folder, capsys)
    one = problem("class")
    eps = torch.arange(1, 13).double() / 10_000
    center = one.specification.region.center[:1].expand(12, 2)
    labels = one.predictions()[:1].expand(12)
    many = Problem(one.network, one.posterior, class_robust(ball(center, eps), labels, 3))
    certify(many).save(tmp_path / "many")
    words = said(tmp_path / "many", capsys)
    assert "And 4 kinds more." in words


# Maps


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A map that the command line made, with its posterior beside it."""
    place = tmp_path_factory.mktemp("map")
    network = mlp(2, 2)
    mean = torch.tensor([1, 0, 0, 1, 0, 0]).double()
    save_posterior(place / "p.safetensors", network, Normal(mean, torch.full_like(mean, 0.01)))
    (place / "region.toml").write_text(
        '[[dimension]]\nname = "distance"\nunit = "km"\nlow = 0\nhigh = 10\nscale = 10\n'
        '[[dimension]]\nname = "speed"\nlow = 0\nhigh = 1\n'
    )
    arguments = ["map", place / "p.safetensors", "--region", place / "region.toml"]
    arguments += ["--condition", "class 0 or class 1", "--parts", 4, "--out", place / "out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["bnncert", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    assert end.value.code == 0
    return place


def of_map(place: Path, folder: Path, change: Change) -> str | None:
    """What is said of the map with a changed manifest."""
    shutil.copytree(place / "out", folder)
    edit(folder, change)
    (*_, last) = check_map(folder, read_model(place / "p.safetensors"))
    return last.code


def test_a_map_agrees_with_its_manifest(mapped: Path, tmp_path: Path) -> None:
    found = json.loads((mapped / "out" / "manifest.json").read_text())
    assert found["question"]["condition"] == {"kind": "text", "text": "class 0 or class 1"}
    assert found["question"]["region"]["upper"] == [1.0, 1.0]
    assert found["features"][0] == {"name": "distance (km)", "mean": 0.0, "std": 10.0}
    assert of_map(mapped, tmp_path / "same", lambda _: None) is None


OTHER_MAPS: dict[str, Change] = {
    "another posterior": posterior(posterior="0" * 64),
    "another threshold": asked(at_least="0.9"),
    "a larger region": region(upper=[1.0, 2.0]),
    "another norm": region(norm="linf"),
    "another condition": condition(kind="text", text="class 0"),
    "sides that change places": lambda m: m["features"].reverse(),
    "another scale": lambda m: m["features"][0].update(std=1.0),
    "another unit": lambda m: m["features"][0].update(name="distance (m)"),
    "a file": condition(**VNNLIB),
    "classes": condition(kind="class", target=None),
}


@pytest.mark.parametrize("name", OTHER_MAPS)
def test_a_map_of_another_question_is_refused(name: str, mapped: Path, tmp_path: Path) -> None:
    assert of_map(mapped, tmp_path / "other", OTHER_MAPS[name]) == "manifest-mismatch"
