"""Pictures of inputs in the report, and evidence in words."""

from __future__ import annotations

import base64
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from bnncert import GIE, Concentration
from bnncert.evidence.certificate import Certificate
from bnncert.model.standardisation import Column
from bnncert.report.evidence import in_words, row_in_words
from bnncert.report.pictures import as_image, difference, png, shrink, to_pixels, value_range
from report_folders import header, write_folder
from report_pages import certified, written

# Pictures


def decoded(content: bytes) -> np.ndarray[Any, Any]:
    pixels = np.round(imread(io.BytesIO(content)) * 255).astype(np.uint8)
    return pixels if pixels.ndim == 3 else pixels[..., None]


@pytest.mark.parametrize("shape", [(28, 28, 1), (1, 9, 1), (32, 20, 3)])
@pytest.mark.parametrize("smooth", [False, True])
def test_png_files_hold_the_pixels(shape: tuple[int, ...], smooth: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    if smooth:
        pixels = np.broadcast_to(
            np.arange(shape[1], dtype=np.uint8)[None, :, None] * 5, shape
        ).copy()
    assert np.array_equal(decoded(png(pixels)), pixels)


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((64,), (8, 8, 1)),
        ((784,), (28, 28, 1)),
        ((3072,), (32, 32, 3)),
        ((28, 28), (28, 28, 1)),
        ((1, 28, 20), (28, 20, 1)),
        ((3, 32, 32), (32, 32, 3)),
        ((13,), None),
        ((4,), None),
        ((65,), None),
        ((28, 20), None),
        ((2, 28, 28), None),
        ((3, 4, 4), None),
    ],
)
def test_what_is_an_image(shape: tuple[int, ...], picture: tuple[int, ...] | None) -> None:
    image = as_image(torch.zeros(shape, dtype=torch.float64))
    assert (None if image is None else image.shape) == picture


def test_colours_and_rows_keep_their_place() -> None:
    x = torch.zeros(3, 8, 8, dtype=torch.float64)
    x[1, 2, 5] = 1.0  # green, third row, sixth column
    image = as_image(x)
    assert image is not None
    pixels = to_pixels(image, (0.0, 1.0))
    assert pixels[2, 5].tolist() == [0, 255, 0]
    assert pixels.sum() == 255


def test_the_range_of_values() -> None:
    image = np.array([[[-2.0], [2.0]]])
    assert value_range(image, (-3.0, 3.0)) == (-3.0, 3.0)
    assert value_range(image, (-math.inf, math.inf)) == (-2.0, 2.0)
    assert value_range(image / 4 + 0.5, None) == (0.0, 1.0)
    assert to_pixels(image, (-2.0, 2.0)).flatten().tolist() == [0, 255]
    assert to_pixels(image, (2.0, 2.0)).flatten().tolist() == [0, 0]
    assert to_pixels(np.array([[[math.nan]]]), (0.0, 1.0)).item() == 0


def test_differences_are_scaled_and_signed() -> None:
    image, other = np.zeros((1, 3, 1)), np.array([[[-0.01], [0.0], [0.005]]])
    pixels, largest = difference(image, other)
    assert largest == 0.01
    assert pixels[0, 0, 0] == 0
    assert pixels[0, 1, 0] == 128
    assert 190 <= pixels[0, 2, 0] <= 203
    assert difference(image, image)[0].flatten().tolist() == [128] * 3


def test_shrinking_takes_means() -> None:
    pixels = np.array([[0, 100, 7], [50, 250, 9], [3, 3, 1]], np.uint8)[..., None]
    assert shrink(pixels, 2)[..., 0].tolist() == [[100, 8], [3, 1]]
    assert shrink(pixels, 1) is pixels


def test_one_dimensional_inputs_have_no_picture(tmp_path: Path) -> None:
    write_folder(tmp_path / "run", 8, shape=(13,))
    page = written(tmp_path / "run")
    assert page.tags["img"] == 0
    assert all(figure is None or set(figure) == {"tables"} for figure in page.data["figures"])


def test_colour_images_and_their_counterexamples(tmp_path: Path) -> None:
    lines = write_folder(tmp_path / "run", 8, shape=(3, 12, 10))
    page = written(tmp_path / "run")
    assert page.tags["img"] == sum(line["certificate"] is not None for line in lines)
    assert page.data["figures"][1] is None
    point, change, largest = page.data["figures"][2]["point"]
    assert decoded(base64.b64decode(point.split(",")[1])).shape == (12, 10, 3)
    assert decoded(base64.b64decode(change.split(",")[1])).shape == (12, 10, 3)
    assert float(largest) == 0.025


# Evidence in words


def test_boxes_in_words(tmp_path: Path, trained: Any) -> None:
    posterior = certified(tmp_path / "run", trained, GIE(samples=9, budget=200))
    page = written(tmp_path / "run", posterior)
    words = [" ".join(page.data["texts"][i] for i in own) for own in page.data["words"]]
    known = [text for text in words if text]
    assert any("boxes of weights is proved safe on the whole region" in text for text in known)
    assert all("backward linear bounds (lbp)" in text for text in known)
    assert any("the posterior's centre" in text and "1.2 times that" in text for text in known)


def test_a_counterexample_in_words(tmp_path: Path, trained: Any) -> None:
    certified(tmp_path / "run", trained, Concentration(upper=True), eps=0.9)
    texts = written(tmp_path / "run").data["texts"]
    assert any(
        re.match(r"At the stored counterexample class \d before class \d fails with probability", t)
        for t in texts
    )
    assert "No lower bound above 0 was found." in texts


def test_rows_in_words() -> None:
    rows = torch.tensor([[0.0, -1.0, 1.0], [0.0, 2.0, -1.0]])
    rows = torch.cat([rows, torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])])
    tensors = {"rows": rows, "offsets": torch.tensor([0.0, 0.0, -1.5, 2.0])}
    assert row_in_words(0, tensors) == "class 2 before class 1"
    assert row_in_words(1, tensors) == "output row 1"
    assert row_in_words(2, tensors) == "output 1 above 1.5"
    assert row_in_words(3, tensors) == "output 2 below 2"
    named = [Column(name, 10.0, 2.0) for name in ("near", "far", "off")]
    assert row_in_words(0, tensors, named) == "class 2 (off) before class 1 (far)"
    assert row_in_words(2, tensors, named) == "output 1 (far) above 13"


def test_an_opposite_row_in_words() -> None:
    own = header(0, 0.1, 0.5)
    found = own["evidence"]["components"][0]["upper"]
    failure = header(0, 0.25, 1.0)["evidence"]["components"][0]["lower"]
    found["opposite"] = {"row": 1, "failure": failure}
    ends = {"c0.point": torch.zeros(2).double(), "rows": torch.tensor([[1.0], [-1.0]])}
    ends["offsets"] = torch.tensor([0.5, 0.25])
    (*_, last) = in_words(Certificate(own, ends))
    assert last.startswith(
        "At the stored counterexample output 0 above -0.5 fails with probability"
    )
    assert last.endswith("and output 0 below 0.25, its opposite, with probability at least 0.25.")
    fall = {"probability": (0.125).hex(), "cells": [2, 1, 2, 1], "size": 16, "along": 1}
    found["opposite"]["both"] = fall
    ends |= {f"c0.both.{name}": torch.zeros(1) for name in ("numbers", "slopes")}
    ends["c0.opposite.point"] = torch.zeros(2).double()
    (*_, last) = in_words(Certificate(own, ends))
    assert last.endswith(
        "its opposite, at a point of its own, with probability at least 0.25; both fail together "
        "with probability at most 0.125."
    )


def test_components_are_told_apart() -> None:
    own = header(0, 0.5, 0.9)
    own["evidence"]["components"] *= 2
    points = {f"c{i}.point": torch.zeros(2).double() for i in range(2)}
    words = in_words(Certificate(own, points | {"rows": torch.tensor([[1.0, -1.0]])}))
    assert [text.split(":")[0] for text in words] == ["Component 0 (weight 1)"] * 2 + [
        "Component 1 (weight 1)"
    ] * 2
