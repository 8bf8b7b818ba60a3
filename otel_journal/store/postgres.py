"""A durable journal in PostgreSQL (13 or newer), shared by any number of processes and hosts.

`seq` is made of the writer's transaction id and the position in its batch. Readers see only what
lies below every open transaction of the cluster, so nothing can appear behind a cursor. The price:
a transaction that stays open and has written, of whoever, holds new events back from readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from psycopg import sql

from otel_journal.errors import StoreError

from .checks import checked, checked_limit, storable
from .postgres_link import PATIENCE_S, Link
from .postgres_schema import admit, admit_reader
from .rows import decode, row_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from otel_journal.events import Event

    from .postgres_link import Connection

_T = TypeVar("_T")

MAX_BATCH: Final = 65_536
"""Most events of one `append`: the position in the batch has 16 bits of `seq`."""

_MAX_BIGINT: Final = 2**63 - 1

_COLUMNS: Final = sql.SQL(
    "seq, event_id, run_id, thread_id, event_type, category, created_ns, body"
)

_INSERT: Final = """
INSERT INTO otel_journal_events
    (seq, event_id, run_id, thread_id, event_type, category, created_ns, body)
SELECT ((pg_current_xact_id()::text::bigint + journal.xid_offset) << 16) + given.place - 1,
    event_id, run_id, thread_id, event_type, category, created_ns, body
FROM otel_journal AS journal,
    unnest(%b::text[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[], %b::bytea[])
    WITH ORDINALITY AS given
        (event_id, run_id, thread_id, event_type, category, created_ns, body, place)
ORDER BY given.place
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id, seq
"""

_PROMISED: Final = "SELECT event_id, seq FROM otel_journal_events WHERE seq = ANY(%s::bigint[])"

_LOCK_SINGLETON: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"

_SINGLETON: Final = sql.SQL(
    "SELECT {} FROM otel_journal_events"
    " WHERE run_id = %s AND thread_id = %s AND event_type = %s ORDER BY seq LIMIT 1"
).format(_COLUMNS)

_BY_ID: Final = sql.SQL("SELECT {} FROM otel_journal_events WHERE event_id = %s").format(_COLUMNS)

_READ: Final = sql.SQL(
    "SELECT {} FROM otel_journal_settled WHERE seq > %s::bigint ORDER BY seq LIMIT %s::bigint"
).format(_COLUMNS)

_EVENTS: Final = sql.SQL(
    "SELECT {} FROM otel_journal_settled WHERE run_id = %s AND seq > %s::bigint"
    " AND (%s OR event_type = ANY(%s::text[])) ORDER BY seq LIMIT %s::bigint"
).format(_COLUMNS)

_FEED: Final = sql.SQL(
    "SELECT {} FROM otel_journal_settled WHERE category = 'message' AND {} = %s"
    " AND seq > %s::bigint AND seq < %s::bigint ORDER BY seq {} LIMIT %s::bigint"
)

_RUNS: Final = sql.SQL(
    "SELECT {} FROM otel_journal_settled WHERE event_type = 'run.start' AND seq < %s::bigint"
    " AND (%s::text IS NULL OR thread_id = %s) ORDER BY seq DESC LIMIT %s::bigint"
).format(_COLUMNS)

_COUNT: Final = (
    "SELECT count(*) FROM otel_journal_settled WHERE category = 'message' AND thread_id = %s"
)

_WATERMARK: Final = """
SELECT greatest(
    (SELECT max(seq) FROM otel_journal_settled),
    least(
        deleted_up_to,
        ((pg_snapshot_xmin(pg_current_snapshot())::text::bigint + xid_offset) << 16) - 1
    )
)
FROM otel_journal
"""

_DELETE: Final = sql.SQL("""
WITH gone AS (DELETE FROM otel_journal_events WHERE {} RETURNING seq),
noted AS (
    UPDATE otel_journal SET deleted_up_to = greatest(deleted_up_to, (SELECT max(seq) FROM gone))
    WHERE EXISTS (SELECT FROM gone)
)
SELECT count(*) FROM gone
""")
_OF_THREAD: Final = _DELETE.format(sql.SQL("thread_id = %s"))
_OF_RUN: Final = _DELETE.format(sql.SQL("run_id = %s"))
_UP_TO: Final = _DELETE.format(sql.SQL("seq <= %s::bigint"))


class PostgresStore:
    """A journal in a PostgreSQL database; see `protocol.Store` for what the calls promise.

    Thread-safe and safe after ``fork``; every call that runs at the same time as others has a
    connection of its own. While the server is away a call tries again for `patience` seconds.
    Reading shows what no open transaction can still come before.
    """

    name = "postgresql"

    def __init__(self, url: str, *, patience: float = PATIENCE_S, read_only: bool = False) -> None:
        """Open the journal behind ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.

        Creates its tables (``otel_journal*``) where there are none, and migrates old ones.

        Args:
            url: The database, with libpq's options; other options come from libpq's variables.
            patience: Seconds for which a call tries again while the server is away.
            read_only: Create and change nothing; every method that would write raises StoreError.

        Raises:
            StoreError: the URL cannot be read, the server is away or refuses, or the tables are
                of a newer release; with `read_only` also when there are none. The message
                never holds the password.
        """
        self.epoch = ""
        self._read_only = read_only
        self._link = Link(url, patience, self._admit)
        self._link.run(lambda _: None)

    def __repr__(self) -> str:
        """Without the password."""
        return f"PostgresStore({self._link.address!r})"

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Add a batch of at most `MAX_BATCH` events; those whose `event_id` is known are skipped.

        When the connection is lost during the commit the batch is sent again, and what the first
        try had written counts as new.

        Returns:
            What was new, numbered, in order.

        Raises:
            StoreError: an event is not allowed, the batch is too large, or the store is away
                or closed; after a commit whose outcome is unknown the batch may be there.
        """
        if len(checked(events)) > MAX_BATCH:
            msg = f"a batch of {len(events)} events is not allowed; allowed: up to {MAX_BATCH}"
            raise StoreError(msg)
        columns = _columns(events)
        promised: list[int] = []

        def write(connection: Connection) -> dict[str, int]:
            if not events:
                return {}
            with connection.transaction():
                written: dict[str, int] = dict(connection.execute(_INSERT, columns).fetchall())
                if promised:
                    # A former try got no answer to its commit. Its numbers are nobody else's.
                    written.update(connection.execute(_PROMISED, [promised]).fetchall())
                promised.extend(written.values())
            return written

        numbers = self._write(write)
        # Read back, so that what the caller does to its own values is not in them. pop: of
        # events that repeat an id in the batch the first one was written.
        rows = zip(*columns, strict=True)
        return [decode(numbers.pop(row[0]), *row) for row in rows if row[0] in numbers]

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Add an event unless its run has one of the same type in the same thread.

        Calls for the same thread, run and type wait for each other, in all processes.

        Returns:
            The event that the store holds now, and whether this call wrote it.

        Raises:
            StoreError: the event is not allowed, or the store is away or closed.
        """
        checked([event])
        columns = _columns([event])
        key = [event.run_id, event.thread_id, event.event_type]
        promised: set[int] = set()

        def write(connection: Connection) -> tuple[Event, bool]:
            with connection.transaction():
                connection.execute(_LOCK_SINGLETON, ["\t".join(key)])
                row = connection.execute(_SINGLETON, key).fetchone()
                while row is None:  # twice only when who had the same id is deleted in between
                    promised.update(seq for _, seq in connection.execute(_INSERT, columns))
                    row = connection.execute(_BY_ID, [event.event_id]).fetchone()
            return decode(*row), row[0] in promised

        return self._write(write)

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after`` in order, skipping none.

        Raises:
            ValueError: the limit is negative.
            StoreError: the store is away, damaged or closed.
        """
        return self._select(_READ, _bigint(after), limit=limit)

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Events of one run in order; an empty `types` gives nothing.

        Raises:
            ValueError: the limit is negative.
            StoreError: the store is away, damaged or closed.
        """
        wanted = [name for name in types or () if storable(name)]
        return self._select(_EVENTS, run_id, _bigint(after), types is None, wanted, limit=limit)

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of a thread, ascending: the last ones, or the first ones with `after`.

        Raises:
            ValueError: the limit is negative.
            StoreError: the store is away, damaged or closed.
        """
        return self._feed("thread_id", thread_id, before, after, limit)

    def run_messages(
        self,
        run_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of one run, paged as `messages`.

        Raises:
            ValueError: the limit is negative.
            StoreError: the store is away, damaged or closed.
        """
        return self._feed("run_id", run_id, before, after, limit)

    def count_messages(self, thread_id: str) -> int:
        """How many messages a thread's feed holds.

        Raises:
            StoreError: the store is away or closed.
        """
        return self._number(_COUNT, thread_id)

    def runs(
        self, before: int | None = None, limit: int = 50, thread_id: str | None = None
    ) -> list[Event]:
        """``run.start`` events, newest first, with ``seq < before``; of one thread if given.

        Raises:
            ValueError: the limit is negative.
            StoreError: the store is away, damaged or closed.
        """
        before = _MAX_BIGINT if before is None else _bigint(before)
        return self._select(_RUNS, before, thread_id, thread_id, limit=limit)

    def watermark(self) -> int:
        """Highest `seq` that reading can have shown so far, 0 at first.

        Raises:
            StoreError: the store is away or closed.
        """
        return self._number(_WATERMARK)

    def delete_thread(self, thread_id: str) -> int:
        """Delete all events of a thread; return how many.

        When the connection is lost during this, `delete_run` or `prune`, the second try counts
        only what the first one had left.

        Raises:
            StoreError: the store is away or closed.
        """
        return self._deleted(_OF_THREAD, thread_id)

    def delete_run(self, run_id: str) -> int:
        """Delete all events of a run; return how many.

        Raises:
            StoreError: the store is away or closed.
        """
        return self._deleted(_OF_RUN, run_id)

    def prune(self, up_to: int) -> int:
        """Delete all events with ``seq <= up_to``; return how many.

        Raises:
            StoreError: the store is away or closed.
        """
        return self._deleted(_UP_TO, _bigint(up_to))

    def close(self) -> None:
        """Close the connections of this process; safe to repeat."""
        self._link.close()

    def _admit(self, connection: Connection) -> None:
        epoch = admit_reader(connection) if self._read_only else admit(connection)
        if self.epoch not in {"", epoch}:
            msg = f"the store {self._link.address} was replaced by another: open it again"
            raise StoreError(msg)
        self.epoch = epoch

    def _write(self, work: Callable[[Connection], _T]) -> _T:
        self._refuse_when_read_only()
        return self._link.run(work)

    def _deleted(self, query: sql.Composed, value: str | int) -> int:
        self._refuse_when_read_only()
        return self._number(query, value)

    def _refuse_when_read_only(self) -> None:
        if self._read_only:
            msg = f"store {self._link.address}: opened read-only"
            raise StoreError(msg)

    def _feed(
        self, column: str, value: str, before: int | None, after: int | None, limit: int
    ) -> list[Event]:
        order = sql.SQL("DESC" if after is None else "ASC")
        query = _FEED.format(_COLUMNS, sql.Identifier(column), order)
        low = 0 if after is None else _bigint(after)
        high = _MAX_BIGINT if before is None else _bigint(before)
        page = self._select(query, value, low, high, limit=limit)
        return page[::-1] if after is None else page

    def _select(self, query: sql.Composed, *values: Any, limit: int) -> list[Event]:  # noqa: ANN401 - whatever a query takes
        limit = _bigint(checked_limit(limit))
        askable = all(storable(value) for value in values if isinstance(value, str))
        rows = self._link.run(
            lambda connection: (
                connection.execute(query, [*values, limit]).fetchall() if askable else []
            )
        )
        return [decode(*row) for row in rows]

    def _number(self, query: Any, *values: str | int) -> int:  # noqa: ANN401 - psycopg's Query
        askable = all(storable(value) for value in values if isinstance(value, str))
        row = self._link.run(
            lambda connection: connection.execute(query, values).fetchone() if askable else None
        )
        return int(row[0] or 0) if row else 0


def _columns(events: Sequence[Event]) -> list[list[Any]]:
    """Return the events by column, as `_INSERT` takes them."""
    return [list(column) for column in zip(*map(row_of, events), strict=True)]


def _bigint(number: int) -> int:
    return max(-_MAX_BIGINT, min(number, _MAX_BIGINT))
