"""Regression by commands: from a table to a report, in the units of the target."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import load_posterior, mlp, save_posterior
from bnncert.importers.native import load_notes
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors import Normal
from commands import Run
from scenarios import vector

TRAINING = ("--hidden", 8, "--epochs", 40, "--learning-rate", 0.03, "--batch-size", 32)


def write_table(path: Path, columns: dict[str, Any]) -> Path:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """Prices of about 300, by 40 for each room and -2 for each year; a third column says nothing,
    and a fourth is always the same."""
    generator = np.random.default_rng(0)
    rooms, age = generator.uniform(1, 8, 90), generator.uniform(0, 100, 90)
    price = 200 + 40 * rooms - 2 * age + 5 * generator.standard_normal(90)
    noise, same = 1e4 + generator.standard_normal(90), np.full(90, 7)
    names = {"rooms": rooms, "age": age, "noise": noise, "same": same, "price": price}
    return write_table(tmp_path / "homes.csv", names)


@pytest.fixture
def trained(run: Run, homes: Path) -> Path:
    path = homes.with_name("homes.safetensors")
    command = ("train", "--data", homes, "--task", "regression", *TRAINING, "--out", path)
    code, text, error = run(*command)
    assert (code, error) == (0, "")
    assert "RMSE at the mean" in text
    return path


def lines_of(folder: Path, name: str = "results.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_a_table_is_trained_certified_checked_and_reported(
    run: Run, trained: Path, homes: Path, tmp_path: Path
) -> None:
    """Numbers that people see are prices: the error, the target, the prediction, the tolerance."""
    network, posterior = load_posterior(trained)
    own = network.standardisation
    assert own is not None
    assert [column.name for column in own.inputs] == ["rooms", "age", "noise", "same"]
    assert (own.inputs[3].mean, own.inputs[3].std) == (7, 1)
    price = np.loadtxt(homes, delimiter=",", skiprows=1)[:, 4]
    (column,) = own.outputs
    expected = float(price[:81].mean()), float(price[:81].std())
    assert (column.name, column.mean, column.std) == ("price", *map(pytest.approx, expected))
    notes = load_notes(trained)
    assert 5 < notes["scores"]["rmse"] < 40
    assert notes["recipe"]["noise_std"] == pytest.approx(5 / own.outputs[0].std, rel=0.2)

    out = tmp_path / "results"
    asked = ("--inputs", homes, "--eps", 0.01, "--tolerance", 60, "--select", "81:86")
    code, text, error = run("certify", trained, *asked, "--out", out)
    assert (code, error) == (0, "")
    assert "0.01 standard deviations (linf)" in " ".join(text.split())
    assert "tolerance 60 of price" in " ".join(text.split())
    rows = lines_of(out)
    x = torch.from_numpy(np.loadtxt(homes, delimiter=",", skiprows=1)[81:86, :4])
    outputs = network.forward(posterior.center, own.inputs_of(x))[:, 0]
    for row, value, output in zip(rows, price[81:86], outputs.tolist(), strict=True):
        assert (row["low"], row["high"]) == pytest.approx((value - 60, value + 60))
        assert row["output"] == pytest.approx(own.outputs[0].measured(output))
        shown = next(
            line.split() for line in text.splitlines() if line.split()[:1] == [str(row["index"])]
        )
        assert shown[1:3] == [f"{value:.5g}", f"{row['output']:.5g}"]
    assert min(row["lower"] for row in rows) > 0.5

    code, text, _ = run("check", out, "--posterior", trained)
    assert code == 0
    assert "ACCEPT: 5 ACCEPT, 0 REJECT, 0 ERROR" in text.splitlines()
    assert run("report", out, "--posterior", trained)[0] == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    for said in (
        "(price) within 60 of the target of the input, as it was measured",
        "ε = 0.01 standard deviations of that coordinate",
        *("rooms", "age", "noise", "same"),
        f"{rows[0]['low']:.6g} to {rows[0]['high']:.6g}",
        f"{rows[0]['output']:.6g}",
    ):
        assert said in page, said


def test_the_mean_is_decided_in_the_target_s_units(
    run: Run, trained: Path, homes: Path, tmp_path: Path
) -> None:
    asked = ("--inputs", homes, "--eps", 0.01, "--tolerance", 60, "--select", "81")
    code, text, _ = run("decide", trained, *asked, "--out", tmp_path / "d")
    assert code == 0
    (row,) = lines_of(tmp_path / "d", "decisions.jsonl")
    own = load_posterior(trained)[0].standardisation
    assert own is not None
    shown = next(line.split() for line in text.splitlines() if line.split()[:1] == ["81"])
    ends = [own.outputs[0].measured(row[end]) for end in ("lower", "upper")]
    assert [float(part) for part in shown[4:6]] == pytest.approx(ends, rel=1e-5)
    assert run("check", tmp_path / "d", "--posterior", trained)[0] == 0


def test_columns_are_found_by_name(run: Run, trained: Path, homes: Path, tmp_path: Path) -> None:
    """In any order; one that is missing is named."""
    table = np.loadtxt(homes, delimiter=",", skiprows=1).T[:, 81:86]
    named = dict(zip(("rooms", "age", "noise", "same", "price"), table, strict=True))
    turned = write_table(tmp_path / "turned.csv", dict(reversed(named.items())))
    asked = ("--eps", 0.01, "--tolerance", 60)
    for inputs, select in ((homes, "81:86"), (turned, ":")):
        assert run("certify", trained, "--inputs", inputs, "--select", select, *asked,
                   "--out", tmp_path / inputs.stem)[0] == 0  # fmt: skip
    first, then = (lines_of(tmp_path / name) for name in ("homes", "turned"))
    assert [row["lower"] for row in first] == pytest.approx([row["lower"] for row in then])
    del named["age"]
    short = write_table(tmp_path / "short.csv", named)
    code, _, error = run("certify", trained, "--inputs", short, *asked)
    assert (code, error.count("\n")) == (2, 1)
    assert "has no column 'age'; it has rooms, noise, same, price" in error
    del named["price"]
    named["age"] = table[1]
    code, _, error = run("certify", trained, "--inputs", write_table(short, named), *asked)
    assert (code, "have no labels" in error) == (2, True)


def test_the_attack_asks_for_the_tolerance(run: Run, trained: Path, homes: Path) -> None:
    """A wide one holds everywhere, a narrow one hardly anywhere, and an attack takes some of it."""
    shares = []
    for tolerance, eps in ((1e4, 0.01), (15, 0.01), (15, 0.5)):
        asked = ("--inputs", homes, "--select", "70:90", "--eps", eps, "--tolerance", tolerance)
        code, text, error = run("attack", trained, *asked)
        assert (code, error) == (0, "")
        shares.append([float(part) for part in text.splitlines()[1].split() if part[0].isdigit()])
    assert shares[0] == [100, 100]
    assert shares[1][1] <= shares[1][0] < 100
    assert shares[2][1] < shares[2][0] == shares[1][0]


def test_a_training_goes_on_from_a_posterior_in_its_units(
    run: Run, trained: Path, homes: Path
) -> None:
    """With its columns, and a noise of the same estimate."""
    then = trained.with_name("then.safetensors")
    command = ("train", "--data", homes, "--task", "regression", "--from", trained)
    assert run(*command, "--epochs", 2, "--learning-rate", 1e-4, "--out", then)[0] == 0
    before, after = load_posterior(trained)[0], load_posterior(then)[0]
    assert after == before
    assert before.standardisation is not None
    first, second = load_notes(trained), load_notes(then)
    assert second["recipe"]["noise_std"] == pytest.approx(first["recipe"]["noise_std"])
    assert second["scores"]["rmse"] < 1.5 * first["scores"]["rmse"]


def test_several_targets_and_one_output_of_them(run: Run, tmp_path: Path) -> None:
    """Each is standardised by itself, learned, and asked about by --output."""
    generator = np.random.default_rng(1)
    x = generator.uniform(-1, 1, (120, 2))
    left, right = 10 + x[:, 0], 1e3 * (x[:, 1] - x[:, 0])
    columns = {"p": left, "a": x[:, 0], "b": x[:, 1], "q": right}
    table = write_table(tmp_path / "two.csv", columns)
    path = tmp_path / "two.safetensors"
    command = ("train", "--data", table, "--targets", "p, q", "--noise-std", 0.1, *TRAINING)
    code, _, error = run(*command, "--robust", 0.01, "--out", path)
    assert (code, error) == (0, "")
    own = load_posterior(path)[0].standardisation
    assert own is not None
    assert [column.name for column in (*own.inputs, *own.outputs)] == ["a", "b", "p", "q"]
    for output, values, tolerance in ((0, left, 1.0), (1, right, 900.0)):
        out = tmp_path / str(output)
        asked = ("--inputs", table, "--eps", 0.01, "--select", "110:113")
        about = ("--tolerance", tolerance, "--output", output)
        assert run("certify", path, *asked, *about, "--out", out)[0] == 0
        for row in lines_of(out):
            assert (row["low"] + row["high"]) / 2 == pytest.approx(values[row["index"]])
            assert abs(row["output"] - values[row["index"]]) < tolerance
            assert row["lower"] > 0.5
        assert run("check", out, "--posterior", path)[0] == 0


def test_one_head_of_two(run: Run, tmp_path: Path) -> None:
    """A network with outputs (mean, log σ) is asked about the first; y may be [N, 1]."""
    heads = vector(1.0, 0.0, 0.0, -5.0)  # mean = x, log σ = -5
    path = tmp_path / "heads.safetensors"
    save_posterior(path, mlp(1, 2), Normal(heads, torch.full_like(heads, 0.01)))
    x = np.array([[1.0], [2.0]])
    np.savez(tmp_path / "x.npz", x=x, y=x)
    asked = (path, "--inputs", tmp_path / "x.npz", "--eps", 0.1, "--tolerance", 0.5)
    code, text, error = run("certify", *asked, "--output", 0)
    assert (code, error) == (0, "")
    assert "0 unverified" not in text
    assert text.count("certified ") >= 2
    assert run("certify", *asked)[0] == 2


def test_a_standardised_posterior_takes_no_standardised_data(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    own = Standardisation(tuple(Column(f"x{i}") for i in range(10)), (Column("y"),))
    network = mlp(10, 1)
    ones = torch.ones(network.size).double()
    path = tmp_path / "p.safetensors"
    save_posterior(path, replace(network, standardisation=own), Normal(ones, ones))
    code, _, error = run("certify", path, "--inputs", "diabetes", "--eps", 0, "--tolerance", 1)
    assert code == 2
    assert "data set 'diabetes' comes standardised, and the posterior takes values as they" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n", "has 1 lines; give one of column names, then one per example"),
        ("1,2\n3,4\n", "begins with numbers; its first line must name the columns"),
        ("a,a\n3,4\n", "has columns without a name or of one name; name each"),
        ("a,b\n3\n", "line 2 of 't.csv' has 1 entries for 2 columns; separate numbers by commas"),
        ("a,b\n3,4\n3,high\n", "line 3 of 't.csv' has 'high' for b; give numbers"),
        ("a,b\n3,nan\n", "line 2 of 't.csv' has 'nan' for b; give numbers"),
        ("a\n3\n", "has targets alone; give it columns of inputs too"),
        ("a,b\n1,2.5\n2,3.5\n", "has 1 examples of 1 numbers, too few to tell the noise from"),
        ("a,b\n\xff1,2\n", "line 2 of 't.csv' has"),
    ],
)
def test_a_bad_table_is_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(text, encoding="utf-8")
    code, out, error = run("train", "--data", "t.csv", "--task", "regression", "--epochs", 1)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert message in error


def test_a_table_of_classes(run: Run, tmp_path: Path) -> None:
    """Whole numbers are classes unless a regression is asked for."""
    x = np.random.default_rng(0).standard_normal((80, 2))
    table = write_table(tmp_path / "c.csv", {"a": x[:, 0], "b": x[:, 1], "kind": (x[:, 0] > 0) * 1})
    path = tmp_path / "c.safetensors"
    code, text, _ = run("train", "--data", table, *TRAINING, "--out", path)
    assert (code, "accuracy at the mean" in text) == (0, True)
    assert load_posterior(path)[0].outputs == 2
    assert run("certify", path, "--inputs", table, "--select", "0:2", "--eps", 0)[0] == 0
    assert run("train", "--data", table, "--task", "regression", *TRAINING, "--out", path)[0] == 0
    assert load_posterior(path)[0].outputs == 1
