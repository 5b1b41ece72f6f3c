"""Examples to learn from: what fits a network, and how many of them it gets right."""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.layers import parameter_shapes
from bnncert.model.network import Network
from bnncert.train.likelihood import Categorical, Likelihood
from bnncert.train.recipe import BayesByBackprop
from bnncert.train.variational import normalised_layers, random_layers

AT_ONCE = 1000  # inputs evaluated together: the activations of convolutions are large


def accuracy(
    network: Network,
    weights: Tensor,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood | None = None,
) -> float:
    """The share of inputs x [N, *input_shape] that `weights` [size] assigns to their class y [N],
    or under another likelihood to what counts as right.

    For several networks, weights [..., size], the average of their shares.
    """
    own = likelihood or Categorical(network.outputs)
    check_examples(network, x, y, own)
    if weights.shape[-1:] != (network.size,):
        raise InputError(
            f"weights have shape {tuple(weights.shape)}, "
            f"the network takes [..., {network.size}]; fix them"
        )
    with torch.no_grad():
        parts = torch.split(x.to(weights), AT_ONCE)
        outputs = torch.cat([network.forward(weights, part) for part in parts], -2)

    return float(own.right(outputs, y.to(weights.device)).double().mean())


def check_network(network: Network, recipe: BayesByBackprop) -> None:
    """Layers of the kind that the recipe asks for, and inputs that it can augment."""
    if recipe.bayesian != "none" and not any(random_layers(network, recipe.bayesian)):
        raise InputError(
            f"bayesian is {recipe.bayesian!r}, but the network has no Dense layer; give all"
        )
    bare = [k for k in normalised_layers(network) if len(parameter_shapes(network.layers[k])) == 1]
    if recipe.normalise and bare:
        raise InputError(f"normalise folds into biases, and layer {bare[0]} has none; give it one")
    if recipe.normalise and not normalised_layers(network):
        raise InputError("normalise is for hidden layers, and the network has none; leave it out")
    if recipe.augment and len(network.input_shape) not in (2, 3):
        raise InputError(
            f"augment is for images, [height, width] or [channels, height, width]; "
            f"the network takes {network.input_shape}"
        )


def check_examples(network: Network, x: Tensor, y: Tensor, likelihood: Likelihood) -> None:
    """Inputs that fit the network, and for each one target of the likelihood."""
    shape = tuple(x.shape[1:])
    if shape != network.input_shape:
        raise InputError(
            f"inputs have shape {shape}, the network takes {network.input_shape}; reshape them"
        )
    if not bool(x.isfinite().all()):
        raise InputError("inputs hold NaN or infinity; every entry must be finite")
    if y.dim() not in (1, 2) or len(y) != len(x) or len(y) == 0:
        raise InputError(
            f"labels have shape {tuple(y.shape)} for {len(x)} inputs; give one label for each input"
        )
    likelihood.check(y)
