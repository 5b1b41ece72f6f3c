"""Importers' pages without a fitted object, the first page and the README: every block of code is
run, in order."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch

from commands import Run
from importing import UNCERTAINTY, torch_uncertainty_layers
from pages import ROOT, fenced, text

PAGES = {
    "importers/torch.md": ["python", "python"],
    "importers/bayesian-torch.md": ["python"],
    "importers/torchbnn.md": ["python"],
    "importers/blitz.md": ["python"],
    "importers/torch-uncertainty.md": ["python"],
    "importers/files.md": ["python", "python", "sh"],
}
LIBRARIES = {
    "bayesian-torch": "bayesian_torch",
    "torchbnn": "torchbnn",
    "blitz": "blitz",
    "files": "torchbnn",
}


def printed_bounds(output: str) -> list[tuple[float, float]]:
    """The lower and upper bounds, one pair a line."""
    bounds = []
    for line in output.splitlines():
        lower, upper = line.split()
        bounds.append((float(lower), float(upper)))
    return bounds


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(
    page: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = Path(page).stem
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    if name == "torch-uncertainty":
        monkeypatch.setitem(sys.modules, UNCERTAINTY, torch_uncertainty_layers())
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    languages = []
    for language, content in fenced(text(page)):
        languages.append(language)
        if language == "python":
            exec(compile(content, f"{page}, block {len(languages)}", "exec"), {"__name__": "page"})
        else:
            for line in content.splitlines():
                program, *arguments = line.split()
                assert program == "bnncert"
                assert run(*arguments)[0] == 0
    assert languages == PAGES[page]
    if name == "bayesian-torch":
        bounds = printed_bounds(capsys.readouterr().out)
        assert len(bounds) == 5
        assert all(0 <= lower <= upper <= 1 for lower, upper in bounds)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_model_becomes_an_interval_in_six_lines(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = pytest.importorskip("bayesian_torch.layers")
    torch.manual_seed(0)
    model = torch.nn.Sequential(layers.LinearReparameterization(4, 3, posterior_rho_init=-6.0))
    markdown = (ROOT / page).read_text(encoding="utf-8")
    ((_, content),) = fenced(markdown.rpartition("## Bring your own BNN")[2].partition("\n## ")[0])
    assert len([line for line in content.splitlines() if line]) <= 6
    x = torch.rand(3, 4)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        labels = (x @ model[0].mu_weight.T + model[0].mu_bias).argmax(-1)
        exec(content, {"model": model, "x": x, "labels": labels})
    bounds = printed_bounds(capsys.readouterr().out)
    assert len(bounds) == 3
    assert max(lower for lower, _ in bounds) > 0.5
