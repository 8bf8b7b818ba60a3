"""OTLP over gRPC: one unary method called with the bytes of the request, without stubs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import grpc  # type: ignore[import-untyped]

from otel_journal.exposition import installed_version

from .replies import Reply, grpc_accepted, grpc_reply

if TYPE_CHECKING:
    from .endpoint import Endpoint

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
"""The one method of OTLP for traces."""

DETAILS: Final = "grpc-status-details-bin"
"""Trailer with a google.rpc.Status, in which a server names a pause."""

_LOCAL_POOL: Final = ("grpc.use_local_subchannel_pool", 1)
"""A new channel is then a new connection, without the back-off of the one before."""


class GrpcTransport:
    """Sends requests to one server; see `transport.Transport`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._options = (
            _LOCAL_POOL,
            ("grpc.primary_user_agent", f"otel-journal/{installed_version()}"),
        )
        gzip = endpoint.compression == "gzip"
        self._compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        self._channel: Any = None
        self._lock = threading.Lock()
        self._closed = False

    def send(self, body: bytes) -> Reply:
        """Call the method once. Never raises."""
        try:
            channel = self._open_channel()
        except OSError as error:
            return Reply("held", "tls", f"certificate files: {error.strerror}")
        if channel is None:
            return Reply("retry", "connection", "closed")
        reply = self._call(channel, body)
        if reply.verdict in {"retry", "held"}:
            self._drop()
        return reply

    def close(self) -> None:
        """Close the connection for good; a request under way ends early."""
        self._closed = True
        self._drop()

    def _call(self, channel: Any, body: bytes) -> Reply:  # noqa: ANN401 - grpc has no types
        try:
            answer = channel.unary_unary(METHOD)(
                body,
                timeout=self._endpoint.timeout_s,
                metadata=self._endpoint.headers,
                compression=self._compression,
            )
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            return grpc_reply(error.code().name, error.details() or "", trailers.get(DETAILS))
        except ValueError:  # closed by another thread between our look and the call
            return Reply("retry", "connection", "closed")
        return grpc_accepted(cast("bytes", answer))

    def _open_channel(self) -> Any:  # noqa: ANN401 - grpc has no types
        """Return the channel, a new one if need be; None once closed."""
        with self._lock:
            if self._channel is None and not self._closed:
                self._channel = self._new_channel()
            return self._channel

    def _new_channel(self) -> Any:  # noqa: ANN401 - grpc has no types
        endpoint = self._endpoint
        if endpoint.insecure:
            return grpc.insecure_channel(endpoint.url, options=self._options)
        own = endpoint.client_certificate
        credentials = grpc.ssl_channel_credentials(
            root_certificates=_content(endpoint.certificate),
            private_key=_content(endpoint.client_key or own),
            certificate_chain=_content(own),
        )
        return grpc.secure_channel(endpoint.url, credentials, options=self._options)

    def _drop(self) -> None:
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
