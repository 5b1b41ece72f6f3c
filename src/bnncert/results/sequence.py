"""Results: what `certify` and `decide` return, a sequence of rows that people can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from bnncert.errors import InputError
from bnncert.results.folder import DECISIONS, RESULTS, result_folder
from bnncert.results.manifest import Manifest
from bnncert.results.rows import Decision, Result, facts

if TYPE_CHECKING:
    import pandas

Row = TypeVar("Row", Result, Decision)
# In a notebook or a prompt: of classes, and of a regression.
SHOWN = ("index", "label", "predicted", "status", "lower", "upper")
REGRESSED = ("index", "low", "high", "output", "status", "lower", "upper")
MOST = 20  # rows shown there


@dataclass(frozen=True, eq=False, repr=False)
class _Rows(Sequence[Row], Generic[Row]):
    """Rows in the order of the inputs.

    interrupted: somebody ended the work, and some inputs have none. about: makes the manifest of
    what was asked, at the time of saving.
    """

    file: ClassVar[str]  # that `save` writes

    rows: tuple[Row, ...]
    interrupted: bool = False
    about: Callable[[], Manifest] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        return self.rows[index]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def mean(self) -> tuple[float, float]:
        """The means of the certified lower and upper bounds; misclassified inputs count 0 below.

        >>> import torch
        >>> from bnncert import Problem, ball, certify, half_space, mlp
        >>> from bnncert.posteriors import Normal
        >>> ones = torch.ones(2).double()
        >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
        >>> lower, upper = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive)).mean()
        >>> lower > 0.99, upper
        (True, 1.0)
        """
        if not self.rows:
            raise InputError("there are no results; certify at least one input")
        count = len(self.rows)
        lower = sum(row.lower for row in self.rows) / count
        upper = sum(row.upper for row in self.rows) / count
        return lower, upper

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a pandas data frame.

        >>> import torch
        >>> from bnncert import Problem, ball, certify, half_space, mlp
        >>> from bnncert.posteriors import Normal
        >>> ones = torch.ones(2).double()
        >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
        >>> results = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))
        >>> results.to_frame().groupby("status")["lower"].mean()  # doctest: +SKIP
        """
        try:
            import pandas
        except ImportError as error:
            raise InputError("to_frame needs pandas: pip install pandas") from error
        return pandas.DataFrame([facts(row) for row in self.rows])

    def save(self, folder: str | Path) -> None:
        """Write `file`, the certificates and the manifest, for `bnncert check` and `bnncert
        report`.

        >>> import torch
        >>> from bnncert import Problem, ball, certify, half_space, mlp
        >>> from bnncert.posteriors import Normal
        >>> ones = torch.ones(2).double()
        >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive)).save(folder)
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['certificates', 'manifest.json', 'results.jsonl']
        """
        several = len({row.index for row in self.rows}) < len(self.rows)
        manifest = None if self.about is None else self.about()
        with result_folder(Path(folder), several, self.file, manifest) as store:
            store(self.rows)

    def _cells(self) -> list[list[str]]:
        found = [facts(row) for row in self.rows[:MOST]]
        return [[_said(row.get(name)) for name in self._shown] for row in found]

    @property
    def _shown(self) -> tuple[str, ...]:
        return REGRESSED if any(row.low is not None for row in self.rows) else SHOWN

    def __repr__(self) -> str:
        table = [list(self._shown), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        said: list[str] = []
        for row in table:
            cells = zip(row, widths, strict=True)
            said.append("  ".join(cell.rjust(width) for cell, width in cells))
        if len(self.rows) > MOST:
            said.append(f"... and {len(self.rows) - MOST} more")
        return "\n".join(said)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in self._shown)
        body = "".join(
            "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in self._cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Results(_Rows[Result]):
    """The certified bounds of P_safe, one row per input.

    >>> import torch
    >>> from bnncert import Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> results = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))
    >>> len(results), results.interrupted, [result.lower > 0.99 for result in results]
    (1, False, [True])
    """

    file = RESULTS


class Decisions(_Rows[Decision]):
    """The certified bounds of predictive means, one row per input.

    >>> import torch
    >>> from bnncert import Problem, ball, decide, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> decide(Problem(mlp(1, 1), Normal(ones, ones / 10), positive))
    index  label  predicted   status  lower  upper
        0      -          -  decided    1.9    2.1
    """

    file = DECISIONS


def _said(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
