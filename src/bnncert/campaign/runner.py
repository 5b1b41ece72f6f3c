"""The runner: hands chunks to an executor, stores what comes back, and deals with what does not.

A chunk whose computation fails is halved; one whose worker died is first tried again alone, so that
it is known whose fault it was. One input that still fails becomes an error with its reason, and
everything else goes on.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from bnncert.campaign.executors import Workers, cluster_lost, worker_died
from bnncert.campaign.plan import Chunk, Missing, Plan, bundle_name
from bnncert.campaign.progress import Progress, Show
from bnncert.campaign.store import Store, stored_row
from bnncert.campaign.work import NOTHING, Bounds, Computed, Row, compute, improved
from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.results.rows import Status

BEAT = 5.0  # seconds between two signs of life
PAUSE = 0.2  # seconds between two looks at a chunk that another runner has claimed


class Interrupted(Exception):  # noqa: N818 (not a fault)
    """The user asked to stop; what was in flight is stored."""


@dataclass(frozen=True, eq=False)
class Flight:
    """A chunk that is being computed."""

    chunk: Chunk
    missing: Missing
    claim: str


class Runner:
    """A plan, a store and workers; `run` returns when the plan's chunks are all stored."""

    def __init__(self, plan: Plan, store: Store, workers: Workers, device: str, show: Show) -> None:
        self.plan = plan
        self.store = store
        self.workers = workers
        self.device = device
        self.show = show
        self.flights: dict[Future[Computed], Flight] = {}
        self.pending: deque[Chunk] = deque()
        # A worker died over each; they are computed one at a time.
        self.suspects: deque[Chunk] = deque()
        self.state = Progress(0)
        self.started = self.beat = time.monotonic()
        self.broken = self.stopping = False

    def run(self, chunks: list[Chunk]) -> Progress:
        """Compute and store what the chunks lack."""
        self.pending.extend(chunks)
        self.state = Progress(sum(map(self.plan.items_of, chunks)))
        self.executor = self.workers.start()
        try:
            with self._stop_signals():
                while self.flights or (not self.stopping and (self.pending or self.suspects)):
                    self._launch()
                    self._land()
            if self.stopping:
                raise Interrupted
        finally:
            for future in self.flights:
                future.cancel()
            self.executor.shutdown(wait=not self.flights)
            self.store.release()
        return self.state

    @contextmanager
    def _stop_signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM (which batch systems send) lets chunks in flight finish.

        A second stops now.
        """

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (the signature of a handler)
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True
            print(
                "bnncert: stopping after the chunks in flight; once more to stop at once",
                file=sys.stderr,
            )

        # Only the main thread may handle signals.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _launch(self) -> None:
        """Keep the workers busy; while a suspect flies, nothing else does."""
        # A process pool takes no more once one of its processes has died.
        if self.broken and not self.flights:
            self.executor.shutdown(wait=False)
            self.executor = self.workers.start()
            self.broken = False
        looked = 0
        while (
            not self.stopping and self._room() and looked < len(self.pending) + len(self.suspects)
        ):
            chunk = self.suspects.popleft() if self.suspects else self.pending.popleft()
            try:
                begun = self._begin(chunk)
            except BrokenExecutor:  # a process died since the last chunk landed
                self.broken = True
                (self.suspects if chunk.deaths else self.pending).appendleft(chunk)
                return
            if begun:
                looked = 0
            else:  # another runner's, for now
                self.pending.append(chunk)
                looked += 1
        if not self.flights and looked:
            time.sleep(PAUSE)

    def _room(self) -> bool:
        if (
            self.broken
            or self.suspects
            or any(flight.chunk.deaths for flight in self.flights.values())
        ):
            return not self.flights
        return len(self.flights) < self.workers.in_flight()

    def _begin(self, chunk: Chunk) -> bool:
        """Submit what the chunk lacks, which may be nothing; False if somebody else is at it."""
        plan = self.plan
        inputs = [plan.input_digests[position] for position in chunk.positions]
        claim = digest([chunk.subject.digest, inputs])
        if not self.store.claim(claim):
            return False
        missing = plan.missing(chunk, self.store.stored(chunk.subject.digest, inputs))
        if missing.nothing:
            self.store.add((), "", b"", claim)
            self._count(missing, (), self.plan.items_of(chunk))
            return True
        task = plan.task(chunk, missing, self.device)
        self.flights[self.executor.submit(compute, task)] = Flight(chunk, missing, claim)
        return True

    def _land(self) -> None:
        """Wait for chunks, and store or divide them."""
        if self.stopping:
            self.flights = {
                future: flight for future, flight in self.flights.items() if not future.cancel()
            }
        done, _ = wait(self.flights, timeout=BEAT, return_when=FIRST_COMPLETED)
        for future in done:
            flight = self.flights.pop(future)
            error = future.exception()
            if error is None:
                self._store(flight, future.result())
            else:
                self._failed(flight, error)
        if time.monotonic() - self.beat > BEAT:
            self.beat = time.monotonic()
            self.store.renew()

    def _store(self, flight: Flight, computed: Computed) -> None:
        plan = self.plan
        chunk = flight.chunk
        name = bundle_name(plan, chunk, flight.missing)
        rows = [
            stored_row(plan.key(chunk, row.item, row.method), row, name) for row in computed.rows
        ]
        self.store.add(rows, name, computed.bundle, flight.claim)
        self._count(flight.missing, computed.rows, plan.items_of(chunk))

    def _failed(self, flight: Flight, error: BaseException) -> None:
        chunk = flight.chunk
        if cluster_lost(error):
            raise InputError(
                f"the Dask scheduler was lost ({error!r}); give the same command again to resume"
            )
        if not isinstance(error, Exception):
            raise error
        died = worker_died(error)
        self.broken |= isinstance(error, BrokenExecutor)
        if died and not chunk.deaths:
            self.suspects.append(replace(chunk, deaths=1))
            return
        halves = self.plan.halves(chunk)
        if halves and died:
            self.suspects.extend(replace(half, deaths=1) for half in halves)
        elif halves:
            self.pending.extendleft(reversed(halves))
        else:
            reason = "the worker process died" if died else f"{type(error).__name__}: {error}"
            self._store(
                flight, Computed(self.plan.failed(flight.chunk, flight.missing, reason), b"")
            )

    def _count(self, missing: Missing, rows: tuple[Row, ...], items: int) -> None:
        """An item's bounds are the best of its stored and its new answers."""
        best: dict[int, Bounds | None] = dict(missing.known)
        for row in rows:
            answer = row.answer
            if answer.status != Status.ERROR:
                bounds = (answer.lower, answer.upper)
                best[row.item] = improved(best.get(row.item, NOTHING), answer.status, bounds)
        state = self.state
        self.state = Progress(
            state.total,
            state.done + items,
            state.computed + len({row.item for row in rows}),
            state.errors + len({row.item for row in rows if row.answer.status == Status.ERROR}),
            state.lower + sum(bounds[0] for bounds in best.values() if bounds is not None),
            time.monotonic() - self.started,
        )
        self.show(self.state)
