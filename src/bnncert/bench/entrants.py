"""Who answers: a tool of the project, in a process of its own, or any command.

A command is called with the path of an instance's JSON file after its own words. It prints one line
of JSON, {"lower": ..., "upper": ...}, with the path of a certificate as "certificate" if it has
one. What it prints before is of no interest.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn, Protocol

from bnncert.bench.suite import Instance
from bnncert.bench.tools import TOOLS, answer, ready
from bnncert.bench.workers import DiedError, Worker
from bnncert.errors import InputError

STARTING = 120.0  # seconds for a process of ours to import what it needs


@dataclass(frozen=True)
class Claim:
    """An interval, and whether its certificate is in the file that was named."""

    lower: float
    upper: float
    certificate: bool = False


class Entrant(Protocol):
    """What is asked about instances.

    `ask` raises `InputError` for what it does not take, `TooLongError` or `DiedError`.
    """

    @property
    def name(self) -> str: ...

    @property
    def certified(self) -> bool: ...

    def prepare(self, worker: Worker) -> None:
        """What counts for no instance's seconds."""

    def ask(self, instance: Instance, certificate: Path, worker: Worker) -> Claim: ...


@dataclass(frozen=True)
class Own:
    """A tool of the project, by its name."""

    name: str
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.name not in TOOLS:
            raise InputError(f"tool {self.name!r} is not known; choose {', '.join(TOOLS)}")

    @property
    def certified(self) -> bool:
        return TOOLS[self.name].certified

    def prepare(self, worker: Worker) -> None:
        worker.call(ready, seconds=STARTING)

    def ask(self, instance: Instance, certificate: Path, worker: Worker) -> Claim:
        arguments = (self.name, instance.path, certificate, self.device)
        return Claim(*worker.call(answer, *arguments, seconds=instance.timeout))


@dataclass(frozen=True)
class Command:
    """Any program that reads an instance's file and prints its answer."""

    name: str
    words: tuple[str, ...]
    certified: bool = True

    def prepare(self, worker: Worker) -> None:
        """Nothing: a process of its own answers."""

    def ask(self, instance: Instance, certificate: Path, worker: Worker) -> Claim:
        printed = worker.printed([*self.words, str(instance.path.resolve())], instance.timeout)
        claim, path = _read(printed)
        if path is not None:
            try:
                certificate.parent.mkdir(parents=True, exist_ok=True)
                if not Path(path).is_file():  # a device may have no end
                    raise OSError("it is no file")
                shutil.copyfile(path, certificate)
            except (OSError, ValueError) as error:
                raise DiedError(f"certificate {path!r} cannot be read ({error})") from error
        return claim


def command_line(text: str, name: str | None) -> Command:
    """The entrant of a command line, by the name of its program unless one is given."""
    words = tuple(shlex.split(text))
    if not words:
        raise InputError("--command is empty; give the program and its arguments")
    if shutil.which(words[0]) is None:
        raise InputError(f"--command {words[0]!r} is no program that is found; check the path")
    chosen = name or Path(words[-1]).stem
    if chosen in TOOLS or not chosen.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise InputError(
            f"--name {chosen!r} is a tool of ours or no plain word; give letters, digits and dashes"
        )
    return Command(chosen, words)


def _read(printed: str) -> tuple[Claim, str | None]:
    """The claim in the last line that was printed, and the path of its certificate."""
    last = (printed.strip().splitlines() or [""])[-1]
    try:
        found = json.loads(last, parse_constant=_refuse, parse_float=Decimal)
        lower, upper, path = found["lower"], found["upper"], found.get("certificate")
        numbers = all(type(end) in (int, Decimal) for end in (lower, upper))
        if not (numbers and 0 <= lower <= upper <= 1) or type(path) not in (str, type(None)):
            raise ValueError("lower and upper are no interval of probabilities")
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise DiedError(f"the last line printed is no answer ({error}): {last[:80]}") from error
    return Claim(_float(lower, -math.inf), _float(upper, math.inf), path is not None), path


def _float(claimed: Decimal | int, outward: float) -> float:
    """What a float prints is that float; more digits than floats have are rounded outward, so that
    no truth is outside of the float that is inside of what was claimed."""
    nearest, exact = float(claimed), Decimal(claimed)
    inward = Decimal(nearest) > exact if outward < 0 else Decimal(nearest) < exact
    if inward and Decimal(repr(nearest)) != exact:
        return math.nextafter(nearest, outward)
    return nearest


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
