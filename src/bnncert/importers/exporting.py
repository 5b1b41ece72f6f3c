"""torch.export, for forwards that torch.fx cannot trace: the graph of operators of ATen, made
without changes in place."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from bnncert.importers.interpretation import Interpreter
from bnncert.importers.operations import SPELLED
from bnncert.importers.tracing import TORCHS
from bnncert.importers.values import BATCH, At, Place


def exported(module: nn.Module, interpreter: Interpreter, x: At) -> object:
    """What the forward returns, with what was read in the place of tensors."""
    first = next(module.parameters())
    example = torch.zeros(BATCH, *x.shape, dtype=first.dtype, device=first.device)
    with _silent():
        program = torch.export.export(module, (example,), strict=False).run_decompositions({})
    kept = program.graph_signature
    names = {
        **kept.inputs_to_parameters,
        **kept.inputs_to_buffers,
        **kept.inputs_to_lifted_tensor_constants,
    }
    tensors = {**program.state_dict, **program.constants}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            name = names.get(node.name)
            held = x if name is None else interpreter.held(name, tensors[name])
            interpreter.values[node] = held
        elif node.op == "call_function":
            name = _name(node)
            interpreter.read(node, name, _place(node, name), node.target, aten=True)
    outputs = [interpreter.values[node] for node in _returned(program.graph)]
    return torch.utils._pytree.tree_unflatten(outputs, program.call_spec.out_spec)


@contextmanager
def _silent() -> Iterator[None]:
    """Without torch's own remarks, which are about torch."""
    level = logging.root.manager.disable
    with (
        warnings.catch_warnings(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)


def _returned(graph: fx.Graph) -> tuple[fx.Node, ...]:
    (found,) = (node for node in graph.nodes if node.op == "output")
    returned: Any = found.args[0]
    return tuple(returned)


def _name(node: fx.Node) -> str:
    target: Any = node.target
    schema = getattr(target, "_schema", None)
    return str(schema.name.rpartition("::")[2] if schema else target.__name__)


def _place(node: fx.Node, name: str) -> Place:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "the module")
    kind = kind if isinstance(kind, str) else kind.__name__
    lines = re.findall(r'File "(.+?)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [f"{Path(file).name}:{line}" for file, line in lines if not file.startswith(TORCHS)]
    return Place(path, kind.rpartition(".")[2], SPELLED.get(name, name), own[-1] if own else "")
