"""Posterior files of every family and form, and malformed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import ctx
from safetensors.numpy import save

from bnncert import Box, load_posterior
from bnncert.layers import Dense, Flatten, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.methods import GIE, Concentration, Method
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.model.specification import ball, explicit_box, half_space
from bnncert.posteriors.independent import Normal
from bnncert_check import check_certificate, read_model
from bnncert_check.activations import _curve_intercept
from bnncert_check.arithmetic import BITS
from bnncert_check.layers import KINDS
from bnncert_check.mass import DOWN, UP, WeightBox, mass
from bnncert_check.model import FIELDS
from bnncert_check.model import Posterior as Weights
from checking import Header, certified, families, parse, question, refusal
from scenarios import vector


@pytest.mark.parametrize("name", families(1))
def test_every_family_is_read_and_checked(name: str, tmp_path: Path) -> None:
    network = Network((1, 2), (Flatten(), Dense(2, 2, bias=False), ReLU(), Dense(2, 2)))
    posterior, method = families(network.size)[name]
    path = certified(
        network, posterior, question(network, posterior.center), method, tmp_path / "p.safetensors"
    )
    header, tensors = parse(path)
    other = {"boxes": "concentration", "concentration": "boxes"}[header["kind"]]
    evidence = {"components": [{}, {}][: 1 + (name == "mixture")], "boxes": []}
    path.write_bytes(
        save(tensors, {"bnncert": json.dumps(header | {"kind": other, "evidence": evidence})})
    )
    code = (
        "malformed" if isinstance(posterior, Normal) else "unsupported"
    )  # which both kinds of evidence are for
    assert check_certificate(path, read_model(tmp_path / "p.safetensors")).code == code


@pytest.mark.parametrize(
    "family", [family for family in FIELDS if family not in ("low-rank-normal", "empirical")]
)
@pytest.mark.parametrize("side", [DOWN, UP])
def test_odd_intervals_have_the_mass_they_should(family: str, side: int) -> None:
    """One beside an atom has none; that of everything is 1, or nearly so."""
    values = {
        "mean": 0.0,
        "loc": 0.0,
        "std": 1.0,
        "scale": 1.0,
        "df": 3.0,
        "low": -1.0,
        "high": 1.0,
    }
    atom = values | dict.fromkeys(("std", "scale", "low", "high"), 0.0)
    posterior = Weights(
        family, {name: np.array([values[name], atom[name]]) for name in FIELDS[family]}
    )

    def of(*ends: tuple[float, float]) -> float:
        return mass(posterior, WeightBox(*np.array(ends).T), side)

    assert of((-9, 9), (0.1, 0.2)) == 0
    assert 0.999 < of((-1e3, 1e3), (0, 0)) < 1.001
    assert 0 < of((0.2, 0.3), (0, 1)) < 0.2


def test_tiny_slopes_of_a_sigmoid_are_sound() -> None:
    """Where the point of equal slopes is too far out to be computed, a line below everything is
    taken."""
    with ctx.workprec(BITS):
        lines = [
            _curve_intercept(KINDS[kind].curve, 1, 2.0**-200, -100.0, 100.0)
            for kind in ("Sigmoid", "Tanh")
        ]
    assert -1e-40 < lines[0] < 0
    assert -1 - 1e-15 < lines[1] <= -1


@pytest.mark.parametrize(
    "activation", [ReLU(), LeakyReLU(), LeakyReLU(0.0), Tanh(), Sigmoid()], ids=repr
)
@pytest.mark.parametrize(
    "method", [GIE(samples=3), Concentration(), Concentration(upper=True)], ids=["g", "l", "u"]
)
@pytest.mark.parametrize("norm", ["linf", "l2", "l1", "box"])
def test_every_norm_and_activation(
    activation: Activation, method: Method, norm: str, tmp_path: Path
) -> None:
    """Also of a wrong class, which has an upper bound."""
    network, x = mlp(2, 3, 2, activation=activation), vector(0.3, 0.6).reshape(1, 2)
    posterior = families(network.size)["normal"][0]
    region = (
        explicit_box(Box(x - 0.02, x + 0.01)) if norm == "box" else ball(x, 0.02, norm, (0.0, 0.9))
    )
    wrong = method == Concentration(upper=True)
    spec = question(network, posterior.center, region, wrong)
    header, _ = parse(certified(network, posterior, spec, method, tmp_path / "p.safetensors"))
    assert (header["claim"]["upper"] != "0x1.0000000000000p+0") == wrong


NPZ: dict[str, dict[str, Any]] = {
    "plain": {},
    "float32": {"dtype": np.float32},
    "float16": {"dtype": np.float16},
    "without bias": {"bias": False},
    **{
        name: {"meta": [name, "linear"]}
        for name in ("relu", "leaky_relu", "tanh", "sigmoid", "linear")
    },
    "softmax": {"meta": ["relu", "softmax"]},
    "relu at the end": {"meta": ["tanh", "relu"]},
}


def npz(path: Path, dtype: Any = np.float64, bias: bool = True, meta: Any = None) -> None:
    random = np.random.default_rng(0)
    shapes = {"W0": (2, 3), "b0": (3,), "W1": (3, 2), "b1": (2,)}
    kept = {name: shape for name, shape in shapes.items() if bias or name[0] == "W"}
    arrays = {
        f"{name}_mean": random.normal(0.5, 0.5, shape).astype(dtype) for name, shape in kept.items()
    }
    arrays |= {f"{name}_std": np.full(shape, 0.01, dtype) for name, shape in kept.items()}
    np.savez(path, **arrays, **({"meta": json.dumps({"activations": meta})} if meta else {}))


@pytest.mark.parametrize("name", NPZ)
def test_npz_posteriors_are_read_and_checked(name: str, tmp_path: Path) -> None:
    npz(tmp_path / "p.npz", **NPZ[name])
    network, posterior = load_posterior(tmp_path / "p.npz")
    region = ball(vector(0.3, 0.6).reshape(1, 2), 0.01)
    certified(
        network,
        posterior,
        half_space(region, vector(1.0, 1.0), -1.0),
        Concentration(),
        tmp_path / "p.npz",
    )


def description(*layers: Any, **changes: Any) -> Header:
    return {"network": {"input_shape": [1], "layers": layers}, "family": "normal"} | changes


DENSE, MIXTURE = {"type": "Dense", "inputs": 1, "outputs": 1, "bias": False}, {"family": "mixture"}
MODELS: dict[str, tuple[Header, str]] = {
    "no network": ({"family": "normal"}, "malformed"),
    "no weights": (description({"type": "ReLU"}), "malformed"),
    "unknown layer": (description({"type": "BatchNorm2d"}), "unsupported"),
    "widths disagree": (description({**DENSE, "inputs": 2}), "malformed"),
    "unknown field": (description({**DENSE, "groups": 2}), "malformed"),
    "slope of a ReLU": (description(DENSE, {"type": "ReLU", "slope": 0.1}), "malformed"),
    "slope of 1": (description(DENSE, {"type": "LeakyReLU", "slope": 1.0}), "malformed"),
    "no slope": (description(DENSE, {"type": "LeakyReLU"}), "malformed"),
    "unknown family": (description(DENSE, family="cauchy"), "unsupported"),
    "missing tensors": (description(DENSE, DENSE), "malformed"),
    "negative scale": (description(DENSE, family="laplace"), "malformed"),
    "empty interval": (description(DENSE, family="uniform"), "malformed"),
    "no degrees of freedom": (description(DENSE, family="student-t"), "malformed"),
    "no components": (description(DENSE, **MIXTURE, weights=[], components=[]), "malformed"),
    "too few components": (
        description(DENSE, **MIXTURE, weights=["0x1p0"], components=[]),
        "malformed",
    ),
    "weights below one": (
        description(DENSE, **MIXTURE, weights=["0x1p-1"], components=[{}]),
        "malformed",
    ),
    "negative weight": (
        description(DENSE, **MIXTURE, weights=["-0x1p0", "0x1p1"], components=[{}, {}]),
        "malformed",
    ),
    "mixture inside": (
        description(DENSE, **MIXTURE, weights=["0x1p0"], components=[MIXTURE]),
        "unsupported",
    ),
    "another schema": (description(DENSE, schema="bnncert-posterior/0"), "unsupported"),
}


@pytest.mark.parametrize("name", MODELS)
def test_malformed_posteriors_are_refused(name: str, tmp_path: Path) -> None:
    header, code = MODELS[name]
    values = {
        "mean": 1.0,
        "std": 1.0,
        "loc": 1.0,
        "scale": -1.0,
        "low": 1.0,
        "high": 0.0,
        "df": 0.0,
    }
    if name == "no degrees of freedom":
        values["scale"] = 1.0
    tensors = {f"W0_{field}": np.array([[value]]) for field, value in values.items()}
    own = {"schema": "bnncert-posterior/1"} | header
    (tmp_path / "p.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(own)}))
    assert refusal(tmp_path / "p.safetensors") == code


COLUMN = {"name": "price", "mean": 1.0, "std": 2.0}
EMPTY: dict[str, Any] = {"inputs": [], "outputs": []}


@pytest.mark.parametrize(
    ("own", "code"),
    [
        (EMPTY, None),
        (EMPTY | {"inputs": [COLUMN], "outputs": [COLUMN]}, None),
        (7, "malformed"),
        ({"inputs": []}, "malformed"),
        (EMPTY | {"outputs": {}}, "malformed"),
        (EMPTY | {"inputs": [COLUMN] * 2}, "malformed"),
        (EMPTY | {"outputs": [COLUMN] * 2}, "malformed"),
        (EMPTY | {"outputs": [COLUMN | {"name": 1}]}, "malformed"),
        (EMPTY | {"outputs": [COLUMN | {"mean": "0"}]}, "malformed"),
        (EMPTY | {"outputs": [COLUMN | {"std": 0.0}]}, "malformed"),
        (EMPTY | {"inputs": [COLUMN | {"unit": "m"}]}, "malformed"),
    ],
)
def test_a_standardisation_has_a_column_for_each_number(
    own: Any, code: str | None, tmp_path: Path
) -> None:
    tensors = {f"W0_{field}": np.ones((1, 1)) for field in ("mean", "std")}
    header = description(DENSE, schema="bnncert-posterior/1", standardisation=own)
    (tmp_path / "p.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
    assert refusal(tmp_path / "p.safetensors") == code
    tensors |= {"W1_mean": np.ones((1, 1))}  # of no layer
    (tmp_path / "q.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
    assert refusal(tmp_path / "q.safetensors") == "malformed"


FLATTEN = {"type": "Flatten"}
POOL = {"kernel": [2, 2], "stride": [1, 1]}
CONV = {
    "type": "Conv2d",
    **POOL,
    "padding": [0, 0],
    "in_channels": 1,
    "out_channels": 1,
    "bias": False,
}
SEEING = {
    "Conv2d": CONV,
    "AvgPool2d": {"type": "AvgPool2d", **POOL},
    "MaxPool2d": {"type": "MaxPool2d", **POOL},
}
PAIRS = ("kernel", "stride", "padding")
NOT_PAIRS: dict[str, Any] = {
    "one": [1],
    "three": [1, 1, 1],
    "a number": 1,
    "text": ["1", "1"],
    "nothing": None,
}


def seen(*layers: Header, folder: Path, shape: tuple[int, ...] = (1, 3, 3)) -> str | None:
    """The code with which a network on images is refused, whose tensor is of the size that its
    convolution says."""
    size = next(layer for layer in layers if layer["type"] == "Conv2d").get("kernel")
    known = isinstance(size, list) and all(type(n) is int and n >= 0 for n in size)
    weights = np.ones((1, 1, *(size if known else (2, 2))))
    header = description(
        network={"input_shape": shape, "layers": [*layers, FLATTEN]}, schema="bnncert-posterior/1"
    )
    tensors = {f"W0_{field}": weights for field in ("mean", "std")}
    (folder / "p.safetensors").write_bytes(save(tensors, {"bnncert": json.dumps(header)}))
    return refusal(folder / "p.safetensors")


def changed(kind: str, folder: Path, **changes: Any) -> str | None:
    """The code with which the layer is refused after some changes, a pool after a convolution."""
    layer = SEEING[kind] | changes
    return seen(*([layer] if kind == "Conv2d" else [CONV, layer]), folder=folder)


@pytest.mark.parametrize("kind", SEEING)
def test_layers_of_images_have_every_field_and_no_other(kind: str, tmp_path: Path) -> None:
    layer = SEEING[kind]
    assert changed(kind, tmp_path) is None
    for field in layer.keys() - {"type"}:
        without = {name: value for name, value in layer.items() if name != field}
        assert (
            seen(*([without] if kind == "Conv2d" else [CONV, without]), folder=tmp_path)
            == "malformed"
        ), field
    assert changed(kind, tmp_path, weight=[0, 0]) == "malformed"
    assert changed(kind, tmp_path, groups=[0, 0]) == "malformed"
    assert changed(kind, tmp_path, dilation=[0, 0]) == "malformed"


@pytest.mark.parametrize("kind", SEEING)
@pytest.mark.parametrize("name", NOT_PAIRS)
def test_pairs_are_two_numbers(kind: str, name: str, tmp_path: Path) -> None:
    for field in SEEING[kind].keys() & PAIRS:
        assert changed(kind, tmp_path, **{field: NOT_PAIRS[name]}) == "malformed", field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_channels", 2),
        ("in_channels", "1"),
        ("out_channels", 2),  # the tensor is of 1
        ("out_channels", 0),
        ("out_channels", "1"),
        ("bias", True),  # there is no tensor
        ("bias", "no"),
        ("bias", None),
    ],
)
def test_a_convolution_must_fit_its_input_and_its_tensors(
    field: str, value: Any, tmp_path: Path
) -> None:
    assert changed("Conv2d", tmp_path, **{field: value}) == "malformed"


def test_a_kernel_without_entries_is_refused(tmp_path: Path) -> None:
    """Its tensor holds nothing, and has sizes all the same."""
    assert changed("Conv2d", tmp_path, kernel=[0, 0]) == "unreadable"


@pytest.mark.parametrize("kind", SEEING)
@pytest.mark.parametrize("shape", [(), (9,), (3, 3), (1, 1, 3, 3)], ids=str)
def test_layers_of_images_take_one_image(kind: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """The layer comes first; an image of 3 x 3 is what it and the next one can take."""
    layers = [SEEING[kind], *([] if kind == "Conv2d" else [CONV])]
    assert seen(*layers, folder=tmp_path) is None
    assert seen(*layers, folder=tmp_path, shape=shape) == "malformed"
    assert seen(CONV, FLATTEN, SEEING[kind], folder=tmp_path) == "malformed"


# Pairs with which no window lies on an image of 3 x 3 or 2 x 2, or where it lies cannot be said.
WINDOWS: dict[str, dict[str, Any]] = {
    "kernel larger than the image": {"kernel": [4, 4]},
    "kernel much larger": {"kernel": [6, 6]},
    "kernel of nothing": {"kernel": [0, 0]},
    "kernel of fractions": {"kernel": [2.0, 2.0]},
    "no stride": {"stride": [0, 1]},
    "stride backwards": {"stride": [-1, -1]},
    "stride of fractions": {"stride": [1.5, 1.0]},
    "negative padding": {"padding": [-1, -1]},
    "padding of fractions": {"padding": [0.5, 0.5]},
}
MEANINGLESS = [
    (kind, name) for kind in SEEING for name in WINDOWS if {*WINDOWS[name]} <= {*SEEING[kind]}
]


@pytest.mark.parametrize(
    ("kind", "name"), [case for case in MEANINGLESS if case != ("Conv2d", "kernel of nothing")]
)
def test_windows_that_mean_nothing_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    assert changed(kind, tmp_path, **WINDOWS[name]) == "malformed"


@pytest.mark.parametrize(
    "meta", ['{"activations": ["relu"]}', '{"activations": ["relu", "celu"]}', "[]", "{", "NaN"]
)
def test_malformed_meta_is_refused(meta: str, tmp_path: Path) -> None:
    npz(tmp_path / "p.npz")
    np.savez(tmp_path / "p.npz", **{**np.load(tmp_path / "p.npz"), "meta": meta})
    assert refusal(tmp_path / "p.npz") == "malformed"
