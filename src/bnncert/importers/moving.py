"""Operations that only rearrange entries, found out by having them rearrange the entries' numbers.

Whatever `x[:, 1:]`, `x.transpose(1, 2)` or `x.view(-1, 4)` mean, each does to 0, 1, 2, ... what it
does to values; so nothing is read of their arguments. What comes out is a view, a Permute or Takes,
the same for every example of the batch, or refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor

from bnncert.importers.drawing import Drawing
from bnncert.importers.values import BATCH, At, UnreadableError
from bnncert.model.layers import Shape
from bnncert.model.moves import Permute, Take

# Functions, methods, attributes and operators of ATen.
MOVES = frozenset((
    "T", "channel_shuffle", "chunk", "diagonal", "expand", "flatten", "flip", "getitem",
    "hsplit", "index", "index_select", "mT", "moveaxis", "movedim", "narrow", "permute",
    "pixel_shuffle", "pixel_unshuffle", "ravel", "reshape", "roll", "rot90", "select", "slice",
    "split", "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split",
    "transpose", "unbind", "unflatten", "unsafe_chunk", "unsafe_split", "unsqueeze", "view",
    "vsplit", "dsplit",
))  # fmt: skip
MOST_DIMENSIONS = 5  # whose orders are tried out
Numbers = Callable[[Tensor], object]


def moved(drawing: Drawing, operation: Numbers, x: At) -> At | tuple[At, ...]:
    """What the operation makes of x: one value, or a tuple of them."""
    entries = math.prod(x.shape)
    numbers = torch.arange(BATCH * entries, dtype=torch.float64)
    try:
        found = operation(numbers.reshape(BATCH, *x.shape))
    except Exception as error:  # torch's own words for a shape or an index that does not fit
        reason = str(error).splitlines()[0]
        raise UnreadableError(f"does not fit shape {x.shape}: {reason}") from error
    if isinstance(found, tuple | list):
        return tuple(_placed(drawing, x, _one_example(part, entries)) for part in found)
    return _placed(drawing, x, _one_example(found, entries))


def _one_example(found: object, entries: int) -> Tensor:
    """The numbers that the first example has, if every other has its own in the same places."""
    if not isinstance(found, Tensor) or found.dim() == 0 or len(found) != BATCH:
        raise UnreadableError(
            "mixes the examples of a batch or takes some of them (write x.flatten(1))"
        )
    first = found[0]
    offsets = entries * torch.arange(BATCH).reshape(-1, *[1] * first.dim())
    if not torch.equal(found, first + offsets):
        raise UnreadableError("mixes the examples of a batch (write x.flatten(1))")
    return first.long()


def _placed(drawing: Drawing, x: At, places: Tensor) -> At:
    """Layers that put entry places[i] into place i."""
    shape = tuple(places.shape)
    numbers = torch.arange(math.prod(x.shape)).reshape(x.shape)
    if not places.numel():
        raise UnreadableError("leaves nothing")
    if torch.equal(places.flatten(), numbers.flatten()):
        return drawing.viewed(x, shape)
    order = _order(numbers, places)
    if order is not None:
        return drawing.append(Permute(order), x)
    taken = _taken(numbers, places)
    if taken is None and len(set(places.flatten().tolist())) == places.numel():
        x, taken = drawing.viewed(x, (numbers.numel(),)), [places.flatten().tolist()]
    if taken is None:
        raise UnreadableError("repeats entries")
    for axis, indices in enumerate(taken):
        if indices != list(range(x.shape[axis])):
            x = drawing.append(Take(axis, tuple(indices)), x)
    return drawing.viewed(x, shape)


def _order(numbers: Tensor, places: Tensor) -> Shape | None:
    rank = numbers.dim()
    if places.dim() != rank or rank > MOST_DIMENSIONS:
        return None
    orders = (order for order in permutations(range(rank)))
    return next((o for o in orders if torch.equal(numbers.permute(o), places)), None)


def _taken(numbers: Tensor, places: Tensor) -> list[list[int]] | None:
    """Positions in each dimension whose grid the places are, each position once."""
    grid = numbers
    found = []
    for axis, stride in enumerate(numbers.stride()):
        along = places.flatten() // stride % numbers.shape[axis]
        indices = list(dict.fromkeys(along.tolist()))
        grid = grid.index_select(axis, torch.tensor(indices))
        found.append(indices)
    return found if torch.equal(grid.flatten(), places.flatten()) else None
