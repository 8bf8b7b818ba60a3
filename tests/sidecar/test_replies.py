"""What an answer means, by status, code and failure."""

from __future__ import annotations

import http.client
import ssl
from email.utils import formatdate

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb

from otel_journal.sidecar.otlp.replies import (
    LONGEST_RETRY_AFTER_S,
    LONGEST_TEXT,
    PROTOBUF,
    Reply,
    failure_reply,
    grpc_accepted,
    grpc_reply,
    http_reply,
    retry_after,
)

NOW = 1_800_000_000.0


def _partial(rejected: int) -> bytes:
    response = trace_pb.ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    return response.SerializeToString()


def _details(seconds: int, nanos: int = 0) -> bytes:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.seconds, info.retry_delay.nanos = seconds, nanos
    packed = AnyMessage()
    packed.Pack(info)
    other = AnyMessage()
    other.Pack(status_pb2.Status())
    return status_pb2.Status(details=[other, packed]).SerializeToString()


@pytest.mark.parametrize(
    ("status", "verdict", "reason"),
    [
        (200, "accepted", "ok"),
        (202, "accepted", "ok"),
        (204, "accepted", "ok"),
        (301, "held", "redirect"),
        (304, "held", "redirect"),
        (307, "held", "redirect"),
        (400, "refused", "refused"),
        (401, "held", "auth"),
        (403, "held", "auth"),
        (404, "held", "not_found"),
        (405, "held", "not_found"),
        (407, "held", "auth"),
        (408, "retry", "status"),
        (413, "too_large", "too_large"),
        (415, "refused", "refused"),
        (422, "refused", "refused"),
        (429, "retry", "status"),
        (500, "retry", "status"),
        (501, "retry", "status"),
        (502, "retry", "status"),
        (503, "retry", "status"),
        (504, "retry", "status"),
        (599, "retry", "status"),
    ],
)
def test_http_status(status: int, verdict: str, reason: str) -> None:
    """Only 2xx is success, only 4xx of some kinds blames spans, only those are let go of."""
    reply = http_reply(status, {}, b"", now=NOW)
    assert (reply.verdict, reply.reason) == (verdict, reason)
    assert reply.detail == ("" if status < 300 else f"HTTP {status}")


@pytest.mark.parametrize(
    ("code", "verdict", "reason"),
    [
        ("CANCELLED", "retry", "status"),
        ("UNKNOWN", "retry", "status"),
        ("INVALID_ARGUMENT", "refused", "refused"),
        ("DEADLINE_EXCEEDED", "retry", "timeout"),
        ("NOT_FOUND", "held", "not_found"),
        ("ALREADY_EXISTS", "refused", "refused"),
        ("PERMISSION_DENIED", "held", "auth"),
        ("RESOURCE_EXHAUSTED", "retry", "status"),
        ("FAILED_PRECONDITION", "refused", "refused"),
        ("ABORTED", "retry", "status"),
        ("OUT_OF_RANGE", "retry", "status"),
        ("UNIMPLEMENTED", "held", "not_found"),
        ("INTERNAL", "retry", "status"),
        ("UNAVAILABLE", "retry", "status"),
        ("DATA_LOSS", "retry", "status"),
        ("UNAUTHENTICATED", "held", "auth"),
    ],
)
def test_grpc_code(code: str, verdict: str, reason: str) -> None:
    """Every code but OK has its place."""
    reply = grpc_reply(code, "words", None)
    assert (reply.verdict, reply.reason, reply.detail) == (verdict, reason, f"gRPC {code}")
    assert reply.text == ("words" if verdict == "refused" else "")


@pytest.mark.parametrize(
    "text",
    [
        "SERVER: Received message larger than max (5000 vs. 4000)",
        "grpc: received message after decompression larger than max 4194304",
        "request too large",
    ],
)
def test_grpc_size(text: str) -> None:
    """A message that is too large has no code of its own; with a pause it is an overload."""
    assert grpc_reply("RESOURCE_EXHAUSTED", text, None).verdict == "too_large"
    assert grpc_reply("RESOURCE_EXHAUSTED", text, _details(1)).verdict == "retry"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("nan", None),
        ("inf", LONGEST_RETRY_AFTER_S),
        ("86400", LONGEST_RETRY_AFTER_S),
        (formatdate(NOW + 60, usegmt=True), 60.0),
        (formatdate(NOW - 60, usegmt=True), 0.0),
        (formatdate(NOW + 1e6, usegmt=True), LONGEST_RETRY_AFTER_S),
        ("tomorrow", None),
        ("Fri, 99 Nov 9999999 00:00:00 GMT", None),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    """Seconds or a date, below a limit; what cannot be read asks for nothing."""
    assert retry_after(text, now=NOW) == seconds
    if text is not None:
        assert http_reply(503, {"retry-after": text}, b"", now=NOW).retry_after == seconds


def test_retry_info() -> None:
    """GRPC asks for a pause in a trailer; an unreadable one asks for nothing."""
    assert grpc_reply("UNAVAILABLE", "", _details(2, 500_000_000)).retry_after == 2.5
    assert grpc_reply("UNAVAILABLE", "", _details(86_400)).retry_after == LONGEST_RETRY_AFTER_S
    assert grpc_reply("UNAVAILABLE", "", b"\xff\xff").retry_after is None
    assert (
        grpc_reply("UNAVAILABLE", "", status_pb2.Status().SerializeToString()).retry_after is None
    )


@pytest.mark.parametrize(
    ("content_type", "body", "rejected"),
    [
        (PROTOBUF, _partial(3), 3),
        (f"{PROTOBUF}; charset=x", _partial(3), 3),
        (PROTOBUF, _partial(-3), 0),
        (PROTOBUF, b"", 0),
        (PROTOBUF, b"\xff\xff", 0),
        ("application/json", b'{"partialSuccess": {"rejectedSpans": "2"}}', 2),
        ("application/json", b"{}", 0),
        ("application/json", b"[]", 0),
        ("application/json", b"{", 0),
        ("text/plain", _partial(3), 0),
        ("", b"", 0),
    ],
)
def test_partial_success(content_type: str, body: bytes, rejected: int) -> None:
    """Rejected spans are read where they are told; any other body rejects none."""
    reply = http_reply(200, {"content-type": content_type}, body, now=NOW)
    assert (reply.verdict, reply.rejected) == ("accepted", rejected)
    assert reply.reason == ("partial" if rejected else "ok")


def test_partial_success_over_grpc() -> None:
    """The same in the bytes of the reply."""
    assert grpc_accepted(_partial(4)) == Reply(
        "accepted", "partial", "4 spans rejected", rejected=4
    )
    assert grpc_accepted(b"") == Reply("accepted", "ok")


def test_the_words_of_a_refusal() -> None:
    """They are kept apart from our own, cut, from a protobuf status too."""
    plain = http_reply(400, {"content-type": "text/plain"}, b"no\xff" + b"x" * 999, now=NOW)
    assert plain.detail == "HTTP 400"
    assert plain.text.startswith("no\N{REPLACEMENT CHARACTER}xxx")
    assert len(plain.text) == LONGEST_TEXT
    status = status_pb2.Status(message="bad span").SerializeToString()
    assert http_reply(400, {"content-type": PROTOBUF}, status, now=NOW).text == "bad span"
    assert not http_reply(413, {"content-type": PROTOBUF}, b"\xff\xff", now=NOW).text


@pytest.mark.parametrize(
    ("error", "verdict", "reason"),
    [
        (TimeoutError(), "retry", "timeout"),
        (ConnectionRefusedError(111, "Connection refused"), "retry", "connection"),
        (http.client.BadStatusLine("secret"), "retry", "connection"),
        (ssl.SSLEOFError(), "retry", "connection"),
        (ssl.SSLZeroReturnError(), "retry", "connection"),
        (ssl.SSLError(1, "unknown ca"), "held", "tls"),
    ],
)
def test_failures(error: Exception, verdict: str, reason: str) -> None:
    """No answer at all: the network is waited for, certificates are held."""
    reply = failure_reply(error)
    assert (reply.verdict, reply.reason) == (verdict, reason)
    assert type(error).__name__ in reply.detail
    assert "secret" not in reply.detail
