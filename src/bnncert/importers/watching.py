"""What a module does while it runs: every operator that the output depends on, as torch carries
them out one by one.

Tracing follows what a forward shows it. A hook, a forward put in the place of a class's, a branch
on `isinstance`, a change in place through an alias may show it nothing; but to bend what depends on
the input each must run an operator, and to decide by it each must ask for a value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bnncert.importers.activations import FUNCTIONS
from bnncert.importers.moving import MOVES
from bnncert.importers.operations import ATEN, OPERATIONS, PLACED
from bnncert.model.activations import Hardtanh, LeakyReLU, PReLU, ReLU, Sigmoid, Tanh
from bnncert.model.curves import ELU, GELU, SELU, HardSwish, Mish, SiLU, Softplus, Softsign
from bnncert.model.layers import MaxPool2d
from bnncert.model.network import Network

# What functions that are read are made of where torch carries them out; linear, or without values.
# Powers are those of variances in the local reparameterisation of Bayesian layers.
WITHIN = frozenset((
    "_adaptive_avg_pool2d", "_reshape_alias", "_unsafe_view", "addmm", "addmv", "as_strided",
    "baddbmm", "bmm", "convolution", "copy", "dot", "expand_as", "matmul", "mm", "mv",
    "native_batch_norm", "native_channel_shuffle", "positive", "pow", "sqrt", "square", "view_as",
))  # fmt: skip
# These look at shapes alone, or overwrite what was there.
BLIND = frozenset((
    "bernoulli", "empty_like", "exponential", "fill", "full_like", "new_empty", "new_full",
    "new_ones", "new_zeros", "normal", "ones_like", "rand_like", "randn_like", "uniform", "zero",
    "zeros_like",
))  # fmt: skip
# These give sizes that depend on values, by which a forward can decide.
SIZED = frozenset(
    ("_unique2", "bincount", "masked_select", "nonzero", "unique_consecutive", "unique_dim")
)
EXACT = (torch.float32, torch.float64)
# Operators that are not linear, by the layers that they are read as. A SELU is an ELU to torch, and
# of a Softsign what it bends is the absolute value.
BENT: dict[str, type] = {
    "relu": ReLU,
    "leaky_relu": LeakyReLU,
    "_prelu_kernel": PReLU,
    "hardtanh": Hardtanh,
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "gelu": GELU,
    "silu": SiLU,
    "mish": Mish,
    "softplus": Softplus,
    "elu": ELU,
    "hardswish": HardSwish,
    "abs": Softsign,
    **dict.fromkeys(
        ("adaptive_max_pool1d", "adaptive_max_pool2d", "max_pool1d", "max_pool2d",
         "max_pool2d_with_indices"),
        MaxPool2d,
    ),
}  # fmt: skip
KINDS: dict[type, type] = {kind: kind for kind in BENT.values()} | {SELU: ELU}
KNOWN = frozenset((*FUNCTIONS, *MOVES, *OPERATIONS, *PLACED, *ATEN, *BENT)) | WITHIN


@dataclass(frozen=True)
class Step:
    """One operator on what depends on the input: the storages that it reads and writes, how many
    entries it gives, and why it cannot be read, if it cannot."""

    name: str
    reads: frozenset[int]
    writes: frozenset[int]
    entries: int
    strange: str | None


@dataclass(frozen=True)
class Seen:
    """strange: the names of what the output depends on, or was decided by, that cannot be read.
    bent: how many entries of each kind of layer that is not linear it depends on."""

    strange: list[str]
    bent: Counter[type]


def bent_entries(network: Network, inputs: int) -> Counter[type]:
    """How many entries that are not linear in what they are made of the network has, for so many
    inputs."""
    found = Counter[type]()
    for layer, shape in zip(network.layers, network.shapes[1:], strict=True):
        if type(layer) in KINDS:
            found[KINDS[type(layer)]] += inputs * math.prod(shape)
    return found


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Follows what depends on x through all that is run under it, by the storages of tensors."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps: list[Step] = []
        self._asked: set[str] = set()
        self._tainted = {_storage(x)}
        self._kept: list[object] = [x]  # so that no storage is given to another tensor

    def __torch_dispatch__(
        self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        result = func(*args, **options)
        self._kept.append((args, options, result))
        name = str(func._schema.name).rpartition("::")[2]
        name = name if name in KNOWN else name.rstrip("_")
        changed = _tensors(_changed(func, args, options))
        made = _tensors(result) + changed
        if name in BLIND:
            self._tainted -= _storages(changed)
            return result
        given = _tensors((args, options))
        reads = _storages(given)
        if reads & self._tainted:
            self._note(name, given, made)
        return result

    def seen(self, output: object) -> Seen:
        """What the output, which the module returned, depends on."""
        wanted = _storages(_tensors(output))
        strange = set(self._asked)
        if not wanted & self._tainted:
            strange.add("what torch does not see")
        bent = Counter[type]()
        for step in reversed(self._steps):
            if not step.writes & wanted:
                continue
            wanted |= step.reads
            strange |= {step.strange} if step.strange else set()
            if step.name in BENT:
                bent[BENT[step.name]] += step.entries
        return Seen(sorted(strange), bent)

    def _note(self, name: str, given: list[Tensor], made: list[Tensor]) -> None:
        reads, writes = _storages(given), _storages(made)
        self._tainted |= writes
        if not made or name in SIZED or self._chooses(name, given):
            self._asked.add(name)
        entries = made[0].numel() if made else 0
        self._steps.append(Step(name, reads, writes, entries, _strange(name, made)))

    def _chooses(self, name: str, given: list[Tensor]) -> bool:
        """Whether values say which entries are taken."""
        return name == "index" and bool(_storages(given[1:]) & self._tainted)


def _strange(name: str, made: list[Tensor]) -> str | None:
    """Why it cannot be read: nobody knows it, or it rounds."""
    if name not in KNOWN:
        return name
    dtypes = [each.dtype for each in made[:1] if each.dtype not in EXACT]
    return f"{name} in {dtypes[0]}" if dtypes else None


def _changed(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    """The arguments that the operator writes into."""
    named = [argument.name for argument in func._schema.arguments]
    given = dict(zip(named, args, strict=False)) | options
    writes = [each.name for each in func._schema.arguments if each.is_write]
    return [given[name] for name in writes if name in given]


def _tensors(values: object) -> list[Tensor]:
    leaves: Iterable[object] = torch.utils._pytree.tree_leaves(values)
    return [each for each in leaves if isinstance(each, Tensor)]


def _storages(tensors: Iterable[Tensor]) -> frozenset[int]:
    return frozenset(map(_storage, tensors))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
