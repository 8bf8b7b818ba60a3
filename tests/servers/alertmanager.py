"""A real Alertmanager, a receiver for what it sends, and amtool's verdict."""

from __future__ import annotations

import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

import httpx
from servers.process import ServerProcess, free_port, wait_until
from typing_extensions import Self

PROGRAM: Final = "alertmanager"
AMTOOL: Final = "amtool"
REQUEST_TIMEOUT_S: Final = 5.0


class Alertmanager(ServerProcess):
    """One Alertmanager, alone."""

    def __init__(self, program: Path, folder: Path, config: Path) -> None:
        """Start the server with a configuration and wait until it is ready."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command: list[str | Path] = [
            *(program, "--config.file", config, "--storage.path", folder / "data"),
            *("--web.listen-address", f"127.0.0.1:{self.port}", "--cluster.listen-address", ""),
        ]
        super().__init__(command, folder)
        self.wait_ready(self._ready)

    def alerts(self) -> list[dict[str, Any]]:
        """Return the active alerts."""
        found: list[dict[str, Any]] = httpx.get(
            f"{self.url}/api/v2/alerts", timeout=REQUEST_TIMEOUT_S
        ).json()
        return found

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=REQUEST_TIMEOUT_S).is_success
        except httpx.TransportError:
            return False


class Webhook:
    """A receiver of notifications; a context manager, listening while it is open."""

    def __init__(self) -> None:
        """Start listening on a free loopback port."""
        self.notifications: list[tuple[str, dict[str, Any]]] = []
        """Path and body of every notification so far."""
        self._server = _WebhookServer(("127.0.0.1", 0), _WebhookHandler)
        self._server.webhook = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def wait_for_alert(self, name: str, timeout: float) -> tuple[str, dict[str, Any]] | None:
        """Wait for a notification of an alert; return its path and the alert, None without one."""

        def found() -> tuple[str, dict[str, Any]] | None:
            return next(
                (
                    (path, alert)
                    for path, body in list(self.notifications)
                    for alert in body["alerts"]
                    if alert["labels"]["alertname"] == name
                ),
                None,
            )

        wait_until(lambda: found() is not None, timeout)
        return found()

    def __enter__(self) -> Self:
        """Return the listening receiver."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _WebhookServer(ThreadingHTTPServer):
    webhook: Webhook


class _WebhookHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cast("_WebhookServer", self.server).webhook.notifications.append((self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing: the notifications are kept anyway."""


def objections(amtool: Path, config: Path) -> str:
    """Return what ``amtool check-config`` says; empty when it accepts the configuration."""
    checked = subprocess.run(  # noqa: S603 - our own command line
        [amtool, "check-config", config], capture_output=True, text=True, check=False, timeout=30.0
    )
    return checked.stdout + checked.stderr if checked.returncode else ""
