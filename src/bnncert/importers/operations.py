"""What functions, methods and operators of ATen make of activations, by their names.

To add one that has no parameters and works entry by entry, list it in `activations`; one that only
rearranges entries in `moving`; any other here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from bnncert.errors import InputError
from bnncert.importers import arithmetic, linear, pooling
from bnncert.importers.drawing import Drawing, Mark
from bnncert.importers.values import At, Held, Place, Refused, UnreadableError
from bnncert.model.moves import Concat, Pad

READ = (
    "what can be read: Linear, Conv1d, Conv2d, BatchNorm, pools and means, activations, sums, "
    "arithmetic with constants, cat, slices, reshapes (docs/importers/torch.md)"
)
# Of names that say too little, or for which there is something to say.
WHY = {
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell", "lstm", "gru"),
        "is not supported: its steps multiply activations, for which there are no bounds here",
    ),
    **dict.fromkeys(
        ("LayerNorm", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "RMSNorm", "layer_norm",
         "group_norm", "instance_norm", "rms_norm", "native_layer_norm"),
        "is not supported: it divides by a spread of its own input, for which there are no bounds "
        "here; a BatchNorm can be read",
    ),
    **dict.fromkeys(
        ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer",
         "TransformerEncoder", "TransformerDecoder", "scaled_dot_product_attention"),
        "is not supported: attention multiplies activations, for which there are no bounds here",
    ),
    **dict.fromkeys(
        ("Embedding", "EmbeddingBag", "embedding"),
        "is not supported: it looks numbers up, and has no inputs that could be perturbed",
    ),
}  # fmt: skip
# In words that are nobody's function.
SPELLED = {
    "getitem": "indexing", "setitem": "assignment to a part", "add": "+", "iadd": "+=", "sub": "-",
    "isub": "-=", "mul": "*", "imul": "*=", "truediv": "/", "itruediv": "/=", "div": "/",
    "matmul": "@", "neg": "-", "pow": "**",
}  # fmt: skip


def why_not(name: str) -> str:
    return WHY.get(name, f"is not supported; {READ}")


def concatenated(drawing: Drawing, tensors: object, dim: int = 0) -> At:
    parts = _all(tensors)
    axis = dim % (len(parts[0].shape) + 1)
    if axis == 0:
        raise UnreadableError("joins the examples of a batch; give another dim")
    return drawing.append(Concat(axis - 1), *parts) if len(parts) > 1 else parts[0]


def stacked(drawing: Drawing, tensors: object, dim: int = 0) -> At:
    parts = _all(tensors)
    shape = parts[0].shape
    axis = dim % (len(shape) + 2)
    if axis == 0:
        raise UnreadableError("joins the examples of a batch; give another dim")
    if any(part.shape != shape for part in parts):
        raise UnreadableError("of different shapes is not supported")
    apart = [At(part.node, (*shape[: axis - 1], 1, *shape[axis - 1 :])) for part in parts]
    return concatenated(drawing, apart, axis)


def _all(tensors: object) -> list[At]:
    if not isinstance(tensors, list | tuple):
        raise UnreadableError("takes a list of activations", elsewhere=True)
    if not tensors or not all(isinstance(part, At) for part in tensors):
        raise UnreadableError("of constants is not supported")
    return [*tensors]


def padded(
    drawing: Drawing, x: At, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> At:
    """Zeros beside the last dimensions, in pairs from the last on."""
    rank = len(x.shape)
    pairs = [(0, 0)] * rank
    for k, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        if k < rank:
            pairs[rank - 1 - k] = before, after
        elif before or after:
            raise UnreadableError("adds examples to a batch")
    if mode != "constant" or value:
        raise UnreadableError(
            f"with mode={mode!r} and value={value} is not supported; only zeros are"
        )
    if min(map(min, pairs)) < 0:
        raise UnreadableError("cuts (negative sizes); slice instead")
    return drawing.append(Pad(*(tuple(side) for side in zip(*pairs, strict=True))), x)


def left_out(kind: str) -> Callable[..., At]:
    """A dropout: nothing, in evaluation."""

    def marked(
        drawing: Drawing,
        place: Place,
        x: At,
        p: float = 0.5,
        training: bool = True,
        _: bool = False,
    ) -> At:
        if training is not False:
            raise UnreadableError("stays on in evaluation (give it training=self.training)")
        return drawing.mark(Mark(place, kind, float(p)), x) if p > 0 else x

    return marked


def softmax(
    _: Drawing, place: Place, x: At, dim: int | None = None, *__: Any, **___: Any
) -> Refused:
    """Of classes at the end it keeps the order, so that the logits decide."""
    # Of one class it is 1, whatever the logit.
    over_classes = len(x.shape) == 1 and x.shape[0] > 1 and dim in (1, -1, None)
    error = InputError(f"{place} is not the last, over the classes; leave it out")
    return Refused(error, instead=x if over_classes else None)


def unchanged(_: Drawing, x: At, *arguments: object, **options: object) -> At:
    """A copy, or a move to another device or between float32 and float64."""
    check_exact(arguments, options)
    return x


def check_exact(arguments: Sequence[object], options: Mapping[str, object]) -> None:
    """Refuse a dtype that rounds more than float32."""
    for value in (*arguments, *options.values()):
        if isinstance(value, torch.dtype) and value not in (torch.float32, torch.float64):
            raise UnreadableError(f"computes in {value}")


def batch_norm_of_aten(
    drawing: Drawing, x: At, weight: Held, bias: Held, mean: Held, variance: Held, *rest: Any
) -> At:
    training, momentum, eps = rest[:3]
    return linear.batch_norm(drawing, x, mean, variance, weight, bias, training, momentum, eps)


def evaluated_batch_norm(
    drawing: Drawing, x: At, weight: Held, bias: Held, mean: Held, variance: Held, *rest: float
) -> tuple[At]:
    return (linear.batch_norm(drawing, x, mean, variance, weight, bias, False, *rest),)


def indexed_max_pool(drawing: Drawing, x: At, *sizes: Any) -> tuple[At]:
    return (pooling.max_pool(drawing, x, *sizes),)


def adaptive_max_pool_of_aten(drawing: Drawing, x: At, size: Any) -> tuple[At]:
    return (pooling.adaptive_max_pool(drawing, x, size),)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "linear": linear.linear,
    **dict.fromkeys(("conv1d", "conv2d"), linear.conv2d),
    "batch_norm": linear.batch_norm,
    **dict.fromkeys(("max_pool1d", "max_pool2d"), pooling.max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), pooling.avg_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), pooling.adaptive_avg_pool),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), pooling.adaptive_max_pool),
    "mean": pooling.mean,
    "sum": pooling.total,
    **dict.fromkeys(("add", "iadd"), arithmetic.add),
    **dict.fromkeys(("sub", "subtract", "isub"), arithmetic.subtract),
    "rsub": arithmetic.subtract_from,
    **dict.fromkeys(("mul", "multiply", "imul"), arithmetic.multiply),
    **dict.fromkeys(("div", "divide", "true_divide", "truediv", "itruediv"), arithmetic.divide),
    **dict.fromkeys(("neg", "negative"), arithmetic.negate),
    **dict.fromkeys(("cat", "concat", "concatenate"), concatenated),
    "stack": stacked,
    **dict.fromkeys(("pad", "constant_pad_nd"), padded),
    **dict.fromkeys(
        ("contiguous", "clone", "detach", "float", "double", "to", "type_as", "cpu", "cuda",
         "_to_copy", "data", "alias", "lift_fresh_copy", "requires_grad"),
        unchanged,
    ),
}  # fmt: skip
# These tell, or name, the place where they stand.
PLACED: dict[str, Callable[..., Any]] = {
    **{
        name: left_out(name)
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
                     "feature_dropout", "feature_alpha_dropout")
    },
    **dict.fromkeys(("softmax", "log_softmax", "_softmax", "_log_softmax"), softmax),
}  # fmt: skip
# Operators of ATen whose arguments or results are others than those of the function of the name.
ATEN: dict[str, Callable[..., Any]] = {
    "batch_norm": batch_norm_of_aten,
    "_native_batch_norm_legit_no_training": evaluated_batch_norm,
    "max_pool2d_with_indices": indexed_max_pool,
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), adaptive_max_pool_of_aten),
}
# What may be done with constants alone: nothing random, nothing that weights are made by.
OF_CONSTANTS = frozenset((
    "abs", "add", "clamp", "clamp_max", "clamp_min", "div", "divide", "eq", "exp", "ge", "gt",
    "item", "le", "log", "lt", "mean", "mul", "multiply", "ne", "neg", "negative", "pow",
    "reciprocal", "rsqrt", "rsub", "softplus", "sqrt", "square", "sub", "subtract", "sum",
    "truediv",
))  # fmt: skip
# What an input whose shape is not known may go through before a layer tells it.
KEEPING = frozenset((
    "add", "alias", "clone", "contiguous", "detach", "div", "divide", "double", "float",
    "flatten", "iadd", "imul", "isub", "itruediv", "mul", "multiply", "neg", "negative",
    "reshape", "sub", "subtract", "to", "true_divide", "truediv", "type_as", "view",
))  # fmt: skip
# The first argument may be a constant, or a list.
ANY_FIRST = frozenset(
    ("add", "cat", "concat", "concatenate", "div", "divide", "mul", "multiply", "rsub", "stack",
     "sub", "subtract", "true_divide", "truediv")
)  # fmt: skip
# Functions that change what they are given, and those whose result may be what they are given.
ASSIGNING = frozenset(("iadd", "imul", "isub", "itruediv"))
SHARING = frozenset(
    ("contiguous", "cpu", "cuda", "data", "detach", "double", "dropout", "dropout1d", "dropout2d",
     "float", "to", "type_as")
)  # fmt: skip
# Copies, of constants too.
COPYING = frozenset(
    ("_to_copy", "alias", "clone", "contiguous", "data", "detach", "double", "float",
     "lift_fresh_copy", "to", "type_as")
)  # fmt: skip
# Functions of images alone.
IMAGES = frozenset(("adaptive_avg_pool2d", "avg_pool2d", "conv2d", "max_pool2d"))
