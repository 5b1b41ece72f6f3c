"""A process that works on one thing at a time and is ended when its seconds are over."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from bnncert.errors import InputError
from bnncert.numerics.memory import keep_freed_memory

STARTED = "started"
SECONDS = 120.0  # for a process to start: it imports torch


class TooLongError(Exception):
    """The seconds are over."""


class DiedError(Exception):
    """The process ended by itself, or what it called failed."""


class Worker:
    """Calls functions in a process of its own, which outlives a call but not its seconds."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._process: Any = None
        self._ours: Connection | None = None

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

    def close(self) -> None:
        """End the process, whatever it is at."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._ours is not None:
            self._ours.close()
        self._process = self._ours = None

    def _connection(self) -> Connection:
        if self._ours is None or not self._process.is_alive():
            self.close()
            context = multiprocessing.get_context("spawn")
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


def _serve(connection: Connection, threads: int) -> None:
    """The process: answers until nobody asks any more."""
    keep_freed_memory()
    torch.set_num_threads(threads)
    connection.send(("done", STARTED))
    while True:
        try:
            function, arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            reply = "done", function(*arguments)
        except KeyboardInterrupt:
            return
        except InputError as error:
            reply = "refused", str(error)
        except Exception as error:
            reply = "failed", f"{type(error).__name__}: {error}"
        connection.send(reply)
