"""The store of a map: the tree of its cells in one SQLite file, certificates in bundles beside it.

A chunk of cells is entered in one transaction after its bundle is written, so that whatever ends a
run leaves a tree that the next one goes on with. One run at a time: the file is locked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bnncert.campaign.bundle import BUNDLES
from bnncert.errors import InputError
from bnncert.files.tensors import write_atomically

STORE = "map.sqlite"
SCHEMA = "1"
TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE cells (
    number INTEGER PRIMARY KEY, parent INTEGER, side INTEGER,
    dimension INTEGER, at REAL, line TEXT
)
"""


class Node(NamedTuple):
    """A cell of the tree: where it was cut, or what is known of it as a line; neither while it is
    open. side: 0 below its parent's cut, 1 above."""

    number: int
    parent: int | None
    side: int | None
    dimension: int | None
    at: float | None
    line: str | None


@dataclass(frozen=True, eq=False)
class Store:
    """An open store; see `open_store`."""

    folder: Path
    connection: sqlite3.Connection

    def enter(self, question: str) -> None:
        """Say what is asked: the same as before, if anything was."""
        known = self.about("question")
        if known is None:
            with self._transaction():
                self.connection.execute("INSERT INTO about VALUES ('question', ?)", (question,))
                self.connection.execute("INSERT INTO cells (number) VALUES (0)")
        elif known != question:
            raise InputError(
                f"{str(self.folder)!r} holds the map of another question, posterior or version; "
                "name a new folder with --out"
            )

    def about(self, name: str) -> str | None:
        row = self.connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def nodes(self) -> Iterator[Node]:
        """All of them, parents before what they were cut into."""
        for row in self.connection.execute("SELECT * FROM cells ORDER BY number"):
            yield Node(*row)

    def add(
        self,
        chunk: int,
        bundle: bytes,
        lines: Iterable[tuple[int, str]],
        cuts: Iterable[tuple[int, int, float]],
        children: Iterable[tuple[int, int, int]],
    ) -> None:
        """Enter what became of a chunk's cells, and the cells that they were cut into."""
        try:
            if bundle:
                write_atomically(self.folder / bundle_path(chunk), bundle)
            with self._transaction():
                self.connection.executemany(
                    "UPDATE cells SET line = ? WHERE number = ?",
                    [(line, number) for number, line in lines],
                )
                self.connection.executemany(
                    "UPDATE cells SET dimension = ?, at = ? WHERE number = ?",
                    [(dimension, at, number) for number, dimension, at in cuts],
                )
                self.connection.executemany(
                    "INSERT INTO cells (number, parent, side) VALUES (?, ?, ?)", list(children)
                )
                self.connection.execute(
                    "INSERT OR REPLACE INTO about VALUES ('chunks', ?)", (str(chunk + 1),)
                )
        except (OSError, sqlite3.Error) as error:
            raise _cannot_write(self.folder, error) from error

    @property
    def next_number(self) -> int:
        """Of a new cell."""
        return int(self.connection.execute("SELECT max(number) + 1 FROM cells").fetchone()[0])

    @property
    def chunks(self) -> int:
        """How many were entered."""
        return int(self.about("chunks") or 0)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")


def bundle_path(chunk: int) -> str:
    return f"{BUNDLES}/{chunk:06d}.zip"


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """The store in a map's folder, which is made where there is nothing; nobody else may have it
    open."""
    path = folder / STORE
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output {str(folder)!r} is a file; name a folder")
    if not path.is_file() and folder.is_dir() and any(folder.iterdir()):
        raise InputError(
            f"output folder {str(folder)!r} is not empty and holds no map; name a new folder"
        )
    try:
        (folder / BUNDLES).mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=0.5, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise _cannot_write(folder, error) from error
    try:
        _prepare(connection, folder)
        yield Store(folder, connection)
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection, folder: Path) -> None:
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO about VALUES ('schema', ?)", (SCHEMA,))
        (schema,) = connection.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise InputError(
                f"another run is at work on {str(folder)!r}; wait for it, or name a new folder"
            ) from error
        raise _cannot_write(folder, error) from error
    except (sqlite3.Error, TypeError) as error:
        raise _cannot_write(folder, error) from error
    if schema != SCHEMA:
        raise InputError(
            f"{str(folder)!r} is of schema {schema}, not {SCHEMA}; use the version that wrote it"
        )


def _cannot_write(folder: Path, error: Exception) -> InputError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(
        f"map folder {str(folder)!r} cannot be read or written ({why}); what is stored is intact: "
        "put that right and give the same command again"
    )
