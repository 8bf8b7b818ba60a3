"""What an answer means: pure classification of HTTP statuses, gRPC codes and failures.

Only an answer that says so is taken for success. What a later try may heal is retried, what a
person must heal is held, and only an answer that blames the spans themselves lets go of any.
"""

from __future__ import annotations

import json
import re
import ssl
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_journal.events import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict: TypeAlias = Literal["accepted", "retry", "refused", "too_large", "held"]
"""What to do with the spans: done, soon again, blame one of them, make smaller, slowly again."""

PROTOBUF: Final = "application/x-protobuf"
"""Content type of requests, and of the replies whose body is read."""

LONGEST_RETRY_AFTER_S: Final = 300.0
"""A server may ask for this pause at most; a typo there must not stop the export for days."""

LONGEST_TEXT: Final = 300
"""Characters kept of a server's own words."""


class Reply(NamedTuple):
    """One answer, or the lack of one."""

    verdict: Verdict
    reason: str
    """One word of a small set, e.g. ``auth``; fit for a label."""
    detail: str = ""
    """What came, in our words: never content, never a header."""
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    rejected: int = 0
    """Spans that the server took note of and threw away; only in ``accepted``."""
    text: str = ""
    """The server's own words, cut. They may repeat content: for dead letters only."""


_HELD_STATUS: Final = {401: "auth", 403: "auth", 407: "auth", 404: "not_found", 405: "not_found"}
_RETRY_STATUS: Final = frozenset({408, 425, 429})
_TOO_LARGE_STATUS: Final = 413

_HELD_CODE: Final = {
    "UNAUTHENTICATED": "auth",
    "PERMISSION_DENIED": "auth",
    "UNIMPLEMENTED": "not_found",
    "NOT_FOUND": "not_found",
}
_REFUSED_CODES: Final = frozenset({"INVALID_ARGUMENT", "FAILED_PRECONDITION", "ALREADY_EXISTS"})
_SIZE: Final = re.compile(
    r"larger than max|too large|message size|exceeds .*(size|limit)", re.IGNORECASE
)
"""How gRPC servers name a message that is too large; they have no code of its own for it."""

_TLS: Final = re.compile(
    r"handshake failed|security handshaker|CERTIFICATE_VERIFY|peer cert", re.IGNORECASE
)
"""How gRPC names a failed handshake inside UNAVAILABLE; it has no code of its own for it either."""


def http_reply(status: int, headers: Mapping[str, str], body: bytes, *, now: float) -> Reply:
    """Classify an HTTP answer.

    Args:
        status: The status code.
        headers: The answer's headers, names in lower case.
        body: The answer's body, or its beginning.
        now: Unix time in seconds, for a Retry-After that names a date.
    """
    detail = f"HTTP {status}"
    pause = retry_after(headers.get("retry-after"), now=now)
    if 200 <= status < 300:  # noqa: PLR2004 - the class of success
        return _accepted(_rejected(headers.get("content-type", ""), body))
    if 300 <= status < 400:  # noqa: PLR2004 - the class of redirects
        return Reply("held", "redirect", detail, pause)
    if status in _HELD_STATUS:
        return Reply("held", _HELD_STATUS[status], detail, pause)
    if status == _TOO_LARGE_STATUS:
        return Reply("too_large", "too_large", detail, text=_http_text(headers, body))
    if 400 <= status < 500 and status not in _RETRY_STATUS:  # noqa: PLR2004 - blame on us
        return Reply("refused", "refused", detail, text=_http_text(headers, body))
    return Reply("retry", "status", detail, pause)


def grpc_reply(code: str, text: str, details: bytes | None) -> Reply:
    """Classify a gRPC error.

    Args:
        code: Name of the status code, e.g. ``UNAVAILABLE``.
        text: The status message.
        details: The trailer ``grpc-status-details-bin``.
    """
    detail = f"gRPC {code}"
    pause = _retry_info(details)
    if code in _HELD_CODE:
        return Reply("held", _HELD_CODE[code], detail, pause)
    if code == "UNAVAILABLE" and _TLS.search(text):
        return Reply("held", "tls", detail, pause)
    if code == "RESOURCE_EXHAUSTED" and pause is None and _SIZE.search(text):
        return Reply("too_large", "too_large", detail, text=text[:LONGEST_TEXT])
    if code in _REFUSED_CODES:
        return Reply("refused", "refused", detail, text=text[:LONGEST_TEXT])
    if code == "DEADLINE_EXCEEDED":
        return Reply("retry", "timeout", detail, pause)
    return Reply("retry", "status", detail, pause)


def grpc_accepted(body: bytes) -> Reply:
    """Classify the reply to a call that gRPC says is OK."""
    return _accepted(_rejected(PROTOBUF, body))


def failure_reply(error: Exception) -> Reply:
    """Classify an exchange over HTTP that ended without an answer."""
    words = error.strerror if isinstance(error, OSError) else None
    detail = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, ssl.SSLError) and not isinstance(
        error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    ):
        return Reply("held", "tls", detail)
    if isinstance(error, TimeoutError):
        return Reply("retry", "timeout", detail)
    return Reply("retry", "connection", detail)


def retry_after(text: str | None, *, now: float) -> float | None:
    """Return the seconds that a Retry-After header asks for; None for none that can be read.

    Args:
        text: The header: seconds or an HTTP date.
        now: Unix time in seconds.
    """
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    if seconds != seconds:  # noqa: PLR0124 - NaN is no pause
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)


def _accepted(rejected: int) -> Reply:
    if rejected:
        return Reply("accepted", "partial", f"{rejected} spans rejected", rejected=rejected)
    return Reply("accepted", "ok")


def _rejected(content_type: str, body: bytes) -> int:
    """Read ``partial_success.rejected_spans``; an answer of another shape has none."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == PROTOBUF:
            response = ExportTraceServiceResponse.FromString(body)
            return max(0, int(response.partial_success.rejected_spans))
        if kind == "application/json":
            return max(0, int(json.loads(body)["partialSuccess"]["rejectedSpans"]))
    except (DecodeError, ValueError, KeyError, TypeError):
        pass
    return 0


def _http_text(headers: Mapping[str, str], body: bytes) -> str:
    """Return the server's words: a google.rpc.Status in protobuf, else plain text."""
    if headers.get("content-type", "").startswith(PROTOBUF):
        try:
            return str(status_pb2.Status.FromString(body).message)[:LONGEST_TEXT]
        except DecodeError:
            return ""
    return body.decode(errors="replace")[:LONGEST_TEXT]


def _retry_info(details: bytes | None) -> float | None:
    """Return the seconds that a ``google.rpc.RetryInfo`` asks for."""
    if not details:
        return None
    try:
        for item in status_pb2.Status.FromString(details).details:
            if item.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
                delay = error_details_pb2.RetryInfo.FromString(item.value).retry_delay
                seconds = float(delay.seconds + delay.nanos / NS_PER_S)
                return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)
    except DecodeError:
        pass
    return None
