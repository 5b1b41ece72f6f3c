"""Specifications: input regions, and the output rows C y + d > 0 that make a network safe on them.

One sign convention everywhere: safe iff every row is strictly positive at every input of the
region; a tie is not safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.model.arrays import Array, as_tensor, take_arrays
from bnncert.model.box import Box
from bnncert.model.norms import NORMS
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT, gamma, round_down, round_up

Clip: TypeAlias = tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class Region:
    """A batch of input regions around clean inputs `center` [B, *shape].

    `norm` names the ball of radius `eps` [B] that, intersected with the clip range, is the region,
    and `box` is its bounding box; for an explicit box `norm` is "box", `box` the region itself and
    `eps` its largest half-width.

    >>> region = ball(torch.tensor([[0.5, 0.9]]).double(), eps=0.25, clip=(0, 1))
    >>> region.norm, len(region), region.box.upper[0, 1]
    ('linf', 1, tensor(1., dtype=torch.float64))
    """

    center: Tensor
    box: Box
    norm: str
    eps: Tensor
    clip: Clip = None

    def __len__(self) -> int:
        return len(self.center)

    def __getitem__(self, index: slice | Tensor) -> Region:
        return replace(self, center=self.center[index], box=self.box[index], eps=self.eps[index])

    def to(self, device: torch.device | str) -> Region:
        return replace(
            self, center=self.center.to(device), box=self.box.to(device), eps=self.eps.to(device)
        )

    @property
    def is_box(self) -> bool:
        """Whether the region is all of `box`."""
        return self.norm in ("linf", "box")

    def inner(self) -> Box:
        """A box surely inside the region's bounding box, whichever way its ends were rounded."""
        slack = [
            16 * UNIT * (self.center.abs() + end.abs()) for end in (self.box.lower, self.box.upper)
        ]
        lower = torch.minimum(self.box.lower + slack[0], self.center)
        return Box(lower, torch.maximum(self.box.upper - slack[1], self.center))

    def minimum(self, rows: Tensor) -> Tensor:
        """A lower bound of min over x of rows·x, for rows [B, R, *shape].

        Box: A⁺ l + A⁻ u. Ball: A·c - eps ||A||_dual. Both hold for a clipped ball, so the larger is
        taken.
        """
        rows = rows.flatten(2)
        lower, upper = self.box.lower.flatten(1), self.box.upper.flatten(1)
        size = dot(rows.abs(), torch.maximum(lower.abs(), upper.abs()))
        best = dot(rows.clamp_min(0), lower) + dot(rows.clamp_max(0), upper)
        if not self.is_box:
            # Scaled by the largest entry, so that no square underflows.
            largest = rows.abs().amax(-1)
            scaled = rows / torch.where(largest > 0, largest, 1.0).unsqueeze(-1)
            dual = (
                largest * torch.linalg.vector_norm(scaled, dim=-1) if self.norm == "l2" else largest
            )
            reach = self.eps.unsqueeze(-1) * dual
            best = torch.maximum(best, dot(rows, self.center.flatten(1)) - reach)
            size = size + reach
        return best - 2 * gamma(2 * rows.shape[-1] + 16) * size - TINY

    def minimiser(self, rows: Tensor) -> Tensor:
        """Where in the region rows·x [B, *shape] is small: its minimum, but for clipping of a ball.

        Not certified.
        """
        corner = torch.where(rows > 0, self.box.lower, self.box.upper)
        if self.is_box:
            return corner
        flat = rows.flatten(1)
        if self.norm == "l1":
            largest = flat.abs().argmax(1, keepdim=True)
            flat = torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest).sign())
        direction = flat / torch.linalg.vector_norm(flat, dim=1, keepdim=True).clamp_min(1e-300)
        x = self.center - (self.eps.unsqueeze(1) * direction).reshape(self.center.shape)
        return torch.minimum(torch.maximum(x, self.box.lower), self.box.upper)


def ball(center: Array, eps: float | Array, norm: str = "linf", clip: Clip = None) -> Region:
    """{x : ||x - center|| <= eps}, intersected with [clip[0], clip[1]] when given.

    The box is rounded outward.

    >>> x = torch.tensor([[0.5, 0.5], [0.2, 0.8]]).double()
    >>> ball(x, eps=0.1, norm="l2").eps
    tensor([0.1000, 0.1000], dtype=torch.float64)
    """
    if norm not in NORMS:
        raise InputError(f"norm {norm!r} is not known; choose {', '.join(NORMS)}")
    center = _finite(as_tensor(center), "input")
    if center.dim() < 2:
        raise InputError(f"inputs have shape {tuple(center.shape)}; give a batch [B, ...]")
    radius = _one_each(eps, center, "eps")
    wrong = radius[~((radius >= 0) & radius.isfinite())]
    if len(wrong):
        raise InputError(f"eps is {float(wrong[0])}; give a finite radius of at least 0")
    wide = radius.reshape(-1, *[1] * (center.dim() - 1))
    lower = torch.where(wide > 0, round_down(center - wide), center)
    upper = torch.where(wide > 0, round_up(center + wide), center)
    if clip is not None:
        low, high = clip = float(clip[0]), float(clip[1])
        if not low <= high:
            raise InputError(f"clip range {low} to {high} is empty; give the smaller end first")
        outside = ((center < low) | (center > high)).flatten(1).any(1)
        if bool(outside.any()):
            raise InputError(
                f"input {int(outside.nonzero()[0])} leaves the clip range [{low}, {high}]; "
                "rescale it or clip nothing"
            )
        lower, upper = lower.clamp_min(low), upper.clamp_max(high)
    return Region(center, Box(lower, upper), norm, radius, clip)


def explicit_box(box: Box, center: Array | None = None) -> Region:
    """The region `box` [B, *shape] itself; the clean input is its midpoint unless given.

    >>> region = explicit_box(Box(torch.zeros(1, 2).double(), torch.ones(1, 2).double()))
    >>> region.center
    tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    for end in (box.lower, box.upper):
        _finite(end, "input box")
    if center is not None and center.shape != box.shape:
        raise InputError(
            f"clean input has shape {tuple(center.shape)}, "
            f"its box {tuple(box.shape)}; give equal shapes"
        )
    middle = box.lower + (box.upper - box.lower) / 2
    if center is not None:
        middle = _finite(as_tensor(center), "input")
    if not bool(((box.lower <= middle) & (middle <= box.upper)).all()):
        raise InputError("clean input lies outside its input box; move it inside")
    radius = ((box.upper - box.lower) / 2).flatten(1).amax(1)
    return Region(middle, box, "box", radius)


def box_around(center: Tensor, radii: Tensor, clip: Clip = None) -> Region:
    """{x : |x_i - center_i| <= radii_i for all i}, radii of one input's shape, intersected with
    [clip[0], clip[1]] when given.

    The box is rounded outward.

    >>> x = torch.tensor([[0.5, 0.5]]).double()
    >>> box_around(x, torch.tensor([0.25, 0.0]).double()).box.upper
    tensor([[0.7500, 0.5000]], dtype=torch.float64)
    """
    clean = ball(center, 0.0, clip=clip)  # which is refused outside of the clip range
    lower = torch.where(radii > 0, round_down(center - radii), center)
    upper = torch.where(radii > 0, round_up(center + radii), center)
    if clean.clip is not None:
        lower, upper = lower.clamp_min(clean.clip[0]), upper.clamp_max(clean.clip[1])
    return explicit_box(Box(lower, upper), center)


@dataclass(frozen=True, eq=False)
class Specification:
    """Safe iff C y + d > 0 for all R rows and all x of the region; C [B, R, outputs], d [B, R].

    >>> region = ball(torch.zeros(1, 2).double(), eps=0.1)
    >>> rows = torch.tensor([[[1.0, -1.0, 0.0]]]).double()  # y_0 - y_1 + 0.5 > 0
    >>> len(Specification(region, rows, torch.tensor([[0.5]]).double()))
    1
    """

    region: Region
    rows: Tensor
    offsets: Tensor
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        take_arrays(self, "rows", "offsets")
        batch = len(self.region)
        if (
            self.rows.dim() != 3
            or len(self.rows) != batch
            or self.offsets.shape != self.rows.shape[:2]
        ):
            raise InputError(
                f"rows {tuple(self.rows.shape)} and offsets {tuple(self.offsets.shape)} do not fit "
                f"{batch} inputs; give [B, R, outputs] and [B, R]"
            )
        if self.rows.shape[1] == 0:
            raise InputError("specification has no output row; an empty condition is always true")
        _finite(self.rows, "output rows")
        _finite(self.offsets, "output offsets")

    def __len__(self) -> int:
        return len(self.region)

    def __getitem__(self, index: slice | Tensor) -> Specification:
        labels = None if self.labels is None else self.labels[index]
        return Specification(self.region[index], self.rows[index], self.offsets[index], labels)

    def to(self, device: torch.device | str) -> Specification:
        labels = None if self.labels is None else self.labels.to(device)
        return Specification(
            self.region.to(device), self.rows.to(device), self.offsets.to(device), labels
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the regions and the rows."""
        region = self.region
        extent = [region.box.lower, region.box.upper] if region.norm == "box" else [region.eps]
        arrays = [region.center, *extent, self.rows, self.offsets]
        return digest({"norm": region.norm, "clip": region.clip}, arrays)

    def targets(self) -> list[int | None]:
        """The rival of each input, where there is but one of several.

        None where there are no labels or all rivals.
        """
        if self.labels is None or self.rows.shape[1] > 1 or self.rows.shape[2] == 2:
            return [None] * len(self)
        return [int(rival) for rival in self.rows[:, 0].argmin(-1)]

    def row(self, index: Tensor, row: Tensor) -> Specification:
        """Rows `row` [P] of inputs `index` [P], each by itself."""
        rows = self.rows[index, row].unsqueeze(1)
        return Specification(self.region[index], rows, self.offsets[index, row].unsqueeze(1))

    def distinct(self) -> Specification:
        """Without rows that say of every input what one before says, at most at a power of two
        times its size: the same networks are safe, and no bound counts a failure twice."""
        if self.labels is not None:
            return self
        said = torch.cat([self.rows, self.offsets.unsqueeze(2)], 2)
        kept = list({each: row for row, each in reversed(list(enumerate(_keys(said))))}.values())
        if len(kept) == said.shape[1]:
            return self
        kept.sort()
        return Specification(self.region, self.rows[:, kept], self.offsets[:, kept])

    def margins(self, outputs: Tensor) -> Tensor:
        """C y + d for outputs [..., B, outputs]."""
        return (self.rows @ outputs.unsqueeze(-1)).squeeze(-1) + self.offsets


def _keys(said: Tensor) -> list[bytes]:
    """Of rows [B, R, n] what is the same of two of them only if in every input one is the other
    times a power of two: each over the power of two above its largest entry, where that is exact,
    else as it is."""
    rows = said.cpu().numpy() + 0.0  # -0.0 is 0.0
    _, exponents = np.frexp(np.abs(rows).max(-1, keepdims=True))
    scaled = np.ldexp(rows, -exponents)
    exact = (np.ldexp(scaled, exponents) == rows).all(-1, keepdims=True)
    scaled = np.where(exact, scaled, rows)
    return [scaled[:, row].tobytes() for row in range(rows.shape[1])]


def opposite(rows: Tensor, offsets: Tensor, row: int) -> int | None:
    """Of rows [R, outputs] and offsets [R] one that is opposite to row c·y + d: -c·y + d', of
    several the least.

    >>> spec = output_interval(ball(torch.zeros(1, 2).double(), eps=0.1), low=-1.0, high=2.0)
    >>> opposite(spec.rows[0], spec.offsets[0], 0)
    1
    """
    found = (rows == -rows[row]).all(-1).nonzero().squeeze(-1)
    return int(found[offsets[found].argmin()]) if len(found) else None


def class_robust(
    region: Region,
    labels: Tensor | NDArray[np.integer[Any]] | Sequence[int],
    classes: int,
    target: int | None = None,
) -> Specification:
    """y_label > y_j for every rival j, or for the one rival `target`.

    >>> region = ball(torch.zeros(1, 2).double(), eps=0.1)
    >>> class_robust(region, labels=[1], classes=3).rows[0]
    tensor([[-1.,  1.,  0.],
            [ 0.,  1., -1.]], dtype=torch.float64)
    """
    labels = torch.as_tensor(labels).to(region.center.device).reshape(-1)
    if len(labels) != len(region):
        raise InputError(f"{len(labels)} labels for {len(region)} inputs; give one label per input")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels are {labels.dtype}; give whole numbers")
    labels = labels.to(torch.int64)
    if not bool(((labels >= 0) & (labels < classes)).all()):
        bad = labels[(labels < 0) | (labels >= classes)][0]
        raise InputError(
            f"label {int(bad)} is out of range; the network has classes 0 to {classes - 1}"
        )
    identity = torch.eye(classes, dtype=torch.float64, device=labels.device)
    if target is None:
        if classes < 2:
            raise InputError(
                "class robustness needs at least two outputs; use a half-space or an interval"
            )
        rivals = torch.stack(
            [torch.cat([torch.arange(c), torch.arange(c + 1, classes)]) for c in range(classes)]
        )
        chosen = rivals.to(labels.device)[labels]
    else:
        if not 0 <= target < classes or bool((labels == target).any()):
            raise InputError(
                f"target class {target} must be one of 0 to "
                f"{classes - 1} and differ from every label"
            )
        chosen = torch.full((len(labels), 1), target, device=labels.device)
    rows = identity[labels].unsqueeze(1) - identity[chosen]
    return Specification(region, rows, torch.zeros_like(rows[..., 0]), labels)


def half_space(region: Region, normal: Array, bound: float) -> Specification:
    """a·y >= b, certified as the strict a·y - b > 0.

    >>> region = ball(torch.zeros(1, 2).double(), eps=0.1)
    >>> spec = half_space(region, torch.tensor([1.0, 1.0]), bound=0.5)  # y_0 + y_1 >= 0.5
    >>> spec.rows[0], spec.offsets[0]
    (tensor([[1., 1.]], dtype=torch.float64), tensor([-0.5000], dtype=torch.float64))
    """
    normal = torch.as_tensor(normal, dtype=torch.float64).to(region.center.device).reshape(-1)
    rows = normal.expand(len(region), 1, -1)
    return Specification(region, rows, torch.full_like(rows[..., 0], -float(bound)))


def interval_of(rows: Tensor, offsets: Tensor) -> tuple[int, float, float] | None:
    """Which output the rows [R, outputs] and offsets [R] hold between which ends, if they do.

    >>> region = ball(torch.zeros(1, 2).double(), eps=0.1)
    >>> spec = output_interval(region, low=-1.0, high=2.0, outputs=3, output=1)
    >>> interval_of(spec.rows[0], spec.offsets[0])
    (1, -1.0, 2.0)
    """
    if len(rows) != 2 or not torch.equal(rows[0], -rows[1]):
        return None
    (chosen,) = rows[0].nonzero(as_tuple=True)
    if len(chosen) != 1 or float(rows[0, chosen[0]]) != 1:
        return None
    return int(chosen[0]), -float(offsets[0]), float(offsets[1])


def output_interval(
    region: Region, low: float | Array, high: float | Array, outputs: int = 1, output: int = 0
) -> Specification:
    """low <= y_output <= high, certified strictly.

    `low` and `high` are numbers or one value per input.

    >>> region = ball(torch.zeros(1, 2).double(), eps=0.1)
    >>> spec = output_interval(region, low=-1.0, high=2.0)
    >>> spec.rows[0], spec.offsets[0]
    (tensor([[ 1.],
            [-1.]], dtype=torch.float64), tensor([1., 2.], dtype=torch.float64))
    """
    if not 0 <= output < outputs:
        raise InputError(
            f"output {output} does not exist; the network has outputs 0 to {outputs - 1}"
        )
    device = region.center.device
    ends = [_one_each(end, region.center, "output interval") for end in (low, high)]
    if not bool((ends[0] <= ends[1]).all()):
        raise InputError(f"output interval {low} to {high} is empty; give the smaller end first")
    unit = torch.zeros(outputs, dtype=torch.float64, device=device)
    unit[output] = 1
    rows = torch.stack([unit, -unit]).expand(len(region), 2, -1)
    return Specification(region, rows, torch.stack([-ends[0], ends[1]], 1))


def _one_each(value: float | Array, like: Tensor, name: str) -> Tensor:
    """A number for all inputs or one per input, as [B]."""
    values = torch.as_tensor(value, dtype=torch.float64).to(like.device)
    if values.shape not in ((), (1,), (len(like),)):
        raise InputError(
            f"{name} has shape {tuple(values.shape)} for {len(like)} inputs; "
            "give one number, or one per input"
        )
    return values.expand(len(like))


def _finite(value: Tensor, name: str) -> Tensor:
    if value.dtype != torch.float64:
        raise InputError(
            f"{name} is {value.dtype}; certified bounds need float64 "
            "(use .double(), or .astype(float))"
        )
    if not bool(value.isfinite().all()):
        raise InputError(f"{name} holds NaN or infinity; every entry must be finite")
    return value
