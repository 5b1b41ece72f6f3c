"""CIFAR10 test images at ε = 1/255 through a convolutional network of the zoo: seconds, peak
memory, certified.

usage: BNNCERT_DATA=FOLDER python benchmarks/cnn.py [cpu|cuda] [IMAGES] [POSTERIOR]       10 images
unless given
"""

import sys
import time
from pathlib import Path

import torch

from bnncert import Concentration, Problem, ball, certify, class_robust, load_posterior
from bnncert.data import load_inputs
from bnncert.zoo.recipes import posterior_path


def main(device: str = "cpu", images: str = "10", posterior: str = "") -> None:
    path = Path(posterior) if posterior else posterior_path("cnn")
    network, weights = load_posterior(path)
    data = load_inputs("cifar10")
    count = int(images)
    region = ball(data.x[:count], 1 / 255, clip=(0, 1))
    problem = Problem(network, weights, class_robust(region, data.y[:count], 10)).to(device)
    start = time.perf_counter()
    results = certify(problem, Concentration())
    seconds = time.perf_counter() - start
    peak = f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if device == "cuda" else ""
    mean = sum(result.lower for result in results) / count
    print(f"{path.stem}, torch {torch.__version__}, {device}, {torch.get_num_threads()} threads")
    print(f"{count} images: {100 * mean:.2f} % certified in {seconds:.1f} s{peak}")


if __name__ == "__main__":
    main(*sys.argv[1:])
