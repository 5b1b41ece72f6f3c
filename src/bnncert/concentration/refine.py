"""Refinement: branch and bound over the kinks of neurons, with Gaussian tails at the leaves.

A row that fails at x fails in the leaf that x lies in, so with leaves ℓ that cover X, whatever the
weights,

    P(row r fails) <= charge of the hidden intervals + Σ_ℓ q_ℓ,

q_ℓ the tail of the leaf's functional as in `proof`: branch and bound on neurons (Bunel et al. 2020)
with the multipliers of β-CROWN (Wang et al. 2021). Leaves are split where they are worst, all
inputs at once, and whatever is the time, the tree so far is a proof: of every node either its own
tail counts or those of its two halves, whichever is less. Where the mean network fails at a point
that the search meets, the input is given up: no proof exists, and the point is a counterexample for
the upper bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.concentration.common import MOST_LEAVES, WORTH, applies, common_failure
from bnncert.concentration.domains import Domains, Tightened, halves, roots, tighten, whole
from bnncert.concentration.nodes import Nodes, tree_of
from bnncert.concentration.proof import GRADIENTS, bytes_a_row_each, known_before, proofs_of
from bnncert.concentration.slopes import evaluate, strongest
from bnncert.concentration.tails import row_failures
from bnncert.concentration.trace import Prefix, trace
from bnncert.evidence.concentration import Common, Proof
from bnncert.model.problem import Problem
from bnncert.numerics.batching import in_batches
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.gaussian import Gaussian

ROOT_ITERATIONS = 40
ITERATIONS = 15
CLOSED = 1e-9  # failure of a leaf below which it is not split
SURE = 1e-10  # failure of a row below which it needs no tree
# Branching makes rows cheap, and then the charge of hidden intervals is what is left.
LEAST_THRESHOLD = 4.5
NARROW = 5.0  # the threshold of inputs for which nothing is proved yet
AT_ONCE = {"cpu": 512, "cuda": 16384}  # domains split in a round


@dataclass(frozen=True)
class Limits:
    """When to stop: domains per input, seconds in all, the lower bound that is enough, and a gain
    that is too small."""

    nodes: int
    seconds: float = math.inf
    enough: float = 1.0
    precision: float = 1e-5
    rule: str = "both"


@dataclass(frozen=True, eq=False)
class Refined:
    """A proof for every input, at least as good as the one given.

    Points where the mean network was seen to fail, by input; the domains bounded for each input;
    and whether somebody interrupted the search.
    """

    proofs: list[Proof]
    counterexamples: dict[int, Tensor]
    domains: list[int]
    interrupted: bool = False


def refine(
    problem: Problem,
    posterior: Gaussian,
    proofs: list[Proof],
    limits: Limits,
    observe: Callable[[Tensor], None] | None = None,
    known: Prefix | None = None,
) -> Refined:
    """Better proofs where rows still fail noticeably, within the limits.

    An interrupt ends the search, not the proof.

    observe: called after every round with the lower bounds [B] so far. known: what is known of
    these inputs before any threshold.
    """
    before = known or known_before(problem, posterior)
    search = _Search(problem, posterior, proofs, limits, before)
    interrupted = False
    try:
        while search.advance():
            if observe is not None:
                observe(search.lower())
    except KeyboardInterrupt:  # what is known so far is a proof
        interrupted = True
    return replace(search.conclude(), interrupted=interrupted)


class _Search:
    """One search over a batch of inputs: its nodes, and which inputs are still worth splitting."""

    def __init__(
        self,
        problem: Problem,
        posterior: Gaussian,
        proofs: list[Proof],
        limits: Limits,
        known: Prefix,
    ) -> None:
        spec = problem.specification
        self.problem = problem
        self.posterior = posterior
        self.proofs = proofs
        self.limits = limits
        self.deadline = time.perf_counter() + limits.seconds
        self.device = spec.rows.device

        self.given = torch.tensor(
            [proof.bound for proof in proofs], dtype=torch.float64, device=self.device
        )

        t = [max(proof.t, LEAST_THRESHOLD) if proof.bound > 0 else NARROW for proof in proofs]
        self.t = torch.tensor(t, dtype=torch.float64, device=self.device)
        self.traced = trace(problem.network, posterior, spec.region, self.t, known)
        self.plain_proofs = proofs_of(self.traced, [0.0] * len(problem), 0.0)
        self.base = roots(problem, posterior.mean, self.traced)
        rows = strongest(self.traced, spec, evaluate(self.traced, spec, {}))
        self.plain = row_failures(rows)

        self.points = spec.region.center.clone()
        self.margins = problem.margins(posterior.mean).amin(1)
        splittable = (self.base.open < self.base.width).any(1)
        # What is charged cannot be gained by branching.
        worth = self.given < 1 - self.traced.charge - limits.precision
        self.active = splittable & (self.margins > 0) & worth
        self.nodes: Nodes | None = None

    def advance(self) -> bool:
        """Bound the roots, or split a batch of open domains; whether there was anything to do."""
        if time.perf_counter() > self.deadline:
            return False
        if self.nodes is None:
            return self._plant()
        chosen = self._worst()
        if len(chosen) == 0:
            return False
        nodes = self.nodes
        depth = self.nodes.depth[chosen]
        children = halves(nodes.domains(chosen), nodes.branch[chosen], nodes.weight[chosen], depth)
        found = self._tighten(children, ITERATIONS)
        nodes.append(found, chosen.repeat(2), (depth + 1).repeat(2))
        nodes.leaf[chosen] = False  # after its halves are there: an interrupt may come in between
        self._retire()
        return True

    def _plant(self) -> bool:
        index, row = ((self.plain > SURE) & self.active.unsqueeze(1)).nonzero().unbind(1)
        if len(index) == 0:
            return False
        found = self._tighten(whole(self.base, index, row), ROOT_ITERATIONS)
        self.nodes = Nodes(found)
        self.nodes.append(found, torch.full_like(index, -1), torch.zeros_like(index))
        self._retire()
        return True

    def _tighten(self, domains: Domains, iterations: int) -> Tightened:
        """In parts that fit; of points where the mean network fails, each input's worst is kept."""
        each = GRADIENTS * bytes_a_row_each(self.problem, self.posterior)
        rule = self.limits.rule
        parts = in_batches(
            lambda part: tighten(self.base, domains[part], iterations, rule),
            len(domains),
            each,
            self.device,
        )
        found = Tightened(
            Domains(
                *(
                    torch.cat(values)
                    for values in zip(*(vars(p.domains).values() for p in parts), strict=True)
                )
            ),
            *(
                torch.cat([getattr(p, name) for p in parts])
                for name in ("value", "lipschitz", "branch", "weight", "point", "margin")
            ),
        )

        # Of each input's points the one with the smallest margin, where that is smaller than ever.
        unknown = torch.full_like(self.margins, math.inf)
        worst = unknown.scatter_reduce(0, domains.input, found.margin, "amin")[domains.input]
        smaller = (found.margin == worst) & (found.margin < self.margins[domains.input])
        index = smaller.nonzero().squeeze(1)
        self.points[domains.input[index]] = found.point[index]
        self.margins[domains.input[index]] = found.margin[index]
        return found

    def _retire(self) -> None:
        """Give up inputs that have a counterexample, enough domains, or all that is asked."""
        nodes = self._nodes()
        count = torch.bincount(nodes.input, minlength=len(self.problem))
        self.active &= (self.margins > 0) & (count < self.limits.nodes)
        lower = torch.maximum(self.given, 1 - self.traced.charge - self._at_leaves().sum(1))
        self.active &= (lower < self.limits.enough) & (
            lower < 1 - self.traced.charge - self.limits.precision
        )

    def _at_leaves(self) -> Tensor:
        """The failure of every row [B, R] by the leaves so far: quick, and no better than what is
        proved in the end."""
        nodes = self._nodes()
        leaves = nodes.leaf.nonzero().squeeze(1)
        place = (nodes.input[leaves], nodes.row[leaves])
        sums = torch.zeros_like(self.plain).index_put(place, nodes.failure[leaves], accumulate=True)
        refined = torch.zeros_like(self.plain, dtype=torch.bool).index_put(
            place, torch.ones_like(leaves).bool()
        )
        return torch.where(refined, torch.minimum(sums, self.plain), self.plain)

    def _worst(self) -> Tensor:
        """The open leaves to split next: every input's worst, as many as there is room for."""
        nodes = self._nodes()
        candidates = (
            nodes.leaf & (nodes.failure > CLOSED) & (nodes.branch >= 0) & self.active[nodes.input]
        )
        index = candidates.nonzero().squeeze(1)

        # By input, and of each input by m / L: a stable sort keeps the order of the first one.
        score = nodes.value[index] / nodes.lipschitz[index]
        index = index[score.argsort()]
        index = index[nodes.input[index].argsort(stable=True)]

        counts = torch.bincount(nodes.input[index], minlength=len(self.problem))
        rank = (
            torch.arange(len(index), device=self.device)
            - (counts.cumsum(0) - counts)[nodes.input[index]]
        )
        return index[rank < max(1, AT_ONCE[self.device.type] // max(1, int((counts > 0).sum())))]

    def _nodes(self) -> Nodes:
        if self.nodes is None:
            raise RuntimeError("the search has not begun")
        return self.nodes

    def lower(self) -> Tensor:
        """The lower bounds [B] so far."""
        return torch.maximum(self.given, self._certified(self._best()[0]))

    def _certified(self, failure: Tensor) -> Tensor:
        """1 - charge - Σ over rows, the root's tree replacing the plain tail where it is better."""
        rows = self.plain.clone()
        if self.nodes is not None:
            top = (self.nodes.parent < 0).nonzero().squeeze(1)
            place = (self.nodes.input[top], self.nodes.row[top])
            rows[place] = torch.minimum(rows[place], failure[top])
        total = self.traced.charge + rows.sum(1)
        return (1 - total * (1 + 64 * UNIT) - 64 * UNIT).clamp(0, 1)

    def _best(self) -> tuple[Tensor, Tensor]:
        """For every node the least sum of tails over leaves below it, and whether it is its own."""
        if self.nodes is None:
            none = self.plain.new_zeros(0)
            return none, none.bool()
        nodes = self.nodes
        best = nodes.failure.clone()
        own = torch.ones_like(nodes.leaf)
        for level in range(int(nodes.depth.max()), 0, -1):
            below = (nodes.depth == level).nonzero().squeeze(1)
            sums = torch.zeros_like(best).index_add(0, nodes.parent[below], best[below])
            above = (~nodes.leaf & (nodes.depth == level - 1)).nonzero().squeeze(1)
            halved = sums[above] * (1 + 4 * UNIT)
            own[above] = nodes.failure[above] <= halved
            best[above] = torch.minimum(nodes.failure[above], halved)
        return best, own

    def conclude(self) -> Refined:
        clean = self.problem.margins(self.posterior.mean).amin(1)
        broken = ((self.margins < 0) & (self.margins < clean)).nonzero().squeeze(1).tolist()
        found = {i: self.points[i] for i in broken}
        if self.nodes is None:
            return Refined(self.proofs, found, [0] * len(self.problem))
        failure, own = self._best()
        shared = self._common(failure)
        lower = self._certified(failure)
        proofs = list(self.proofs)
        taken = self._taken(own)
        for i in (lower > self.given).nonzero().squeeze(1).tolist():
            proofs[i] = self._proof(i, float(lower[i]), failure, taken, shared)
        counts = torch.bincount(self.nodes.input, minlength=len(self.problem)).tolist()
        return Refined(proofs, found, counts)

    def _common(self, failure: Tensor) -> dict[int, Common]:
        """Where leaves fail together: their maximum's bound, by root, for the sum of tails."""
        found: dict[int, Common] = {}
        if not applies(self.base):
            return found
        nodes = self._nodes()
        frontier = self._frontier()
        worth = (
            (self.margins > 0)[nodes.input] & (nodes.parent < 0) & (failure > WORTH) & ~nodes.leaf
        )
        for root in worth.nonzero().squeeze(1).tolist():
            leaves = self._leaves(root, frontier)
            if len(leaves) <= MOST_LEAVES:
                values = nodes.value[leaves], nodes.lipschitz[leaves]
                tail, common = common_failure(self.base, nodes.domains(leaves), *values)
                if common is not None and tail < failure[root]:
                    failure[root] = tail
                    found[root] = common
        return found

    def _frontier(self) -> Tensor:
        """The leaves; after an interrupt, not those whose parent was not yet marked as split."""
        nodes = self._nodes()
        return nodes.leaf & ((nodes.parent < 0) | ~nodes.leaf[nodes.parent.clamp_min(0)])

    def _leaves(self, root: int, among: Tensor) -> Tensor:
        nodes = self._nodes()
        same = (nodes.input == nodes.input[root]) & (nodes.row == nodes.row[root])
        return (among & same).nonzero().squeeze(1)

    def _taken(self, own: Tensor) -> Tensor:
        """The nodes whose own tails are summed: those that no ancestor stands for."""
        nodes = self._nodes()
        reached = nodes.parent < 0
        for level in range(1, int(nodes.depth.max()) + 1):
            at = (nodes.depth == level).nonzero().squeeze(1)
            reached[at] = reached[nodes.parent[at]] & ~own[nodes.parent[at]]
        return reached & own

    def _proof(
        self, i: int, lower: float, failure: Tensor, taken: Tensor, shared: dict[int, Common]
    ) -> Proof:
        nodes = self._nodes()
        trees = {}
        count = int((self.base.open[i] < self.base.width).sum())
        for root in ((nodes.parent < 0) & (nodes.input == i)).nonzero().squeeze(1).tolist():
            row = int(nodes.row[root])
            if failure[root] < self.plain[i, row]:
                leaves = self._leaves(root, self._frontier() if root in shared else taken)
                trees[row] = replace(tree_of(nodes.domains(leaves), count), common=shared.get(root))
        numbered = self.base.open[i, :count].cpu()
        return replace(
            self.plain_proofs[i], bound=lower, t=float(self.t[i]), open=numbered, trees=trees
        )
