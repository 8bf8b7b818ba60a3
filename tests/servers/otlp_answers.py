"""How a scripted receiver of OTLP answers, what it notes of a request, and its certificates."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

OK: Final = 200

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
    code: grpc.StatusCode | None = None
    """What gRPC says instead; it counts for `keeps` as the status does."""
    message: str = ""
    """gRPC's status message; over HTTP the body of a refusal."""
    location: str = ""
    """The HTTP header Location."""
    retry_info: float | None = None
    """Seconds in gRPC's RetryInfo."""
    reset: bool = False
    """Cut the connection instead of answering; gRPC says UNAVAILABLE."""
    delay: float = 0.0
    """Seconds before the answer."""
    retry_after: int | str | None = None
    """Seconds, or a date, in the HTTP header Retry-After."""
    rejected: int = 0
    """Items reported as rejected in a partial success."""
    keep: bool | None = None
    """Whether the payload counts as arrived; None: only when it is accepted."""

    @property
    def keeps(self) -> bool:
        """Whether the payload counts as arrived."""
        return self.accepts if self.keep is None else self.keep

    @property
    def accepts(self) -> bool:
        """Whether the answer is a success."""
        return self.status == OK and self.code is None and not self.reset


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
    headers: Mapping[str, str] = field(default_factory=dict)
    """What came beside the body: HTTP headers or gRPC metadata, names in lower case."""


@dataclass(frozen=True)
class Tls:
    """PEM files that make a sink speak TLS."""

    certificate: Path
    key: Path
    client_authority: Path | None = None
    """Who must have signed the certificate of a client; None: clients need none."""


def refuse_unless_ok(context: grpc.ServicerContext, answer: Answer) -> None:
    """End a call with the error of an answer that is one."""
    if answer.accepts:
        return
    lost = grpc.StatusCode.UNAVAILABLE  # for statuses of HTTP alone, and for resets
    code = answer.code or GRPC_CODES.get(answer.status, lost)
    message = answer.message or f"scripted status {answer.status}"
    if answer.retry_info is not None:
        status = status_pb2.Status(code=code.value[0], message=message)
        pause = error_details_pb2.RetryInfo()
        pause.retry_delay.FromMilliseconds(int(answer.retry_info * 1000))
        status.details.add().Pack(pause)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of a server with these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    if tls.client_authority:
        context.load_verify_locations(tls.client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
