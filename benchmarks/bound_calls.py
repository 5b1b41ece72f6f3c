"""CPU time and memory of one LBP call (one input, one weight box, all rows) on the paper's
networks, single thread.

usage: BNNCERT_DATA=FOLDER python benchmarks/bound_calls.py       FOLDER: mnist_test.npz and
posteriors/paper_*.npz

The published code's CPU seconds for one LBP call on the same posteriors are the reference (measured
once, elsewhere). Ours are medians over single inputs with a weight box of their own, the costliest
use, and over a batch of 50 inputs that share a box, as PIE uses it. The last line times PIE on 50
images of 1x128 with all cores.
"""

import os
import resource
import statistics
import sys
import time

import torch
from paper import load

from bnncert import PIE, Box, Problem, certify
from bnncert.bounds.linear import row_bounds

PUBLISHED = {
    "1x128": 0.60,
    "1x256": 1.19,
    "1x512": 2.56,
    "2x256": 53.3,
    "2x50": 1.71,
    "2x150": 18.0,
}


def call_seconds(problem: Problem, weights: Box) -> float:
    """Median CPU seconds of one call per input; the first half of the calls is warm-up."""
    spec = problem.specification
    times = []
    repetitions = 10 if len(problem) > 1 else 200
    for _ in range(repetitions):
        start = time.process_time()
        row_bounds(problem.network, weights, spec.region, spec.rows, spec.offsets)
        times.append((time.process_time() - start) / len(problem))
    return statistics.median(times[repetitions // 2 :])


def measure(name: str) -> None:
    problem = load(name, 50)
    mean, std = problem.posterior.mean, problem.posterior.std
    shared = Box(mean - 4 * std, mean + 4 * std)
    single = call_seconds(problem[:1], Box(shared.lower[None], shared.upper[None]))
    batch = call_seconds(problem, shared)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:6} {1e3 * single:8.2f} ms {PUBLISHED[name] / single:8.0f}x {1e3 * batch:8.2f} ms "
        f"{PUBLISHED[name] / batch:8.0f}x {memory:7.0f} MB"
    )


def main() -> None:
    if len(sys.argv) > 1:  # one network in a process of its own, so that its peak memory is its own
        torch.set_num_threads(1)
        return measure(sys.argv[1])
    print("network  one input   against    in a batch  against  process peak")
    for name in PUBLISHED:
        sys.stdout.flush()
        os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, name])
    problem = load("1x128", 50)
    start = time.perf_counter()
    results = certify(problem, PIE())
    mean = 100 * sum(result.lower for result in results) / len(results)
    print(
        f"PIE, 50 images of 1x128: {time.perf_counter() - start:.1f} s, mean certified {mean:.2f} %"
    )
    return None


if __name__ == "__main__":
    main()
