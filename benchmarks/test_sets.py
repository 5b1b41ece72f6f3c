"""Whole test sets with the product itself: campaigns of the paper's networks and the zoo's
certifiable ones, with certified upper bounds, and their tables.

usage: BNNCERT_DATA=FOLDER python benchmarks/test_sets.py OUT [DEVICE] [IMAGES] [WORKERS] [SECONDS]

Runs `bnncert run` on one campaign after the other, each into a folder of its own below OUT, and
after each `bnncert export --markdown OUT/NAME.md`. Started again, it goes on where it was. SECONDS:
in all; then the chunks in flight are stored and the tables say what is there (an input without a
result counts as 0 to 1). WORKERS: processes that share the device.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from paper import EPS

PAPER = ("1x128", "1x256", "1x512"), ("2x50",), ("2x256", "2x150")
ZOO = {
    "mnist-mlp-robust": (0.025, 0.05),
    "mnist-mlp-robust-kl1": (0.025, 0.05),
}
# Quick methods first: what a run does not reach has their bounds at least. An interrupt waits for
# the chunks in flight, which at effort 1 can take minutes: every open image is asked for laws.
QUICK: list[dict[str, object]] = [{"effort": 0, "upper": True}]
THOROUGH: list[dict[str, object]] = [{"effort": 1, "upper": True}]
CHUNK = 500


def main(
    out: str, device: str = "cpu", images: str = "10000", workers: str = "0", seconds: str = "1e9"
) -> None:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + float(seconds)
    for kind, methods in (("quick", QUICK), ("thorough", THOROUGH)):
        for name, posteriors, eps in subjects():
            if time.monotonic() > deadline:
                return
            file = folder / f"{name}-{kind}.toml"
            file.write_text(campaign(posteriors, eps, methods, images))
            run(file, device, workers, deadline)


def subjects() -> list[tuple[str, dict[str, str], tuple[float, ...]]]:
    """Name, posteriors and radii of each campaign."""
    from bnncert.zoo.recipes import posterior_path

    published = Path(os.environ["BNNCERT_DATA"]).resolve() / "posteriors"
    found = [
        (
            f"paper-{'-'.join(names)}",
            {name: str(published / f"paper_{name}.npz") for name in names},
            (EPS[names[0]],),
        )
        for names in PAPER
    ]
    return found + [
        (f"zoo-{name}", {name: str(posterior_path(name))}, eps) for name, eps in ZOO.items()
    ]


def campaign(
    posteriors: dict[str, str],
    eps: tuple[float, ...],
    methods: list[dict[str, object]],
    images: str,
) -> str:
    lines = ['inputs = "mnist"', f'select = "0:{images}"', f"eps = {list(eps)}", f"chunk = {CHUNK}"]
    lines += ["[posteriors]", *(f'"{name}" = "{path}"' for name, path in posteriors.items())]
    for method in methods:
        options = [f"{key} = {str(value).lower()}" for key, value in method.items()]
        lines += ["[[methods]]", 'name = "concentration"', *options]
    return "\n".join(lines) + "\n"


def run(file: Path, device: str, workers: str, deadline: float) -> None:
    """Until it is done or the time is up; then its table and what it took."""
    bnncert = [sys.executable, "-m", "bnncert"]
    started = time.monotonic()
    folder = file.with_suffix("")
    command = [*bnncert, "run", str(file), "--out", str(folder), "--device", device]
    with subprocess.Popen([*command, "--workers", workers]) as running:
        try:
            running.wait(max(1.0, deadline - started))
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)  # chunks in flight are stored
            running.wait()
    print(f"{file.stem}: {time.monotonic() - started:.1f} s", flush=True)
    table = folder.with_suffix(".md")
    subprocess.run([*bnncert, "export", str(folder), "--markdown", str(table)], check=True)
    print(table.read_text(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
