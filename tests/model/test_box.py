"""Box: what it refuses, containment, intersection, indexing."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.box import Box, intersect


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (math.nan, 1.0),
        (0.0, math.nan),
        (math.nan, math.nan),
        (1.0, 0.0),
        (math.nextafter(1.0, 2.0), 1.0),
        (math.inf, -math.inf),
        (5e-324, 0.0),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_bad_interval_refuses_the_box(lower: float, upper: float, position: int) -> None:
    """A NaN or an empty interval is refused wherever it hides, and however narrowly it is empty."""
    lowers, uppers = vector(0.0, 0.0, 0.0), vector(1.0, 1.0, 1.0)
    lowers[position], uppers[position] = lower, upper
    with pytest.raises(InputError, match="empty or NaN"):
        Box(lowers, uppers)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("narrow", ["lower", "upper", "both"])
def test_only_float64_is_accepted(dtype: torch.dtype, narrow: str) -> None:
    """One end of another dtype is enough to refuse: mixed precision would be promoted silently."""
    lower, upper = vector(0.0, 0.0), vector(1.0, 1.0)
    lower = lower if narrow == "upper" else lower.to(dtype)
    upper = upper if narrow == "lower" else upper.to(dtype)
    with pytest.raises(InputError, match="float64"):
        Box(lower, upper)


@pytest.mark.parametrize(
    ("first", "second"), [((2,), (3,)), ((1,), (3,)), ((3,), (1, 3)), ((), (1,))]
)
def test_ends_of_different_shapes_are_refused(
    first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    """Shapes must be equal, not merely broadcastable."""
    with pytest.raises(InputError, match="shape"):
        Box(torch.zeros(first, dtype=torch.float64), torch.ones(second, dtype=torch.float64))


def test_the_error_is_a_value_error_of_one_line() -> None:
    """Callers may catch ValueError, and the message is one line."""
    with pytest.raises(ValueError, match="box is empty") as caught:
        Box(vector(1.0), vector(0.0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (0.0, 0.0),
        (-0.0, 0.0),
        (0.0, -0.0),
        (-math.inf, math.inf),
        (0.0, 5e-324),
        (-math.inf, -math.inf),
    ],
)
def test_degenerate_and_unbounded_boxes_are_boxes(lower: float, upper: float) -> None:
    """Points, both zeros, infinite ends and subnormal widths are kept exactly as given."""
    box = Box(vector(lower), vector(upper))
    assert float(box.lower) == lower
    assert float(box.upper) == upper


def test_a_box_is_frozen() -> None:
    """Ends cannot be replaced after validation."""
    box = Box(vector(0.0), vector(1.0))
    with pytest.raises(AttributeError):
        box.upper = vector(-1.0)  # type: ignore[misc]


def test_point_is_the_degenerate_box() -> None:
    """Both ends are the value, and NaN is no point."""
    value = vector(1.5, -2.0)
    box = Box.point(value)
    assert torch.equal(box.lower, value)
    assert torch.equal(box.upper, value)
    with pytest.raises(InputError):
        Box.point(vector(math.nan))


def test_shape_and_magnitude() -> None:
    """The magnitude is the larger |end|, elementwise."""
    box = Box(vector(-3.0, 1.0, -1.0), vector(2.0, 4.0, -0.5))
    assert box.shape == (3,)
    assert torch.equal(box.magnitude, vector(3.0, 4.0, 1.0))


@pytest.mark.parametrize(
    ("lower", "upper", "inside"),
    [
        ((0.0, 0.0), (1.0, 1.0), True),
        ((0.25, 0.5), (0.5, 0.5), True),
        ((1.0, 0.0), (1.0, 1.0), True),
        ((math.nextafter(0.0, -1.0), 0.0), (1.0, 1.0), False),
        ((0.0, 0.0), (1.0, math.nextafter(1.0, 2.0)), False),
        ((2.0, 2.0), (3.0, 3.0), False),
        ((-1.0, -1.0), (2.0, 2.0), False),
    ],
)
def test_contains_compares_exactly(
    lower: tuple[float, float], upper: tuple[float, float], inside: bool
) -> None:
    """Closed boxes: touching faces from inside count, one ulp beyond does not."""
    unit = Box(vector(0.0, 0.0), vector(1.0, 1.0))
    assert bool(unit.contains(Box(vector(*lower), vector(*upper)))) is inside


def test_contains_reduces_the_last_dimension_only() -> None:
    """A batch gives one verdict per box; one coordinate outside is enough for a no."""
    outer = Box(vector(0.0, 0.0).expand(2, 2), vector(1.0, 1.0).expand(2, 2))
    inner = Box(
        torch.tensor([[0.2, 0.2], [0.2, 0.2]]).double(),
        torch.tensor([[0.8, 0.8], [0.8, 1.2]]).double(),
    )
    assert outer.contains(inner).tolist() == [True, False]


def test_intersection_takes_the_tighter_end() -> None:
    """Maximum of the lower ends, minimum of the upper ends, in either order."""
    first, second = (
        Box(vector(0.0, -1.0), vector(2.0, 1.0)),
        Box(vector(1.0, -3.0), vector(3.0, 0.0)),
    )
    for common in (intersect(first, second), intersect(second, first)):
        assert torch.equal(common.lower, vector(1.0, -1.0))
        assert torch.equal(common.upper, vector(2.0, 0.0))


def test_intersection_is_the_set_of_common_points() -> None:
    """On a grid of points, membership of the intersection is membership of both."""
    generator = torch.Generator().manual_seed(0)
    points = torch.cartesian_prod(*[torch.linspace(-1, 1, 21, dtype=torch.float64)] * 2)
    for _ in range(50):
        ends = torch.randint(-10, 11, (2, 2, 2), generator=generator).double() / 10
        first, second = (Box(*pair.sort(0).values) for pair in ends)
        both = first.contains(Box.point(points)) & second.contains(Box.point(points))
        if bool(
            (
                torch.maximum(first.lower, second.lower) <= torch.minimum(first.upper, second.upper)
            ).all()
        ):
            assert torch.equal(intersect(first, second).contains(Box.point(points)), both)
        else:
            assert not bool(both.any())


def test_touching_boxes_meet_in_their_common_face() -> None:
    """Closed boxes that share a face intersect in that face."""
    common = intersect(
        Box(vector(0.0, 0.0), vector(1.0, 1.0)), Box(vector(1.0, 0.5), vector(2.0, 2.0))
    )
    assert torch.equal(common.lower, vector(1.0, 0.5))
    assert torch.equal(common.upper, vector(1.0, 1.0))


@pytest.mark.parametrize("start", [math.nextafter(1.0, 2.0), 3.0])
def test_an_empty_intersection_is_refused(start: float) -> None:
    """Boxes one ulp apart have no intersection: an error, not a box with its ends swapped."""
    with pytest.raises(InputError, match="empty"):
        intersect(
            Box(vector(0.0, 0.0), vector(1.0, 1.0)), Box(vector(0.0, start), vector(1.0, 4.0))
        )


@pytest.mark.parametrize(
    "select",
    [
        lambda value: value[1],
        lambda value: value[-1],
        lambda value: value[1:],
        lambda value: value[torch.tensor([2, 0])],
        lambda value: value[torch.tensor([True, False, True])],
    ],
    ids=["integer", "negative", "slice", "indices", "mask"],
)
def test_indexing_selects_the_same_entries_of_both_ends(select: Callable) -> None:
    """An index picks from the batch dimension, the same way in lower and upper."""
    lower = torch.arange(6, dtype=torch.float64).reshape(3, 2)
    box = Box(lower, lower + 0.5)
    assert torch.equal(select(box).lower, select(lower))
    assert torch.equal(select(box).upper, select(lower) + 0.5)


def test_reshape_and_device() -> None:
    """Neither changes an entry or its position."""
    lower = torch.arange(6, dtype=torch.float64)
    box = Box(lower, lower + 1).reshape(2, 3).to("cpu")
    assert torch.equal(box.lower, lower.reshape(2, 3))
    assert torch.equal(box.upper, lower.reshape(2, 3) + 1)
