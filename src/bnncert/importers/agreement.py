"""Whether a network that was read from a module computes what the module computes.

Reading rests on names and types, and a forward can do what neither shows. So the module is run
once, on the CPU, with every spread so small that its weights are their means.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.modules import own_parameters, undisturbed
from bnncert.importers.reading import Pick, Reading
from bnncert.importers.values import BATCH
from bnncert.model.layers import Shape

NO_SPREAD = -100.0  # exp and softplus of it are 4e-44
# Relative to the outputs; in float64 first, where less hides in rounding, else in what most modules
# are made for.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
EACH = 2  # inputs of each kind; in all another number than a forward is traced with
LARGE = 10.0


def check_agreement(module: nn.Module, reading: Reading, center: Tensor) -> None:
    """An `InputError` where the network at `center` and the module at its means differ on random
    inputs: in [0, 1], of both signs, and large, so that what is cut off somewhere is seen.

    A module that does not run so (because it needs a GPU, say) is not compared, and a warning says
    so.
    """
    x = _inputs(reading.network.input_shape)
    logits = reading.network.forward(center, x)
    # A softmax at the end was left out.
    expected = (logits, logits.log_softmax(-1), logits.softmax(-1))
    found, reason = _run(module, x, reading)
    if found is None:
        # As many examples as a forward is traced with: it may be made for no other number.
        if _run(module, torch.cat([x, x])[:BATCH], reading)[0] is not None:
            raise InputError(
                f"{type(module).__name__} does not take any number of inputs ({reason})"
            )
        warnings.warn(
            f"{type(module).__name__} does not run ({reason}): not compared with what was read",
            stacklevel=3,
        )
        return
    output, tolerance = found
    if not any(_close(output, outputs, tolerance) for outputs in expected):
        raise InputError(
            f"{type(module).__name__} computes something else than the layers read from it "
            "(a hook, a change in place, a layer of one's own); write what it does into its "
            "forward, with torch's and Bayesian layers"
        )


def _run(module: nn.Module, x: Tensor, reading: Reading) -> tuple[tuple[object, float] | None, str]:
    """The output at the means, and how close it must be; else why the module does not run."""
    reason = ""
    for dtype, tolerance in TOLERANCE.items():
        try:
            # A copy: a forward may change its input.
            return (_at_means(module, x.to(dtype, copy=True), reading), tolerance), reason
        except Exception as error:  # the module's own code, run in a way it may not be made for
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return None, reason


def _inputs(shape: Shape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"dtype": torch.float64, "generator": generator}
    signed = torch.randn(2 * EACH, *shape, **options)
    return torch.cat([torch.rand(EACH, *shape, **options), signed[:EACH], LARGE * signed[EACH:]])


def _close(found: object, expected: Tensor, tolerance: float) -> bool:
    """Input by input: what is large for one hides nothing of another."""
    if not isinstance(found, Tensor) or found.shape not in (expected.shape, _numbers(expected)):
        return False
    apart = (found.reshape(expected.shape) - expected).abs()
    return bool((apart <= tolerance * (1 + expected.abs().amax(-1, keepdim=True))).all())


def _numbers(expected: Tensor) -> torch.Size:
    """The shape [inputs] that a module may give one output."""
    return expected.shape[:1] if expected.shape[1] == 1 else expected.shape


def _at_means(module: nn.Module, x: Tensor, reading: Reading) -> object:
    """The module's output, in evaluation mode, with every spread at NO_SPREAD."""
    tensors = own_parameters(module) | dict(module.named_buffers(remove_duplicate=False))
    # Tied tensors stay tied.
    copies = {id(value): _copy(value, x.dtype) for value in tensors.values()}
    copies |= {
        id(tensors[name]): torch.full_like(copies[id(tensors[name])], NO_SPREAD)
        for name in reading.spreads
    }
    state = {name: copies[id(value)] for name, value in tensors.items()}
    with (
        undisturbed(module),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the module's own, which say nothing of what is read
        return _picked(torch.func.functional_call(module, state, (x,)), reading.pick)


def _picked(returned: Any, pick: Pick) -> object:
    """The output that was read, out of those that the module returns."""
    if pick is None or isinstance(returned, Tensor):
        return returned
    if isinstance(pick, str) and not isinstance(returned, Mapping):
        return getattr(returned, pick)
    return returned[pick]


def _copy(value: Tensor, dtype: torch.dtype) -> Tensor:
    copied = value.detach().cpu().clone()
    return copied.to(dtype) if copied.is_floating_point() else copied
