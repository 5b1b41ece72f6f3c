"""Posterior families: parameters and boxes that are refused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.box import Box
from bnncert.posteriors.independent import StudentT, TruncatedNormal
from masses import INF, KINDS, every_family, make
from scenarios import vector


def parameters_of(family: str) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in make(family, 3).tensors().items()}


FIELDS = [(family, name) for family in KINDS for name in make(family, 1).tensors()]
every_field = pytest.mark.parametrize(("family", "name"), FIELDS)


@every_field
@pytest.mark.parametrize("value", [math.nan, INF, -INF])
def test_non_finite_parameters_are_refused(family: str, name: str, value: float) -> None:
    """One NaN or infinity in any array is one clear error that names the array."""
    parameters = parameters_of(family)
    parameters[name][1] = value
    with pytest.raises(InputError, match=f"'{name}'"):
        KINDS[family](**parameters)


@every_field
@pytest.mark.parametrize("length", [1, 2, 4])
def test_arrays_of_different_lengths_are_refused(family: str, name: str, length: int) -> None:
    """Not even a length that torch would broadcast."""
    parameters = parameters_of(family)
    parameters[name] = parameters[name][:1].expand(length).clone()
    with pytest.raises(InputError, match="one length"):
        KINDS[family](**parameters)


@every_family
def test_matrices_are_refused(family: str) -> None:
    """Parameters are flat vectors."""
    with pytest.raises(InputError, match="vectors"):
        KINDS[family](
            **{name: value.reshape(1, 3) for name, value in parameters_of(family).items()}
        )


@every_field
def test_other_dtypes_are_refused(family: str, name: str) -> None:
    """float32 parameters are refused, not promoted."""
    parameters = parameters_of(family)
    parameters[name] = parameters[name].float()
    with pytest.raises(InputError, match="float64"):
        KINDS[family](**parameters)


@pytest.mark.parametrize(
    ("family", "name"),
    [("normal", "std"), ("truncated-normal", "std"), ("laplace", "scale"), ("student-t", "scale")],
)
@pytest.mark.parametrize("value", [-1.0, -5e-324])
def test_negative_scales_are_refused(family: str, name: str, value: float) -> None:
    """Even the smallest negative number."""
    parameters = parameters_of(family)
    parameters[name][2] = value
    with pytest.raises(InputError, match="negative"):
        KINDS[family](**parameters)


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
def test_crossed_supports_are_refused(family: str) -> None:
    """low > high somewhere."""
    parameters = parameters_of(family)
    parameters["low"][0] = math.nextafter(float(parameters["high"][0]), INF)
    with pytest.raises(InputError, match="exceeds"):
        KINDS[family](**parameters)


@pytest.mark.parametrize("df", [0.0, -1.0, 0.5, math.nextafter(1.0, 0.0), 1.1e10])
def test_student_has_1_to_1e10_degrees_of_freedom(df: float) -> None:
    """Below 1 the tails are heavier than the arithmetic allows for; beyond 1e10 no checker could
    tell it from Gauss."""
    with pytest.raises(InputError, match="degrees of freedom"):
        StudentT(vector(0.0, 0.0), vector(1.0, 1.0), vector(2.0, df))
    StudentT(vector(0.0, 0.0), vector(1.0, 1.0), vector(1.0, 1e10))


@pytest.mark.parametrize(("low", "high"), [(40.0, 41.0), (-41.0, -40.0), (2.0, 2.0), (0.0, 0.0)])
def test_truncation_to_no_mass_is_refused(low: float, high: float) -> None:
    """An interval whose mass cannot be told from 0 leaves nothing to condition on."""
    with pytest.raises(InputError, match="no mass"):
        TruncatedNormal(vector(0.0), vector(1.0), vector(low), vector(high))


def test_a_deterministic_weight_outside_its_support_is_refused() -> None:
    """The point mass must lie in [low, high]."""
    with pytest.raises(InputError, match="deterministic"):
        TruncatedNormal(vector(2.0), vector(0.0), vector(-1.0), vector(1.0))
    TruncatedNormal(vector(1.0), vector(0.0), vector(-1.0), vector(1.0))


@every_family
@pytest.mark.parametrize(("weights", "length"), [(3, 1), (3, 2), (3, 4), (1, 3)])
def test_a_box_of_another_length_is_refused(family: str, weights: int, length: int) -> None:
    """A box over fewer or more weights has no mass under this posterior: an error, never a
    broadcast number."""
    box = Box(torch.full((length,), -9.0).double(), torch.full((length,), 9.0).double())
    with pytest.raises(InputError):
        make(family, weights).log_mass(box)
