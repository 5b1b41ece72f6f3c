"""Networks from ONNX files: chains of operators, with their weights as the mean of a posterior.

Weights are read as the floats they are, and the network that is certified is the one after
arithmetic with constants was folded into its linear layers. What cannot be represented is refused
by the name of its node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.onnx_operators import MOST, OPERATORS, Array, Chain, Node
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

LARGEST = 2**31  # bytes of a file, as of every protocol buffer
OLDEST = 7  # operator set: before it, batch normalisation and dropout trained unless told otherwise
MALFORMED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    RuntimeError,
)
Std: TypeAlias = float | Mapping[str, float | Tensor]


def from_onnx(path: str | Path, std: Std = 0.0) -> tuple[Network, Normal]:
    """The file's network with independent Gaussian weights around the stored ones.

    std: the standard deviation of every parameter, or a mapping from the names in
    `Network.parameters` (W0, b0, ...) to a number or a tensor of the parameter's shape; what it
    does not name is certain.

    >>> import onnx
    >>> from tempfile import TemporaryDirectory
    >>> text = '<ir_version: 8, opset_import: ["": 17]> g (float[1, 2] x) => (float[1, 2] y)'
    >>> text += " <float[2, 2] w = {1, 0, 0, 1}> { y = MatMul(x, w) }"
    >>> with TemporaryDirectory() as folder:
    ...     onnx.save(onnx.parser.parse_model(text), f"{folder}/network.onnx")
    ...     network, posterior = from_onnx(f"{folder}/network.onnx", std=0.01)
    >>> posterior.mean
    tensor([1., 0., 0., 1.], dtype=torch.float64)
    """
    network, mean = read_onnx(path)
    return network, Normal(mean, _deviations(network, std))


def read_onnx(path: str | Path) -> tuple[Network, Tensor]:
    """The network of a file and its weights as the flat vector that `Network.forward` takes."""
    path = Path(path)
    try:
        chain = _walk(_load(path))
        network = Network(chain.input_shape, tuple(layer for layer, _ in chain.layers))
    except MALFORMED as error:
        raise InputError(f"{str(path)!r}, {error}") from error
    parameters = [
        torch.from_numpy(np.array(value).reshape(-1))
        for _, values in chain.layers
        for value in values
    ]
    return network, torch.cat(parameters)


def _deviations(network: Network, std: Std) -> Tensor:
    named = std if isinstance(std, Mapping) else dict.fromkeys(network.parameters, std)
    unknown = sorted(named.keys() - network.parameters.keys())
    if unknown:
        raise InputError(
            f"std names {unknown[0]!r}; the parameters are {', '.join(network.parameters)}"
        )
    parts = []
    for name, shape in network.parameters.items():
        value = torch.as_tensor(named.get(name, 0.0), dtype=torch.float64)
        if value.dim() and tuple(value.shape) != shape:
            raise InputError(
                f"std of {name} has shape {tuple(value.shape)}; give one number or shape {shape}"
            )
        parts.append(value.expand(shape).reshape(-1))
    return torch.cat(parts)


# ---------------------------------------------------------------------------------------- the graph


def _onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise InputError(
            "reading it needs the package onnx: pip install 'bnncert[onnx]'"
        ) from error
    return onnx


def _load(path: Path) -> Any:
    """The graph; nothing but this file is read."""
    try:
        content = path.read_bytes() if path.stat().st_size < LARGEST else None
    except OSError as error:
        raise InputError(f"the file cannot be read ({error.strerror}); check the path") from error
    if content is None:
        raise InputError(f"the file is larger than {LARGEST >> 30} GiB; refused")
    onnx = _onnx()
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # the decoder's own kinds, which differ between its implementations
        raise InputError("this is not an ONNX model") from error
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if len(versions) != 1 or versions[0] < OLDEST:
        raise InputError(
            f"operator set {versions} is not supported; export with version {OLDEST} or later"
        )
    if model.functions or model.graph.sparse_initializer:
        raise InputError("functions and sparse initializers are not supported; export without them")
    return model.graph


def _walk(graph: Any) -> Chain:
    """From the one input to the one output.

    Every node takes the activation of the node before it.
    """
    constants = {tensor.name: _array(tensor) for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1 or len(graph.output) != 1:
        raise InputError(
            f"the graph has {len(inputs)} inputs and {len(graph.output)} outputs; give one of each"
        )
    chain = _start(inputs[0])
    current = inputs[0].name
    for node in graph.node:
        name = node.name or node.output[0]
        try:
            result = node.output[0]
            if result in constants or result == current:
                raise InputError(f"value {result!r} is defined twice")
            read = _read(node, name, constants, current)
            known = OPERATORS if read.position >= 0 else FOLDED
            if node.domain not in ("", "ai.onnx") or node.op_type not in known:
                raise InputError(
                    "the operator is not supported on "
                    f"{'constants' if known is FOLDED else 'activations'}"
                )
            if read.position < 0:
                constants[result] = FOLDED[node.op_type](read)
            else:
                chain = OPERATORS[node.op_type](chain, read)
                current = result
        except MALFORMED as error:
            raise InputError(f"node {name!r} ({node.op_type}): {error}") from error
    if current != graph.output[0].name:
        raise InputError(
            f"output {graph.output[0].name!r} is not the end of the chain, {current!r}"
        )
    return chain.settled()


def _start(value: Any) -> Chain:
    """No layers yet, on inputs of the shape that follows the batch dimension."""
    sizes = [size.dim_value for size in value.type.tensor_type.shape.dim]
    if len(sizes) < 2 or not all(size >= 1 for size in sizes[1:]) or math.prod(sizes[1:]) > MOST:
        raise InputError(
            f"input {value.name!r} has shape {sizes}; "
            "give a batch dimension and known sizes after it"
        )
    return Chain(sizes[0], tuple(sizes[1:]), tuple(sizes[1:]))


def _read(node: Any, name: str, constants: dict[str, Array], current: str) -> Node:
    """The node with its constant operands; position -1 if all are constant."""
    others = [word for word in node.input if word and word not in constants]
    if others not in ([], [current]):
        raise InputError(
            f"it takes {', '.join(others)}, not {current} alone: the network is not a chain"
        )
    operands = tuple(constants.get(word) for word in node.input)
    get = _onnx().helper.get_attribute_value
    attributes = {attribute.name: get(attribute) for attribute in node.attribute}
    return Node(
        node.op_type, name, list(node.input).index(current) if others else -1, operands, attributes
    )


def _array(tensor: Any) -> Array:
    onnx = _onnx()
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise InputError(f"tensor {tensor.name!r} lies in another file; save the model as one file")
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except MALFORMED as error:
        raise InputError(f"tensor {tensor.name!r} is malformed ({error})") from error


def _constant(node: Node) -> Array:
    if [*node.attributes] != ["value"]:
        raise InputError("only constants with a tensor 'value' are supported")
    return _array(node.attributes["value"])


def _transposed(node: Node) -> Array:
    return np.transpose(_operand(node, 0), node.options(perm=None)["perm"])


def _computed(node: Node) -> Array:
    """Arithmetic of two constants."""
    node.options()
    first, second = node.constant(0), node.constant(1)
    if (node.operator == "Div" and not second.all()) or math.prod(
        np.broadcast_shapes(first.shape, second.shape)
    ) > MOST:
        raise InputError("division by 0, or a result that is too large")
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    return np.asarray(functions[node.operator](first, second))


def _operand(node: Node, position: int) -> Array:
    value = node.operands[position]
    if value is None:
        raise InputError(f"operand {position} is missing")
    return value


FOLDED: dict[str, Callable[[Node], Array]] = {
    "Constant": _constant,
    "Identity": lambda node: _operand(node, 0),
    "Transpose": _transposed,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _computed),
}
