"""Runs: every entrant on every instance, one line an answer, resumed where they stopped.

    answers.jsonl                        one line an entrant and instance
    certificates/TOOL/INSTANCE.safetensors

A line is written when the answer is known and, where it has a certificate, that is checked. Answers
to an instance that has changed since are asked for again.
"""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import IO

from bnncert.bench.entrants import Entrant
from bnncert.bench.suite import Instance
from bnncert.bench.verdicts import Verdict, verdict_on
from bnncert.bench.workers import DiedError, TooLongError, Worker
from bnncert.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:
    fcntl = None  # type: ignore[assignment]

ANSWERS, CERTIFICATES = "answers.jsonl", "certificates"
CHECK_SECONDS = 300.0  # for the checker, which no tool pays for
STATUSES = ANSWERED, REFUSED, TIMEOUT, ERROR = "answered", "refused", "timeout", "error"
LONGEST = 300  # characters of a reason


@dataclass(frozen=True)
class Answer:
    """What a tool said of an instance, and what the checker said of that.

    certified: False of statistics. Of what was not answered the interval is [0, 1].
    """

    tool: str
    instance: str
    digest: str
    status: str
    seconds: float
    lower: float = 0.0
    upper: float = 1.0
    reason: str = ""
    certified: bool = True
    certificate: str | None = None
    verdict: Verdict | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tool, self.instance, self.digest


def run(
    folder: Path,
    instances: Sequence[Instance],
    entrants: Sequence[Entrant],
    workers: int,
    on_answer: Callable[[Answer], None] = lambda _: None,
) -> None:
    """Ask whoever has not answered yet, one entrant after the other, with so many workers."""
    crew = [Worker(max(1, (os.cpu_count() or 1) // workers)) for _ in range(workers)]
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in crew:
        free.put(worker)
    pool = ThreadPoolExecutor(workers)
    with _one_interrupt():
        try:
            with _appending(folder / ANSWERS) as file:
                done = {answer.key for answer in read_answers(folder)}
                # All digests are taken before anybody is asked.
                waiting = [
                    (entrant, instance)
                    for entrant in entrants
                    for instance in instances
                    if (entrant.name, instance.name, instance.digest) not in done
                ]
                futures = [pool.submit(_answer, folder, *each, free) for each in waiting]
                for future in as_completed(futures):
                    answer = future.result()
                    _append(file, answer)
                    on_answer(answer)
        finally:
            # Threads wait for their processes: these are killed first, and each thread then closes
            # what is its own.
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in crew:
                worker.end()
            pool.shutdown()
            for worker in crew:
                worker.close()


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Ctrl-C ends the run; pressed again, or sent twice as `timeout` does, it leaves the cleaning
    up alone."""
    # Only the main thread may handle signals, and who ignores this one goes on doing so.
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    pressed: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature of a handler)
        if not pressed:
            pressed.append(number)
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def read_answers(folder: Path) -> list[Answer]:
    """Every answer in the folder, the first of each entrant and instance as they were then.

    What was being written when a run was ended is no line.
    """
    path = folder / ANSWERS
    found: dict[tuple[str, str, str], Answer] = {}
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line)
            verdict = fields.pop("verdict")
            answer = Answer(**fields, verdict=None if verdict is None else Verdict(**verdict))
            _require_sound(answer)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(
                f"line {number} of {str(path)!r} is no answer ({error}); take it out, or run anew "
                "in another folder"
            ) from error
        found.setdefault(answer.key, answer)
    return list(found.values())


def _require_sound(answer: Answer) -> None:
    """Of the types and ranges that a run writes: scores rest on these lines."""
    verdict = answer.verdict or Verdict(False)
    if answer.status not in STATUSES:
        raise ValueError(f"status {str(answer.status)[:40]!r} is not known")
    for text in (answer.tool, answer.instance, answer.digest, answer.reason, verdict.reason):
        if type(text) is not str:
            raise ValueError("a name or reason is no text")
    if type(answer.certificate) not in (str, type(None)):
        raise ValueError("the certificate is no path")
    if type(answer.certified) is not bool or type(verdict.accepted) is not bool:
        raise ValueError("certified or accepted is neither true nor false")
    for number in (answer.seconds, answer.lower, answer.upper, verdict.lower, verdict.upper):
        if type(number) not in (int, float) or not math.isfinite(number) or number < 0:
            raise ValueError(f"{str(number)[:40]!r} is no number of an answer")
    for lower, upper in ((answer.lower, answer.upper), (verdict.lower, verdict.upper)):
        if not lower <= upper <= 1:
            raise ValueError("lower and upper are no interval of probabilities")
    said_nothing = (answer.lower, answer.upper, answer.verdict) == (0, 1, None)
    if answer.status != ANSWERED and not said_nothing:
        raise ValueError(f"what has status {answer.status} says nothing")
    if answer.verdict is not None and answer.certificate is None:
        raise ValueError("there is a verdict, but no certificate")


def current(answers: Sequence[Answer], instances: Sequence[Instance]) -> list[Answer]:
    """The answers to the instances as they are now."""
    known = {instance.name: instance.digest for instance in instances}
    return [answer for answer in answers if known.get(answer.instance) == answer.digest]


def _answer(
    folder: Path, entrant: Entrant, instance: Instance, free: SimpleQueue[Worker]
) -> Answer:
    """One answer, with the checker's verdict on its certificate, by a worker that is free."""
    worker = free.get()
    try:
        answer = _asked(folder, entrant, instance, worker)
        if answer.certificate is None:
            return answer
        path = folder / answer.certificate
        return replace(answer, verdict=checked(path, instance.path, instance.digest, worker))
    finally:
        free.put(worker)


def _asked(folder: Path, entrant: Entrant, instance: Instance, worker: Worker) -> Answer:
    try:
        entrant.prepare(worker)
    except (TooLongError, DiedError) as error:
        raise InputError(
            f"a process for {entrant.name} does not start ({error}); give fewer --workers"
        ) from error
    path = f"{CERTIFICATES}/{entrant.name}/{instance.name}.safetensors"
    known = Answer(
        entrant.name, instance.name, instance.digest, ANSWERED, 0.0, certified=entrant.certified
    )
    started = time.perf_counter()
    try:
        claim = entrant.ask(instance, folder / path, worker)
    except (InputError, TooLongError, DiedError) as error:
        status = {InputError: REFUSED, TooLongError: TIMEOUT, DiedError: ERROR}[type(error)]
        seconds = time.perf_counter() - started
        return replace(known, status=status, seconds=seconds, reason=str(error)[:LONGEST])
    return replace(
        known,
        seconds=time.perf_counter() - started,
        lower=claim.lower,
        upper=claim.upper,
        certificate=path if claim.certificate else None,
    )


def checked(certificate: Path, instance: Path, digest: str, worker: Worker) -> Verdict:
    """The verdict on a certificate, from a process that may take too long or die of it."""
    try:
        found: Verdict = worker.call(
            verdict_on, certificate, instance, digest, seconds=CHECK_SECONDS
        )
    except TooLongError:
        return Verdict(False, reason=f"not checked within {CHECK_SECONDS:g} s")
    except (DiedError, InputError) as error:
        return Verdict(False, reason=str(error)[:LONGEST])
    return found


def _appending(path: Path) -> IO[bytes]:
    """The file to append lines to, for one run at a time; half a line, of a run that was ended, is
    taken off first."""
    file = path.open("ab+")
    if fcntl is not None:  # Windows has none
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise InputError(
                f"another run is at work in {str(path.parent)!r}; wait for it, or name a new folder"
            ) from error
    file.seek(0)
    content = file.read()
    file.truncate(content.rfind(b"\n") + 1)
    return file


def _append(file: IO[bytes], answer: Answer) -> None:
    file.write((json.dumps(asdict(answer), allow_nan=False) + "\n").encode())
    file.flush()
    os.fsync(file.fileno())
