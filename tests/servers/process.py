"""Start a server as a child process on loopback, wait until it answers, stop it by its pid."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from typing_extensions import Self

CACHE_VARIABLE: Final = "TEST_SERVERS_CACHE"
"""Folder that `.ci/servers` fills; its own default is the same as `cache_folder`'s."""

POLL_S: Final = 0.05
STOP_TIMEOUT_S: Final = 10.0

_FOREIGN_PREFIXES: Final = ("OTEL_", "ROTEL_")
"""Variables that would reconfigure a server behind the test's back."""


class ServerError(AssertionError):
    """A server ended or stayed silent; the message holds the tail of its log."""


def cache_folder() -> Path:
    """Return the folder in which `.ci/servers` keeps what it fetched."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "otel-journal"


def find_program(name: str) -> Path | None:
    """Return the path of a server program: from the cache, else from PATH, else None."""
    folders = [cache_folder() / "bin", *map(Path, os.get_exec_path())]
    paths = (folder / name for folder in folders)
    return next((path for path in paths if os.access(path, os.X_OK) and path.is_file()), None)


def free_port() -> int:
    """Return a TCP port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Return whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll a condition; return its last answer, False when `timeout` seconds ran out."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


class ServerProcess:
    """One running server; its output goes to `log`."""

    def __init__(self, command: Sequence[str | Path], folder: Path) -> None:
        """Start `command` in `folder`, with an environment free of telemetry settings."""
        self.log = folder / f"{Path(command[0]).name}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN_PREFIXES)}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own command lines
                [str(part) for part in command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def wait_ready(self, ready: Callable[[], bool], timeout: float = 20.0) -> None:
        """Wait until `ready` answers True.

        Raises:
            ServerError: the process ended, or `timeout` seconds passed.
        """
        wait_until(lambda: self._process.poll() is not None or ready(), timeout)
        if self._process.poll() is None and ready():
            return
        self.stop()
        tail = self.log.read_text(errors="replace")[-2000:]
        msg = f"{self._process.args!r} is not ready (exit {self._process.returncode}):\n{tail}"
        raise ServerError(msg)

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Ask the server to end, insist after `STOP_TIMEOUT_S`; harmless when it has ended."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        """Return the running server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()
