"""What a sidecar knows: cursors, totals, open operations, dead letters; one file, one transaction.

All that follows from the same events moves together, so that after any crash the counters, the
cursor and the dead letters tell of the same past.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import apsw
import msgspec

from otel_journal.errors import SidecarError
from otel_journal.store.sqlite_file import companions, identity

from . import state_schema as sql
from .state_lock import StateLock

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from otel_journal.events import Event

    from .otlp.delivery import DeadLetter

MAX_CLOSED: Final = 100_000
"""Ends that are remembered as made by the sidecar: late ones come within minutes."""
MAX_MADE: Final = 100_000
"""Ends the sidecar made that wait to be sent, as many as operations that can be open."""
MAX_DEAD_LETTERS: Final = 10_000
"""More than people look through; the oldest go first."""
MAX_DEAD_LETTER_BYTES: Final = 256 * 1024 * 1024
"""A collector that refuses everything must not fill the disk."""

MADE_FORGOTTEN: Final = "made_forgotten"
"""Counter of ends beyond `MAX_MADE`."""
DEAD_LETTERS_FORGOTTEN: Final = "dead_letters_forgotten"
"""Counter of dead letters beyond `MAX_DEAD_LETTERS` or `MAX_DEAD_LETTER_BYTES`."""

_T = TypeVar("_T")

_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_ERRORS: Final = (apsw.Error, OSError, OverflowError, UnicodeError, msgspec.MsgspecError)


class Cursor(NamedTuple):
    """Up to where a projection has read a journal."""

    epoch: str
    """Identity of the journal; in another one `seq` means nothing."""
    seq: int


class OperationKey(NamedTuple):
    """Identity of an operation's occurrence."""

    op_id: str
    span_id: str


class Process(NamedTuple):
    """A process that writes events, as its ``process.beat`` events describe it."""

    id: str
    resource: dict[str, Any]
    """Attributes of its OpenTelemetry resource; empty before its first beat."""
    last_sign_ns: int
    """Unix time in nanoseconds of the newest sign of life."""
    export: str = ""
    """Who sends its spans, ``inline`` or ``sidecar``; empty: not said."""


class StoredDeadLetter(NamedTuple):
    """A span that the collector will not take."""

    id: int
    """Never given twice in one file."""
    event: Event
    reason: str
    detail: str
    at_ns: int
    """Unix time in nanoseconds at which it was given up."""


@dataclass(frozen=True)
class Change:
    """What follows from a batch of events, for one commit."""

    projection: str
    cursor: Cursor | None
    """None: it does not move."""
    totals: Mapping[str, Any] | None = None
    """JSON-able; None: they do not change."""
    opened: Sequence[Event] = ()
    """Start events."""
    ended: Iterable[tuple[str, str]] = ()
    """`OperationKey` of operations that are over; applied after `opened`."""
    processes: Sequence[Process] = ()
    gone: Sequence[str] = ()
    """Ids of processes to forget."""
    made: Sequence[Event] = ()
    """End events that the sidecar made; one made before changes nothing."""
    made_sent: Sequence[str] = ()
    """Event ids of those of `State.made` that were delivered, or became dead letters."""
    dead_letters: Sequence[DeadLetter] = ()
    counted: Mapping[str, int] = field(default_factory=lambda: _NONE)
    """What to add to the durable counters."""


class State:
    """The sidecar's own file; thread-safe. One process has it, a second one is refused.

    A commit survives ``kill -9``; loss of power may take the last ones, each as a whole.
    """

    def __init__(self, path: str | os.PathLike[str], *, make: bool = True) -> None:
        """Lock and open the file; begin it, or set a damaged one aside, only with `make`.

        Raises:
            SidecarError: another process works with it, it cannot be opened, or it belongs to
                another program or to a newer release.
        """
        self.path = Path(path).resolve()  # by whatever name, it has one lock
        if not make and identity(self.path) is None:
            msg = f"state file {self.path}: there is no such file, or it is empty"
            raise SidecarError(msg)
        self._lock = threading.Lock()
        self._held = StateLock(self.path)
        try:
            self._connection = sql.open_file(self.path, make=make, expected=self._held.used_before)
        except BaseException:
            self._held.release()
            raise
        self._identity, self._log = identity(self.path), companions(self.path)
        self._closed = False

    def close(self) -> None:
        """Close the file and let others have it; safe to repeat."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._connection.close()
                if self._lost():
                    sql.put_log_away(self.path, self._log)
            finally:
                self._held.release()

    def cursor(self, projection: str) -> Cursor | None:
        """Up to where a projection has read; None before its first commit.

        This and every other call raise:

        Raises:
            StateDamagedError: the file is damaged, or was replaced; a new start helps.
            SidecarError: it cannot be read or written now, or is closed.
        """
        found = self._rows(sql.CURSOR, (projection,))
        return Cursor(*found[0]) if found else None

    def totals(self) -> dict[str, Any] | None:
        """Return the totals of the last commit that had any."""
        found = self._rows(sql.TOTALS)
        return self._decoded(sql.decode_mapping, found[0][0]) if found else None

    def open_operations(self) -> list[Event]:
        """Start events of operations without an end, in the order they were committed."""
        return [self._decoded(sql.decode_event, body) for (body,) in self._rows(sql.OPERATIONS)]

    def processes(self) -> list[Process]:
        """All processes that are not forgotten."""
        return [
            Process(name, self._decoded(sql.decode_mapping, resource), sign_ns, export)
            for name, resource, sign_ns, export in self._rows(sql.PROCESSES)
        ]

    def made(self, limit: int) -> list[Event]:
        """End events that the sidecar made, or that are to be tried again, and are not sent."""
        return [self._decoded(sql.decode_event, body) for (body,) in self._rows(sql.MADE, (limit,))]

    def closed(self, event_ids: Iterable[str]) -> set[str]:
        """Those of the ids whose end the sidecar made itself; it knows the newest `MAX_CLOSED`."""
        return {name for (name,) in self._rows(sql.CLOSED, (json.dumps(list(event_ids)),))}

    def counters(self) -> dict[str, int]:
        """Return the durable counters."""
        return dict(self._rows(sql.COUNTERS))

    def dead_letters(self, after: int = 0, limit: int = 100) -> list[StoredDeadLetter]:
        """Dead letters with ``id > after``, oldest first."""
        return [
            StoredDeadLetter(number, self._decoded(sql.decode_event, body), *rest)
            for number, body, *rest in self._rows(sql.DEAD_LETTERS, (after, limit))
        ]

    def dead_letter_count(self) -> int:
        """How many dead letters there are."""
        return int(self._rows(sql.DEAD_LETTER_COUNT)[0][0])

    def drop_dead_letters(self, ids: Iterable[int]) -> int:
        """Delete dead letters for good; return how many there were."""
        wanted = json.dumps(list(ids))
        with self._writing() as connection:
            connection.execute(sql.DROP, (wanted,))
            return connection.changes()

    def retry_dead_letters(self, ids: Iterable[int]) -> int:
        """Move dead letters to `made`, from where they are sent again; return how many."""
        wanted = json.dumps(list(ids))
        with self._writing() as connection:
            connection.execute(sql.RETRY, (wanted,))
            connection.execute(sql.DROP, (wanted,))
            return connection.changes()

    def commit(self, change: Change) -> None:
        """Write a change: all of it, or nothing when it raises; a later commit may work."""
        with self._writing() as connection:
            _apply(connection, change)

    def _rows(self, query: str, values: Sequence[str | int] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._guarded() as connection:
            return connection.execute(query, values).fetchall()

    def _decoded(self, decode: Callable[[bytes], _T], body: bytes) -> _T:
        try:
            return decode(body)
        except msgspec.MsgspecError as error:
            raise sql.failure(self.path, error) from error

    def _lost(self) -> bool:
        return identity(self.path) != self._identity

    @contextlib.contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        with self._lock, self._guarded() as connection, sql.transaction(connection):
            yield connection

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[apsw.Connection]:
        """Lend the connection, and say what is wrong with the file when something is."""
        if self._closed:
            msg = f"state file {self.path}: it is closed"
            raise SidecarError(msg)
        if self._lost():  # SQLite goes on writing where nobody looks
            msg = f"state file {self.path}: it was removed or replaced; start the sidecar again"
            raise sql.StateDamagedError(msg)
        try:
            yield self._connection
        except _ERRORS as error:
            raise sql.failure(self.path, error) from error


def _apply(connection: apsw.Connection, change: Change) -> None:
    """Write a change, inside a transaction."""
    many = connection.executemany
    if change.cursor is not None:
        connection.execute(sql.MOVE, (change.projection, *change.cursor))
    if change.totals is not None:
        connection.execute(sql.TOTAL, (sql.encode(change.totals),))
    many(
        sql.OPEN,
        [(e.span.op_id, e.span.span_id, sql.encode(e)) for e in change.opened if e.span],
    )
    many(sql.END, change.ended)
    many(
        sql.SIGN,
        [(p.id, sql.encode(p.resource), p.last_sign_ns, p.export) for p in change.processes],
    )
    many(sql.FORGET, [(name,) for name in change.gone])
    forgotten = _make(connection, change.made)
    many(sql.SENT, [(event_id,) for event_id in change.made_sent])
    too_many = _bury(connection, change.dead_letters)
    many(sql.COUNT, change.counted.items())
    bounds = {MADE_FORGOTTEN: forgotten, DEAD_LETTERS_FORGOTTEN: too_many}
    many(sql.COUNT, [(name, count) for name, count in bounds.items() if count])


def _make(connection: apsw.Connection, events: Sequence[Event]) -> int:
    """Add ends that the sidecar made, each once; return how many others were forgotten for it."""
    if not events:
        return 0
    for event in events:
        connection.execute(sql.CLOSE, (event.event_id,))
        if connection.changes():
            connection.execute(sql.MAKE, (event.event_id, sql.encode(event)))
    connection.execute(sql.TRIM_CLOSED, (MAX_CLOSED,))
    connection.execute(sql.TRIM_MADE, (MAX_MADE,))
    return connection.changes()


def _bury(connection: apsw.Connection, letters: Sequence[DeadLetter]) -> int:
    """Add dead letters; return how many older ones were forgotten for it."""
    if not letters:
        return 0
    now = time.time_ns()
    connection.executemany(
        sql.BURY,
        [
            (event.event_id, now, reason, _text(detail), sql.encode(event))
            for event, reason, detail in letters
        ],
    )
    connection.execute(sql.TRIM_DEAD_LETTERS, (MAX_DEAD_LETTERS, MAX_DEAD_LETTER_BYTES))
    return connection.changes()


def _text(detail: str) -> str:
    """Return what a server said without what no file takes."""
    return detail.encode("utf-8", "replace").decode()
