"""Certifying beside busy neighbours: how much slower, with threads that sleep while they wait and
with ones that spin.

usage: BNNCERT_DATA=FOLDER python benchmarks/neighbours.py [IMAGES] [NEIGHBOURS]

Runs `bnncert certify` on 1x128 with forward linear bounds, alone and beside processes that only
compute: as it comes, where threads that wait soon sleep (bnncert/threads.py), with threads that
sleep at once, and with ones that spin as OpenMP lets them. Prints a Markdown table; ratios are to
the first row.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

BUSY = "while True: pass"
# Where nothing is said, GNU's OpenMP looks 300,000 times whether there is work before it sleeps.
WAITING = {
    "as it comes": {},
    "asleep at once": {"OMP_WAIT_POLICY": "passive"},
    "spinning": {"GOMP_SPINCOUNT": "300000"},
}


def main(images: str = "50", neighbours: str = "2") -> None:
    print("| threads that wait | neighbours | seconds | ratio |")
    print("|---|---|---|---|")
    alone = None
    timed("1", {}, 0)  # files are read from the disk once
    for waiting, setting in WAITING.items():
        for count in (0, int(neighbours)):
            seconds = timed(images, setting, count)
            alone = alone or seconds
            print(f"| {waiting} | {count} | {seconds:.1f} | {seconds / alone:.1f} |", flush=True)


def timed(images: str, setting: dict[str, str], neighbours: int) -> float:
    """Seconds of the command, set-up of the process included."""
    posterior = str(Path(os.environ["BNNCERT_DATA"]) / "posteriors" / "paper_1x128.npz")
    question = ["--inputs", "mnist", "--select", f"0:{images}", "--eps", "0.025"]
    method = ["--method", "pie", "--bound", "lbp-forward"]
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(neighbours)]
    try:
        started = time.perf_counter()
        command = [sys.executable, "-m", "bnncert", "certify", posterior, *question, *method]
        subprocess.run(command, env=plain | setting, check=True, capture_output=True)
        return time.perf_counter() - started
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
