"""torch.fx, with proxies that know their shape: a forward may ask for it, and decide by it.

Every node is read as soon as it is made, so that a shape is that of what was read.
"""

from __future__ import annotations

import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn

from bnncert.errors import InputError
from bnncert.importers.activations import is_activation
from bnncert.importers.interpretation import NORMS, Interpreter, needs_shape
from bnncert.importers.modules import is_bayesian, is_standard, is_torchs
from bnncert.importers.operations import SPELLED
from bnncert.importers.values import BATCH, At, Held, Place, Refused, Unsized

# Modules of torch's that are looked into: their forwards are a function of torch's each.
OPEN = (
    nn.Sequential, nn.Identity, nn.Linear, nn.Conv1d, nn.Conv2d, nn.MaxPool1d, nn.MaxPool2d,
    nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d,
    nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten, nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d,
    nn.ConstantPad2d, nn.ChannelShuffle, nn.PixelShuffle, nn.PixelUnshuffle, nn.Softmax,
    nn.LogSoftmax, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
OURS, TORCHS = (str(Path(inspect.getfile(each)).parent) for each in (InputError, torch))


def is_leaf(module: nn.Module) -> bool:
    """Whether tracing stops here: a Bayesian layer, or a module of torch's that is read whole, or
    not at all."""
    if is_standard(module, *OPEN) or any(type(module) is kind for kind in OPEN):
        return False
    if is_bayesian(module) or is_activation(module) or is_standard(module, *NORMS):
        return True
    return is_torchs(type(module))


def is_mixed() -> bool:
    """Whether torch rounds to half precision where it sees fit."""
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda")))


class Known(fx.Proxy):
    """A proxy of a value that was read."""

    tracer: Any  # a Tracer

    @property
    def _held(self) -> object:
        value = self.tracer.interpreter.values[self.node]
        if isinstance(value, Refused):
            raise value.error
        return value

    @property
    def shape(self) -> Any:
        value = self._held
        if isinstance(value, At):
            return torch.Size((BATCH, *value.shape))
        if isinstance(value, Held):
            return value.value.shape
        if isinstance(value, Unsized):
            return Unknown(self.tracer.place())
        return self.__getattr__("shape")

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    ndim = property(dim)
    ndimension = dim

    def numel(self) -> int:
        return int(self.shape.numel())

    nelement = numel

    @property
    def device(self) -> torch.device:
        device: torch.device = self.tracer.interpreter.drawing.like.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.tracer.dtype
        return dtype

    is_cuda = property(lambda self: self.device.type == "cuda")
    requires_grad = property(lambda _: False)

    def __len__(self) -> int:
        value = self._held
        return len(value) if isinstance(value, tuple) else self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        value = self._held
        own: Any = self
        if isinstance(value, tuple):
            return iter([own[i] for i in range(len(value))])
        if isinstance(value, At) and value.paired:
            return iter([own[0], own[1]])
        if isinstance(value, At):
            raise InputError(f"{self.tracer.place()} takes the examples of a batch one by one")
        return super().__iter__()

    def __bool__(self) -> bool:
        value = self.tracer.interpreter.values[self.node]
        if isinstance(value, Held) and not value.made_of:
            return bool(value.value)
        raise InputError(
            f"{self.tracer.place()} decides by values of inputs or weights: it is not one network; "
            "move checks out of the forward"
        )

    def __setitem__(self, _: object, __: object) -> None:
        place = self.tracer.place("setitem")
        raise InputError(f"{place} is not supported; put the parts together with torch.cat")

    def _changed_in_place(self, function: Callable[..., Any], other: object) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    def __iadd__(self, other: object) -> Any:
        return self._changed_in_place(operator.iadd, other)

    def __isub__(self, other: object) -> Any:
        return self._changed_in_place(operator.isub, other)

    def __imul__(self, other: object) -> Any:
        return self._changed_in_place(operator.imul, other)

    def __itruediv__(self, other: object) -> Any:
        return self._changed_in_place(operator.itruediv, other)


class Unknown:
    """The shape of an input whose shape is not known: the size of a batch, and no more."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def __getitem__(self, dim: object) -> int:
        if dim != 0:
            raise needs_shape(self.place)
        return BATCH

    def __len__(self) -> int:
        raise needs_shape(self.place)

    def __iter__(self) -> Iterator[int]:
        raise needs_shape(self.place)

    def numel(self) -> int:
        raise needs_shape(self.place)


class Tracer(fx.Tracer):
    """Hands every node to an interpreter."""

    def __init__(self, interpreter: Interpreter, x: At | Unsized, dtype: torch.dtype) -> None:
        super().__init__()
        self.interpreter = interpreter
        self.input: At | Unsized | None = x
        self.dtype = dtype
        self.reading = False
        self.mixed = is_mixed()
        self.loose: dict[str, nn.Module] = {}
        tensors = (*interpreter.module.named_parameters(), *interpreter.module.named_buffers())
        self.names = {id(value): name for name, value in tensors}

    def is_leaf_module(self, m: nn.Module, _: str) -> bool:
        return is_leaf(m)

    def path_of_module(self, mod: nn.Module) -> str:
        """Modules that are made in the forward have no path, and must have no weights."""
        try:
            return super().path_of_module(mod)
        except NameError:
            name = type(mod).__name__
            if next(mod.parameters(), None) is not None:
                raise InputError(
                    f"{self.place()} uses a {name} that is none of its submodules; "
                    "make it one (assign it to self, or use nn.ModuleList)"
                ) from None
            self.loose[name] = mod
            return name

    def getattr(self, _: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Parameters and buffers are nodes; but not while a layer is read."""
        name = None if self.reading else self.names.get(id(attr_val))
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
        return parameter_proxy_cache[name]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        if is_mixed() != self.mixed:
            raise InputError(f"{self.place()} turns autocast on or off; compute in one precision")
        self.reading = True
        try:
            self._read(node)
        finally:
            self.reading = False
        return Known(node, self)

    def place(self, name: str = "") -> Place:
        """Where the forward is. Functions that torch's own modules call have no name."""
        path, kind = next(reversed(self.module_stack.values()), ("", type(self.root)))
        own = is_torchs(kind) and issubclass(kind, OPEN) and not issubclass(kind, nn.Sequential)
        return Place(path, kind.__name__, "" if own else SPELLED.get(name, name), _line())

    def _read(self, node: fx.Node) -> None:
        interpreter = self.interpreter
        target: Any = node.target
        if node.op == "placeholder":
            interpreter.values[node] = self.input or Refused(
                InputError(f"{type(self.root).__name__} takes more than one input; wrap it")
            )
            self.input = None
        elif node.op == "get_attr":
            interpreter.value(node)
        elif node.op == "call_module":
            found = self.loose.get(target)
            module = self.root.get_submodule(target) if found is None else found
            interpreter.read_module(node, module, self.place())
        elif node.op == "call_method":
            place = self.place(target)
            interpreter.read(
                node,
                target,
                place,
                lambda x, *rest, **options: getattr(x, target)(*rest, **options),
            )
        elif node.op == "call_function":
            name, compute = _function(node)
            interpreter.read(node, name, self.place(name), compute)


def traced(module: nn.Module, interpreter: Interpreter, x: At | Unsized) -> object:
    """What the forward returns, with what was read in the place of tensors."""
    parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    first = next(module.parameters(), None)
    dtype = torch.get_default_dtype() if first is None else first.dtype
    tracer = Tracer(interpreter, x, dtype)
    graph = tracer.trace(module, concrete_args=defaults or None)
    returned = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    if isinstance(returned, fx.Node) and inspect.isclass(returned.target):  # a tuple with names
        fields = interpreter.taken(returned.args), interpreter.taken(returned.kwargs)
        return returned.target(*fields[0], **fields[1])
    return interpreter.taken(returned)


def _function(node: fx.Node) -> tuple[str, Callable[..., Any]]:
    """The name of a function of torch's, and the function without what a node gives it else."""
    target: Any = node.target
    if target is getattr and isinstance(node.args[1], str):
        return node.args[1], getattr
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__name__", str(target))
    known = module.partition(".")[0] in ("torch", "_operator", "")
    return (name if known else f"{module}.{name}"), target


def _line() -> str:
    """The user's line on the way here: neither ours nor torch's, and inside of our tracing."""
    frame: types.FrameType | None = sys._getframe()
    outside = False
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(OURS):
            if outside:
                return ""
        else:
            outside = True
            if not name.startswith((TORCHS, "<eval_with_key>")):
                return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
