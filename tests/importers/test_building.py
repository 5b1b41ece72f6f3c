"""Networks built value by value, and arithmetic folded into them: the same function, fewer
layers."""

from __future__ import annotations

import random

import pytest
import torch

from bnncert import InputError
from bnncert.importers.building import (
    Factor,
    Value,
    added,
    affine,
    append,
    convolved,
    joined,
    larger,
    multiplied,
    network_of,
    ordered,
    permuted,
    reshaped,
    scaled,
    shifted,
    taken,
)
from bnncert.importers.onnx_folding import folded
from bnncert.layers import Conv2d, Dense, Permute, ReLU, Reshape, Scale, Take

GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=GENERATOR)


def kinds(output: Value) -> list[str]:
    return [type(value.layer).__name__ for value in ordered(output) if value.layer]


def run(start: Value, output: Value, x: torch.Tensor) -> torch.Tensor:
    built = network_of(start, output)
    return built.network.forward(built.weights, x)


def check_folding(start: Value, output: Value) -> Value:
    x = 10 * numbers(3, *start.shape)
    after = folded(output)
    expected = run(start, output, x)
    tolerance = float(1e-12 * (1 + expected.abs().max()))
    torch.testing.assert_close(run(start, after, x), expected, rtol=0, atol=tolerance)
    return after


def dense(value: Value, outputs: int, bias: bool = True) -> Value:
    own = numbers(outputs) if bias else None
    return multiplied(value, Factor(numbers(value.size, outputs), own))


def conv(value: Value, layer: Conv2d) -> Value:
    weights = numbers(layer.out_channels, layer.in_channels // layer.groups, *layer.kernel)
    return convolved(value, Factor(weights, numbers(layer.out_channels)), layer)


def test_a_scale_goes_into_the_linear_layer_before_it() -> None:
    start = Value((2, 4, 4))
    image = conv(start, Conv2d(2, 4, (3, 3), padding=(1, 1), groups=2))
    after = check_folding(start, affine(image, numbers(4, 1, 1), numbers(4, 1, 1)))
    assert kinds(after) == ["Conv2d"]
    within = check_folding(start, affine(image, numbers(4, 4), numbers(4, 4)))
    assert kinds(within) == ["Conv2d", "Scale"]


def test_a_scale_goes_into_all_that_read_it() -> None:
    start = Value((4,))
    scale = affine(append(ReLU(), start), numbers(4), numbers(4))
    after = check_folding(start, added(dense(scale, 3), dense(scale, 3, bias=False)))
    assert sorted(kinds(after)) == ["Add", "Dense", "Dense", "ReLU"]
    kept = check_folding(start, joined([dense(scale, 3), append(ReLU(), scale)], 0))
    assert sorted(kinds(kept)) == ["Concat", "Dense", "ReLU", "ReLU", "Scale"]


def test_a_linear_layer_that_others_read_keeps_its_weights() -> None:
    start = Value((4,))
    hidden = dense(start, 3)
    after = check_folding(
        start, added(hidden, append(ReLU(), affine(hidden, numbers(3), numbers(3))))
    )
    assert sorted(kinds(after)) == ["Add", "Dense", "ReLU", "Scale"]
    # The output reads its layer too.
    twice = dense(start, 3)
    assert kinds(check_folding(start, joined([twice, scaled(twice, 2.0)], 0))).count("Scale") == 1


def test_a_shift_stays_before_padding() -> None:
    start = Value((2, 4, 4))
    moved = shifted(start, numbers(2, 1, 1))
    for padding, expected in (((1, 0), ["Scale", "Conv2d"]), ((0, 0), ["Conv2d"])):
        output = conv(moved, Conv2d(2, 2, (2, 2), padding=padding))
        assert kinds(check_folding(start, output)) == expected
    stretched = conv(scaled(start, numbers(2, 1, 1)), Conv2d(2, 2, (2, 2), padding=(1, 1)))
    assert kinds(check_folding(start, stretched)) == ["Conv2d"]


def test_a_scale_passes_a_reshape() -> None:
    start = Value((2, 3))
    output = dense(reshaped(affine(start, numbers(2, 1), numbers(3)), (6,)), 2)
    assert kinds(check_folding(start, output)) == ["Flatten", "Dense"]


@pytest.mark.parametrize("seed", range(40))
def test_folding_keeps_the_function(seed: int) -> None:
    """Random graphs of scales, dense layers, convolutions, reshapes, ReLUs and sums."""
    choose = random.Random(seed)
    start = Value((2, 2, 2))
    values = [start]
    for _ in range(14):
        value = choose.choice(values[-4:])
        match choose.randrange(7):
            case 0 | 1:
                shape = [size if choose.random() < 0.5 else 1 for size in value.shape]
                values.append(affine(value, numbers(*shape), choose.randrange(2) * numbers(*shape)))
            case 2:
                values.append(dense(reshaped(value, (8,)), 8, bias=choose.random() < 0.5))
            case 3:
                layer = Conv2d(2, 2, (3, 3), (1, 1), (1, 1), groups=choose.choice((1, 2)))
                values.append(conv(reshaped(value, (2, 2, 2)), layer))
            case 4:
                values.append(reshaped(value, choose.choice([(8,), (2, 2, 2), (4, 2)])))
            case 5:
                values.append(append(ReLU(), value))
            case 6:
                other = reshaped(choose.choice(values), value.shape)
                values.append(scaled(added(value, other), 0.5))
    check_folding(start, dense(reshaped(values[-1], (8,)), 2))


def test_what_changes_nothing_is_no_layer() -> None:
    start = Value((2, 3, 1))
    same = (
        reshaped(start, (2, 3, 1)),
        reshaped(reshaped(start, (6,)), (2, 3, 1)),
        permuted(start, (0, 1, 2)),
        permuted(permuted(start, (1, 0, 2)), (1, 0, 2)),
        taken(start, 1, range(3)),
        affine(start, torch.ones(1), torch.zeros(3, 1)),
        larger(start, start),
    )
    assert all(value is start for value in same)
    assert permuted(start, (0, 2, 1)).layer == Reshape((2, 1, 3))
    assert permuted(start, (1, 0, 2)).layer == Permute((1, 0, 2))
    assert taken(start, 1, (2, 0)).layer == Take(1, (2, 0))
    assert affine(start, numbers(3, 1), torch.zeros(())).layer == Scale((1, 3, 1), bias=False)


def test_what_does_not_fit_is_refused() -> None:
    start = Value((2,))
    for make, message in (
        (lambda: append(Dense(2, 3), start, parameters=[numbers(3, 2), numbers(3)]), "takes"),
        (lambda: scaled(start, torch.tensor(torch.inf)), "not finite"),
        (lambda: append(Reshape((2, 2)), start), "as many entries"),
        (lambda: taken(start, 0, [0] * 65), "more than 64 times"),
        (lambda: network_of(start, start), "does not depend"),
    ):
        with pytest.raises(InputError, match=message):
            make()  # type: ignore[no-untyped-call]
