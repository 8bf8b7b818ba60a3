"""A real PostgreSQL on loopback that can be stopped, crashed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg
from psycopg import sql
from servers.process import STOP_TIMEOUT_S, ServerError, ServerProcess, find_program, free_port

PROGRAM: Final = "postgres"
PASSWORD: Final = "s3cret-pass-Word"  # noqa: S105 - of a server on loopback that lives for minutes
USER: Final = "postgres"

_DEBIAN: Final = Path("/usr/lib/postgresql")
"""Debian keeps every version's programs in a folder of its own, off PATH."""

_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "jit": "off",
    # Its transactions would hold new events back from readers at times of its own choice.
    "autovacuum": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
}


class _Process(ServerProcess):
    def end(self, number: signal.Signals) -> None:
        """Stop with one of PostgreSQL's own signals: SIGTERM would wait for every client."""
        self._process.send_signal(number)
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End at once when the start has failed."""
        if self._process.poll() is None:
            self.end(signal.SIGQUIT)


def find_postgres() -> Path | None:
    """Return the newest installed `postgres`, with `initdb` beside it, else None."""
    versions = sorted(_DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name))
    found = [find_program(PROGRAM), *(folder / PROGRAM for folder in reversed(versions))]
    return next((p for p in found if p is not None and p.with_name("initdb").is_file()), None)


class Postgres:
    """One server with password authentication; its data lies in a folder of its own."""

    def __init__(self, program: Path) -> None:
        """Make a cluster and start it. Root starts it as another user: PostgreSQL insists."""
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._as_user = _as_other_user(self._folder)
        self._port = free_port()
        self._process: _Process | None = None
        self._numbers = count(1)
        try:
            self._initdb()
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database: str = "postgres", password: str = PASSWORD) -> str:
        """Return the URL of a database."""
        return f"postgresql://{USER}:{quote(password)}@127.0.0.1:{self._port}/{database}"

    def new_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    def start(self) -> None:
        """Start the server; harmless when it runs."""
        if self._process is not None:
            return
        settings = [part for item in _SETTINGS.items() for part in ("-c", "=".join(item))]
        self._process = _Process(
            [
                *(*self._as_user, self._program, "-D", self._folder / "data"),
                *("-p", str(self._port), *settings),
            ],
            self._folder,
        )
        self._process.wait_ready(self._answers, timeout=60.0)

    def stop(self, *, crash: bool = False) -> None:
        """End the server and every connection; with `crash` it has to recover at the next start."""
        if self._process is None:
            return
        self._process.end(signal.SIGQUIT if crash else signal.SIGINT)
        self._process = None

    def close(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initdb(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        made = subprocess.run(  # noqa: S603 - our own command line
            [
                *(*self._as_user, self._program.with_name("initdb"), "-D", self._folder / "data"),
                *("-U", USER, "-A", "scram-sha-256", "--pwfile", secret),
                *("--no-sync", "--encoding=UTF8", "--locale=C"),
            ],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            msg = f"initdb failed: {made.stderr}"
            raise ServerError(msg)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _as_other_user(folder: Path) -> list[str]:
    """Return the start of a command line that leaves root behind; give `folder` to that user."""
    if os.geteuid() != 0:
        return []
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
