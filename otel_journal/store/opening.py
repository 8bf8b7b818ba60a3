"""From a URL to a store. Each backend is imported only when its URL asks for it."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from otel_journal.errors import StoreError

from .memory import MemoryStore

if TYPE_CHECKING:
    from .protocol import Store

_logger: Final = logging.getLogger("otel_journal")

ALLOWED: Final = "memory:, sqlite:///PATH[?synchronous=NORMAL|FULL] or postgresql://USER@HOST/NAME"
"""What a store URL may be, for messages."""

ALLOWED_TABLES: Final = "sqlite:///PATH or postgresql://USER@HOST/NAME"
"""What a store URL may be where its tables matter, for messages."""

_SQLITE: Final = "sqlite:///"
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_SYNCHRONOUS: Final = ("NORMAL", "FULL")


def open_store(url: str, *, read_only: bool = False) -> Store:
    """Open the store behind a URL.

    ``memory:`` keeps events until the process ends. ``sqlite:///journal.db`` is a file beside
    the process, ``sqlite:////var/lib/journal.db`` one with an absolute path; it is made when it is
    missing. ``?synchronous=FULL`` survives a power cut, the default NORMAL every death of a
    process. ``postgresql://`` takes what libpq takes and needs the extra ``postgres``.

    A store of an older release is brought up to date. With `read_only` it is left as it is: what
    is there is read, nothing is made, changed or moved, and every method that would write raises
    StoreError. The right to read, on the file or the tables, is enough for that.

    Raises:
        StoreError: the URL names no store, or the store cannot be opened; with `read_only` also
            when it is not there, damaged, of a newer release, or ``memory:``.
    """
    scheme, separator, _ = url.partition(":")
    if url == "memory:":
        if read_only:
            msg = "a memory: store ends with its process and cannot be shared with a reader"
            raise StoreError(msg)
        return MemoryStore()
    if separator and scheme == "sqlite":
        return _sqlite(url, read_only=read_only)
    if separator and scheme in {"postgresql", "postgres"}:
        return _postgres(url, read_only=read_only)
    msg = f"store URL {_shown(url)!r} is not allowed; allowed: {ALLOWED}"
    raise StoreError(msg)


def existing(url: str) -> str:
    """Return the URL of a store to look into, which opening it must neither make nor change.

    Raises:
        StoreError: it names a SQLite file that is not there, or that is no database.
    """
    if not url.startswith(_SQLITE):
        return url
    path = Path(unquote(urlsplit(url).path)[1:])
    try:
        with path.open("rb") as file:
            magic = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        msg = f"no store at {str(path)!r}: {error.strerror}"
        raise StoreError(msg) from error
    if magic != _SQLITE_MAGIC:
        msg = f"{str(path)!r} is no SQLite database"
        raise StoreError(msg)
    return url


def open_configured(url: str) -> Store | None:
    """Open the store that a setting names; None when it names none.

    A store that cannot be opened is logged, once, and gives None too: the agent works without.
    """
    try:
        return open_store(url) if url else None
    except StoreError as error:
        _logger.error("otel-journal runs without a store: %s", error)  # noqa: TRY400 - one line
        return None


def schema_at(url: str) -> int:
    """Return the number of the newest migration that ran on a store; it is left as it is.

    Raises:
        StoreError: the URL names no store, or one that is not there or cannot be read, or that
            knows no migrations.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from .sqlite_reader import read_schema  # noqa: PLC0415 - as in _sqlite

        return read_schema(_sqlite_options(url)[0])
    if scheme in {"postgresql", "postgres"}:
        _need_psycopg()
        from .postgres_schema import read_schema as read_schema_of  # noqa: PLC0415 - an extra

        return read_schema_of(url)
    msg = f"store URL {_shown(url)!r} has no tables; allowed: {ALLOWED_TABLES}"
    raise StoreError(msg)


def _sqlite(url: str, *, read_only: bool) -> Store:
    from .sqlite import SqliteStore  # noqa: PLC0415 - apsw is not needed by other stores

    path, synchronous = _sqlite_options(url)
    return SqliteStore(path, synchronous=synchronous, read_only=read_only)


def _sqlite_options(url: str) -> tuple[str, Literal["NORMAL", "FULL"]]:
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", _SYNCHRONOUS[0]).upper()
    allowed = not options and synchronous in _SYNCHRONOUS
    if parts.netloc or not path or not allowed or parts.fragment:
        msg = f"store URL {url!r} is not allowed; allowed: {ALLOWED}"
        raise StoreError(msg)
    return path, "FULL" if synchronous == "FULL" else "NORMAL"


def _postgres(url: str, *, read_only: bool) -> Store:
    _need_psycopg()
    from .postgres import PostgresStore  # noqa: PLC0415 - an extra

    return PostgresStore(url, read_only=read_only)


def _need_psycopg() -> None:
    if find_spec("psycopg") is None:
        msg = "a postgresql:// store needs psycopg: pip install 'otel-journal[postgres]'"
        raise StoreError(msg)


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://***@{tail}" if at else url
