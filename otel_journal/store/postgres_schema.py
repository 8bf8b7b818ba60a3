"""The tables of a PostgreSQL journal: created, migrated and checked on every new connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg.errors import UndefinedColumn, UndefinedTable

from otel_journal.errors import StoreError

from . import migrations
from .postgres_link import PATIENCE_S, Link
from .rows import SCHEMA

if TYPE_CHECKING:
    from .postgres_link import Connection

_LOCK: Final = 0x6F74_656C_6A6E_6C31
"""Advisory lock of whoever migrates: ``oteljnl1`` in ASCII."""

_SESSION: Final = "SELECT set_config('idle_in_transaction_session_timeout', '60s', false)"
"""A writer that stops between insert and commit would keep all readers waiting."""

_READ_ONLY: Final = "SELECT set_config('default_transaction_read_only', 'on', false)"

_NEEDED: Final = """
SELECT seq, event_id, run_id, thread_id, event_type, category, created_ns, body
FROM otel_journal_settled LIMIT 0
"""

_EXISTS: Final = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class WHERE relname = 'otel_journal' AND pg_table_is_visible(oid)
)
"""
"""Not ``to_regclass``: after waiting for a lock it still answers from before."""

_BEHIND: Final = """
SELECT (greatest(deleted_up_to, (SELECT max(seq) FROM otel_journal_events)) >> 16) + 1
     - pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM otel_journal
WHERE greatest(deleted_up_to, (SELECT max(seq) FROM otel_journal_events)) >> 16
   >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + xid_offset
"""
"""The offset that the journal needs, when its next numbers could be old ones again."""


def admit(connection: Connection) -> str:
    """Bring the tables behind a new connection up to date; return the journal's epoch.

    Raises:
        StoreError: a newer release made them.
        psycopg.Error: the server refused, or went away.
    """
    connection.execute(_SESSION)
    if _schema(connection) != SCHEMA:
        _migrate(connection)
    if connection.execute(_BEHIND).fetchone() is not None:
        _raise_offset(connection)
    row = connection.execute("SELECT epoch FROM otel_journal").fetchone()
    return str(row[0]) if row else ""


def admit_reader(connection: Connection) -> str:
    """Keep a new connection from writing; return the epoch of the journal behind it.

    Raises:
        StoreError: there is no journal, a newer release made it, or it says too little.
        psycopg.Error: the server refused, or went away.
    """
    connection.execute(_READ_ONLY)
    schema = _schema(connection)
    if not schema:
        msg = "the database holds no journal that this account can see"
        raise StoreError(msg)
    try:
        connection.execute(_NEEDED)
        row = connection.execute("SELECT epoch FROM otel_journal").fetchone()
    except (UndefinedColumn, UndefinedTable) as error:
        if schema == SCHEMA:
            raise
        msg = (
            f"the store has schema {schema}, this release needs {SCHEMA} to read it; "
            "bring it up to date with: otel-journal migrate"
        )
        raise StoreError(msg) from error
    return str(row[0]) if row else ""


def read_schema(url: str) -> int:
    """Return the number of the newest migration that ran on a database; 0: it holds no journal.

    Raises:
        StoreError: the server is away or refuses, or a newer release made the tables.
    """
    link = Link(url, PATIENCE_S, lambda connection: connection.execute(_READ_ONLY))
    try:
        return link.run(_schema)
    finally:
        link.close()


def _schema(connection: Connection) -> int:
    """Return the number of the newest migration that ran, 0 when there is no journal."""
    if connection.execute(_EXISTS).fetchone() != (True,):
        return 0
    row = connection.execute("SELECT schema FROM otel_journal").fetchone()
    schema = int(row[0]) if row else 0
    if schema > SCHEMA:
        msg = (
            f"the store has schema {schema}, this release knows schemas up to {SCHEMA}: upgrade it"
        )
        raise StoreError(msg)
    return schema


def _migrate(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        done = _schema(connection)  # another process may have been faster
        for number, script in migrations.after("postgres", done):
            connection.execute(script.encode())
            connection.execute("UPDATE otel_journal SET schema = %s", [number])


def _raise_offset(connection: Connection) -> None:
    """Continue above what was restored from a cluster with larger transaction ids."""
    with connection.transaction():
        # Every writer reads this table: the lock waits for those with the old offset.
        connection.execute("LOCK TABLE otel_journal IN ACCESS EXCLUSIVE MODE")
        needed = connection.execute(_BEHIND).fetchone()
        if needed is not None:
            connection.execute("UPDATE otel_journal SET xid_offset = %s", needed)
