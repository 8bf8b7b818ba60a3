"""A model provider on loopback: real HTTP, the wire formats of three APIs, scripted answers.

``POST`` of ``/v1/chat/completions``, ``/v1/responses`` or ``/v1/messages`` answers with what `say`
queued, as JSON or as server-sent events, whichever the request asks for. ``GET`` of any other path
answers with that path: the plain HTTP server that tools call. Every request is kept.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

from servers.provider_wire import Answer, Api, body, events
from typing_extensions import Self

APIS: Final[Mapping[str, Api]] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
NO_SPAN: Final = ("", "")


@dataclass(frozen=True)
class Received:
    """One request, as the server got it."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    json: Mapping[str, Any]

    @property
    def parent(self) -> tuple[str, str]:
        """Trace id and span id that the header ``traceparent`` names; empty without it."""
        parts = self.headers.get("traceparent", "").split("-")
        return (parts[1], parts[2]) if len(parts) == 4 else NO_SPAN


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer that is none."""

    status: int
    retry_after: str = ""
    """Seconds; clients sleep that long."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A stream whose connection breaks after so many events."""

    answer: Answer
    after: int


Reply = Answer | Refusal | Cut


class Provider:
    """The server; use it as a context manager."""

    def __init__(self, *, pause: float = 0.0) -> None:
        """`pause` seconds pass before every event of a stream."""
        self.requests: list[Received] = []
        self._replies: deque[Reply] = deque()
        self._pause = pause
        self._lock = threading.Lock()
        provider = self

        class Handler(_Handler):
            stub = provider

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        """The port on loopback."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where the server answers, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def say(self, *replies: Reply) -> None:
        """Queue answers; without any the server says ``Answer()``."""
        self._replies.extend(replies)

    def received(self, path: str) -> list[Received]:
        """Requests of a path, in the order in which they came."""
        return [request for request in self.requests if request.path == path]

    def next_reply(self, request: Received) -> Reply:
        """Keep a request; return what to answer it with."""
        with self._lock:
            self.requests.append(request)
            return self._replies.popleft() if self._replies else Answer()

    def wait(self) -> None:
        """Pass the time between the events of a stream."""
        time.sleep(self._pause)

    def __enter__(self) -> Self:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one request per connection: clients live longer than loops
    disable_nagle_algorithm = True
    stub: Provider

    def do_GET(self) -> None:
        """Answer a tool."""
        self.stub.requests.append(self._received(b""))
        self._send(200, self.path.encode(), "text/plain")

    def do_POST(self) -> None:
        """Answer a model client."""
        request = self._received(self.rfile.read(int(self.headers["content-length"] or 0)))
        api = APIS[self.path.partition("?")[0]]
        reply = self.stub.next_reply(request)
        if isinstance(reply, Refusal):
            error = {"type": "rate_limit_error", "message": "slow down", "code": "rate_limited"}
            extra = {"retry-after": reply.retry_after} if reply.retry_after else {}
            said = json.dumps({"type": "error", "error": error}).encode()
            self._send(reply.status, said, "application/json", extra)
        elif request.json.get("stream"):
            self._stream(api, reply, request)
        else:
            answer = reply.answer if isinstance(reply, Cut) else reply
            self._send(200, json.dumps(body(api, answer)).encode(), "application/json")

    def _received(self, content: bytes) -> Received:
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Received(self.command, self.path, headers, json.loads(content) if content else {})

    def _send(
        self, status: int, content: bytes, kind: str, extra: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.send_header("connection", "close")
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, api: Api, reply: Answer | Cut, request: Received) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        self.end_headers()
        answer, left = (reply.answer, reply.after) if isinstance(reply, Cut) else (reply, None)
        try:
            for number, event in enumerate(events(api, answer, request.json)):
                if number == left:
                    return  # without the last chunk: the client sees a broken stream
                self.stub.wait()
                self._chunk(_encoded(event))
            self._chunk(b"")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client stopped reading

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests read `Provider.requests`."""


def _encoded(event: Mapping[str, Any] | str) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event)}\n\n".encode()
