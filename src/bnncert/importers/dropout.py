"""Monte Carlo dropout: networks under dropout masks that are drawn once, as weight samples.

A mask m holds 0 with probability p and 1 / (1 - p) otherwise. Where it multiplies what enters a
linear layer, it can multiply the layer's weights instead,

    W (m ∘ h) + b  =  (W diag(m)) h + b,

and on the way to that layer it passes whatever satisfies f(m ∘ h) = m ∘ f(h) for m >= 0: ReLU,
leaky and parametric ReLU, and pools if it is the same all over a channel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.agreement import check_agreement
from bnncert.importers.module import read
from bnncert.importers.modules import own_parameters
from bnncert.importers.named import refuse_bayesian
from bnncert.importers.reading import Dropout, Pick, Reading
from bnncert.model.activations import LeakyReLU, PReLU, ReLU
from bnncert.model.layers import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d
from bnncert.model.network import Network
from bnncert.posteriors.empirical import Empirical

LARGEST = 2**28  # numbers in the samples: 2 GiB


def from_dropout(
    module: nn.Module,
    samples: int,
    seed: int = 0,
    input_shape: Sequence[int] | None = None,
    output: Pick = None,
) -> tuple[Network, Empirical]:
    """The network, and its weights under `samples` draws of the masks of its dropouts, each draw as
    likely.

    A sample is the module with dropout switched on, all else as in evaluation, and the masks of one
    draw. Certificates speak of the masks drawn here, not of all 2ⁿ that dropout on n values can
    draw.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.2), nn.Linear(3, 2))
    >>> network, posterior = from_dropout(model, samples=10)
    >>> posterior.samples.shape
    torch.Size([10, 17])
    """
    reading = read(module, input_shape, dropout=True, output=output)
    refuse_bayesian(reading)
    network = reading.network
    weights = reading.flat(own_parameters(module))
    _check_samples(samples, network.size)
    if not reading.dropouts:
        raise InputError(
            f"{type(module).__name__} has no dropout with p > 0, so nothing to draw; use from_torch"
        )
    check_agreement(module, reading, weights)

    parameters = [
        [own.expand(samples, *own.shape) for own in layer] for layer in network.split(weights)
    ]
    for dropout, mask in zip(reading.dropouts, draw_masks(reading, samples, seed), strict=True):
        for position, factor in _folded(dropout, mask, network):
            parameters[position][0] = parameters[position][0] * factor
    drawn = torch.cat([own.flatten(1) for layer in parameters for own in layer], 1)
    return network, Empirical(drawn)


def draw_masks(reading: Reading, samples: int, seed: int) -> list[Tensor]:
    """Each dropout's masks [samples, *shape], or [samples, channels, 1, ...] for whole channels."""
    generator = np.random.default_rng(seed)
    masks = []
    for dropout in reading.dropouts:
        shape = reading.network.shapes[dropout.node]
        if dropout.kind not in ("dropout", "dropout2d") or not dropout.p < 1:
            raise _refusal(
                dropout,
                "is not one that keeps values, or channels, with a probability 1 - p above 0",
            )
        if dropout.kind == "dropout2d":
            shape = (shape[0], *[1] * (len(shape) - 1))
        kept = torch.from_numpy(generator.random((samples, *shape)) >= dropout.p)
        masks.append(kept.double() / (1 - dropout.p))
    return masks


def _folded(dropout: Dropout, mask: Tensor, network: Network) -> list[tuple[int, Tensor]]:
    """Which layers' weights the mask multiplies, and by what factor [samples, ...]."""
    if dropout.normalised:
        raise _refusal(dropout, "stands before a batch normalisation; put it behind")
    return _followed(dropout, mask, network, dropout.readers)


def _followed(
    dropout: Dropout, mask: Tensor, network: Network, readers: Sequence[int]
) -> list[tuple[int, Tensor]]:
    """The same for what the layers `readers` read, and what reads those that it passes."""
    if not readers:
        raise _refusal(dropout, "acts on the output, with no Linear or Conv2d after it")
    found = []
    for i in readers:
        layer = network.layers[i]
        if isinstance(layer, Conv2d | AvgPool2d | MaxPool2d) and mask[0, 0].numel() > 1:
            raise _refusal(
                dropout,
                (
                    f"drops single values before {type(layer).__name__}; "
                    "only channels can be (Dropout2d)"
                ),
            )
        if isinstance(layer, Dense):
            found.append((i, mask.unsqueeze(-1)))  # weights [inputs, outputs]
        elif isinstance(layer, Conv2d):
            found.append((i, _by_channel(layer, mask)))
        elif isinstance(layer, Flatten):
            flat = mask.expand(-1, *network.shape_before(i)).flatten(1)
            found += _followed(dropout, flat, network, network.readers[i + 1])
        elif isinstance(layer, ReLU | LeakyReLU | PReLU | AvgPool2d | MaxPool2d):
            found += _followed(dropout, mask, network, network.readers[i + 1])
        else:
            raise _refusal(dropout, f"stands before {type(layer).__name__}; put it behind")
    return found


def _by_channel(layer: Conv2d, mask: Tensor) -> Tensor:
    """A mask [samples, in, 1, 1] for weights [out, in / groups, height, width]."""
    grouped = mask.reshape(len(mask), layer.groups, -1)
    return grouped.repeat_interleave(layer.out_channels // layer.groups, 1)[..., None, None]


def _refusal(dropout: Dropout, why: str) -> InputError:
    return InputError(
        f"{dropout.place} {why}; a mask must fold into the weights of the next Linear or Conv2d"
    )


def _check_samples(samples: int, size: int) -> None:
    if not isinstance(samples, int) or samples < 1:
        raise InputError(f"samples is {samples!r}; give a whole number of at least 1")
    if samples * size > LARGEST:
        raise InputError(
            f"{samples} samples of {size} weights are {samples * size * 8 / 2**30:.1f} GiB, "
            f"and at most {LARGEST * 8 >> 30} GiB are taken; draw fewer"
        )
