"""Connections to PostgreSQL: made, lent, tried again, and the errors they end in."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from otel_journal.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
"""A connection in autocommit mode; rows are tuples."""

PATIENCE_S: Final = 5.0
"""Seconds for which a call tries again while the server is away."""

_T = TypeVar("_T")

_MAX_IDLE: Final = 8
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_SHOWN: Final = 300

_SCHEMES: Final = ("postgresql://", "postgres://")

_TRANSIENT_CLASSES: Final = ("08", "40", "57P")
"""Connection lost; rolled back by a deadlock; the server is stopped or starts."""
_TOO_MANY_CONNECTIONS: Final = "53300"

_FINAL_WORDS: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry")
"""Refusals that time does not cure. libpq gives no code for them; in another language of the
server they are only tried again for nothing."""


class Link:
    """Lends connections to one database, one per call at a time; safe after ``fork``.

    Idle connections are kept per process: a child never touches what it inherited.
    """

    def __init__(self, url: str, patience: float, admit: Callable[[Connection], object]) -> None:
        """Read a URL; nothing is connected yet.

        Args:
            url: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``, with libpq's options.
            patience: Seconds for which `run` tries again.
            admit: Called with every new connection before its first use.

        Raises:
            StoreError: the URL cannot be read; it is not repeated, as it may hold a password.
        """
        self._options = _options(url)
        self._patience = patience
        self._admit = admit
        self._idle: dict[int, deque[Connection]] = {}
        self._closed = False
        self._secrets = [
            str(self._options[name])
            for name in ("password", "sslpassword")
            if self._options.get(name)
        ]

    @property
    def address(self) -> str:
        """Where the database is, without the password."""
        value = self._options.get
        user, host, port = value("user"), value("host", "localhost"), value("port", "5432")
        return f"postgresql://{f'{user}@' if user else ''}{host}:{port}/{value('dbname', '')}"

    def run(self, work: Callable[[Connection], _T]) -> _T:
        """Return what `work` returns; call it again while the server is away, for `patience`.

        `work` must be safe to repeat, also when its commit succeeded and the answer was lost.

        Raises:
            StoreError: the link is closed, the server stayed away, or it refused.
        """
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return self._once(work, deadline)
            except psycopg.Error as error:
                left = deadline - time.monotonic()
                if left <= 0 or not _transient(error):
                    raise StoreError(self._message(error)) from None
            except UnicodeEncodeError:
                msg = "the store cannot hold text with lone surrogates"
                raise StoreError(msg) from None
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they come back."""
        self._closed = True
        self._drop_idle()

    def _once(self, work: Callable[[Connection], _T], deadline: float) -> _T:
        connection = self._take(deadline)
        try:
            result = work(connection)
        except BaseException as error:
            # Whatever happened, the next call starts from a connection without a history.
            connection.close()
            if isinstance(error, psycopg.OperationalError):
                self._drop_idle()  # they were cut by the same restart
            raise
        idle = self._idle_here()
        if self._closed or len(idle) >= _MAX_IDLE:
            connection.close()
        else:
            idle.append(connection)
        return result

    def _take(self, deadline: float) -> Connection:
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)
        try:
            return self._idle_here().pop()
        except IndexError:
            pass
        left = max(1, int(deadline - time.monotonic()))
        options: dict[str, Any] = {"connect_timeout": left, **self._options}
        # No prepared statements: behind a pooler they would land on other sessions.
        connection = psycopg.connect(**options, autocommit=True, prepare_threshold=None)
        try:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            self._admit(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _idle_here(self) -> deque[Connection]:
        # No lock: one that another thread holds during a fork is never released in the child.
        return self._idle.setdefault(os.getpid(), deque())

    def _drop_idle(self) -> None:
        for connection in self._idle.pop(os.getpid(), ()):
            connection.close()

    def _message(self, error: psycopg.Error) -> str:
        text = " ".join(str(error).split())[:_SHOWN]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"store {self.address}: {text or type(error).__name__}"


def _options(url: str) -> dict[str, Any]:
    """Return libpq's options. A password with ``@`` or ``/`` in it would show in other parts."""
    try:
        given = conninfo_to_dict(url) if url.startswith(_SCHEMES) else {}
    except psycopg.Error:
        given = {}
    parts = f"{given.get('host')} {given.get('dbname')} {given.get('user')}"
    ports = str(given.get("port", "0")).replace(",", "")
    if not given or "@" in parts or not ports.isdigit():
        msg = (
            "the store URL cannot be read; allowed: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "where reserved characters of the password are percent-encoded"
        )
        raise StoreError(msg)
    return {
        "application_name": "otel-journal",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,  # milliseconds
        **given,
        "client_encoding": "utf8",
    }


def _transient(error: psycopg.Error) -> bool:
    """Return whether the same call can succeed later."""
    code = error.sqlstate
    if code is not None:
        return code.startswith(_TRANSIENT_CLASSES) or code == _TOO_MANY_CONNECTIONS
    text = str(error)
    return isinstance(error, psycopg.OperationalError) and not any(w in text for w in _FINAL_WORDS)
