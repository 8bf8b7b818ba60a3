"""A journal in one SQLite file, which many threads and processes may share on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from . import sqlite_queries as sql
from .checks import checked, checked_limit
from .rows import decode, row_of
from .sqlite_connection import JournalFile
from .sqlite_reader import JournalReader

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

    import apsw

    from otel_journal.events import Event

    from .rows import Row

_MOST: Final = 2**63 - 1
"""The largest integer of SQLite."""


class SqliteStore:
    """A journal in one SQLite file; thread-safe, safe across fork, open to many processes.

    What a call has written survives ``kill -9``. Loss of power may take the last transactions
    with ``NORMAL``, and takes none with ``FULL``, which waits for the disk at every call.
    """

    name = "sqlite"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Literal["NORMAL", "FULL"] = "NORMAL",
        read_only: bool = False,
        _max_pages: int | None = None,
    ) -> None:
        """Open the file, or make it. A file that is no database is renamed and begun anew.

        With `read_only` nothing is written, made, migrated or renamed, and every method that
        would write raises StoreError.

        Raises:
            StoreError: the file cannot be opened or made, belongs to another program, or was
                written by a newer release.
            ValueError: `synchronous` is neither of the two.
        """
        if synchronous not in {"NORMAL", "FULL"}:
            msg = f"synchronous {synchronous!r} is not allowed; allowed: NORMAL, FULL"
            raise ValueError(msg)
        self._file: JournalFile | JournalReader = (
            JournalReader(path) if read_only else JournalFile(path, synchronous, _max_pages)
        )

    @property
    def epoch(self) -> str:
        """Identity of the journal; another one when the file was lost and had to be begun anew."""
        return self._file.epoch

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Add events in order, all or nothing; known ids are skipped. See `Store.append`."""
        rows = [row_of(event) for event in checked(events)]
        given = self._file.write(lambda connection: _insert(connection, rows))
        # Read back from the rows: what is returned shares nothing with what was given.
        return [decode(seq, *row) for seq, row in zip(given, rows, strict=True) if seq]

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Add an event unless its run has one of the type in the thread. See `Store`."""
        (checked_event,) = checked([event])
        row = row_of(checked_event)

        def put(connection: apsw.Connection) -> tuple[tuple[Any, ...], bool]:
            fact = (event.run_id, event.event_type, event.thread_id)
            for found in connection.execute(sql.SAME_FACT, fact).fetchall():
                return found, False
            (seq,) = _insert(connection, [row])
            found = connection.execute(sql.SAME_ID, (event.event_id,)).get
            return found, seq > 0

        found, created = self._file.write(put)
        return decode(*found), created

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after`` in the order they were committed, skipping none."""
        return self._page(sql.READ, _bound(after), limit=limit)

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Events of one run in order; an empty `types` gives nothing."""
        if types is None:
            return self._page(sql.OF_RUN, run_id, _bound(after), limit=limit)
        wanted = sorted(set(types))
        return self._page(sql.of_types(len(wanted)), run_id, _bound(after), *wanted, limit=limit)

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of a thread, ascending: the first ones with `after`, else the last ones."""
        if after is not None:
            between = (_bound(after), _bound(before))
            return self._page(sql.THREAD_FIRST, thread_id, *between, limit=limit)
        return self._page(sql.THREAD_LAST, thread_id, 0, _bound(before), limit=limit)[::-1]

    def run_messages(
        self,
        run_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of one run, paged as `messages`."""
        if after is not None:
            between = (_bound(after), _bound(before))
            return self._page(sql.RUN_FIRST, run_id, *between, limit=limit)
        return self._page(sql.RUN_LAST, run_id, 0, _bound(before), limit=limit)[::-1]

    def count_messages(self, thread_id: str) -> int:
        """How many messages a thread's feed holds."""
        ((count,),) = self._file.read(sql.COUNT_MESSAGES, (thread_id,))
        return int(count)

    def runs(
        self, before: int | None = None, limit: int = 50, thread_id: str | None = None
    ) -> list[Event]:
        """``run.start`` events, newest first, with ``seq < before``; of one thread if given."""
        if thread_id is None:
            return self._page(sql.RUNS, _bound(before), limit=limit)
        return self._page(sql.RUNS_OF_THREAD, thread_id, _bound(before), limit=limit)

    def watermark(self) -> int:
        """Highest `seq` given so far, 0 at first."""
        ((watermark,),) = self._file.read(sql.WATERMARK, ())
        return int(watermark)

    def delete_thread(self, thread_id: str) -> int:
        """Delete all events of a thread; return how many."""
        return self._delete(sql.DELETE_THREAD, thread_id)

    def delete_run(self, run_id: str) -> int:
        """Delete all events of a run; return how many."""
        return self._delete(sql.DELETE_RUN, run_id)

    def prune(self, up_to: int) -> int:
        """Delete all events with ``seq <= up_to``; return how many."""
        return self._delete(sql.PRUNE, _bound(up_to))

    def integrity(self) -> list[str]:
        """Return what is wrong with the file, one finding a line; nothing when it is sound.

        Reads the whole file.

        Raises:
            StoreError: the file cannot be read at all, or the store is closed.
        """
        found = self._file.read("PRAGMA quick_check", ())
        return [line for (line,) in found if line != "ok"]

    def close(self) -> None:
        """Close the file; safe to repeat. Afterwards every other call raises StoreError."""
        self._file.close()

    def _page(self, query: str, *values: str | int, limit: int) -> list[Event]:
        rows = self._file.read(query, (*values, _bound(checked_limit(limit))))
        return [decode(*row) for row in rows]

    def _delete(self, query: str, value: str | int) -> int:
        def delete(connection: apsw.Connection) -> int:
            connection.execute(query, (value,))
            return connection.changes()

        return self._file.write(delete)


def _insert(connection: apsw.Connection, rows: Sequence[Row]) -> Sequence[int]:
    """Insert rows in an open transaction; return the seq of each, 0 where its id was known."""
    last = connection.execute(sql.WATERMARK).get
    seqs = range(last + 1, last + 1 + len(rows))
    before = connection.total_changes()
    connection.executemany(sql.INSERT, [(seq, *row) for seq, row in zip(seqs, rows, strict=True)])
    inserted = connection.total_changes() - before
    if not inserted:
        return [0] * len(rows)
    if inserted == len(rows):
        connection.execute(sql.RAISE_WATERMARK, (seqs[-1],))
        return seqs
    # Known ones have used up numbers: a gap would tell a reader that events are lost. Again, dense.
    new = {seq for (seq,) in connection.execute(sql.NEW, (last,))}
    connection.execute(sql.TAKE_BACK, (last,))
    numbers = iter(range(last + 1, last + 1 + len(new)))
    given = [next(numbers) if seq in new else 0 for seq in seqs]
    fresh = [(seq, *row) for seq, row in zip(given, rows, strict=True) if seq]
    connection.executemany(sql.INSERT, fresh)
    connection.execute(sql.RAISE_WATERMARK, (last + len(new),))
    return given


def _bound(number: int | None) -> int:
    """Return a number that SQLite can hold and that asks for the same; None is no limit."""
    return _MOST if number is None else max(-1, min(number, _MOST))
