"""A task of our own: which vertical manoeuvre avoids another aircraft.

From the relative altitude h, the relative climb rate v and the time τ to closest approach the
vertical distance then is predicted as s = h + v τ / 2 (half of the climb is assumed to go on).
Where |s| is 300 ft or more the way is clear. Else own ship climbs if the other one passes below it,
and descends if above; by how many feet per second the distance must grow,
(300 - |s|) / max(τ, 1 s), says whether weakly or, above 15, strongly. Inputs are drawn evenly from
the operating region.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch

from bnncert.data.dataset import Dataset
from bnncert.data.regions import Dimension, OperatingRegion

ADVISORY = "advisory"
ADVISORIES = ("clear", "climb", "descend", "strong climb", "strong descend")
SEPARATION = 300.0  # ft
STRONG = 15.0  # ft/s
COUNTS = {"train": 36_000, "test": 4_000}

OPERATING = OperatingRegion(
    (
        Dimension("relative altitude", Fraction(-1000), Fraction(1000), "ft", scale=Fraction(1000)),
        Dimension("relative climb rate", Fraction(-50), Fraction(50), "ft/s", scale=Fraction(50)),
        Dimension(
            "time to closest approach",
            Fraction(0),
            Fraction(40),
            "s",
            center=Fraction(20),
            scale=Fraction(20),
        ),
    )
)


def advisory(split: str) -> Dataset:
    """Drawn inputs as a network reads them, in [-1, 1]³, and the number of their advisory."""
    random = np.random.default_rng(0).random((sum(COUNTS.values()), 3))
    part = slice(COUNTS["train"]) if split == "train" else slice(COUNTS["train"], None)
    x = 2 * random[part] - 1
    altitude, climb, time = 1000 * x[:, 0], 50 * x[:, 1], 20 + 20 * x[:, 2]
    passing = altitude + climb * time / 2
    missing = np.maximum(SEPARATION - np.abs(passing), 0)
    strong = missing / np.maximum(time, 1) > STRONG
    manoeuvre = np.where(passing <= 0, 1, 2) + 2 * strong
    y = np.where(missing > 0, manoeuvre, 0)
    return Dataset(ADVISORY, torch.from_numpy(x), torch.from_numpy(y.astype(np.int64)), image=False)
