"""What lies at a journal's path: whose file it is, its migrations, and moving a bad one aside."""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import apsw

from otel_journal.errors import StoreError

from . import migrations
from . import sqlite_queries as sql
from .rows import SCHEMA

try:
    import fcntl
except ImportError:  # Windows: processes that start at the same moment may get in each other's way
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

logger: Final = logging.getLogger("otel_journal")

APPLICATION_ID: Final = 0x6F746A6C
"""``otjl`` in the file's header: this is a journal of ours."""
_COMPANIONS: Final = ("-wal", "-shm")
_NOT_ALLOWED: Final = (apsw.CantOpenError, apsw.ReadOnlyError)
_WORDS: Final[dict[type[Exception], str]] = {
    apsw.FullError: "no room for it",
    apsw.IOError: "it cannot be read or written",
    apsw.BusyError: "another program keeps it locked",
    apsw.NotADBError: "it is damaged",
    apsw.CorruptError: "it is damaged",
    OverflowError: "a number is too large",
}


def identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of the file; None when there is none or it is empty."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_size else None


@contextlib.contextmanager
def folder_locked(path: Path) -> Iterator[None]:
    """Keep other processes from opening the journal at `path`, and clear away its leftovers.

    Raises:
        OSError: there is no such folder.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(folder, fcntl.LOCK_EX)
        if identity(path) is None and any(_beside(path, end).exists() for end in _COMPANIONS):
            # SQLite would read the log of the file that is gone as that of the new one.
            set_aside(path, "it is empty or gone, but its log is there")
        yield
    finally:
        os.close(folder)


def companions(path: Path) -> list[tuple[int, int]]:
    """Return device and inode of the log and of its index, where they are there."""
    found = []
    for end in _COMPANIONS:
        with contextlib.suppress(OSError):
            stat = _beside(path, end).stat()
            found.append((stat.st_dev, stat.st_ino))
    return found


def set_aside(path: Path, why: str, *, log_only: bool = False) -> None:
    """Rename the file with its log, or the log alone, so that SQLite begins anew; say so once."""
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.corrupt-{now}-{os.getpid()}")
    ends = _COMPANIONS if log_only else (*_COMPANIONS, "")
    for end in ends:  # the file last: while it is there, the next one tries again
        with contextlib.suppress(FileNotFoundError):
            _beside(path, end).rename(_beside(aside, end))
    logger.warning("journal file %s: %s; kept as %s", path, why, aside.name)


def prepare(connection: apsw.Connection, path: Path) -> str:
    """Bring a file that was just opened to the schema of this release; return its epoch.

    Raises:
        StoreError: it belongs to another program, or to a newer release.
        apsw.Error: it is damaged, or cannot be written.
    """
    owner, version = _owner(connection), schema_of(connection)
    if owner != APPLICATION_ID and _has_tables(connection):
        msg = f"journal file {path}: it is a SQLite database of another program; not touched"
        raise StoreError(msg)
    if owner == APPLICATION_ID:
        _refuse_newer(path, version)
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        msg = f"journal file {path}: the file system allows journal mode {mode} only, not wal"
        raise StoreError(msg)
    if owner != APPLICATION_ID or version < SCHEMA:
        _migrate(connection, version if owner == APPLICATION_ID else 0)
    return str(connection.execute(sql.EPOCH).get)


def admit_reader(connection: apsw.Connection, path: Path) -> str:
    """Return the epoch of a file that was opened to be read only, and is left as it is.

    Raises:
        StoreError: it is no journal, of a newer release, or of one whose tables say too little.
        apsw.Error: it is damaged, or cannot be read.
    """
    refuse_foreign(connection, path)
    version = schema_of(connection)
    _refuse_newer(path, version)
    try:
        connection.execute(sql.READ, (0, 0)).fetchall()
        return str(connection.execute(sql.EPOCH).get)
    except apsw.SQLError as error:
        if version == SCHEMA:
            raise
        msg = (
            f"journal file {path}: its schema is {version}, this release needs {SCHEMA} to read "
            "it; bring it up to date with: otel-journal migrate"
        )
        raise StoreError(msg) from error


def refuse_foreign(connection: apsw.Connection, path: Path) -> str:
    """Return no epoch: nothing but the owner of a file was looked at.

    Raises:
        StoreError: it is no journal.
        apsw.Error: it is damaged, or cannot be read.
    """
    if _owner(connection) != APPLICATION_ID:
        msg = f"journal file {path}: it is a SQLite database, but no journal"
        raise StoreError(msg)
    return ""


def schema_of(connection: apsw.Connection) -> int:
    """Return the number of the newest migration that ran on a file."""
    return int(connection.pragma("user_version"))


def _refuse_newer(path: Path, version: int) -> None:
    if version > SCHEMA:
        msg = (
            f"journal file {path}: its schema is {version}, this release knows up to {SCHEMA}; "
            "update otel-journal"
        )
        raise StoreError(msg)


def describe(path: Path, error: Exception) -> str:
    """Say in words what is wrong, for the end of a message that begins with the path."""
    if path.is_dir():
        return "it is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if isinstance(error, _NOT_ALLOWED) and not os.access(path.parent, os.W_OK):
        return f"the folder {path.parent} is not writable"
    said = next((words for kind, words in _WORDS.items() if isinstance(error, kind)), "")
    return f"{said} ({error})" if said else f"{error} ({type(error).__name__})"


def _beside(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _owner(connection: apsw.Connection) -> int:
    return int(connection.pragma("application_id"))


def _has_tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get)


def _migrate(connection: apsw.Connection, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for _, script in migrations.after("sqlite", version):
            connection.execute(script)
        if version == 0:
            connection.execute(sql.BEGIN_JOURNAL, (uuid4().hex,))
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
