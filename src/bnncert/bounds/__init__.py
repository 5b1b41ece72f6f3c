"""Bounds: lower bounds of output rows over weight boxes and input regions, with one signature."""

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from bnncert.bounds import interval, linear, linear_forward
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.specification import Region

Bound: TypeAlias = Callable[[Network, Box, Region, Tensor, Tensor], Tensor]

BOUNDS: dict[str, Bound] = {
    "lbp": linear.row_bounds,
    "lbp-forward": linear_forward.row_bounds,
    "ibp": interval.row_bounds,
}
