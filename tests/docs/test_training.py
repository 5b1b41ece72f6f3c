"""The page of training for certificates: every library's script runs by itself, and the bound in
the loss makes certified what was not."""

from __future__ import annotations

import re
import sys

import pytest

from importing import UNCERTAINTY, torch_uncertainty_layers
from pages import blocks, text

PAGE = "training-your-own.md"
NEEDED = {
    "Plain torch": "torch",
    "bayesian-torch": "bayesian_torch",
    "torchbnn": "torchbnn",
    "blitz": "blitz",
    "torch-uncertainty": "",
}
SAYS = re.compile(r"^without the bound ([\d.]+), with it ([\d.]+)$", re.M)


pytestmark = pytest.mark.usefixtures("one_thread")


def test_every_script_is_run() -> None:
    assert re.findall(r"^## (.*)$", text(PAGE), re.M) == list(NEEDED)


@pytest.mark.parametrize("heading", NEEDED)
def test_the_script_certifies(
    heading: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    if NEEDED[heading]:
        pytest.importorskip(NEEDED[heading])
    else:
        monkeypatch.setitem(sys.modules, UNCERTAINTY, torch_uncertainty_layers())
    (script,) = blocks(PAGE, heading)
    exec(compile(script, f"{PAGE}, {heading}", "exec"), {"__name__": "page"})
    ((before, after),) = SAYS.findall(capsys.readouterr().out)
    assert float(after) > float(before) + 0.1
    shown = dict(zip(NEEDED, SAYS.findall(text(PAGE)), strict=True))[heading]
    assert [float(before), float(after)] == pytest.approx([float(each) for each in shown], abs=0.2)
