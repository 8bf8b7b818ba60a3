"""A collector that takes connections and never answers."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType

from typing_extensions import Self


class Blackhole:
    """A TCP server on loopback that accepts, and neither reads nor answers."""

    def __init__(self) -> None:
        """Start listening."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._accepted: list[socket.socket] = []
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        """Base URL for OTLP over HTTP or gRPC."""
        self._thread = threading.Thread(target=self._accept, name="blackhole")
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                self._accepted.append(self._listener.accept()[0])

    def __enter__(self) -> Self:
        """Return the listening server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening and end every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self._thread.join()
        for connection in self._accepted:
            connection.close()
