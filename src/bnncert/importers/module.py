"""The architecture of a torch module, and where in the module the parameters of the network are.

A batch normalisation is folded into the layer before it: with s = γ / √(variance + ε),

    γ (W x + b - mean) / √(variance + ε) + β  =  (s W) x + s b + (β - s mean).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.importers.conventions import Convention, convention_of
from bnncert.importers.reading import Cast, Dropout, Reading, Source, exact
from bnncert.importers.tracing import Step, View, chain, is_standard, own_parameters, refusal
from bnncert.model.activations import Hardtanh, PReLU
from bnncert.model.curves import ELU, GELU, SELU, HardSwish, Mish, SiLU, Softplus, Softsign
from bnncert.model.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Shape,
    Sigmoid,
    Tanh,
    Weighted,
    output_shape,
    parameter_shapes,
)
from bnncert.model.network import Network

SOFTMAX = (nn.Softmax, nn.LogSoftmax)
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout)
LEAST_THRESHOLD = 20  # torch's own
ACTIVATIONS: dict[type[nn.Module], Callable[[Any], Layer]] = {
    nn.ReLU: lambda _: ReLU(),
    nn.LeakyReLU: lambda module: LeakyReLU(float(module.negative_slope)),
    nn.Tanh: lambda _: Tanh(),
    nn.Sigmoid: lambda _: Sigmoid(),
    nn.GELU: lambda module: GELU(module.approximate),
    nn.SiLU: lambda _: SiLU(),
    nn.Mish: lambda _: Mish(),
    nn.Softplus: lambda module: _softplus(module),
    nn.ELU: lambda module: ELU(float(module.alpha)),
    nn.SELU: lambda _: SELU(),
    nn.Hardswish: lambda _: HardSwish(),
    nn.Softsign: lambda _: Softsign(),
    nn.ReLU6: lambda _: Hardtanh(0.0, 6.0),
    nn.Hardtanh: lambda module: Hardtanh(float(module.min_val), float(module.max_val)),
}


def read(
    module: nn.Module,
    input_shape: Sequence[int] | None = None,
    dropout: bool = False,
    cast: Cast = exact,
) -> Reading:
    """The network that the module computes in evaluation mode.

    An `InputError` names what cannot be read. `input_shape` (without the batch) is needed only
    where a convolution or a pool comes first. Dropouts are left out, with a warning unless
    `dropout` says that the caller puts them back.
    """
    if any(value.is_meta for value in own_parameters(module).values()):
        raise InputError(
            f"{type(module).__name__} is on the meta device, where weights have no values; "
            "load them first"
        )
    steps = _without_softmax(chain(module))
    first = _first_shape(steps) if input_shape is None else tuple(int(size) for size in input_shape)
    shape = first
    layers = list[Layer]()
    sources = list[dict[str, Source]]()
    dropouts: list[Dropout] = []

    for step in steps:
        if isinstance(step.module, nn.BatchNorm1d | nn.BatchNorm2d):
            if not layers or not isinstance(layers[-1], Dense | Conv2d):
                raise refusal(step, "has no Linear or Conv2d directly before it to be folded into")
            layers[-1], sources[-1] = _fold(step, step.module, layers[-1], sources[-1], cast)
            dropouts = [
                replace(each, normalised=True) if each.position == len(layers) else each
                for each in dropouts
            ]
            continue

        if isinstance(step.module, DROPOUT):
            dropouts += [Dropout(step, len(layers))] if step.module.p > 0 else []
            continue
        layer, own = _layer(step, shape)
        if layer is not None:
            shape = _next_shape(step, layer, shape)
            layers.append(layer)
            sources += [own] if own else []

    _refuse_shared_weights(module, sources)
    _announce(steps, [] if dropout else dropouts)
    network = Network(first, tuple(layers))
    ordered = [part[letter] for part in sources for letter in "Wb" if letter in part]
    named = dict(zip(network.parameters, ordered, strict=True))
    return Reading(network, named, tuple(dropouts), cast)


def _without_softmax(steps: list[Step]) -> list[Step]:
    """Without a softmax at the end: it keeps the order of the classes, so the logits decide."""
    kept = [step for step in steps if not isinstance(step.module, nn.Identity)]
    if kept and isinstance(kept[-1].module, SOFTMAX) and kept[-1].module.dim in (1, -1, None):
        return kept[:-1]
    return kept


def _first_shape(steps: list[Step]) -> Shape:
    """The input's shape where the first layer with a size tells it."""
    for step in steps:
        if is_standard(step.module, nn.Linear):
            return (int(step.module.in_features),)  # type: ignore[arg-type]
        weight = _bayesian_weight(step)
        if weight is not None and weight.dim() == 2:
            return (weight.shape[1],)
        if weight is not None or isinstance(step.module, nn.Conv2d | nn.AvgPool2d | nn.MaxPool2d):
            raise InputError(f"{step} comes first: give input_shape=(channels, height, width)")
    raise InputError(
        "the module has no Linear or Conv2d that its output depends on; there is nothing to certify"
    )


def _next_shape(step: Step, layer: Layer, shape: Shape) -> Shape:
    try:
        return output_shape(layer, shape)
    except InputError as error:
        raise InputError(f"{step} does not fit: {error}") from error


def _bayesian_weight(step: Step) -> Tensor | None:
    present = own_parameters(step.module)
    convention = convention_of(present)
    names = convention.names("weight", present) if convention else None
    return present[names[0]] if names else None


def _layer(step: Step, shape: Shape) -> tuple[Layer | None, dict[str, Source] | None]:
    """The layer and the sources of its weights; no layer where the step changes nothing."""
    module: Any = step.module
    if _bayesian_weight(step) is not None:
        return _bayesian_layer(step)
    if is_standard(module, nn.Linear, nn.Conv2d):
        return _plain_layer(step)
    if is_standard(module, nn.AvgPool2d, nn.MaxPool2d):
        return _pool(step), None
    if isinstance(module, View | nn.Flatten):
        return _flatten(step, shape), None
    for kind, make in ACTIVATIONS.items():
        if is_standard(module, kind):
            return make(module), None
    if is_standard(module, nn.PReLU):
        return _parametric(module, shape), None
    raise refusal(
        step,
        "is not the last, over the classes" if isinstance(module, SOFTMAX) else "is not supported",
    )


def _softplus(module: nn.Softplus) -> Layer:
    """Torch's is z itself beyond the threshold, which differs by at most exp(-threshold) / β."""
    if module.threshold < LEAST_THRESHOLD:
        raise InputError(
            f"Softplus with threshold={module.threshold} is not log(1 + exp(beta z)) / beta, which "
            f"is what can be certified; give it at least {LEAST_THRESHOLD}"
        )
    return Softplus(float(module.beta))


def _parametric(module: nn.PReLU, shape: Shape) -> Layer:
    """At the slopes that it has: certain numbers, of which a posterior has none."""
    slopes = tuple(module.weight.detach().double().tolist())
    spread = () if len(slopes) == 1 else (len(slopes), *[1] * (len(shape) - 1))
    return PReLU(slopes, spread)


def _flatten(step: Step, shape: Shape) -> Layer | None:
    module: Any = step.module
    if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1):
        raise refusal(
            step, f"flattens dimensions {module.start_dim} to {module.end_dim} (write x.flatten(1))"
        )
    sizes = module.sizes if isinstance(module, View) else (-1,)
    known = math.prod(size for size in sizes if size != -1)
    wanted = tuple(math.prod(shape) // known if size == -1 else size for size in sizes)
    if wanted == shape:
        return None
    if wanted != (math.prod(shape),):
        raise refusal(step, f"makes {sizes} of {shape}")
    return Flatten()


def _pool(step: Step) -> Layer:
    module: Any = step.module
    plain = (
        module.padding in (0, (0, 0))
        and not module.ceil_mode
        and getattr(module, "dilation", 1) in (1, (1, 1))
    )
    if (
        not plain
        or getattr(module, "divisor_override", None) is not None
        or getattr(module, "return_indices", False)
    ):
        raise refusal(step, "has padding, dilation, ceil_mode, a divisor or indices")
    return (MaxPool2d if isinstance(module, nn.MaxPool2d) else AvgPool2d)(
        module.kernel_size, module.stride
    )


def _plain_layer(step: Step) -> tuple[Layer, dict[str, Source]]:
    module: Any = step.module
    own = module._parameters
    if "parametrizations" in module._modules or "weight_g" in own or "weight_orig" in own:
        raise refusal(
            step,
            "has a weight made of others (remove weight or spectral normalisation, or pruning)",
        )
    bias = module.bias is not None
    if isinstance(module, nn.Linear):
        layer: Weighted = Dense(module.in_features, module.out_features, bias)
    else:
        layer = _convolution(step, module.in_channels, module.out_channels, bias)
    return layer, _sources(step, layer, None, {"W": ("weight", None), "b": ("bias", None)})


def _bayesian_layer(step: Step) -> tuple[Layer, dict[str, Source]]:
    module: Any = step.module
    present = own_parameters(module)
    convention = convention_of(present)
    weight, bias = (
        convention.names(part, present) if convention else None for part in ("weight", "bias")
    )
    if weight is None:
        raise refusal(step, "has no weight")
    # blitz keeps the parameters of a bias that it was told not to use.
    if getattr(module, "bias", True) is False:
        bias = None
    shape = tuple(present[weight[0]].shape)
    if len(shape) == 2:
        layer: Weighted = Dense(shape[1], shape[0], bias is not None)
        declared: Shape = (
            getattr(module, "out_features", shape[0]),
            getattr(module, "in_features", shape[1]),
        )
        if "Embedding" in type(module).__name__:
            raise refusal(step, "is not supported")
    else:
        if len(shape) != 4 or "Transpose" in type(module).__name__ or not hasattr(module, "stride"):
            raise refusal(step, f"with weights of shape {shape} is not supported")
        layer = _convolution(step, shape[1], shape[0], bias is not None)
        declared = (layer.out_channels, layer.in_channels, *layer.kernel)
    if declared != shape:
        raise refusal(step, f"has weights of shape {shape} where {declared} belongs")
    return layer, _sources(step, layer, convention, {"W": weight, "b": bias or ("", None)})


def _sources(
    step: Step,
    layer: Weighted,
    convention: Convention | None,
    names: Mapping[str, tuple[str, str | None]],
) -> dict[str, Source]:
    """Names and shapes as the whole module has them."""
    found = {}
    for letter, shape in parameter_shapes(layer).items():
        name, spread = names[letter]
        own = shape[::-1] if isinstance(layer, Dense) else shape
        found[letter] = Source(
            step.named(name), own, step.named(spread) if spread else None, convention
        )
    return found


def _convolution(step: Step, inputs: int, outputs: int, bias: bool) -> Conv2d:
    module: Any = step.module
    for name, plain in (("groups", 1), ("dilation", 1), ("padding_mode", "zeros")):
        value = getattr(module, name, plain)
        if value not in (plain, (plain, plain)):
            raise refusal(step, f"has {name}={value!r} where only {plain!r} is supported")
    layer = Conv2d(inputs, outputs, module.kernel_size, module.stride, (0, 0), bias)
    padding = module.padding
    if padding == "valid":
        padding = 0
    elif padding == "same":
        if any(size % 2 == 0 for size in layer.kernel):
            raise refusal(step, "has padding='same' with an even kernel, which pads one side more")
        padding = tuple(size // 2 for size in layer.kernel)
    return replace(layer, padding=padding)


def _fold(
    step: Step,
    norm: nn.BatchNorm1d | nn.BatchNorm2d,
    layer: Dense | Conv2d,
    sources: dict[str, Source],
    cast: Cast,
) -> tuple[Layer, dict[str, Source]]:
    """The layer and the normalisation after it as one layer."""
    if norm.running_mean is None or norm.running_var is None:
        raise refusal(step, "keeps no running statistics: its output depends on the batch")
    outputs = layer.outputs if isinstance(layer, Dense) else layer.out_channels
    if norm.num_features != outputs or isinstance(layer, Dense) != isinstance(norm, nn.BatchNorm1d):
        raise refusal(
            step, f"normalises {norm.num_features} features and does not fit the layer before it"
        )
    # Clones: a training step writes into the statistics, before or after gradients go back.
    mean = cast(norm.running_mean).clone()
    variance = cast(norm.running_var).clone()
    gamma = torch.ones_like(mean) if norm.weight is None else cast(norm.weight)
    beta = torch.zeros_like(mean) if norm.bias is None else cast(norm.bias)

    scale = gamma / (variance + norm.eps).sqrt()
    bias = sources.get("b", Source(None, (outputs,)))
    folded = {"W": _rescaled(sources["W"], scale), "b": _rescaled(bias, scale, beta - scale * mean)}
    return replace(layer, bias=True), folded


def _rescaled(source: Source, scale: Tensor, shift: Tensor | None = None) -> Source:
    """Followed by y = scale · x + shift."""
    moved = shift if source.shift is None or shift is None else scale * source.shift + shift
    return replace(
        source, scale=scale if source.scale is None else scale * source.scale, shift=moved
    )


def _refuse_shared_weights(module: nn.Module, sources: list[dict[str, Source]]) -> None:
    """In the network every layer's weights are drawn on their own."""
    tensors = own_parameters(module)
    seen: dict[int, str] = {}
    for name in (
        source.name for part in sources for source in part.values() if source.name is not None
    ):
        key = id(tensors.get(name, name))
        if key in seen:
            raise InputError(
                f"the module uses {name!r} twice; weights that two layers share are not supported"
            )
        seen[key] = name


def _announce(steps: Sequence[Step], left_out: Sequence[Dropout]) -> None:
    """Warn of what is read otherwise than one might expect."""
    if left_out:
        names = ", ".join(str(dropout.step) for dropout in left_out)
        warnings.warn(
            (
                f"{names}: left out as in evaluation; "
                "what is certified is not Monte Carlo dropout (from_dropout reads it)"
            ),
            stacklevel=4,
        )
    for step in steps:
        convention = convention_of(own_parameters(step.module))
        if convention and type(step.module).__module__.partition(".")[0] != convention.package:
            warnings.warn(
                f"{step} is not from {convention.library} but names its weights in the same way: "
                f"it is read with {convention.formula}",
                stacklevel=4,
            )
        if convention and _is_frozen(step.module):
            warnings.warn(f"{step} is frozen; its posterior is read all the same", stacklevel=4)


def _is_frozen(module: nn.Module) -> bool:
    """Told to use one set of weights: by a flag (blitz, torch-uncertainty), by noise (torchbnn)."""
    flags = (getattr(module, "freeze", None), getattr(module, "frozen", None))
    return any(flag is True for flag in flags) or module._buffers.get("weight_eps") is not None
