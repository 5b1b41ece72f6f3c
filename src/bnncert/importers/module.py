"""The architecture of a torch module, and where in the module the parameters of the network are.

The module is traced in evaluation mode, by torch.fx, and by torch.export where that fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from bnncert.errors import InputError
from bnncert.importers.drawing import Bayesian, Drawing
from bnncert.importers.exporting import exported
from bnncert.importers.folding import Finished, finished
from bnncert.importers.interpretation import Interpreter, found_in
from bnncert.importers.modules import is_bayesian, own_parameters, undisturbed
from bnncert.importers.reading import Cast, Dropout, Pick, Reading, Source, exact
from bnncert.importers.tracing import traced
from bnncert.importers.values import At, Divergence, FirstSizeError, Held, Place, Refused, Unsized
from bnncert.model.layers import Shape
from bnncert.model.network import Network


def read(
    module: nn.Module,
    input_shape: Sequence[int] | None = None,
    dropout: bool = False,
    cast: Cast = exact,
    output: Pick = None,
) -> Reading:
    """The network that the module computes in evaluation mode.

    An `InputError` names what cannot be read. `input_shape` (without the batch) is needed only
    where no dense layer comes first. Dropouts are left out, with a warning unless `dropout` says
    that the caller puts them back. `output` says which it is of several outputs.
    """
    _check_loaded(module)
    shape = None if input_shape is None else tuple(int(size) for size in input_shape)
    drawing, value, pick = _drawn(module, shape or _first_shape(module, cast), cast, output)
    found = finished(drawing, drawing.node(value))
    sources = [part[letter] for part in found.sources for letter in "Wb" if letter in part]
    if not any(source.name for source in sources):
        raise _nothing()
    network = Network(drawing.shapes[0], found.layers, found.reads)
    _announce(found, () if dropout else found.dropouts)
    named = dict(zip(network.parameters, sources, strict=True))
    fixed = _fixed(module, sources, found.constants)
    tied = _tied(module, sources) | fixed
    return Reading(network, named, found.dropouts, cast, tied, pick, fixed)


def _check_loaded(module: nn.Module) -> None:
    for name, value in own_parameters(module).items():
        if value.is_meta:
            raise InputError(
                f"{type(module).__name__} is on the meta device, where weights have no values; "
                "load them first"
            )
        if is_lazy(value):
            raise InputError(f"{name!r} has no shape yet; run the module once on an input")


def _first_shape(module: nn.Module, cast: Cast) -> Shape:
    """The input's shape where the first layer with a size tells it."""
    try:
        returned = _computed(module, _drawing(module, (1,), cast), Unsized())
    except FirstSizeError as found:
        return found.shape
    raise next((each.error for each in found_in(Refused, returned)), _nothing())


def _nothing() -> InputError:
    return InputError(
        "the module has no Linear or Conv2d that its output depends on; there is nothing to certify"
    )


def _drawn(module: nn.Module, shape: Shape, cast: Cast, output: Pick) -> tuple[Drawing, At, Pick]:
    """The drawing, the value that the module returns in it, and which of its outputs that is."""
    refused: InputError | None = None
    for compute in (_computed, _exported):
        drawing = _drawing(module, shape, cast)
        try:
            value, pick = _output(module, compute(module, drawing, At(0, shape)), output)
        except _UntracedError as error:
            refused = refused or error.error
            continue
        if isinstance(value, Refused) and value.instead is not None:
            value = value.instead
        if isinstance(value, At):
            return drawing, value, 0 if pick is None and value.paired else pick
        refused = refused or value.error
        if not value.elsewhere:
            break
    raise refused or _nothing()


def _drawing(module: nn.Module, shape: Shape, cast: Cast) -> Drawing:
    like = next(iter(own_parameters(module).values()), torch.zeros((), dtype=torch.float64))
    return Drawing(shape, cast, like)


class _UntracedError(Exception):
    """A forward that cannot be traced in one way; another may do."""

    def __init__(self, error: InputError) -> None:
        super().__init__(error)
        self.error = error


def _computed(module: nn.Module, drawing: Drawing, x: At | Unsized) -> Any:
    """What the forward returns, read by torch.fx."""
    interpreter = Interpreter(module, drawing)
    with undisturbed(module):
        if is_bayesian(module):
            return interpreter.whole(module, Place("", type(module).__name__), x)
        try:
            return traced(module, interpreter, x)
        except (InputError, FirstSizeError):
            raise
        # The forward is the user's: what it cannot do with a symbol has no one type.
        except Exception as error:
            found = _unreadable(module, error)
            if isinstance(x, Unsized):
                raise found from error
            raise _UntracedError(found) from error


def _exported(module: nn.Module, drawing: Drawing, x: At) -> Any:
    """What the forward returns, read by torch.export, which would look into Bayesian layers."""
    if any(is_bayesian(each) for each in module.modules()):
        raise _UntracedError(_unreadable(module, RuntimeError("torch.export is for plain layers")))
    with undisturbed(module):
        try:
            return exported(module, Interpreter(module, drawing), x)
        except InputError:
            raise
        except Exception as error:
            raise _UntracedError(_unreadable(module, error)) from error


def _unreadable(module: nn.Module, error: Exception) -> InputError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return InputError(
        f"the forward of {type(module).__name__} cannot be read ({reason}); it must compute the "
        "same for all inputs of one shape (give input_shape=... if it asks for the shape)"
    )


# ------------------------------------------------------------------------------------ its output


def _output(module: nn.Module, returned: Any, output: Pick) -> tuple[Any, Pick]:
    """The value that is the network's output, and which of those returned it is."""
    several = _several(returned)
    name = type(module).__name__
    if several is None:
        if output is not None and not isinstance(returned, Unsized):
            raise InputError(f"{name} returns one output; leave output={output!r} out")
        return _value(name, returned), None
    if output is not None:
        if output not in several:
            raise InputError(
                f"{name} returns {_listed(several)}; output={output!r} is none of them"
            )
        return _value(name, several[output]), output
    candidates = [key for key, value in several.items() if not _beside(value)]
    if len(candidates) != 1 or isinstance(returned, Mapping):
        raise InputError(
            f"{name} returns {_listed(several)}; say which of them with "
            f"output={next(iter(candidates), 0)!r}"
        )
    return _value(name, several[candidates[0]]), candidates[0]


def _several(returned: Any) -> dict[Any, Any] | None:
    """Outputs by what `output` calls them."""
    if isinstance(returned, Mapping):
        return dict(returned)
    if is_dataclass(returned) and not isinstance(
        returned, At | Held | Divergence | Refused | Unsized
    ):
        return dict(vars(returned))
    if not isinstance(returned, tuple | list):
        return None
    names = getattr(returned, "_fields", ())
    return dict(enumerate(returned)) | dict(zip(names, returned, strict=False))


def _listed(several: Mapping[int | str, Any]) -> str:
    names = [key for key in several if isinstance(key, str)]
    numbers = [key for key in several if isinstance(key, int)]
    return f"outputs {', '.join(map(repr, names))}" if names else f"{len(numbers)} outputs"


def _beside(value: Any) -> bool:
    """What is no output: divergences, and what does not depend on the input."""
    if isinstance(value, Held):
        return value.value.numel() == 1
    return value is None or isinstance(value, Divergence | bool | int | float)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, At | Refused | Unsized):
        return value
    kind = "something that does not depend on its input"
    if isinstance(value, tuple | list | Mapping):
        kind = f"a {type(value).__name__} of outputs in the place of one"
    raise InputError(f"{name} returns {kind}; it must return its output, or a tuple with it")


# ------------------------------------------------------------------------------ what is announced


def _tied(module: nn.Module, sources: Sequence[Source]) -> frozenset[str]:
    """Names of tensors that stand in two places."""
    tensors = own_parameters(module)
    places = [id(tensors[source.name]) for source in sources if source.name is not None]
    twice = {key for key in places if places.count(key) > 1}
    named = (source.name for source in sources if source.name is not None)
    return frozenset(name for name in named if id(tensors[name]) in twice)


def _fixed(
    module: nn.Module, sources: Sequence[Source], constants: Sequence[str]
) -> frozenset[str]:
    """Names of tensors that stand in a layer and in a sum or product."""
    tensors = own_parameters(module)
    certain = {id(tensors[name]) for name in constants if name in tensors}
    named = (source.name for source in sources if source.name is not None)
    return frozenset(name for name in named if id(tensors[name]) in certain)


def _announce(found: Finished, left_out: Sequence[Dropout]) -> None:
    """Warn of what is read otherwise than one might expect."""
    if left_out:
        names = ", ".join(str(dropout.place) for dropout in left_out)
        _warn(
            f"{names}: left out as in evaluation; "
            "what is certified is not Monte Carlo dropout (from_dropout reads it)"
        )
    if found.constants:
        _warn(f"{', '.join(found.constants)}: in a sum or product, taken as certain")
    for each in found.bayesian:
        convention = each.convention
        if type(each.module).__module__.partition(".")[0] != convention.package:
            _warn(
                f"{each.place} is not from {convention.library} but names its weights in the same "
                f"way: it is read with {convention.formula}"
            )
        if _is_frozen(each):
            _warn(f"{each.place} is frozen; its posterior is read all the same")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _is_frozen(layer: Bayesian) -> bool:
    """Told to use one set of weights: by a flag (blitz, torch-uncertainty), by noise (torchbnn)."""
    module = layer.module
    flags = (getattr(module, "freeze", None), getattr(module, "frozen", None))
    return any(flag is True for flag in flags) or module._buffers.get("weight_eps") is not None
