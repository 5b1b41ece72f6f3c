"""The store of a run folder: results in SQLite, certificates in bundles.

A crash loses at most chunks in flight. A chunk's bundle is on disk under its name before one
transaction enters its rows, so whatever row there is has its certificate. Equal keys have equal
results: entering one again changes nothing, and one that differs is an error.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bnncert.campaign.bundle import BUNDLES
from bnncert.campaign.plan import Key, Plan, Stored
from bnncert.campaign.work import Row
from bnncert.errors import InputError
from bnncert.files.tensors import write_atomically
from bnncert.results.rows import Answer, Status, columns
from bnncert.version import __version__

T = TypeVar("T")
STORE = "campaign.sqlite"
SCHEMA = "bnncert-campaign/1"
ROUNDING = 1e-9  # by which two machines may differ on one key; more is a conflict
LEASE = 60.0  # seconds a claim outlives the last sign of its runner
PATIENCE = 60.0  # seconds to wait for another runner's transaction
AT_ONCE = 500  # inputs looked up by one statement

ANSWER = columns(Answer)
# What a row of results holds: its key, facts of an answer, where its certificate is, and why there
# is none.
KEPT = ("status", "predicted", "lower", "upper", "bound_calls", "seconds")
WHERE = ("bundle", "member", "reason")
FIELDS = (*Key._fields, *KEPT, *WHERE)

TABLES = f"""
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE posteriors (
    rank INTEGER NOT NULL, name TEXT PRIMARY KEY, model TEXT NOT NULL, posterior TEXT NOT NULL,
    path TEXT NOT NULL
);
CREATE TABLE methods (
    rank INTEGER NOT NULL, method TEXT, config TEXT, PRIMARY KEY (method, config)
);
CREATE TABLE items (
    rank INTEGER PRIMARY KEY, idx INTEGER NOT NULL, {ANSWER["label"].sql}, {ANSWER["eps"].sql},
    input TEXT NOT NULL, spec TEXT NOT NULL
);
CREATE TABLE results (
    {", ".join(f"{name} TEXT" for name in Key._fields)},
    {", ".join(ANSWER[name].sql for name in KEPT)},
    {", ".join(f"{name} TEXT" for name in WHERE)},
    PRIMARY KEY ({", ".join(Key._fields)})
) WITHOUT ROWID;
CREATE TABLE claims (
    chunk TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, expires REAL NOT NULL
);
"""
KEY = ", ".join(Key._fields)
INSERT = f"""
INSERT INTO results VALUES ({", ".join("?" * len(FIELDS))})
ON CONFLICT ({KEY}) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in (*KEPT, *WHERE))}
WHERE results.status = '{Status.ERROR}'
"""


@dataclass(frozen=True)
class StoredRow:
    """A row of the table of results, in the order of FIELDS."""

    values: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        return self.values[FIELDS.index(name)]

    @property
    def key(self) -> Key:
        return Key(*self.values[: len(Key._fields)])


def stored_row(key: Key, row: Row, bundle: str) -> StoredRow:
    kept = [getattr(row.answer, name) for name in KEPT]
    return StoredRow((*key, *kept, bundle if row.member else None, row.member, row.reason))


class Store:
    """A run folder that is open. Every method is one transaction."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self.connection = connection

    def enter(self, plan: Plan) -> None:
        """Make the folder that of the plan; results stay, whatever was asked before."""
        with self._transaction() as cursor:
            for table in ("about", "posteriors", "methods", "items"):
                cursor.execute(f"DELETE FROM {table}")
            threshold = plan.job.at_least
            about = {"schema": SCHEMA, "campaign": plan.description, "seed": str(plan.job.seed)}
            about |= {"at_least": "" if threshold is None else str(threshold)}
            cursor.executemany("INSERT INTO about VALUES (?, ?)", about.items())
            subjects = [
                (k, s.name, s.digest, s.posterior, str(s.path)) for k, s in enumerate(plan.subjects)
            ]
            cursor.executemany("INSERT INTO posteriors VALUES (?, ?, ?, ?, ?)", subjects)
            methods = zip(plan.job.methods, plan.job.configs, strict=True)
            named = [(k, method.name, config) for k, (method, config) in enumerate(methods)]
            cursor.executemany("INSERT INTO methods VALUES (?, ?, ?)", named)
            labels = (
                [None] * len(plan.y) if plan.job.question.tolerance is not None else plan.y.tolist()
            )
            items = [
                (index, labels[k], eps, plan.input_digests[k], plan.specs[k][number])
                for k, index in enumerate(plan.indices)
                for number, eps in enumerate(plan.job.eps)
            ]
            cursor.executemany(
                "INSERT INTO items (idx, label, eps, input, spec) VALUES (?, ?, ?, ?, ?)", items
            )

    def adopt(self, other: Store) -> None:
        """Take over what another store was asked."""
        with self._transaction() as cursor:
            for table in ("about", "posteriors", "methods", "items"):
                rows = other.connection.execute(f"SELECT * FROM {table}").fetchall()
                marks = ", ".join("?" * len(rows[0]))
                cursor.execute(f"DELETE FROM {table}")
                cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def about(self, name: str) -> str:
        found = self._read("SELECT value FROM about WHERE name = ?", (name,))
        return str(found[0][0]) if found else ""

    def stored(self, posterior: str, inputs: Sequence[str]) -> dict[Key, Stored]:
        """What is known of some inputs of a posterior, by this version."""
        found: dict[Key, Stored] = {}
        for start in range(0, len(inputs), AT_ONCE):
            part = inputs[start : start + AT_ONCE]
            marks = ", ".join("?" * len(part))
            rows = self._read(
                f"SELECT {KEY}, status, lower, upper FROM results "
                f"WHERE posterior = ? AND input IN ({marks}) AND version = ?",
                (posterior, *part, __version__),
            )
            found |= {Key(*row[:6]): Stored(*row[6:]) for row in rows}
        return found

    def add(
        self, rows: Sequence[StoredRow], bundle: str, content: bytes, claim: str | None = None
    ) -> None:
        """Enter a chunk's rows, after their certificates.

        The chunk's claim ends in the same transaction.
        """
        path = self.folder / BUNDLES / bundle
        if content:
            _writing(self.folder, lambda: write_atomically(path, content))
        with self._transaction() as cursor:
            before = self.connection.total_changes
            cursor.executemany(INSERT, [row.values for row in rows])
            if self.connection.total_changes - before < len(rows):
                for row in rows:
                    self._compare(row)
            cursor.execute("DELETE FROM claims WHERE chunk = ?", (claim,))

    def _compare(self, row: StoredRow) -> None:
        """Another result for a key that is there must be the same result."""
        where = " AND ".join(f"{name} = ?" for name in Key._fields)
        (there,) = self._read(f"SELECT {', '.join(FIELDS)} FROM results WHERE {where}", row.key)
        found = StoredRow(there)
        apart = max(abs(found[end] - row[end]) for end in ("lower", "upper"))
        # What is settled may differ: with the threshold asked, and where a bound rounds to it.
        wrong = [one["status"] == Status.MISCLASSIFIED for one in (found, row)]
        same = wrong[0] == wrong[1] and apart <= ROUNDING
        if row["status"] != Status.ERROR and not same:
            raise InputError(
                f"conflicting results in {str(self.folder)!r}: {_said(found)} is stored, "
                f"{_said(row)} was computed, for {row.key}; nothing was changed; find out which "
                "installation is wrong before going on"
            )

    def claim(self, chunk: str) -> bool:
        """Whether the chunk is ours to compute: nobody else who is alive has claimed it."""
        with self._transaction(durable=False) as cursor:
            found = cursor.execute(
                "SELECT host, pid, expires FROM claims WHERE chunk = ?", (chunk,)
            ).fetchone()
            if found is not None and _alive(*found) and (found[0], found[1]) != _me():
                return False
            cursor.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)",
                (chunk, *_me(), time.time() + LEASE),
            )
            return True

    def renew(self) -> None:
        """A sign of life for all that we have claimed."""
        with self._transaction(durable=False) as cursor:
            cursor.execute(
                "UPDATE claims SET expires = ? WHERE host = ? AND pid = ?",
                (time.time() + LEASE, *_me()),
            )

    def release(self) -> None:
        """Give up our claims, and remove bundles that no row names if nobody else is at work."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM claims WHERE host = ? AND pid = ?", _me())
            others = [
                row
                for row in cursor.execute("SELECT host, pid, expires FROM claims")
                if _alive(*row)
            ]
            named = {
                row[0]
                for row in cursor.execute(
                    "SELECT DISTINCT bundle FROM results WHERE bundle IS NOT NULL"
                )
            }
            if not others:
                cursor.execute("DELETE FROM claims")
                for path in (self.folder / BUNDLES).iterdir():
                    if path.name not in named:
                        path.unlink(missing_ok=True)

    def runners(self) -> int:
        """How many are at work here."""
        rows = self._read("SELECT DISTINCT host, pid, expires FROM claims", ())
        return len({row[:2] for row in rows if _alive(*row)})

    def rows(self) -> Iterator[StoredRow]:
        """Every row, bundle by bundle."""
        statement = f"SELECT {', '.join(FIELDS)} FROM results ORDER BY bundle"
        for row in self.connection.execute(statement):
            yield StoredRow(row)

    def _read(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, values).fetchall()

    @contextmanager
    def _transaction(self, durable: bool = True) -> Iterator[sqlite3.Cursor]:
        """All or nothing; what is not durable may be forgotten when the power fails, and costs no
        wait for the disk."""
        cursor = self.connection.cursor()
        cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        _writing(self.folder, lambda: cursor.execute("BEGIN IMMEDIATE"))
        try:
            yield cursor
            cursor.execute("COMMIT")
        except BaseException as error:
            if self.connection.in_transaction:
                self.connection.rollback()
            if isinstance(error, sqlite3.Error | OSError):
                raise _cannot_write(self.folder, error) from error
            raise


@contextmanager
def open_store(folder: Path, create: bool = False) -> Iterator[Store]:
    """The store in a run folder; `create` makes one where there is nothing."""
    path = folder / STORE
    if not path.is_file():
        if not create:
            raise InputError(f"{str(folder)!r} is no run folder; name one that `bnncert run` wrote")
        if folder.is_dir() and any(entry.name != BUNDLES for entry in folder.iterdir()):
            raise InputError(
                f"{str(folder)!r} is not empty and no run folder; name a new one with --out"
            )
    _writing(
        folder, lambda: (folder / BUNDLES).mkdir(parents=True, exist_ok=True)
    ) if create else None
    connection = _writing(folder, lambda: _connected(path, create))
    try:
        yield Store(folder, connection)
    finally:
        connection.close()


def _connected(path: Path, create: bool) -> sqlite3.Connection:
    # autocommit: every transaction is begun and ended in `_transaction`
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        if create:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")  # two runners may start at once
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in TABLES.split(";"):
                    connection.execute(statement)
            connection.execute("COMMIT")
        schema = connection.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    if schema not in (None, (SCHEMA,)):
        connection.close()
        raise InputError(
            f"{str(path)!r} is of schema {schema[0]}, not {SCHEMA}; use the version that wrote it"
        )
    return connection


def _writing(folder: Path, act: Callable[[], T]) -> T:
    try:
        return act()
    except (OSError, sqlite3.Error) as error:
        raise _cannot_write(folder, error) from error


def _cannot_write(folder: Path, error: OSError | sqlite3.Error) -> InputError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(
        f"run folder {str(folder)!r} cannot be written ({why}); what is stored is intact: "
        "make room or permit writing, and give the same command again"
    )


def _said(row: StoredRow) -> str:
    return f"{row['status']} from {row['lower']!r} to {row['upper']!r}"


def _me() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def _alive(host: str, pid: int, expires: float) -> bool:
    """A process of this host can be asked; of another only its lease is known."""
    if expires < time.time():
        return False
    if host != socket.gethostname() or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and somebody else's
        return True
    return True
