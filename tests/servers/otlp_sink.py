"""A receiver of OTLP traces and logs over real HTTP/protobuf and gRPC, in the test's process.

It keeps what it accepted as plain values and counts every request, whatever it answered. Answers
can be scripted: statuses, delays, and the lost acknowledgement (kept, yet answered with an error).
"""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, cast

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from servers.otlp_records import ReceivedLog, ReceivedSpan, decoded_logs, decoded_spans
from servers.process import wait_until
from typing_extensions import Self

PROTOBUF: Final = "application/x-protobuf"
OK: Final = 200
GRPC_WORKERS: Final = 4

GRPC_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.UNAVAILABLE,
    500: grpc.StatusCode.INTERNAL,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
"""HTTP status of a scripted answer -> what the gRPC side says (gRPC's own HTTP mapping)."""


@dataclass(frozen=True)
class Answer:
    """How to answer one request; the default accepts it at once."""

    status: int = OK
    """HTTP status; gRPC answers by `GRPC_CODES`."""
    delay: float = 0.0
    """Seconds before the answer."""
    retry_after: int | None = None
    """Seconds in the HTTP header Retry-After."""
    rejected: int = 0
    """Items reported as rejected in a partial success."""
    keep: bool | None = None
    """Whether the payload counts as arrived; None: only when the status is 200."""

    @property
    def keeps(self) -> bool:
        """Whether the payload counts as arrived."""
        return self.status == OK if self.keep is None else self.keep


@dataclass(frozen=True)
class ReceivedRequest:
    """One request, answered or not."""

    protocol: str
    """``http`` or ``grpc``."""
    signal: str
    """``traces`` or ``logs``."""
    items: int
    """Spans or log records in it."""
    compressed: bool
    """True for a gzip body over HTTP; gRPC hides its compression, so False there."""
    answer: Answer


class OtlpSink:
    """The receiver; a context manager, listening on two loopback ports while it is open."""

    def __init__(self) -> None:
        """Start listening, accepting everything."""
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []
        self._logs: list[ReceivedLog] = []
        self._requests: list[ReceivedRequest] = []
        self._script: deque[Answer] = deque()
        self._default = Answer()
        self._http = _HttpServer(self)
        self._grpc = grpc.server(ThreadPoolExecutor(GRPC_WORKERS))
        trace_grpc.add_TraceServiceServicer_to_server(_Traces(self), self._grpc)
        logs_grpc.add_LogsServiceServicer_to_server(_Logs(self), self._grpc)
        grpc_port = self._grpc.add_insecure_port("127.0.0.1:0")
        self._grpc.start()
        self.http_endpoint = f"http://127.0.0.1:{self._http.server_port}"
        """Base URL for OTLP over HTTP; ``/v1/traces`` and ``/v1/logs`` hang below it."""
        self.grpc_endpoint = f"http://127.0.0.1:{grpc_port}"
        """Target for OTLP over gRPC."""

    @property
    def spans(self) -> list[ReceivedSpan]:
        """What arrived so far, in order of arrival, repeats included."""
        with self._lock:
            return list(self._spans)

    @property
    def logs(self) -> list[ReceivedLog]:
        """Log records that arrived so far, in order of arrival, repeats included."""
        with self._lock:
            return list(self._logs)

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Every request so far, refused ones included."""
        with self._lock:
            return list(self._requests)

    def script(self, *answers: Answer, then: Answer | None = None) -> None:
        """Answer the next requests as told, one each, and those after them with `then`."""
        with self._lock:
            self._script = deque(answers)
            self._default = then or Answer()

    def wait_for_spans(self, count: int, timeout: float = 10.0) -> list[ReceivedSpan]:
        """Wait until at least `count` spans have arrived; return all of them."""
        wait_until(lambda: len(self.spans) >= count, timeout)
        return self.spans

    def wait_for(self, condition: Callable[[OtlpSink], bool], timeout: float = 10.0) -> bool:
        """Wait until a condition on this sink holds; return whether it does."""
        return wait_until(lambda: condition(self), timeout)

    def receive_traces(
        self, request: trace_pb.ExportTraceServiceRequest, protocol: str, *, compressed: bool
    ) -> Answer:
        """Book one trace request and return how to answer it."""
        spans = list(decoded_spans(request))
        answer = self._book(protocol, "traces", len(spans), compressed=compressed)
        if answer.keeps:
            with self._lock:
                self._spans.extend(spans)
        time.sleep(answer.delay)
        return answer

    def receive_logs(
        self, request: logs_pb.ExportLogsServiceRequest, protocol: str, *, compressed: bool
    ) -> Answer:
        """Book one log request and return how to answer it."""
        logs = list(decoded_logs(request))
        answer = self._book(protocol, "logs", len(logs), compressed=compressed)
        if answer.keeps:
            with self._lock:
                self._logs.extend(logs)
        time.sleep(answer.delay)
        return answer

    def close(self) -> None:
        """Stop listening and end every connection."""
        self._grpc.stop(grace=None).wait()
        self._http.close()

    def __enter__(self) -> Self:
        """Return the listening sink."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening."""
        self.close()

    def _book(self, protocol: str, signal: str, items: int, *, compressed: bool) -> Answer:
        with self._lock:
            answer = self._script.popleft() if self._script else self._default
            self._requests.append(ReceivedRequest(protocol, signal, items, compressed, answer))
        return answer


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, sink: OtlpSink) -> None:
        self._sink = sink

    def Export(  # noqa: N802 - the name is the protocol's
        self, request: trace_pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_pb.ExportTraceServiceResponse:
        answer = self._sink.receive_traces(request, "grpc", compressed=False)
        _refuse_unless_ok(context, answer)
        return _trace_response(answer)


class _Logs(logs_grpc.LogsServiceServicer):
    def __init__(self, sink: OtlpSink) -> None:
        self._sink = sink

    def Export(  # noqa: N802 - the name is the protocol's
        self, request: logs_pb.ExportLogsServiceRequest, context: grpc.ServicerContext
    ) -> logs_pb.ExportLogsServiceResponse:
        answer = self._sink.receive_logs(request, "grpc", compressed=False)
        _refuse_unless_ok(context, answer)
        return _logs_response(answer)


class _HttpServer(ThreadingHTTPServer):
    """Keeps connections alive as collectors do, and can end them all."""

    daemon_threads = False  # so that server_close() waits for the handlers

    def __init__(self, sink: OtlpSink) -> None:
        self.sink = sink
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _HttpHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="otlp-sink")
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with suppress(OSError):  # the client may be quicker
                connection.shutdown(socket.SHUT_RDWR)  # wakes a handler that waits for a request
        self.server_close()


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sink = cast("_HttpServer", self.server).sink
        body = self.rfile.read(int(self.headers["Content-Length"]))
        compressed = self.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(body) if compressed else body
        if self.headers.get("Content-Type") != PROTOBUF:
            self._send(Answer(status=415), b"")
        elif self.path == "/v1/traces":
            traces = trace_pb.ExportTraceServiceRequest.FromString(body)
            answer = sink.receive_traces(traces, "http", compressed=compressed)
            self._send(answer, _trace_response(answer).SerializeToString())
        elif self.path == "/v1/logs":
            logs = logs_pb.ExportLogsServiceRequest.FromString(body)
            answer = sink.receive_logs(logs, "http", compressed=compressed)
            self._send(answer, _logs_response(answer).SerializeToString())
        else:
            self._send(Answer(status=404), b"")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing: the requests are kept anyway."""

    def _send(self, answer: Answer, body: bytes) -> None:
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", PROTOBUF)
            self.send_header("Content-Length", str(len(body)))
            if answer.retry_after is not None:
                self.send_header("Retry-After", str(answer.retry_after))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):  # the client gave up during our delay
            self.close_connection = True


def _refuse_unless_ok(context: grpc.ServicerContext, answer: Answer) -> None:
    if answer.status != OK:
        context.abort(GRPC_CODES[answer.status], f"scripted status {answer.status}")


def _trace_response(answer: Answer) -> trace_pb.ExportTraceServiceResponse:
    response = trace_pb.ExportTraceServiceResponse()
    if answer.rejected:
        response.partial_success.rejected_spans = answer.rejected
    return response


def _logs_response(answer: Answer) -> logs_pb.ExportLogsServiceResponse:
    response = logs_pb.ExportLogsServiceResponse()
    if answer.rejected:
        response.partial_success.rejected_log_records = answer.rejected
    return response
