"""A process that works on one thing at a time and is ended when its seconds are over."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import IO, Any

import torch

from bnncert.errors import InputError
from bnncert.numerics.memory import keep_freed_memory

STARTED = "started"
SECONDS = 120.0  # for a process to start: it imports torch
PRINTED = 1 << 20  # bytes at the end of what a program prints, that are read


class TooLongError(Exception):
    """The seconds are over."""


class DiedError(Exception):
    """The process ended by itself, or what it called failed."""


class Worker:
    """Calls functions in a process of its own, which outlives a call but not its seconds, and runs
    programs.

    `end` may be called from any thread; all else is for the one that the worker works for.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process: Any = None
        self._ours: Connection | None = None
        self._program: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._lock = threading.Lock()  # while something starts: what `end` does not see, it misses

    def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What function(*arguments) returns.

        An `InputError` there is one here; everything else is `DiedError`.
        """
        try:
            connection = self._connection()
            connection.send((function, arguments))
            return self._received(connection, seconds)
        except (EOFError, OSError) as error:
            self.close()
            raise DiedError("the process died; it may have run out of memory") from error
        except BaseException as error:
            if not isinstance(error, InputError | DiedError):
                self.close()
            raise

    def printed(self, words: Sequence[str], seconds: float) -> str:
        """The end of what a program prints; what it started is ended with it.

        It prints to files: whoever holds a pipe open, a daemon too, could keep us waiting for ever.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
            try:
                with self._starting():
                    program = self._program = subprocess.Popen(
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=complaints,
                        start_new_session=True,
                    )
            except OSError as error:
                raise DiedError(f"it does not start ({error})") from error
            try:
                program.wait(seconds)
            except subprocess.TimeoutExpired as error:
                raise TooLongError from error
            finally:
                _kill(program)
                program.wait()
                self._program = None
            if program.returncode:
                last = (_end_of(complaints).strip().splitlines() or [""])[-1]
                raise DiedError(f"exit code {program.returncode}: {last}")
            return _end_of(out)

    def end(self) -> None:
        """Kill what it is at, so that whoever waits for that goes on; nothing starts any more."""
        with self._lock:
            self._ended = True
            process, program = self._process, self._program
            if process is not None:
                process.kill()
            if program is not None:
                _kill(program)

    def close(self) -> None:
        """End the process, whatever it is at; a call starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
        if self._ours is not None:
            self._ours.close()
        self._ours = None

    @contextmanager
    def _starting(self) -> Iterator[None]:
        with self._lock:
            if self._ended:
                raise DiedError("the run was ended")
            yield

    def _connection(self) -> Connection:
        if self._ours is None or not self._process.is_alive():
            self.close()
            context = multiprocessing.get_context("spawn")
            with self._starting(), _deaf():
                self._ours, theirs = context.Pipe()
                self._process = context.Process(
                    target=_serve, args=(theirs, self._threads), daemon=True
                )
                self._process.start()
                theirs.close()
            self._received(self._ours, SECONDS)
        return self._ours

    def _received(self, connection: Connection, seconds: float) -> Any:
        if not connection.poll(seconds):
            self.close()
            raise TooLongError
        kind, value = connection.recv()
        if kind == "refused":
            raise InputError(value)
        if kind == "failed":
            raise DiedError(value)
        return value


@contextmanager
def _deaf() -> Iterator[None]:
    """What starts here is deaf to Ctrl-C, also while it imports: the run ends it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # which processes share, and whose start unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, threads: int) -> None:
    """The process: answers until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    torch.set_num_threads(threads)
    connection.send(("done", STARTED))
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            reply = "done", function(*arguments)
        except InputError as error:
            reply = "refused", str(error)
        except Exception as error:
            reply = "failed", f"{type(error).__name__}: {error}"
        connection.send(reply)


def _kill(program: subprocess.Popen[bytes]) -> None:
    """And all that is in its session."""
    if os.name == "posix":
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    else:
        program.kill()


def _end_of(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - PRINTED))
    return file.read().decode("utf-8", "replace")
