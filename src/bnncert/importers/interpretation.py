"""Nodes of a traced module, one after the other, as entries of a drawing.

It does not matter who traces: every node names a function, a method, a module or a tensor, and the
nodes it takes. What cannot be read is an error only where the output depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

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
    ANY_FIRST,
    ASSIGNING,
    ATEN,
    COPYING,
    IMAGES,
    KEEPING,
    OF_CONSTANTS,
    OPERATIONS,
    PLACED,
    SHARING,
    check_exact,
    why_not,
)
from bnncert.importers.values import (
    At,
    Divergence,
    FirstSizeError,
    Held,
    NeedsShapeError,
    Place,
    Refused,
    UnreadableError,
    Unsized,
)

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@dataclass(frozen=True, eq=False)
class Call:
    """A function of torch's, what it is called with, and what computes it.

    aten: it is an operator of ATen, whose arguments are not always those of the function.
    """

    name: str
    place: Place
    compute: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    aten: bool = False

    def found(self, kind: type) -> list[Any]:
        return found_in(kind, self.arguments, self.options)


class Interpreter:
    """What the nodes so far hold."""

    def __init__(self, module: nn.Module, drawing: Drawing) -> None:
        self.drawing = drawing
        self.module = module
        self.parameters = own_parameters(module)
        self.values: dict[fx.Node, Any] = {}
        self._storage: dict[fx.Node, fx.Node] = {}

    def read(
        self,
        node: fx.Node,
        name: str,
        place: Place,
        compute: Callable[..., Any],
        aten: bool = False,
    ) -> None:
        """Keep what a call of a function holds."""
        inplace = name.endswith("_") and not name.startswith("__")
        name = name.rstrip("_") if inplace else name
        arguments, options = self.taken(node.args), self.taken(node.kwargs)
        last = arguments[-1:] == (True,) and (name in FUNCTIONS or name in PLACED)
        inplace |= last or options.pop("inplace", False) is True or name in ASSIGNING
        if inplace:
            arguments = _mapped(arguments, _copied)
        call = Call(name, place, compute, arguments, options, aten)
        value = _tried(place, lambda: called(self.drawing, call), arguments, options)
        if inplace and self._is_kept(node):
            value = Refused(InputError(f"{place} changes what the module keeps"))
        self._settle(node, value, inplace, shared=name in MOVES or name in SHARING)

    def read_module(self, node: fx.Node, module: nn.Module, place: Place) -> None:
        """Keep what a call of a module that is not looked into holds."""
        arguments, options = self.taken(node.args), self.taken(node.kwargs)

        def call() -> object:
            return self._module(module, place, *arguments, **options)

        value = _tried(place, call, arguments, options)
        self._settle(node, value, getattr(module, "inplace", False) is True)

    def whole(self, module: nn.Module, place: Place, x: object) -> object:
        """What the module makes of the input, if it is not looked into itself."""
        return _tried(place, lambda: self._module(module, place, x), (x,), {})

    def taken(self, arguments: Any) -> Any:
        """Arguments with what their nodes hold."""
        return _mapped(
            arguments, lambda each: self.value(each) if isinstance(each, fx.Node) else each
        )

    def value(self, node: fx.Node) -> Any:
        if node not in self.values and node.op == "get_attr":
            name = str(node.target)
            self.values[node] = self.held(name, attrgetter(name)(self.module))
        return self.values[node]

    def held(self, name: str, value: Tensor) -> Held:
        """A parameter, or what else the module keeps."""
        named = name if name in self.parameters else None
        # What gradients reach and is no parameter was made of some before it was traced.
        used = {name} if named or value.requires_grad else ()
        return Held(self.drawing.taken(value), named, frozenset(used))

    def _settle(
        self, node: fx.Node, value: object, inplace: bool = False, shared: bool = False
    ) -> None:
        """Keep the value. What was changed in place has a new one, under every name it has."""
        self.values[node] = value
        first = next(iter(node.all_input_nodes), None)
        if first is None or not (inplace or shared):
            return
        root = self._storage.get(first, first)
        if inplace:
            self._change(root, self.values[first], value)
        self._storage[node] = root

    def _is_kept(self, node: fx.Node) -> bool:
        """Whether a change in place lasts until the next call: then no two need be alike."""
        first = next(iter(node.all_input_nodes), None)
        return first is not None and self._storage.get(first, first).op == "get_attr"

    def _change(self, root: fx.Node, before: object, value: object) -> None:
        """Of all that shares the storage of `root`; other views of it are lost."""
        lost = InputError(
            f"{root.name} is changed in place through a view of it; change nothing in place"
        )
        for node in (root, *(each for each, own in self._storage.items() if own is root)):
            same = self.values[node] is before or self.values[node] == before
            self.values[node] = value if same else Refused(lost, elsewhere=True)

    def _module(
        self, module: nn.Module, place: Place, x: Any = None, *rest: Any, **options: Any
    ) -> object:
        x = options.pop("input", None) if x is None else x
        alone = is_bayesian(module) and options.pop("return_kl", True) is False
        if not is_bayesian(module) and not is_activation(module) and not isinstance(module, NORMS):
            raise UnreadableError(why_not(type(module).__name__))
        if not isinstance(x, At | Unsized) or rest or options:
            raise UnreadableError("is called with something else than activations alone")
        if is_bayesian(module):
            found = bayesian(self.drawing, x, module, place)
            return replace(found, paired=not alone)
        if isinstance(x, Unsized):
            return _unsized_module(module, place)
        if isinstance(module, NORMS):
            return self._normalised(module, place, x)
        return self.drawing.entrywise(activation_of(module, x.shape), x)

    def _normalised(self, module: nn.BatchNorm1d | nn.BatchNorm2d, place: Place, x: At) -> At:
        dimensions = (3,) if isinstance(module, nn.BatchNorm2d) else (1, 2)
        if module.training:
            raise UnreadableError("is set to training, not evaluation")
        if len(x.shape) not in dimensions:
            raise UnreadableError(f"does not take shape {x.shape}")
        mean, variance, weight, bias = (
            None if value is None else self.held(place.named(name), value)
            for name in ("running_mean", "running_var", "weight", "bias")
            for value in [getattr(module, name)]
        )
        return linear.batch_norm(self.drawing, x, mean, variance, weight, bias, eps=module.eps)


def _tried(
    place: Place, call: Callable[[], object], arguments: Any, options: dict[str, Any]
) -> object:
    """What is called, or why it is refused, which may be because of what it takes."""
    refused = found_in(Refused, arguments, options)
    if refused:
        return replace(refused[0], instead=None)
    try:
        return call()
    except NeedsShapeError:
        raise
    except UnreadableError as error:
        return Refused(InputError(f"{place} {error}"), elsewhere=error.elsewhere)
    except InputError as error:
        return Refused(InputError(f"{place} does not fit: {error}"))


def called(drawing: Drawing, call: Call) -> object:
    """The value of a call with values of which none is refused."""
    if call.name == "getitem" and isinstance(call.arguments[0], tuple):
        return call.arguments[0][call.arguments[1]]
    if call.name == "getitem" and getattr(call.arguments[0], "paired", False):
        return _one_of_pair(drawing, call)
    if call.found(Unsized):
        return _unsized(call)
    if call.found(Divergence):
        if call.found(At):
            raise UnreadableError("mixes activations with a divergence")
        return Divergence()
    return _operated(drawing, call) if call.found(At) else _constant(call)


def _one_of_pair(drawing: Drawing, call: Call) -> object:
    """A Bayesian layer's output, its divergence, or a part of the output alone."""
    output, index = call.arguments
    own = replace(output, paired=False)
    if type(index) is int and index in (0, 1):
        return own if index == 0 else Divergence()
    return called(drawing, replace(call, arguments=(own, index)))


def _operated(drawing: Drawing, call: Call) -> object:
    """What is made of activations."""
    name = call.name
    options = dict(call.options)
    named = [options.pop(each) for each in ("input", "tensors", "other") if each in options]
    x, *rest = (*call.arguments, *named)
    if not isinstance(x, At) and name not in ANY_FIRST:
        raise UnreadableError(why_not(name))
    if name in MOVES:
        if found_in(At, rest, options):
            raise UnreadableError("by an activation is not supported")
        plain, plainly = _plain(rest), _plain(options)
        return moved(drawing, lambda numbers: call.compute(numbers, *plain, **plainly), x)
    if name in FUNCTIONS:
        return drawing.entrywise(activation_called(name, x.shape, *rest, **options), x)
    operation = (ATEN.get(name) if call.aten else None) or OPERATIONS.get(name, PLACED.get(name))
    if operation is None:
        raise UnreadableError(why_not(name))
    where = (call.place,) if name in PLACED else ()
    try:
        return operation(drawing, *where, x, *rest, **options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise UnreadableError(f"has arguments that cannot be read ({error})") from error


def _constant(call: Call) -> object:
    """Arithmetic of constants, done once."""
    held = call.found(Held)
    made_of = frozenset(name for each in held for name in each.made_of)
    if held and call.name in COPYING:
        check_exact(call.arguments, call.options)
        return held[0] if held[0].value.is_floating_point() else _computed(call, made_of)
    if call.name not in OF_CONSTANTS and call.name not in MOVES:
        if made_of:
            raise UnreadableError(
                f"makes a weight of others ({', '.join(sorted(made_of))}); "
                "remove weight or spectral normalisation, or pruning"
            )
        raise UnreadableError(why_not(call.name))
    return _computed(call, made_of)


def _computed(call: Call, made_of: frozenset[str]) -> object:
    """By torch itself."""
    found = call.compute(*_plain(call.arguments), **_plain(call.options))
    return _mapped(
        found, lambda each: Held(each, made_of=made_of) if isinstance(each, Tensor) else each
    )


def _copied(value: object) -> object:
    """For a change in place, which the module must not see."""
    return replace(value, value=value.value.clone()) if isinstance(value, Held) else value


def _mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    """With the function of every value, however deep in lists and tuples."""
    found: Any = map_aggregate(values, function)
    return dict(found) if isinstance(found, dict) else found


def _plain(values: Any) -> Any:
    """With tensors in the place of what holds them."""
    return _mapped(values, lambda each: each.value if isinstance(each, Held) else each)


def found_in(kind: type, *values: Any) -> list[Any]:
    """All values of a kind, however deep in lists and tuples."""
    found: list[Any] = []
    _mapped(values, lambda each: found.append(each) if isinstance(each, kind) else None)
    return found


# --------------------------------------------------------------------------- inputs without a shape


def _unsized(call: Call) -> Unsized:
    """The shape, if this tells it."""
    weight = call.found(Held)
    if call.name in ("linear", "conv1d", "conv2d") and weight:
        raise linear.first_shape(str(call.place), tuple(weight[0].value.shape))
    if call.name in IMAGES:
        raise _image_first(call.place)
    if call.name in MOVES and call.name not in KEEPING:
        raise needs_shape(call.place)
    return Unsized()


def _unsized_module(module: nn.Module, place: Place) -> Unsized:
    if isinstance(module, nn.BatchNorm1d):
        raise FirstSizeError((module.num_features,))
    if isinstance(module, nn.BatchNorm2d):
        raise _image_first(place)
    return Unsized()


def _image_first(place: Place) -> NeedsShapeError:
    return NeedsShapeError(f"{place} comes first: give input_shape=(channels, height, width)")


def needs_shape(place: Place) -> NeedsShapeError:
    return NeedsShapeError(f"{place} depends on the shape of the input; give input_shape=...")
