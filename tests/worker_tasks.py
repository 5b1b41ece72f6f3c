"""What a worker process of the benchmark is asked to do by the tests: work that takes for ever, and
work that fails."""

from __future__ import annotations

import os
import time

from bnncert import InputError


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def fail(kind: str) -> None:
    if kind == "input":
        raise InputError("not this")
    if kind == "death":
        os._exit(1)
    raise RuntimeError("a fault")
