"""What a report says of the question: a statement, particulars, and the coordinates of every
entry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import (
    Box,
    Concentration,
    InputError,
    Problem,
    ball,
    certify,
    class_robust,
    decide,
    save_posterior,
)
from bnncert.evidence.predictive import MEAN
from bnncert.model.network import mlp
from bnncert.model.specification import explicit_box
from bnncert.model.standardisation import Column
from bnncert.posteriors import Normal
from bnncert.report.statement import statement
from bnncert.results.manifest import (
    Around,
    ClassKept,
    HalfSpace,
    Inputs,
    Manifest,
    OutputWithin,
    Question,
    Rows,
    Source,
    Stated,
    Subject,
    VnnLib,
)
from commands import Run
from report_pages import Page, written
from scenarios import gaussian

SUBJECT = Subject("p.npz", None, "a" * 64, "b" * 64, "normal", 43)
LOOKED_FOR = Question((SUBJECT,), Around("linf", (0.1,)), ClassKept(None), at_least="0.95")
PLAIN = Manifest(LOOKED_FOR, (), 0, 0, (), (), {}, {}, "now", None)


def said(manifest: Manifest = PLAIN, **changes: Any) -> str:
    return " ".join(statement(replace(manifest, question=replace(LOOKED_FOR, **changes))))


def test_regions_in_words() -> None:
    assert "each differ from those of the input by at most ε = 0.1, at all" in said()
    assert "Euclidean distance from the input is at most ε = 2.0 and whose coordinates lie" in said(
        region=Around("l2", (2.0,), (0.0, 1.0))
    )
    assert "by at most ε, for ε = 0.1 and 0.2 in turn in sum" in said(
        region=Around("l1", (0.1, 0.2))
    )
    assert "ε, which is from 0.1 to 0.9" in said(
        region=Around("linf", tuple(k / 10 for k in range(1, 10)))
    )
    assert "a radius that was searched for" in said(region=Around("linf"))
    assert "between the ends that are given for each entry" in said(region=Around("box"))
    whole = Around("box", lower=(0.0, -1.0), upper=(1.0, 2.0))
    assert "cover coordinate 0 from 0 to 1, coordinate 1 from -1 to 2" in said(region=whole)
    sides = replace(PLAIN, features=(Column("range (km)", 0.0, 10.0), Column("speed")))
    assert "coordinate 0 (range (km)) from 0 to 10, coordinate 1 (speed) from -1 to 2" in said(
        sides, region=whole
    )
    measured = replace(PLAIN, features=(Column("size", 5.0, 2.0),))
    assert "at most ε = 0.1 standard deviations of that coordinate" in said(measured)


def test_conditions_in_words() -> None:
    named = replace(PLAIN, outputs=(Column("stay"), Column("left"), Column("right")))
    assert "gives the label of the input a larger output than every other class at" in said()
    assert "larger output than class 1 (left) at" in said(named, condition=ClassKept(1))
    assert "keeps output 0 within 0.5 of the target" in said(condition=OutputWithin(0, 0.5))
    assert "inside the interval that is given for each entry" in said(
        condition=OutputWithin(0, None)
    )
    price = replace(PLAIN, outputs=(Column("price", 20.0, 9.0),))
    assert "keeps output 0 (price) within 4.5 of the target of the input, as it was measured" in (
        said(price, condition=OutputWithin(0, 0.5))
    )
    assert "keeps 2 · output 0 (stay) + -1 · output 2 (right) above 0.5" in said(
        named, condition=HalfSpace((2.0, 0.0, -1.0), 0.5)
    )
    assert "every output row of the entry’s certificate positive" in said(condition=Rows())
    assert "satisfies “class 1 or y0 >= 2”" in said(condition=Stated("class 1 or y0 >= 2"))
    asked = VnnLib(Source("q.vnnlib", "c" * 64), "(text)", False, ("rows are rounded",))
    assert "no counterexample as the VNN-LIB file “q.vnnlib”" in said(condition=asked)
    assert "harder to satisfy than the file: rows are rounded." in said(condition=asked)


def test_means_are_another_question() -> None:
    softmax = said(quantity="softmax", at_least=None)
    assert "P_safe" not in softmax
    assert "mean of their softmax probability of the label" in softmax
    mean = said(quantity=MEAN, at_least=None, condition=OutputWithin(0, 0.5))
    assert "mean of output 0, which is to stay within 0.5" in mean
    rows = said(quantity=MEAN, at_least=None, condition=Rows())
    assert "mean of the output row" in rows


def test_who_and_how_many() -> None:
    second = replace(SUBJECT, name="q.npz")
    assert "one of the posteriors “p.npz”, “q.npz”" in said(subjects=(SUBJECT, second))
    inputs = Inputs(Source("mnist", "d" * 64, is_file=False), ":", 1)
    assert "asked of 1 input: all of the data set “mnist”." in said(inputs=inputs)
    drawn = said(replace(PLAIN, estimate=30))
    assert "30 networks were drawn for estimates" in drawn


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry(page: Page, i: int) -> list[list[Any]]:
    return (page.data["figures"][i] or {}).get("tables", [])


def test_the_report_of_a_regression(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """Question, files, digests, threshold, named coordinates in measured units, the counterexample
    and the outputs there, and no Python words."""
    out = tmp_path / "out"
    asked = ["certify", files["r.safetensors"], "--inputs", files["x.npz"], "--eps", 0.05]
    assert run(*asked, "--tolerance", 9, "--upper", "--at-least", 0.9, "--out", out)[0] in (0, 1)
    page = written(out, files["r.safetensors"])
    for text in (
        "keeps output 0 (price) within 9 of the target of the input, as it was measured",
        "at most ε = 0.05 standard deviations of that coordinate",
        "whether P_safe is at least 0.9.",
        "asked of 3 inputs: all of the file “x.npz”",
        sha256(files["r.safetensors"]),
        sha256(files["x.npz"]),
        "concentration (effort 1, upper yes, at least 0.9)",
        "--tolerance 9 --upper",
        "normal, 21 weights",
    ):
        assert text in page.words, text
    assert "None" not in page.words + " ".join(page.data["texts"])
    refuted = next(i for i, row in enumerate(page.rows()) if row[3] == "falsified")
    (coordinates, outputs) = entry(page, refuted)
    assert coordinates[1] == ["coordinate", "input", "from", "to", "counterexample"]
    assert [row[0] for row in coordinates[2]] == ["size", "age", "rooms"]
    with np.load(files["x.npz"]) as file:
        x = file["x"][refuted]
    for row, value in zip(coordinates[2], x, strict=True):
        middle, low, high, point = map(float, row[1:])
        assert (middle, low, high) == pytest.approx((value, value - 0.1, value + 0.1), rel=1e-4)
        assert low <= point <= high
    assert (outputs[1], outputs[2][0][0]) == (
        ["output", "at the input", "at the counterexample"],
        "price",
    )


def test_the_report_of_a_property(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """The file with its digest and its text, and the ends of its box."""
    out = tmp_path / "out"
    asked = ["certify", files["c.safetensors"], "--vnnlib", files["q.vnnlib"], "--upper"]
    assert run(*asked, "--names", files["names.toml"], "--out", out)[0] == 0
    page = written(out)
    text = files["q.vnnlib"].read_text()
    assert text.strip() in page.words
    assert f"q.vnnlib, SHA-256 {sha256(files['q.vnnlib'])}" in page.words
    assert entry(page, 0)[0][2][0][:4] == ["x0", "0.5", "0.25", "0.75"]
    assert page.facts(0)["label"] == "class 1 (left)"
    assert page.facts(0)["half-widths of the box"] == "0.25"
    assert "ε" not in page.facts(0)


def test_a_box_is_shown_with_its_sides(tmp_path: Path) -> None:
    """Which need not be equal; its largest is no radius."""
    network = mlp(3, 2)
    mean = torch.ones(network.size).double()
    mean[-2] = 3  # the bias of class 0
    x = torch.full((2, 3), 0.5).double()
    halves = torch.tensor([[0.05, 0.1, 0.1], [0.05, 0.1, 0.2]]).double()
    spec = class_robust(explicit_box(Box(x - halves, x + halves), x), [0, 0], 2)
    problem = Problem(network, Normal(mean, mean / 100), spec)
    certify(problem, Concentration(upper=True)).save(tmp_path)
    page = written(tmp_path)
    sides = [page.facts(i)["half-widths of the box"] for i in range(2)]
    assert sides == ["0.05, 0.1, 0.1", "0.05, 0.1, 0.2"]
    assert "ε = 0.1" not in page.words
    assert "<h3>ε" not in page.text


def test_names_from_a_file_replace_those_of_the_folder(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ["certify", files["r.safetensors"], "--inputs", files["x.npz"], "--eps", 0.01]
    assert run(*asked, "--tolerance", 90, "--out", out)[0] == 0
    names = tmp_path / "other.toml"
    names.write_text('features = ["a", "b", "c"]')
    assert run("report", out, "--names", names, "--out", tmp_path / "r.html")[0] == 0
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert [row[0] for row in entry(page, 0)[0][2]] == ["a", "b", "c"]
    assert "output 0 (price)" in page.words


def test_a_folder_without_a_manifest_says_so(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ["certify", files["c.safetensors"], "--vnnlib", files["q.vnnlib"]]
    assert run(*asked, "--out", out)[0] == 0
    (out / "manifest.json").unlink()
    assert "This folder does not say what was asked" in written(out).words


def test_the_report_of_decisions(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    """Another quantity, said at the top; bounds of a mean in the target's units."""
    out = tmp_path / "mean"
    asked = ["decide", files["r.safetensors"], "--inputs", files["x.npz"], "--eps", 0.01]
    assert run(*asked, "--tolerance", 40, "--out", out)[0] == 0
    page = written(out, files["r.safetensors"])
    assert "This is not Psafe" in page.words
    assert "mean of output 0 (price), which is to stay within 40 of the target" in page.words
    assert "None" not in page.words + " ".join(page.data["texts"])
    decisions = [json.loads(line) for line in (out / "decisions.jsonl").read_text().splitlines()]
    for row, decision in zip(page.rows(), decisions, strict=True):
        assert row[3] == decision["status"]
        assert float(row[4]) == pytest.approx(20 + 9 * decision["lower"], rel=1e-5)
    assert f"{sum(d['status'] == 'decided' for d in decisions)} of 3 decided" in page.words
    assert "P_safe ≥" not in " ".join(page.data["texts"])
    assert page.tags["section"] == 4  # no distribution of probabilities


def test_decisions_about_classes(tmp_path: Path) -> None:
    network = mlp(2, 3)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(0))
    x = torch.rand(2, 2).double()
    labels = network.forward(mean, x).argmax(-1)
    problem = Problem(
        network, Normal(mean, mean.abs() / 50), class_robust(ball(x, 0.01), labels, 3)
    )
    decide(problem).save(tmp_path)
    page = written(tmp_path)
    assert "mean softmax probability of the label" in page.words
    assert all(cell[4].endswith("%") for cell in page.rows())
    assert "ahead of every other class by" in page.facts(0)
    (tmp_path / "decisions.jsonl").write_text(
        (tmp_path / "decisions.jsonl").read_text().replace("softmax", "luck")
    )
    with pytest.raises(InputError, match="quantity is 'luck'"):
        written(tmp_path)


def test_what_proves_nothing_shows_its_input_where_the_data_are_at_hand(
    run: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    """Told by their digest, beside the folder; measured, and with the ends of the region."""
    out = tmp_path / "out"
    asked = ["certify", files["r.safetensors"], "--inputs", files["x.npz"], "--eps", 0.5]
    assert run(*asked, "--tolerance", 1e-6, "--method", "sampling", "--out", out)[0] == 0
    page = written(out)
    nothing = [i for i in range(3) if "certificate" not in page.facts(i)]
    assert nothing
    with np.load(files["x.npz"]) as file:
        x = file["x"]
    for i in nothing:
        (table,) = entry(page, i)
        numbers = [[float(cell) for cell in row[1:]] for row in table[2]]
        expected = [[value, value - 1, value + 1] for value in x[i]]
        assert np.allclose(numbers, expected, rtol=1e-4)
    np.savez(files["x.npz"], x=x + 1, y=np.zeros(3))
    assert entry(written(out), nothing[0]) == []


def test_a_data_set_shows_the_inputs_that_prove_nothing(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    network = mlp(64, 10)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(0))
    save_posterior(tmp_path / "p.safetensors", network, Normal(mean, torch.ones_like(mean)))
    asked = ["certify", tmp_path / "p.safetensors", "--inputs", "digits", "--select", "0:3"]
    assert run(*asked, "--eps", 0.5, "--out", tmp_path / "out")[0] == 0
    assert written(tmp_path / "out").tags["img"] == 3


def test_a_property_about_some_rivals_is_accepted(run: Run, tmp_path: Path) -> None:
    """Lines have words for all rivals and for one; of some of them they name no class."""
    network = mlp(2, 4)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(0))
    save_posterior(tmp_path / "four.safetensors", network, Normal(mean, mean.abs() / 100))
    text = "".join(f"(declare-const X_{i} Real)\n" for i in range(2))
    text += "".join(f"(declare-const Y_{j} Real)\n" for j in range(4))
    text += "".join(f"(assert (>= X_{i} 0.4))\n(assert (<= X_{i} 0.5))\n" for i in range(2))
    first = int(network.forward(mean, torch.full((1, 2), 0.45).double()).argmax())
    rivals = [j for j in range(4) if j != first][:2]
    text += f"(assert (or {' '.join(f'(and (>= Y_{j} Y_{first}))' for j in rivals)}))\n"
    (tmp_path / "some.vnnlib").write_text(text)
    asked = ["certify", tmp_path / "four.safetensors", "--vnnlib", tmp_path / "some.vnnlib"]
    assert run(*asked, "--upper", "--out", tmp_path / "some")[0] == 0
    assert run("check", tmp_path / "some", "--posterior", tmp_path / "four.safetensors")[0] == 0
