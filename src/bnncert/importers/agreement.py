"""Whether a network that was read from a module computes what the module computes.

Reading rests on names and types, and a forward can do what neither shows. So the module is run
once, on the CPU, with every spread so small that its weights are their means.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.modules import own_parameters, undisturbed
from bnncert.importers.reading import Pick, Reading

NO_SPREAD = -100.0  # exp and softplus of it are 4e-44
# Relative to the outputs; in float64 first, where less hides in rounding, else in what most modules
# are made for.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}


def check_agreement(module: nn.Module, reading: Reading, center: Tensor) -> None:
    """An `InputError` where the network at `center` and the module at its means differ on a random
    input.

    A module that does not run so (because it needs a GPU, say) is not compared, and a warning says
    so.
    """
    x = torch.rand(
        2,
        *reading.network.input_shape,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(0),
    )
    logits = reading.network.forward(center, x)
    # A softmax at the end was left out.
    expected = (logits, logits.log_softmax(-1), logits.softmax(-1))
    reason = ""
    for dtype, tolerance in TOLERANCE.items():
        try:
            found = _at_means(module, x.to(dtype), reading.spreads)
        except Exception as error:  # the module's own code, run in a way it may not be made for
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        if not any(_close(found, outputs, tolerance) for outputs in expected):
            raise InputError(
                f"{type(module).__name__} computes something else than the layers read from it; "
                "rewrite its forward as a chain of torch's and Bayesian layers"
            )
        return
    warnings.warn(
        f"{type(module).__name__} does not run ({reason}): not compared with what was read",
        stacklevel=3,
    )


def _close(found: object, expected: Tensor, tolerance: float) -> bool:
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        return False
    return bool(((found - expected).abs() <= tolerance * (1 + expected.abs().max())).all())


def _at_means(module: nn.Module, x: Tensor, spreads: Collection[str]) -> object:
    """The module's output, in evaluation mode, with the tensors called `spreads` at NO_SPREAD."""
    tensors = own_parameters(module) | dict(module.named_buffers(remove_duplicate=False))
    # Tied tensors stay tied.
    copies = {id(value): _copy(value, x.dtype) for value in tensors.values()}
    copies |= {
        id(tensors[name]): torch.full_like(copies[id(tensors[name])], NO_SPREAD) for name in spreads
    }
    state = {name: copies[id(value)] for name, value in tensors.items()}
    with (
        undisturbed(module),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the module's own, which say nothing of what is read
        output = torch.func.functional_call(module, state, (x,))
    return output[0] if isinstance(output, tuple | list) else output


def _copy(value: Tensor, dtype: torch.dtype) -> Tensor:
    copied = value.detach().cpu().clone()
    return copied.to(dtype) if copied.is_floating_point() else copied
