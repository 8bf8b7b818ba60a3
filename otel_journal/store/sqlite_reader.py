"""A SQLite journal that is only looked into: nothing is written, made, migrated or set aside.

Two ways lead to the rows. While the log (``-wal``) holds something the file is read with it, under
SQLite's locks, as any reader does. When the log is gone or empty, as after the last writer closed,
SQLite would make one: the file is then read as it lies there, and read again when it turns out to
have changed meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote

import apsw

from otel_journal.errors import StoreError
from otel_journal.events import NS_PER_S

from .sqlite_file import admit_reader, describe, identity, logger, refuse_foreign
from .sqlite_forks import guard

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")

_BUSY_MS: Final = 5_000
_TRIES: Final = 6
"""Half a minute of a locked or ever changing file; then the caller hears of it."""
_LOOK_EVERY_S: Final = 1.0
_FRESH_NS: Final = NS_PER_S
"""A file that changed this recently may change again without a new time stamp."""
_DAMAGED: Final = (apsw.NotADBError, apsw.CorruptError)
_ERRORS: Final = (apsw.Error, OSError, OverflowError, UnicodeEncodeError)
_FLAGS: Final = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


class _Stamp(NamedTuple):
    """What changes when anything is written to the file or its log."""

    identity: tuple[int, int]
    size: int
    modified_ns: int
    log_size: int


class JournalReader:
    """One SQLite file of this process, read-only; thread-safe and safe across forks.

    The rights of the account on the file are enough: it may belong to another one, in a folder
    where nothing can be made. No transaction is open between two calls, so that a reader never
    keeps the log from being written back.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        admit: Callable[[apsw.Connection, Path], str] = admit_reader,
    ) -> None:
        """Open the file, if `admit` has nothing against it; it returns the epoch.

        Raises:
            StoreError: there is none, or it is damaged, or no journal that this release can read.
        """
        self.path = Path(path).absolute()
        self.epoch = ""
        self._admit = admit
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._at_rest: _Stamp | None = None
        """State of the file when it was opened without its log; None when with it."""
        self._look_at = 0.0
        self._closed = False
        guard(self)
        self.read("SELECT 1", ())

    def read(self, query: str, values: Sequence[str | int]) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            StoreError: it cannot be done.
        """
        with self._lock:
            for tries_left in reversed(range(_TRIES)):
                try:
                    rows = self._opened().execute(query, values).fetchall()
                except _ERRORS as error:  # noqa: PERF203 - tries are few
                    changed = self._moved_on()
                    if not tries_left or not (changed or isinstance(error, apsw.BusyError)):
                        self._fail(error)
                else:
                    if not self._moved_on():
                        return rows
        msg = f"journal file {self.path}: it changes faster than it can be read"
        raise StoreError(msg)

    def write(self, work: Callable[[apsw.Connection], _T]) -> _T:  # noqa: ARG002 - as JournalFile
        """Refuse.

        Raises:
            StoreError: always.
        """
        msg = f"journal file {self.path}: opened read-only"
        raise StoreError(msg)

    def close(self) -> None:
        """Close for good; safe to repeat."""
        with self._lock:
            self._closed = True
            self._disconnect()

    def before_fork(self) -> None:
        """Wait for the call in progress, and disconnect."""
        self._lock.acquire()
        with contextlib.suppress(apsw.Error):
            self._disconnect()

    def after_fork(self) -> None:
        """Go on; the next call opens the file again."""
        self._lock.release()

    def _opened(self) -> apsw.Connection:
        """Return the connection, to the file that is at the path now."""
        if self._closed:
            msg = f"journal file {self.path}: the store is closed"
            raise StoreError(msg)
        if self._connection is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_EVERY_S
            if identity(self.path) != self._identity:
                self._disconnect()
        if self._connection is not None and self._moved_on():
            self._disconnect()
        if self._connection is None:
            self._connect()
        assert self._connection is not None  # noqa: S101 - for the type checker
        return self._connection

    def _connect(self) -> None:
        stamp = self._stamp()
        at_rest = not stamp.log_size
        if not at_rest and not self._beside("-shm").exists():
            msg = (
                f"journal file {self.path}: its log has no index (-shm); "
                "whatever opens it for writing makes one"
            )
            raise StoreError(msg)
        self._at_rest = stamp if at_rest else None
        self._identity = stamp.identity
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        options = "?immutable=1" if at_rest else ""
        connection = apsw.Connection(f"file:{quote(str(self.path))}{options}", flags=_FLAGS)
        self._connection = connection
        try:
            connection.set_busy_timeout(_BUSY_MS)
            epoch = self._admit(connection, self.path)
        except BaseException:
            self._disconnect(keep_stamp=True)
            raise
        if self.epoch not in {"", epoch}:
            logger.warning("journal file %s is another journal now, of epoch %s", self.path, epoch)
        self.epoch = epoch

    def _moved_on(self) -> bool:
        """Disconnect if what was read, or failed to be read, may not be the file as it is."""
        before = self._at_rest
        if before is None:
            return False
        try:
            now = self._stamp()
        except StoreError:
            self._disconnect()
            return True
        if now != before:
            self._disconnect()
            return True
        if time.time_ns() - now.modified_ns < _FRESH_NS:
            self._disconnect()  # the next call looks again
        return False

    def _stamp(self) -> _Stamp:
        """Look at the file.

        Raises:
            StoreError: it is not there, or empty.
        """
        try:
            found = self.path.stat()
        except OSError as error:
            self._disconnect()
            msg = f"no store at {str(self.path)!r}: {error.strerror}"
            raise StoreError(msg) from error
        if not found.st_size or self.path.is_dir():
            self._disconnect()
            what = "a folder" if self.path.is_dir() else "empty"
            msg = f"journal file {self.path}: it is {what}"
            raise StoreError(msg)
        log_size = 0
        with contextlib.suppress(FileNotFoundError):
            log_size = self._beside("-wal").stat().st_size
        return _Stamp((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns, log_size)

    def _beside(self, end: str) -> Path:
        return self.path.with_name(self.path.name + end)

    def _disconnect(self, *, keep_stamp: bool = False) -> None:
        if self._connection is not None:
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            self._connection.close()
        self._connection = None
        if not keep_stamp:
            self._at_rest = None

    def _fail(self, error: Exception) -> NoReturn:
        if isinstance(error, _DAMAGED):
            self._disconnect()
        msg = f"journal file {self.path}: {describe(self.path, error)}"
        raise StoreError(msg) from error


def read_schema(path: str | os.PathLike[str]) -> int:
    """Return the number of the newest migration that ran on a file, which is left as it is.

    Raises:
        StoreError: there is none, or it is no journal, or it is damaged.
    """
    reader = JournalReader(path, refuse_foreign)
    try:
        ((version,),) = reader.read("PRAGMA user_version", ())
        return int(version)
    finally:
        reader.close()
