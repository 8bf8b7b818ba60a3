"""The tables of the sidecar's own file: versions, queries, opening, and beginning anew."""

from __future__ import annotations

import contextlib
import logging
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from otel_journal.errors import SidecarError
from otel_journal.events import Event
from otel_journal.store.sqlite_file import companions, describe, identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_logger: Final = logging.getLogger("otel_journal")

APPLICATION_ID: Final = 0x6F746A73
"""``otjs`` in the file's header: this is a sidecar's state."""

_VERSIONS: Final = (
    """
    CREATE TABLE cursors (
        projection TEXT PRIMARY KEY,
        epoch TEXT NOT NULL,
        seq INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE totals (only INTEGER PRIMARY KEY CHECK (only = 1), body BLOB NOT NULL) STRICT;
    CREATE TABLE operations (
        op_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (op_id, span_id)
    ) STRICT;
    CREATE TABLE processes (
        id TEXT PRIMARY KEY,
        last_sign_ns INTEGER NOT NULL,
        export TEXT NOT NULL,
        resource BLOB NOT NULL
    ) STRICT;
    CREATE TABLE made (
        id INTEGER PRIMARY KEY,
        event_id TEXT NOT NULL UNIQUE,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE closed (id INTEGER PRIMARY KEY, event_id TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice: people type them
        event_id TEXT NOT NULL,
        at_ns INTEGER NOT NULL,
        reason TEXT NOT NULL,
        detail TEXT NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    """,
)
"""What leads from one schema to the next; the position is the number. Released ones stay."""
SCHEMA: Final = len(_VERSIONS)
"""The schema that this release writes."""

CURSOR: Final = "SELECT epoch, seq FROM cursors WHERE projection = ?"
TOTALS: Final = "SELECT body FROM totals"
OPERATIONS: Final = "SELECT body FROM operations ORDER BY rowid"
PROCESSES: Final = "SELECT id, resource, last_sign_ns, export FROM processes ORDER BY rowid"
MADE: Final = "SELECT body FROM made ORDER BY id LIMIT ?"
CLOSED: Final = "SELECT event_id FROM closed WHERE event_id IN (SELECT value FROM json_each(?))"
COUNTERS: Final = "SELECT name, value FROM counters ORDER BY name"
DEAD_LETTERS: Final = (
    "SELECT id, body, reason, detail, at_ns FROM dead_letters WHERE id > ? ORDER BY id LIMIT ?"
)
DEAD_LETTER_COUNT: Final = "SELECT count(*) FROM dead_letters"

MOVE: Final = "INSERT OR REPLACE INTO cursors (projection, epoch, seq) VALUES (?, ?, ?)"
TOTAL: Final = "INSERT OR REPLACE INTO totals (only, body) VALUES (1, ?)"
OPEN: Final = "INSERT OR REPLACE INTO operations (op_id, span_id, body) VALUES (?, ?, ?)"
END: Final = "DELETE FROM operations WHERE op_id = ? AND span_id = ?"
SIGN: Final = """
    INSERT INTO processes (id, resource, last_sign_ns, export) VALUES (?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        resource = iif(excluded.resource = x'7b7d', resource, excluded.resource), -- {}
        last_sign_ns = max(last_sign_ns, excluded.last_sign_ns),
        export = iif(excluded.export = '', export, excluded.export)
"""
"""Two projections tell of the same process, and one may be behind."""
FORGET: Final = "DELETE FROM processes WHERE id = ?"
CLOSE: Final = "INSERT OR IGNORE INTO closed (event_id) VALUES (?)"
MAKE: Final = "INSERT OR IGNORE INTO made (event_id, body) VALUES (?, ?)"
SENT: Final = "DELETE FROM made WHERE event_id = ?"
COUNT: Final = """
    INSERT INTO counters (name, value) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET value = value + excluded.value
"""
BURY: Final = (
    "INSERT INTO dead_letters (event_id, at_ns, reason, detail, body) VALUES (?, ?, ?, ?, ?)"
)
DROP: Final = "DELETE FROM dead_letters WHERE id IN (SELECT value FROM json_each(?))"
RETRY: Final = """
    INSERT OR IGNORE INTO made (event_id, body)
    SELECT event_id, body FROM dead_letters WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id
"""

TRIM_CLOSED: Final = "DELETE FROM closed WHERE id <= (SELECT max(id) FROM closed) - ?"
TRIM_MADE: Final = (
    "DELETE FROM made WHERE id <= (SELECT id FROM made ORDER BY id DESC LIMIT 1 OFFSET ?)"
)
TRIM_DEAD_LETTERS: Final = """
    DELETE FROM dead_letters WHERE id <= (
        SELECT max(id) FROM (
            SELECT id, row_number() OVER newer AS number,
                sum(length(body) + length(detail)) OVER newer AS size
            FROM dead_letters WINDOW newer AS (ORDER BY id DESC)
        ) WHERE number > 1 AND (number > ? OR size > ?)
    )
"""

_BODIES: Final = (
    OPERATIONS,
    "SELECT body FROM made",
    "SELECT body FROM dead_letters",
)
_BUSY_MS: Final = 5_000
"""How long another program, such as a shell, may keep the file locked."""
_WAL_KEPT: Final = 64 * 1024 * 1024
"""A log that a long reader let grow shrinks to so many bytes."""
_PRIVATE: Final = 0o600
"""Dead letters may hold content: the file is its owner's."""
_DAMAGED: Final = (apsw.NotADBError, apsw.CorruptError, msgspec.MsgspecError, UnicodeDecodeError)
_ANEW: Final = (
    "begun anew: the journal is read from its first event, all counters start again, "
    "open operations and dead letters are forgotten"
)
_LOG: Final = ("-wal", "-shm")
_FILE_AND_LOG: Final = (*_LOG, "")
"""The file last: while it is there, the next one tries again."""

encode: Final = msgspec.json.Encoder().encode
"""Any event or value as JSON in UTF-8."""
decode_event: Final = msgspec.json.Decoder(Event).decode
decode_mapping: Final = msgspec.json.Decoder(dict[str, Any]).decode


class StateDamagedError(SidecarError):
    """The file was damaged, replaced or removed while it was open: only a new start helps."""


def failure(path: Path, error: Exception) -> SidecarError:
    """Return what to raise for an error of SQLite or of the system."""
    said = f"state file {path}: {describe(path, error)}"
    if isinstance(error, _DAMAGED):
        return StateDamagedError(f"{said}; a new start sets it aside and begins anew")
    return SidecarError(said)


@contextlib.contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Write all that is done inside, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
        raise


def open_file(path: Path, *, make: bool, expected: bool) -> apsw.Connection:
    """Open the file, whose lock the caller holds.

    With `make`, a missing file is begun, with a warning if it was `expected` to be there, and a
    damaged one is renamed and begun anew, with a warning.

    Raises:
        SidecarError: it cannot be opened, belongs to another program or to a newer release; or,
            without `make`, it is missing or damaged.
    """
    try:
        if make:
            _make_room(path, expected=expected)
        try:
            return _opened(path)
        except _DAMAGED as error:
            if not make:
                msg = f"state file {path}: it is damaged ({error}); a sidecar will set it aside"
                raise SidecarError(msg) from error
            _set_aside(path, f"it is damaged ({error})")
            _make(path)
            return _opened(path)
    except (apsw.Error, OSError) as error:
        raise failure(path, error) from error


def _make_room(path: Path, *, expected: bool) -> None:
    """See to it that there is a file, and no log of one that is gone."""
    if identity(path) is None:
        if companions(path):
            # SQLite would read the log of the file that is gone as that of the new one.
            _set_aside(path, "it is empty or gone, but its log is there")
        elif expected:
            _logger.warning(
                "state file %s: it is empty or gone, though a sidecar worked with it; %s",
                path,
                _ANEW,
            )
    _make(path)


def _make(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, _PRIVATE))


def put_log_away(path: Path, log: list[tuple[int, int]]) -> None:
    """Rename the log of a file that was replaced, if it is still `log` that lies there.

    SQLite would read it as that of the file that is there now.

    Raises:
        SidecarError: it cannot be renamed.
    """
    if log and companions(path) == log:
        try:
            kept = _renamed(path, _LOG)
        except OSError as error:
            raise failure(path, error) from error
        _logger.warning("state file %s: it was replaced; its log is kept as %s-wal", path, kept)


def _set_aside(path: Path, why: str) -> None:
    kept = _renamed(path, _FILE_AND_LOG)
    _logger.warning("state file %s: %s; kept as %s; %s", path, why, kept, _ANEW)


def _renamed(path: Path, ends: tuple[str, ...]) -> str:
    """Rename the file, its log, or both; return the new name of the file."""
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = f"{path.name}.corrupt-{now}-{os.getpid()}"
    for end in ends:
        beside = path.with_name(path.name + end)
        if beside.exists():
            beside.rename(path.with_name(aside + end))
    return aside


def _opened(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        _prepare(connection, path)
        connection.pragma("synchronous", "NORMAL")
        connection.pragma("journal_size_limit", _WAL_KEPT)
        _check(connection)
    except BaseException:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # keep the log as it is
        connection.close()
        raise
    return connection


def _prepare(connection: apsw.Connection, path: Path) -> None:
    """Bring the file to the schema of this release."""
    owner = int(connection.pragma("application_id"))
    version = int(connection.pragma("user_version"))
    empty = not connection.execute("SELECT count(*) FROM sqlite_schema").get
    if owner != APPLICATION_ID and not empty:
        msg = f"state file {path}: it is a SQLite database of another program; not touched"
        raise SidecarError(msg)
    if owner == APPLICATION_ID and version > SCHEMA:
        msg = (
            f"state file {path}: its schema is {version}, this release knows up to {SCHEMA}; "
            "update otel-journal"
        )
        raise SidecarError(msg)
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        msg = f"state file {path}: the file system allows journal mode {mode} only, not wal"
        raise SidecarError(msg)
    if version < SCHEMA or empty:
        _migrate(connection, 0 if empty else version)


def _migrate(connection: apsw.Connection, version: int) -> None:
    with transaction(connection):
        for script in _VERSIONS[version:]:
            connection.execute(script)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA)


def _check(connection: apsw.Connection) -> None:
    """Read all of it once: damage is better met now than in the middle of the work.

    Raises:
        apsw.CorruptError: the file is damaged.
        msgspec.MsgspecError: what is in it is no event, or no JSON.
    """
    found = connection.execute("PRAGMA quick_check(1)").get
    if found != "ok":
        raise apsw.CorruptError(found)
    for query in _BODIES:
        for (body,) in connection.execute(query):
            decode_event(body)
    for query in (TOTALS, "SELECT resource FROM processes"):
        for (body,) in connection.execute(query):
            decode_mapping(body)
