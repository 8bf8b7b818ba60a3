"""The file behind the SQLite store: opening, transactions, what to do when it is lost or damaged.

A process has one connection that writes and one that reads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import apsw

from otel_journal.errors import StoreError

from .sqlite_file import (
    companions,
    describe,
    folder_locked,
    identity,
    logger,
    prepare,
    set_aside,
)
from .sqlite_forks import guard

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")

_BUSY_MS: Final = 5_000
_TRIES: Final = 6
"""Half a minute of a locked file; then the caller hears of it."""
_LOOK_EVERY_S: Final = 1.0
_WAL_KEPT: Final = 64 * 1024 * 1024
"""A log that a long reader let grow shrinks to so many bytes."""
_DAMAGED: Final = (apsw.NotADBError, apsw.CorruptError)


class JournalFile:
    """One SQLite file of this process; thread-safe."""

    def __init__(
        self, path: str | os.PathLike[str], synchronous: str, max_pages: int | None
    ) -> None:
        """Open the file, or make it; `max_pages` of 4 KiB bound it (None: no bound).

        Raises:
            StoreError: this cannot be done.
        """
        self.path = Path(path).absolute()
        self.epoch = ""
        self.writing = threading.Lock()
        self.reading = threading.Lock()
        self._synchronous = synchronous
        self._max_pages = max_pages
        self._writer: apsw.Connection | None = None
        self._reader: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._companions: list[tuple[int, int]] = []
        self._stale: list[tuple[int, int]] = []
        """The log of a file that was lost: not to be read as that of its successor."""
        self._look_at = 0.0
        self._closed = False
        self._tried(lambda: None)
        guard(self)

    def write(self, work: Callable[[apsw.Connection], _T]) -> _T:
        """Do `work` in one transaction: all of it or nothing.

        Raises:
            StoreError: it cannot be done; nothing was written.
        """

        def transaction() -> _T:
            with self.writing:
                if self._writer is None:
                    raise apsw.BusyError  # another thread forked just now: again
                return _transaction(self._writer, work)

        return self._tried(transaction)

    def read(self, query: str, values: Sequence[str | int]) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            StoreError: it cannot be done.
        """

        def rows() -> list[tuple[Any, ...]]:
            with self.reading:
                if self._reader is None:
                    raise apsw.BusyError  # another thread forked just now: again
                return self._reader.execute(query, values).fetchall()

        return self._tried(rows)

    def close(self) -> None:
        """Close for good; safe to repeat."""
        with self.writing, self.reading:
            self._closed = True
            self.disconnect()

    def before_fork(self) -> None:
        """Wait for the calls in progress, and disconnect."""
        self.writing.acquire()
        self.reading.acquire()
        with contextlib.suppress(apsw.Error):
            self.disconnect()

    def after_fork(self) -> None:
        """Go on; the next call opens the file again."""
        self.reading.release()
        self.writing.release()

    def disconnect(self, *, lost: bool = False) -> None:
        """Close the connections, with both locks held; the next call opens new ones.

        What SQLite has of a `lost` file stays where it is: writing it back would damage a
        file that took its place.
        """
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(lost))
                connection.close()
        self._reader = self._writer = None

    def _tried(self, action: Callable[[], _T]) -> _T:
        for tries_left in reversed(range(_TRIES)):
            try:
                self._ready()
                return action()
            except apsw.BusyError as error:  # noqa: PERF203 - tries are few
                if not tries_left:
                    self._fail(error)
            except _DAMAGED as error:
                with self.writing, self.reading:
                    self.disconnect(lost=True)  # the next call finds out whether it can be opened
                self._fail(error)
            except (apsw.Error, OSError, OverflowError, UnicodeEncodeError) as error:
                self._fail(error)
        raise AssertionError  # the last try returns or raises

    def _fail(self, error: Exception) -> NoReturn:
        msg = f"journal file {self.path}: {describe(self.path, error)}"
        raise StoreError(msg) from error

    def _ready(self) -> None:
        """See to it that there are connections, and that they lead to the file at the path."""
        lost = self._lost()
        if not lost and self._writer is not None and self._reader is not None:
            return
        with self.writing, self.reading:
            if self._closed:
                msg = f"journal file {self.path}: the store is closed"
                raise StoreError(msg)
            if lost and self._lost(now=True):
                self.disconnect(lost=True)
                self._stale = self._companions
            if self._writer is None:
                self._connect()

    def _lost(self, *, now: bool = False) -> bool:
        if self._writer is None or not (now or time.monotonic() >= self._look_at):
            return False
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        return identity(self.path) != self._identity

    def _connect(self) -> None:
        """Open both connections; a file that is no database makes room for a new one."""
        before = self.epoch
        with folder_locked(self.path):
            if self._stale and companions(self.path) == self._stale:
                set_aside(self.path, "it was replaced, the log is of the old one", log_only=True)
            self._stale = []
            try:
                writer = self._opened()
            except _DAMAGED as error:
                set_aside(self.path, f"it is damaged ({error})")
                writer = self._opened()
            try:
                self._reader = apsw.Connection(str(self.path))
                self._reader.set_busy_timeout(_BUSY_MS)
                self._reader.pragma("query_only", True)  # noqa: FBT003 - the pragma's value
            except BaseException:
                writer.close()
                raise
            self._identity = identity(self.path)
            self._companions = companions(self.path)
            self._writer = writer
        if before not in {"", self.epoch}:
            logger.warning(
                "journal file %s was lost: it is another journal now, of epoch %s",
                self.path,
                self.epoch,
            )

    def _opened(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path))
        try:
            connection.set_busy_timeout(_BUSY_MS)
            if self._max_pages is not None:
                connection.pragma("max_page_count", self._max_pages)
            self.epoch = prepare(connection, self.path)
            connection.pragma("synchronous", self._synchronous)
            connection.pragma("journal_size_limit", _WAL_KEPT)
        except BaseException:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # keep the log as it is
            connection.close()
            raise
        return connection


def _transaction(connection: apsw.Connection, work: Callable[[apsw.Connection], _T]) -> _T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                connection.execute("ROLLBACK")
        raise
    return result
