"""Hidden neurons: which of them get rows of their own, and those rows, tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.bounds.windows import Crop, Window, crop_of
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import LINEAR, SUMS, Layer, MaxPool2d
from bnncert.model.moves import MOVES
from bnncert.model.network import Network
from bnncert.numerics.batching import slices

# What a walk costs however few rows it has, in numbers that could be worked on in the same time.
OVERHEAD = {"cpu": 1e5, "cuda": 2e7}
SIDES = (1, 2, 3, 4, 6, 8, 12, 16)  # of tiles that are tried


def has_rows(network: Network, k: int) -> bool:
    """Whether layer k gives sums whose intervals may have rows of their own: not outputs, nor terms
    of one other sum.

    Where a term is read twice, its rows add up, and their rounding meets its box.
    """
    readers = network.reading(k + 1)
    needed = len(readers) > 1 or any(not isinstance(reader, SUMS) for reader in readers)
    return isinstance(network.layers[k], (*LINEAR, *SUMS)) and needed


def worth_rows(network: Network, k: int, z: Box, random: Sequence[bool]) -> Tensor | None:
    """Which neurons [B, n] of layer k get rows of their own: all (None) of vectors, of images those
    that something needs to know closely.

    A piecewise linear activation needs to know where neurons whose sign is open lie; other
    activations, pools and layers with random weights all of them; certain linear layers none, since
    rows pass through them.
    """
    if len(z.shape) == 2:
        return None
    users = [layer for layer, uncertain in _users(network, k + 1, random) if uncertain]
    if all(isinstance(user, ACTIVATIONS) and user.traits.bent for user in users):
        unsettled = (z.lower < 0) & (z.upper > 0)
        return (unsettled & bool(users)).flatten(1)
    return torch.ones_like(z.lower, dtype=torch.bool).flatten(1)


def _users(network: Network, node: int, random: Sequence[bool]) -> Iterator[tuple[Layer, bool]]:
    """The layers that read a node, directly or moved, and whether its interval matters to them."""
    for k in network.readers[node]:
        layer = network.layers[k]
        if isinstance(layer, MOVES):
            yield from _users(network, k + 1, random)
        else:
            yield layer, random[k] or isinstance(layer, (MaxPool2d, *ACTIVATIONS))


@dataclass(frozen=True, eq=False)
class Tile:
    """Neurons [n] of a node, numbered as its flat entries, of one shape together, and what they
    depend on, if that is less than everything."""

    neurons: Tensor
    shape: tuple[int, ...]
    crop: Crop | None


def tiles(network: Network, node: int, rows: int, device: torch.device) -> list[Tile]:
    """A node's neurons in tiles of the size that costs least for so many rows."""
    shape = network.shapes[node]
    _, found = _cheapest(network, node, rows, device)
    if found is None:
        return [Tile(torch.arange(math.prod(shape), device=device), shape, None)]
    return [_tile(shape, *each, device) for each in found]


def rows_cost(network: Network, node: int, rows: int, device: torch.device) -> float:
    """Of rows of so many of a node's neurons, in numbers to be worked on."""
    return _cheapest(network, node, rows, device)[0]


def _cheapest(
    network: Network, node: int, rows: int, device: torch.device
) -> tuple[float, list[tuple[Window, Crop]] | None]:
    """The least cost, and the tiles that it takes, None for none."""
    overhead = OVERHEAD[device.type]
    shape = network.shapes[node]
    least = overhead + rows * sum(map(math.prod, network.shapes[: node + 1]))
    best = None
    for side in SIDES:
        if len(shape) != 3 or side >= max(shape[1:]):
            break
        found = _tiles(network, node, side)
        if found is None:
            break
        work = sum(_work(network, crop) for _, crop in found) / len(found)
        cost = len(found) * overhead + rows * work
        if cost < least:
            least = cost
            best = found
    return least, best


def _tiles(network: Network, node: int, side: int) -> list[tuple[Window, Crop]] | None:
    _, height, width = network.shapes[node]
    found = []
    for top in range(0, height, side):
        for left in range(0, width, side):
            window = Window(top, min(top + side, height), left, min(left + side, width))
            crop = crop_of(network, node, window)
            if crop is None:
                return None
            found.append((window, crop))
    return found


def _work(network: Network, crop: Crop) -> int:
    """Numbers that a row has on its way."""
    channels = {node: network.shapes[node][0] for node in crop.nodes}
    return sum(channels[node] * math.prod(window.size) for node, window in crop.nodes.items())


def _tile(shape: tuple[int, ...], window: Window, crop: Crop, device: torch.device) -> Tile:
    numbers = torch.arange(math.prod(shape), device=device).reshape(shape)
    return Tile(window.of(numbers).flatten(), (shape[0], *window.size), crop)


def signed_rows(
    chosen: Tensor | None, tile: Tile, width: int, bytes_each: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows e_i, then -e_i [B or 1, 2R, *shape] of those neurons of a tile that are chosen [B, n]
    (None: all), in parts that fit; with the numbers of the neurons, to which the negative ones add
    `width`."""
    device = tile.neurons.device
    count = len(tile.neurons) if chosen is None else int(chosen[:, tile.neurons].sum(1).max())
    if chosen is None:
        order = torch.arange(count, device=device).unsqueeze(0)
    else:  # The chosen ones first; where they are fewer, others too.
        order = chosen[:, tile.neurons].to(torch.int8).topk(count, 1).indices
    for part in slices(count, 2 * bytes_each, device):
        index = order[:, part]
        rows = torch.zeros(*index.shape, len(tile.neurons), dtype=torch.float64, device=device)
        units = rows.scatter(2, index.unsqueeze(-1), 1.0).reshape(*index.shape, *tile.shape)
        names = tile.neurons[index]
        yield torch.cat([names, names + width], 1), torch.cat([units, -units], 1)


def entries(network: Network, tile: Tile, node: int) -> int:
    """The most numbers that a row of a tile has on one node."""
    if tile.crop is None:
        return widest(network, node)
    return max(
        network.shapes[before][0] * math.prod(window.size)
        for before, window in tile.crop.nodes.items()
    )


def widest(network: Network, count: int) -> int:
    """The most entries that a row has on its way back from what the first `count` layers give."""
    return max(math.prod(shape) for shape in network.shapes[: count + 1])
