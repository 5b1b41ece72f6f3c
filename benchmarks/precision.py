"""float64 against float32 and TF32: time of margins, and how far they are off.

usage: BNNCERT_DATA=FOLDER python benchmarks/precision.py [cpu|cuda] [IMAGES] [POSTERIOR]

CIFAR10 test images at ε = 1/255; the zoo's `cnn` and 500 images unless named. The margins are those
of training, the one bound that takes either dtype; certificates take float64 alone, whose rounding
is charged. The least margin of an image has no charge in float32: it is no bound, and the table
says on how many images it is above what float64 gives.
"""

import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from bnncert import ball, class_robust, load_posterior
from bnncert.concentration.margin import Weights, margins, threshold
from bnncert.data import load_inputs
from bnncert.model.network import Network
from bnncert.model.specification import Specification
from bnncert.posteriors import Normal
from bnncert.posteriors.base import Posterior
from bnncert.zoo.recipes import posterior_path

ARITHMETIC = {
    "float64": (torch.float64, False),
    "float32": (torch.float32, False),
    "float32 by TF32": (torch.float32, True),
}
AT_ONCE = 100  # images
REPEATS = 3


def main(device: str = "cpu", images: str = "500", posterior: str = "") -> None:
    path = Path(posterior) if posterior else posterior_path("cnn")
    network, weights = load_posterior(path)
    data = load_inputs("cifar10")
    region = ball(data.x[: int(images)], 1 / 255, clip=(0, 1))
    robust = class_robust(region, data.y[: int(images)], network.outputs).to(device)
    exact: Tensor | None = None
    print("| arithmetic | seconds | largest relative difference | above float64 |")
    print("|---|---|---|---|")
    for name, (kind, cores) in ARITHMETIC.items():
        if cores and device != "cuda":
            continue
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = cores
        layers = layers_of(network, weights, device, kind)
        found, seconds = _timed(network, layers, robust, kind)
        exact = found if exact is None else exact
        off = (found - exact) / exact.abs()
        print(
            f"| {name} | {seconds:.3f} | {float(off.abs().max()):.1e} "
            f"| {int((off > 0).sum())} of {len(found)} |"
        )


def layers_of(network: Network, posterior: Posterior, device: str, kind: torch.dtype) -> Weights:
    """Means and standard deviations by layer."""
    if not isinstance(posterior, Normal):
        sys.exit(f"the posterior is {posterior.family}; name one of independent Gaussian weights")
    means = network.split(posterior.mean.to(device, kind))
    stds = network.split(posterior.std.to(device, kind))
    return [
        (mean, std if any(bool(part.any()) for part in std) else None)
        for mean, std in zip(means, stds, strict=True)
    ]


def _timed(
    network: Network, layers: Weights, robust: Specification, kind: torch.dtype
) -> tuple[Tensor, float]:
    """The least margin of every image, and the seconds of the quickest of a few runs."""
    t = threshold(network, [stds is not None for _, stds in layers])
    box = robust.region.box
    best = float("inf")
    with torch.no_grad():
        for _ in range(REPEATS):
            start = time.perf_counter()
            parts = []
            for at in range(0, len(robust.rows), AT_ONCE):
                part = slice(at, at + AT_ONCE)
                ends = box.lower[part].to(kind), box.upper[part].to(kind)
                found = margins(network, layers, *ends, robust.rows[part].to(kind), t)
                parts.append(found.value.amin(-1).double().cpu())
            best = min(best, time.perf_counter() - start)
    return torch.cat(parts), best


if __name__ == "__main__":
    main(*sys.argv[1:])
