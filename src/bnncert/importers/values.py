"""What stands for a tensor while a module is read: nothing is computed with inputs, only with
constants."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.layers import Shape

BATCH = 7  # examples that a forward sees while it is traced; what depends on it is no network


@dataclass(frozen=True)
class At:
    """A node of the drawing, one for each example, in this shape (without the batch).

    The node may have the same entries, row by row, in another shape. paired: the output of a
    Bayesian layer, which may be a tuple with its divergence.
    """

    node: int
    shape: Shape
    paired: bool = False


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor of the module, or one made of them and of numbers: the same for all inputs.

    name: the parameter's, if it is one. made_of: names of the parameters it was made of.
    """

    value: Tensor
    name: str | None = None
    made_of: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Divergence:
    """What Bayesian layers return beside their output, or was made of it."""


@dataclass(frozen=True)
class Unsized:
    """The input, or what has as many entries, while its shape is not known."""


@dataclass(frozen=True, eq=False)
class Refused:
    """What cannot be read; an error only where the output depends on it.

    instead: of a softmax its input, which will do where nothing follows. elsewhere: another way of
    tracing may read it.
    """

    error: InputError
    instead: At | None = None
    elsewhere: bool = False


@dataclass(frozen=True)
class Place:
    """Where a module computes something: the innermost module, the function it calls (of torch's
    own modules none), and the user's line."""

    path: str
    kind: str
    function: str = ""
    line: str = ""

    def __str__(self) -> str:
        module = f"{self.path}: {self.kind}" if self.path else self.kind
        located = f"{module} ({self.line})" if self.line else module
        return f"{located}: {self.function}" if self.function else located

    def named(self, name: str) -> str:
        """The name that the whole module has for a tensor of this one."""
        return f"{self.path}.{name}" if self.path else name


class UnreadableError(Exception):
    """Why an operation cannot be read; where it stands is added by whoever knows."""

    def __init__(self, why: str, elsewhere: bool = False) -> None:
        super().__init__(why)
        self.elsewhere = elsewhere


class NeedsShapeError(InputError):
    """The input's shape is needed, and nothing has told it."""


class FirstSizeError(Exception):
    """The shape of the input, told by the first layer that has one."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.shape = shape
