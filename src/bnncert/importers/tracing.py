"""A torch module as a chain of steps from its input to its output, each a module of torch's or a
Bayesian layer.

The module is traced symbolically in evaluation mode and read backwards from its output, so that
what does not lead to the output (the divergences that Bayesian layers return beside it) is never
looked at. A function is read as the module that does the same.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from bnncert.errors import InputError
from bnncert.importers.conventions import convention_of

SUPPORTED = (
    "Linear, Conv2d, ReLU, LeakyReLU, PReLU, ReLU6, Hardtanh, Tanh, Sigmoid, GELU, SiLU, Mish, "
    "Softplus, ELU, SELU, Hardswish, Softsign, Flatten, AvgPool2d, MaxPool2d, "
    "BatchNorm after a Linear or Conv2d"
)


@dataclass(frozen=True, eq=False)
class Step:
    """A module on the way from input to output, or the module that does what a function does."""

    path: str
    module: nn.Module
    function: str = ""  # its name, where a function was called

    def __str__(self) -> str:
        return (
            f"{self.function}() in {_title(self.path)}"
            if self.function
            else _title(self.path, self.module)
        )

    def named(self, name: str) -> str:
        """The name that the whole module has for a tensor of this one."""
        return f"{self.path}.{name}" if self.path else name


def _title(path: str, module: nn.Module | None = None) -> str:
    kind = f" ({type(module).__name__})" if module is not None else ""
    return f"module {path!r}{kind}" if path else f"the module{kind}"


def refusal(step: Step, why: str) -> InputError:
    return InputError(f"{step} {why}; what can be read is a chain of {SUPPORTED}")


class View(nn.Module):
    """x.view(batch, *sizes)"""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)


# What a function computes, as the module that does the same; its arguments follow the input.
FUNCTIONS: dict[object, Callable[..., nn.Module]] = {
    **dict.fromkeys((functional.relu, torch.relu, "relu"), nn.ReLU),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    **dict.fromkeys((functional.softmax, torch.softmax, "softmax"), nn.Softmax),
    **dict.fromkeys((functional.log_softmax, torch.log_softmax, "log_softmax"), nn.LogSoftmax),
    **dict.fromkeys(
        (torch.flatten, "flatten"), lambda start_dim=0, end_dim=-1: nn.Flatten(start_dim, end_dim)
    ),
    functional.leaky_relu: nn.LeakyReLU,
    functional.gelu: lambda approximate="none": nn.GELU(approximate),
    functional.silu: nn.SiLU,
    functional.mish: nn.Mish,
    functional.softplus: nn.Softplus,
    functional.elu: nn.ELU,
    **dict.fromkeys((functional.selu, torch.selu), nn.SELU),
    functional.hardswish: nn.Hardswish,
    functional.softsign: nn.Softsign,
    functional.relu6: nn.ReLU6,
    functional.hardtanh: nn.Hardtanh,
    functional.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
}
# Arguments that do not change the values.
IRRELEVANT = (
    "inplace",
    "_stacklevel",
    "dtype",
    "return_indices",
)
KNOWN = (
    nn.Linear,
    nn.Conv2d,
    nn.ReLU,
    nn.LeakyReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Softplus,
    nn.ELU,
    nn.SELU,
    nn.Hardswish,
    nn.Softsign,
    nn.ReLU6,
    nn.Hardtanh,
    nn.PReLU,
    nn.Flatten,
    nn.AvgPool2d,
    nn.MaxPool2d,
)


def is_standard(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """One of torch's own modules, or a subclass that computes the same."""
    return any(isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds)


def own_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The module's parameters, those of its submodules included, each under every name it has."""
    return dict(module.named_parameters(remove_duplicate=False))


def is_layer(module: nn.Module) -> bool:
    """Whether tracing stops here: a Bayesian layer, or a module of torch's that holds no others."""
    if is_standard(module, *KNOWN) or convention_of(own_parameters(module)) is not None:
        return True
    return type(module).__module__.startswith("torch.nn") and not list(module.children())


class Tracer(fx.Tracer):
    """Stops at layers, whatever library they come from."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_layer(m) or super().is_leaf_module(m, module_qualified_name)


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, and afterwards as before: a forward may leave marks on its modules."""
    before = [(each, dict(each.__dict__)) for each in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for each, attributes in before:
            each.__dict__.clear()
            each.__dict__.update(attributes)


def chain(module: nn.Module) -> list[Step]:
    """The steps from input to output."""
    if is_layer(module):
        return [Step("", module)]
    graph = _trace(module)
    modules = dict(module.named_modules(remove_duplicate=False))
    steps: list[Step] = []
    node = _result(next(node for node in reversed(graph.nodes) if node.op == "output").args[0])
    while node.op != "placeholder":
        step, node = _step(node, modules)
        steps += [step] if step else []
    return steps[::-1]


def _trace(module: nn.Module) -> fx.Graph:
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    with undisturbed(module):
        try:
            return Tracer().trace(module, concrete_args=defaults or None)
        # The forward is the user's: what it cannot do with a symbol has no one type.
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{_title('', module)} cannot be read ({reason}); "
                "its forward must be a chain without branches"
            ) from error


def _result(value: object) -> fx.Node:
    """What a forward returns, or the first of it: Bayesian networks return a divergence as well."""
    first = value[0] if isinstance(value, tuple | list) and value else value
    if not isinstance(first, fx.Node):
        raise InputError(
            f"the module returns a {type(value).__name__}; "
            "it must return its output, or a tuple with it"
        )
    return first


def _step(node: fx.Node, modules: Mapping[str, nn.Module]) -> tuple[Step | None, fx.Node]:
    """The node as a step (None where it picks one output of a tuple), and the node before it."""
    name = (
        node.target
        if isinstance(node.target, str)
        else getattr(node.target, "__name__", str(node.target))
    )
    step = Step(_path(node), nn.Identity(), name)
    before = node.args[0] if node.args else node.kwargs.get("input")
    if not isinstance(before, fx.Node):
        raise refusal(step, "is not supported")
    if node.op == "call_module":
        return Step(name, modules[name]), before
    if (
        node.target is operator.getitem
        and node.args[1] == 0
        and _returns_divergence(before, modules)
    ):
        return None, before
    options = {key: value for key, value in node.kwargs.items() if key != "input"}
    return Step(step.path, _function(node.target, step, list(node.args[1:]), options), name), before


def _returns_divergence(node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """A Bayesian layer, whose output may be a tuple with the divergence.

    Of any other x[0] is the first example.
    """
    return (
        node.op == "call_module"
        and convention_of(own_parameters(modules[str(node.target)])) is not None
    )


def _path(node: fx.Node) -> str:
    """The module in whose forward the node is."""
    stack = node.meta.get("nn_module_stack") or {}
    return str(list(stack.values())[-1][0]) if stack else ""


def _function(
    target: object, step: Step, arguments: list[Any], options: dict[str, Any]
) -> nn.Module:
    """The module that does what the function does."""
    if target in ("view", "reshape", torch.reshape):
        return View(_sizes(step, [*arguments, *options.values()]))
    if target in (functional.dropout, functional.dropout2d):
        if options.get("training") is not False:
            raise refusal(step, "stays on in evaluation (give it training=self.training)")
        return (nn.Dropout2d if target is functional.dropout2d else nn.Dropout)(
            options.get("p", 0.5)
        )
    if target not in FUNCTIONS:
        raise refusal(step, "is not supported")
    try:
        kept = {key: value for key, value in options.items() if key not in IRRELEVANT}
        return FUNCTIONS[target](*arguments, **kept)
    except TypeError as error:
        raise refusal(step, f"has arguments {arguments} {options} that cannot be read") from error


def _sizes(step: Step, sizes: list[Any]) -> list[int]:
    """What x.view(batch, ...) asks for after the batch."""
    first, *rest = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
    readable = rest and all(isinstance(size, int) and (size == -1 or size >= 1) for size in rest)
    if not readable or not (first == -1 or _is_batch_size(first)):
        raise refusal(
            step,
            "mixes the examples of a batch or has sizes that cannot be read (write x.flatten(1))",
        )
    return rest


def _is_batch_size(value: object) -> bool:
    """x.size(0), x.shape[0] or x.size()[0]"""
    if not isinstance(value, fx.Node):
        return False
    if value.op == "call_method" and value.target == "size":
        return value.args[1:] == (0,) or dict(value.kwargs) == {"dim": 0}
    sizes = value.args[0] if value.target is operator.getitem and value.args[1] == 0 else None
    if not isinstance(sizes, fx.Node):
        return False
    return sizes.target == "size" or (sizes.target is getattr and sizes.args[1] == "shape")
