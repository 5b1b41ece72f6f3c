"""The importers' page and the README's section: every block of code is run, in order."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from importing import UNCERTAINTY, torch_uncertainty_layers
from test_cli import Run, run  # noqa: F401 (a fixture)

ROOT = Path(__file__).parent.parent


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of every fenced block."""
    yield from re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_page_runs(
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for library in ("bayesian_torch", "torchbnn", "blitz"):
        pytest.importorskip(library)
    monkeypatch.setitem(sys.modules, UNCERTAINTY, torch_uncertainty_layers())
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    languages = []
    for language, content in blocks((ROOT / "docs" / "importers.md").read_text(encoding="utf-8")):
        languages.append(language)
        if language == "python":
            exec(compile(content, f"importers.md, block {len(languages)}", "exec"), {"__name__": "page"})
        else:
            for line in content.splitlines():
                program, *arguments = line.split()
                assert program == "bnncert"
                assert run(*arguments)[0] == 0
        if len(languages) == 1:
            bounds = [[float(number) for number in line.split()] for line in capsys.readouterr().out.splitlines()]
            assert len(bounds) == 5
            assert all(0 <= lower <= upper <= 1 for lower, upper in bounds)
    assert languages == ["python"] * 5 + ["sh"]


def test_the_readme_takes_a_model_to_an_interval_in_six_lines(capsys: pytest.CaptureFixture[str]) -> None:
    layers = pytest.importorskip("bayesian_torch.layers")
    torch.manual_seed(0)
    model = torch.nn.Sequential(layers.LinearReparameterization(4, 3, posterior_rho_init=-6.0))
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## Bring your own BNN")[2].partition("\n## ")[0]
    )
    (_, content), *_ = blocks(section)
    assert len([line for line in content.splitlines() if line]) <= 6
    x = torch.rand(3, 4)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        labels = (x @ model[0].mu_weight.T + model[0].mu_bias).argmax(-1)
        exec(content, {"model": model, "x": x, "labels": labels})
    bounds = [[float(number) for number in line.split()] for line in capsys.readouterr().out.splitlines()]
    assert len(bounds) == 3
    assert max(lower for lower, _ in bounds) > 0.5
