"""Whether a network that was read from a module computes what the module computes.

Reading rests on names and types, and a forward can do what neither shows. So the module is run once, on the CPU and
in float64, with every spread so small that its weights are their means.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.module import Reading
from bnncert.importers.tracing import own_parameters, undisturbed

NO_SPREAD = -100.0  # exp and softplus of it are 4e-44
TOLERANCE = 1e-6  # relative to the outputs: some layers draw their noise in float32


def check_agreement(module: nn.Module, reading: Reading, center: Tensor, spreads: Collection[str] = ()) -> None:
    """An `InputError` where the network at `center` and the module at its means differ on a random input.

    A module that does not run so (because it needs a GPU, say) is not compared.
    """
    x = torch.rand(2, *reading.network.input_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = reading.network.forward(center, x)
    found = _at_means(module, x, spreads)
    if found is None:
        return
    # A softmax at the end is not part of the network.
    if not any(_close(found, outputs) for outputs in (logits, logits.log_softmax(-1), logits.softmax(-1))):
        raise InputError(
            f"{type(module).__name__} computes something else than the layers read from it; "
            "rewrite its forward as a chain of torch's and Bayesian layers"
        )


def _close(found: Tensor, expected: Tensor) -> bool:
    scale = TOLERANCE * (1 + float(expected.abs().max()))
    return found.shape == expected.shape and bool(((found - expected).abs() <= scale).all())


def _at_means(module: nn.Module, x: Tensor, spreads: Collection[str]) -> Tensor | None:
    """The module's output, in evaluation mode, with the tensors called `spreads` at NO_SPREAD."""
    tensors = own_parameters(module) | dict(module.named_buffers(remove_duplicate=False))
    copies = {id(value): _copy(value) for value in tensors.values()}  # tied tensors stay tied
    copies |= {id(tensors[name]): torch.full_like(copies[id(tensors[name])], NO_SPREAD) for name in spreads}
    state = {name: copies[id(value)] for name, value in tensors.items()}
    with undisturbed(module), torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            output = torch.func.functional_call(module, state, (x,))
        except Exception:  # the module's own code, run in a way it may not be made for
            return None
    first = output[0] if isinstance(output, tuple | list) else output
    return first if isinstance(first, Tensor) else None


def _copy(value: Tensor) -> Tensor:
    copied = value.detach().cpu().clone()
    return copied.double() if copied.is_floating_point() else copied
