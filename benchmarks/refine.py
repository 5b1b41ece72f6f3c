"""Branch and bound: certified width against time, and domains per second.

On the paper's networks at four times its radius.

usage: BNNCERT_DATA=FOLDER python benchmarks/refine.py [cpu|cuda] [SECONDS] [IMAGES] [NETWORK ...]

SECONDS a network, 60 unless given; the first 50 MNIST test images unless given. The first table has
the mean certified bounds in percent (misclassified images count 0 in the lower one, as everywhere)
once the search has run for so long; their difference is the width. Points that the search finds
enter the upper bound at the end. The clock starts with the attacks, as certify does. The second
counts domains of branch and bound, each with all its gradient steps, a second. The third compares
branching rules by the domains they need, and the last has a wider posterior, with a ceiling.
"""

import os
import sys
from pathlib import Path

import torch
from paper import EPS, load

from bnncert import Problem, ball, class_robust, load_posterior
from bnncert.attack import surviving
from bnncert.data import load_inputs
from bnncert.experiments.refinement import Closing, closing
from bnncert.posteriors.base import sample

TIMES = (1, 2, 5, 10, 20, 60)


def main(device: str = "cpu", seconds: str = "60", images: str = "50", *names: str) -> None:
    print(
        f"torch {torch.__version__}, "
        f"{torch.cuda.get_device_name() if device == 'cuda' else 'cpu'}, {images} images"
    )
    limit = float(seconds)
    names = names or tuple(EPS)
    if device == "cuda":  # the first use of a device takes seconds
        closing(load("1x128", 4, 4).to(device), 5)
    found = {name: closing(load(name, int(images), 4).to(device), limit) for name in names}
    width_table(found, limit)
    speed_table(found)
    rules = {}
    for name in {"1x512", "2x50"} & set(names):
        problem = load(name, int(images), 4).to(device)
        rules[name] = {rule: closing(problem, limit, rule) for rule in ("both", "point", "width")}
    rule_table(rules)
    wide_table(wide(int(images)).to(device), limit)


def at(history: list[tuple[float, float, float]], moment: float) -> tuple[float, float] | None:
    """The bounds known at a time."""
    known = [entry for entry in history if entry[0] <= moment]
    return known[-1][1:] if known else None


def width_table(found: dict[str, Closing], limit: float) -> None:
    moments = [moment for moment in TIMES if moment <= limit]
    print(
        "\n| network | ε | " + " | ".join(f"{m} s" for m in moments) + " | end | seconds | width |"
    )
    print("|---|---|" + "---|" * (len(moments) + 3))
    widths = []
    for name, result in found.items():
        history = result.history
        shown = [at(history, moment) for moment in moments] + [history[-1][1:]]
        cells = ["–" if pair is None else f"{pair[0]:.2f} to {pair[1]:.2f}" for pair in shown]
        widths.append(history[-1][2] - history[-1][1])
        print(
            f"| {name} | {4 * EPS[name]:g} | "
            + " | ".join(cells)
            + f" | {history[-1][0]:.1f} | {widths[-1]:.2f} |"
        )
    print(f"\nmean width {sum(widths) / len(widths):.2f} points")


def speed_table(found: dict[str, Closing]) -> None:
    print("\n| network | domains | seconds of search | domains a second |\n|---|---|---|---|")
    for name, result in found.items():
        rate = result.domains / result.searching
        print(f"| {name} | {result.domains} | {result.searching:.1f} | {rate:.0f} |")


def rule_table(rules: dict[str, dict[str, Closing]]) -> None:
    print(
        "\n| network | branching rule | certified, % | domains | seconds |\n|---|---|---|---|---|"
    )
    for name, results in rules.items():
        for rule, result in results.items():
            spent, lower, _ = result.history[-1]
            print(f"| {name} | {rule} | {lower:.2f} | {result.domains} | {spent:.1f} |")


def wide(images: int) -> Problem:
    network, posterior = load_posterior(
        Path(os.environ["BNNCERT_DATA"]) / "posteriors" / "mnist_wide_1x64.npz"
    )
    data = load_inputs("mnist")
    region = ball(data.x[:images].flatten(1), 0.05, clip=(0, 1))
    return Problem(network, posterior, class_robust(region, data.y[:images], 10))


def wide_table(problem: Problem, limit: float) -> None:
    """Also the ceiling: the share of 40 sampled networks that survive attacks."""
    result = closing(problem, limit)
    moments = [moment for moment in TIMES if moment <= limit]
    print(
        "\n| posterior | ε | "
        + " | ".join(f"{m} s" for m in moments)
        + " | end | ceiling | with points found |"
    )
    print("|---|---|" + "---|" * (3 + len(moments)))
    shown = [at(result.history, moment) for moment in moments] + [result.history[-1][1:]]
    cells = ["–" if pair is None else f"{pair[0]:.2f} to {pair[1]:.2f}" for pair in shown]
    networks = sample(problem.posterior, 40, 0)
    cells += [
        f"{100 * surviving(problem, networks, 0, start)[1]:.2f}" for start in (None, result.points)
    ]
    print("| mnist_wide_1x64 | 0.05 | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:])
