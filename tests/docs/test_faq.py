"""The page of errors: each message on it is provoked and read as it stands there."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bnncert import (
    GIE,
    Concentration,
    Enumeration,
    InputError,
    Problem,
    ball,
    certify,
    class_robust,
    from_torch,
    load_posterior,
    mlp,
    save_posterior,
)
from bnncert.cli.main import main
from bnncert.posteriors import Laplace, Normal, full_covariance
from bnncert.posteriors.base import Posterior
from pages import fenced, text


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.first(x), self.last(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.only(x) if x.sum() > 0 else -self.only(x)


def module(between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), between, nn.Linear(4, 3))


def shared() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


def hooked() -> nn.Module:
    changed = module(nn.ReLU())
    changed.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return changed


def images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


NETWORK = mlp(2, 3, 2)
ZEROS, ONES = torch.zeros(NETWORK.size).double(), torch.ones(NETWORK.size).double()
REGION = ball(images(3, 784), 0.1)


def problem(posterior: Posterior) -> Problem:
    return Problem(NETWORK, posterior, class_robust(ball(images(1, 2), 0.1), [0], 2))


def of_flat_images() -> Problem:
    network = mlp(784, 10)
    normal = Normal(torch.zeros(network.size).double(), torch.ones(network.size).double())
    return Problem(network, normal, class_robust(ball(images(1, 1, 28, 28), 0.1), [0], 10))


PROVOKED: dict[str, Callable[[], object]] = {
    "A layer that cannot be read": lambda: from_torch(module(nn.LayerNorm(4)), std=0.1),
    "Two outputs": lambda: from_torch(Heads(), std=0.1),
    "A forward with `if`": lambda: from_torch(Net(), std=0.1),
    "A convolution comes first": lambda: from_torch(nn.Sequential(nn.Conv2d(1, 2, 3)), std=0.1),
    "Shared weights": lambda: from_torch(shared(), std=0.1),
    "The module does something else": lambda: from_torch(hooked(), std=0.1),
    "float32": lambda: ball(images(1, 784).float(), 0.1),
    "One input without a batch": lambda: ball(images(784), 0.1),
    "Another shape than the network's": of_flat_images,
    "Outside the clip range": lambda: ball(images(1, 784) - 0.5, 0.1, clip=(0, 1)),
    "Labels out of range": lambda: class_robust(REGION, [1, 2, 10], 10),
    "Labels that are no whole numbers": lambda: class_robust(REGION, torch.ones(3), 10),
    "One output": lambda: class_robust(REGION, [0, 0, 0], 1),
    "Not Gaussian": lambda: certify(problem(Laplace(ZEROS, ONES)), Concentration()),
    "No mass of boxes": lambda: certify(problem(full_covariance(ZEROS, ONES.diag())), GIE()),
    "No list of networks": lambda: certify(problem(Normal(ZEROS, ONES)), Enumeration()),
    "Arrays without names": lambda: load_posterior("posterior.npz"),
}
WARNED: dict[str, Callable[[], object]] = {
    "Weights taken as certain": lambda: from_torch(module(nn.ReLU())),
    "Dropout": lambda: from_torch(module(nn.Dropout()), std=0.1),
}
COMMANDS = {
    "A whole module was pickled": "import model.pt --as torch",
    "A checkpoint with more in it": "import checkpoint.pt --as torch",
    "Another library's names": "import plain.pt --as torchbnn",
    "A folder that is not ours": "certify p.safetensors --inputs labelled.npz --eps 0.1 --out runs",
    "No radius": "certify p.safetensors --inputs labelled.npz",
    "No labels": "certify p.safetensors --inputs inputs.npz --eps 0.1",
    "Too few inputs": "certify p.safetensors --inputs labelled.npz --eps 0.1 --select 0:50",
    "No GPU": "certify p.safetensors --inputs labelled.npz --eps 0.1 --device cuda",
    "The checker cannot compute": "check results --posterior p.safetensors",
}


def messages() -> dict[str, str]:
    """The messages on the page, by their headings."""
    sections = re.split(r"^### (.*)$", text("faq.md"), flags=re.M)[1:]
    quoted = {
        title: fenced(body) for title, body in zip(sections[::2], sections[1::2], strict=True)
    }
    return {title: content.rstrip("\n") for title, found in quoted.items() for _, content in found}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with something wrong, in the current directory."""
    monkeypatch.chdir(tmp_path)
    layer = nn.Linear(2, 2)
    torch.save(layer, "model.pt")
    torch.save({"model": layer.state_dict(), "epoch": 3}, "checkpoint.pt")
    torch.save(nn.Sequential(layer).state_dict(), "plain.pt")
    np.savez("posterior.npz", weights=np.zeros(2))
    np.savez("inputs.npz", x=np.zeros((3, 2)))
    np.savez("labelled.npz", x=np.zeros((3, 2)), y=[0, 1, 0])
    save_posterior("p.safetensors", NETWORK, Normal(ZEROS, ONES))
    Path("runs").mkdir()
    Path("runs/notes.txt").touch()


def test_every_message_is_provoked() -> None:
    assert messages().keys() == PROVOKED.keys() | WARNED.keys() | COMMANDS.keys()


@pytest.mark.parametrize("title", PROVOKED)
@pytest.mark.usefixtures("folder")
def test_an_error_in_python(title: str) -> None:
    with pytest.raises(InputError) as caught:
        PROVOKED[title]()
    # The line of the forward is another here.
    found = re.sub(r"\(test_faq\.py:\d+\)", "(net.py:12)", str(caught.value))
    assert found == messages()[title]


@pytest.mark.parametrize("title", WARNED)
def test_a_warning(title: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WARNED[title]()
    assert [str(warning.message) for warning in caught] == [messages()[title]]


@pytest.mark.parametrize("title", COMMANDS)
@pytest.mark.usefixtures("folder")
def test_an_error_of_a_command(
    title: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bnncert", *COMMANDS[title].split()])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if title == "The checker cannot compute":
        for name in [name for name in sys.modules if name.split(".")[0] == "bnncert_check"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"bnncert: {messages()[title]}\n"
