"""The whole MNIST test set by concentration with plain slopes: bounds in float64, without writing
certificates.

usage: BNNCERT_DATA=FOLDER python benchmarks/test_set.py [cpu|cuda] [IMAGES]     IMAGES: all 10,000
unless given

Each network is timed once after a warm-up on 64 images; data are on the device before the clock
starts.
"""

import sys
import time

import torch
from paper import EPS, load

from bnncert.concentration.proof import plain_bounds


def main(device: str = "cpu", images: str = "10000") -> None:
    print(
        f"torch {torch.__version__}, "
        f"{torch.cuda.get_device_name() if device == 'cuda' else 'cpu'}, {images} images"
    )
    print("network     eps  certified   seconds   peak memory")
    for name, eps in EPS.items():
        problem = load(name, int(images)).to(device)
        with torch.no_grad():
            plain_bounds(problem[:64], problem.posterior)
            _synchronise(device)
            start = time.perf_counter()
            bounds, _ = plain_bounds(problem, problem.posterior)
            mean = float(bounds.mean())  # waits for the device
            seconds = time.perf_counter() - start
        peak = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if device == "cuda" else "-"
        print(f"{name:7} {eps:7.3f} {100 * mean:9.2f} % {seconds:9.3f} {peak:>13}", flush=True)
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
