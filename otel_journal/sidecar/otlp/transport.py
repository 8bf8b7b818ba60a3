"""What carries a request to the collector and brings back the reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .endpoint import Endpoint
    from .replies import Reply


class Transport(Protocol):
    """One request at a time, from one thread; `close` from any."""

    def send(self, body: bytes) -> Reply:
        """Send an ``ExportTraceServiceRequest``; return what came back. Never raises.

        A connection that did not serve is not used again: the next request looks the name up,
        reads the certificates and connects anew, so that what was mended works at once.
        """

    def close(self) -> None:
        """Close the connection for good; a request under way ends early, to be retried."""


def connect(endpoint: Endpoint) -> Transport:
    """Return the transport for an endpoint. It connects with its first request, not here."""
    if endpoint.protocol == "grpc":
        from .grpc_transport import GrpcTransport  # noqa: PLC0415 - grpc loads a large library

        return GrpcTransport(endpoint)
    from .http_transport import HttpTransport  # noqa: PLC0415 - as above, the other way round

    return HttpTransport(endpoint)
