"""Threads: those that wait for work soon sleep.

Left alone, OpenMP's threads spin for a long while before they sleep. Where other programs keep the
cores busy, each spinning thread holds up the one it waits for, and a command of seconds takes
minutes. To sleep at once is immune to that, but waking takes longer than most of our steps do; so
they look a thousand times, some microseconds, first.
"""

from __future__ import annotations

import os

WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"}


def wait_asleep() -> None:
    """For our own programs and their workers, where the user has not said otherwise.

    OpenMP reads this once: it must be said before torch is imported.
    """
    if not WAITING.keys() & os.environ.keys():
        os.environ.update(WAITING)
