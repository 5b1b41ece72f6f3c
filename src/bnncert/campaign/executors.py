"""Executors: where chunks are computed.

All are `concurrent.futures.Executor`s: a thread, processes, or Dask. A thread beside the main one
keeps that free for the display, the store and Ctrl-C. Processes are spawned, one a device or core,
each with its share of the cores. Dask brings other machines.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue

import torch

from bnncert.errors import InputError

LOCAL = "local"  # instead of a scheduler's address: a Dask cluster on this machine
ANSWER = 20.0  # seconds a scheduler has to answer
DEATHS = ("KilledWorker",)  # Dask's words for it, by name: it may not be installed
LOST = ("FutureCancelledError", "CancelledError", "CommClosedError")


@dataclass(frozen=True)
class Workers:
    """How to start an executor (again, should a process die), and how many chunks fly at once."""

    start: Callable[[], Executor]
    in_flight: Callable[[], int]


def worker_died(error: BaseException) -> bool:
    return isinstance(error, BrokenExecutor) or type(error).__name__ in DEATHS


def cluster_lost(error: BaseException) -> bool:
    return type(error).__name__ in LOST


def in_process() -> Workers:
    """One chunk at a time, and the next one ready."""
    return Workers(lambda: ThreadPoolExecutor(1), lambda: 2)


def processes(count: int, device: str) -> Workers:
    """`count` processes that share the cores, or take the GPUs in turn."""
    threads = max(1, (os.cpu_count() or 1) // count)
    devices = torch.cuda.device_count() if device == "cuda" else 0

    def start() -> Executor:
        context = multiprocessing.get_context("spawn")
        turns: Queue[int] = context.Queue()
        for number in range(count):
            turns.put(number % max(1, devices))
        initial = (turns, threads, device == "cuda")
        return ProcessPoolExecutor(count, context, initializer=_begin, initargs=initial)

    return Workers(start, lambda: count + 1)


def _begin(turns: Queue[int], threads: int, cuda: bool) -> None:
    """In a new process: the runner handles Ctrl-C, and without one there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    if cuda:
        torch.cuda.set_device(turns.get())
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def dask_workers(address: str, count: int, device: str) -> Iterator[Workers]:
    """The workers of a running scheduler, or with `local` a cluster of `count` processes on this
    machine.

    On GPUs a task asks for one unit of the resource GPU: start each worker with `--resources GPU=1`
    and one device.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError("--dask needs Dask: pip install 'bnncert[dask]'") from error
    needs = {"GPU": 1} if device == "cuda" else {}
    cluster = None
    try:
        if address == LOCAL:
            cluster = LocalCluster(
                n_workers=max(1, count),
                threads_per_worker=1,
                dashboard_address=None,
                resources=needs or None,
            )
        client = Client(cluster or address, timeout=ANSWER)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address!r} ({error}); check the address"
        ) from error
    try:
        # A chunk's inputs travel with its task, which Dask finds large and says so.
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        options = {"pure": False, "resources": needs}
        yield Workers(
            lambda: client.get_executor(**options),
            lambda: max(1, 2 * sum(client.nthreads().values())),
        )
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
