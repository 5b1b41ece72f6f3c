"""Certified intervals against 10^5 sampled networks on a real posterior where P_safe is
intermediate.

usage: BNNCERT_DATA=FOLDER python benchmarks/sampled_networks.py [cpu|cuda] [NETWORKS]

On mnist_wide_1x64 at ε = 0.05, the first test images that some but not all of 200 sampled networks
get right under attack: each sampled network is attacked (PGD), and the share that survives
estimates an upper bound of P_safe. A certified lower bound above that share by more than four
standard errors would be an error of the theory or the code.
"""

import math
import os
import sys
from pathlib import Path

import torch

from bnncert import Concentration, Problem, ball, certify, class_robust, load_posterior
from bnncert.attack import pgd
from bnncert.data import load_inputs
from bnncert.posteriors.base import sample

AT_ONCE = 500


def survivors(problem: Problem, networks: int) -> list[int]:
    """How many of the sampled networks no attack breaks, for every input."""
    central = pgd(problem, problem.posterior.center.unsqueeze(0)).points[0]
    counts = torch.zeros(len(problem), dtype=torch.int64, device=problem.posterior.center.device)
    for first in range(0, networks, AT_ONCE):
        weights = sample(problem.posterior, min(AT_ONCE, networks - first), seed=1, first=first)
        counts += (pgd(problem, weights, start=central, steps=20).margins > 0).sum(0)
    return counts.tolist()


def main(device: str = "cpu", networks: str = "100000") -> None:
    network, posterior = load_posterior(
        Path(os.environ["BNNCERT_DATA"]) / "posteriors" / "mnist_wide_1x64.npz"
    )
    data = load_inputs("mnist")
    n = int(networks)
    region = ball(data.x[:50].flatten(1), 0.05, clip=(0, 1))
    problem = Problem(network, posterior, class_robust(region, data.y[:50], 10)).to(device)
    results = certify(problem, Concentration(upper=True))
    chosen = [i for i, count in enumerate(survivors(problem, 200)) if 4 <= count <= 196][:8]
    print(f"{n} networks, {device}\nimage   certified at least   survived the attack   at most")
    for index, count in zip(chosen, survivors(problem[torch.tensor(chosen)], n), strict=True):
        share = count / n
        error = math.sqrt(share * (1 - share) / n)
        verdict = "ok" if results[index].lower <= share + 4 * error else "VIOLATION"
        print(
            f"{index:5} {results[index].lower:19.4f} {share:14.4f} ± {error:.4f} "
            f"{results[index].upper:9.4f}  {verdict}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
