"""Laws of rows, lower and upper bounds: seconds an input on a device, all inputs together and one
by one, and on the processor.

usage: BNNCERT_DATA=FOLDER python benchmarks/laws.py [DEVICE [IMAGES [NETWORK [EPS]]]]
FOLDER: mnist_test.npz and posteriors/NETWORK.npz

Prints a Markdown table; ratios are of seconds an input, together on the device against each. Below
it, by how much claims of the same inputs differ, and the device's peak memory.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bnncert import Concentration, Problem, Result, ball, certify, class_robust, load_posterior
from bnncert.data import load_inputs
from bnncert.numerics.memory import keep_freed_memory

METHOD = Concentration(upper=True)
ALONE = 10  # inputs that are also done one by one, and on the processor


@dataclass(frozen=True)
class Timed:
    how: str
    results: list[Result]
    seconds: float
    processor: float


def main(
    device: str = "cpu", images: str = "50", name: str = "vi_1x128_kl1", eps: str = "0.01"
) -> None:
    problem = load(name, int(images), float(eps))
    there, few = problem.to(device), problem[:ALONE]
    certify(there[:2], METHOD)  # warm
    runs = [
        timed(f"{device}, together", lambda: certify(there, METHOD)),
        timed(f"{device}, one by one", lambda: one_by_one(there[:ALONE])),
        timed("cpu, together", lambda: certify(few, METHOD)),
    ]
    print_table(runs)
    claims = [torch.tensor([(x.lower, x.upper) for x in run.results[:ALONE]]) for run in runs]
    apart = max(float((claim - claims[0]).abs().max()) for claim in claims)
    print(f"\nclaims of the first {len(few)} inputs differ by at most {apart:.1e}")
    if device.startswith("cuda"):
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def load(name: str, images: int, eps: float) -> Problem:
    if "BNNCERT_DATA" not in os.environ:
        sys.exit("set BNNCERT_DATA to a folder with mnist_test.npz and posteriors")
    keep_freed_memory()  # as the command line does
    file = Path(os.environ["BNNCERT_DATA"]) / "posteriors" / f"{name}.npz"
    network, posterior = load_posterior(file)
    data = load_inputs("mnist")
    region = ball(data.x[:images].flatten(1), eps, clip=(0, 1))
    return Problem(network, posterior, class_robust(region, data.y[:images], 10))


def one_by_one(problem: Problem) -> list[Result]:
    return [certify(problem[i : i + 1], METHOD)[0] for i in range(len(problem))]


def timed(how: str, run: Callable[[], list[Result]]) -> Timed:
    """Claims are numbers of Python: when they are there, the device has done its work."""
    seconds, processor = time.perf_counter(), time.process_time()
    results = run()
    return Timed(how, results, time.perf_counter() - seconds, time.process_time() - processor)


def print_table(runs: list[Timed]) -> None:
    print("| run | inputs | at least | at most | seconds an input | of a processor | ratio |")
    print("|---|---|---|---|---|---|---|")
    first = runs[0].seconds / len(runs[0].results)
    for run in runs:
        count = len(run.results)
        lower = 100 * sum(result.lower for result in run.results) / count
        upper = 100 * sum(result.upper for result in run.results) / count
        each = run.seconds / count
        print(
            f"| {run.how} | {count} | {lower:.2f} | {upper:.2f} | {each:.4f} "
            f"| {run.processor / count:.4f} | {each / first:.1f} |"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
