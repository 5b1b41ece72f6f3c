"""Convolutions before and now: time and memory of the same bounds by two versions of the code.

usage: BNNCERT_DATA=FOLDER python benchmarks/convolutions.py BEFORE [cpu|cuda] [IMAGES] [POSTERIOR]

BEFORE: the root of another working tree of this project, of an earlier commit say. Each version has
a process of its own, one after the other, with CIFAR10 test images at ε = 1/255: the zoo's `cnn`
unless another posterior is named. What both certify is printed too, as the ratio is worth nothing
where the bounds are not the same.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent.parent
COMMANDS = ("certify", "attack")


def main(before: str, device: str = "cpu", images: str = "1", posterior: str = "") -> None:
    path = posterior or str(HERE / "src/bnncert/zoo/weights/cnn.safetensors")
    print("| what | images | before | now | ratio |")
    print("|---|---|---|---|---|")
    for command in COMMANDS:
        old, new = (
            _measured(Path(root), command, device, images, path) for root in (before, str(HERE))
        )
        for name, unit in (("seconds", "s"), ("memory", "GiB")):
            pair = old[name], new[name]
            print(
                f"| {command}, {name} | {images} | {pair[0]:.2f} {unit} | {pair[1]:.2f} {unit} "
                f"| {pair[0] / pair[1]:.1f} |"
            )
        print(f"| {command}, mean | {images} | {old['mean']:.6f} | {new['mean']:.6f} | |")


def _measured(root: Path, *arguments: str) -> dict[str, float]:
    paths = os.pathsep.join(str(root / part) for part in ("src", "checker/src"))
    done = subprocess.run(
        [sys.executable, __file__, "--measure", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(command: str, device: str, images: str, posterior: str) -> None:
    """One version's figures, as a line of JSON; the first image warms up the device."""
    import torch

    from bnncert import Problem, ball, class_robust, load_posterior
    from bnncert.data import load_inputs
    from bnncert.numerics.memory import keep_freed_memory

    keep_freed_memory()
    network, weights = load_posterior(Path(posterior))
    data = load_inputs("cifar10")

    def problem(start: int, stop: int) -> Problem:
        region = ball(data.x[start:stop], 1 / 255, clip=(0, 1))
        spec = class_robust(region, data.y[start:stop], network.outputs)
        return Problem(network, weights, spec).to(device)

    if device == "cuda":
        _mean(command, problem(0, 1))
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    mean = _mean(command, problem(0, int(images)))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "memory": _peak(device), "mean": mean}))


def _mean(command: str, problem: object) -> float:
    """What is certified, or the share of four drawn networks that survives an attack."""
    from bnncert import Concentration, certify
    from bnncert.attack import surviving
    from bnncert.posteriors.base import sample

    if command == "certify":
        return sum(result.lower for result in certify(problem, Concentration())) / len(problem)
    return surviving(problem, sample(problem.posterior, 4, 0))[1]


def _peak(device: str) -> float:
    import resource

    import torch

    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
