"""The paper's networks and settings, as the benchmarks use them.

Only loading one imports torch.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bnncert import Problem

EPS = {"1x128": 0.025, "1x256": 0.025, "1x512": 0.025, "2x256": 0.001, "2x50": 0.01, "2x150": 0.001}


def load(name: str, images: int | None, factor: float = 1.0) -> "Problem":
    """Class robustness of the first images at `factor` times the paper's radius, within [0, 1]."""
    if "BNNCERT_DATA" not in os.environ:
        sys.exit("set BNNCERT_DATA to a folder with mnist_test.npz and posteriors/paper_*.npz")
    from bnncert import Problem, ball, class_robust, load_posterior
    from bnncert.data import load_inputs
    from bnncert.numerics.memory import keep_freed_memory

    keep_freed_memory()  # as the command line does
    network, posterior = load_posterior(
        Path(os.environ["BNNCERT_DATA"]) / "posteriors" / f"paper_{name}.npz"
    )
    data = load_inputs("mnist")
    region = ball(data.x[:images].flatten(1), factor * EPS[name], clip=(0, 1))
    return Problem(network, posterior, class_robust(region, data.y[:images], 10))
