"""Zonotopes through the layers before the first random one, as far as they are worth it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bnncert.bounds.neurons import rows_cost
from bnncert.bounds.zonotopes import Reading, Zonotope, image_zonotope, input_zonotope
from bnncert.concentration.functional import Functional, Trace
from bnncert.concentration.noise import Parts
from bnncert.model.specification import Region

# Times that zonotopes save the rows of a layer: in layers to come, and in checking. A CPU works on
# rows of parts of an image faster than it moves their many directions.
AHEAD = {"cpu": 1, "cuda": 8}


class Forward:
    """Zonotopes of the nodes before the first random layer, input by input: each has its own as
    soon as, and as far as, they are asked for, whatever the others of its batch do."""

    def __init__(self, region: Region, fits: bool = True) -> None:
        self._fits = fits  # what all of them take
        self._each = [OneForward(region[i : i + 1]) for i in range(len(region))]
        self._device = region.center.device

    @property
    def used(self) -> Tensor:
        """By which inputs [B]."""
        return torch.tensor([bool(one.done) for one in self._each], device=self._device)

    def functional(self, traced: Trace, parts: Parts, chosen: Tensor) -> Functional | None:
        """Of what the last step gives: boxes, which cannot fail, of the inputs for which rows of
        the chosen neurons [B, n] would cost more; of the others it is said that nothing is
        known."""
        if not self._fits:
            return None
        counts = chosen.sum(1).tolist()
        worth = [i for i, one in enumerate(self._each) if one.is_worth(traced, counts[i])]
        if not worth:
            return None
        ends = traced.region.center.new_full((len(chosen), 2 * chosen.shape[1]), -math.inf)
        for i in worth:
            ends[i] = self._each[i].ends(traced[i : i + 1], parts)
        return Functional(ends, torch.zeros_like(ends))


class OneForward:
    """Of one input."""

    def __init__(self, region: Region) -> None:
        self.done = 0  # layers
        self._region = region
        self._held: dict[int, Zonotope] = {}
        self._symbols = 0

    def is_worth(self, traced: Trace, count: int) -> bool:
        """Whether rows of so many neurons cost more in the end than zonotopes up to them."""
        network = traced.network
        node = len(traced.steps)
        device = traced.region.center.device
        new = sum(map(math.prod, network.shapes[self.done + 1 : node + 1]))
        price = (self._symbols or math.prod(network.shapes[0])) * new
        return AHEAD[device.type] * rows_cost(network, node, count, device) > price

    def ends(self, traced: Trace, parts: Parts) -> Tensor:
        if not self._held:
            self._take(0, input_zonotope(self._region))
        for k in range(self.done, len(traced.steps)):
            self._advance(traced, parts, k)
        self.done = len(traced.steps)
        box = self._held[len(traced.steps)].box
        return torch.cat([box.lower.flatten(), -box.upper.flatten()])

    def _advance(self, traced: Trace, parts: Parts, k: int) -> None:
        network = traced.network
        nodes = network.reads[k]
        held = [self._held[node] for node in nodes]
        reading = Reading(held, traced.boxes[nodes[0]], self._symbols)
        self._take(k + 1, image_zonotope(network.layers[k], parts[k][0], reading))
        for node in {*nodes}:
            if network.readers[node][-1] == k:
                del self._held[node]  # nobody reads it any more

    def _take(self, node: int, zonotope: Zonotope) -> None:
        self._held[node] = zonotope
        self._symbols = max(self._symbols, zonotope.directions.shape[1])
