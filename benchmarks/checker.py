"""The checker on everything that certify writes: certificates accepted, claims above their support,
time and memory.

usage: BNNCERT_DATA=FOLDER python benchmarks/checker.py [IMAGES] [NETWORK ...]

Runs `bnncert certify` and then `python -m bnncert_check` as programs of their own, for every method
and every bound. "Gap" is the most that a supported probability falls short of its claim, over lower
and upper ends (negative: it goes beyond it); memory is the checker's peak. Prints a Markdown table.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from paper import EPS

METHODS = {
    "sampling": ["--method", "sampling", "--step", "5", "--samples", "1"],
    "PIE": ["--method", "pie"],
    "PIE, lbp-forward": ["--method", "pie", "--bound", "lbp-forward"],
    "PIE, ibp": ["--method", "pie", "--bound", "ibp", "--step", "0.1"],
    "GIE": ["--method", "gie"],
    "GIE, as published": ["--method", "gie", "--bound", "lbp-forward", "--zero-gradient-only"],
    "concentration": ["--method", "concentration", "--upper", "--effort", "0"],
    "optimised": ["--method", "concentration", "--upper"],
}


def main(images: str = "50", *names: str) -> None:
    print(
        "| network | method | certificates | accepted | gap | seconds a certificate, "
        "most | memory, MB |"
    )
    print("|---|---|---|---|---|---|---|")
    for name in names or EPS:
        for method, options in METHODS.items():
            verdicts, memory = check(name, images, options)
            claims = [v for v in verdicts if v["claimed"]]
            gaps = [
                sign * (v["claimed"][i] - v["supported"][i])
                for v in claims
                for i, sign in ((0, 1), (1, -1))
            ]
            seconds = (v["seconds"] for v in claims)
            accepted = sum(v["status"] == "ACCEPT" for v in claims)
            row = [
                name,
                method,
                len(claims),
                accepted,
                f"{max(gaps, default=0):.1e}",
                f"{max(seconds, default=0):.2f}",
            ]
            print("| " + " | ".join(map(str, [*row, f"{memory:.0f}"])) + " |", flush=True)


def check(name: str, images: str, options: list[str]) -> tuple[list[dict[str, object]], float]:
    """The verdicts on the certificates of the first images, and the checker's peak memory in MB."""
    posterior = str(Path(os.environ["BNNCERT_DATA"]) / "posteriors" / f"paper_{name}.npz")
    question = ["--inputs", "mnist", "--select", f"0:{images}", "--eps", str(EPS[name])]
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "results")
        certify = [
            sys.executable,
            "-m",
            "bnncert",
            "certify",
            posterior,
            *question,
            *options,
            "--out",
            out,
        ]
        subprocess.run(certify, check=True, capture_output=True)
        checker = [sys.executable, "-m", "bnncert_check", out, "--posterior", posterior, "--json"]
        answer = Path(folder) / "verdicts.json"
        with answer.open("w") as file:
            _, _, usage = os.wait4(subprocess.Popen(checker, stdout=file).pid, 0)
        return list(json.loads(answer.read_text())["certificates"]), usage.ru_maxrss / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
