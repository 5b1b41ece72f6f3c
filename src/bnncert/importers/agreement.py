"""Whether a network that was read from a module computes what the module computes.

Reading rests on names and types, and a forward can do what neither shows. So the module is run
once, on the CPU, with every spread so small that its weights are their means.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.modules import own_parameters, undisturbed
from bnncert.importers.reading import Pick, Reading
from bnncert.importers.values import BATCH
from bnncert.importers.watching import Seen, Watch, bent_entries
from bnncert.model.layers import Shape

NO_SPREAD = -100.0  # exp and softplus of it are 4e-44
# Relative to the outputs; in float64 first, where less hides in rounding, else in what most modules
# are made for.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
EACH = 2  # inputs of each kind; in all no multiple of the number that a forward is traced with
SIZES = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5)


def check_agreement(module: nn.Module, reading: Reading, center: Tensor) -> None:
    """An `InputError` where the network at `center` and the module at its means differ on random
    inputs, 0, in [0, 1], and of both signs in all SIZES, so that what is cut off somewhere is seen;
    and where the module runs what cannot be read, or what was not.

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
        if _run(module, x[:BATCH], reading)[0] is not None:
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
        except InputError:
            raise
        except Exception as error:  # the module's own code, run in a way it may not be made for
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return None, reason


def _inputs(shape: Shape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"dtype": torch.float64, "generator": generator}
    zero = torch.zeros(1, *shape, dtype=torch.float64)
    positive = torch.rand(EACH, *shape, **options)
    signed = (size * torch.randn(EACH, *shape, **options) for size in SIZES)
    return torch.cat([zero, positive, *signed])


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
        with Watch(x) as watch:
            returned = torch.func.functional_call(module, state, (x,))
        output = _picked(returned, reading.pick)
    _check_seen(module, watch.seen(output), bent_entries(reading.network, len(x)))
    return output


def _check_seen(module: nn.Module, seen: Seen, read: Counter[type]) -> None:
    """An `InputError` where the module ran what cannot be read, or what was not."""
    more = {kind.__name__ for kind in read | seen.bent if read[kind] != seen.bent[kind]}
    found = [*seen.strange, *sorted(more)]
    if found:
        raise InputError(
            f"{type(module).__name__} computes something else than the layers read from it: on "
            f"what depends on its input it runs {', '.join(found)} where tracing does not see it "
            "(in a hook, or a change in place); write what it does into its forward, with torch's "
            "and Bayesian layers"
        )


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
