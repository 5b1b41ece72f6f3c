"""A tool that is wrong: each instance of the truth set is answered by the mistake it is there for.

Run as a program, as any tool is: it reads the instance's file and its posterior, and prints a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from math import erf, exp, pi, prod, sqrt
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors.numpy import load_file

# An instance's file, and its posterior's arrays by name; of one number the number.
Asked: TypeAlias = Mapping[str, Any]


def below(z: float) -> float:
    return (1 + erf(z / sqrt(2))) / 2


def inside(low: float, high: float) -> float:
    return below(high) - below(low)


def moments(asked: Asked) -> tuple[float, float]:
    """Mean and variance of y = x W + b in the middle of the region."""
    x = centre(asked)
    weights, own = (np.reshape(asked[f"W0_{field}"], -1) for field in ("mean", "std"))
    mean = x @ weights + asked["b0_mean"]
    return float(mean), float(x**2 @ own**2 + asked["b0_std"] ** 2)


def centre(asked: Asked) -> Any:
    return (np.array(asked["lower"]) + np.array(asked["upper"])) / 2


def variance(asked: Asked) -> float:
    mean, square = moments(asked)
    return below(mean / square)


def open_is_unsafe(asked: Asked) -> float:
    """The proof that |w| stays in a symmetric interval, as if it were an equivalence."""
    reach = (1 - asked["W0_mean"]) / asked["W0_std"]
    return 1 - 2 * (1 - below(reach))


def one_tail(asked: Asked) -> float:
    return below(float(asked["offsets"][1]))


def negative_argument(asked: Asked) -> float:
    """1 - Q((m - E F) / L) where m < E F."""
    expected = sqrt(2 / pi)
    return below(asked["b0_mean"] - expected)


def clean_input(asked: Asked) -> float:
    mean, square = moments(asked)
    return below(mean / sqrt(square))


def normal_product(_: Asked) -> float:
    """relu(w1) w2 has mean 0 and variance 1/2."""
    return below(1 / sqrt(0.5))


def independent_rows(asked: Asked) -> float:
    own = [asked["W1_mean"][:, j] for j in (0, 1)]
    return prod(below(b / sqrt(a @ a)) for a, b in zip(own, asked["b1_mean"], strict=True))


def normal_activations(asked: Asked) -> float:
    """E relu(z) cancels; Var relu(z) = 1/2 - 1/2π for a standard normal z."""
    return below(asked["b1_mean"] / sqrt(2 * (1 / 2 - 1 / (2 * pi))))


def fitted(asked: Asked) -> float:
    drawn = asked["W0_samples"].flatten()
    return below(drawn.mean() / drawn.std())


def counted_once(asked: Asked) -> float:
    networks = np.unique(asked["W0_samples"].flatten())
    return float((networks > 0).mean())


def mean_weights(asked: Asked) -> float:
    mean = float(asked["W0_samples"].mean())
    return float(
        all(row[0] * mean + b > 0 for row, b in zip(asked["rows"], asked["offsets"], strict=True))
    )


def mean_network(asked: Asked) -> float:
    """Of the planted ones: its margin is 1, or 8 relu(0) less."""
    hidden = np.maximum(centre(asked) @ asked["W0_mean"] + asked["b0_mean"], 0)
    first, second = hidden @ asked["W1_mean"] + asked["b1_mean"]
    return float(first > second)


def ties_are_safe(_: Asked) -> float:
    return 1.0


def first_class(asked: Asked) -> float:
    outputs = asked["W0_mean"] * asked["W1_mean"]
    return float(outputs.argmax() == 0)


def single(asked: Asked) -> float:
    first, second = (np.float32(asked[name]) for name in ("W0_mean", "b0_mean"))
    return below(float(first + second) / asked["b0_std"])


def left_to_right(asked: Asked) -> float:
    total = 0.0
    for weight in asked["W0_mean"][:, 0]:
        total += float(weight)
    return below((total + asked["b0_mean"]) / asked["b0_std"])


def twice_as_wide(asked: Asked) -> float:
    proved = float(asked["offsets"][0])
    return inside(-2 * proved, 2 * proved)


BOXES = [(-1.0, 1.0, -1.0, 1.0), (-1.0, 0.75, -1.0, 1.0), (-0.75, 1.0, -1.0, 1.0)]


def added_boxes(_: Asked) -> float:
    return sum(inside(*box[:2]) * inside(*box[2:]) for box in BOXES)


def odd_depth(_: Asked) -> float:
    """Four equal boxes, cut at depth three: 4 p - 6 p + 4 p."""
    p = inside(-1, 1) ** 2
    return 4 * p - 6 * p + 4 * p


def never_empty(_: Asked) -> float:
    """The islands' intersection [1, -1], its ends taken in order."""
    return inside(1, 2) + inside(-2, -1) - inside(-1, 1)


def sum_then_product(_: Asked) -> float:
    return (2 * below(-0.5)) ** 2


def outside_point(asked: Asked) -> float:
    beyond = 2 * asked["upper"][0]
    return below((1 / beyond - asked["W0_mean"]) / asked["W0_std"])


def single_slope(asked: Asked) -> float:
    mean = asked["W1_mean"] * float(np.float32(0.3)) * -1 + asked["b1_mean"]
    return below(mean / asked["b1_std"])


def multiplied_rows(asked: Asked) -> float:
    return prod(below(b / row[0]) for row, b in zip(asked["rows"], asked["offsets"], strict=True))


def heaviest(asked: Asked) -> float:
    mean, std = asked["0.W0_mean"], asked["0.W0_std"]
    return below((mean + asked["offsets"][0]) / std)


def two_moments(_: Asked) -> float:
    mean = 0.75 * 2 - 0.25 * 2
    return below((mean - 1) / sqrt(4 + 1 / 16 - mean**2))


def marginals(asked: Asked) -> float:
    square = sum(asked["W0_std"].flatten() ** 2 + (asked["W0_factor"] ** 2).sum(0).flatten())
    return below(asked["b0_mean"] / sqrt(square))


def own_kernels(asked: Asked) -> float:
    x = np.array(asked["lower"])
    mean = float(x.sum() * asked["W0_mean"] + len(x) * asked["b0_mean"])
    square = float((x**2).sum() * asked["W0_std"] ** 2 + len(x) * asked["b0_std"] ** 2)
    return below(mean / sqrt(square))


def softmax_of_the_mean(asked: Asked) -> float:
    return 1 / (1 + exp(-asked["lower"][0]))


def distribution_functions(asked: Asked) -> float:
    return below(float(asked["offsets"][0]))


Mistake: TypeAlias = Callable[[Asked], float]
MISTAKES: dict[str, list[Mistake]] = {
    "linear": [variance],
    "relu": [open_is_unsafe],
    "two-tails": [one_tail],
    "wide-line": [negative_argument],
    "noisy-line": [clean_input],
    "product": [normal_product],
    "opposed": [independent_rows],
    "neurons": [normal_activations],
    "thirds": [fitted],
    "repeated-samples": [counted_once],
    "around-zero": [mean_weights],
    "planted-0.5": [mean_network],
    "planted-1e-2": [mean_network],
    "planted-1e-4": [mean_network],
    "planted-1e-6": [mean_network],
    "planted-1e-9": [mean_network],
    "tie-dead": [ties_are_safe],
    "tie-classes": [first_class],
    "float32": [single],
    "float64": [left_to_right],
    "box-width": [twice_as_wide],
    "overlap": [added_boxes, odd_depth],
    "islands": [never_empty],
    "quadrants": [sum_then_product],
    "outside": [outside_point],
    "slope": [single_slope],
    "repeated-rows": [multiplied_rows],
    "mixture": [heaviest, two_moments],
    "common": [marginals],
    "kernel": [own_kernels],
    "logit": [softmax_of_the_mean],
    "far-safe": [distribution_functions],
    "far-unsafe": [distribution_functions],
}


def read(path: Path) -> Asked:
    asked = json.loads(path.read_text(encoding="utf-8"))
    arrays = load_file(path.parent / asked["posterior"])
    return asked | {
        name: value.item() if value.size == 1 else value for name, value in arrays.items()
    }


def main() -> None:
    asked = read(Path(sys.argv[2]))
    mistake = MISTAKES[asked["name"].removeprefix("truth-")][int(sys.argv[1])]
    found = min(max(mistake(asked), 0.0), 1.0)
    print(json.dumps({"lower": found, "upper": found}))


if __name__ == "__main__":
    main()
