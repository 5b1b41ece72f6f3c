"""Networks from ONNX files: graphs of operators, with their weights as the mean of a posterior.

Weights are read as the floats they are, and the network that is certified is the one after
arithmetic with constants was folded into its linear layers. What cannot be represented is refused
by the name of its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.building import MOST, Built, Value, network_of
from bnncert.importers.onnx_folding import folded
from bnncert.importers.onnx_nodes import Constant, Node, Operand, Wire, inner
from bnncert.importers.onnx_operators import result
from bnncert.model.layers import Conv2d, Dense, Shape, parameter_shapes
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

LARGEST = 2**31  # bytes of a file, as of every protocol buffer
# Operator sets: before the first, batch normalisation and dropout trained unless told otherwise; of
# those after the last nobody knows yet what they will change.
OLDEST, NEWEST = 7, 28
FLOATS = ("UNDEFINED", "FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16")
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

    std: the standard deviation of the weights and biases of all dense layers and convolutions, or a
    mapping from the names in `Network.parameters` (W0, b0, ...) to a number or a tensor of the
    parameter's shape; what it does not name is certain.

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
    built = _built(Path(path))
    deviations = _deviations(built.network, std)
    _refuse_shared_noise(built, deviations)
    return built.network, Normal(
        built.weights, torch.cat([*map(torch.flatten, deviations.values())])
    )


def read_onnx(path: str | Path) -> tuple[Network, Tensor]:
    """The network of a file and its weights as the flat vector that `Network.forward` takes."""
    built = _built(Path(path))
    return built.network, built.weights


def _built(path: Path) -> Built:
    try:
        return _walk(_load(path))
    except MALFORMED as error:
        raise InputError(f"{str(path)!r}, {error}") from error


def _deviations(network: Network, std: Std) -> dict[str, Tensor]:
    """Of every parameter."""
    named = std if isinstance(std, Mapping) else dict.fromkeys(_weights(network), std)
    unknown = sorted(named.keys() - network.parameters.keys())
    if unknown:
        raise InputError(
            f"std names {unknown[0]!r}; the parameters are {', '.join(network.parameters)}"
        )
    parts = {}
    for name, shape in network.parameters.items():
        value = torch.as_tensor(named.get(name, 0.0), dtype=torch.float64)
        if value.dim() and tuple(value.shape) != shape:
            raise InputError(
                f"std of {name} has shape {tuple(value.shape)}; give one number or shape {shape}"
            )
        parts[name] = value.expand(shape)
    return parts


def _weights(network: Network) -> list[str]:
    """The parameters that are weights of the file; those of scales are arithmetic."""
    weighted = [layer for layer in network.layers if parameter_shapes(layer)]
    return [
        name
        for layer, own in zip(weighted, network.parameters_by_layer, strict=True)
        if isinstance(layer, Dense | Conv2d)
        for name in own
    ]


def _refuse_shared_noise(built: Built, deviations: Mapping[str, Tensor]) -> None:
    """One random tensor in two places is not two independent ones."""
    holders: dict[str, str] = {}
    for name, stored in built.sources.items():
        if not deviations[name].any():
            continue
        for tensor in sorted(stored):
            if tensor in holders:
                raise InputError(
                    f"tensor {tensor!r} is in both {holders[tensor]} and {name}, whose noise would "
                    "be one and the same; give them no std, or store it twice"
                )
            holders[tensor] = name


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
    _check_versions(model)
    if model.functions or model.graph.sparse_initializer:
        raise InputError("functions and sparse initializers are not supported; export without them")
    return model.graph


def _check_versions(model: Any) -> None:
    """One operator set, that is known; named twice it must be the same one."""
    found = {entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")}
    versions = ", ".join(map(str, sorted(found)))
    if not found:
        raise InputError("the file names no operator set; this is not a complete ONNX model")
    if len(found) > 1:
        raise InputError(f"the file names {len(found)} operator sets, {versions}; export with one")
    if min(found) < OLDEST:
        raise InputError(
            f"operator set {versions} is too old; export with version {OLDEST} or later"
        )
    if max(found) > NEWEST:
        raise InputError(
            f"operator set {versions} is newer than {NEWEST}, the last one that is known here; "
            "export with an older version"
        )


def _walk(graph: Any) -> Built:
    """From the one input to the one output, node by node."""
    held: dict[str, Operand] = {}
    for tensor in graph.initializer:
        _hold(held, tensor.name, _array(tensor, tensor.name))
    inputs = [value for value in graph.input if value.name not in held]
    if len(inputs) != 1 or len(graph.output) != 1:
        names = (", ".join(value.name for value in values) for values in (inputs, graph.output))
        raise InputError(
            f"the graph has {len(inputs)} inputs and {len(graph.output)} outputs ("
            + "; ".join(names)
            + "); give one of each"
        )
    dims = _dims(inputs[0])
    start = Value(inner(dims))
    _hold(held, inputs[0].name, Wire(start, dims))
    for node in graph.node:
        try:
            _follow(node, held)
        except MALFORMED as error:
            name = node.name or node.output[0]
            raise InputError(f"node {name!r} ({node.op_type}): {error}") from error
    name = graph.output[0].name
    output = held.get(name)
    if not isinstance(output, Wire):
        raise InputError(
            f"output {name!r} is constant" if output else f"no node gives the output {name!r}"
        )
    return network_of(start, folded(output.value))


def _follow(node: Any, held: dict[str, Operand]) -> None:
    """What a node gives, held by name."""
    unknown = [name for name in node.input if name and name not in held]
    if unknown:
        raise InputError(f"it takes {unknown[0]!r}, which no supported output before it gives")
    operands = tuple(held[name] if name else None for name in node.input)
    outputs = [*node.output]
    read = Node(node.op_type, operands, _attributes(node), sum(map(bool, outputs)))
    # Outputs that a rule does not give stand without a value: whoever takes them is refused.
    for name, value in zip(outputs, result(read, node.domain), strict=False):
        if name:
            _hold(held, name, value)


def _hold(held: dict[str, Operand], name: str, value: Operand) -> None:
    if name in held:
        raise InputError(f"value {name!r} is defined twice")
    held[name] = value


def _attributes(node: Any) -> dict[str, Any]:
    """By name; tensors as constants."""
    onnx = _onnx()
    found = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        is_tensor = isinstance(value, onnx.TensorProto)
        found[attribute.name] = _array(value, node.output[0]) if is_tensor else value
    return found


def _dims(value: Any) -> Shape:
    """Of the input, at a batch of one where the first size is open."""
    onnx = _onnx()
    kind = value.type.tensor_type
    floats = [onnx.TensorProto.DataType.Value(name) for name in FLOATS]
    if kind.elem_type not in floats:
        raise InputError(f"input {value.name!r} does not hold floating-point numbers")
    sizes = [size.dim_value for size in kind.shape.dim]
    known = sizes if sizes and sizes[0] >= 1 else [1, *sizes[1:]]
    is_open = len(sizes) == 1 and sizes != known
    if not sizes or is_open or min(known) < 1 or np.prod(known, dtype=object) > MOST:
        raise InputError(
            f"input {value.name!r} has shape {sizes}; "
            "give known sizes, but for a batch dimension before them"
        )
    return tuple(known)


def _array(tensor: Any, name: str) -> Constant:
    onnx = _onnx()
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise InputError(f"tensor {tensor.name!r} lies in another file; save the model as one file")
    try:
        return Constant(np.asarray(onnx.numpy_helper.to_array(tensor)), frozenset({name}))
    except MALFORMED as error:
        raise InputError(f"tensor {tensor.name!r} is malformed ({error})") from error
