"""What joint laws are taken for: lower ends at points, what pairs of rows share on a region, and
upper ends at a point.

    P(a row fails) <= Σ_i P(i fails) - Σ P(i and j fail) over the pairs of a forest        (Hunter)
    P(a row fails) >= Σ_i P(i fails) - Σ P(i and j fail) over all pairs of some rows   (Bonferroni)

Which pairs and rows is chosen by laws that are taken as Gaussian; nothing rests on that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from bnncert.attack import project
from bnncert.evidence.concentration import Refutation
from bnncert.evidence.joint import Joint, PointLaw
from bnncert.evidence.laws import AnchorLaw, Law, LineLaw
from bnncert.joint.neurons import Cells, cells, moments
from bnncert.joint.series import Chance, chance
from bnncert.joint.setting import applies, setting
from bnncert.laws.cells import OUTSIDE
from bnncert.laws.head import head, in_scale, read_at, read_box
from bnncert.laws.upper import standing
from bnncert.model.problem import Problem
from bnncert.model.specification import ball
from bnncert.numerics.rounding import UNIT
from bnncert.numerics.tails import normal_tail
from bnncert.posteriors.independent import Normal

WORTH = 1e-4  # of a chance that two rows fail together, which is worth its law
MOST_ROWS = 128
FEW = 4  # rows of an upper end, or of pairs on a region
STEPS = 12  # of a search for a point
ABOVE, BELOW = -1, 1  # a bound of a chance from above, where rows are shifted down; and from below


class At:
    """Rows of one input at a point [1, *shape]: their laws, each found once."""

    def __init__(self, problem: Problem, posterior: Normal, x: Tensor) -> None:
        self.net, self.spec, self.point = head(problem.network, posterior), problem.specification, x
        box = read_box(problem.network, posterior, ball(x, 0))
        ends = box.lower[0], box.upper[0]
        self.rows, self.offsets = self.spec.rows[0], self.spec.offsets[0]
        asked = (*(end[None] for end in ends), self.rows[None], self.offsets[None])
        self.within = bool(in_scale(self.net, *asked)) and len(self.rows) <= MOST_ROWS
        self.setting = setting(self.net, *ends, self.rows, self.offsets)
        self._found: dict[tuple[tuple[int, ...], int], Chance | None] = {}

    @cached_property
    def cells(self) -> Cells:
        return cells(self.setting)

    def law(self, rows: tuple[int, ...], side: int) -> Chance | None:
        if (rows, side) not in self._found:
            self._found[rows, side] = chance(self.setting, self.cells, rows, side)
        return self._found[rows, side]

    def excluded(self, pair: tuple[int, ...]) -> bool:
        """Whether two rows are opposite and never fail together, as their sum is above 0."""
        i, j = pair
        against = bool((self.rows[i] == -self.rows[j]).all())
        return against and bool(self.offsets[i] + self.offsets[j] > 0)

    @cached_property
    def gaussian(self) -> tuple[Tensor, Tensor]:
        """Means and covariances of all rows, [R] and [R, R], on the processor."""
        own, (mean, variance) = self.setting, moments(self.cells)
        second = variance + mean**2
        noise = (own.rows * (own.out.mT @ second + own.shift)) @ own.rows.mT
        covariance = (own.v * variance) @ own.v.mT + noise
        return (own.v @ mean + own.beta).cpu(), covariance.cpu()

    def guess(self, pair: tuple[int, ...]) -> float:
        """About the chance that these rows fail together, or that one does."""
        if len(pair) == 2 and self.excluded(pair):
            return 0.0
        index = list(pair)
        mean, covariance = self.gaussian[0][index], self.gaussian[1][index][:, index]
        if len(pair) == 1:
            return float(normal_tail(mean / covariance.sqrt().clamp_min(1e-300)))
        if not bool((covariance.diagonal() > 0).all()):
            # A row that is certain is independent of others.
            return math.prod(self.guess((row,)) for row in pair)
        law = multivariate_normal(mean.numpy(), covariance.numpy(), allow_singular=True)
        return float(law.cdf([0.0, 0.0]))


def prove(problem: Problem, posterior: Normal) -> list[Joint | None]:
    """For inputs whose regions are points; None where this bound says nothing."""
    return [_proved(_center(problem[i : i + 1], posterior)) for i in range(len(problem))]


def _center(problem: Problem, posterior: Normal) -> At:
    return At(problem, posterior, problem.specification.region.center)


def _proved(at: At) -> Joint | None:
    if not (applies(at.setting.activation) and at.within):
        return None
    rows = [at.law((row,), ABOVE) for row in range(len(at.rows))]
    alone = [one for one in rows if one is not None]
    if len(alone) < len(rows):
        return None
    pairs = [at.law(pair, BELOW) for pair in _forest(range(len(rows)), at.guess)]
    shared = [one for one in pairs if one is not None and one.bound > 0]
    failing = math.fsum(one.bound for one in alone) - math.fsum(one.bound for one in shared)
    bound = 1 - failing - 8 * UNIT * len(alone)
    laws = tuple(_evidence(one) for one in (*alone, *shared))
    return Joint(bound, laws) if bound > 0 else None


def _forest(
    rows: Sequence[int], guess: Callable[[tuple[int, int]], float]
) -> list[tuple[int, int]]:
    """The pairs, without a cycle, that fail together most often."""
    known = sorted(((guess(pair), pair) for pair in combinations(rows, 2)), reverse=True)
    tree = {row: row for row in rows}
    found = []
    for chance_of_both, (i, j) in known:
        if chance_of_both < WORTH:
            break
        first, second = tree[i], tree[j]
        if first != second:
            found.append((i, j))
            tree = {row: first if own == second else own for row, own in tree.items()}
    return found


def share(problem: Problem, posterior: Normal, laws: Sequence[Law]) -> list[Law]:
    """On regions: what pairs of rows fail together, each at a point of its own, counts once.

    Where a law's bound is at least 0 with it, it is the better; laws of all rows may be below 0.
    """
    network = problem.network
    if not applies(head(network, posterior).activation):
        return list(laws)
    return [
        _shared(problem[i : i + 1], posterior, law) if -1 < law.bound < 1 - WORTH else law
        for i, law in enumerate(laws)
    ]


def _shared(problem: Problem, posterior: Normal, law: Law) -> Law:
    center = _center(problem, posterior)
    if not center.within:
        return law
    each = sorted(range(len(center.rows)), key=lambda row: -center.guess((row,)))[:FEW]
    places = {
        pair: At(problem, posterior, _worst(problem, posterior, pair))
        for pair in combinations(each, 2)
        if not center.excluded(pair)
    }
    found = []
    for pair in _forest(each, lambda pair: places[pair].guess(pair) if pair in places else 0.0):
        both = places[pair].law(pair, BELOW)
        if both is not None and both.bound > 0:
            found.append((places[pair].point[0].cpu(), both))
    once_more = _for_all_rows(law, len(center.setting.mean))
    gained = math.fsum(both.bound - once_more for _, both in found)
    if gained <= 0:
        return law
    together = tuple(replace(_evidence(both), point=point) for point, both in found)
    bound = min(1.0, law.bound + gained * (1 - 8 * UNIT))
    return replace(law, bound=bound, together=together)


def _for_all_rows(law: Law, neurons: int) -> float:
    """What a law charges once for all rows, and a pair once more."""
    if isinstance(law, AnchorLaw):
        return 0.0
    beyond = 2 * OUTSIDE * neurons
    if isinstance(law, LineLaw):
        beyond += float(normal_tail(torch.tensor(law.threshold).double())) * neurons
    return beyond * (1 + 2.0**-26)


def _worst(problem: Problem, posterior: Normal, pair: tuple[int, ...]) -> Tensor:
    """About where both fail most, as if they were independent: by steps along the gradient's sign
    that shrink."""
    net, spec = head(problem.network, posterior), problem.specification
    rows, offsets = spec.rows[:, list(pair)], spec.offsets[:, list(pair)]
    region = spec.region
    x = best = region.center
    most, radius = -math.inf, region.box.upper - region.box.lower
    for step in range(STEPS + 1):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            read = read_at(problem.network, posterior, at)
            mean, std = standing(net, read, rows, offsets)
            both = torch.special.log_ndtr(-mean / std.clamp_min(1e-300)).sum()
            (slope,) = torch.autograd.grad(both, at)
        if float(both.detach()) > most:
            most, best = float(both.detach()), x
        x = project(region, (x + radius * 0.5 ** (1 + step / 3) * slope.sign()).unsqueeze(0))[0]
    return best.detach()


def refute(problem: Problem, posterior: Normal, points: dict[int, Tensor]) -> dict[int, Refutation]:
    """Of some inputs at points [*shape]; where no row fails often enough there is none."""
    if not applies(head(problem.network, posterior).activation):
        return {}
    each = {
        i: _refuted(At(problem[i : i + 1], posterior, point.unsqueeze(0)))
        for i, point in points.items()
    }
    return {i: one for i, one in each.items() if one is not None}


def _refuted(at: At) -> Refutation | None:
    if not at.within:
        return None
    chosen = _rows_of_upper(at)
    alone = [at.law((row,), BELOW) for row in chosen]
    pairs = [at.law(pair, ABOVE) for pair in combinations(chosen, 2) if not at.excluded(pair)]
    known = [one for one in (*alone, *pairs) if one is not None]
    if len(known) < len(alone) + len(pairs):
        return None
    size = len(alone)
    failing = math.fsum(one.bound for one in known[:size]) - math.fsum(
        one.bound for one in known[size:]
    )
    bound = failing - 8 * UNIT * len(known)
    if not bound > 0:
        return None
    proof = Joint(bound, tuple(_evidence(one) for one in known))
    return Refutation(1 - bound, at.point[0].cpu(), chosen[0], proof)


def _rows_of_upper(at: At) -> tuple[int, ...]:
    """Those that together seem to fail most, by Bonferroni's inequality."""
    nearest = sorted(range(len(at.rows)), key=lambda row: -at.guess((row,)))[:FEW]
    alone = {row: at.guess((row,)) for row in nearest}
    both = {pair: at.guess(pair) for pair in combinations(nearest, 2)}
    sets = (rows for count in range(1, FEW + 1) for rows in combinations(nearest, count))
    return max(
        sets,
        key=lambda rows: (
            sum(alone[row] for row in rows) - sum(both[pair] for pair in combinations(rows, 2)),
            -len(rows),
        ),
    )


def _evidence(found: Chance) -> PointLaw:
    windows = torch.tensor([one.numbers for one in found.windows], dtype=torch.float64)
    return PointLaw(found.rows, found.terms, windows)
