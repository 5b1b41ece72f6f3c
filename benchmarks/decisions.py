"""Decision robustness of the paper's networks with one hidden layer: certified bounds of the
averaged softmax at ε = 0.025 on the first MNIST test images, and the seconds they take.

usage: BNNCERT_DATA=FOLDER python benchmarks/decisions.py [IMAGES] [OTHER SOURCES]

Prints a Markdown table. With a second folder of sources (`src` of another checkout) every network
is run by both in turn, in processes of their own with one thread each; seconds are processor time
of `decide` alone, the least of two runs, and the ratio says how much longer the others took.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from paper import load

NETWORKS = ("1x128", "1x256", "1x512")


def main(images: str = "500", other: str | None = None) -> None:
    others = ["others, s", "ratio"] if other else []
    names = ["network", "decided", "at least", "at most", "seconds", *others]
    print(f"| {' | '.join(names)} |")
    print("|" + "---|" * len(names))
    for name in NETWORKS:
        own = timed(name, images, str(Path(__file__).parents[1] / "src"))
        shares = [f"{100 * own[end]:.2f}" for end in ("lower", "upper")]
        cells = [name, f"{own['decided']} of {images}", *shares, f"{own['seconds']:.2f}"]
        if other:
            before = timed(name, images, other)["seconds"]
            cells += [f"{before:.2f}", f"{before / own['seconds']:.1f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def timed(name: str, images: str, sources: str) -> dict[str, float]:
    """What one network gives, in a process of its own."""
    settings = {"PYTHONPATH": sources, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "one", name, images]
    done = subprocess.run(command, env=os.environ | settings, check=True, capture_output=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def one(name: str, images: str) -> None:
    from bnncert import decide

    problem = load(name, int(images))
    decide(problem[:4])
    seconds = []
    for _ in range(2):
        started = time.process_time()
        decisions = decide(problem)
        seconds.append(time.process_time() - started)
    found = {
        "decided": sum(decision.status == "decided" for decision in decisions),
        "lower": sum(decision.lower for decision in decisions) / len(decisions),
        "upper": sum(decision.upper for decision in decisions) / len(decisions),
        "seconds": min(seconds),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    one(*sys.argv[2:]) if sys.argv[1:2] == ["one"] else main(*sys.argv[1:])
