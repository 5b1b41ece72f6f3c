"""What optimised slopes add to plain ones: mean certified P_safe over the first 50 MNIST test
images, and the interval.

usage: BNNCERT_DATA=FOLDER python benchmarks/slopes.py [cpu|cuda]          prints a Markdown table

The paper's networks at 1, 2 and 4 times its radius; wider posteriors: mnist_wide_1x64, and 1x128
with all standard deviations times 30, 100 and 200.
"""

import os
import sys
import time
from pathlib import Path

from paper import EPS, load

from bnncert import Concentration, Problem, ball, certify, class_robust, load_posterior
from bnncert.data import load_inputs
from bnncert.posteriors import Normal


def settings() -> list[tuple[str, float, Problem]]:
    found = [
        (name, factor * eps, load(name, 50, factor))
        for name, eps in EPS.items()
        for factor in (1, 2, 4)
    ]
    network, posterior = load_posterior(
        Path(os.environ["BNNCERT_DATA"]) / "posteriors" / "mnist_wide_1x64.npz"
    )
    data = load_inputs("mnist")
    for eps in (0.01, 0.05):
        region = ball(data.x[:50].flatten(1), eps, clip=(0, 1))
        found.append(
            (
                "mnist_wide_1x64",
                eps,
                Problem(network, posterior, class_robust(region, data.y[:50], 10)),
            )
        )
    base = load("1x128", 50)
    for factor in (30, 100, 200):
        wider = Normal(base.posterior.mean, factor * base.posterior.std)
        found.append(
            (f"1x128, σ×{factor}", EPS["1x128"], Problem(base.network, wider, base.specification))
        )
    return found


def main(device: str = "cpu") -> None:
    print(
        "| posterior | ε | plain | optimised | certified upper bound | seconds, "
        "optimised and upper |"
    )
    print("|---|---|---|---|---|---|")
    for name, eps, problem in settings():
        problem = problem.to(device)
        plain = certify(problem, Concentration(effort=0))
        start = time.perf_counter()
        full = certify(problem, Concentration(effort=1, upper=True))
        seconds = time.perf_counter() - start
        means = [100 * sum(values) / len(plain) for values in _columns(plain, full)]
        print(
            f"| {name} | {eps:g} | "
            + " | ".join(f"{mean:.2f}" for mean in means)
            + f" | {seconds:.1f} |",
            flush=True,
        )


def _columns(plain, full):
    return [r.lower for r in plain], [r.lower for r in full], [r.upper for r in full]


if __name__ == "__main__":
    main(*sys.argv[1:])
