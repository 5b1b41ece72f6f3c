"""Bounds of P_safe on cells, many at once, with the certificates that prove them.

See `condition` for how bounds of a condition follow from those of its alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from bnncert._certify import certify
from bnncert.evidence.certificate import Certificate
from bnncert.map.cells import Cell, Seen
from bnncert.map.condition import Alternative, Condition
from bnncert.methods import Concentration, Method
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification, explicit_box
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.base import Posterior
from bnncert.results.answers import Threshold, jointly
from bnncert.results.rows import Result


@dataclass(frozen=True, eq=False)
class Bound:
    """What is known of one cell. below: of each clause the certificate of one alternative on the
    cell; above: a clause, and certificates of all of its alternatives: of the only one on the cell,
    of several at one point."""

    lower: float = 0.0
    upper: float = 1.0
    below: tuple[Certificate | None, ...] = ()
    above: tuple[int, tuple[Certificate, ...]] | None = None


@dataclass(frozen=True, eq=False)
class Prover:
    """A posterior, a condition, and how cells are bounded: quickly first, thoroughly at the end."""

    network: Network
    posterior: Posterior
    condition: Condition
    method: Method
    at_least: Threshold
    seed: int = 0

    @property
    def quick(self) -> Method:
        """Lower bounds alone, as cheap as they come."""
        if isinstance(self.method, Concentration):
            return Concentration(effort=0, at_least=self.method.at_least)
        return self.method

    @property
    def thorough(self) -> Method:
        """Lower and upper bounds."""
        if isinstance(self.method, Concentration):
            return replace(self.method, upper=True)
        return self.method

    def below(self, cells: Sequence[Cell], seen: Seen) -> list[Bound]:
        """Lower bounds by the quick method."""
        return self._below(cells, seen, self.quick)

    def both(self, cells: Sequence[Cell], seen: Seen, known: Sequence[Bound]) -> list[Bound]:
        """Lower and upper bounds by the thorough method, after what the quick one knows."""
        found = list(known)
        if self.thorough != self.quick:
            found = self._below(cells, seen, self.thorough)
        for k, clause in enumerate(self.condition.clauses):
            if len(clause) > 1:
                found = self._above(k, seen, found)
        return found

    def _below(self, cells: Sequence[Cell], seen: Seen, method: Method) -> list[Bound]:
        """Of every clause the alternative that the central network is surest of; an upper bound
        where a clause has one alternative alone."""
        rows: list[list[Result]] = [[] for _ in cells]
        for clause, margins in zip(self.condition.clauses, seen.margins, strict=True):
            chosen = torch.stack([margin.amin(1) for margin in margins]).argmax(0)
            for j, alternative in enumerate(clause):
                own = (chosen == j).nonzero().squeeze(1).tolist()
                if own:
                    region = _region([cells[i] for i in own], self.network.input_shape)
                    results = self._certify(alternative, region, seen.labels[own], method)
                    for i, result in zip(own, results, strict=True):
                        rows[i].append(result)
        return [self._joined(each) for each in rows]

    def _joined(self, rows: Sequence[Result]) -> Bound:
        lower, _ = jointly([(row.lower, row.upper) for row in rows])
        found = Bound(lower, 1.0, tuple(row.certificate for row in rows))
        for k, (row, clause) in enumerate(zip(rows, self.condition.clauses, strict=True)):
            if len(clause) == 1 and row.certificate is not None and row.upper < found.upper:
                above = (k, (row.certificate,))
                found = replace(found, upper=max(lower, row.upper), above=above)
        return found

    def _above(self, k: int, seen: Seen, found: list[Bound]) -> list[Bound]:
        """By the point where the best alternative of the clause is worst, if it fails there."""
        clause = self.condition.clauses[k]
        best = torch.stack(seen.margins[k]).amax(0)  # [B, P]
        least, where = best.min(1)
        own = (least < 0).nonzero().squeeze(1).tolist()
        if not own:
            return found
        points = seen.points[own, where[own]]
        region = explicit_box(Box.point(points.reshape(-1, *self.network.input_shape)))
        each = [
            self._certify(alternative, region, seen.labels[own], self.thorough)
            for alternative in clause
        ]
        better = list(found)
        for i, rows in zip(own, zip(*each, strict=True), strict=True):
            upper = sum(row.upper for row in rows) * (1 + 4 * len(rows) * UNIT)
            certificates = tuple(row.certificate for row in rows if row.certificate is not None)
            if upper < better[i].upper and len(certificates) == len(rows):
                upper = max(upper, better[i].lower)
                better[i] = replace(better[i], upper=upper, above=(k, certificates))
        return better

    def _certify(
        self, alternative: Alternative, region: Region, labels: Tensor, method: Method
    ) -> Sequence[Result]:
        rows, offsets = self.condition.rows(alternative, labels)
        spec = Specification(region, rows, offsets).distinct()
        spec = spec.to(self.posterior.center.device)
        problem = Problem(self.network, self.posterior, spec)
        results = certify(problem, method, seed=self.seed, at_least=self.at_least)
        if results.interrupted:
            raise KeyboardInterrupt  # what is not finished is done again
        return results


def _region(cells: Sequence[Cell], shape: tuple[int, ...]) -> Region:
    lower, upper = (
        torch.from_numpy(np.stack(ends)).reshape(-1, *shape)
        for ends in ([cell.lower for cell in cells], [cell.upper for cell in cells])
    )
    return explicit_box(Box(lower, upper))
