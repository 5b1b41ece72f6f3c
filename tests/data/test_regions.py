"""Operating regions from files: exact, rounded outward, and refused by name."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bnncert import InputError
from bnncert.data.regions import load_radii, load_region

TOML = """
[[dimension]]
name = "altitude"
unit = "ft"
low = -100
high = 300.5
center = 100
scale = 1000
smallest = 10

[[dimension]]
low = 0.1
high = 0.1
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_text_file_is_exact(tmp_path: Path) -> None:
    table = (
        "name,unit,low,high,center,scale,smallest\n"
        "altitude,ft,-100,300.5,100,1000,10\nx1,,0.1,0.1,,,\n"
    )
    regions = [
        load_region(written(tmp_path, name, text))
        for name, text in (("r.toml", TOML), ("r.csv", table))
    ]
    assert regions[0] == regions[1]
    first, second = regions[0].dimensions
    assert (first.name, first.unit, first.smallest) == ("altitude", "ft", Fraction(10))
    assert first.high == Fraction(601, 2)
    assert second.name == "x1"
    # Between the floats next to a tenth lies a tenth.
    low, high = second.ends
    assert Fraction(low) < Fraction(1, 10) < Fraction(high) or Fraction(low) == Fraction(high)
    assert math.nextafter(low, 1) >= high
    box = regions[0].box((2,))
    assert box.lower.tolist() == [[-0.2, low]]
    assert Fraction(float(box.upper[0, 0])) >= Fraction("0.2005")
    assert first.value(0.0) == 100


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    np.savez(
        path, lower=np.zeros((2, 2)), upper=np.ones((2, 2)), names=list("abcd"), units=["m"] * 4
    )
    region = load_region(path)
    assert [side.name for side in region.dimensions] == list("abcd")
    assert region.box((2, 2)).upper.shape == (1, 2, 2)
    with pytest.raises(InputError, match="has 4 dimensions, the network takes"):
        region.box((3,))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("r.json", "{}", "give a file .toml, .csv or .npz"),
        ("none.toml", None, "cannot be read"),
        ("r.toml", "", "there is no dimension in it"),
        ("r.toml", "=", "this is no TOML"),
        ("r.toml", "other = 1", "'other' is not known"),
        ("r.toml", "dimension = 1", "is no list of tables"),
        ("r.toml", "[[dimension]]\nlow = 0", "dimension 'x0' has no 'high'"),
        ("r.toml", "[[dimension]]\nlow = 1\nhigh = 0", "goes from 1 to 0"),
        ("r.toml", "[[dimension]]\nlow = nan\nhigh = 0", "low of dimension 'x0' is 'nan'|'NaN'"),
        ("r.toml", "[[dimension]]\nlow = true\nhigh = 1", "give a finite number"),
        ("r.toml", "[[dimension]]\nlow = 0\nhigh = 1\nscale = 0", "scale of dimension 'x0'"),
        ("r.toml", "[[dimension]]\nlow = 0\nhigh = 1\nsmallest = 0", "smallest of dimension"),
        ("r.toml", "[[dimension]]\nlow = 0\nhigh = 1\nunits = 'm'", "did you mean 'unit'"),
        ("r.toml", "[[dimension]]\nlow = 0\nhigh = 1\nname = 1", "is no text"),
        ("r.toml", "[[dimension]]\nlow = 0\nhigh = 1e999999999", "give a finite number"),
        ("r.toml", "[[dimension]]\nlow = 0\nhigh = 1e900", "larger than every float"),
        (
            "r.toml",
            "[[dimension]]\nname='a'\nlow = 0\nhigh = 1\n[[dimension]]\nname='a'\nlow=0\nhigh=1",
            "two dimensions are called 'a'",
        ),
        ("r.csv", "0,1\n2,3", "names no column 'low'"),
        ("r.csv", "low,low\n0,1", "names a column twice"),
        ("r.csv", "low,high\n0", "line 2 has 1 cells"),
        ("r.csv", "low,high\n0,x", "high of dimension 'x0' is 'x'"),
        ("r.csv", "low,high\n", "there is no dimension in it"),
    ],
)
def test_bad_regions(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    path = tmp_path / name if text is None else written(tmp_path, name, text)
    with pytest.raises(InputError, match=said) as error:
        load_region(path).box((1,))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"lower": np.zeros(2)}, "the array 'upper' is missing"),
        ({"lower": np.zeros(2), "upper": np.ones(3)}, "lower has 2 entries and upper 3"),
        ({"lower": np.zeros(2), "upper": np.full(2, np.inf)}, "not finite"),
        ({"lower": np.zeros(2), "upper": np.ones(2), "names": ["a"]}, "is not 2 texts"),
        ({"lower": np.zeros(2), "upper": np.ones(2), "smallest": np.ones(1)}, "smallest has 1"),
        ({"lower": np.ones(2), "upper": np.zeros(2)}, "goes from 1 to 0"),
    ],
)
def test_bad_arrays(tmp_path: Path, arrays: dict[str, object], said: str) -> None:
    np.savez(tmp_path / "r.npz", **arrays)
    with pytest.raises(InputError, match=said):
        load_region(tmp_path / "r.npz")


def test_radii(tmp_path: Path) -> None:
    table = written(tmp_path, "r.csv", "name,eps,scale\na,0.1,10\nb,2,\n")
    values = load_radii(table, (2,)).tolist()
    assert values == pytest.approx([0.01, 2.0])
    assert Fraction(values[0]) >= Fraction(1, 100)
    np.savez(tmp_path / "r.npz", eps=np.array([[0.5, 0.25]]))
    assert load_radii(tmp_path / "r.npz", (1, 2)).tolist() == [[0.5, 0.25]]
    for text, said in (
        ("low,high\n0,1", "has no 'eps'"),
        ("eps\n-1", "a radius is below 0"),
        ("eps\n1\n1", "there are 2 radii"),
        ("eps,scale\n1,0", "scale of dimension 'x0'"),
    ):
        with pytest.raises(InputError, match=said):
            load_radii(written(tmp_path, "bad.csv", text), (1,))
