"""From a URL to a store. Each backend is imported only when its URL asks for it."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from otel_journal.errors import StoreError

from .memory import MemoryStore

if TYPE_CHECKING:
    from .protocol import Store

_logger: Final = logging.getLogger("otel_journal")

ALLOWED: Final = "memory:, sqlite:///PATH[?synchronous=NORMAL|FULL] or postgresql://USER@HOST/NAME"
"""What a store URL may be, for messages."""

_SQLITE: Final = "sqlite:///"
_SQLITE_MAGIC: Final = b"SQLite format 3\0"
_SYNCHRONOUS: Final = ("NORMAL", "FULL")


def open_store(url: str) -> Store:
    """Open the store behind a URL.

    ``memory:`` keeps events until the process ends. ``sqlite:///journal.db`` is a file beside
    the process, ``sqlite:////var/lib/journal.db`` one with an absolute path; it is made when it is
    missing. ``?synchronous=FULL`` survives a power cut, the default NORMAL every death of a
    process. ``postgresql://`` takes what libpq takes and needs the extra ``postgres``.

    Raises:
        StoreError: the URL names no store, or the store cannot be opened.
    """
    scheme, separator, _ = url.partition(":")
    if url == "memory:":
        return MemoryStore()
    if separator and scheme == "sqlite":
        return _sqlite(url)
    if separator and scheme in {"postgresql", "postgres"}:
        return _postgres(url)
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


def _sqlite(url: str) -> Store:
    from .sqlite import SqliteStore  # noqa: PLC0415 - apsw is not needed by other stores

    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", _SYNCHRONOUS[0]).upper()
    allowed = not options and synchronous in _SYNCHRONOUS
    if parts.netloc or not path or not allowed or parts.fragment:
        msg = f"store URL {url!r} is not allowed; allowed: {ALLOWED}"
        raise StoreError(msg)
    return SqliteStore(path, synchronous="FULL" if synchronous == "FULL" else "NORMAL")


def _postgres(url: str) -> Store:
    if find_spec("psycopg") is None:
        msg = "a postgresql:// store needs psycopg: pip install 'otel-journal[postgres]'"
        raise StoreError(msg)
    from .postgres import PostgresStore  # noqa: PLC0415 - an extra

    return PostgresStore(url)


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://***@{tail}" if at else url
