"""Questions from VNN-LIB 1.0 files, as the Verification of Neural Networks Competition uses them.

A file declares inputs X_0, X_1, ... and outputs Y_0, Y_1, ... and asserts what makes a
*counterexample*: the property holds for a network iff no x in the input box has outputs that
satisfy the assertions. Each inequality a·y <= b of a counterexample becomes the row a·y - b > 0 of
a safe network; equality is unsafe on both sides. So

    unsafe iff one of several inequalities holds:   safe iff every row is positive,
    unsafe iff several inequalities hold at once:   safe if one of their rows is positive.

In the second case the row with the largest margin is taken, and P_safe of the rows is only a lower
bound of P_safe.

Decimals are exact fractions. A box is rounded outward, so that it holds all inputs that were asked
about. A row is multiplied by a number that makes it whole; one that floats still cannot hold is
made harder to satisfy, never easier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.property_text import Closed, Property, parse
from bnncert.importers.smtlib import (
    Inequality,
)
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.specification import Region, Specification, explicit_box
from bnncert.numerics.rounding import toward

LARGEST = 32 * 2**20  # bytes of a file
# Times its size in the middle of the box, an output may grow where a row's coefficients were
# rounded.
REACH = 2.0**20
WAYS = (-math.inf, math.inf)  # in which the ends of a box are rounded

CONJUNCTION = (
    "counterexamples must satisfy several output inequalities at once: "
    "one of them is refuted everywhere"
)
ROUNDED_ROWS = (
    "an output inequality cannot be written in floats: a slightly harder one is certified"
)
ROUNDED_BOX = "an input interval cannot be written in floats: a slightly larger one is certified"


@dataclass(frozen=True, eq=False)
class Query:
    """No counterexample exists if every specification, one per input box, is safe.

    exact: whether the converse holds too. If not, lower bounds of P_safe stay valid and upper
    bounds do not; `notes` say why.

    >>> from bnncert import ball, half_space
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> Query((positive,), exact=True).notes
    ()
    """

    specifications: tuple[Specification, ...]
    exact: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """coefficients·y + offset > 0 refutes an inequality while `limited` outputs stay in reach."""

    coefficients: tuple[float, ...]
    offset: float
    limited: tuple[int, ...] = ()
    exact: bool = True


def load_vnnlib(path: str | Path, network: Network, weights: Tensor) -> Query:
    """The file's question about `network`.

    The network `weights` (the mean, say) chooses among conjuncts.

    >>> from tempfile import TemporaryDirectory
    >>> from bnncert import mlp
    >>> said = "(declare-const X_0 Real) (assert (>= X_0 0)) (assert (<= X_0 1)) "
    >>> said += "(declare-const Y_0 Real) (assert (<= Y_0 0))"  # a counterexample has y <= 0
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "property.vnnlib").write_text(said)
    ...     query = load_vnnlib(f"{folder}/property.vnnlib", mlp(1, 1), torch.ones(2).double())
    >>> query.specifications[0].region.center
    tensor([[0.5000]], dtype=torch.float64)
    """
    try:
        return _query(read_property(path), network, weights.detach().cpu())
    except InputError as error:
        raise InputError(f"{str(path)!r}, {error}") from error


def read_property(path: str | Path) -> Property:
    """What the file says, exactly; whatever is wrong is named with its line."""
    return parse(_read(Path(path)))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"the file is larger than {LARGEST >> 20} MiB; refused")
        return path.read_bytes().decode("ascii")
    except OSError as error:
        raise InputError(f"the file cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start} is not ASCII: this is no VNN-LIB text (unpack a .gz first)"
        ) from error


def _query(said: Property, network: Network, weights: Tensor) -> Query:
    inputs = len(said.cases[0][0])
    if inputs != math.prod(network.input_shape) or said.outputs != network.outputs:
        raise InputError(
            f"the file has {inputs} inputs and {said.outputs} outputs, the network takes "
            f"{network.input_shape} and has {network.outputs}; give matching ones"
        )
    specifications: list[Specification] = []
    notes: dict[str, None] = {}
    for box, unsafe in said.cases:
        region, exact = _region(box, network)
        outputs = network.forward(weights, region.center)[0]
        reach = _reach(outputs)
        rows: dict[Row, None] = {}
        for together in unsafe:
            refutations = [
                _row(inequality, network.outputs, reach) for inequality in _tightest(together)
            ]
            rows[max(refutations, key=lambda row: _margin(row, outputs))] = None
            notes |= {CONJUNCTION: None} if len(refutations) > 1 else {}
        notes |= {} if exact else {ROUNDED_BOX: None}
        notes |= {} if all(row.exact for row in rows) else {ROUNDED_ROWS: None}
        specifications.append(_specification(region, list(rows), reach))
    return Query(tuple(specifications), not notes, tuple(notes))


def _region(box: Closed, network: Network) -> tuple[Region, bool]:
    """The box rounded outward, and whether points for upper bounds lie in the box itself."""
    ends = [
        [_rounded(end, way) for end in side]
        for side, way in zip(zip(*box, strict=True), WAYS, strict=True)
    ]
    lower, upper = (
        torch.tensor(side, dtype=torch.float64).reshape(1, *network.input_shape) for side in ends
    )
    region = explicit_box(Box(lower, upper))
    inner = region.inner()
    points = zip(inner.lower.flatten().tolist(), inner.upper.flatten().tolist(), strict=True)
    return region, all(
        low <= l and u <= high for (low, high), (l, u) in zip(box, points, strict=True)
    )


def _reach(outputs: Tensor) -> float:
    """A power of two far above every output."""
    largest = float(outputs.abs().max())
    return REACH * 2.0 ** (math.frexp(largest)[1] if 1 < largest < 2.0**500 else 0)


def _rounded(value: Fraction, end: float) -> float:
    try:
        return toward(value, end)
    except OverflowError as error:
        raise InputError("a constant is larger than every float; rescale the property") from error


def _tightest(together: Sequence[Inequality]) -> list[Inequality]:
    """Of inequalities with the same left side, the one that implies the others."""
    found: dict[frozenset[tuple[str, Fraction]], Inequality] = {}
    for inequality in together:
        key = frozenset(inequality.coefficients.items())
        if key not in found or inequality.bound < found[key].bound:
            found[key] = inequality
    return list(found.values())


def _row(inequality: Inequality, outputs: int, reach: float) -> Row:
    """a·y <= b refuted: a·y - b > 0, in floats.

    Multiplied by a common denominator if that makes it exact. Otherwise the offset is rounded down.
    Where coefficients must be rounded, by r_j, Σ r_j·reach is taken off too, which covers outputs
    of at most the reach.
    """
    exact = [inequality.coefficients.get(f"Y_{j}", Fraction(0)) for j in range(outputs)]
    scale = (
        common_factor([*exact, inequality.bound])
        or common_factor(exact)
        or 1 / max(map(abs, exact))
    )
    coefficients = tuple(float(value * scale) for value in exact)
    errors = [
        abs(value * scale - Fraction(near)) for value, near in zip(exact, coefficients, strict=True)
    ]
    target = -inequality.bound * scale - sum(errors) * Fraction(reach)
    offset = _rounded(target, -math.inf)
    limited = tuple(j for j, error in enumerate(errors) if error)
    return Row(coefficients, offset, limited, not limited and Fraction(offset) == target)


def common_factor(values: Sequence[Fraction]) -> Fraction | None:
    """The factor that makes the values whole and coprime, if floats hold those."""
    factor = Fraction(
        math.lcm(*(v.denominator for v in values)), math.gcd(*(v.numerator for v in values))
    )
    return factor if all(_is_float(value * factor) for value in values) else None


def _is_float(value: Fraction) -> bool:
    try:
        return Fraction(float(value)) == value
    except OverflowError:
        return False


def _margin(row: Row, outputs: Tensor) -> float:
    """How far the outputs are on the safe side."""
    values: list[float] = outputs.tolist()
    signed = sum(a * y for a, y in zip(row.coefficients, values, strict=True)) + row.offset
    return signed / math.hypot(*row.coefficients)


def _specification(region: Region, rows: Sequence[Row], reach: float) -> Specification:
    """The rows, and for every output that they need limited -reach < y < reach."""
    matrix = torch.tensor([row.coefficients for row in rows], dtype=torch.float64)
    limited = sorted({j for row in rows for j in row.limited})
    unit = torch.eye(matrix.shape[1], dtype=torch.float64)[limited]
    matrix = torch.cat([matrix, unit, -unit])
    offsets = torch.tensor(
        [row.offset for row in rows] + [reach] * (2 * len(limited)), dtype=torch.float64
    )
    label = _label(matrix, offsets)
    labels = None if label is None else torch.tensor([label])
    return Specification(region, matrix.unsqueeze(0), offsets.unsqueeze(0), labels)


def _label(rows: Tensor, offsets: Tensor) -> int | None:
    """The class that the rows put before all others, or before the one that is asked about."""
    label = int(rows[0].argmax())
    rivals = rows.argmin(-1)
    identity = torch.eye(rows.shape[1], dtype=torch.float64)
    says = torch.equal(rows, identity[label] - identity[rivals]) and not bool(offsets.any())
    different = len({*rivals.tolist()}) == len(rows)
    complete = different and len(rows) in (1, rows.shape[1] - 1)
    return label if says and complete and not bool((rivals == label).any()) else None
