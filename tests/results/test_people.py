"""What people have at hand: numpy's arrays, methods by their names, tables, counterexamples, and a
notebook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bnncert import (
    PIE,
    Box,
    Concentration,
    InputError,
    Problem,
    ball,
    certify,
    class_robust,
    decide,
    explicit_box,
    half_space,
    mlp,
    output_interval,
)
from bnncert.model.specification import Specification
from bnncert.posteriors import Empirical, Normal, Uniform
from scenarios import vector

ONES = np.ones(2)


def problem(bound: float = 2.5, inputs: int = 1) -> Problem:
    """x ↦ wx + b with w, b ~ N(1, 0.1²) near 1, asked whether it is above the bound."""
    region = ball(np.ones((inputs, 1)), 0.1)
    return Problem(mlp(1, 1), Normal(ONES, ONES / 10), half_space(region, np.ones(1), bound))


def test_arrays_are_taken_where_tensors_are() -> None:
    network = mlp(2, 2)
    mean, std = np.linspace(-1, 1, 6), np.full(6, 0.01)
    x, y = np.array([[0.3, 0.6], [0.1, 0.2]]), np.array([1, 0])
    given = Problem(network, Normal(mean, std), class_robust(ball(x, np.full(2, 0.01)), y, 2))
    tensors = [torch.from_numpy(each) for each in (mean, std, x, y)]
    same = Problem(
        network,
        Normal(*tensors[:2]),
        class_robust(ball(tensors[2], 0.01), tensors[3], 2),
    )
    assert given.digest == same.digest
    box = Box(x - 0.1, x + 0.1)
    assert explicit_box(box, x).center.dtype == torch.float64
    rows = Specification(ball(x, 0.1), np.ones((2, 1, 2)), np.zeros((2, 1)))
    assert rows.rows.shape == (2, 1, 2)
    assert output_interval(ball(x, 0.1), y - 0.5, y + 0.5).offsets[0].tolist() == [-0.5, 1.5]
    assert Uniform(mean - 1, mean + 1).center.tolist() == pytest.approx(mean.tolist())
    assert Empirical(np.ones((3, 6))).size == 6


def test_arrays_are_copied() -> None:
    mean = np.zeros(2)
    posterior = Normal(mean, ONES)
    mean += 1
    assert posterior.mean.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: ball(f((1, 2)), 0.1), "input is torch.float32"),
        (lambda f: Box(f(2), f(2)), "box is torch.float32"),
        (lambda f: Normal(f(2), f(2)), "posterior 'mean' is torch.float32"),
        (lambda f: Empirical(f((2, 2))), "samples are torch.float32"),
    ],
)
def test_single_precision_says_what_to_do(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make(lambda shape: np.ones(shape, np.float32))
    assert str(caught.value).endswith("(use .double(), or .astype(float))")


def test_a_method_by_its_name() -> None:
    for name, method in (("pie", PIE()), ("concentration", Concentration())):
        named, made = certify(problem(1.5), name), certify(problem(1.5), method)
        assert (named[0].lower, named[0].method) == (made[0].lower, name)
    with pytest.raises(InputError) as caught:
        certify(problem(), "pei")
    assert str(caught.value) == (
        "method 'pei' is not known; choose concentration, enumeration, sampling, pie, gie, or for "
        "options an object: Concentration(), Enumeration(), Sampling(), PIE(), GIE()"
    )


def test_the_counterexample_of_a_result() -> None:
    """The worst point of the region; none where no upper bound was looked for."""
    (found,) = certify(problem(), Concentration(upper=True))
    assert found.upper < 0.01
    assert found.counterexample is not None
    assert found.counterexample.tolist() == pytest.approx([0.9])
    assert certify(problem())[0].counterexample is None
    assert certify(problem(1.5), "pie")[0].counterexample is None


def test_the_counterexample_of_most_of_a_list() -> None:
    """x ↦ 1 always passes; x and 2 - x below .95 fail at the ends, two networks of three at one."""
    samples = vector(0, 1, 1, 0, 1, 0, -1, 2).reshape(4, 2)
    near = half_space(ball(np.ones((1, 1)), 0.1), np.ones(1), 0.95)
    (found,) = certify(Problem(mlp(1, 1), Empirical(samples), near))
    assert found.counterexample is not None
    assert float(found.counterexample) < 0.95


def test_a_regression_shows_its_interval() -> None:
    """In a prompt and in a notebook; as a frame it has the numbers."""
    near = output_interval(ball(np.ones((2, 1)), 0.1), low=1.8, high=2.2)
    asked = Problem(mlp(1, 1), Normal(ONES, ONES / 1000), near)
    for results in (certify(asked), decide(asked)):
        head, first, _ = repr(results).splitlines()
        assert head.split() == ["index", "low", "high", "output", "status", "lower", "upper"]
        assert first.split()[:4] == ["0", "1.8", "2.2", "2"]
        assert "<th>low</th><th>high</th><th>output</th>" in results._repr_html_()
    assert "label" in repr(certify(problem()))


def test_a_frame_of_regressions() -> None:
    pytest.importorskip("pandas")
    near = output_interval(ball(np.ones((2, 1)), 0.1), low=1.8, high=2.2)
    frame = certify(Problem(mlp(1, 1), Normal(ONES, ONES / 1000), near)).to_frame()
    assert frame["low"].tolist() == [1.8, 1.8]
    assert frame["output"].tolist() == pytest.approx([2, 2])
    assert "low" not in certify(problem()).to_frame().columns


NOTEBOOK = """
import numpy as np
from bnncert import Problem, ball, certify, half_space, mlp
from bnncert.posteriors import Normal

region = ball(np.ones((3, 1)), 0.1)
asked = Problem(mlp(1, 1), Normal(np.ones(2), np.ones(2) / 10), half_space(region, np.ones(1), 1.5))
certify(asked)
"""


def test_a_notebook_shows_progress_and_a_table() -> None:
    """In a kernel: a line that is empty in the end, and the results as HTML."""
    nbformat = pytest.importorskip("nbformat", reason="needs pip install nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="needs pip install nbclient ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NOTEBOOK)])
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    progress, table = notebook.cells[0].outputs
    assert progress["data"] == {"text/plain": ""}
    assert table["data"]["text/html"].count("<tr>") == 4
