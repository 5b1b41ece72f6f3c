"""Convolutional networks: certified by concentration, PIE and GIE, beside what attacks leave possible.

usage: python experiments/cnn.py POSTERIOR [COUNT] [DEVICE] [FOLDER]          writes NAME.json into FOLDER

CIFAR10 test images from the first on, ε = 0, 1/255 and 2/255. The ceiling: sampled networks, each attacked on its own.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from bnncert import GIE, PIE, Concentration, Problem, ball, certify, class_robust, load_posterior
from bnncert.data import load_inputs
from bnncert.methods.attack import surviving
from bnncert.posterior import sample

METHODS = {
    "concentration": Concentration(upper=True),
    "PIE": PIE(samples=10, budget=10),
    "GIE": GIE(samples=10, budget=10),
}
DRAWN = 20  # networks for the ceiling


def row(problem: Problem, eps: float) -> dict[str, Any]:
    found: dict[str, Any] = {"eps": eps, "inputs": len(problem)}
    for name, method in METHODS.items():
        start = time.perf_counter()
        results = certify(problem, method)
        found[name] = sum(result.lower for result in results) / len(results)
        found[f"{name} seconds"] = time.perf_counter() - start
        if name == "concentration":
            found["upper"] = sum(result.upper for result in results) / len(results)
    found["ceiling"] = surviving(problem, sample(problem.posterior, DRAWN, 0))[1]
    return found


def main(path: Path, count: int, device: str, folder: Path) -> None:
    network, posterior = load_posterior(path)
    data, rows = load_inputs("cifar10"), []
    x, y = data.x[:count], data.y[:count]
    columns = (*METHODS, "ceiling", "upper")
    print(f"{path.stem:>13}", *(f"{name:>13}" for name in columns), f"{'seconds':>13}")
    for eps in (0, 1, 2):
        problem = Problem(network, posterior, class_robust(ball(x, eps / 255, clip=(0, 1)), y, 10)).to(device)
        rows.append(row(problem, eps / 255))
        seconds = rows[-1]["concentration seconds"]
        print(f"{eps:>9}/255", *(f"{100 * rows[-1][name]:>13.2f}" for name in columns), f"{seconds:>13.1f}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"posterior": path.stem, "torch": torch.__version__, "device": device, "rows": rows}
    (folder / f"{path.stem}.json").write_text(json.dumps(settings, indent=1) + "\n")


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(Path(given[1]), int(given.get(2, 50)), given.get(3, "cpu"), Path(given.get(4, "cnn")))
