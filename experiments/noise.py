"""A neuron's weight noise as a box sees it and as it is: 784 inputs in [0, 1], each weight's deviation N(0, 0.01²).

usage: python experiments/noise.py [FOLDER]          writes noise.svg, noise.png and noise.json
"""

import json
import sys
from pathlib import Path

import numpy as np
from scipy.stats import norm

from bnncert.plots import draw_noise, save_figure

SIGMA, INPUTS, FAILURE = 0.01, 784, 1e-3


def main(folder: Path) -> None:
    x = np.clip(np.random.default_rng(0).normal(-0.3, 0.6, INPUTS), 0, 1)  # mostly dark, like an image
    each = -np.expm1(np.log1p(-FAILURE) / INPUTS) / 2  # one tail of one weight, so that all hold together
    rows = {
        "sd": SIGMA * float(np.linalg.norm(x)),
        "gaussian_reach": float(norm.isf(FAILURE / 2)) * SIGMA * float(np.linalg.norm(x)),
        "box_reach": float(norm.isf(each)) * SIGMA * float(np.abs(x).sum()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noise.json").write_text(json.dumps(rows, indent=1) + "\n")
    save_figure(draw_noise(**rows, title="Both hold with probability 99.9 %"), folder / "noise")
    print(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))
