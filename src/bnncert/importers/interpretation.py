"""Nodes of a traced module, one after the other, as entries of a drawing.

It does not matter who traces: every node names a function, a method, a module or a tensor, and the
nodes it takes. What cannot be read is an error only where the output depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate

from bnncert.errors import InputError
from bnncert.importers import linear
from bnncert.importers.activations import FUNCTIONS, activation_called, activation_of, is_activation
from bnncert.importers.bayesian import bayesian
from bnncert.importers.drawing import Drawing
from bnncert.importers.modules import is_bayesian, own_parameters
from bnncert.importers.moving import MOVES, moved
from bnncert.importers.operations import (
    ATEN,
    KEEPING,
    OF_CONSTANTS,
    OPERATIONS,
    PLACED,
    why_not,
)
from bnncert.importers.values import (
    At,
    Divergence,
    Held,
    Place,
    Refusal,
    Refused,
    Sized,
    Unsized,
)

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
IMAGES = frozenset({"conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"})


class Interpreter:
    """What the nodes so far hold."""

    def __init__(self, module: nn.Module, drawing: Drawing) -> None:
        self.drawing = drawing
        self.module = module
        self.parameters = own_parameters(module)
        self.values: dict[fx.Node, Any] = {}
        self._storage: dict[fx.Node, fx.Node] = {}

    def read(self, node: fx.Node, name: str, place: Place, compute: Callable[..., Any]) -> object:
        """What a call of a function holds."""
        arguments, options = self.taken(node.args), self.taken(node.kwargs)
        inplace = name.endswith("_") and not name.startswith("__")
        name = name.rstrip("_") if inplace else name
        aten = isinstance(node.target, torch._ops.OpOverload)

        def call() -> object:
            return _called(self.drawing, name, place, compute, arguments, options, aten)

        value = _tried(place, call, arguments, options)
        inplace = inplace or options.get("inplace") is True or name in _ASSIGNING
        return self.settle(node, value, inplace, shared=name in MOVES or name in _SHARING)

    def read_module(self, node: fx.Node, module: nn.Module, place: Place) -> object:
        """What a call of a module that is not looked into holds."""
        arguments, options = self.taken(node.args), self.taken(node.kwargs)

        def call() -> object:
            return self._module(module, place, *arguments, **options)

        value = _tried(place, call, arguments, options)
        return self.settle(node, value, getattr(module, "inplace", False) is True)

    def whole(self, module: nn.Module, place: Place, x: object) -> object:
        """What the module makes of the input, if it is not looked into itself."""
        return _tried(place, lambda: self._module(module, place, x), (x,), {})

    def settle(
        self, node: fx.Node, value: object, inplace: bool = False, shared: bool = False
    ) -> object:
        """Keep the value. What was changed in place has a new one, under every name it has."""
        self.values[node] = value
        first = next(iter(node.all_input_nodes), None)
        if first is None or not (inplace or shared):
            return value
        root = self._storage.get(first, first)
        if inplace:
            self._changed(root, self.values[first], value)
        self._storage[node] = root
        return value

    def _changed(self, root: fx.Node, before: object, value: object) -> None:
        for node in (root, *(each for each, own in self._storage.items() if own is root)):
            same = self.values[node] is before or self.values[node] == before
            self.values[node] = value if same else Refused(InputError(
                f"{node.name} is changed in place through another view of it; "
                "change nothing in place"
            ), elsewhere=True)

    def taken(self, arguments: Any) -> Any:
        """Arguments with what their nodes hold."""
        found = map_aggregate(
            arguments, lambda each: self.value(each) if isinstance(each, fx.Node) else each
        )
        return dict(found) if isinstance(found, dict) else found

    def value(self, node: fx.Node) -> object:
        if node not in self.values and node.op == "get_attr":
            name = str(node.target)
            self.values[node] = self.held(name, attrgetter(name)(self.module))
        return self.values[node]

    def held(self, name: str, value: Tensor) -> Held:
        """A parameter, or what else the module keeps."""
        named = name if name in self.parameters else None
        return Held(self.drawing.taken(value), named, frozenset({named} if named else ()))

    def _module(
        self, module: nn.Module, place: Place, x: Any = None, *rest: Any, **options: Any
    ) -> object:
        if x is None:
            x = options.pop("input", None)
        if is_bayesian(module):
            # Whether it returns a divergence as well.
            asked = {*options} - {"return_kl"}
            if not isinstance(x, At | Unsized) or rest or asked:
                raise Refusal("is called with more than its input")
            return bayesian(self.drawing, x, module, place)
        if not is_activation(module) and not isinstance(module, NORMS):
            raise Refusal(why_not(type(module).__name__))
        if rest or options:
            raise Refusal("is called with more than its input")
        if isinstance(x, Unsized):
            return _unsized_module(module, place)
        if not isinstance(x, At):
            raise Refusal("does not take activations alone")
        if is_activation(module):
            return self.drawing.entrywise(activation_of(module), x)
        return self._normalised(module, place, x)

    def _normalised(self, module: nn.BatchNorm1d | nn.BatchNorm2d, place: Place, x: At) -> At:
        dimensions = (3,) if isinstance(module, nn.BatchNorm2d) else (1, 2)
        if len(x.shape) not in dimensions:
            raise Refusal(f"does not take shape {x.shape}")
        held = {
            name: None if value is None else self.held(place.named(name), value)
            for name in ("running_mean", "running_var", "weight", "bias")
            for value in [getattr(module, name)]
        }
        return linear.batch_norm(self.drawing, x, **held, eps=module.eps)


_ASSIGNING = frozenset({"iadd", "isub", "imul", "itruediv"})
_SHARING = frozenset({"contiguous", "detach", "to", "float", "double", "type_as", "cpu", "cuda",
                      "dropout", "dropout1d", "dropout2d", "data"})  # fmt: skip


def _tried(
    place: Place, call: Callable[[], object], arguments: Any, options: Mapping[str, Any]
) -> object:
    """What is called, or why it is refused, which may be because of what it takes."""
    refused = found_in(Refused, arguments, options)
    if refused:
        return replace(refused[0], instead=None)
    try:
        return call()
    except Refusal as error:
        return Refused(InputError(f"{place} {error}"), elsewhere=error.elsewhere)
    except InputError as error:
        return Refused(InputError(f"{place} does not fit: {error}"))


def _called(
    drawing: Drawing,
    name: str,
    place: Place,
    compute: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    aten: bool,
) -> object:
    """The value of a function of values of which none is refused."""
    if name == "getitem" and isinstance(arguments[0], tuple):
        return arguments[0][arguments[1]]
    if name == "getitem" and isinstance(arguments[0], At) and arguments[0].paired:
        own = At(arguments[0].node, arguments[0].shape)
        if arguments[1] in (0, 1):
            return Divergence() if arguments[1] == 1 else own
    activations = found_in(At, arguments, options)
    if found_in(Unsized, arguments, options):
        return _unsized(name, place, arguments, options)
    if found_in(Divergence, arguments, options):
        if activations:
            raise Refusal("mixes activations with a divergence")
        return Divergence()
    if not activations:
        return _constant(drawing, name, compute, arguments, options)
    for called in ("input", "tensors", "other"):
        arguments += (options.pop(called),) if called in options else ()
    if not arguments:
        raise Refusal(why_not(name))
    x, *rest = arguments
    if name in MOVES:
        return _rearranged(drawing, compute, x, rest, options)
    if name in FUNCTIONS and isinstance(x, At):
        return drawing.entrywise(activation_called(name, *rest, **options), x)
    options.pop("inplace", None)
    operation = ATEN.get(name) if aten else None
    operation = operation or OPERATIONS.get(name)
    before: tuple[object, ...] = (drawing,)
    if operation is None and name in PLACED:
        operation, before = PLACED[name], (drawing, place)
    if operation is None:
        raise Refusal(why_not(name))
    if not isinstance(x, At) and name not in _ANY_FIRST:
        raise Refusal("of something else than activations is not supported")
    try:
        return operation(*before, x, *rest, **options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise Refusal(f"has arguments that cannot be read ({error})") from error


# The first argument may be a constant, or a list.
_ANY_FIRST = frozenset({"add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide",
                        "true_divide", "truediv", "cat", "concat", "concatenate", "stack"})  # fmt: skip


def _rearranged(
    drawing: Drawing, compute: Callable[..., Any], x: Any, rest: Any, options: Mapping[str, Any]
) -> object:
    if not isinstance(x, At) or found_in(At, rest, options):
        raise Refusal("by an activation is not supported")
    plain, named = (_plain(each) for each in (rest, options))
    return moved(drawing, lambda numbers: compute(numbers, *plain, **named), x)


def _constant(
    drawing: Drawing, name: str, compute: Callable[..., Any], arguments: Any, options: Any
) -> object:
    """Arithmetic of constants, done once."""
    held = found_in(Held, arguments, options)
    made_of = frozenset(name for each in held for name in each.made_of)
    if held and name in _COPYING:
        return held[0]
    if name not in OF_CONSTANTS and name not in MOVES:
        if made_of:
            raise Refusal(
                f"makes a weight of others ({', '.join(sorted(made_of))}); "
                "remove weight or spectral normalisation, or pruning"
            )
        raise Refusal(why_not(name))
    found = compute(*_plain(arguments), **_plain(options))
    return map_aggregate(
        found, lambda each: Held(each, made_of=made_of) if isinstance(each, Tensor) else each
    )


_COPYING = frozenset({"contiguous", "data", "clone", "detach", "float", "double", "to", "type_as",
                      "_to_copy", "alias", "lift_fresh_copy"})  # fmt: skip


def _plain(values: Any) -> Any:
    """With tensors in the place of what holds them."""
    found = map_aggregate(values, lambda each: each.value if isinstance(each, Held) else each)
    return dict(found) if isinstance(found, dict) else found


def found_in(kind: type, *values: Any) -> list[Any]:
    """All values of a kind, however deep in lists and tuples."""
    found: list[Any] = []
    map_aggregate(values, lambda each: found.append(each) if isinstance(each, kind) else None)
    return found


def _unsized(
    name: str, place: Place, arguments: tuple[Any, ...], options: Mapping[str, Any]
) -> Unsized:
    """Of an input without a shape: the shape, if this tells it."""
    if name in ("linear", "conv1d", "conv2d"):
        weight = found_in(Held, arguments, options)
        if weight:
            raise linear.first_shape(str(place), tuple(weight[0].value.shape))
    if name in IMAGES:
        raise InputError(f"{place} comes first: give input_shape=(channels, height, width)")
    if name in MOVES and name not in KEEPING:
        raise needs_shape(str(place))
    return Unsized()


def _unsized_module(module: nn.Module, place: Place) -> Unsized:
    if isinstance(module, nn.BatchNorm1d):
        raise Sized((module.num_features,))
    if isinstance(module, nn.BatchNorm2d):
        raise InputError(f"{place} comes first: give input_shape=(channels, height, width)")
    return Unsized()


def needs_shape(place: str) -> InputError:
    return InputError(f"{place} depends on the shape of the input; give input_shape=...")
