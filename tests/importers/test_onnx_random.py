"""Random graphs of ONNX operators: what is read agrees with the reference evaluator, which also
says, node by node, what may come next."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from bnncert.importers.onnx import read_onnx
from onnx_files import evaluate, helper, write

SHAPES = ((1, 4), (4,), (3, 2), (1, 2, 3), (1, 2, 3, 4), (1, 3, 3, 3), (2, 3, 4), (1, 1, 1, 5))
LARGEST = 300  # entries of a value
Shape: TypeAlias = tuple[int, ...]


@dataclass
class Draft:
    """A graph to be: its nodes, its constants, and what every value is at one input."""

    choose: random.Random
    values: dict[str, Any]
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, object] = field(default_factory=dict)

    def constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def normal(self, *shape: int) -> str:
        numbers = [self.choose.gauss(0, 1) for _ in range(int(np.prod(shape)))]
        return self.constant(np.reshape(numbers, shape))

    def like(self, shape: Shape) -> str:
        """A constant that broadcasts to a shape."""
        sizes = [size if self.choose.random() < 0.6 else 1 for size in shape]
        return self.normal(*sizes[self.choose.randrange(len(sizes) + 1) :])

    def other(self, shape: Shape) -> str:
        """A value of the shape."""
        return self.choose.choice([k for k, value in self.values.items() if value.shape == shape])

    def axis(self, shape: Shape) -> int:
        return self.choose.randrange(-len(shape), len(shape))


Step: TypeAlias = tuple[str, list[str], dict[str, Any]]
Make: TypeAlias = Callable[[Draft, str, Shape], Step]


def between(operator: str) -> Make:
    """With a constant on either side."""

    def make(draft: Draft, name: str, shape: Shape) -> Step:
        operands = [name, draft.like(shape)]
        draft.choose.shuffle(operands)
        return operator, operands, {}

    return make


def beside(operator: str) -> Make:
    """With another value."""
    return lambda draft, name, shape: (operator, [name, draft.other(shape)], {})


def alone(operator: str) -> Make:
    return lambda _, name, __: (operator, [name], {})


def leaky(draft: Draft, name: str, _: Shape) -> Step:
    return "LeakyRelu", [name], {"alpha": draft.choose.choice([0.25, -1.0, 2.0])}


def prelu(draft: Draft, name: str, shape: Shape) -> Step:
    return "PRelu", [name, draft.like(shape)], {}


def clip(draft: Draft, name: str, _: Shape) -> Step:
    return "Clip", [name, draft.constant(-0.5), draft.constant(0.75)], {}


def transpose(draft: Draft, name: str, shape: Shape) -> Step:
    return "Transpose", [name], {"perm": draft.choose.sample(range(len(shape)), len(shape))}


def reshape(draft: Draft, name: str, shape: Shape) -> Step:
    left, sizes = int(np.prod(shape)), []
    while left > 1:
        sizes.append(draft.choose.choice([k for k in range(1, left + 1) if left % k == 0]))
        left //= sizes[-1]
    sizes = [*sizes[:4], -1] if draft.choose.random() < 0.5 else [*sizes, 1]
    draft.choose.shuffle(sizes)
    return "Reshape", [name, draft.constant(sizes)], {}


def flatten(draft: Draft, name: str, shape: Shape) -> Step:
    return "Flatten", [name], {"axis": draft.choose.randrange(-len(shape), len(shape) + 1)}


def unsqueeze(draft: Draft, name: str, shape: Shape) -> Step:
    return "Unsqueeze", [name, draft.constant([draft.axis(shape)])], {}


def cut(draft: Draft, name: str, shape: Shape) -> Step:
    axis = draft.axis(shape)
    size = shape[axis]
    start, end = draft.choose.randint(-size, size), draft.choose.randint(-size - 2, size + 2)
    step = draft.choose.choice([-2, -1, 1, 2])
    return "Slice", [name, *(draft.constant([k]) for k in (start, end, axis, step))], {}


def gather(draft: Draft, name: str, shape: Shape) -> Step:
    axis = draft.axis(shape)
    size = shape[axis]
    one, *_, last = positions = [draft.choose.randrange(-size, size) for _ in range(3)]
    indices = draft.constant(draft.choose.choice([np.int64(one), positions, [[one, last]]]))
    return "Gather", [name, indices], {"axis": axis}


def concat(draft: Draft, name: str, shape: Shape) -> Step:
    axis = draft.axis(shape)
    sizes = [*shape]
    sizes[axis] = draft.choose.randint(1, 2)
    operands = [name, draft.normal(*sizes), draft.other(shape)]
    draft.choose.shuffle(operands)
    return "Concat", operands, {"axis": axis}


def pad(draft: Draft, name: str, shape: Shape) -> Step:
    sides = [draft.choose.choice([0, 0, 1, 2]) for _ in range(2 * len(shape))]
    return "Pad", [name, draft.constant(sides), draft.constant(draft.choose.choice([0.0, 1.5]))], {}


def reduction(operator: str) -> Make:
    def make(draft: Draft, name: str, shape: Shape) -> Step:
        axes = draft.choose.sample(range(len(shape)), draft.choose.randint(1, len(shape)))
        return operator, [name], {"axes": axes, "keepdims": draft.choose.randrange(2)}

    return make


def product(draft: Draft, name: str, shape: Shape) -> Step:
    outputs = draft.choose.choice([(), (1,), (3,)])
    return "MatMul", [name, draft.normal(shape[-1], *outputs)], {}


def product_before(draft: Draft, name: str, shape: Shape) -> Step:
    outputs = draft.choose.choice([(), (1,), (3,)])
    return "MatMul", [draft.normal(*outputs, shape[-2 if len(shape) > 1 else 0]), name], {}


def convolution(draft: Draft, name: str, shape: Shape) -> Step:
    pick, rank = draft.choose.randint, len(shape) - 2
    kernel = [pick(1, 2) for _ in range(rank)]
    groups = draft.choose.choice([k for k in range(1, shape[1] + 1) if shape[1] % k == 0])
    outputs = groups * pick(1, 2)
    options = {"group": groups, "strides": [pick(1, 2) for _ in kernel]}
    if draft.choose.random() < 0.3:
        options["auto_pad"] = draft.choose.choice(["SAME_UPPER", "SAME_LOWER"])
    else:
        options["pads"] = [pick(0, 1) for _ in kernel * 2]
        options["dilations"] = [pick(1, 2) for _ in kernel]
    weights = draft.normal(outputs, shape[1] // groups, *kernel)
    return "Conv", [name, weights, draft.normal(outputs)], options


def average(draft: Draft, name: str, shape: Shape) -> Step:
    pick = draft.choose.randint
    kernel = [pick(1, min(3, size)) for size in shape[2:]]
    return (
        "AveragePool",
        [name],
        {
            "kernel_shape": kernel,
            "strides": [pick(1, 2) for _ in kernel],
            "pads": [pick(0, size - 1) for size in kernel * 2],
            "count_include_pad": pick(0, 1),
        },
    )


ANY: tuple[Make, ...] = (
    *(between(operator) for operator in ("Add", "Sub", "Mul", "Max", "Min")),
    *(beside(operator) for operator in ("Add", "Sub", "Max")),
    *(alone(operator) for operator in ("Neg", "Abs", "Relu", "Identity")),
    *(reduction(operator) for operator in ("ReduceMean", "ReduceMax")),
    leaky, prelu, clip, transpose, reshape, flatten, unsqueeze, cut, gather, concat, pad,
    product, product_before,
)  # fmt: skip
# Of a batch of one, with channels and at most two dimensions more.
WINDOWS: tuple[Make, ...] = (convolution, average, alone("GlobalAveragePool"))


def drafted(seed: int, path: Path) -> Draft:
    """Up to nine nodes; those that give nothing, or too much, are left out."""
    choose = random.Random(seed)
    shape = choose.choice(SHAPES)
    scale = choose.choice([1, 50])
    x = scale * np.random.default_rng(seed).standard_normal(shape)
    draft = Draft(choose, {"x": x})
    for k in range(9):
        name = choose.choice([*draft.values][-3:])
        dims = draft.values[name].shape
        if not dims:
            continue
        has_windows = len(dims) in (3, 4) and dims[0] == 1
        make = choose.choice([*ANY, *(3 * WINDOWS if has_windows else ())])
        operator, operands, options = make(draft, name, dims)
        step = helper.make_node(operator, operands, [f"v{k}"], **options)
        file = write(path, [*draft.nodes, step], draft.constants, shape, output=f"v{k}")
        try:
            found = np.asarray(evaluate(file, x))
        except (ValueError, IndexError, RuntimeError, TypeError):
            continue
        if 0 < found.size <= LARGEST:
            draft.nodes.append(step)
            draft.values[f"v{k}"] = found
    return draft


@pytest.mark.parametrize("seed", range(80))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    draft = drafted(seed, path)
    x, *_, last = draft.values.values()
    nodes = [*draft.nodes, helper.make_node("Add", [[*draft.values][-1], "one"], ["y"])]
    write(path, nodes, {**draft.constants, "one": 1.0}, x.shape)
    network, weights = read_onnx(path)
    ours = network.forward(weights, torch.from_numpy(x).reshape(1, *network.input_shape))
    tolerance = 1e-10 * (1 + abs(last).max())
    np.testing.assert_allclose(ours.numpy().reshape(-1), last.reshape(-1) + 1, 0, tolerance)
