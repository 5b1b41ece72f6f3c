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

from bnncert.evidence.concentration import Refutation
from bnncert.evidence.joint import Joint, PointLaw
from bnncert.evidence.laws import AnchorLaw, Law, LineLaw
from bnncert.joint.neurons import Cells, cells, gaussian
from bnncert.joint.series import Chance, chance
from bnncert.joint.setting import applies, setting
from bnncert.laws.cells import OUTSIDE
from bnncert.laws.head import head, in_scale, read_at, read_box
from bnncert.laws.upper import climbed, standing
from bnncert.model.problem import Problem
from bnncert.model.specification import ball
from bnncert.numerics.rounding import UNIT
from bnncert.numerics.tails import normal_tail
from bnncert.posteriors.independent import Normal

WORTH, THERE = 1e-4, 1e-3  # a chance that two rows fail together at a point; on a region
MOST_ROWS = 128
NEAR = 0.02  # of a chance that is guessed
FEW = 4  # rows of an upper end, or of pairs on a region
STEPS = tuple(0.5 ** (1 + k / 3) for k in range(12))  # of a search for a point
ABOVE, BELOW = -1, 1  # a bound of a chance from above, where rows are shifted down; and from below


class At:
    """Rows of one input at a point [1, *shape]: their laws, each found once."""

    def __init__(self, problem: Problem, posterior: Normal, x: Tensor) -> None:
        net, spec = head(problem.network, posterior), problem.specification
        box = read_box(problem.network, posterior, ball(x, 0))
        scaled = in_scale(net, box.lower, box.upper, spec.rows, spec.offsets)
        self.point, self.rows, self.offsets = x, spec.rows[0], spec.offsets[0]
        self.within = bool(scaled) and len(self.rows) <= MOST_ROWS
        self.setting = setting(net, box.lower[0], box.upper[0], self.rows, self.offsets)
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

    def guess(self, rows: tuple[int, ...]) -> float:
        """About the chance that this row fails, or that these two fail together."""
        if len(rows) == 2 and self.excluded(rows):
            return 0.0
        mean, covariance = (x.cpu() for x in gaussian(self.setting, self.cells, rows))
        if len(rows) == 1:
            return float(normal_tail(mean / covariance[0].sqrt().clamp_min(1e-300)))
        if not bool((covariance.diagonal() > 0).all()):
            # A row that is certain is independent of others.
            return math.prod(self.guess((row,)) for row in rows)
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
    pairs = [at.law(pair, BELOW) for pair in _forest(range(len(rows)), at.guess, WORTH)]
    shared = [one for one in pairs if one is not None and one.bound > 0]
    failing = math.fsum(one.bound for one in alone) - math.fsum(one.bound for one in shared)
    bound = 1 - failing - 8 * UNIT * len(alone)
    laws = tuple(_evidence(one) for one in (*alone, *shared))
    return Joint(bound, laws) if bound > 0 else None


def _forest(
    rows: Sequence[int], guess: Callable[[tuple[int, int]], float], worth: float
) -> list[tuple[int, int]]:
    """The pairs, without a cycle, that fail together most often, and often enough."""
    known = sorted(((guess(pair), pair) for pair in combinations(rows, 2)), reverse=True)
    tree = {row: row for row in rows}
    found = []
    for chance_of_both, (i, j) in known:
        if chance_of_both < worth:
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
        _shared(problem[i : i + 1], posterior, law) if -1 < law.bound < 1 - THERE else law
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
    forest = _forest(each, lambda both: places[both].guess(both) if both in places else 0.0, THERE)
    for pair in forest:
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
    """About where both fail most, as if they were independent."""
    net, spec = head(problem.network, posterior), problem.specification
    rows, offsets = spec.rows[:, list(pair)], spec.offsets[:, list(pair)]

    def failing(x: Tensor) -> tuple[Tensor, Tensor]:
        read = read_at(problem.network, posterior, x)
        mean, std = standing(net, read, rows, offsets)
        both = torch.special.log_ndtr(-mean / std.clamp_min(1e-300)).sum(-1)
        return both, both

    return climbed(spec.region, failing, STEPS)[1]


def refute(
    problem: Problem,
    posterior: Normal,
    points: dict[int, Tensor],
    known: Sequence[Refutation | None],
) -> dict[int, Refutation | None]:
    """Of some inputs at points [*shape], where series say something; None where what is known of
    the input seems to be better."""
    if not applies(head(problem.network, posterior).activation):
        return {}
    found: dict[int, Refutation | None] = {}
    for i, point in points.items():
        at, before = At(problem[i : i + 1], posterior, point.unsqueeze(0)), known[i]
        if not at.within:
            continue
        rows, guess = _rows_of_upper(at)
        if before is not None and 1 - guess > before.upper + NEAR:
            found[i] = None
        elif one := _refuted(at, rows):
            found[i] = one
    return found


def _refuted(at: At, chosen: tuple[int, ...]) -> Refutation | None:
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


def _rows_of_upper(at: At) -> tuple[tuple[int, ...], float]:
    """Those that together seem to fail most, by Bonferroni's inequality, and about how often."""
    nearest = sorted(range(len(at.rows)), key=lambda row: -at.guess((row,)))[:FEW]
    alone = {row: at.guess((row,)) for row in nearest}
    both = {pair: at.guess(pair) for pair in combinations(nearest, 2)}

    def failing(rows: tuple[int, ...]) -> float:
        together = sum(both[pair] for pair in combinations(rows, 2))
        return sum(alone[row] for row in rows) - together

    sets = (rows for count in range(1, FEW + 1) for rows in combinations(nearest, count))
    best = max(sets, key=lambda rows: (failing(rows), -len(rows)))
    return best, failing(best)


def _evidence(found: Chance) -> PointLaw:
    windows = torch.tensor([one.numbers for one in found.windows], dtype=torch.float64)
    return PointLaw(found.rows, found.terms, windows)
