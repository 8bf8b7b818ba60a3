"""A receiver of OTLP traces and logs over real HTTP/protobuf and gRPC, in the test's process.

It keeps what it accepted as plain values and counts every request, whatever it answered. Answers
can be scripted: statuses, delays, redirects, resets, and the lost acknowledgement (kept, yet
answered with an error or not at all). A sink can also refuse what it dislikes, as collectors do:
bodies above a size, spans of certain names. It speaks TLS if it is given a certificate.
"""

from __future__ import annotations

import gzip
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, cast

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from servers.otlp_answers import Answer, ReceivedRequest, Tls, refuse_unless_ok, tls_context
from servers.otlp_records import ReceivedLog, ReceivedSpan, decoded_logs, decoded_spans
from servers.process import wait_until
from typing_extensions import Self

PROTOBUF: Final = "application/x-protobuf"
GRPC_WORKERS: Final = 4


class OtlpSink:
    """The receiver; a context manager, listening on two loopback ports while it is open."""

    def __init__(
        self,
        *,
        max_bytes: int | None = None,
        tls: Tls | None = None,
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        """Start listening, accepting everything (up to `max_bytes` a request, uncompressed).

        `ports` are those for HTTP and gRPC; 0: any free one.
        """
        self.refused_names: frozenset[str] = frozenset()
        """A request with a span of such a name is answered with 400 or INVALID_ARGUMENT."""
        self.max_bytes = max_bytes
        self.tls = tls
        """Used for new connections: replace it to rotate the certificate."""
        self.closing = threading.Event()
        """Set when the sink closes; ends the delays of answers."""
        self._lock = threading.Lock()
        self._spans: list[ReceivedSpan] = []
        self._logs: list[ReceivedLog] = []
        self._requests: list[ReceivedRequest] = []
        self._script: deque[Answer] = deque()
        self._default = Answer()
        self._http = _HttpServer(self, ports[0])
        self._grpc = grpc.server(ThreadPoolExecutor(GRPC_WORKERS), options=_grpc_options(max_bytes))
        trace_grpc.add_TraceServiceServicer_to_server(_Traces(self), self._grpc)
        logs_grpc.add_LogsServiceServicer_to_server(_Logs(self), self._grpc)
        self.grpc_port = self._add_grpc_port(f"127.0.0.1:{ports[1]}")
        self.http_port = self._http.server_port
        self._grpc.start()
        scheme = "https" if tls else "http"
        self.http_endpoint = f"{scheme}://127.0.0.1:{self.http_port}"
        """Base URL for OTLP over HTTP; ``/v1/traces`` and ``/v1/logs`` hang below it."""
        self.grpc_endpoint = f"{scheme}://127.0.0.1:{self.grpc_port}"
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
        self,
        request: trace_pb.ExportTraceServiceRequest,
        protocol: str,
        *,
        compressed: bool,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Book one trace request and return how to answer it."""
        spans = list(decoded_spans(request))
        answer = self._answer_to(span.name for span in spans)
        self._book(
            ReceivedRequest(protocol, "traces", len(spans), compressed, answer, headers or {})
        )
        if answer.keeps:
            with self._lock:
                self._spans.extend(spans)
        self.closing.wait(answer.delay)
        return answer

    def receive_logs(
        self, request: logs_pb.ExportLogsServiceRequest, protocol: str, *, compressed: bool
    ) -> Answer:
        """Book one log request and return how to answer it."""
        logs = list(decoded_logs(request))
        answer = self._answer_to(())
        self._book(ReceivedRequest(protocol, "logs", len(logs), compressed, answer))
        if answer.keeps:
            with self._lock:
                self._logs.extend(logs)
        self.closing.wait(answer.delay)
        return answer

    def close(self) -> None:
        """Stop listening and end every connection."""
        self.closing.set()
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

    def receive_oversize(self, protocol: str) -> Answer:
        """Book one request that is too large to be read, and return how to answer it."""
        answer = Answer(413, message="request too large")
        self._book(ReceivedRequest(protocol, "traces", 0, compressed=False, answer=answer))
        return answer

    def _answer_to(self, names: Iterable[str]) -> Answer:
        if bad := self.refused_names.intersection(names):
            return Answer(400, message=f"cannot take {', '.join(sorted(bad))}")
        with self._lock:
            return self._script.popleft() if self._script else self._default

    def _book(self, request: ReceivedRequest) -> None:
        with self._lock:
            self._requests.append(request)

    def _add_grpc_port(self, address: str) -> int:
        if self.tls is None:
            return cast("int", self._grpc.add_insecure_port(address))
        credentials = grpc.dynamic_ssl_server_credentials(
            self._grpc_certificate(),
            self._grpc_certificate,
            require_client_authentication=self.tls.client_authority is not None,
        )
        return cast("int", self._grpc.add_secure_port(address, credentials))

    def _grpc_certificate(self) -> grpc.ServerCertificateConfiguration:
        tls = cast("Tls", self.tls)
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        authority = tls.client_authority.read_bytes() if tls.client_authority else None
        return grpc.ssl_server_certificate_configuration([pair], authority)


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, sink: OtlpSink) -> None:
        self._sink = sink

    def Export(  # noqa: N802 - the name is the protocol's
        self, request: trace_pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_pb.ExportTraceServiceResponse:
        metadata = dict(context.invocation_metadata())
        answer = self._sink.receive_traces(request, "grpc", compressed=False, headers=metadata)
        refuse_unless_ok(context, answer)
        return _trace_response(answer)


class _Logs(logs_grpc.LogsServiceServicer):
    def __init__(self, sink: OtlpSink) -> None:
        self._sink = sink

    def Export(  # noqa: N802 - the name is the protocol's
        self, request: logs_pb.ExportLogsServiceRequest, context: grpc.ServicerContext
    ) -> logs_pb.ExportLogsServiceResponse:
        answer = self._sink.receive_logs(request, "grpc", compressed=False)
        refuse_unless_ok(context, answer)
        return _logs_response(answer)


class _HttpServer(ThreadingHTTPServer):
    """Keeps connections alive as collectors do, and can end them all."""

    daemon_threads = False  # so that server_close() waits for the handlers

    def __init__(self, sink: OtlpSink, port: int) -> None:
        self.sink = sink
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _HttpHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="otlp-sink")
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if tls := self.sink.tls:
            connection = tls_context(tls).wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a client that went away is no fault
            super().handle_error(request, client_address)

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with suppress(OSError):  # the client may be quicker
                # On the plain socket; it wakes a handler that waits for a request.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self.server_close()


class _HttpHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sink = cast("_HttpServer", self.server).sink
        body = self.rfile.read(int(self.headers["Content-Length"]))
        compressed = self.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(body) if compressed else body
        if sink.max_bytes is not None and len(body) > sink.max_bytes:
            self._send(sink.receive_oversize("http"), b"")
        elif self.headers.get("Content-Type") != PROTOBUF:
            self._send(Answer(status=415), b"")
        elif self.path == "/v1/traces":
            traces = trace_pb.ExportTraceServiceRequest.FromString(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = sink.receive_traces(traces, "http", compressed=compressed, headers=headers)
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
        if answer.reset:
            self.close_connection = True
            return
        plain = bool(answer.message)
        body = answer.message.encode() if plain else body
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", "text/plain" if plain else PROTOBUF)
            self.send_header("Content-Length", str(len(body)))
            if answer.retry_after is not None:
                self.send_header("Retry-After", str(answer.retry_after))
            if answer.location:
                self.send_header("Location", answer.location)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):  # the client gave up during our delay
            self.close_connection = True


def _grpc_options(max_bytes: int | None) -> list[tuple[str, int]]:
    return [] if max_bytes is None else [("grpc.max_receive_message_length", max_bytes)]


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
