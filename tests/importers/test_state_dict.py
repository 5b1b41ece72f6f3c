"""Files with a state_dict: the order of layers, what is assumed, and files that are wrong or
hostile."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bnncert import InputError
from bnncert.importers.state_dict import from_state_dict
from bnncert.importers.torch_file import StateDict, load_state_dict
from bnncert.layers import Conv2d, Dense, Flatten, ReLU, Tanh
from hostile import Bomb


def dense(path: str, inputs: int, outputs: int) -> dict[str, Tensor]:
    """Tensors as torchbnn names them."""
    shapes = {"weight": (outputs, inputs), "bias": (outputs,)}
    means = {f"{path}.{part}_mu": torch.randn(shape) for part, shape in shapes.items()}
    return means | {
        f"{path}.{part}_log_sigma": torch.full(shape, -2.0) for part, shape in shapes.items()
    }


def state(*parts: dict[str, Tensor], ordered: bool = True) -> StateDict:
    return StateDict({name: value for part in parts for name, value in part.items()}, ordered, "")


def names(given: StateDict, layers: list[str] | None = None) -> list[str | None]:
    reading, _ = from_state_dict(given, "torchbnn", layers=layers)
    return [source.name for name, source in reading.sources.items() if name.startswith("W")]


def test_layers_are_ordered_by_their_numbers() -> None:
    parts = [dense(f"net.{i}", 4, 4) for i in (10, 2, 0)]
    for ordered in (True, False):
        assert names(state(*parts, ordered=ordered)) == [f"net.{i}.weight_mu" for i in (0, 2, 10)]


def test_layers_without_numbers_are_in_the_order_of_the_file_or_as_told() -> None:
    parts = dense("stem", 4, 4), dense("body", 4, 4), dense("head", 4, 2)
    assert names(state(*parts)) == ["stem.weight_mu", "body.weight_mu", "head.weight_mu"]
    with pytest.raises(InputError, match=r"stem, body, head do not tell the layers' order"):
        names(state(*parts, ordered=False))
    told = ["body", "stem", "head"]
    assert names(state(*parts, ordered=False), told) == [f"{path}.weight_mu" for path in told]
    with pytest.raises(InputError, match="must be all of stem, body, head"):
        names(state(*parts), ["body", "stem"])


def convolution(path: str) -> dict[str, Tensor]:
    return {
        f"{path}.mu_kernel": torch.randn(2, 1, 3, 3),
        f"{path}.rho_kernel": torch.full((2, 1, 3, 3), -5.0),
    }


def linear(path: str, inputs: int, outputs: int) -> dict[str, Tensor]:
    weight = torch.randn(outputs, inputs)
    return {f"{path}.mu_weight": weight, f"{path}.rho_weight": torch.full_like(weight, -5.0)}


def test_convolutions_come_first_and_need_an_input_shape() -> None:
    given = state(linear("fc", 32, 3), convolution("conv1"), ordered=False)
    reading, _ = from_state_dict(given, "bayesian-torch", Tanh(), (1, 6, 6))
    expected = (Conv2d(1, 2, (3, 3), bias=False), Tanh(), Flatten(), Dense(32, 3, bias=False))
    assert reading.network.layers == expected
    with pytest.raises(InputError, match="'conv1' is a convolution; give the input shape"):
        from_state_dict(given, "bayesian-torch")
    # A stride or a pool: the sizes do not match.
    with pytest.raises(
        InputError, match=r"do not fit together .*use bnncert\.from_torch in Python"
    ):
        from_state_dict(given, "bayesian-torch", input_shape=(1, 13, 13))


def test_images_are_flattened_before_a_dense_layer() -> None:
    reading, _ = from_state_dict(
        state(linear("fc", 12, 2)), "bayesian-torch", input_shape=(3, 2, 2)
    )
    assert reading.network.layers == (Flatten(), Dense(12, 2, bias=False))


def test_plain_layers_are_certain_unless_told() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    given = StateDict(dict(module.state_dict()), True, "")
    reading, posterior = from_state_dict(given, "torch", std=0.1)
    assert reading.network.layers == (Dense(3, 4), ReLU(), Dense(4, 2))
    assert posterior.std.tolist() == [0.1] * 26
    mixed = state(dense("0", 3, 4), {"1.weight": torch.ones(2, 4)})
    with pytest.warns(UserWarning, match=r"1\.weight: no standard deviation"):
        _, posterior = from_state_dict(mixed, "torchbnn")
    assert posterior.std[-8:].tolist() == [0.0] * 8


@pytest.mark.parametrize(
    ("given", "library", "message"),
    [
        (state(dense("0", 2, 2)), "blitz", "no blitz layer .*'weight_rho'.*looks like torchbnn"),
        (state(dense("0", 2, 2)), "torch", r"'0\.bias_log_sigma' is not a weight"),
        (state(), "torch", "'nothing' is not a weight"),
        (state(dense("0", 2, 2)), "edward", "choose bayesian-torch, torchbnn"),
        (state(dense("0", 2, 3), dense("1", 2, 2)), "torchbnn", "do not fit together"),
        (
            state(dense("0", 2, 2), {"0.running_mean": torch.ones(2)}),
            "torchbnn",
            r"'0\.running_mean' is not a weight",
        ),
        (state(dense("0", 2, 2), {"scale": torch.ones(2)}), "torchbnn", "'scale' is not a weight"),
        (
            state(dense("0", 2, 2) | {"0.bias_mu": torch.ones(3)}),
            "torchbnn",
            r"'0\.bias_mu' has shape \(3,\)",
        ),
        (
            state(dense("0", 2, 2) | {"0.weight_log_sigma": torch.ones(1)}),
            "torchbnn",
            "have shape|has shape|of shape",
        ),
        (state(dense("0", 2, 2) | {"0.weight_mu": torch.ones(2, 2).long()}), "torchbnn", "int64"),
        (
            state(dense("0", 2, 2) | {"0.weight_log_sigma": torch.ones(2, 2).long()}),
            "torchbnn",
            "floating-point",
        ),
        (
            state(dense("0", 2, 2) | {"0.weight_mu": torch.ones(2, 2, 2)}),
            "torchbnn",
            "is no Linear and no Conv2d",
        ),
        (
            state(dense("0", 2, 2) | {"0.weight_mu": torch.full((2, 2), torch.nan)}),
            "torchbnn",
            "NaN",
        ),
        (
            state(dense("0", 2, 2) | {"0.bias_log_sigma": torch.full((2,), 1e4)}),
            "torchbnn",
            "infinity",
        ),
        (state(dense("0", 2, 2) | {"0.weight_mu": torch.ones(0, 2)}), "torchbnn", "at least 1"),
    ],
)
def test_states_that_cannot_be_read(given: StateDict, library: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        from_state_dict(given, library)
    assert "\n" not in str(error.value)


def test_only_blitz_has_biases_to_leave_out() -> None:
    with pytest.raises(InputError, match="leave the biases in"):
        from_state_dict(state(dense("0", 2, 2)), "torchbnn", bias=False)


def test_files_of_both_kinds(tmp_path: Path) -> None:
    tensors = OrderedDict(sorted(dense("0", 2, 2).items(), reverse=True))
    torch.save(tensors, tmp_path / "a.pt")
    save_file(dict(tensors), tmp_path / "a.safetensors")
    first, second = load_state_dict(tmp_path / "a.pt"), load_state_dict(tmp_path / "a.safetensors")
    assert first.ordered
    assert not second.ordered
    assert list(first.tensors) == list(tensors)
    assert all(torch.equal(first.tensors[name], second.tensors[name]) for name in tensors)
    assert len({first.sha256, second.sha256}) == 2


def archive(folder: Path, change: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """What torch.save writes of one tensor, with some entries of the archive replaced."""
    plain, path = io.BytesIO(), folder / "w.pt"
    torch.save({"weight": torch.zeros(4, 4)}, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(path, "w", compression) as target:
        for entry in source.infolist():
            name = entry.filename.partition("/")[2]
            target.writestr(entry.filename, change.get(name, source.read(entry)))
    return path


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    target = tmp_path / "executed"
    hostile = pickle.dumps({"weight": Bomb(target)})
    files = [archive(tmp_path, {"data.pkl": hostile})]
    for name in ("raw.pt", "raw.pth", "raw.safetensors", "raw.pkl"):
        (tmp_path / name).write_bytes(hostile)
        files.append(tmp_path / name)
    torch.save({"weight": Bomb(target)}, tmp_path / "bomb.pt")
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    for path in [*files, tmp_path / "bomb.pt", tmp_path / "module.pt"]:
        with pytest.raises(InputError) as error:
            load_state_dict(path)
        assert "\n" not in str(error.value)
    assert not target.exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = archive(tmp_path, {"data/0": bytes(2**26)}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 2**20
    with pytest.raises(InputError, match="unpacks to more than its size"):
        load_state_dict(path)


def test_a_tensor_larger_than_its_numbers_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1).expand(10**6, 10**6)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match="claims more numbers than the file holds"):
        load_state_dict(tmp_path / "w.pt")


@pytest.mark.parametrize(
    "content",
    [
        [torch.ones(2)],
        {"state_dict": {"weight": torch.ones(2)}, "epoch": 3},
        {0: torch.ones(2)},
        {"weight": torch.ones(2, 2).to_sparse()},
    ],
)
def test_what_is_no_state_dict_is_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InputError, match="state_dict"):
        load_state_dict(tmp_path / "w.pt")


def test_broken_files_are_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path, {}).read_bytes()
    assert load_state_dict(tmp_path / "w.pt").tensors["weight"].shape == (4, 4)
    for name, content in {
        "half.pt": whole[: len(whole) // 2],
        "empty.pt": b"",
        "empty.safetensors": b"",
        "text.safetensors": b"x" * 100,
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError):
            load_state_dict(tmp_path / name)
    for change in ({"data/0": b"short"}, {"data.pkl": b"."}, {"data.pkl": b"\x80\x02K\x01."}):
        with pytest.raises(InputError):
            load_state_dict(archive(tmp_path, change))
    with pytest.raises(InputError, match="cannot be read"):
        load_state_dict(tmp_path / "missing.pt")
