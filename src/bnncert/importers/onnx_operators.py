"""The table of ONNX operators on what depends on the input, and why others are not in it."""

from __future__ import annotations

from bnncert.errors import InputError
from bnncert.importers.onnx_arithmetic import ARITHMETIC
from bnncert.importers.onnx_constants import FOLDED
from bnncert.importers.onnx_linear import LINEAR
from bnncert.importers.onnx_moves import MOVES
from bnncert.importers.onnx_nodes import Constant, Node, Operand

OPERATORS = {**LINEAR, **ARITHMETIC, **MOVES}

JUMPS = "it jumps, and no bound of it is continuous"
CURVED = "no bound of this function is known here"
UPSAMPLED = "no layer makes images larger"
RECURRENT = "recurrent networks are not supported"
CHOSEN = "what it computes depends on the input's order or position"
NORMALISED = "it divides by a statistic of the input"
CONTROL = "networks whose graph depends on values are not supported"
REFUSED: dict[str, str] = {
    "Softmax": "it is not bounded; export the network without it, up to the logits",
    "LogSoftmax": "it is not bounded; export the network without it, up to the logits",
    **dict.fromkeys(("Sign", "Floor", "Ceil", "Round", "ThresholdedRelu", "Mod"), JUMPS),
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), JUMPS),
    **dict.fromkeys(("Not", "And", "Or", "Where", "ArgMax", "ArgMin", "TopK", "Hardmax"), JUMPS),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"), CURVED),
    **dict.fromkeys(("Pow", "Exp", "Log", "Sqrt", "Reciprocal", "Erf"), CURVED),
    **dict.fromkeys(("Celu", "Swish"), CURVED),
    **dict.fromkeys(
        ("ConvTranspose", "Resize", "Upsample", "DepthToSpace", "MaxUnpool"), UPSAMPLED
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), RECURRENT),
    **dict.fromkeys(("NonMaxSuppression", "GatherND", "GatherElements"), CHOSEN),
    **dict.fromkeys(("ScatterND", "ScatterElements", "NonZero"), CHOSEN),
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization"), NORMALISED),
    **dict.fromkeys(("GroupNormalization", "RMSNormalization", "LRN"), NORMALISED),
    **dict.fromkeys(("LpNormalization", "MeanVarianceNormalization", "ReduceL2"), NORMALISED),
    **dict.fromkeys(("If", "Loop", "Scan"), CONTROL),
}


def result(node: Node, domain: str) -> tuple[Operand, ...]:
    """What the node gives: constants of constants, else a rule's."""
    if domain not in ("", "ai.onnx"):
        raise InputError(f"operators of the domain {domain!r} are not supported")
    is_constant = not any(each and not isinstance(each, Constant) for each in node.operands)
    known = FOLDED if is_constant else OPERATORS
    if node.operator not in known:
        why = REFUSED.get(node.operator)
        others = f": {why}" if why and not is_constant else ""
        kind = "constants" if is_constant else "what depends on the input"
        raise InputError(f"the operator is not supported on {kind}{others}")
    found = known[node.operator](node)
    return found if isinstance(found, tuple) else (found,)
