"""Pages that are programs: a method of one's own, and samples for other verifiers."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from bnncert import load_posterior
from commands import Run
from pages import blocks, run_page
from pages import run as run_code


def test_a_method_of_ones_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flint")
    monkeypatch.chdir(tmp_path)
    printed, shown, (checked,) = run_page("own-method.md", run, capsys)
    assert printed == shown
    cheap, patient = map(float, re.findall(r"\d\.\d\d", printed))
    assert patient > cheap
    assert "ACCEPT: 10 ACCEPT, 0 REJECT, 0 ERROR" in checked.splitlines()


def test_samples_for_other_verifiers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    printed, shown, (_, certified) = run_page("other-verifiers.md", run, capsys)
    assert printed == shown
    assert len((tmp_path / "instances" / "instances.csv").read_text().splitlines()) == 60
    assert "000000.vnnlib" in certified


def test_the_published_posteriors_are_read_from_their_pickles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of means and one of standard deviations, of [weights, biases] each."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    sizes = ((5, 4), (4,)), ((4, 3), (3,))
    means, stds = (
        [[random.random(size).astype(np.float32) for size in layer] for layer in sizes]
        for _ in range(2)
    )
    (tmp_path / "wick_MNIST_1_128.h5").write_bytes(pickle.dumps([means, stds]))
    (code,) = blocks("reproduction.md", "The published posteriors")
    run_code(code)
    network, posterior = load_posterior(tmp_path / "paper_1x128.npz")
    assert network.parameters == {"W0": (5, 4), "b0": (4,), "W1": (4, 3), "b1": (3,)}
    flat = np.concatenate([part.ravel() for layer in means for part in layer])
    assert np.array_equal(posterior.center.numpy(), flat)
    spread = np.concatenate([part.ravel() for layer in stds for part in layer])
    assert np.array_equal(posterior.std.numpy(), spread)
