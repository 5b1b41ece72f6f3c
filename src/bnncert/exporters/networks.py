"""A network with given weights as an ONNX file.

Operators are of opset 13, which verifiers read; a layer that has none there is refused by name. A
file's input has a batch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.activations import Hardtanh, LeakyReLU, PReLU, ReLU, Sigmoid, Tanh
from bnncert.model.curves import ELU, SELU, SiLU, Softplus, Softsign
from bnncert.model.layers import Add, AvgPool2d, Conv2d, Dense, Layer, MaxPool2d, Scale, sides
from bnncert.model.moves import Concat, Flatten, Pad, Permute, Reshape, Take
from bnncert.model.network import Network

OPSET, FORMAT = 13, 8
Name: TypeAlias = str


@dataclass
class Graph:
    """Nodes and constants written so far; each method gives the name of what it wrote."""

    helper: Any
    numpy_helper: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def node(self, operator: str, *inputs: Name, **attributes: Any) -> Name:
        name = f"h{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def floats(self, values: Any) -> Name:
        return self._constant(np.asarray(values, dtype=np.float32))

    def whole(self, values: Sequence[int]) -> Name:
        return self._constant(np.asarray(values, dtype=np.int64))

    def _constant(self, array: Any) -> Name:
        name = f"c{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


Parts: TypeAlias = tuple[Tensor, ...]
Writer: TypeAlias = Callable[[Graph, Any, list[Name], Parts], Name]


def onnx_model(network: Network, weights: Tensor) -> bytes:
    """The file of the network with these weights [n], rounded to float32."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise InputError(
            "writing ONNX files needs the package onnx: pip install 'bnncert[onnx]'"
        ) from error
    graph = Graph(onnx.helper, onnx.numpy_helper)
    known = ["x"]
    parts = network.split(weights.cpu())
    for layer, reads, own in zip(network.layers, network.reads, parts, strict=True):
        if type(layer) not in WRITERS:
            raise InputError(
                f"layer {type(layer).__name__} has no operator in ONNX opset {OPSET}; "
                "networks with it cannot be exported"
            )
        known.append(WRITERS[type(layer)](graph, layer, [known[k] for k in reads], own))
    last = graph.node("Identity", known[-1])
    graph.nodes[-1].output[0] = last = "y"
    value = graph.helper.make_tensor_value_info
    made = graph.helper.make_graph(
        graph.nodes,
        "bnncert",
        [value("x", onnx.TensorProto.FLOAT, [1, *network.input_shape])],
        [value(last, onnx.TensorProto.FLOAT, [1, network.outputs])],
        graph.constants,
    )
    opset = graph.helper.make_opsetid("", OPSET)
    model = graph.helper.make_model(made, opset_imports=[opset], producer_name="bnncert")
    model.ir_version = FORMAT
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _dense(graph: Graph, layer: Dense, reads: list[Name], own: Parts) -> Name:
    product = graph.node("MatMul", *reads, graph.floats(own[0]))
    return graph.node("Add", product, graph.floats(own[1])) if layer.bias else product


def _convolution(graph: Graph, layer: Conv2d, reads: list[Name], own: Parts) -> Name:
    return graph.node(
        "Conv",
        *reads,
        *map(graph.floats, own),
        kernel_shape=layer.kernel,
        strides=layer.stride,
        pads=sides(layer),
        dilations=layer.dilation,
        group=layer.groups,
    )


def _scale(graph: Graph, layer: Scale, reads: list[Name], own: Parts) -> Name:
    product = graph.node("Mul", *reads, graph.floats(own[0]))
    return graph.node("Add", product, graph.floats(own[1])) if layer.bias else product


def _pool(operator: str, **attributes: Any) -> Writer:
    def write(graph: Graph, layer: AvgPool2d | MaxPool2d, reads: list[Name], _: Parts) -> Name:
        return graph.node(
            operator,
            *reads,
            kernel_shape=layer.kernel,
            strides=layer.stride,
            pads=sides(layer),
            **attributes,
        )

    return write


def _reshape(graph: Graph, layer: Reshape, reads: list[Name], _: Parts) -> Name:
    return graph.node("Reshape", *reads, graph.whole((1, *layer.to)))


def _permute(graph: Graph, layer: Permute, reads: list[Name], _: Parts) -> Name:
    return graph.node("Transpose", *reads, perm=[0, *(axis + 1 for axis in layer.order)])


def _take(graph: Graph, layer: Take, reads: list[Name], _: Parts) -> Name:
    return graph.node("Gather", *reads, graph.whole(layer.indices), axis=layer.axis + 1)


def _pad(graph: Graph, layer: Pad, reads: list[Name], _: Parts) -> Name:
    return graph.node("Pad", *reads, graph.whole((0, *layer.before, 0, *layer.after)))


def _concat(graph: Graph, layer: Concat, reads: list[Name], _: Parts) -> Name:
    return graph.node("Concat", *reads, axis=layer.axis + 1)


def _clip(graph: Graph, layer: Hardtanh, reads: list[Name], _: Parts) -> Name:
    return graph.node("Clip", *reads, graph.floats(layer.low), graph.floats(layer.high))


def _prelu(graph: Graph, layer: PReLU, reads: list[Name], _: Parts) -> Name:
    slopes = np.reshape(layer.slopes, layer.shape or (1,))
    return graph.node("PRelu", *reads, graph.floats(slopes))


def _silu(graph: Graph, _: Layer, reads: list[Name], __: Parts) -> Name:
    return graph.node("Mul", *reads, graph.node("Sigmoid", *reads))


def _softplus(graph: Graph, layer: Softplus, reads: list[Name], _: Parts) -> Name:
    scaled = graph.node("Mul", *reads, graph.floats(layer.beta))
    return graph.node("Div", graph.node("Softplus", scaled), graph.floats(layer.beta))


def _plain(operator: str, **fields: str) -> Writer:
    """An operator without weights; fields: its attributes, by the layer's fields."""

    def write(graph: Graph, layer: Any, reads: list[Name], _: Parts) -> Name:
        given = {name: getattr(layer, own) for name, own in fields.items()}
        return graph.node(operator, *reads, **given)

    return write


def _selu(graph: Graph, layer: SELU, reads: list[Name], _: Parts) -> Name:
    return graph.node("Selu", *reads, alpha=layer.alpha, gamma=layer.scale)


WRITERS: dict[type[Layer], Writer] = {
    Dense: _dense,
    Conv2d: _convolution,
    Scale: _scale,
    AvgPool2d: _pool("AveragePool", count_include_pad=1),
    MaxPool2d: _pool("MaxPool"),
    Add: _plain("Sum"),
    Concat: _concat,
    Flatten: _plain("Flatten"),
    Reshape: _reshape,
    Permute: _permute,
    Take: _take,
    Pad: _pad,
    ReLU: _plain("Relu"),
    LeakyReLU: _plain("LeakyRelu", alpha="slope"),
    PReLU: _prelu,
    Hardtanh: _clip,
    Tanh: _plain("Tanh"),
    Sigmoid: _plain("Sigmoid"),
    SiLU: _silu,
    Softplus: _softplus,
    ELU: _plain("Elu", alpha="alpha"),
    SELU: _selu,
    Softsign: _plain("Softsign"),
}
