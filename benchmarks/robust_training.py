"""What the certified bound costs a training step: seconds of a robust step as multiples of a plain
one, both measured in turn in one run.

usage: python benchmarks/robust_training.py [cpu|cuda] [STEPS]          prints a Markdown table

784-512-10, and convolutions 32/2, 64/2 before 256-10, all weights random, on batches of 128 random
images: the step without a bound, with it, under batch normalisation, with an attack of 4 steps, and
with both. On a CUDA device robust steps are recorded and played again, plain ones are not.
"""

import statistics
import sys
import time
from dataclasses import replace

import torch

from bnncert.model.network import Network, cnn, mlp
from bnncert.train import BayesByBackprop, Robust
from bnncert.train.loop import _arithmetic, _steps
from bnncert.train.replay import BEFORE, Step
from bnncert.train.state import start

BATCH = 128
NETWORKS = {
    "784-512-10": mlp(784, 512, 10),
    "32/2, 64/2, 256-10": cnn((1, 28, 28), 10, [(32, 2), (64, 2)], [256]),
}
PLAIN = BayesByBackprop(1, BATCH, initial_std=0.02)
ROBUST = replace(PLAIN, robust=Robust(0.1))
ATTACKED = replace(PLAIN, robust=Robust(0.1, attack=4))
RECIPES = {
    "plain": PLAIN,
    "robust": ROBUST,
    "normalised": replace(ROBUST, normalise=True),
    "attacked": ATTACKED,
    "both": replace(ATTACKED, normalise=True),
}


def step_of(network: Network, recipe: BayesByBackprop, x: torch.Tensor) -> Step:
    """The step, after the first few: recorded where steps are, all buffers allocated."""
    run = start(network, recipe, x, None)
    return _steps(run, recipe, len(x), x.device)[recipe.robust is not None]


def seconds(recipe: BayesByBackprop, step: Step, *batch: torch.Tensor) -> float:
    def finished() -> float:
        if batch[0].is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    with _arithmetic(fast=recipe.robust is not None):
        begun = finished()
        step(*batch)
        return finished() - begun


def main(device: str = "cpu", count: str = "15") -> None:
    print(f"| network | plain step, ms | {' | '.join(list(RECIPES)[1:])} |")
    print("|---" * (len(RECIPES) + 1) + "|")
    generator = torch.Generator().manual_seed(0)
    for name, network in NETWORKS.items():
        x = torch.rand(BATCH, *network.input_shape, generator=generator).to(device)
        y = torch.randint(10, (BATCH,), generator=generator).to(device)
        share = torch.ones((), dtype=torch.float64, device=device)
        steps = {kind: step_of(network, recipe, x) for kind, recipe in RECIPES.items()}
        times: dict[str, list[float]] = {kind: [] for kind in steps}
        for turn in range(BEFORE + 1 + int(count)):
            for kind, step in steps.items():
                spent = seconds(RECIPES[kind], step, x, y, share)
                if turn > BEFORE:
                    times[kind].append(spent)
        plain, *others = (statistics.median(times[kind]) for kind in RECIPES)
        shown = " | ".join(f"{other / plain:.1f}" for other in others)
        print(f"| {name} | {1e3 * plain:.1f} | {shown} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
